//! File names that come from URLs and servers: each is a name in one folder, whatever it was made of.

use std::ffi::OsString;

use http::HeaderMap;
use http::header::CONTENT_DISPOSITION;
use percent_encoding::{percent_decode, percent_decode_str};
use url::Url;

use crate::text::is_obeyed;

/// The name of a body whose URL ends in a slash.
const INDEX: &str = "index.html";
/// The longest file name, so that its temporary name fits the 255 bytes of common file systems.
const LONGEST_NAME: usize = 200;

/// The last segment of the URL's path as a file name: percent-decoded, without separators and control characters, not
/// `.` or `..`, not empty, at most 200 bytes. The query is not part of it.
pub(super) fn file_name(url: &Url) -> OsString {
    let segment = url.path().rsplit('/').next().unwrap_or_default();
    let octets: Vec<u8> = percent_decode_str(segment).collect();
    match cleaned(&octets) {
        name if name.is_empty() => INDEX.into(),
        name if name == "." => "_".into(),
        name if name == ".." => "__".into(),
        name => name,
    }
}

/// A segment of a URL's path as the name of a folder, cleaned in the same way; `None` when nothing is left of it.
pub(super) fn segment_name(segment: &str) -> Option<OsString> {
    let octets: Vec<u8> = percent_decode_str(segment).collect();
    let name = cleaned(&octets);
    (!name.is_empty() && name != "." && name != "..").then_some(name)
}

/// The file name that a response names (`-J`; RFC 6266), not hidden; `None` without one. Folders in it are dropped.
pub(super) fn header_name(headers: &HeaderMap) -> Option<OsString> {
    let field = headers.get(CONTENT_DISPOSITION)?;
    let (mut plain, mut extended) = (None, None);
    let (_, mut rest) = split(field.as_bytes(), b';')?;
    while let Some((name, after)) = split(rest, b'=') {
        let (value, after) = value(after.trim_ascii_start());
        let is_around = |octet: &u8| b" \t;".contains(octet);
        let begin = name
            .iter()
            .position(|octet| !is_around(octet))
            .unwrap_or(name.len());
        let end = name
            .iter()
            .rposition(|octet| !is_around(octet))
            .map_or(begin, |last| last + 1);
        match name
            .get(begin..end)
            .unwrap_or_default()
            .to_ascii_lowercase()
            .as_slice()
        {
            b"filename" => plain = plain.or(Some(value)),
            b"filename*" => extended = extended.or_else(|| decode_extended(&value)),
            _ => {}
        }
        rest = after;
    }
    let name = extended.or(plain)?;
    let last = name
        .rsplit(|octet| b"/\\".contains(octet))
        .next()
        .unwrap_or_default();
    // A hidden file could be one that a program reads.
    let name = match last.trim_ascii() {
        [b'.', rest @ ..] => cleaned(&[b"_", rest].concat()),
        shown => cleaned(shown),
    };
    (!name.is_empty()).then_some(name)
}

/// What stands before an octet, and behind it.
fn split(octets: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = octets.iter().position(|&octet| octet == at)?;
    Some((octets.get(..place)?, octets.get(place + 1..)?))
}

/// A token or a quoted string, and what follows it.
fn value(octets: &[u8]) -> (Vec<u8>, &[u8]) {
    let Some(quoted) = octets.strip_prefix(b"\"") else {
        let (token, rest) = split(octets, b';').unwrap_or((octets, b""));
        return (token.trim_ascii().to_owned(), rest);
    };
    let mut value = Vec::new();
    let mut rest = quoted.iter();
    while let Some(&octet) = rest.next() {
        match octet {
            b'"' => break,
            b'\\' => value.extend(rest.next()),
            octet => value.push(octet),
        }
    }
    (value, rest.as_slice())
}

/// `UTF-8''percent-encoded` (RFC 8187). A wrong escape makes it invalid, and the plain name is taken.
fn decode_extended(value: &[u8]) -> Option<Vec<u8>> {
    let (charset, rest) = split(value, b'\'')?;
    let (_, name) = split(rest, b'\'')?;
    let is_escape = |octets: &[u8]| {
        let digits = octets.get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !name.split(|&octet| octet == b'%').skip(1).all(is_escape) {
        return None;
    }
    let octets = percent_decode(name);
    match charset.to_ascii_lowercase().as_slice() {
        b"utf-8" => octets
            .decode_utf8()
            .ok()
            .map(|name| name.into_owned().into_bytes()),
        b"iso-8859-1" => Some(octets.map(char::from).collect::<String>().into_bytes()),
        _ => None,
    }
}

/// Whether the user's name is a name in a folder, and no path.
pub(super) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && cleaned(name.as_bytes()) == name
}

/// A name without separators and characters that a terminal obeys, of at most 200 bytes. Octets that are no UTF-8 stay, where
/// file names may have them.
fn cleaned(octets: &[u8]) -> OsString {
    let mut name = Vec::new();
    for chunk in octets.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let letter = match letter {
                '/' | '\\' => '_',
                '<' | '>' | ':' | '"' | '|' | '?' | '*' if cfg!(windows) => '_',
                letter if is_obeyed(letter) => '_',
                letter => letter,
            };
            let mut buffer = [0; 4];
            let encoded = letter.encode_utf8(&mut buffer).as_bytes();
            if name.len() + encoded.len() > LONGEST_NAME {
                return of_octets(name);
            }
            name.extend(encoded);
        }
        let room = LONGEST_NAME - name.len();
        name.extend(chunk.invalid().iter().take(room));
    }
    of_octets(name)
}

/// File names of Apple's systems are UTF-8.
#[cfg(all(unix, not(target_vendor = "apple")))]
pub(super) fn of_octets(octets: Vec<u8>) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec(octets)
}

#[cfg(not(all(unix, not(target_vendor = "apple"))))]
pub(super) fn of_octets(octets: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&octets).into_owned().into()
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use http::HeaderValue;

    use super::*;

    fn name(url: &str) -> String {
        let name = Url::parse(url).map(|url| file_name(&url).to_string_lossy().into_owned());
        name.unwrap_or_else(|error| error.to_string())
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
        header_name(&headers)?.into_string().ok()
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
            ("attachment; filename*=iso-8859-1''a%ZZ%E9; filename=b", Some("b")),
            ("attachment; filename*=UTF-8''a%4; filename=b", Some("b")),
            (
                "attachment; filename*=UTF-8''it's%20(1).txt",
                Some("it's (1).txt"),
            ),
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
            ("attachment; filename*=UTF-8''a%C2%9b%e2%80%aeb", Some("a__b")),
            ("attachment; filename=\"a\u{202e}gpj.exe\"", Some("a_gpj.exe")),
        ] {
            assert_eq!(told(value).as_deref(), name, "{value}");
        }
        assert_eq!(
            told(&format!("attachment; filename={}", "a".repeat(500))).map(|name| name.len()),
            Some(200)
        );
    }

    #[cfg(all(unix, not(target_vendor = "apple")))]
    #[test]
    fn octets_of_a_name_that_are_no_utf_8_stay() -> Result<(), Box<dyn std::error::Error>> {
        use std::os::unix::ffi::OsStrExt as _;
        let url = Url::parse("http://h/caf%e9%2f%C2%9b.txt")?;
        assert_eq!(file_name(&url).as_bytes(), b"caf\xe9__.txt");
        let long = Url::parse(&format!("http://h/{}", "%e9".repeat(300)))?;
        assert_eq!(file_name(&long).as_bytes(), [0xe9; 200]);
        for value in [
            &b"attachment; filename=caf\xe9.txt"[..],
            b"attachment; filename=\"caf\xe9.txt\"; size=3",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_DISPOSITION, HeaderValue::from_bytes(value)?);
            let name = header_name(&headers).ok_or("no name")?;
            assert_eq!(name.as_bytes(), b"caf\xe9.txt");
        }
        Ok(())
    }

    #[test]
    fn a_name_of_the_user_is_taken_as_it_is_or_not_at_all() {
        assert!(is_plain_name("a b.iso") && is_plain_name(".hidden"));
        for wrong in ["", ".", "..", "a/b", "/a", "a\\b", "a\0"] {
            assert!(!is_plain_name(wrong), "{wrong:?}");
        }
    }
}
