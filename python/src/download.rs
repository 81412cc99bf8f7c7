//! Downloads into files, which resume and may come over several connections.
//!
//! A body with a validator is written under the name of a part that says which version of which URL it is. Another attempt, or
//! another run, asks for the rest of it (`fullbore::client::range` decides what continues it). The complete file is renamed.

use std::io::{ErrorKind as IoKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use fullbore::Client;
use fullbore::client::range::Version;
use fullbore::client::{Download as Incoming, Response};
use http::{HeaderValue, Request, StatusCode, header};
use http_body::Body;
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;
use ring::digest::{self, Algorithm};

use crate::failure::Failure;
use crate::file_writer::FileWriter;
use crate::limits::without_secrets;
use crate::outcome::Outcome;
use crate::part_file::{self, Place};
use crate::progress::Counter;
use crate::request::Template;
use crate::retry;

/// What is read of a file at a time for its digest.
const READ: usize = 1 << 20;

pub(crate) struct Download {
    pub(crate) client: Client,
    pub(crate) template: Template,
    pub(crate) url: String,
    pub(crate) path: PathBuf,
    pub(crate) checksum: Option<Checksum>,
    /// `None` for as many as make it faster.
    pub(crate) connections: Option<usize>,
    /// How many attempts in a row may bring nothing.
    pub(crate) repeats: u32,
    pub(crate) progress: Arc<Counter>,
}

/// The digest that the file has to have.
pub(crate) struct Checksum {
    algorithm: &'static Algorithm,
    expected: Vec<u8>,
}

impl Checksum {
    pub(crate) fn new(name: &str, expected: &[u8]) -> PyResult<Self> {
        let algorithm = match name {
            "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &digest::SHA256,
            "sha384" => &digest::SHA384,
            "sha512" => &digest::SHA512,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "checksum: {name:?} is none of sha1, sha256, sha384 and sha512"
                )));
            }
        };
        if expected.len() != algorithm.output_len() {
            return Err(PyValueError::new_err(format!(
                "checksum: no digest of {name} has {} bytes",
                expected.len()
            )));
        }
        Ok(Checksum {
            algorithm,
            expected: expected.to_vec(),
        })
    }
}

/// What is on the disk.
struct Part {
    file: FileWriter,
    place: Place,
    /// The bytes that are in it.
    size: u64,
    /// Which version they are of; `None` if that cannot be told again.
    version: Option<Version>,
    total: Option<u64>,
}

/// How an attempt has ended.
enum End {
    Complete,
    /// The part can be continued, or the download has to start again.
    Broken(Failure),
}

/// A file that was downloaded.
struct Saved {
    size: u64,
    /// The bytes that an earlier run had left.
    resumed: u64,
    connections: usize,
    url: String,
}

impl Download {
    pub(crate) async fn run(self) -> Result<Outcome, Failure> {
        let mut part = None;
        let mut saved = Saved {
            size: 0,
            resumed: 0,
            connections: 1,
            url: without_secrets(&self.url),
        };
        let mut fruitless = 0;
        loop {
            let before = part.as_ref().map_or(0, |part: &Part| part.size);
            let failure = match self.attempt(&mut part, &mut saved).await {
                Ok(End::Complete) => break,
                Ok(End::Broken(failure)) => failure,
                Err(failure) if failure.is_broken_off => failure,
                Err(failure) => return self.give_up(part, failure).await,
            };
            let has_more = part
                .as_ref()
                .is_some_and(|part| part.version.is_some() && part.size > before);
            fruitless = if has_more { 0 } else { fruitless + 1 };
            if fruitless > self.repeats {
                return self.give_up(part, failure).await;
            }
            let pause = std::time::Duration::from_millis(100) * (1 << fruitless.min(6));
            tokio::time::sleep(failure.pause.unwrap_or(pause)).await;
        }
        let Some(part) = part else {
            return Err(Failure::canceled());
        };
        saved.size = part.size;
        self.publish(part).await?;
        Ok(Outcome::of((
            saved.size,
            saved.resumed,
            saved.connections,
            saved.url,
        )))
    }

    /// Leaves the part for the next run, if that could continue it.
    async fn give_up(&self, part: Option<Part>, failure: Failure) -> Result<Outcome, Failure> {
        if let Some(mut part) = part {
            let _ = part.file.flush().await;
            part.place.is_temporary |= part.size == 0;
        }
        Err(failure)
    }

    async fn attempt(&self, part: &mut Option<Part>, saved: &mut Saved) -> Result<End, Failure> {
        if let Some(part) = part {
            if let Some(response) = self.rest(part).await? {
                return self.receive(part, response, saved).await;
            }
        }
        let response = self.whole().await?;
        saved.url = without_secrets(&response.url().to_string());
        // It may have the name of the next one.
        drop(part.take());
        let opened = part.insert(self.open(&response).await?);
        if opened.total == Some(opened.size) && opened.size > 0 {
            saved.resumed = opened.size;
            self.progress.begin(opened.size, opened.total);
            return Ok(End::Complete);
        }
        if opened.size > 0 {
            drop(response);
            saved.resumed = opened.size;
            let rest = self.rest(opened).await?;
            let response = match rest {
                Some(response) => response,
                None => self.again(opened, saved).await?,
            };
            return self.receive(opened, response, saved).await;
        }
        self.receive(opened, response, saved).await
    }

    async fn whole(&self) -> Result<Response, Failure> {
        let mut template = self.template.clone();
        template
            .headers
            .insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = template.send(&self.client, &self.url, None).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            _ => Err(self.refused(&response)),
        }
    }

    /// Starts again from the first byte.
    async fn again(&self, part: &mut Part, saved: &mut Saved) -> Result<Response, Failure> {
        let response = self.whole().await?;
        part.begin(&response)
            .await
            .map_err(|error| broken_disk(&part.place.path, &error))?;
        saved.resumed = 0;
        Ok(response)
    }

    /// Asks for the bytes that are missing; `None` if the server has no longer this version, or no ranges.
    async fn rest(&self, part: &mut Part) -> Result<Option<Response>, Failure> {
        let Some(version) = part.version.as_ref().filter(|_| part.size > 0) else {
            return Ok(None);
        };
        let mut template = self.template.clone();
        let range = HeaderValue::try_from(format!("bytes={}-", part.size));
        if let (Ok(range), Some(validator)) = (range, version.validator()) {
            template.headers.insert(header::RANGE, range);
            template.headers.insert(header::IF_RANGE, validator.clone());
        }
        template
            .headers
            .insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = template.send(&self.client, &self.url, None).await?;
        let fits = response.status() == StatusCode::PARTIAL_CONTENT
            && version.fit(response.headers(), part.size).is_ok();
        if fits {
            return Ok(Some(response));
        }
        match response.status() {
            status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => Ok(None),
            _ => Err(self.refused(&response)),
        }
    }

    /// The failure that a status is. One with `Retry-After` is asked for again.
    fn refused(&self, response: &Response) -> Failure {
        let mut failure = Failure::status(response.status()).of(&without_secrets(&self.url));
        failure.pause = retry::pause(response.status(), response.headers());
        failure.is_broken_off |= failure.pause.is_some();
        failure
    }

    async fn receive(&self, part: &mut Part, response: Response, saved: &mut Saved) -> Result<End, Failure> {
        self.progress.begin(part.size, part.total);
        let mut request = Request::new(());
        *request.uri_mut() = response.url().clone();
        *request.headers_mut() = self.template.headers.clone();
        let mut body = self.client.spread(request, response.into()).into_body();
        if let Some(connections) = self.connections {
            body.set_connections(connections);
        }
        let received = self.write(part, &mut body).await;
        saved.connections = saved.connections.max(body.download_report().most_connections);
        // What has come is right, whatever ended it.
        let flushed = part.file.flush().await;
        flushed.map_err(|error| broken_disk(&part.place.path, &error))?;
        if let Some(failure) = received? {
            return Ok(End::Broken(failure));
        }
        match part.total {
            Some(total) if part.size != total => {
                let text = format!("{} bytes came, and {total} were announced", part.size);
                Ok(End::Broken(
                    Failure::new("body_length", text).of(&without_secrets(&self.url)),
                ))
            }
            _ => Ok(End::Complete),
        }
    }

    /// Returns why the body broke off, if it did.
    async fn write(&self, part: &mut Part, body: &mut Incoming) -> Result<Option<Failure>, Failure> {
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let frame = match self.template.limits.read {
                None => next.await,
                Some(limit) => match tokio::time::timeout(limit, next).await {
                    Ok(frame) => frame,
                    Err(_) => {
                        let late = Failure::timeout("read_timeout", "no more of the body came", limit);
                        return Ok(Some(late.of(&without_secrets(&self.url))));
                    }
                },
            };
            let data = match frame {
                None => return Ok(None),
                Some(Err(error)) => return Ok(Some(Failure::from(error).of(&without_secrets(&self.url)))),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            let length = data.len() as u64;
            let written = part.file.write(data).await;
            written.map_err(|error| broken_disk(&part.place.path, &error))?;
            part.size += length;
            self.progress.add(length);
        }
    }

    /// Opens the part of a response, with what an earlier run left.
    async fn open(&self, response: &Response) -> Result<Part, Failure> {
        let total = response.content_length();
        let version = Version::of(response.headers(), total).filter(|version| version.validator().is_some());
        let (path, target) = (
            version.as_ref().map(|version| self.part_path(version)),
            self.path.clone(),
        );
        let longest = total.filter(|_| version.is_some()).unwrap_or(0);
        let opened = tokio::task::spawn_blocking(move || {
            let (mut file, place) = part_file::open(path, &target)?;
            let found = file.metadata()?.len();
            let size = if found <= longest { found } else { 0 };
            file.set_len(size)?;
            file.seek(SeekFrom::Start(size))?;
            Ok((file, place, size))
        });
        let (file, place, size) = opened
            .await
            .map_err(|_| Failure::canceled())?
            .map_err(|error| broken_disk(&self.path, &error))?;
        Ok(Part {
            file: FileWriter::new(file),
            place,
            size,
            version,
            total,
        })
    }

    /// A file beside the final one. Its name says which version of which URL it is part of.
    fn part_path(&self, version: &Version) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        let mut named = digest::Context::new(&digest::SHA256);
        named.update(self.url.as_bytes());
        named.update(&version.key());
        let hash = u64::from_be_bytes(named.finish().as_ref()[..8].try_into().unwrap_or_default());
        name.push(format!(".{hash:016x}.part"));
        self.path.with_file_name(name)
    }

    /// Checks the complete file, and gives it its name.
    async fn publish(&self, part: Part) -> Result<(), Failure> {
        let Part { file, mut place, .. } = part;
        let file = file.into_file();
        let (path, target) = (place.path.clone(), self.path.clone());
        let checksum = self
            .checksum
            .as_ref()
            .map(|checksum| (checksum.algorithm, checksum.expected.clone()));
        let url = without_secrets(&self.url);
        let published = tokio::task::spawn_blocking(move || {
            if let Some((algorithm, expected)) = checksum {
                let found = digest_of(algorithm, &file).map_err(|error| broken_disk(&path, &error))?;
                if found != expected {
                    place.discard();
                    let text = format!(
                        "its digest is {}, not the expected one; it was removed",
                        hex(&found)
                    );
                    return Err(Failure::new("checksum", text).of(&url));
                }
            }
            let named = place.publish(&file, &target);
            named.map_err(|error| broken_disk(&target, &error))
        });
        published.await.map_err(|_| Failure::canceled())?
    }
}

impl Part {
    /// Begins anew with the version of a response.
    async fn begin(&mut self, response: &Response) -> std::io::Result<()> {
        self.file.restart().await?;
        self.size = 0;
        self.total = response.content_length();
        let version = Version::of(response.headers(), self.total);
        self.version = version.filter(|version| version.validator().is_some());
        self.place.is_temporary = self.version.is_none();
        Ok(())
    }
}

fn digest_of(algorithm: &'static Algorithm, mut file: &std::fs::File) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut context = digest::Context::new(algorithm);
    let mut buffer = vec![0; READ];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(context.finish().as_ref().to_vec()),
            Ok(read) => context.update(&buffer[..read]),
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn broken_disk(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("disk", format!("{}: {error}", path.display()))
}
