//! Structured fields (RFC 9651), as far as resumable uploads have them: an item that is an integer or a boolean, and a
//! dictionary. Called by `resource`.
//!
//! A value that breaks the grammar is ignored as a whole, as the RFC demands (section 4.2). What is parsed is bounded by the
//! limits of the library on fields.

use http::{HeaderMap, HeaderName};

/// An integer has so many digits at most (RFC 9651 section 3.3.1).
const MOST_DIGITS: usize = 15;

/// The value of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Integer(i64),
    Boolean(bool),
    /// A decimal, string, token, byte sequence, date or inner list, whose content nobody needs.
    Other,
}

/// The members of a dictionary. A key that is repeated has its last value.
pub(super) type Dictionary = Vec<(String, Value)>;

/// The field as a non-negative integer; `None` without the field, or with another value.
pub(super) fn length(fields: &HeaderMap, name: &HeaderName) -> Option<u64> {
    match item(fields, name)? {
        Value::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

/// The field as a boolean; `None` without the field, or with another value.
pub(super) fn boolean(fields: &HeaderMap, name: &HeaderName) -> Option<bool> {
    match item(fields, name)? {
        Value::Boolean(value) => Some(value),
        _ => None,
    }
}

/// The field as an item (section 4.2, with the type "item").
fn item(fields: &HeaderMap, name: &HeaderName) -> Option<Value> {
    let text = joined(fields, name)?;
    let mut parser = Parser(text.trim_matches(' '));
    let value = parser.bare_item()?;
    parser.parameters()?;
    parser.0.is_empty().then_some(value)
}

/// The field as a dictionary (section 4.2.2).
pub(super) fn dictionary(fields: &HeaderMap, name: &HeaderName) -> Option<Dictionary> {
    let text = joined(fields, name)?;
    let mut parser = Parser(text.trim_matches(' '));
    let mut members = Dictionary::new();
    while !parser.0.is_empty() {
        let key = parser.key()?.to_owned();
        let value = match parser.take('=') {
            true => parser.item_or_list()?,
            false => Value::Boolean(true),
        };
        parser.parameters()?;
        members.retain(|(other, _)| *other != key);
        members.push((key, value));
        parser.skip(&[' ', '\t']);
        if parser.0.is_empty() {
            break;
        }
        if !parser.take(',') {
            return None;
        }
        parser.skip(&[' ', '\t']);
        // A comma at the end.
        if parser.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// The lines of a field, joined with commas. Structured fields are ASCII.
fn joined(fields: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Result<Vec<&str>, _> = fields.get_all(name).iter().map(|line| line.to_str()).collect();
    let lines = lines.ok().filter(|lines| !lines.is_empty())?;
    Some(lines.join(", "))
}

/// What is left to parse.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    fn take(&mut self, letter: char) -> bool {
        let rest = self.0.strip_prefix(letter);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn skip(&mut self, letters: &[char]) {
        self.0 = self.0.trim_start_matches(letters);
    }

    /// Takes the letters up to the first one that does not fit.
    fn while_is(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|letter| !fits(letter)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a str> {
        if !self
            .0
            .starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        {
            return None;
        }
        Some(self.while_is(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)))
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(';') {
            self.skip(&[' ']);
            self.key()?;
            if self.take('=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take('(') {
            return self.bare_item();
        }
        loop {
            self.skip(&[' ']);
            if self.take(')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !self.0.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    fn bare_item(&mut self) -> Option<Value> {
        match self.0.chars().next()? {
            '-' | '0'..='9' => self.number(),
            '?' => {
                self.take('?');
                match (self.take('1'), self.take('0')) {
                    (true, false) => Some(Value::Boolean(true)),
                    (false, true) => Some(Value::Boolean(false)),
                    _ => None,
                }
            }
            '"' => self.string(),
            '%' => {
                self.take('%');
                self.string()
            }
            '@' => {
                self.take('@');
                match self.number()? {
                    Value::Integer(_) => Some(Value::Other),
                    _ => None,
                }
            }
            ':' => {
                self.take(':');
                self.while_is(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
                self.take(':').then_some(Value::Other)
            }
            first if first.is_ascii_alphabetic() || first == '*' => {
                self.while_is(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.take('-');
        let digits = self.while_is(|c| c.is_ascii_digit());
        if digits.is_empty() || digits.len() > MOST_DIGITS {
            return None;
        }
        if self.take('.') {
            let fraction = self.while_is(|c| c.is_ascii_digit());
            return matches!(fraction.len(), 1..=3).then_some(Value::Other);
        }
        let number: i64 = digits.parse().ok()?;
        Some(Value::Integer(if is_negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        if !self.take('"') {
            return None;
        }
        loop {
            self.while_is(|c| c != '"' && c != '\\' && !c.is_ascii_control());
            if self.take('"') {
                return Some(Value::Other);
            }
            if !self.take('\\') || !(self.take('"') || self.take('\\')) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    static NAME: HeaderName = HeaderName::from_static("a");

    fn fields(lines: &[&'static str]) -> HeaderMap {
        let line = |line: &str| (NAME.clone(), HeaderValue::from_bytes(line.as_bytes()));
        let mut fields = HeaderMap::new();
        for (name, value) in lines.iter().copied().map(line) {
            fields.append(name, value.unwrap_or(HeaderValue::from_static("no value")));
        }
        fields
    }

    #[test]
    fn an_integer_or_a_boolean_is_read_with_its_parameters_and_everything_else_is_ignored() {
        for (text, expected) in [
            ("0", Some(0)),
            (" 25000000 ", Some(25_000_000)),
            ("7;a;b=\"x;\\\"y\"; c=?0", Some(7)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("1000000000000000", None),
            ("-1", None),
            ("1.5", None),
            ("+1", None),
            ("1 2", None),
            ("1, 2", None),
            ("1;", None),
            ("?1", None),
            ("\"1\"", None),
            ("", None),
        ] {
            assert_eq!(length(&fields(&[text]), &NAME), expected, "{text}");
        }
        for (text, expected) in [
            ("?1", Some(true)),
            ("?0;x=1", Some(false)),
            ("?", None),
            ("?10", None),
            ("?2", None),
            ("1", None),
            ("true", None),
        ] {
            assert_eq!(boolean(&fields(&[text]), &NAME), expected, "{text}");
        }
        assert_eq!(length(&fields(&["1", "2"]), &NAME), None, "two items");
        assert_eq!(length(&fields(&[]), &NAME), None);
    }

    #[test]
    fn a_dictionary_has_every_type_of_member_and_the_last_value_of_a_key() {
        let one = |key: &str, value| (key.to_owned(), value);
        let text =
            "max-size=5;p=1,\tx, y=?0, z=(1 \"a)\" b;q);r, s=%\"a\", t=@-7, u=:YQ==:, v=Tok/en:*, w=1.25";
        let found = dictionary(&fields(&[text, "max-size=9"]), &NAME).unwrap_or_default();
        let (first, last) = (found.first().cloned(), found.last().cloned());
        assert_eq!(first, Some(one("x", Value::Boolean(true))));
        assert_eq!(last, Some(one("max-size", Value::Integer(9))));
        assert_eq!(found.len(), 9);
        for text in ["z", "s", "t", "u", "v", "w"]
            .map(|key| one(key, Value::Other))
            .iter()
            .skip(1)
        {
            assert!(found.contains(text), "{text:?}");
        }
        assert_eq!(dictionary(&fields(&[""]), &NAME), Some(Vec::new()));
    }

    #[test]
    fn a_dictionary_that_breaks_the_grammar_is_ignored_as_a_whole() {
        for text in [
            "A=1",
            "a=",
            "a=1,",
            "a=1 b=2",
            "a=(1",
            "a=(1,2)",
            "a=\"x",
            "a=\"\\x\"",
            "=1",
            "a=@1.5",
            "a=:YQ",
            "a=%x",
            "a=é",
            "a;=1",
            "a=1.2345",
            "a=1.",
            "a=--1",
            ",",
            "a,,b",
        ] {
            assert_eq!(dictionary(&fields(&[text]), &NAME), None, "{text}");
        }
    }
}
