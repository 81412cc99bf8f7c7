//! `--skip-existing`: what the server has of each folder.
//!
//! A server of this program lists a folder as JSON, so one request tells of all its files. Of another server each file is asked
//! for with HEAD. What cannot be learned is sent.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LAST_MODIFIED,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use fullbore::{Client, Incoming};

use crate::transfer::seconds;

use super::encoded;

/// The longest list that is read, in bytes: a server of this program lists 10,000 files, in 150 bytes each.
const LONGEST_LIST: usize = 8 << 20;
/// How many folders above the URL are asked whether they have a list.
const ASKED_ABOVE: usize = 8;

/// The length of a file and the second of its modification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Likeness {
    pub(super) bytes: u64,
    pub(super) second: i64,
}

impl Likeness {
    pub(super) fn of(found: &std::fs::Metadata) -> Option<Self> {
        Some(Self {
            bytes: found.len(),
            second: seconds::of_file(found)?,
        })
    }
}

/// What the server has in one folder, once it was asked.
pub(super) type Listing = OnceCell<Stand>;

pub(super) enum Stand {
    /// Its files by name, and whether there are more.
    Listed(HashMap<Vec<u8>, Likeness>, bool),
    /// Each file is asked for.
    Unknown,
}

/// Asks the server.
pub(super) struct Existing {
    pub(super) client: Client,
    pub(super) fields: HeaderMap,
    /// The URL up to its path's last slash, and its query.
    pub(super) base: String,
    pub(super) query: String,
    /// Whether the server has lists of folders.
    lists: OnceCell<bool>,
}

impl Existing {
    pub(super) fn new(client: Client, fields: HeaderMap, base: String, query: String) -> Self {
        Self {
            client,
            fields,
            base,
            query,
            lists: OnceCell::new(),
        }
    }

    /// What the server has of each of these files of a folder, whose place is encoded.
    pub(super) async fn of(
        self: &Arc<Self>,
        listing: &Listing,
        place: &str,
        names: &[OsString],
    ) -> Vec<Option<Likeness>> {
        let stand = listing.get_or_init(|| self.list(place)).await;
        let Stand::Listed(listed, is_partial) = stand else {
            return self.heads(place, names, |_| true).await;
        };
        let found = |name: &OsString| listed.get(name.as_encoded_bytes()).copied();
        if *is_partial {
            let heads = self.heads(place, names, |name| found(name).is_none()).await;
            let both = names.iter().zip(heads);
            return both.map(|(name, head)| found(name).or(head)).collect();
        }
        names.iter().map(found).collect()
    }

    async fn list(&self, place: &str) -> Stand {
        match self.document(&format!("{}{place}", self.base)).await {
            Listed::Document(stand) => stand,
            // That a folder is not there is known of a server that has lists of others.
            Listed::Missing if *self.lists.get_or_init(|| self.has_lists()).await => {
                Stand::Listed(HashMap::new(), false)
            }
            _ => Stand::Unknown,
        }
    }

    /// Whether the folder of the run, or the nearest one above that is there, has a list.
    async fn has_lists(&self) -> bool {
        let mut url = self.base.clone();
        for _ in 0..ASKED_ABOVE {
            match self.document(&url).await {
                Listed::Document(_) => return true,
                Listed::Missing => {}
                Listed::Other => return false,
            }
            // `http://host/`: nothing is above.
            let above = url.trim_end_matches('/').rfind('/');
            match above.filter(|&at| !url[..at].ends_with('/')) {
                Some(at) => url.truncate(at + 1),
                None => return false,
            }
        }
        false
    }

    async fn document(&self, url: &str) -> Listed {
        let mut fields = self.fields.clone();
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let Some(response) = self
            .ask(Method::GET, &format!("{url}{}", self.query), fields)
            .await
        else {
            return Listed::Other;
        };
        if response.status() == StatusCode::NOT_FOUND {
            return Listed::Missing;
        }
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if response.status() != StatusCode::OK
            || !kind.is_some_and(|kind| kind.starts_with(b"application/json"))
        {
            return Listed::Other;
        }
        let body = Limited::new(response.into_body(), LONGEST_LIST).collect().await;
        let document = body.ok().and_then(|body| parse(&body.to_bytes()));
        document.map_or(Listed::Other, Listed::Document)
    }

    async fn heads(
        self: &Arc<Self>,
        place: &str,
        names: &[OsString],
        wanted: impl Fn(&OsString) -> bool,
    ) -> Vec<Option<Likeness>> {
        let mut found = vec![None; names.len()];
        let mut asked = JoinSet::new();
        for (at, name) in names.iter().enumerate().filter(|(_, name)| wanted(name)) {
            let url = format!("{}{place}{}{}", self.base, encoded(name), self.query);
            let this = Arc::clone(self);
            asked.spawn(async move { (at, this.head(&url).await) });
        }
        while let Some(ended) = asked.join_next().await {
            if let Ok((at, likeness)) = ended {
                if let Some(place) = found.get_mut(at) {
                    *place = likeness;
                }
            }
        }
        found
    }

    async fn head(&self, url: &str) -> Option<Likeness> {
        let response = self.ask(Method::HEAD, url, self.fields.clone()).await?;
        let fields = response.headers();
        if response.status() != StatusCode::OK || fields.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
        Some(Likeness {
            bytes: text(CONTENT_LENGTH)?.parse().ok()?,
            second: seconds::of_http_date(text(LAST_MODIFIED)?)?,
        })
    }

    async fn ask(&self, method: Method, url: &str, fields: HeaderMap) -> Option<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .body(Empty::<Bytes>::new())
            .ok()?;
        *request.headers_mut() = fields;
        self.client.request(request).await.ok()
    }
}

enum Listed {
    Document(Stand),
    /// 404.
    Missing,
    /// No list of this form, or no answer.
    Other,
}

#[derive(Deserialize)]
struct Document {
    truncated: bool,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    size: Option<u64>,
    modified: Option<String>,
    href: Option<String>,
}

fn parse(text: &[u8]) -> Option<Stand> {
    let document: Document = serde_json::from_slice(text).ok()?;
    let listed = document.entries.into_iter().filter_map(|entry| {
        let name = percent_decode_str(&entry.href?).collect();
        let likeness = Likeness {
            bytes: entry.size?,
            // Our lists have whole seconds, and any other form is not trusted.
            second: seconds::of_rfc3339(&entry.modified.filter(|time| !time.contains('.'))?)?,
        };
        Some((name, likeness))
    });
    Some(Stand::Listed(listed.collect(), document.truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_files_by_their_names_and_no_folders() {
        let text = br#"{"path":"/","truncated":true,"entries":[
            {"name":"2026","type":"folder","size":null,"modified":"2026-01-02T03:04:05Z","href":"2026/"},
            {"name":"a b","type":"file","size":7,"modified":"1970-01-01T00:00:01Z","href":"a%20b"},
            {"name":"x","type":"file","size":7,"modified":null,"href":"x"},
            {"name":"y","type":"file","size":7,"modified":"2026-01-02T03:04:05.5Z","href":"y"}]}"#;
        let Some(Stand::Listed(listed, true)) = parse(text) else {
            panic!("a list");
        };
        let one = Likeness { bytes: 7, second: 1 };
        assert_eq!(listed, HashMap::from([(b"a b".to_vec(), one)]));
        for other in ["[]", "{}", "{\"entries\":[]}", "<html>"] {
            assert!(parse(other.as_bytes()).is_none(), "{other}");
        }
    }
}
