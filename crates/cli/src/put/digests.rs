//! `--checksum`: whether a file of the server has the content of one of this side.
//!
//! Its size is known to be equal. HEAD asks the server for the SHA-256 of its file (`want-repr-digest`, RFC 9530). An entity tag says
//! nothing of the content that another machine could compute, so a server without digests is sent the file. Called by `many`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fullbore::Client;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::Empty;

use crate::checksum;

use super::content;

static WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
static REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// What is known of the server.
const UNKNOWN: u8 = 0;
const TELLS: u8 = 1;
const TELLS_NOT: u8 = 2;

/// Asks the server.
pub(super) struct Digests {
    client: Client,
    fields: HeaderMap,
    /// Whether the server tells digests.
    server: AtomicU8,
}

/// A content of this side.
pub(super) enum Local<'a> {
    Bytes(&'a Bytes),
    File(&'a Path),
}

impl Digests {
    /// Asks with these fields of each request.
    pub(super) fn new(client: Client, mut fields: HeaderMap) -> Self {
        fields.insert(&WANT_REPR_DIGEST, HeaderValue::from_static("sha-256=10"));
        Self {
            client,
            fields,
            server: AtomicU8::new(UNKNOWN),
        }
    }

    /// Whether the server was asked and told no digest.
    pub(super) fn are_missing(&self) -> bool {
        self.server.load(Ordering::Relaxed) == TELLS_NOT
    }

    /// Whether the file at this URL has this content, of this length. What cannot be learned is not the same.
    pub(super) async fn are_equal(&self, url: &str, length: u64, local: Local<'_>) -> bool {
        if self.are_missing() {
            return false;
        }
        let Some(there) = self.ask(url, length).await else {
            return false;
        };
        let here = match local {
            Local::Bytes(bytes) => {
                let bytes = bytes.clone();
                tokio::task::spawn_blocking(move || Ok(checksum::sha256(&bytes))).await
            }
            Local::File(path) => {
                let path = path.to_owned();
                tokio::task::spawn_blocking(move || of_file(&path, length)).await
            }
        };
        here.is_ok_and(|here| here.is_ok_and(|here| here == there))
    }

    /// The digest of the server's file.
    async fn ask(&self, url: &str, length: u64) -> Option<Vec<u8>> {
        let request = Request::builder().method(Method::HEAD).uri(url);
        let mut request = request.body(Empty::<Bytes>::new()).ok()?;
        *request.headers_mut() = self.fields.clone();
        let response = self.client.request(request).await.ok()?;
        let fields = response.headers();
        let text = |name: &HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
        let is_this = response.status() == StatusCode::OK
            && !fields.contains_key(CONTENT_ENCODING)
            && text(&CONTENT_LENGTH)?.parse() == Ok(length);
        if !is_this {
            return None;
        }
        let told = sha256_in(fields);
        // A server that tells digests has none of a file that has just changed.
        let known = if told.is_some() { TELLS } else { TELLS_NOT };
        let _ = self
            .server
            .compare_exchange(UNKNOWN, known, Ordering::Relaxed, Ordering::Relaxed);
        if told.is_some() {
            self.server.store(TELLS, Ordering::Relaxed);
        }
        told
    }
}

/// The SHA-256 in `repr-digest`: a member `sha-256=:BASE64:`.
fn sha256_in(fields: &HeaderMap) -> Option<Vec<u8>> {
    let values = fields
        .get_all(&REPR_DIGEST)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut members = values.flat_map(|value| value.split(',')).map(str::trim);
    let digest = members.find_map(|member| {
        let (key, value) = member.split_once('=')?;
        let value = value
            .split(';')
            .next()?
            .trim()
            .strip_prefix(':')?
            .strip_suffix(':')?;
        (key == "sha-256").then(|| STANDARD.decode(value).ok())?
    })?;
    (digest.len() == 32).then_some(digest)
}

/// The digest of a file that has this length and does not change meanwhile. Blocks.
fn of_file(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let (file, before): (File, _) = content::open(path)?;
    let digest = checksum::sha256_of(&file)?;
    let is_unchanged = before.len() == length && content::is_unchanged(&before, &file.metadata()?);
    is_unchanged
        .then_some(digest)
        .ok_or_else(|| io::Error::other("the file changes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_from_the_dictionary_of_a_response() {
        let digest = STANDARD.encode([7; 32]);
        for (value, is_found) in [
            (format!("sha-256=:{digest}:"), true),
            (format!("md5=:AAAA:, sha-256=:{digest}:;a=b"), true),
            (format!("sha-256={digest}"), false),
            (format!("sha-512=:{digest}:"), false),
            ("sha-256=:AAAA:".to_owned(), false),
            ("sha-256=:!:".to_owned(), false),
            (String::new(), false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(
                &REPR_DIGEST,
                HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("")),
            );
            let expected = is_found.then(|| vec![7; 32]);
            assert_eq!(sha256_in(&fields), expected, "{value}");
        }
    }
}
