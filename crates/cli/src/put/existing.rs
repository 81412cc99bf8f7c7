//! `--skip-existing`: what the server has of each folder.
//!
//! A server of this program lists a folder as JSON, so few requests tell of all its files. Of another server each file is asked
//! for with HEAD. What cannot be learned is sent.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LAST_MODIFIED};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use fullbore::body::content_length;
use fullbore::{Client, Incoming};

use crate::transfer::lists::{Lists, LongList};
use crate::transfer::seconds;

use super::encoded;

/// The memory of the files of a folder that are known from lists: some 200,000. Others are asked for one by one.
const MOST_BYTES: usize = 32 << 20;
/// What a file takes beside its name.
const FILE_BYTES: usize = 120;
/// The lists of a folder that continue each other.
const MOST_PAGES: usize = 1_000;
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
    Listed(Files),
    /// Each file is asked for.
    Unknown,
}

/// The files of a folder.
#[derive(Default)]
pub(super) struct Files {
    by_name: HashMap<Vec<u8>, Likeness>,
    bytes: usize,
    /// There are more.
    is_partial: bool,
    /// Held as long as the names.
    right: LongList,
}

/// Asks the server.
pub(super) struct Existing {
    pub(super) client: Client,
    pub(super) fields: HeaderMap,
    /// The URL up to its path's last slash, and its query.
    pub(super) base: String,
    pub(super) query: String,
    lists: Lists,
    /// Whether the server has lists of folders.
    has_lists: OnceCell<bool>,
}

impl Existing {
    pub(super) fn new(client: Client, fields: HeaderMap, base: String, query: String) -> Self {
        Self {
            client,
            fields,
            base,
            query,
            lists: Lists::new(),
            has_lists: OnceCell::new(),
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
        let Stand::Listed(files) = stand else {
            return self.heads(place, names, |_| true).await;
        };
        let found = |name: &OsString| files.by_name.get(name.as_encoded_bytes()).copied();
        if files.is_partial {
            let heads = self.heads(place, names, |name| found(name).is_none()).await;
            let both = names.iter().zip(heads);
            return both.map(|(name, head)| found(name).or(head)).collect();
        }
        names.iter().map(found).collect()
    }

    async fn list(&self, place: &str) -> Stand {
        match self.document(&format!("{}{place}", self.base)).await {
            Listed::Document(files) => Stand::Listed(files),
            // That a folder is not there is known of a server that has lists of others.
            Listed::Missing if *self.has_lists.get_or_init(|| self.ask_above()).await => {
                Stand::Listed(Files::default())
            }
            _ => Stand::Unknown,
        }
    }

    /// Whether the folder of the run, or the nearest one above that is there, has a list.
    async fn ask_above(&self) -> bool {
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

    /// The files of a folder, by its lists.
    async fn document(&self, url: &str) -> Listed {
        let (mut files, mut right) = (Files::default(), None);
        let mut query = self.query.clone();
        for _ in 0..MOST_PAGES {
            let next = match self.page(&format!("{url}{query}"), &mut files, &mut right).await {
                Page::Next(next) => next,
                Page::Last => break,
                // What was read is true.
                _ if files.is_partial => break,
                Page::Missing => return Listed::Missing,
                Page::Other => return Listed::Other,
            };
            if next == query || files.bytes >= MOST_BYTES {
                break;
            }
            query = next;
        }
        files.right = right;
        Listed::Document(files)
    }

    /// Adds what one list has.
    async fn page(&self, url: &str, files: &mut Files, right: &mut LongList) -> Page {
        let mut fields = self.fields.clone();
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let Some(response) = self.ask(Method::GET, url, fields).await else {
            return Page::Other;
        };
        if response.status() == StatusCode::NOT_FOUND {
            return Page::Missing;
        }
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if response.status() != StatusCode::OK
            || !kind.is_some_and(|kind| kind.starts_with(b"application/json"))
        {
            return Page::Other;
        }
        match self.lists.gather(response.into_body(), right).await {
            Ok(Some(text)) => files.read(&text).unwrap_or(Page::Other),
            _ => Page::Other,
        }
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
            bytes: content_length(fields).ok()??,
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
    Document(Files),
    /// 404.
    Missing,
    /// No list of this form, or no answer.
    Other,
}

/// One list.
enum Page {
    /// It goes on with this query.
    Next(String),
    Last,
    Missing,
    Other,
}

#[derive(Deserialize)]
struct Entry {
    size: Option<u64>,
    modified: Option<String>,
    href: Option<String>,
}

impl Files {
    /// Adds what a list has; `None` if it is none.
    fn read(&mut self, text: &[u8]) -> Option<Page> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let (is_partial, next) = json.deserialize_map(Document(self)).ok()?;
        json.end().ok()?;
        // Only a query is one of this folder.
        let next = next.filter(|next| is_partial && next.starts_with('?'));
        self.is_partial = is_partial || self.bytes >= MOST_BYTES;
        Some(next.map_or(Page::Last, Page::Next))
    }

    #[cfg(test)]
    fn of(text: &[u8]) -> Option<(Self, Page)> {
        let mut files = Self::default();
        let page = files.read(text)?;
        Some((files, page))
    }
}

/// Takes the entries one by one: read whole, they may take thirty times the length of the list.
struct Document<'a>(&'a mut Files);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = (bool, Option<String>);

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a list of a folder")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut is_partial, mut next, mut has_entries) = (None, None, false);
        while let Some(key) = fields.next_key::<String>()? {
            match key.as_str() {
                "truncated" => is_partial = Some(fields.next_value()?),
                "next" => next = fields.next_value()?,
                "entries" => {
                    fields.next_value_seed(Entries(&mut *self.0))?;
                    has_entries = true;
                }
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        match is_partial.filter(|_| has_entries) {
            Some(is_partial) => Ok((is_partial, next)),
            None => Err(A::Error::custom("no list")),
        }
    }
}

struct Entries<'a>(&'a mut Files);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Entry>()? {
            if let Some((name, likeness)) = entry.likeness().filter(|_| self.0.bytes < MOST_BYTES) {
                self.0.bytes += name.len() + FILE_BYTES;
                self.0.by_name.insert(name, likeness);
            }
        }
        Ok(())
    }
}

impl Entry {
    fn likeness(self) -> Option<(Vec<u8>, Likeness)> {
        let name = percent_decode_str(&self.href?).collect();
        let likeness = Likeness {
            bytes: self.size?,
            // Our lists have whole seconds, and any other form is not trusted.
            second: seconds::of_rfc3339(&self.modified.filter(|time| !time.contains('.'))?)?,
        };
        Some((name, likeness))
    }
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
        let Some((files, Page::Last)) = Files::of(text) else {
            panic!("a list");
        };
        let one = Likeness { bytes: 7, second: 1 };
        assert_eq!(files.by_name, HashMap::from([(b"a b".to_vec(), one)]));
        assert!(files.is_partial);
        for other in ["[]", "{}", "{\"entries\":[]}", "{\"truncated\":true}", "<html>"] {
            assert!(Files::of(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn a_list_goes_on_with_a_query_of_its_folder_alone() {
        for (next, query) in [
            ("\"?after=x\"", Some("?after=x")),
            ("\"http://other/?x\"", None),
            ("\"../?x\"", None),
            ("null", None),
        ] {
            let text = format!("{{\"truncated\":true,\"next\":{next},\"entries\":[]}}");
            let (files, page) = Files::of(text.as_bytes()).unwrap();
            let found = match &page {
                Page::Next(query) => Some(query.as_str()),
                _ => None,
            };
            assert_eq!((found, files.is_partial), (query, true), "{next}");
        }
    }

    #[test]
    fn no_more_files_are_known_than_the_memory_of_lists_takes() {
        let entry = |number: usize| {
            format!("{{\"size\":1,\"modified\":\"1970-01-01T00:00:01Z\",\"href\":\"{number:x}\"}}")
        };
        let most = MOST_BYTES / FILE_BYTES;
        let entries: Vec<String> = (0..most).map(entry).collect();
        let text = format!("{{\"truncated\":false,\"entries\":[{}]}}", entries.join(","));
        let (files, _) = Files::of(text.as_bytes()).unwrap();
        assert!(files.is_partial && files.bytes < MOST_BYTES + 2 * FILE_BYTES);
        assert!(files.by_name.len() > most * 9 / 10);
    }
}
