//! Text that others wrote, for people: what a terminal would obey is escaped.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Control characters, C0 and C1, and those that break a line or change the direction of a text.
pub(crate) fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text, perhaps of several lines.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(
        text,
        |letter| letter != '\n',
        |out, letter| out.extend(letter.escape_unicode()),
    )
}

/// A document of JSON: within its strings, which are the only place for such characters.
pub(crate) fn escaped_json(document: &str) -> Cow<'_, str> {
    escape(
        document,
        |letter| letter != '\n',
        |out, letter| {
            // All of them have four digits.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        },
    )
}

/// Octets that may be no UTF-8, as one line. A tab stays.
pub(crate) fn escaped_octets(octets: &[u8]) -> String {
    let mut line = String::new();
    for chunk in octets.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match is_obeyed(letter) && letter != '\t' {
                true => line.extend(letter.escape_unicode()),
                false => line.push(letter),
            }
        }
        for octet in chunk.invalid() {
            let _ = write!(line, "\\x{octet:02x}");
        }
    }
    line
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let is_escaped = |letter: char| is_obeyed(letter) && is_escaped(letter);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_escaped(letter) {
            true => escape(&mut out, letter),
            false => out.push(letter),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_the_rest_stays() {
        let text = "naïve 漢\u{1b}[31m\u{9b}2J\u{202e}x\u{2066}\nend";
        assert_eq!(
            escaped(text),
            "naïve 漢\\u{1b}[31m\\u{9b}2J\\u{202e}x\\u{2066}\nend"
        );
        assert!(matches!(escaped("plain ä"), Cow::Borrowed(_)));
        assert_eq!(
            escaped_octets(b"a\t\xc3\xa4 \xff\x9b \xc2\x9b31m\n"),
            "a\tä \\xff\\x9b \\u{9b}31m\\u{a}"
        );
    }

    #[test]
    fn a_document_means_the_same_when_it_is_escaped() -> Result<(), serde_json::Error> {
        let text = "a\u{9b}b\u{202e}c\nd";
        let document = serde_json::to_string(text)?;
        let escaped = escaped_json(&document);
        assert_eq!(escaped, "\"a\\u009bb\\u202ec\\nd\"");
        assert_eq!(serde_json::from_str::<String>(&escaped)?, text);
        Ok(())
    }
}
