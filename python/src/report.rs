//! What the connections of a client have waited for, in words.

use fullbore::Client;
use fullbore::stats::{Direction, Role, Verdict};

/// What limited the bodies that were received: over HTTP/2, over HTTP/1.1. `None` if there were none.
pub(crate) async fn of(client: &Client) -> Option<String> {
    let http2 = Verdict::of(Role::Client, Direction::Receiving, &client.reports().await);
    let http1 = client
        .http1_report()
        .and_then(|report| report.verdict(Direction::Receiving));
    let words = [("HTTP/2", http2), ("HTTP/1.1", http1)];
    let words: Vec<_> = words
        .into_iter()
        .filter_map(|(version, verdict)| Some(format!("{version}: {}", verdict?)))
        .collect();
    (!words.is_empty()).then(|| words.join("; "))
}
