//! Jobs that may wait for long, such as the opening of a FIFO whose other end is silent.

use std::thread;

use tokio::sync::oneshot;

use crate::exit::{Exit, Failure};

/// Runs a job on a thread of its own. The end of the program waits for blocking jobs of the runtime, but not for this one.
pub(crate) async fn detached<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, done) = oneshot::channel();
    thread::Builder::new()
        .spawn(move || sender.send(job()))
        .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
    done.await.unwrap_or_else(|_| {
        let text = "a read failed by an error of fullbore: its thread ended";
        Err(Failure::new(Exit::Other, text.to_owned()))
    })
}
