//! Parses a request path into names below the root, or refuses it.
//!
//! This does not access the file system. It only checks the form of a path; `open` keeps a request inside the root. Called
//! by `files` and `uploads`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The longest name of a file on common file systems, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// The longest path, in bytes: Linux's `PATH_MAX` without the final NUL.
const MAX_PATH_BYTES: usize = 4095;

/// The characters escaped in a path or a query that we write: all but RFC 3986's `unreserved`.
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A well-formed path: decoded once, without `.`, `..`, NUL, or separators within names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    names: Vec<String>,
    directory: bool,
    /// The slashes after the first one: one is taken off by each `..` of a reference, even beside another one.
    depth: usize,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// It violates RFC 3986, or tries to leave the root: 400.
    Malformed,
    /// It is longer than the path of any file: 404.
    TooLong,
}

impl Target {
    /// Parses the path of a request target. Repeated slashes count as one.
    ///
    /// # Errors
    /// [`BadPath`]. `..` is refused, since clients that normalize (RFC 3986 section 5.2.4) never send it.
    pub(crate) fn parse(path: &str) -> Result<Target, BadPath> {
        let rest = path.strip_prefix('/').ok_or(BadPath::Malformed)?;
        let mut names = Vec::new();
        let mut total = 0;
        for segment in rest.split('/') {
            // Escapes have three bytes.
            if segment.len() > 3 * MAX_NAME_BYTES {
                return Err(BadPath::TooLong);
            }
            let name = decode(segment)?;
            total += name.len() + 1;
            if name.len() > MAX_NAME_BYTES || total > MAX_PATH_BYTES {
                return Err(BadPath::TooLong);
            }
            if !name.is_empty() {
                names.push(name);
            }
        }
        let directory = names.is_empty() || rest.ends_with('/');
        let depth = rest.matches('/').count();
        Ok(Target {
            names,
            directory,
            depth,
        })
    }

    /// Whether the path ends with a slash and so names a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.directory
    }

    /// Whether a name on the path begins with a dot, except for `.well-known` directly below the root (RFC 8615 section 3).
    pub(crate) fn is_hidden(&self) -> bool {
        is_hidden(&self.names)
    }

    /// The names on the path, outermost first.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The last name; none for the root.
    pub(crate) fn last(&self) -> Option<&str> {
        self.names.last().map(String::as_str)
    }

    /// The path below the root; `.` for the root itself.
    pub(crate) fn relative(&self) -> String {
        if self.names.is_empty() {
            ".".to_owned()
        } else {
            self.names.join("/")
        }
    }

    /// The path of the file `name` in this directory.
    pub(crate) fn child(&self, name: &str) -> String {
        if self.names.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.names.join("/"))
        }
    }

    /// The folder `name` in this directory, which is no path of a request. `None` if a request cannot have its path.
    pub(crate) fn folder(&self, name: &str) -> Option<Target> {
        let names = self.names.iter().map(String::as_str).chain([name]);
        let total: usize = names.clone().map(|name| name.len() + 1).sum();
        // The last segment behind the slash is empty, and counts one.
        (total < MAX_PATH_BYTES).then(|| Target {
            names: names.map(str::to_owned).collect(),
            directory: true,
            depth: self.depth + 1,
        })
    }

    /// This directory for `location`, relative to the path of the request. A router may have taken a prefix off that path,
    /// which only the client knows. Nor does `//host` in a request ever become a reference to another host.
    pub(crate) fn directory_reference(&self) -> String {
        match self.last() {
            Some(name) if !self.directory => format!("./{}/", encode(name)),
            _ => "./".to_owned(),
        }
    }

    /// The file with these names below the root, as [`Self::directory_reference`].
    pub(crate) fn reference_to(&self, names: &[String]) -> String {
        let folder = match self.directory {
            true => &*self.names,
            false => self.names.split_last().map_or(&[][..], |(_, folder)| folder),
        };
        let (up, down) = match names.strip_prefix(folder) {
            Some(down) => ("./".to_owned(), down),
            None => ("../".repeat(self.depth), names),
        };
        let down: Vec<String> = down.iter().map(|name| encode(name).to_string()).collect();
        up + &down.join("/")
    }
}

/// Whether one of these names below the root is hidden: see [`Target::is_hidden`].
pub(crate) fn is_hidden(names: &[String]) -> bool {
    let mut names = names.iter().enumerate();
    names.any(|(at, name)| name.starts_with('.') && (at > 0 || name != ".well-known"))
}

/// A name, escaped for use as one segment of a path.
pub(crate) fn encode(name: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(name, RESERVED)
}

/// Decodes one segment, once. Escapes that remain are part of the name.
fn decode(segment: &str) -> Result<String, BadPath> {
    if !escapes_are_whole(segment.as_bytes()) {
        return Err(BadPath::Malformed);
    }
    let name = percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| BadPath::Malformed)?;
    // A backslash is a separator on Windows and to many programs. On Windows, a colon begins a drive or a stream.
    let separates = |c: char| matches!(c, '/' | '\\' | '\0') || (cfg!(windows) && c == ':');
    if name == "." || name == ".." || name.contains(separates) {
        return Err(BadPath::Malformed);
    }
    Ok(name.into_owned())
}

/// Whether two hexadecimal digits follow each `%` (RFC 3986 section 2.1). The decoder accepts other text.
fn escapes_are_whole(segment: &[u8]) -> bool {
    let mut rest = segment;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                rest = rest.get(at + 3..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(path: &str) -> Result<String, BadPath> {
        Target::parse(path).map(|target| target.relative())
    }

    #[test]
    fn plain_paths_become_names() {
        for (path, expected) in [
            ("/", "."),
            ("//", "."),
            ("/a", "a"),
            ("/a/", "a"),
            ("/a/b.txt", "a/b.txt"),
            ("//a///b", "a/b"),
            ("/.hidden", ".hidden"),
            ("/...", "..."),
            ("/..a/b..", "..a/b.."),
            ("/with%20space", "with space"),
            ("/%C3%A9t%c3%a9", "été"),
            ("/a+b", "a+b"),
            ("/100%25", "100%"),
            ("/%252e%252e", "%2e%2e"),
            ("/%252fetc", "%2fetc"),
        ] {
            assert_eq!(relative(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn a_trailing_slash_asks_for_a_directory() {
        for (path, directory) in [("/", true), ("/a", false), ("/a/", true), ("//", true)] {
            assert_eq!(
                Target::parse(path).map(|t| t.is_directory()),
                Ok(directory),
                "{path}"
            );
        }
    }

    #[test]
    fn names_that_begin_with_a_dot_are_hidden() {
        for (path, hidden) in [
            ("/", false),
            ("/a.b/c.", false),
            ("/.a", true),
            ("/.a/", true),
            ("/a/.b/c", true),
            ("/%2egit/config", true),
            ("/...", true),
            ("/.well-known/acme-challenge/token", false),
            ("//.well-known/security.txt", false),
            ("/.well-known", false),
            ("/.well-known/.a", true),
            ("/.well-known2/a", true),
            ("/a/.well-known/b", true),
        ] {
            assert_eq!(
                Target::parse(path).map(|target| target.is_hidden()),
                Ok(hidden),
                "{path}"
            );
        }
    }

    #[test]
    fn what_could_leave_the_root_or_means_nothing_is_refused() {
        for path in [
            "",
            "*",
            "a",
            "../a",
            "/..",
            "/../a",
            "/a/../b",
            "/a/..",
            "/.",
            "/./a",
            "/%2e",
            "/%2e%2e",
            "/%2E%2e/a",
            "/.%2e/a",
            "/%2e./a",
            "/a%2fb",
            "/a%2Fb",
            "/..%2fetc",
            "/%2fetc%2fpasswd",
            "/a\\b",
            "/a%5cb",
            "/..%5c..%5ca",
            "/a%00",
            "/a%00.txt",
            "/%",
            "/%2",
            "/a%zz",
            "/%2%65",
            "/%+1",
            "/%ff",
            "/%c0%ae%c0%ae/a",
            "/%c0%af",
            "/%ed%a0%80",
        ] {
            assert_eq!(relative(path), Err(BadPath::Malformed), "{path}");
        }
    }

    #[test]
    fn a_name_or_a_path_that_no_file_has_is_too_long() {
        let name = "n".repeat(255);
        assert_eq!(relative(&format!("/{name}")), Ok(name.clone()));
        assert_eq!(relative(&format!("/{name}n")), Err(BadPath::TooLong));
        assert_eq!(relative(&"/ab".repeat(2000)), Err(BadPath::TooLong));
    }

    #[test]
    fn a_reference_to_a_directory_is_relative_and_escaped() {
        for (path, expected) in [
            ("/a", "./a/"),
            ("/", "./"),
            ("/a/b/", "./"),
            ("//evil.example", "./evil.example/"),
            ("/a%20b/%C3%A9%3f", "./%C3%A9%3F/"),
            ("/a:b", "./a%3Ab/"),
            ("/x%0d%0ay", "./x%0D%0Ay/"),
        ] {
            assert_eq!(
                Target::parse(path).map(|t| t.directory_reference()),
                Ok(expected.to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn a_reference_to_a_file_leads_there_from_the_path_of_the_request() {
        for (path, names, expected) in [
            ("/a", &["a"][..], "./a"),
            ("/a/b", &["a", "b c"], "./b%20c"),
            ("/a/", &["a", "b"], "./b"),
            ("/a", &["a", "b"], "./a/b"),
            ("/", &["a", "b"], "./a/b"),
            ("/b/x", &["in", "b", "x"], "../in/b/x"),
            ("/b/", &["in", "b", "x"], "../in/b/x"),
            ("//b///c/x", &["in", "b", "c", "x"], "../../../../../in/b/c/x"),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let target = Target::parse(path).unwrap();
            assert_eq!(target.reference_to(&names), expected, "{path}");
        }
    }
}
