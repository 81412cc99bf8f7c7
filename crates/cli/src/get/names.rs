//! File names that come from URLs and servers: each is a name in one folder, whatever it was made of.

use http::HeaderMap;
use http::header::CONTENT_DISPOSITION;
use percent_encoding::percent_decode_str;
use url::Url;

/// The name of a body whose URL ends in a slash.
const INDEX: &str = "index.html";
/// The longest file name, so that its temporary name fits the 255 bytes of common file systems.
const LONGEST_NAME: usize = 200;

/// The last segment of the URL's path as a file name: percent-decoded, without separators and control characters, not
/// `.` or `..`, not empty, at most 200 bytes. The query is not part of it.
pub(super) fn file_name(url: &Url) -> String {
    let segment = url.path().rsplit('/').next().unwrap_or_default();
    let name = cleaned(&percent_decode_str(segment).decode_utf8_lossy());
    match name.as_str() {
        "" => INDEX.to_owned(),
        "." => "_".to_owned(),
        ".." => "__".to_owned(),
        _ => name,
    }
}

/// The file name that a response names (`-J`; RFC 6266), not hidden; `None` without one. Folders in it are dropped.
pub(super) fn header_name(headers: &HeaderMap) -> Option<String> {
    let field = headers.get(CONTENT_DISPOSITION)?;
    let text = String::from_utf8_lossy(field.as_bytes()).into_owned();
    let (mut plain, mut extended) = (None, None);
    let mut rest = text.split_once(';')?.1;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = value(after.trim_start());
        match name.trim_matches([' ', '\t', ';']).to_ascii_lowercase().as_str() {
            "filename" => plain = plain.or(Some(value)),
            "filename*" => extended = extended.or_else(|| decode_extended(&value)),
            _ => {}
        }
        rest = after;
    }
    let name = extended.or(plain)?;
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = cleaned(last.trim());
    match name.strip_prefix('.') {
        // A hidden file could be one that a program reads.
        Some(rest) => Some(format!("_{rest}")),
        None => (!name.is_empty()).then_some(name),
    }
}

/// A token or a quoted string, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = text.split_once(';').unwrap_or((text, ""));
        return (token.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => value.extend(letters.next()),
            letter => value.push(letter),
        }
    }
    (value, letters.as_str())
}

/// `UTF-8''percent-encoded` (RFC 8187).
fn decode_extended(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let (charset, _, name) = (parts.next()?, parts.next()?, parts.next()?);
    let octets = percent_decode_str(name);
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" => octets.decode_utf8().ok().map(|name| name.into_owned()),
        "iso-8859-1" => Some(octets.map(char::from).collect()),
        _ => None,
    }
}

/// Whether the user's name is a name in a folder, and no path.
pub(super) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && cleaned(name) == name
}

/// A name without separators and control characters, of at most 200 bytes.
fn cleaned(name: &str) -> String {
    let mut name: String = name
        .chars()
        .map(|c| match c {
            '/' | '\\' => '_',
            '<' | '>' | ':' | '"' | '|' | '?' | '*' if cfg!(windows) => '_',
            c if c.is_control() => '_',
            c => c,
        })
        .collect();
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use http::HeaderValue;

    use super::*;

    fn name(url: &str) -> String {
        Url::parse(url).map_or_else(|error| error.to_string(), |url| file_name(&url))
    }

    #[test]
    fn a_name_is_the_decoded_last_segment() {
        assert_eq!(name("http://h/a/b%20c.txt?x=/y#z"), "b c.txt");
        assert_eq!(name("http://h/%E6%BC%A2.png"), "漢.png");
        assert_eq!(name("http://h"), INDEX);
        assert_eq!(name("http://h/a/"), INDEX);
    }

    #[test]
    fn no_name_leaves_its_folder() {
        for segment in [
            "..",
            "%2e%2e",
            "..%2f..%2fetc%2fpasswd",
            "%2Fetc%2Fpasswd",
            "a%00b",
            "..%5cx",
            "%ff%fe",
            "%252e%252e%252f",
            ".",
            "%2e",
        ] {
            let name = name(&format!("http://h/d/{segment}"));
            let parts: Vec<_> = Path::new(&name).components().collect();
            assert!(
                matches!(parts.as_slice(), [Component::Normal(part)] if *part == name.as_str()),
                "{segment} became {name:?}"
            );
            assert!(!name.contains('\0'));
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let even = name(&format!("http://h/{}", "%C3%A4".repeat(300)));
        assert!(even.len() == 200 && even.chars().all(|c| c == 'ä'), "{even}");
        let odd = name(&format!("http://h/a{}", "%C3%A4".repeat(300)));
        assert!(odd.len() == 199 && odd.ends_with('ä'), "{odd}");
        assert_eq!(name(&format!("http://h/{}", "a".repeat(201))), "a".repeat(200));
    }

    fn told(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        headers.insert(CONTENT_DISPOSITION, value);
        header_name(&headers)
    }

    #[test]
    fn a_response_names_its_file() {
        for (value, name) in [
            ("attachment; filename=a.iso", Some("a.iso")),
            ("attachment; filename=\"a b;c.iso\"; size=3", Some("a b;c.iso")),
            ("attachment; FileName=\"a \\\"b\\\".iso\"", Some("a \"b\".iso")),
            (
                "attachment; filename=\"x\"; filename*=UTF-8''na%C3%AFve%20file.txt",
                Some("naïve file.txt"),
            ),
            ("attachment; filename*=iso-8859-1'en'%A3", Some("£")),
            ("attachment; filename*=UTF-8''%ff; filename=b", Some("b")),
            ("inline", None),
            ("attachment; filename=", None),
            ("attachment; filename", None),
        ] {
            assert_eq!(told(value).as_deref(), name, "{value}");
        }
    }

    #[test]
    fn no_name_of_a_response_is_a_path_or_hidden() {
        for (value, name) in [
            ("attachment; filename=\"../../etc/passwd\"", Some("passwd")),
            ("attachment; filename=\"C:\\\\Windows\\\\x.dll\"", Some("x.dll")),
            ("attachment; filename=\".bashrc\"", Some("_bashrc")),
            ("attachment; filename=\"..\"", Some("_.")),
            ("attachment; filename=\"a/\"", None),
            ("attachment; filename*=UTF-8''a%00b%2fc", Some("c")),
            ("attachment; filename*=UTF-8''%1b%5b31m", Some("_[31m")),
        ] {
            assert_eq!(told(value).as_deref(), name, "{value}");
        }
        assert_eq!(
            told(&format!("attachment; filename={}", "a".repeat(500))).map(|name| name.len()),
            Some(200)
        );
    }

    #[test]
    fn a_name_of_the_user_is_taken_as_it_is_or_not_at_all() {
        assert!(is_plain_name("a b.iso") && is_plain_name(".hidden"));
        for wrong in ["", ".", "..", "a/b", "/a", "a\\b", "a\0"] {
            assert!(!is_plain_name(wrong), "{wrong:?}");
        }
    }
}
