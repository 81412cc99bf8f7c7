//! The URLs of a run: first those of the command line, then the lines of the `-i` file.
//!
//! A thread reads the file a few hundred lines ahead. So a list of any length costs little memory, and a list from a pipe
//! is downloaded while it is written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::exit::{Exit, Failure};

/// The lines read ahead.
const READ_AHEAD: usize = 512;
/// No server accepts a longer URL. Without a limit, one line of a wrong file could fill the memory.
const LONGEST_LINE: u64 = 64 * 1024;

/// An asynchronous iterator.
pub(crate) struct UrlList {
    typed: std::vec::IntoIter<String>,
    lines: Option<mpsc::Receiver<Result<String, Failure>>>,
}

impl UrlList {
    pub(crate) fn new(typed: Vec<String>, file: Option<PathBuf>) -> Result<Self, Failure> {
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
        Ok(Self {
            typed: typed.into_iter(),
            lines,
        })
    }

    /// The next URL, unchecked; an error for a line or a file that cannot be read. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<String, Failure>> {
        if let Some(url) = self.typed.next() {
            return Some(Ok(url));
        }
        self.lines.as_mut()?.recv().await
    }
}

/// Sends every URL of the file; stops when the receiver is dropped.
fn read(path: &Path, sender: &mpsc::Sender<Result<String, Failure>>) {
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
    sender: &mpsc::Sender<Result<String, Failure>>,
) -> Result<(), Failure> {
    for number in 1_u64.. {
        let mut line = Vec::new();
        let count = (&mut reader)
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
        let item = match std::str::from_utf8(&line).map(str::trim) {
            Ok(text) if text.is_empty() || text.starts_with('#') => continue,
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Failure::new(
                Exit::BadUrl,
                format!("{} is not valid UTF-8", place()),
            )),
        };
        if sender.blocking_send(item).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> (Vec<Result<String, Exit>>, Result<(), Failure>) {
        let (sender, mut receiver) = mpsc::channel(READ_AHEAD);
        let result = each_line(Path::new("list"), text, &sender);
        let mut got = Vec::new();
        while let Ok(item) = receiver.try_recv() {
            got.push(item.map_err(|failure| failure.exit));
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
        let mut list = UrlList::new(typed.clone(), Some(path)).map_err(|failure| failure.message)?;
        let mut got = Vec::new();
        while let Some(url) = list.next().await {
            got.push(url.map_err(|failure| failure.message)?);
        }
        assert_eq!(got, ["http://a/", "http://b/", "http://c/", "http://d/"]);
        let mut alone = UrlList::new(typed, None).map_err(|failure| failure.message)?;
        assert!(alone.next().await.is_some() && alone.next().await.is_some());
        assert!(alone.next().await.is_none());
        Ok(())
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_is_one_failure_behind_the_typed_urls()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("none");
        let mut list =
            UrlList::new(vec!["http://a/".to_owned()], Some(path)).map_err(|failure| failure.message)?;
        assert!(list.next().await.is_some_and(|url| url.is_ok()));
        let failure = list.next().await.and_then(Result::err).ok_or("no failure")?;
        assert_eq!(failure.exit, Exit::LocalIo);
        assert!(failure.message.contains("none"), "{failure:?}");
        assert!(list.next().await.is_none());
        Ok(())
    }
}
