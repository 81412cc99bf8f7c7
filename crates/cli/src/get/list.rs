//! The URLs of a run: first those of the command line, then the lines of the `-i` file.
//!
//! An indented line `name=value` is an option of the URL above it, as in lists of aria2: `out` is the file name, `checksum` what
//! the body must have. So a URL is complete when the next line is read, or an empty one.
//!
//! A thread reads the file a few hundred lines ahead. So a list of any length costs little memory, and a list from a pipe
//! is downloaded while it is written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use http::HeaderValue;
use tokio::sync::mpsc;

use crate::checksum::Checksum;
use crate::exit::{Exit, Failure};
use crate::transfer::client::Address;

use super::names::is_plain_name;

/// The lines read ahead.
const READ_AHEAD: usize = 512;
/// No server accepts a longer URL. Without a limit, one line of a wrong file could fill the memory.
const LONGEST_LINE: u64 = 64 * 1024;

/// A URL, unchecked, and its options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) url: String,
    /// The name of its file.
    pub(crate) name: Option<String>,
    pub(crate) checksum: Option<Checksum>,
    /// Its path below the folder, with `--recursive`.
    pub(crate) place: Option<PathBuf>,
    /// Nothing was there when the list of its folder was read.
    pub(crate) is_free: bool,
    /// The file there is out of date.
    pub(crate) replaces: bool,
    /// Only a body that was modified after this is wanted.
    pub(crate) since: Option<HeaderValue>,
    /// Where it goes if it turns out to be a folder.
    pub(crate) folders: Option<FoundFolders>,
}

/// The way back of what turns out to be a folder when it is downloaded. A walk lasts as long as one of these.
#[derive(Clone, Debug)]
pub(crate) struct FoundFolders {
    /// Below the folder of this side.
    pub(super) path: PathBuf,
    pub(super) depth: usize,
    pub(super) sender: mpsc::UnboundedSender<(Address, Self)>,
}

impl FoundFolders {
    pub(super) fn add(&self, address: Address) {
        // The walk has ended when the run is interrupted.
        let _ = self.sender.send((address, self.clone()));
    }
}

/// An asynchronous iterator.
pub(crate) struct UrlList {
    typed: std::vec::IntoIter<Item>,
    lines: Option<mpsc::Receiver<Result<Item, Failure>>>,
}

impl UrlList {
    /// `checksum` is that of the only typed URL.
    pub(crate) fn new(
        typed: Vec<String>,
        checksum: Option<Checksum>,
        file: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let lines = match file {
            None => None,
            Some(path) => {
                let (sender, receiver) = mpsc::channel(READ_AHEAD);
                // Not a thread of the runtime: reading a silent pipe must not delay the end of the program.
                std::thread::Builder::new()
                    .name("url list".to_owned())
                    .spawn(move || read(&path, &sender))
                    .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
                Some(receiver)
            }
        };
        let items = typed.into_iter().map(|url| Item {
            url,
            checksum: checksum.clone(),
            ..Item::default()
        });
        let typed: Vec<Item> = items.collect();
        Ok(Self {
            typed: typed.into_iter(),
            lines,
        })
    }

    /// The URLs that a walk finds.
    pub(crate) fn of_walk(found: mpsc::Receiver<Result<Item, Failure>>) -> Self {
        Self {
            typed: Vec::new().into_iter(),
            lines: Some(found),
        }
    }

    /// The next URL; an error for a line or a file that cannot be read. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Item, Failure>> {
        if let Some(item) = self.typed.next() {
            return Some(Ok(item));
        }
        self.lines.as_mut()?.recv().await
    }
}

/// Sends every URL of the file; stops when the receiver is dropped.
fn read(path: &Path, sender: &mpsc::Sender<Result<Item, Failure>>) {
    let result = if path == Path::new("-") {
        each_line(path, io::stdin().lock(), sender)
    } else {
        match File::open(path) {
            Ok(file) => each_line(path, BufReader::new(file), sender),
            Err(error) => Err(Failure::from_io("read", path, &error)),
        }
    };
    if let Err(failure) = result {
        let _ = sender.blocking_send(Err(failure));
    }
}

fn each_line(
    path: &Path,
    mut reader: impl BufRead,
    sender: &mpsc::Sender<Result<Item, Failure>>,
) -> Result<(), Failure> {
    let mut last = None;
    let ended = each_item(path, &mut reader, &mut last, sender);
    if let Some(item) = last {
        // A dropped receiver ends the thread anyway.
        let _ = sender.blocking_send(item);
    }
    ended
}

/// Sends every URL but the last, which may have further options.
fn each_item(
    path: &Path,
    reader: &mut impl BufRead,
    last: &mut Option<Result<Item, Failure>>,
    sender: &mpsc::Sender<Result<Item, Failure>>,
) -> Result<(), Failure> {
    for number in 1_u64.. {
        let mut line = Vec::new();
        let count = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| Failure::from_io("read", path, &error))?;
        if count == 0 {
            break;
        }
        let place = || format!("{} line {number}", path.display());
        if u64::try_from(count).unwrap_or(u64::MAX) == LONGEST_LINE && !line.ends_with(b"\n") {
            return Err(Failure::new(
                Exit::BadUrl,
                format!(
                    "{} is longer than 64 KiB; check that the file is a list of URLs",
                    place()
                ),
            ));
        }
        let line = match number {
            1 => without_mark(&line, path)?,
            _ => &line,
        };
        let next = match std::str::from_utf8(line) {
            Ok(text) if text.trim_start().starts_with('#') => continue,
            Ok(text) if text.trim().is_empty() => None,
            Ok(text) => match option(text) {
                Some((name, value)) => {
                    set(last, name, value, &place);
                    continue;
                }
                None => Some(url(text.trim(), &place)),
            },
            Err(_) => Some(Err(wrong(&place, "is not valid UTF-8"))),
        };
        if let Some(item) = std::mem::replace(last, next) {
            if sender.blocking_send(item).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// The first line without the mark that some editors write in front of UTF-8.
fn without_mark<'a>(line: &'a [u8], path: &Path) -> Result<&'a [u8], Failure> {
    if line.starts_with(&[0xff, 0xfe]) || line.starts_with(&[0xfe, 0xff]) {
        return Err(Failure::new(
            Exit::BadUrl,
            format!("{} is in UTF-16; save the list as UTF-8", path.display()),
        ));
    }
    Ok(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line))
}

/// Name and value of an option line. No URL looks like one: the colon of its scheme is no part of a name.
fn option(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with([' ', '\t']) {
        return None;
    }
    let (name, value) = line.trim().split_once('=')?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    is_name.then_some((name, value))
}

/// Sets an option of the last URL. An error takes the place of the URL.
fn set(last: &mut Option<Result<Item, Failure>>, name: &str, value: &str, place: &dyn Fn() -> String) {
    let item = match last {
        Some(Ok(item)) => item,
        // Its line has another error.
        Some(Err(_)) => return,
        None => {
            *last = Some(Err(wrong(place, "is an option, but there is no URL above it")));
            return;
        }
    };
    let failure = match name {
        "out" => match is_plain_name(value) {
            true => {
                item.name = Some(value.to_owned());
                return;
            }
            false => wrong(
                place,
                "has no plain file name after out=; use --dir DIR for the folder",
            ),
        },
        "checksum" => match value.parse() {
            Ok(checksum) => {
                item.checksum = Some(checksum);
                return;
            }
            Err(failure) => wrong(place, &format!("has a wrong checksum: {failure}")),
        },
        _ => {
            let text = format!("has the unknown option {name:?}; out=NAME and checksum=TYPE=HEX are known");
            wrong(place, &text)
        }
    };
    *last = Some(Err(failure));
}

fn url(text: &str, place: &dyn Fn() -> String) -> Result<Item, Failure> {
    let text = without_comment(text);
    let begins_a_url = |rest: &str| {
        let rest = rest.trim_start().to_ascii_lowercase();
        rest.starts_with("http://") || rest.starts_with("https://")
    };
    let has_another = text.match_indices(' ').any(|(at, _)| begins_a_url(&text[at..]));
    if text.contains('\t') || has_another {
        return Err(wrong(place, "has several words; write one URL on each line"));
    }
    Ok(Item {
        url: text.to_owned(),
        ..Item::default()
    })
}

/// A line without its comment: `#` behind white space. A fragment of a URL follows no space.
fn without_comment(text: &str) -> &str {
    let comment = text
        .match_indices('#')
        .find(|(at, _)| text[..*at].ends_with([' ', '\t']));
    match comment {
        Some((at, _)) => text[..at].trim_end(),
        None => text,
    }
}

fn wrong(place: &dyn Fn() -> String, why: &str) -> Failure {
    Failure::new(Exit::BadUrl, format!("{} {why}", place()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> (Vec<Result<String, Exit>>, Result<(), Failure>) {
        let (sender, mut receiver) = mpsc::channel(READ_AHEAD);
        let result = each_line(Path::new("list"), text, &sender);
        let mut got = Vec::new();
        while let Ok(item) = receiver.try_recv() {
            got.push(item.map(|item| item.url).map_err(|failure| failure.exit));
        }
        (got, result)
    }

    #[test]
    fn blank_lines_and_comments_are_skipped_and_the_last_line_needs_no_end() {
        let (got, result) = lines(b"http://a/\r\n\n  # no\n http://b/ \nhttp://c/");
        assert_eq!(
            got,
            [
                Ok("http://a/".into()),
                Ok("http://b/".into()),
                Ok("http://c/".into())
            ]
        );
        assert!(result.is_ok());
    }

    #[test]
    fn a_comment_may_follow_a_url_and_another_url_may_not() {
        let (got, result) = lines(
            b"http://a/x # later\nhttp://a/y\t#later\nhttp://a/z#part\nhttp://a/a b\nhttp://a/ http://b/\nhttp://a/  HTTPS://b/\n\
              http://a/?q=http://b/\n",
        );
        assert_eq!(
            got,
            [
                Ok("http://a/x".into()),
                Ok("http://a/y".into()),
                Ok("http://a/z#part".into()),
                Ok("http://a/a b".into()),
                Err(Exit::BadUrl),
                Err(Exit::BadUrl),
                Ok("http://a/?q=http://b/".into()),
            ]
        );
        assert!(result.is_ok());
    }

    #[test]
    fn a_mark_of_utf_8_is_no_part_of_the_first_url_and_utf_16_is_refused() {
        let (got, result) = lines(b"\xef\xbb\xbfhttp://a/\nhttp://b/\n");
        assert_eq!(got, [Ok("http://a/".into()), Ok("http://b/".into())]);
        assert!(result.is_ok());
        let (got, result) = lines(b"\xff\xfeh\0t\0");
        assert!(got.is_empty());
        assert!(result.is_err_and(|failure| failure.message.contains("UTF-8")));
    }

    /// Items as `url name checksum`, or the message.
    fn items(text: &str) -> Vec<String> {
        let (sender, mut receiver) = mpsc::channel(READ_AHEAD);
        let result = each_line(Path::new("list"), text.as_bytes(), &sender);
        let mut got = Vec::new();
        while let Ok(item) = receiver.try_recv() {
            got.push(match item {
                Ok(item) => {
                    let name = item.name.unwrap_or_default();
                    let sum = item.checksum.map(|sum| sum.to_string()).unwrap_or_default();
                    format!("{} {name} {sum}", item.url)
                }
                Err(failure) => failure.message,
            });
        }
        assert!(result.is_ok());
        got
    }

    #[test]
    fn indented_lines_are_options_of_the_url_above_them() {
        let sum = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        let text = format!(
            "http://a/\n  out=x y.iso\n# comment\n\tchecksum=sha-1={sum}\n  http://b/?q=1\n\n http://c/\n  out=z"
        );
        let expected = [
            format!("http://a/ x y.iso sha1:{sum}"),
            "http://b/?q=1  ".to_owned(),
            "http://c/ z ".to_owned(),
        ];
        assert_eq!(items(&text), expected);
    }

    #[test]
    fn a_wrong_option_takes_the_place_of_its_url_and_names_its_line() {
        for (text, why) in [
            ("  out=x\n", "list line 1 is an option, but there is no URL"),
            (
                "http://a/\n\n  out=x\n",
                "list line 3 is an option, but there is no URL",
            ),
            ("http://a/\n  out=../x\n", "list line 2 has no plain file name"),
            ("http://a/\n  out=\n", "list line 2 has no plain file name"),
            (
                "http://a/\n  split=5\n",
                "list line 2 has the unknown option \"split\"",
            ),
            (
                "http://a/\n  checksum=md5=1\n",
                "list line 2 has a wrong checksum: md5 is not supported",
            ),
            ("http://a/\thttp://b/\n", "list line 1 has several words"),
        ] {
            let got = items(text);
            assert!(
                got.last().is_some_and(|last| last.starts_with(why)),
                "{text}: {got:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_no_text_is_an_error_and_the_next_is_read() {
        let (got, _) = lines(b"http://\xff/\nhttp://b/\n");
        assert_eq!(got, [Err(Exit::BadUrl), Ok("http://b/".into())]);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let (got, result) = lines(&vec![b'x'; 100_000]);
        assert!(got.is_empty());
        assert_eq!(result.err().map(|failure| failure.exit), Some(Exit::BadUrl));
    }

    #[test]
    fn a_line_may_have_64_kib_with_its_end() {
        let with_end = [&[b'x'; 65_535][..], b"\nhttp://b/\n"].concat();
        let (got, result) = lines(&with_end);
        assert_eq!(got.len(), 2);
        assert!(result.is_ok());
        let (got, result) = lines(&[b'x'; 65_535]);
        assert_eq!(got.len(), 1);
        assert!(result.is_ok());
        let (got, result) = lines(&[b"http://a/\n", &[b'x'; 65_536][..]].concat());
        assert_eq!(got.len(), 1);
        let message = result.err().map(|failure| failure.message).unwrap_or_default();
        assert!(message.starts_with("list line 2 is longer"), "{message}");
    }

    #[tokio::test]
    async fn typed_urls_come_before_the_lines_of_the_file() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("list");
        std::fs::write(&path, "http://c/\nhttp://d/\n")?;
        let typed = vec!["http://a/".to_owned(), "http://b/".to_owned()];
        let mut list = UrlList::new(typed.clone(), None, Some(path)).map_err(|failure| failure.message)?;
        let mut got = Vec::new();
        while let Some(url) = list.next().await {
            got.push(url.map_err(|failure| failure.message)?.url);
        }
        assert_eq!(got, ["http://a/", "http://b/", "http://c/", "http://d/"]);
        let mut alone = UrlList::new(typed, None, None).map_err(|failure| failure.message)?;
        assert!(alone.next().await.is_some() && alone.next().await.is_some());
        assert!(alone.next().await.is_none());
        Ok(())
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_is_one_failure_behind_the_typed_urls()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("none");
        let mut list = UrlList::new(vec!["http://a/".to_owned()], None, Some(path))
            .map_err(|failure| failure.message)?;
        assert!(list.next().await.is_some_and(|url| url.is_ok()));
        let failure = list.next().await.and_then(Result::err).ok_or("no failure")?;
        assert_eq!(failure.exit, Exit::LocalIo);
        assert!(failure.message.contains("none"), "{failure:?}");
        assert!(list.next().await.is_none());
        Ok(())
    }
}
