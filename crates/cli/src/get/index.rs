//! What the list of a folder names, in the forms of common servers: JSON of our own, of nginx and of Caddy, and the links of any
//! HTML page.
//!
//! Only what is directly beneath the folder counts: links that sort the list, lead upwards, elsewhere or deeper are none of its
//! entries. Names are decoded once.

use std::collections::HashSet;
use std::ffi::OsString;

use html5gum::{DefaultEmitter, Token, Tokenizer};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;
use url::Url;

use crate::transfer::seconds;

use super::names::of_octets;

/// A file or folder of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) url: Url,
    pub(super) name: OsString,
    pub(super) is_folder: bool,
    /// Bytes.
    pub(super) size: Option<u64>,
    /// Whole seconds since 1970.
    pub(super) modified: Option<i64>,
}

/// A list.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// Names that no file here can have, or that no URL can have: as the list shows them.
    pub(super) refused: Vec<String>,
    /// The server says that there are more.
    pub(super) is_partial: bool,
}

/// The list in a body; `None` if it is none.
pub(super) fn read(folder: &Url, content_type: &str, body: &[u8]) -> Option<Index> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/json" => of_json(folder, body),
        "text/html" | "application/xhtml+xml" => Some(of_html(folder, body)),
        _ => None,
    }
}

/// Collects the entries of a list.
struct Collector<'a> {
    folder: &'a Url,
    index: Index,
    seen: HashSet<OsString>,
}

impl Collector<'_> {
    /// Adds what a link names, if it is an entry of the folder.
    fn add(&mut self, link: Result<Url, url::ParseError>, facts: Facts) {
        let Ok(mut url) = link else { return };
        url.set_fragment(None);
        if url.query().is_some() || url.origin() != self.folder.origin() {
            return;
        }
        let Some(rest) = url.path().strip_prefix(self.folder.path()) else {
            return;
        };
        let segment = rest.strip_suffix('/').unwrap_or(rest);
        if segment.is_empty() || segment.contains('/') {
            return;
        }
        let is_folder = facts.is_folder || rest.ends_with('/');
        let octets: Vec<u8> = percent_decode_str(segment).collect();
        let Some(name) = file_name(octets) else {
            self.index.refused.push(segment.to_owned());
            return;
        };
        if is_folder && !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        if self.seen.insert(name.clone()) {
            self.index.entries.push(Entry {
                url,
                name,
                is_folder,
                size: facts.size.filter(|_| !is_folder),
                modified: facts.modified,
            });
        }
    }
}

/// What a list says of an entry beside its name.
#[derive(Default)]
struct Facts {
    is_folder: bool,
    size: Option<u64>,
    modified: Option<i64>,
}

/// `{"entries": […]}` of this project, and the lists of nginx (`autoindex_format json`) and Caddy.
fn of_json(folder: &Url, body: &[u8]) -> Option<Index> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let entries = document.get("entries").unwrap_or(&document).as_array()?;
    let mut found = Collector {
        folder,
        index: Index {
            is_partial: document
                .get("truncated")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            ..Index::default()
        },
        seen: HashSet::new(),
    };
    for entry in entries {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let name = text("name")?;
        let time = ["modified", "mod_time", "mtime"].into_iter().find_map(text);
        let facts = Facts {
            is_folder: matches!(text("type"), Some("folder" | "directory"))
                || entry.get("is_dir").and_then(Value::as_bool) == Some(true),
            size: entry.get("size").and_then(Value::as_u64),
            modified: time.and_then(|time| seconds::of_rfc3339(time).or_else(|| seconds::of_http_date(time))),
        };
        let link = match (entry.get("href"), text("href").or(text("url"))) {
            (_, Some(link)) => folder.join(link),
            // A name that no URL can have.
            (Some(Value::Null), None) => {
                found.index.refused.push(name.to_owned());
                continue;
            }
            // A name is no reference: it may begin with a slash or a scheme.
            _ => folder.join(&utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()),
        };
        found.add(link, facts);
    }
    Some(found.index)
}

/// The links of a page.
fn of_html(folder: &Url, body: &[u8]) -> Index {
    let mut found = Collector {
        folder,
        index: Index::default(),
        seen: HashSet::new(),
    };
    let mut base = folder.clone();
    let mut emitter = DefaultEmitter::default();
    // What a script or a style sheet has is no link.
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(body, emitter) {
        let Token::StartTag(tag) = token else { continue };
        let link = tag
            .attributes
            .get(&b"href"[..])
            .map(|value| String::from_utf8_lossy(value));
        match (&**tag.name, link) {
            (b"a", Some(link)) => found.add(base.join(&link), Facts::default()),
            (b"base", Some(link)) => base = folder.join(&link).unwrap_or(base),
            _ => {}
        }
    }
    found.index
}

/// A name as it is, or `None` when no file of this system can have it.
fn file_name(octets: Vec<u8>) -> Option<OsString> {
    let is_dots = matches!(octets.as_slice(), b"." | b"..");
    let is_wrong = |octet: &u8| match octet {
        b'/' | 0 => true,
        b'\\' | b'<' | b'>' | b':' | b'"' | b'|' | b'?' | b'*' | 1..=31 => cfg!(windows),
        _ => false,
    };
    if is_dots || octets.len() > 255 || octets.iter().any(is_wrong) {
        return None;
    }
    if cfg!(windows) && (is_device(&octets) || octets.ends_with(b".") || octets.ends_with(b" ")) {
        return None;
    }
    let is_text = std::str::from_utf8(&octets).is_ok();
    (is_text || cfg!(all(unix, not(target_vendor = "apple")))).then(|| of_octets(octets))
}

/// Names that Windows takes for devices, whatever their suffix.
fn is_device(name: &[u8]) -> bool {
    let stem = name.split(|octet| *octet == b'.').next().unwrap_or_default();
    let stem = String::from_utf8_lossy(stem).to_ascii_uppercase();
    let numbered = |prefix: &str| {
        let number = stem.strip_prefix(prefix);
        number.is_some_and(|number| number.len() == 1 && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(index: &Index) -> Vec<String> {
        let shown = |entry: &Entry| {
            let slash = if entry.is_folder { "/" } else { "" };
            format!("{}{slash}", entry.name.to_string_lossy())
        };
        index.entries.iter().map(shown).collect()
    }

    fn folder() -> Url {
        Url::parse("http://h:8080/a%20b/").unwrap()
    }

    #[test]
    fn links_directly_beneath_the_folder_are_its_entries_and_no_others() {
        let page = br##"<!DOCTYPE html><a href="../">up</a><a href="?C=N;O=D">Name</a><a href="/">root</a>
            <a href="x.txt">x</a><A HREF='sub/'>sub</A><a href=x.txt>again</a><a href="/a%20b/absolute">a</a>
            <a href="http://h:8080/a%20b/full#top">f</a><a href="http://other/a%20b/y">o</a><a href="https://h:8080/a%20b/z">s</a>
            <a href="sub/deep">d</a><a href="./dot">d</a><a href="../a%20b/round">r</a><a href="y?x=1">q</a><a href="#f">f</a>
            <a href="%2e%2e">no</a><a href="%2e%2e/">no</a><a href="..%2fx">no</a><a href="a%00b">no</a><a href="mailto:x">m</a>
            <a href="javascript:x">j</a><a name="y">n</a><a href="tom &amp; jerry%3F.txt"><a href="100%25"><a href="%2541">
            <a href="&#x65e5;"><!-- <a href="comment"> --><script>"<a href='script'>"</script><a href="a+b;c=d'~">"##;
        let index = of_html(&folder(), page);
        let expected = [
            "x.txt",
            "sub/",
            "absolute",
            "full",
            "dot",
            "round",
            "tom & jerry?.txt",
            "100%",
            "%41",
            "日",
            "a+b;c=d'~",
        ];
        assert_eq!(names(&index), expected);
        assert_eq!(index.refused, ["..%2fx", "a%00b"]);
        assert!(!index.is_partial);
    }

    #[test]
    fn a_base_moves_links_and_not_the_folder() {
        let page = br#"<base href="http://h:8080/a%20b/"><a href="x"></a>"#;
        assert_eq!(names(&of_html(&folder(), page)), ["x"]);
        let page = br#"<base href="http://other/"><a href="x"></a>"#;
        assert!(of_html(&folder(), page).entries.is_empty());
    }

    #[test]
    fn lists_of_this_project_of_nginx_and_of_caddy_are_read() {
        let own = br#"{"path":"/a b/","truncated":true,"entries":[
            {"name":"d","type":"folder","size":null,"modified":"2026-01-02T03:04:05Z","href":"d/"},
            {"name":"a b","type":"file","size":5,"modified":"1970-01-01T00:00:09Z","href":"a%20b"},
            {"name":"\ufffd","type":"file","size":5,"modified":null,"href":null}]}"#;
        let index = read(&folder(), "application/json", own).unwrap();
        assert_eq!(
            (names(&index), index.is_partial),
            (vec!["d/".into(), "a b".into()], true)
        );
        assert_eq!(
            (index.entries[1].size, index.entries[1].modified),
            (Some(5), Some(9))
        );
        assert_eq!(index.refused, ["\u{fffd}"]);
        let nginx = br#"[{"name":"d","type":"directory","mtime":"Thu, 01 Jan 1970 00:00:09 GMT"},
            {"name":"http://x?y#z","type":"file","mtime":"Thu, 01 Jan 1970 00:00:09 GMT","size":7}]"#;
        let index = read(&folder(), "application/json", nginx).unwrap();
        // The name has slashes, which are those of the name alone.
        assert_eq!((names(&index), index.refused.len()), (vec!["d/".into()], 1));
        assert_eq!(index.entries[0].url.as_str(), "http://h:8080/a%20b/d/");
        let caddy = br#"[{"name":"d/","size":4096,"url":"./d/","mod_time":"2026-01-02T03:04:05.123456789Z","is_dir":true},
            {"name":"x","size":3,"url":"./x","mod_time":"2026-01-02T03:04:05+02:00","is_dir":false}]"#;
        let index = read(&folder(), "application/json; charset=utf-8", caddy).unwrap();
        assert_eq!(names(&index), ["d/", "x"]);
        assert_eq!(index.entries[0].modified, Some(1_767_323_045));
        assert_eq!(
            (index.entries[1].size, index.entries[1].modified),
            (Some(3), None)
        );
        for (kind, body) in [
            ("application/json", &b"{\"a\":1}"[..]),
            ("application/json", b"[1]"),
            ("text/plain", b"x"),
            ("", b"<a href=x>"),
        ] {
            assert!(read(&folder(), kind, body).is_none(), "{kind}");
        }
    }

    #[test]
    fn names_of_devices_are_those_of_windows() {
        for name in ["CON", "nul.txt", "Com1", "lpt9.tar.gz"] {
            assert!(is_device(name.as_bytes()), "{name}");
        }
        for name in ["CONS", "com", "COM10", "lpt", "a.con"] {
            assert!(!is_device(name.as_bytes()), "{name}");
        }
    }
}
