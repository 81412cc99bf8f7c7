//! POST of a form (multipart/form-data, RFC 7578), as a browser sends it: each of its files is stored in the folder of the
//! path.
//!
//! The parser gets one frame at a time and only when it needs one, so it never holds more than the header of a part and
//! one frame. Files go to the disk as those of `uploads` do. A form of another site is refused: a browser sends it without
//! asking, and with the address of the user. Called by `service`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyDataStream;
use multer::{Field, Multipart};

use crate::accept;
use crate::body_length::{BodyLength, next_frame};
use crate::destination::Destination;
use crate::file_body::FileResponse;
use crate::origin::{self, is_of_another_site, media_type};
use crate::peer::Peer;
use crate::refusal::{Refusal, bad_destination, bad_path, busy, failure, name_reserved, refuse};
use crate::report::Report;
use crate::resolve::Target;
use crate::respond;
use crate::uploads::{Store, When, begin};
use crate::writer::Writer;

/// The most bytes of a part's header. Those of browsers have some 200 bytes and the file's name.
const PART_HEAD_BYTES: usize = 8 * 1024;

/// The longest media type of a form, in bytes. Its boundary has 70 at most (RFC 2046 section 5.1.1).
const TYPE_BYTES: usize = 1024;

/// Whether the request is a form with files.
pub(crate) fn is_form(head: &Parts) -> bool {
    head.method == Method::POST && media_type(head).eq_ignore_ascii_case(b"multipart/form-data")
}

/// Stores the files of a form. A browser gets a redirect to the listing of the folder if there is one, and a page
/// otherwise; other clients get a line of text for each file.
pub(crate) async fn store<B>(store: Store<'_>, head: &Parts, peer: Option<Peer>, body: B) -> FileResponse
where
    B: Body<Data = Bytes>,
{
    let is_page = accept::prefers_html(&head.headers);
    let Some(mut report) = Report::begin(is_page, store.pages.share(peer)) else {
        return busy().into_response();
    };
    let outcome = store_all(store, head, peer, pin!(body), &mut report).await;
    let target = Target::parse(head.uri.path()).ok();
    let listed = |target: &&Target| store.settings.listing && store.folder.serves(target.names());
    let is_stored = report.status(&outcome) == StatusCode::CREATED;
    match target.as_ref().filter(listed) {
        Some(target) if is_page && is_stored => {
            let location = HeaderValue::try_from(target.directory_reference()).ok();
            respond::with(respond::status(StatusCode::SEE_OTHER), LOCATION, location)
        }
        _ => report.into_response(&outcome, target.as_ref()),
    }
}

/// Stores the files in the order of the form. A file that is refused alone is skipped; the others are stored.
async fn store_all<B>(
    store: Store<'_>,
    head: &Parts,
    peer: Option<Peer>,
    body: Pin<&mut B>,
    report: &mut Report,
) -> Result<(), Refusal>
where
    B: Body<Data = Bytes>,
{
    if is_of_another_site(head) {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            &format!(
                "this form is on a page of another site; only forms of this server may upload: {}",
                origin::explanation(head)
            ),
        ));
    }
    let target = Target::parse(head.uri.path()).map_err(bad_path)?;
    let folders = store.folder.below(target.names());
    let content_type = head.headers.get(CONTENT_TYPE);
    let content_type = content_type.filter(|value| value.len() <= TYPE_BYTES);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| malformed())?;
    let feed = Feed::default();
    let mut parts = Multipart::new(BodyDataStream::new(feed.clone()), boundary);
    let mut source = PartSource {
        body,
        length: BodyLength::new(store.settings.max_upload_bytes, &head.headers)?,
        feed,
    };
    let most = store.settings.limits.form_parts;
    for _ in 0..most {
        let Some(mut part) = source.drive(parts.next_field(), PART_HEAD_BYTES, None).await? else {
            return source.end().await;
        };
        // A control without a chosen file has a part with an empty name.
        let Some(name) = part.file_name().filter(|name| !name.is_empty()).map(own_path) else {
            source.skip(&mut part).await?;
            tokio::task::yield_now().await;
            continue;
        };
        let stored = match destination(store, folders, &name, peer) {
            Ok(destination) => source.store(store, destination, &mut part).await,
            Err(refusal) => Err(refusal),
        };
        let goes_on = stored.as_ref().err().is_none_or(concerns_one_file);
        report.add(&name, stored.as_ref().map(|bytes| *bytes));
        // The next parts may have arrived already, and this one may have been refused without waiting for anything.
        tokio::task::yield_now().await;
        if !goes_on {
            return Ok(());
        }
        source.skip(&mut part).await?;
    }
    Err(refuse(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("the form has more than {most} parts"),
    ))
}

/// Whether a refusal has to do with the name of one file, so that the next one may succeed.
fn concerns_one_file(refusal: &Refusal) -> bool {
    matches!(refusal.status, StatusCode::CONFLICT | StatusCode::BAD_REQUEST)
}

/// The names of a file's path in the form: browsers send folders with slashes, and old ones the path on the disk with
/// backslashes.
fn own_path(name: &str) -> Vec<String> {
    let name = name.rsplit('\\').next().unwrap_or(name);
    let names = name.split('/').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn destination(
    store: Store<'_>,
    folders: &[String],
    name: &[String],
    peer: Option<Peer>,
) -> Result<Destination, Refusal> {
    let most = store.settings.limits.upload_folders;
    let (name, more) = name.split_last().ok_or_else(malformed)?;
    if store.folder.reserved.has(name) {
        return Err(name_reserved());
    }
    let folders = [folders, more].concat();
    let destination = Destination::new(store.folder, &folders, name.clone(), most, peer);
    destination.map_err(|error| bad_destination(error, most))
}

fn malformed() -> Refusal {
    refuse(
        StatusCode::BAD_REQUEST,
        "the form is malformed, or ended before it was complete",
    )
}

/// The body of a form, which is given to the parser frame by frame.
struct PartSource<'a, B> {
    body: Pin<&'a mut B>,
    length: BodyLength,
    feed: Feed,
}

impl<B: Body<Data = Bytes>> PartSource<'_, B> {
    /// Gives frames to the parser until `step` is done. `step` needs at most the frame with the byte `most`.
    async fn drive<T>(
        &mut self,
        step: impl Future<Output = multer::Result<T>>,
        most: usize,
        mut writer: Option<&mut Writer>,
    ) -> Result<T, Refusal> {
        let mut step = pin!(step);
        let mut given = 0;
        loop {
            let polled = std::future::poll_fn(|cx| Poll::Ready(step.as_mut().poll(cx))).await;
            if let Poll::Ready(done) = polled {
                return done.map_err(|_| malformed());
            }
            // Everything has been given to it, and it is still not done.
            if given >= most || self.feed.has_ended() {
                return Err(malformed());
            }
            let frame = match &mut writer {
                None => next_frame(self.body.as_mut()).await,
                Some(writer) => {
                    let next = writer.wait(next_frame(self.body.as_mut())).await;
                    next.map_err(|error| failure(&error))?
                }
            };
            match frame {
                Some(frame) => {
                    let data = self.length.data(frame)?.unwrap_or_default();
                    given += data.len();
                    self.feed.give(data);
                }
                None => {
                    self.length.end()?;
                    self.feed.end();
                }
            }
        }
    }

    /// Stores the file of a part.
    async fn store(
        &mut self,
        store: Store<'_>,
        destination: Destination,
        part: &mut Field<'_>,
    ) -> Result<u64, Refusal> {
        let destination = Arc::new(destination);
        let announced = self
            .length
            .announced
            .unwrap_or(0)
            .saturating_sub(self.length.count);
        let replace = store.settings.overwrite;
        let when = When::BeforeItsBytes;
        let mut writer = begin(store, &destination, announced, replace, when, |_| Ok(())).await?;
        match self.gather(part, &mut writer).await {
            Ok(bytes) => match writer.publish(replace, None).await {
                Ok(_) => {
                    store.cache.note_upload();
                    Ok(bytes)
                }
                Err(error) => Err(failure(&error)),
            },
            Err(refusal) => {
                writer.abandon().await;
                Err(refusal)
            }
        }
    }

    async fn gather(&mut self, part: &mut Field<'_>, writer: &mut Writer) -> Result<u64, Refusal> {
        let mut bytes = 0;
        while let Some(data) = self.drive(part.chunk(), usize::MAX, Some(&mut *writer)).await? {
            bytes += data.len() as u64;
            writer.push(data).await.map_err(|error| failure(&error))?;
        }
        Ok(bytes)
    }

    /// Reads the rest of a part and drops it.
    async fn skip(&mut self, part: &mut Field<'_>) -> Result<(), Refusal> {
        while self.drive(part.chunk(), usize::MAX, None).await?.is_some() {}
        Ok(())
    }

    /// Reads what follows the last part: nothing, as a rule.
    async fn end(&mut self) -> Result<(), Refusal> {
        while let Some(frame) = next_frame(self.body.as_mut()).await {
            self.length.data(frame)?;
        }
        match self.feed.has_ended() {
            true => Ok(()),
            false => self.length.end(),
        }
    }
}

/// The body that the parser sees: the frame that it was given, if it has not read it.
#[derive(Clone, Debug, Default)]
struct Feed(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    data: Option<Bytes>,
    ended: bool,
}

impl Feed {
    fn give(&self, data: Bytes) {
        if !data.is_empty() {
            self.lock().data = Some(data);
        }
    }

    fn end(&self) {
        self.lock().ended = true;
    }

    fn has_ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    /// Never wakes: `PartSource` polls the parser after it has given it something.
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut given = self.lock();
        match given.data.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None if given.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_in_a_form_has_names() {
        for (name, expected) in [
            ("a.txt", &["a.txt"][..]),
            ("album/a.txt", &["album", "a.txt"]),
            ("C:\\Users\\me\\a.txt", &["a.txt"]),
            ("/etc//passwd", &["etc", "passwd"]),
            ("/", &[]),
        ] {
            assert_eq!(own_path(name), expected, "{name}");
        }
    }

    #[test]
    fn forms_are_told_by_method_and_media_type() {
        for (method, media_type, expected) in [
            (Method::POST, "multipart/form-data; boundary=x", true),
            (Method::POST, "Multipart/Form-Data ;boundary=x", true),
            (Method::POST, "multipart/form-data; boundary=x; y=\u{e9}", true),
            (Method::POST, "multipart/mixed; boundary=x", false),
            (Method::POST, "application/octet-stream", false),
            (Method::PUT, "multipart/form-data; boundary=x", false),
        ] {
            let request = http::Request::builder()
                .method(method)
                .header(CONTENT_TYPE, media_type);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(is_form(&head), expected, "{media_type}");
        }
    }
}
