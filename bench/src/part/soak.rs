//! The soak's server on the library: the same service in the clear and over TLS, in one process, and the number of its
//! tasks to whoever asks. `part` runs it, `soak` loads and watches it.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::Args;
use fullbore::Server;
use fullbore::tls::server_config;
use tokio::runtime::Handle;

use super::{Failure, say};
use crate::soak::service::answer;

#[derive(Args, Clone)]
pub(crate) struct SoakServer {
    /// The certificate chain, PEM
    #[arg(long)]
    cert: PathBuf,
    /// The certificate's private key, PEM
    #[arg(long)]
    key: PathBuf,
}

impl SoakServer {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let tls = server_config(&std::fs::read(&self.cert)?, &std::fs::read(&self.key)?)?;
        let clear = Server::bind("127.0.0.1:0").await?;
        let secure = Server::bind("127.0.0.1:0").await?.tls_config(Arc::new(tls));
        say(&format!("clear on {}", clear.local_addr()?))?;
        say(&format!("secure on {}", secure.local_addr()?))?;
        say(&format!("tasks on {}", tell_tasks()?))?;
        tokio::try_join!(
            clear.serve(tower::service_fn(answer)),
            secure.serve(tower::service_fn(answer))
        )?;
        Ok(())
    }
}

/// Whoever connects is told how many tasks live; from a thread, so that asking is no task.
fn tell_tasks() -> Result<std::net::SocketAddr, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let runtime = Handle::current();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            // Who has gone did not want to know.
            let _ = writeln!(socket, "{}", runtime.metrics().num_alive_tasks());
        }
    });
    Ok(address)
}
