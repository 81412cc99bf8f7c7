//! The events of connections that are not served, for `tracing`.

use std::io;
use std::net::SocketAddr;

use tokio::time::error::Elapsed;
use tracing::debug;

/// A TLS handshake has ended.
pub(super) fn handshake<S, T>(
    peer: Option<SocketAddr>,
    finished: &Result<Result<S, (io::Error, T)>, Elapsed>,
) {
    let peer = peer.map(tracing::field::display);
    match finished {
        Ok(Ok(_)) => {}
        Ok(Err((error, _))) => {
            debug!(target: "fullbore::connection", peer, "TLS handshake failed: {error}");
        }
        Err(_) => {
            debug!(target: "fullbore::limits", peer, "the TLS handshake took longer than the limit");
        }
    }
}
