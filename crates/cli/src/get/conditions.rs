//! Conditional requests: `--time-cond`, `--etag-compare` and `--etag-save` (RFC 9110 section 13.1).

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue};

use crate::args::GetArgs;
use crate::exit::Failure;
use crate::transfer::receive::file_job;
use crate::transfer::target::are_one_file;

/// The longest file of an entity tag: a server refuses a longer field anyway.
const LONGEST_TAG: u64 = 8 * 1_024;

/// The last HTTP date: the end of the year 9999, counted from 1970.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// The conditions of a run's requests.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    fields: Vec<(HeaderName, HeaderValue)>,
    save: Option<PathBuf>,
    note: Option<String>,
}

impl Conditions {
    /// Reads the files that the options name. A file that does not exist yet is no condition.
    ///
    /// # Errors
    /// A file cannot be read, or has no entity tag.
    pub(super) async fn from_args(args: &GetArgs) -> Result<Self, Failure> {
        let (time, compare) = (args.time_cond.clone(), args.etag_compare.clone());
        let (fields, note) = file_job(move || {
            let (mut fields, mut note) = (Vec::new(), None);
            if let Some(time) = time {
                match date(&time)? {
                    Some(date) => fields.push((IF_MODIFIED_SINCE, date)),
                    None => note = Some(no_time(&time)),
                }
            }
            if let Some(tag) = compare.map(|path| read_tag(&path)).transpose()?.flatten() {
                fields.push((IF_NONE_MATCH, tag));
            }
            Ok((fields, note))
        })
        .await?;
        Ok(Self {
            fields,
            save: args.etag_save.clone(),
            note,
        })
    }

    /// The fields of a request.
    pub(super) fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }

    /// A remark about a condition that is not sent.
    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Refuses a body that goes to the file of the entity tag, which would replace it.
    ///
    /// # Errors
    /// They are one file, by whatever paths.
    pub(super) async fn refuse_one_file(&self, body: Option<&Path>) -> Result<(), Failure> {
        let (Some(tag), Some(body)) = (self.save.clone(), body.map(ToOwned::to_owned)) else {
            return Ok(());
        };
        file_job(move || match are_one_file(&tag, &body) {
            true => Err(one_file(&tag)),
            false => Ok(()),
        })
        .await
    }

    /// Saves the entity tag of a body that was received. Without a tag that can be compared, the file is
    /// emptied.
    ///
    /// # Errors
    /// The file cannot be written, or has the body.
    pub(super) async fn save(&self, tag: Option<HeaderValue>, body: Option<PathBuf>) -> Result<(), Failure> {
        let Some(path) = self.save.clone() else {
            return Ok(());
        };
        file_job(move || {
            // Two new names may be one file, as in a file system that ignores case.
            if body.is_some_and(|body| are_one_file(&path, &body)) {
                return Err(one_file(&path));
            }
            // The file is for --etag-compare, which takes nothing else.
            let tag = tag.filter(|tag| is_tag(tag.as_bytes()));
            let mut line = tag.map(|tag| tag.as_bytes().to_vec()).unwrap_or_default();
            line.push(b'\n');
            std::fs::write(&path, line).map_err(|error| Failure::from_io("write", &path, &error))
        })
        .await
    }
}

fn one_file(tag: &Path) -> Failure {
    Failure::usage(format!(
        "--etag-save {}: the body goes to this file; save the entity tag in another one",
        tag.display()
    ))
}

/// The time of a file, or else an HTTP date. `None` when it is a path without a file.
fn date(text: &str) -> Result<Option<HeaderValue>, Failure> {
    let path = Path::new(text);
    let modified = match std::fs::metadata(path).and_then(|found| found.modified()) {
        Ok(modified) => modified,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(match httpdate::parse_http_date(text) {
                Ok(date) => field(date),
                Err(_) => None,
            });
        }
        Err(error) => return Err(Failure::from_io("read the time of", path, &error)),
    };
    Ok(field(modified))
}

fn no_time(text: &str) -> String {
    format!(
        "--time-cond {text}: there is no such file, and it is no HTTP date such as 'Wed, 01 Jan 2020 00:00:00 GMT'; the \
         condition is not sent"
    )
}

/// A file may have a time that an HTTP date cannot express: it gets the nearest one.
fn field(date: SystemTime) -> Option<HeaderValue> {
    let date = date.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST_DATE);
    HeaderValue::try_from(httpdate::fmt_http_date(date)).ok()
}

fn read_tag(path: &Path) -> Result<Option<HeaderValue>, Failure> {
    let wrong = |error: std::io::Error| Failure::from_io("read", path, &error);
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(wrong)?,
    };
    let mut text = Vec::new();
    // Devices and pipes have no length beforehand.
    let mut file = file.take(LONGEST_TAG + 1);
    file.read_to_end(&mut text).map_err(wrong)?;
    if file.limit() == 0 {
        return Err(not_a_tag(path));
    }
    let tag = text.trim_ascii();
    if tag.is_empty() {
        return Ok(None);
    }
    match HeaderValue::from_bytes(tag) {
        Ok(value) if is_tag(tag) => Ok(Some(value)),
        _ => Err(not_a_tag(path)),
    }
}

/// Whether octets are an entity tag (RFC 9110 section 8.8.3), or one without its quotation marks, as some servers send it and
/// compare it.
fn is_tag(octets: &[u8]) -> bool {
    let opaque = octets.strip_prefix(b"W/").unwrap_or(octets);
    let opaque = opaque
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .unwrap_or(opaque);
    let is_short = octets.len() as u64 <= LONGEST_TAG;
    is_short
        && opaque
            .iter()
            .all(|&octet| octet > b' ' && octet != b'"' && octet != 0x7f)
}

fn not_a_tag(path: &Path) -> Failure {
    Failure::usage(format!(
        "--etag-compare {}: the file has no entity tag such as \"abc\"; use a file that --etag-save has written",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_as_it_was_saved_and_nothing_else() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("tag");
        assert!(matches!(read_tag(&path), Ok(None)), "no file yet");
        for (text, is_tag) in [
            ("\"a\"\n", true),
            ("W/\"a\"", true),
            (" \"\" \n", true),
            ("0x8D8117F40DD72AC\n", true),
            ("W/abc", true),
        ] {
            std::fs::write(&path, text)?;
            assert_eq!(read_tag(&path).is_ok_and(|tag| tag.is_some()), is_tag, "{text}");
        }
        std::fs::write(&path, "\n")?;
        assert!(matches!(read_tag(&path), Ok(None)), "the server sent none");
        for text in ["<html> </html>", "\"a\nb\"", "\"", "a\"b", "\"a b\""] {
            std::fs::write(&path, text)?;
            assert!(read_tag(&path).is_err(), "{text}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn what_is_saved_can_be_compared() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("tag");
        let conditions = Conditions {
            save: Some(path.clone()),
            ..Conditions::default()
        };
        let long = "a".repeat(8 * 1_024 + 1);
        for (tag, is_kept) in [
            ("\"a\"", true),
            ("0x8D8117F40DD72AC", true),
            ("two words", false),
            ("\"a b\"", false),
            (&long, false),
        ] {
            let tag = HeaderValue::from_str(tag)?;
            conditions
                .save(Some(tag.clone()), None)
                .await
                .map_err(|failure| failure.message)?;
            let read = read_tag(&path).map_err(|failure| failure.message)?;
            assert_eq!(read, is_kept.then_some(tag));
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_more_than_the_longest_tag_is_read_of_a_pipe() -> Result<(), Box<dyn std::error::Error>> {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::io::Write as _;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        for (letters, is_tag) in [(LONGEST_TAG - 2, true), (LONGEST_TAG - 1, false)] {
            let tag = format!("\"{}\"", "a".repeat(usize::try_from(letters)?));
            let writer = path.clone();
            let writing = std::thread::spawn(move || {
                let mut pipe = std::fs::OpenOptions::new().write(true).open(writer)?;
                pipe.write_all(tag.as_bytes())
            });
            assert_eq!(
                read_tag(&path).is_ok_and(|tag| tag.is_some()),
                is_tag,
                "{letters}"
            );
            writing.join().map_err(|_| "the writer panicked")??;
        }
        Ok(())
    }

    #[test]
    fn a_time_is_that_of_a_file_or_a_date() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let shown = |text: &str| date(text).map_err(|failure| failure.message);
        assert_eq!(shown(&path.display().to_string())?, None);
        std::fs::write(&path, "")?;
        assert!(shown(&path.display().to_string())?.is_some());
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(
            shown(text)?,
            Some(HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"))
        );
        for (time, nearest) in [
            (
                SystemTime::UNIX_EPOCH - Duration::from_secs(1),
                "Thu, 01 Jan 1970 00:00:00 GMT",
            ),
            (
                SystemTime::UNIX_EPOCH + LAST_DATE + Duration::from_secs(1),
                "Fri, 31 Dec 9999 23:59:59 GMT",
            ),
        ] {
            assert_eq!(field(time), Some(HeaderValue::from_static(nearest)));
        }
        Ok(())
    }
}
