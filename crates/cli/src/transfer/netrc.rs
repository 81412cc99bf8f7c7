//! `.netrc`: names and passwords for hosts, as ftp and curl read them.
//!
//! Tokens are separated by white space; one in quotation marks may have spaces, `\"` and `\\`. `#` begins a comment where a
//! keyword is expected. Whatever is not understood is an error: a password that is silently left out is hard to find. No
//! error shows a token, which may be a password. An entry without a login has the password of every user of its host.

use std::path::Path;

use crate::exit::{Exit, Failure};

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The entries of a file.
#[derive(Default)]
pub(crate) struct Netrc {
    /// In the order of the file.
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Entry {
    /// `None` is `default`.
    host: Option<String>,
    name: Option<String>,
    password: Option<String>,
}

impl Netrc {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |error| Failure::from_io("read", path, &error);
        if std::fs::metadata(path).map_err(wrong)?.len() > MOST_BYTES {
            let text = format!(
                "{} is larger than {MOST_BYTES} bytes; is it a netrc file?",
                path.display()
            );
            return Err(Failure::new(Exit::Usage, text));
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Self::parse(&text).map_err(|(line, why)| {
            let text = format!(
                "{}, line {line}: {why}; write: machine HOST login USER password PASSWORD",
                path.display()
            );
            Failure::new(Exit::Usage, text)
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        // Editors of Windows begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut tokens = Tokens { text, line: 1 };
        let mut netrc = Netrc::default();
        while let Some(keyword) = tokens.next(true)? {
            let line = tokens.line;
            let host = match keyword.as_str() {
                "machine" => Some(tokens.value()?.to_ascii_lowercase()),
                "default" => None,
                "macdef" => {
                    tokens.skip_macro();
                    continue;
                }
                _ => return Err((line, "expected machine, default or macdef")),
            };
            let mut entry = Entry {
                host,
                ..Entry::default()
            };
            loop {
                let before = Tokens { ..tokens };
                let token = tokens.next(true)?;
                let is_entry = matches!(token.as_deref(), Some("machine" | "default" | "macdef"));
                match token.as_deref() {
                    Some("login") => entry.name = Some(tokens.value()?),
                    Some("password") => entry.password = Some(tokens.value()?),
                    Some("account") => drop(tokens.value()?),
                    Some(_) if !is_entry => {
                        return Err((tokens.line, "expected login, password, account or machine"));
                    }
                    _ => {
                        tokens = before;
                        break;
                    }
                }
            }
            netrc.entries.push(entry);
        }
        Ok(netrc)
    }

    /// The name and password for a host, of this user if the URL names one: of the first entry of the host that fits, or of the first
    /// `default` that does.
    pub(crate) fn login<'a>(&'a self, host: &str, user: Option<&'a str>) -> Option<(&'a str, &'a str)> {
        self.named(host, user)
            .or_else(|| self.find(|entry| entry.host.is_none(), user))
    }

    /// As [`Self::login`], without `default`.
    pub(crate) fn named<'a>(&'a self, host: &str, user: Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let is_named = |entry: &Entry| {
            let name = entry.host.as_deref();
            name.is_some_and(|name| name.eq_ignore_ascii_case(host))
        };
        self.find(is_named, user)
    }

    fn find<'a>(
        &'a self,
        is_meant: impl Fn(&Entry) -> bool,
        user: Option<&'a str>,
    ) -> Option<(&'a str, &'a str)> {
        let fits = |entry: &&Entry| match (user, &entry.name) {
            (Some(user), Some(name)) => name == user,
            (Some(_), None) => entry.password.is_some(),
            // An entry with neither has nothing for anybody.
            (None, name) => name.is_some() || entry.password.is_some(),
        };
        let mut meant = self.entries.iter().filter(|entry| is_meant(entry));
        let entry = meant.find(fits)?;
        let password = entry.password.as_deref().unwrap_or_default();
        // The name is empty where an entry has a password alone, as that of an access token.
        Some((entry.name.as_deref().or(user).unwrap_or_default(), password))
    }
}

struct Tokens<'a> {
    text: &'a str,
    line: usize,
}

impl Tokens<'_> {
    /// The next token; a comment may stand before a keyword.
    fn next(&mut self, is_keyword: bool) -> Result<Option<String>, (usize, &'static str)> {
        loop {
            let rest = self.text.trim_start();
            let space = self.text.len() - rest.len();
            self.line += self.text.get(..space).unwrap_or_default().matches('\n').count();
            self.text = rest;
            if !(is_keyword && rest.starts_with('#')) {
                break;
            }
            self.text = rest
                .find('\n')
                .and_then(|end| rest.get(end..))
                .unwrap_or_default();
        }
        if self.text.is_empty() {
            return Ok(None);
        }
        if let Some(quoted) = self.text.strip_prefix('"') {
            return self.quoted(quoted).map(Some);
        }
        let end = self.text.find(char::is_whitespace).unwrap_or(self.text.len());
        let (token, rest) = self.text.split_at(end);
        self.text = rest;
        Ok(Some(token.to_owned()))
    }

    fn quoted(&mut self, text: &str) -> Result<String, (usize, &'static str)> {
        let mut token = String::new();
        let mut characters = text.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    let begin = self.text.len() - text.len() + at + 1;
                    self.text = self.text.get(begin..).unwrap_or_default();
                    return Ok(token);
                }
                '\n' => break,
                '\\' => token.extend(characters.next().map(|(_, escaped)| escaped)),
                other => token.push(other),
            }
        }
        Err((self.line, "a quotation mark is not closed on its line"))
    }

    /// The token after a keyword.
    fn value(&mut self) -> Result<String, (usize, &'static str)> {
        let line = self.line;
        self.next(false)?
            .ok_or((line, "the file ends where a value is expected"))
    }

    /// A macro ends with an empty line. Lines may end with CRLF.
    fn skip_macro(&mut self) {
        let mut end = 0;
        for (number, line) in self.text.split_inclusive('\n').enumerate() {
            end += line.len();
            self.line += usize::from(line.ends_with('\n'));
            // The first line has the name of the macro.
            if number > 0 && line.trim_end_matches(['\r', '\n']).is_empty() {
                break;
            }
        }
        self.text = self.text.get(end..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str, host: &str) -> Option<(String, String)> {
        of_user(text, host, None)
    }

    fn of_user(text: &str, host: &str, user: Option<&str>) -> Option<(String, String)> {
        let netrc = Netrc::parse(text).ok()?;
        let (name, password) = netrc.login(host, user)?;
        Some((name.to_owned(), password.to_owned()))
    }

    #[test]
    fn the_user_of_a_url_gets_the_password_of_that_login() {
        let text = "machine h login x password px\nmachine h login a password pa\nmachine other password secret\n\
                    machine empty\ndefault login z password pz";
        for (host, user, expected) in [
            ("h", None, Some(("x", "px"))),
            ("h", Some("a"), Some(("a", "pa"))),
            ("h", Some("z"), Some(("z", "pz"))),
            ("h", Some("b"), None),
            ("other", Some("b"), Some(("b", "secret"))),
            ("other", None, Some(("", "secret"))),
            ("empty", None, Some(("z", "pz"))),
            ("third", Some("z"), Some(("z", "pz"))),
        ] {
            let expected = expected.map(|(name, password)| (name.to_owned(), password.to_owned()));
            assert_eq!(of_user(text, host, user), expected, "{host} {user:?}");
        }
        assert_eq!(of_user("default", "h", Some("a")), None);
    }

    #[test]
    fn an_entry_is_found_by_its_host_and_default_is_for_the_others() {
        let text = "# mine\nmachine One.example login a password b # work\n\tmachine two.example\n  login \"c d\"\n  \
                    account x\n  password \"e \\\"\\\\#\"\nmacdef init\nmachine three.example login no\n\n\
                    default login z password #y\nmachine four.example login late";
        let of = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(login(text, "one.example"), of("a", "b"));
        assert_eq!(login(text, "two.example"), of("c d", "e \"\\#"));
        assert_eq!(login(text, "three.example"), of("z", "#y"));
        assert_eq!(login(text, "four.example"), of("late", ""));
        assert_eq!(login("machine h login a", "other"), None);
        assert_eq!(login("\u{feff}machine h login a", "h"), of("a", ""));
        assert_eq!(login("", "h"), None);
    }

    #[test]
    fn a_macro_ends_with_an_empty_line_whatever_ends_the_lines() {
        let text = "macdef init\nput x\n\nmachine h login a password b\nmacdef last\nput y";
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let expected = Some(("a".to_owned(), "b".to_owned()));
            assert_eq!(login(&text, "h"), expected, "{text:?}");
            let wrong = text.replace("login", "logn");
            assert_eq!(Netrc::parse(&wrong).err().map(|(line, _)| line), Some(4));
        }
    }

    #[test]
    fn a_file_has_a_mebibyte_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("netrc");
        std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
        assert!(Netrc::read(&path).is_ok());
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        let failure = Netrc::read(&path).err().unwrap();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("larger than 1048576 bytes"), "{failure}");
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        for (text, line) in [
            ("login a", 1),
            ("machine h\n\nlogn a", 3),
            ("machine h login a\npasword b", 2),
            ("machine", 1),
            ("machine h login", 1),
            ("\nmachine h login \"a", 2),
        ] {
            let found = Netrc::parse(text).err().map(|(line, _)| line);
            assert_eq!(found, Some(line), "{text}");
        }
    }
}
