//! The response's body as a member of the JSON document, which has standard output for itself. Called by `put`.

use fullbore::Incoming;
use http_body_util::BodyExt as _;

use crate::transfer::progress::Share;

/// A longer body is left out of the document. What servers say of an upload is a sentence or a small JSON document.
const MOST_BYTES: usize = 64 << 10;

/// What is printed of a body that the document cannot have.
pub(super) const LEFT_OUT: &str = "the response's body is no text, or longer than 65,536 bytes, so it is not in the document; save it with -o FILE";

/// Reads the body to its end. `None` if it is no text, or too long.
///
/// # Errors
/// The body failed.
pub(super) async fn read(body: &mut Incoming, share: &mut Share) -> Result<Option<String>, fullbore::Error> {
    let mut octets = Vec::new();
    let mut is_short = true;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        share.moved(u64::try_from(data.len()).unwrap_or(u64::MAX));
        is_short &= octets.len() + data.len() <= MOST_BYTES;
        if is_short {
            octets.extend_from_slice(&data);
        }
    }
    Ok(String::from_utf8(octets).ok().filter(|_| is_short))
}
