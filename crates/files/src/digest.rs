//! `Repr-Digest` of a file in the response to HEAD (RFC 9530), for a client that asks with `Want-Repr-Digest` whether the file is its
//! own.
//!
//! To compute it, the server reads the whole file. So it is done in blocking jobs, a piece at a time: a quarter of the processors do it
//! at most, and each peer waits for its turn behind one piece of each other peer. Between two pieces nothing is open. A request that is
//! given up ends with its piece. Only a server that takes uploads does it. Called by `service`.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cap_std::fs::Dir;
use http::header::{CONTENT_ENCODING, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::conditional::Validators;
use crate::file_body::FileResponse;
use crate::identity::Identity;
use crate::jobs::Jobs;
use crate::open::{Found, open};
use crate::peer::Peer;
use crate::resolve::Target;
use crate::settings::INDEX;

static REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
static WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");

/// How much of a file is read in one job: a millisecond, if it is in memory.
const PIECE_BYTES: u64 = 1 << 20;

/// What is read at once. Then other threads may have the processor: see `compress`.
const READ_BYTES: usize = 64 << 10;

/// The jobs that compute digests, with the share of each peer.
pub(crate) fn jobs() -> Arc<Jobs> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Jobs::limited(1, (processors / 4).max(1))
}

/// Whether a request asks for a digest that this server computes: `sha-256` with a weight from 1 to 10 (RFC 9530 section 4).
pub(crate) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    let is_sha256 = |member: &str| {
        let mut parts = member.split(';').next().unwrap_or_default().splitn(2, '=');
        let weight = (parts.next().map(str::trim), parts.next().map(str::trim));
        matches!(weight, (Some("sha-256"), Some(weight)) if weight.parse().is_ok_and(|weight| (1..=10).contains(&weight)))
    };
    let values = || headers.get_all(&WANT_REPR_DIGEST).iter();
    method == Method::HEAD
        && values().any(|value| value.to_str().is_ok_and(|value| value.split(',').any(is_sha256)))
}

/// Adds the digest of the file that `response` is about. A file that changes meanwhile has none, and neither has what is no file.
pub(crate) async fn add(
    (root, jobs): (&Arc<Dir>, &Arc<Jobs>),
    uri: &Uri,
    peer: Option<Peer>,
    mut response: FileResponse,
) -> FileResponse {
    let fields = response.headers();
    let Some(etag) = fields.get(ETAG).cloned() else {
        return response;
    };
    if response.status() != StatusCode::OK || fields.contains_key(CONTENT_ENCODING) {
        return response;
    }
    let Ok(target) = Target::parse(uri.path()) else {
        return response;
    };
    let path: Arc<str> = match target.is_directory() {
        true => target.child(INDEX).into(),
        false => target.relative().into(),
    };
    let mut state = State::default();
    loop {
        let (root, path, etag) = (Arc::clone(root), Arc::clone(&path), etag.clone());
        let piece = move || state.piece(&root, &path, &etag);
        match jobs
            .begin(&Handle::current(), peer, piece)
            .await
            .and_then(|piece| piece)
        {
            Ok(Piece::More(more)) => state = more,
            Ok(Piece::Digest(digest)) => {
                response
                    .headers_mut()
                    .extend(digest.map(|digest| (REPR_DIGEST.clone(), digest)));
                return response;
            }
            Err(_) => return response,
        }
    }
}

/// How far a digest is.
#[derive(Default)]
struct State {
    hash: Sha256,
    offset: u64,
    /// The file as it was when the first piece was read.
    identity: Option<Identity>,
}

enum Piece {
    More(State),
    Digest(Option<HeaderValue>),
}

impl State {
    /// Reads the next piece of the file with this entity tag. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is another one.
    fn piece(mut self, root: &Dir, path: &str, etag: &HeaderValue) -> io::Result<Piece> {
        let changed = || io::Error::other("the file has changed");
        let Ok(Found::File(mut file, metadata)) = open(root, path) else {
            return Err(changed());
        };
        let identity = Identity::of(&metadata);
        let is_same = Validators::of(&metadata, SystemTime::now()).etag().as_ref() == Some(etag)
            && (self.offset == 0 || self.identity == identity);
        if !is_same {
            return Err(changed());
        }
        self.identity = identity;
        file.seek(SeekFrom::Start(self.offset))?;
        let end = metadata.len().min(self.offset + PIECE_BYTES);
        let mut buffer = vec![0; READ_BYTES];
        while self.offset < end {
            let most = usize::try_from(end - self.offset)
                .unwrap_or(READ_BYTES)
                .min(READ_BYTES);
            let count = file.read(&mut buffer[..most])?;
            if count == 0 {
                return Err(changed());
            }
            self.hash.update(&buffer[..count]);
            self.offset += count as u64;
            std::thread::yield_now();
        }
        if Identity::of(&file.metadata()?) != self.identity {
            return Err(changed());
        }
        if self.offset < metadata.len() {
            return Ok(Piece::More(self));
        }
        let text = format!("sha-256=:{}:", STANDARD.encode(self.hash.finalize()));
        Ok(Piece::Digest(HeaderValue::try_from(text).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_wanted_by_head_with_a_weight_above_zero() {
        for (value, expected) in [
            ("sha-256=10", true),
            ("sha-256=1", true),
            ("sha-512=3, sha-256=10", true),
            ("sha-512=3,sha-256 = 5;a=b", true),
            ("sha-256=0", false),
            ("sha-256=11", false),
            ("sha-256=-1", false),
            ("sha-256", false),
            ("sha-512=10", false),
            ("x-sha-256=10", false),
            ("", false),
            ("\u{e9}", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(
                &WANT_REPR_DIGEST,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
            assert_eq!(is_wanted(&Method::HEAD, &headers), expected, "{value}");
            assert!(!is_wanted(&Method::GET, &headers));
        }
        assert!(!is_wanted(&Method::HEAD, &HeaderMap::new()));
    }
}
