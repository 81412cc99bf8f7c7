//! The uploads of many files, over as many connections as the pool of other requests has.
//!
//! `tree` finds files in batches. A job for each batch reads the small ones into memory that has a bound, and a task for each file
//! sends it. Files that are larger are opened when it is their turn.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::{Client, Incoming};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use url::{Position, Url};

use crate::args::PutArgs;
use crate::exit::{Exit, Failure};
use crate::key_log;
use crate::run::{self, Leftovers};
use crate::transfer::client::{self, Address, shown_url};
use crate::transfer::output::Format;
use crate::transfer::progress::Progress;
use crate::transfer::rate_limit::{Paced, RateLimit};
use crate::transfer::receive::file_job;
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;
use crate::transfer::retry::{Failed, Pauses, Retries};
use crate::transfer::status::{Asked, check_status};
use crate::transfer::waits::{Direction, Set, Waits};
use crate::volume::Volume;

use super::READ_TIMEOUT;
use super::content::{self, Content, Named, Reader, Ready};
use super::counted::Counted;
use super::digests::{Digests, Local};
use super::existing::Existing;
use super::gate::{Gate, PATIENCE, Window};
use super::hop::MODIFIED;
use super::offer::Offers;
use super::resource;
use super::resumable::{End, Resumption, Stopped};
use super::tally::Tally;
use super::time_limit::TimeLimit;
use super::tree::{self, Batch, LeftOut, stored_name};
use super::upload_body::{self, FileBody, UploadSource};
use super::upload_run;

/// The connections to the server, without `--connections`.
const MOST_CONNECTIONS: u32 = 8;
/// The contents of small files that wait or are being sent, in bytes: what 5 Gbit/s carry in 100 ms.
const MEMORY: usize = 64 << 20;
/// The jobs that read files at once.
const READERS: usize = 4;
/// The batches whose folders' lists are awaited, with `--skip-existing`.
const ASKED: usize = 128;
/// The files that are ready and wait for others, at most and about.
const READY: usize = 4_096;
/// The large files that are open at once: each has a descriptor and a thread.
const LARGE: usize = 16;
/// How much of a response's body is read. Then the stream is reset, after the upload.
const DRAINED: u64 = 256 << 10;

/// Whether there are several files, or a folder, or an option that is about them.
///
/// # Errors
/// An option that is about one upload.
pub(super) async fn is_asked_for(args: &PutArgs) -> Result<bool, Failure> {
    let is_put = args.method == Method::PUT;
    let mut many = args.files().len() > 1 || args.skip_existing;
    if !many && is_put && args.file() != Path::new("-") {
        let path = args.file().to_owned();
        many = file_job(move || Ok(path.is_dir())).await?;
    }
    if !many {
        return Ok(false);
    }
    let usage = |text: &str| Err(Failure::usage(text));
    if !is_put {
        return usage("-X is for one file; several files and folders are sent with PUT");
    }
    if args.output.is_some() {
        return usage("-o is for one file; the responses to several files are not saved");
    }
    if args.files().iter().any(|file| file == Path::new("-")) {
        return usage("`-` has no name; send standard input alone, to a URL with a name");
    }
    let mut names: Vec<_> = args.files().iter().filter_map(|path| stored_name(path)).collect();
    names.sort();
    if let Some([name, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!(
            "two of the files would be stored as {}; send them to different URLs",
            Path::new(name).display()
        )));
    }
    Ok(true)
}

/// Uploads all files. One that fails does not stop the others.
///
/// # Errors
/// What is wrong before the first request.
pub(super) async fn run(
    args: &PutArgs,
    typed: &str,
    volume: Volume,
    leftovers: &Arc<Leftovers>,
) -> Result<ExitCode, Failure> {
    let address = client::parse_url(typed)?;
    if !address.url.path().ends_with('/') {
        return Err(Failure::usage(format!(
            "{}: end the URL with a slash to send several files or a folder",
            address.url
        )));
    }
    let format = Format::choose(args.json, false);
    let progress = Progress::start(volume.prints_notes());
    let key_log = progress.aside(|| key_log::from_env(volume.prints_notes()));
    let client = client::client(&args.connection, key_log, |client| {
        let client = client
            .max_connections(args.connections.unwrap_or(MOST_CONNECTIONS))
            .spread_requests(args.connections != Some(1));
        match &args.congestion_control {
            Some(name) => client.congestion_control(name),
            None => client,
        }
    })
    .await?;
    let request_fields = RequestFields::new(&args.connection, &[typed.to_owned()]).await?;
    let left_out = Arc::new(LeftOut::default());
    let uploader = Arc::new(Uploader {
        client: client.clone(),
        base: address.url[..Position::AfterPath].to_owned(),
        query: address.url[Position::AfterPath..].to_owned(),
        fields: request_fields.of(&address),
        digests: args
            .checksum
            .then(|| Digests::new(client.clone(), request_fields.of(&address))),
        request_fields,
        redirects: Redirects::from_args(&args.connection),
        offers: Offers::default(),
        retries: args.retry,
        pauses: Pauses::default(),
        max_time: args.connection.max_time,
        rate: args.connection.network.limit_rate.map(RateLimit::new),
        gate: Gate::new(
            usize::try_from(args.parallel)
                .unwrap_or(usize::MAX)
                .min(Semaphore::MAX_PERMITS),
        ),
        window: Window::new(),
        large: Semaphore::new(LARGE),
        succeeded: AtomicU64::new(0),
        keeps_times: AtomicBool::new(true),
        compares: args.skip_existing,
        progress: Arc::clone(&progress),
        leftovers: Arc::clone(leftovers),
        tells: volume.prints_notes() && format == Format::Text,
    });
    let mut tally = Tally::new(format, volume, progress, Arc::clone(&left_out));
    let batches = tree::walk(args.files().to_vec(), args.hidden, Arc::clone(&left_out))?;
    let parallel = usize::try_from(args.parallel).unwrap_or(usize::MAX);
    let mut run = Run::new(Arc::clone(&uploader), batches, left_out, parallel);
    run.drive(&mut tally).await;
    drop(run);
    if args.skip_existing && !uploader.keeps_times.load(Ordering::Relaxed) && volume.prints_notes() {
        uploader.progress.aside(|| {
            run::complain(&"the server keeps no times of files, so the next run sends them again");
        });
    }
    if uploader.digests.as_ref().is_some_and(Digests::are_missing) && volume.prints_notes() {
        uploader.progress.aside(|| {
            run::complain(&"the server tells no SHA-256 of its files, so those of the same size and another time were sent");
        });
    }
    let waited = Waits::of(Direction::Sending, &client, Set::by(&args.connection)).await;
    // The closing line stands below the log.
    tally.set_ended();
    client::farewell(&client).await;
    Ok(tally.finish(waited))
}

/// The stages of a run: batches, of which the server is asked; jobs that read; files that are ready; and uploads.
struct Run {
    uploader: Arc<Uploader>,
    existing: Option<Arc<Existing>>,
    batches: Option<mpsc::Receiver<Batch>>,
    /// Dropped after the last batch.
    reader: Option<Reader>,
    readers: Arc<Semaphore>,
    reading: JoinSet<()>,
    ready: mpsc::UnboundedReceiver<Ready>,
    sending: JoinSet<Outcome>,
    parallel: usize,
}

/// The end of an upload.
struct Outcome {
    place: String,
    /// How many bytes were sent; `None` if the server has the file.
    result: Result<Option<u64>, Failure>,
    /// The other uploads would fail too.
    ends_run: bool,
}

impl Run {
    fn new(
        uploader: Arc<Uploader>,
        batches: mpsc::Receiver<Batch>,
        left_out: Arc<LeftOut>,
        parallel: usize,
    ) -> Self {
        let (sender, ready) = mpsc::unbounded_channel();
        let existing = uploader.compares.then(|| {
            let (client, fields) = (uploader.client.clone(), uploader.fields.clone());
            let (base, query) = (uploader.base.clone(), uploader.query.clone());
            Arc::new(Existing::new(client, fields, base, query))
        });
        let reader = Reader {
            ready: sender,
            memory: Arc::new(Semaphore::new(MEMORY)),
            left_out,
            compares: uploader.compares,
        };
        Self {
            uploader,
            existing,
            batches: Some(batches),
            reader: Some(reader),
            readers: Arc::new(Semaphore::new(READERS)),
            reading: JoinSet::new(),
            ready,
            sending: JoinSet::new(),
            parallel,
        }
    }

    async fn drive(&mut self, tally: &mut Tally) {
        let most_read = if self.existing.is_some() { ASKED } else { READERS };
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.sending.join_next() => {
                    if end(ended, tally) {
                        return tally.stop();
                    }
                }
                Some(ready) = self.ready.recv(), if self.sending.len() < self.parallel => {
                    self.begin(ready, tally);
                }
                Some(_) = self.reading.join_next() => {}
                batch = next(&mut self.batches), if self.wants_batch(most_read) => {
                    match batch {
                        Some(batch) => self.read(batch),
                        None => (self.batches, self.reader) = (None, None),
                    }
                }
                else => return,
            }
        }
    }

    fn wants_batch(&self, most_read: usize) -> bool {
        self.batches.is_some() && self.reading.len() < most_read && self.ready.len() < READY
    }

    fn read(&mut self, batch: Batch) {
        let Some(reader) = self.reader.clone() else { return };
        let (existing, readers) = (self.existing.clone(), Arc::clone(&self.readers));
        self.reading.spawn(async move {
            let known = match existing {
                Some(existing) => {
                    let folder = &batch.folder;
                    existing.of(&folder.listing, &folder.place, &batch.names).await
                }
                None => Vec::new(),
            };
            let _turn = readers.acquire().await;
            let job = tokio::task::spawn_blocking(move || reader.read(batch, &known));
            let _ = job.await;
        });
    }

    fn begin(&mut self, ready: Ready, tally: &mut Tally) {
        self.uploader.progress.file();
        let uploader = Arc::clone(&self.uploader);
        match ready {
            Ready::Same => tally.same(),
            Ready::Failed(place, failure) => tally.failed(&place, &failure),
            Ready::Small(file, content) => {
                self.sending
                    .spawn(async move { uploader.small(file, content).await });
            }
            Ready::Large(file) => {
                self.sending.spawn(async move { uploader.large(file).await });
            }
        }
    }
}

/// Adds a result. Returns whether the run ends with it.
fn end(ended: Result<Outcome, JoinError>, tally: &mut Tally) -> bool {
    match ended {
        Ok(outcome) => {
            match outcome.result {
                Ok(Some(bytes)) => tally.sent(bytes),
                Ok(None) => tally.same(),
                Err(failure) => tally.failed(&outcome.place, &failure),
            }
            outcome.ends_run
        }
        Err(error) => {
            let text = format!("an upload failed by an error of fullbore: {error}");
            tally.failed("", &Failure::new(Exit::Other, text));
            false
        }
    }
}

async fn next(batches: &mut Option<mpsc::Receiver<Batch>>) -> Option<Batch> {
    match batches {
        Some(batches) => batches.recv().await,
        None => None,
    }
}

/// Sends files.
struct Uploader {
    client: Client,
    /// The URL up to the end of its path, and the rest.
    base: String,
    query: String,
    /// The fields of a request.
    fields: HeaderMap,
    request_fields: RequestFields,
    redirects: Redirects,
    offers: Offers,
    retries: u32,
    pauses: Pauses,
    max_time: Option<Duration>,
    rate: Option<Arc<RateLimit>>,
    gate: Gate,
    window: Window,
    large: Semaphore,
    succeeded: AtomicU64,
    /// Whether the server has said of each file that it has taken its time.
    keeps_times: AtomicBool,
    compares: bool,
    /// With `--checksum`.
    digests: Option<Digests>,
    progress: Arc<Progress>,
    leftovers: Arc<Leftovers>,
    /// Whether notes are printed.
    tells: bool,
}

/// An upload that can be continued, and its file.
type Continued<'a> = Option<(&'a Resumption, &'a FileBody)>;

/// Where a file goes, and what is said of it.
struct Head {
    url: Url,
    shown: String,
    fields: HeaderMap,
}

/// A failure, and whether the other uploads would have it too.
struct Broken {
    failed: Failed,
    ends_run: bool,
}

impl Broken {
    fn alone(failed: Failed) -> Self {
        Self {
            failed,
            ends_run: false,
        }
    }
}

impl Uploader {
    async fn small(&self, file: Named, content: Content) -> Outcome {
        let length = u64::try_from(content.bytes.len()).unwrap_or(u64::MAX);
        if let Some(same) = self.same(&file, length, Local::Bytes(&content.bytes)).await {
            return same;
        }
        let body = Full::new(content.bytes);
        let outcome = self
            .upload(&file, length, content.modified, &body, None, || None)
            .await;
        drop(content.share);
        outcome
    }

    async fn large(&self, file: Named) -> Outcome {
        let _open = self.large.acquire().await;
        let (path, compares) = (file.path.clone(), self.compares);
        let opened = file_job(move || {
            let wrong = |error| Failure::from_io("read", &path, &error);
            let (file, mut found) = content::open(&path).map_err(wrong)?;
            if compares && content::is_of_this_second(&found) {
                content::wait_for_the_next_second();
                found = file.metadata().map_err(wrong)?;
            }
            Ok((file, found))
        });
        let local = |failure| Outcome {
            place: file.path.display().to_string(),
            result: Err(failure),
            ends_run: false,
        };
        let (opened, found) = match opened.await {
            Ok(opened) => opened,
            Err(failure) => return local(failure),
        };
        if let Some(same) = self.same(&file, found.len(), Local::File(&file.path)).await {
            return same;
        }
        let (source, mut sent) = upload_body::of_file(opened, &file.path, &found, 0);
        let UploadSource::File(body) = source else {
            return local(content::changed(&file.path));
        };
        let modified = sent.modified();
        let resumption = self.resumption(&file, &body).await;
        let continued = resumption.as_ref().map(|resumption| (resumption, &body));
        let outcome = self
            .upload(&file, found.len(), modified, &body, continued, || sent.fault())
            .await;
        drop(body);
        if outcome.result.is_err() {
            return outcome;
        }
        // A server may respond before it has the whole.
        let is_complete = resumption.as_ref().is_some_and(Resumption::is_complete);
        if !is_complete {
            let _ = tokio::time::timeout(READ_TIMEOUT, sent.ended()).await;
        }
        if let Some(fault) = sent.fault() {
            return local(fault);
        }
        if !is_complete && !sent.is_whole(u64::MAX) {
            let text = format!(
                "{}: the server responded and refused the rest",
                file.path.display()
            );
            return local(Failure::new(Exit::Reset, text));
        }
        let path = file.path.clone();
        let now = file_job(move || Ok(std::fs::metadata(path).ok())).await;
        match now {
            Ok(Some(now)) if content::is_unchanged(&found, &now) => {
                if let Some(resumption) = resumption {
                    resumption.forget().await;
                }
                outcome
            }
            _ => local(content::changed(&file.path)),
        }
    }

    /// The outcome of a file that the server has with another time, if that is known.
    async fn same(&self, file: &Named, length: u64, local: Local<'_>) -> Option<Outcome> {
        let digests = self.digests.as_ref().filter(|_| file.is_alike)?;
        let place = self.shown(file);
        let is_same = digests.are_equal(&place, length, local).await;
        is_same.then_some(Outcome {
            place,
            result: Ok(None),
            ends_run: false,
        })
    }

    /// The upload of a large file, if it is one that can be continued.
    async fn resumption(&self, file: &Named, body: &FileBody) -> Option<Resumption> {
        if !resource::is_worth(&Method::PUT, &self.fields, body.length()) {
            return None;
        }
        let url = Url::parse(&self.shown(file)).ok()?;
        let address = Address { url, login: None };
        let (fields, path) = (&self.fields, Some(&*file.path));
        Some(
            Resumption::new(
                self.as_run(),
                &Method::PUT,
                &address,
                fields,
                path,
                body,
                &self.leftovers,
            )
            .await,
        )
    }

    fn as_run(&self) -> upload_run::Run<'_> {
        upload_run::Run {
            client: &self.client,
            request_fields: &self.request_fields,
            redirects: self.redirects,
            offers: &self.offers,
            rate: self.rate.as_ref(),
            retries: self.retries,
            max_time: self.max_time,
            progress: &self.progress,
            is_single: false,
            tells: self.tells,
        }
    }

    /// The URL of a file.
    fn shown(&self, file: &Named) -> String {
        format!("{}{}{}", self.base, file.place, self.query)
    }

    /// Sends a file until the server has it, or has refused it for good.
    async fn upload<B>(
        &self,
        file: &Named,
        length: u64,
        modified: Option<i64>,
        body: &B,
        continued: Continued<'_>,
        fault: impl Fn() -> Option<Failure>,
    ) -> Outcome
    where
        B: Body<Data = Bytes> + Clone + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shown = self.shown(file);
        let result = self
            .repeated(&shown, length, modified, body, continued, fault)
            .await;
        let (result, ends_run) = match result {
            Ok(()) => {
                self.succeeded.fetch_add(1, Ordering::Relaxed);
                let resumed = continued.map_or(0, |(resumption, _)| resumption.resumed());
                (Ok(Some(length - resumed)), false)
            }
            Err(broken) => (Err(broken.failed.failure), broken.ends_run),
        };
        let place = match &result {
            Err(failure) if !failure.message.contains(&shown) => file.path.display().to_string(),
            _ => shown,
        };
        Outcome {
            place,
            result,
            ends_run,
        }
    }

    async fn repeated<B>(
        &self,
        shown: &str,
        length: u64,
        modified: Option<i64>,
        body: &B,
        continued: Continued<'_>,
        fault: impl Fn() -> Option<Failure>,
    ) -> Result<(), Broken>
    where
        B: Body<Data = Bytes> + Clone + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut retries = Retries::new(self.retries);
        let (mut patience, mut seen) = (Retries::new(PATIENCE), 0);
        let url = Url::parse(shown).map_err(|error| {
            let failure = Failure::new(Exit::BadUrl, format!("{shown}: {error}"));
            Broken::alone(Failed::permanent(failure))
        })?;
        let (mut cause, mut answered) = (None, None);
        loop {
            if let Some((resumption, body)) = continued.filter(|(resumption, _)| resumption.has_resource()) {
                let is_first = cause.is_none();
                let mut limit = TimeLimit::new(self.max_time);
                let run = self.as_run();
                match resumption.finish(run, &mut limit, body, cause.take()).await {
                    // It may redirect, as the response to any other upload.
                    End::Answered(response) => answered = Some(self.checked(shown, response).await?),
                    End::Lost => return Ok(()),
                    // This run has sent nothing yet.
                    End::Gone(_) if is_first => {}
                    End::Gone(failed) => match retries.next(&failed) {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return Err(Broken::alone(failed)),
                    },
                    End::Failed(failed) => return Err(Broken::alone(failed)),
                }
            }
            if let Some(until) = self.pauses.until(&url) {
                tokio::time::sleep_until(until).await;
            }
            let pass = self.gate.enter().await;
            // A file that is read while it is sent is held back by TCP.
            let bytes = match length <= content::SMALL {
                true => Some(self.window.enter(length).await),
                false => None,
            };
            let limit = TimeLimit::new(self.max_time);
            let begun = Instant::now();
            let head = self.head(&url, shown, length, modified);
            let attempt = self.followed(head, modified, body, continued, answered.take());
            let broken = match limit.hold(shown, attempt).await {
                Ok(Ok(())) => {
                    if let Some(bytes) = bytes {
                        bytes.succeeded();
                    }
                    pass.succeeded();
                    return Ok(());
                }
                Ok(Err(broken)) => broken,
                Err(late) => Broken::alone(late),
            };
            drop(bytes);
            if let Some(fault) = fault() {
                return Err(Broken::alone(Failed::permanent(fault)));
            }
            if continued.is_some_and(|(resumption, _)| resumption.may_continue(&broken.failed)) {
                drop(pass);
                cause = Some(broken.failed);
                continue;
            }
            let mut pause = None;
            if broken.failed.is_busy() {
                pass.refused();
                // While others succeed, it is only a matter of time.
                let succeeded = self.succeeded.load(Ordering::Relaxed);
                if succeeded != seen {
                    (patience, seen) = (Retries::new(PATIENCE), succeeded);
                }
                pause = patience.next(&broken.failed);
            } else {
                drop(pass);
            }
            let Some(pause) = pause.or_else(|| retries.next(&broken.failed)) else {
                return Err(broken);
            };
            match broken.failed.is_busy() {
                true => tokio::time::sleep(pause).await,
                false => {
                    let now = Instant::now();
                    let until = self.pauses.after(&url, &broken.failed, begun, now, pause);
                    tokio::time::sleep_until(until).await;
                }
            }
        }
    }

    /// The head of the first request.
    fn head(&self, url: &Url, shown: &str, length: u64, modified: Option<i64>) -> Head {
        let mut head = Head {
            url: url.clone(),
            shown: shown.to_owned(),
            fields: self.fields.clone(),
        };
        head.fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        if let Some(second) = modified {
            head.fields.entry(&MODIFIED).or_insert(HeaderValue::from(second));
        }
        head
    }

    /// Sends a file once, and follows redirects. `answered` is the response to an upload that was continued.
    async fn followed<B>(
        &self,
        mut head: Head,
        modified: Option<i64>,
        body: &B,
        continued: Continued<'_>,
        mut answered: Option<Response<Incoming>>,
    ) -> Result<(), Broken>
    where
        B: Body<Data = Bytes> + Clone + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut followed = 0;
        loop {
            let response = match answered.take() {
                Some(response) => response,
                None => {
                    let body = Counted::new(body.clone(), Some(&self.progress));
                    let paced = Paced::new(body, self.rate.clone());
                    self.once(&head, paced, continued).await?
                }
            };
            let status = response.status();
            let found = (status, response.headers());
            let next = match status {
                // The upload was processed, and its result is elsewhere (RFC 9110 section 15.4.4).
                StatusCode::SEE_OTHER => None,
                _ => self
                    .redirects
                    .next(&head.url, &head.shown, found, followed)
                    .map_err(|failure| Broken::alone(Failed::permanent(failure)))?,
            };
            let Some(next) = next else {
                let has_taken_time = response.headers().contains_key(&MODIFIED);
                if modified.is_some() && !has_taken_time {
                    self.keeps_times.store(false, Ordering::Relaxed);
                }
                return self.drain(&head.shown, response).await;
            };
            followed += 1;
            let kept = [CONTENT_LENGTH, MODIFIED.clone()].map(|name| (head.fields.get(&name).cloned(), name));
            self.request_fields
                .after_redirect(&mut head.fields, &head.url, &next);
            for (value, name) in kept {
                if let Some(value) = value {
                    head.fields.insert(name, value);
                }
            }
            head.shown = shown_url(next.url.as_str());
            head.url = next.url;
        }
    }

    async fn once<B>(
        &self,
        head: &Head,
        body: B,
        continued: Continued<'_>,
    ) -> Result<Response<Incoming>, Broken>
    where
        B: Body<Data = Bytes> + Clone + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let request = Request::builder().method(Method::PUT).uri(head.url.as_str());
        let mut request = request.body(body).map_err(|error| {
            let failure = Failure::new(Exit::BadUrl, format!("{}: {error}", head.shown));
            Broken::alone(Failed::permanent(failure))
        })?;
        *request.headers_mut() = head.fields.clone();
        let response = match continued {
            None => self.client.request_repeatable(request).await,
            Some((resumption, file)) => {
                resource::ask(request.headers_mut(), file.length());
                match resumption.create(self.as_run(), &head.url, request, file).await {
                    Ok(response) => Ok(response),
                    Err(Stopped::Library(error)) => Err(error),
                    Err(Stopped::Failed(failed)) => return Err(Broken::alone(failed)),
                }
            }
        };
        let response = response.map_err(|error| Broken {
            failed: Failed::of(&head.shown, &error),
            ends_run: error.is_connect(),
        })?;
        self.checked(&head.shown, response).await
    }

    async fn checked(&self, shown: &str, response: Response<Incoming>) -> Result<Response<Incoming>, Broken> {
        let status = response.status();
        match check_status(shown, &response, Asked::upload(&self.fields)) {
            Ok(()) => Ok(response),
            Err(failure) => {
                // Credentials, the method, and the space of the disk are the same for all.
                let of_all = matches!(status.as_u16(), 401 | 405 | 407 | 501 | 507);
                Err(Broken {
                    failed: Failed::by_status(failure, &response).with_body(response).await,
                    ends_run: of_all,
                })
            }
        }
    }

    /// Reads the response to its end, which says that it is whole.
    async fn drain(&self, shown: &str, response: Response<Incoming>) -> Result<(), Broken> {
        let mut body = response.into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Broken::alone(Failed::of(shown, &error)))?;
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
            if read > DRAINED {
                break;
            }
        }
        Ok(())
    }
}
