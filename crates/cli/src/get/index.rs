//! What the list of a folder names, in the forms of common servers: JSON of our own, of nginx and of Caddy, and the links of any
//! HTML page.
//!
//! Only what is directly beneath the folder counts: links that sort the list, lead upwards, elsewhere or deeper are none of its
//! entries. Names are decoded once. A list is read without a copy of its structure, so that it takes no more memory than what
//! it names.

use std::borrow::Cow;
use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use url::Url;

use super::entries::{Collector, Facts, Index};
use super::json_list;

/// The list in a body; `None` if it is none. `sublists`: a document may have the lists of folders below beside it.
pub(super) fn read(folder: &Url, content_type: &str, sublists: bool, body: &[u8]) -> Option<Index> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/json" => of_json(folder, sublists, body),
        "text/html" | "application/xhtml+xml" => Some(of_html(folder, body)),
        _ => None,
    }
}

fn of_json(folder: &Url, sublists: bool, body: &[u8]) -> Option<Index> {
    let mut found = Collector::new(folder);
    found.tells_kinds = true;
    // nginx writes the octets of a name as they are.
    let text = String::from_utf8_lossy(body);
    found.is_lossy = matches!(text, Cow::Owned(_));
    json_list::read(text.trim_start_matches('\u{feff}'), sublists, &mut found)?;
    Some(found.index)
}

/// The links of a page.
fn of_html(folder: &Url, body: &[u8]) -> Index {
    let mut found = Collector::new(folder);
    let mut base = folder.clone();
    let (mut tag, mut is_link, mut link) = (Tag::Other, false, None::<Vec<u8>>);
    let take = |event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                tag = match name {
                    b"a" => Tag::Anchor,
                    b"base" => Tag::Base,
                    _ => Tag::Other,
                };
                (is_link, link) = (false, None);
            }
            // The first one of a name counts.
            CallbackEvent::AttributeName { name } => is_link = name == b"href" && link.is_none(),
            CallbackEvent::AttributeValue { value } if is_link && tag != Tag::Other => {
                link = Some(value.to_owned());
            }
            CallbackEvent::CloseStartTag { .. } => {
                let link = link.take();
                let link = link.as_deref().map(String::from_utf8_lossy);
                match (&tag, link) {
                    (Tag::Anchor, Some(link)) => found.add(base.join(&link), Facts::default()),
                    (Tag::Base, Some(link)) => base = folder.join(&link).unwrap_or_else(|_| base.clone()),
                    _ => {}
                }
                tag = Tag::Other;
            }
            _ => {}
        }
        None
    };
    let mut emitter = CallbackEmitter::new(take);
    // What a script or a style sheet has is no link.
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(body, emitter).for_each(drop);
    found.index
}

/// The tags that have links.
#[derive(PartialEq, Eq)]
enum Tag {
    Anchor,
    Base,
    Other,
}

#[cfg(test)]
mod tests {
    use super::super::entries::{Entry, MOST_ENTRIES, SHOWN};
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
        assert_eq!(
            (index.refused, index.first_refused.as_deref()),
            (2, Some("..%2fx"))
        );
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
        let index = read(&folder(), "application/json", false, own).unwrap();
        assert_eq!(
            (names(&index), index.is_partial),
            (vec!["d/".into(), "a b".into()], true)
        );
        assert_eq!(
            (index.entries[1].size, index.entries[1].modified),
            (Some(5), Some(9))
        );
        assert_eq!(
            (index.refused, index.first_refused.as_deref()),
            (1, Some("\u{fffd}"))
        );
        let nginx = br#"[{"name":"d","type":"directory","mtime":"Thu, 01 Jan 1970 00:00:09 GMT"},
            {"name":"http://x?y#z","type":"file","mtime":"Thu, 01 Jan 1970 00:00:09 GMT","size":7}]"#;
        let index = read(&folder(), "application/json", false, nginx).unwrap();
        // The name has slashes, which are those of the name alone.
        assert_eq!((names(&index), index.refused), (vec!["d/".into()], 1));
        assert_eq!(index.entries[0].url(&folder()).as_str(), "http://h:8080/a%20b/d/");
        let caddy = br#"[{"name":"d/","size":4096,"url":"./d/","mod_time":"2026-01-02T03:04:05.123456789Z","is_dir":true},
            {"name":"x","size":3,"url":"./x","mod_time":"2026-01-02T03:04:05+02:00","is_dir":false}]"#;
        let index = read(&folder(), "application/json; charset=utf-8", false, caddy).unwrap();
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
            assert!(read(&folder(), kind, false, body).is_none(), "{kind}");
        }
    }

    #[test]
    fn a_folder_has_the_same_entries_however_its_name_is_escaped() {
        let typed = Url::parse("http://h/%7Eann/a(b)/?after=x").unwrap();
        let page = br#"<a href="/~ann/a%28b%29/x"><a href="/~ann/a%28b%29/"><a href="/~ann/a%28b/y"><a href="/~eve/a(b)/z">"#;
        let index = of_html(&typed, page);
        assert_eq!(names(&index), ["x"]);
        assert_eq!(index.entries[0].url(&typed).as_str(), "http://h/%7Eann/a(b)/x");
    }

    #[test]
    fn one_name_that_is_no_utf_8_costs_no_other() {
        let nginx =
            b"\xef\xbb\xbf[{\"name\":\"caf\xe9\",\"type\":\"file\"},{\"name\":\"a.b\",\"type\":\"file\"}]";
        let index = of_json(&folder(), false, nginx).unwrap();
        assert_eq!((names(&index), index.refused), (vec!["a.b".into()], 1));
        assert_eq!(
            index.entries[0].url(&folder()).as_str(),
            "http://h:8080/a%20b/a.b"
        );
    }

    #[test]
    fn a_file_and_a_folder_of_one_name_are_told_where_a_list_tells_kinds() {
        let text =
            br#"[{"name":"a","type":"file"},{"name":"a","type":"directory"},{"name":"a","type":"file"}]"#;
        let index = of_json(&folder(), false, text).unwrap();
        assert_eq!((names(&index), index.refused), (vec!["a".into()], 1));
        let index = of_html(&folder(), b"<a href=a><a href=a/>");
        assert_eq!((names(&index), index.refused), (vec!["a".into()], 0));
    }

    #[test]
    fn what_a_list_repeats_without_end_is_counted_and_cut() {
        let many = |count: usize| {
            (0..count)
                .map(|number| format!("<a href={number:x}>"))
                .collect::<String>()
        };
        let index = of_html(&folder(), many(MOST_ENTRIES + 1).as_bytes());
        assert!(index.is_cut && index.entries.len() == MOST_ENTRIES);
        assert!(!of_html(&folder(), many(3).as_bytes()).is_cut);
        let index = of_html(
            &folder(),
            format!("<a href={}>", "%00x".repeat(500)).repeat(9).as_bytes(),
        );
        assert_eq!((index.refused, index.first_refused.unwrap().len()), (9, SHOWN));
    }
}
