//! The text of an error response: what the server says about it, as one printable line.

use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use fullbore::Incoming;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::transfer_coding::is_coded;
use crate::text::is_obeyed;

/// How many bytes of a text are shown.
const SHOWN: usize = 1_024;
/// How much of a body is read. An HTML page may have its text behind a long style sheet.
const READ: usize = 8 * 1_024;
/// How long the error may wait for its text.
const WAIT: Duration = Duration::from_secs(5);

/// Reads the beginning of the body; `None` when it has no text.
pub(crate) async fn read(response: Response<Incoming>) -> Option<String> {
    let (head, body) = response.into_parts();
    if head.headers.contains_key(CONTENT_ENCODING) || is_coded(&head.headers) {
        return None;
    }
    let mut octets = Vec::new();
    // A text that is cut is better than none.
    let _ = timeout(WAIT, gather(body, &mut octets)).await;
    let line = line(&octets, is_html(&head.headers))?;
    // The sentence about the status has the reason phrase already.
    let reason = head.status.canonical_reason().unwrap_or_default();
    let says_more = line != reason && line != format!("{} {reason}", head.status.as_u16());
    says_more.then_some(line)
}

async fn gather(body: Incoming, octets: &mut Vec<u8>) {
    let mut body = pin!(body);
    while octets.len() < READ {
        let Some(Ok(frame)) = body.frame().await else {
            return;
        };
        if let Ok(data) = frame.into_data() {
            let room = READ - octets.len();
            octets.extend(data.chunk().iter().take(room));
        }
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
    kind.to_ascii_lowercase().starts_with(b"text/html")
}

/// One line: white space is a space, and what a terminal would obey is escaped.
fn line(octets: &[u8], is_html: bool) -> Option<String> {
    if octets.contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(octets);
    let text = match is_html {
        true => text_of_html(&text),
        false => text.into_owned(),
    };
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for letter in word.chars() {
            match is_obeyed(letter) {
                true => line.extend(letter.escape_unicode()),
                false => line.push(letter),
            }
        }
        if line.len() > SHOWN {
            let end = (0..=SHOWN).rev().find(|&end| line.is_char_boundary(end));
            line.truncate(end.unwrap_or(0));
            line.push('…');
            break;
        }
    }
    (!line.is_empty()).then_some(line)
}

/// What stands between the tags, but not in the title (which pages repeat), scripts and style sheets.
fn text_of_html(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        let hidden = ["script", "style", "title"].into_iter().find(|name| {
            tag.get(..name.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        });
        let tag = match hidden {
            Some(name) => {
                let end = tag.to_ascii_lowercase().find(&format!("</{name}"));
                end.and_then(|end| tag.get(end..)).unwrap_or_default()
            }
            None => tag,
        };
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_that_no_terminal_obeys() {
        assert_eq!(
            line(b"no\r\n  such\tfile\n", false).as_deref(),
            Some("no such file")
        );
        assert_eq!(
            line(b"\x1b[31mred\x07", false).as_deref(),
            Some("\\u{1b}[31mred\\u{7}")
        );
        assert_eq!(
            line("a\u{202e}b".as_bytes(), false).as_deref(),
            Some("a\\u{202e}b")
        );
        assert_eq!(line(b" \n ", false), None);
        assert_eq!(line(b"PNG\0", false), None);
        let long = line("ä".repeat(4_000).as_bytes(), false).unwrap_or_default();
        assert_eq!((long.len(), long.ends_with('…')), (SHOWN + '…'.len_utf8(), true));
    }

    #[test]
    fn a_page_is_shown_without_its_tags() {
        let page = b"<html><head><TITLE>404 Not Found</title><style>b { x: y }</style></head>\n<body>\n\
            <center><h1>404 Not Found</h1></center><script>if (1 < 2) {}</script><hr>nginx</body>";
        assert_eq!(line(page, true).as_deref(), Some("404 Not Found nginx"));
        assert_eq!(line(b"1 < 2", true).as_deref(), Some("1"));
        assert_eq!(line(b"<style>unfinished", true), None);
    }
}
