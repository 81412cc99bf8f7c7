//! A long path to a server, in memory, which counts connections.
//!
//! Under a paused clock it is exactly as long as it says. Over sockets, a busy machine would make each exchange longer than
//! the path, and the pool opens no further connection when the path is not what takes the time.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fullbore::{Client, ClientBuilder};
use http::Uri;

use super::site::Site;
use crate::support::{Script, link};

/// Octets arrive this much later, in each direction: 40 ms there and back.
const DELAY: Duration = Duration::from_millis(20);

pub(crate) const URL: &str = "http://far.example/";

/// The path from one client.
pub(crate) struct Relay {
    accepted: Arc<AtomicUsize>,
}

impl Relay {
    /// A client that reaches a server by a path, for as many connections as it likes.
    pub(crate) fn to(site: &Site, builder: ClientBuilder) -> (Relay, Client) {
        Self::for_the_first(usize::MAX, site, builder)
    }

    /// The same for the first `count` connections; those after them are closed at once.
    pub(crate) fn for_the_first(count: usize, site: &Site, builder: ClientBuilder) -> (Relay, Client) {
        let accepted = Arc::new(AtomicUsize::new(0));
        let (counter, door) = (Arc::clone(&accepted), site.door());
        let connect = tower::service_fn(move |_: Uri| {
            let (near, far) = link(Script::delayed(DELAY), Script::delayed(DELAY));
            if counter.fetch_add(1, Ordering::SeqCst) < count {
                tokio::spawn(door.serve(far));
            }
            ready(Ok::<_, io::Error>(near))
        });
        let client = builder.connector(connect).build().unwrap();
        (Relay { accepted }, client)
    }

    /// How many connections came.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
