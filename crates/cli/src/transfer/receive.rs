//! Receives a body into its target, with few writes, bounded memory, and no wait for the disk.
//!
//! Chunks are gathered by reference. A blocking thread writes up to a MiB at a time while the next chunks are gathered. A
//! small body is one job (`finisher`): create, write and rename. To standard output and devices, whose readers may wait for each line,
//! everything that has arrived is written as soon as no more has. `partial_file` is the blocking half.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use fullbore::client::range::Extent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use crate::exit::{Exit, Failure};
use crate::run::Leftovers;

use super::finisher::Finisher;
use super::partial_file::{PartialFile, Shared};
use super::parts::Parts;
use super::progress::Share;
use super::rate_limit::{Pacer, RateLimit};
use super::source::{Decoders, Source, SourceError};
use super::target::Target;
use super::waits::StreamWaits;

/// The size of a batch for one write. Beyond a MiB, the cost of the system call does not matter.
const FULL: usize = 1 << 20;
/// The smallest batch that is worth a blocking job while the body continues.
const WORTH_A_JOB: usize = 64 << 10;
/// Bytes that all bodies of a run together may gather. Beyond it, each body writes at once.
const GATHERED_BY_ALL: usize = 64 << 20;
/// Files kept open between two writes. Others are opened for each write, so 10,000 parallel files stay below the usual
/// limit of 1,024 descriptors (256 on macOS), and none waits for another.
const FILES_KEPT_OPEN: usize = 128;

/// What the bodies of a run share: memory, file descriptors and the rate.
pub(crate) struct Disk {
    memory: Arc<Semaphore>,
    shared: Shared,
    limit: Option<Arc<RateLimit>>,
    /// The most bytes that a body may have, decoded.
    most: Option<u64>,
    decoders: Decoders,
    finisher: Arc<Finisher>,
}

impl Disk {
    pub(crate) fn new(leftovers: Arc<Leftovers>) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(GATHERED_BY_ALL)),
            shared: Shared {
                files: Arc::new(Semaphore::new(FILES_KEPT_OPEN)),
                parts: Arc::new(Parts::of_user()),
                leftovers,
            },
            limit: None,
            most: None,
            decoders: Decoders::default(),
            finisher: Arc::default(),
        }
    }

    /// With a limit on the rate.
    pub(crate) fn at_rate(self, limit: Option<Arc<RateLimit>>) -> Self {
        Self { limit, ..self }
    }

    /// With bodies of at most so many bytes.
    pub(crate) fn with_most(self, most: Option<u64>) -> Self {
        Self { most, ..self }
    }

    /// What the decoders of the run share.
    pub(crate) fn decoders(&self) -> &Decoders {
        &self.decoders
    }

    /// An empty partial file for the target.
    pub(crate) fn file(&self, target: Target) -> PartialFile {
        PartialFile::new(target, self.shared.clone())
    }
}

/// Receives the whole body into the target, and counts the received bytes in `share` even if it fails. `place` is the URL,
/// for messages.
///
/// # Errors
/// The body failed, or the target cannot be written. The file is removed then.
pub(crate) async fn receive(
    place: &str,
    body: &mut Source,
    target: Target,
    disk: &Disk,
    share: &mut Share,
) -> Result<(), Failure> {
    let file = disk.file(target);
    match receive_into(file, body, disk, share, Bounds::default(), None).await {
        Ok(Received::Whole) => Ok(()),
        Err(ReceiveError::Body(error, _)) => Err(Failure::from_library(place, &error)),
        Err(ReceiveError::Target(failure)) => Err(failure),
        // A body without bounds has no wrong length.
        Ok(Received::Short(_))
        | Err(
            ReceiveError::Length(_)
            | ReceiveError::Late(_)
            | ReceiveError::Coding(_)
            | ReceiveError::TooLarge(_),
        ) => {
            let text = format!("{place}: the body has an unexpected length; this is an error of fullbore");
            Err(Failure::new(Exit::Other, text))
        }
    }
}

/// How receiving a body failed.
pub(crate) enum ReceiveError {
    /// The body failed. The file has all received bytes.
    Body(fullbore::Error, PartialFile),
    /// The deadline has passed.
    Late(PartialFile),
    /// The body's length differs from its range.
    Length(PartialFile),
    /// The target cannot be written.
    Target(Failure),
    /// The body is not what its content coding says.
    Coding(String),
    /// The body has more than this many bytes.
    TooLarge(u64),
}

/// How much of the whole has been received.
pub(crate) enum Received {
    /// All, under its name.
    Whole,
    /// Less: the range ends before the whole.
    Short(PartialFile),
}

impl From<Failure> for ReceiveError {
    fn from(failure: Failure) -> Self {
        ReceiveError::Target(failure)
    }
}

/// The bounds of a body.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// Where the body of a 206 response ends.
    pub(crate) extent: Option<Extent>,
    /// So many bytes at the beginning of the body are in the file.
    pub(crate) known: u64,
    /// When the attempt has taken too long.
    pub(crate) deadline: Option<Instant>,
}

/// Receives a body and appends it to the file. `waited` is set when the last byte has come: the ledger of the stream would
/// count the time of the last write as well.
///
/// # Errors
/// See [`ReceiveError`].
pub(crate) async fn receive_into(
    file: PartialFile,
    body: &mut Source,
    disk: &Disk,
    share: &mut Share,
    bounds: Bounds,
    waited: Option<&mut Option<StreamWaits>>,
) -> Result<Received, ReceiveError> {
    if let Some(length) = body.length() {
        share.expect_more(length.saturating_sub(bounds.known));
    }
    // The body begins with what is known, and that has been counted.
    let counted = share.bytes().saturating_sub(bounds.known);
    let left = disk.most.map(|most| most.saturating_sub(counted));
    if let Some(most) = disk.most.filter(|_| body.length() > left) {
        return Err(ReceiveError::TooLarge(most));
    }
    let mut count = |bytes: usize| share.moved(u64::try_from(bytes).unwrap_or(u64::MAX));
    let mut writer = BodyWriter::new(file, disk, left);
    writer.known = bounds.known;
    loop {
        let step = poll_fn(|cx| writer.poll_step(cx, body, &mut count));
        let step = match bounds.deadline {
            None => step.await,
            Some(at) => match timeout_at(at, step).await {
                Ok(step) => step,
                Err(_) => return Err(ReceiveError::Late(writer.keep().await?)),
            },
        };
        match step {
            Step::Write => writer.begin_write(),
            Step::Wrote(file) => writer.file = Some(file?),
            Step::Failed(SourceError::Body(error)) => {
                return Err(ReceiveError::Body(error, writer.keep().await?));
            }
            Step::Failed(SourceError::Coding(error)) => return Err(ReceiveError::Coding(error)),
            Step::TooLarge => return Err(ReceiveError::TooLarge(disk.most.unwrap_or_default())),
            Step::End => break,
        }
    }
    if let Some(waited) = waited {
        *waited = body.report().await.map(|report| StreamWaits::receiving(&report));
    }
    let known = writer.known;
    match bounds.extent {
        // It ended before the bytes that are new.
        _ if known > 0 => Err(ReceiveError::Length(writer.keep().await?)),
        Some(extent) if share.bytes() != extent.end => Err(ReceiveError::Length(writer.keep().await?)),
        Some(extent) if extent.end < extent.total => Ok(Received::Short(writer.keep().await?)),
        _ => {
            writer.finish().await?;
            Ok(Received::Whole)
        }
    }
}

/// The async half. The file is either here or in a write.
struct BodyWriter<'a> {
    disk: &'a Disk,
    discard: bool,
    /// A batch of any size is written when no more has arrived.
    prompt: bool,
    file: Option<PartialFile>,
    write: Option<JoinHandle<Result<PartialFile, Failure>>>,
    batch: Batch,
    pacer: Pacer,
    /// So many of the next bytes are in the file.
    known: u64,
    /// How many more bytes the body may have.
    left: Option<u64>,
}

enum Step {
    Write,
    Wrote(Result<PartialFile, Failure>),
    Failed(SourceError),
    TooLarge,
    End,
}

impl<'a> BodyWriter<'a> {
    fn new(file: PartialFile, disk: &'a Disk, left: Option<u64>) -> Self {
        Self {
            disk,
            discard: file.discards(),
            prompt: file.is_read_at_once(),
            file: Some(file),
            write: None,
            batch: Batch::default(),
            pacer: Pacer::new(disk.limit.clone()),
            known: 0,
            left,
        }
    }

    /// Gathers available chunks, and returns the next step.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Source,
        count: &mut impl FnMut(usize),
    ) -> Poll<Step> {
        if let Some(write) = &mut self.write {
            if let Poll::Ready(joined) = Pin::new(write).poll(cx) {
                self.write = None;
                return Poll::Ready(Step::Wrote(flatten(joined)));
            }
        }
        let mut starved = false;
        let mut discarded = 0;
        while !self.batch.is_full() && !starved {
            if self.pacer.poll_ready(cx).is_pending() {
                starved = true;
                break;
            }
            match body.poll_chunk(cx) {
                Poll::Ready(None) => return Poll::Ready(Step::End),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Step::Failed(error)),
                Poll::Ready(Some(Ok(mut data))) => {
                    if let Some(left) = &mut self.left {
                        match left.checked_sub(data.len() as u64) {
                            Some(less) => *left = less,
                            None => return Poll::Ready(Step::TooLarge),
                        }
                    }
                    self.pacer.moved(data.len());
                    self.skip_known(&mut data);
                    count(data.len());
                    if !self.discard {
                        self.batch.push(data, &self.disk.memory);
                        continue;
                    }
                    discarded += data.len();
                    if discarded >= FULL {
                        // A decoder never waits that has input for gigabytes: others have their turn.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Pending => starved = true,
            }
        }
        let worth_a_job = match self.prompt {
            true => !self.batch.chunks.is_empty(),
            false => self.batch.is_worth_a_job(),
        };
        if self.write.is_none() && (!starved || worth_a_job) {
            return Poll::Ready(Step::Write);
        }
        if starved && !worth_a_job {
            self.batch.compact();
        }
        Poll::Pending
    }

    /// Takes off the bytes that are in the file.
    fn skip_known(&mut self, data: &mut Bytes) {
        if self.known > 0 {
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let known = self.known.min(length);
            self.known -= known;
            data.advance(usize::try_from(known).unwrap_or(data.len()));
        }
    }

    fn begin_write(&mut self) {
        if let Some(mut file) = self.file.take() {
            let batch = std::mem::take(&mut self.batch);
            self.write = Some(spawn_blocking(move || {
                file.append(&batch.chunks)?;
                Ok(file)
            }));
        }
    }

    /// Writes the batch, and returns the file.
    async fn keep(mut self) -> Result<PartialFile, Failure> {
        let file = match self.write.take() {
            Some(write) => Some(flatten(write.await)?),
            None => self.file.take(),
        };
        // The file is always in one of the two places.
        let lost = || Failure::new(Exit::Other, "a file was lost; this is an error of fullbore");
        let mut file = file.ok_or_else(lost)?;
        let batch = std::mem::take(&mut self.batch);
        if self.discard || batch.chunks.is_empty() {
            return Ok(file);
        }
        file_job(move || {
            file.append(&batch.chunks)?;
            Ok(file)
        })
        .await
    }

    async fn finish(mut self) -> Result<(), Failure> {
        if self.discard {
            return Ok(());
        }
        if let Some(write) = self.write.take() {
            self.file = Some(flatten(write.await)?);
        }
        let batch = std::mem::take(&mut self.batch);
        match self.file.take() {
            None => Ok(()),
            // A pipe may wait for its reader, and no other file is to wait with it.
            Some(file) if self.prompt => file_job(move || file.finish(&batch.chunks)).await,
            Some(file) => self.disk.finisher.run(move || file.finish(&batch.chunks)).await,
        }
    }
}

/// Runs a job on a blocking thread.
pub(crate) async fn file_job<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    flatten(spawn_blocking(job).await)
}

fn flatten<T>(joined: Result<Result<T, Failure>, JoinError>) -> Result<T, Failure> {
    joined.unwrap_or_else(|error| {
        Err(Failure::new(
            Exit::Other,
            format!("a write failed by an error of fullbore: {error}"),
        ))
    })
}

/// Chunks that wait to be written, and their share of the run's memory.
#[derive(Default)]
struct Batch {
    chunks: Vec<Bytes>,
    bytes: usize,
    share: Option<OwnedSemaphorePermit>,
    /// The memory of the run is used up: write now.
    pressed: bool,
    /// There is one chunk, and it is a copy.
    compact: bool,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= FULL || self.pressed
    }

    fn is_worth_a_job(&self) -> bool {
        self.bytes >= WORTH_A_JOB
    }

    fn push(&mut self, data: Bytes, memory: &Arc<Semaphore>) {
        if data.is_empty() {
            return;
        }
        let share = u32::try_from(data.len())
            .ok()
            .and_then(|bytes| Arc::clone(memory).try_acquire_many_owned(bytes).ok());
        match (share, &mut self.share) {
            (None, _) => self.pressed = true,
            (Some(share), Some(held)) => held.merge(share),
            (Some(share), held) => *held = Some(share),
        }
        self.bytes += data.len();
        self.compact = false;
        self.chunks.push(data);
    }

    /// Copies a small batch into a buffer of its size. Otherwise its chunks may keep large receive buffers alive while this
    /// body waits.
    fn compact(&mut self) {
        if !self.compact && !self.chunks.is_empty() {
            self.chunks = vec![Bytes::from(self.chunks.concat())];
            self.compact = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes so many octets, of which each differs from the one before.
    fn push(batch: &mut Batch, bytes: usize, memory: &Arc<Semaphore>) {
        let octets: Vec<u8> = (0..bytes).map(|at| (batch.bytes + at) as u8).collect();
        batch.push(Bytes::from(octets), memory);
    }

    #[test]
    fn bodies_of_a_run_share_64_mib_and_128_open_files() {
        let disk = Disk::new(Arc::default());
        assert_eq!(disk.memory.available_permits(), 64 << 20);
        assert_eq!(disk.shared.files.available_permits(), 128);
    }

    #[test]
    fn what_is_gathered_is_worth_a_job_from_64_kib_on_and_full_at_a_mib() {
        let memory = Arc::new(Semaphore::new(2 << 20));
        let mut batch = Batch::default();
        for (bytes, is_worth_a_job, is_full) in [
            (0, false, false),
            (65_535, false, false),
            (65_536, true, false),
            (1_048_575, true, false),
            (1_048_576, true, true),
        ] {
            let more = bytes - batch.bytes;
            push(&mut batch, more, &memory);
            assert_eq!(batch.bytes, bytes);
            assert_eq!(batch.is_worth_a_job(), is_worth_a_job, "{bytes}");
            assert_eq!(batch.is_full(), is_full, "{bytes}");
        }
    }

    #[test]
    fn what_is_gathered_holds_its_share_of_the_memory_until_it_is_written() {
        let memory = Arc::new(Semaphore::new(100));
        let mut batch = Batch::default();
        push(&mut batch, 0, &memory);
        assert!(batch.chunks.is_empty() && batch.share.is_none());
        push(&mut batch, 60, &memory);
        push(&mut batch, 40, &memory);
        assert_eq!(memory.available_permits(), 0);
        assert!(!batch.is_full());
        // Past the end of it, what there is is written at once.
        push(&mut batch, 1, &memory);
        assert!(batch.is_full());
        assert_eq!((batch.bytes, batch.chunks.len()), (101, 3));
        drop(batch);
        assert_eq!(memory.available_permits(), 100);
    }

    #[test]
    fn the_little_that_waits_is_copied_once() {
        let memory = Arc::new(Semaphore::new(100));
        let mut batch = Batch::default();
        batch.compact();
        assert!(batch.chunks.is_empty());
        push(&mut batch, 3, &memory);
        push(&mut batch, 4, &memory);
        batch.compact();
        assert_eq!(batch.chunks, [Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6])]);
        let place = batch.chunks[0].as_ptr();
        batch.compact();
        assert_eq!(batch.chunks[0].as_ptr(), place, "it was copied again");
        push(&mut batch, 1, &memory);
        assert_eq!(batch.chunks.len(), 2);
        batch.compact();
        assert_eq!(batch.chunks, [Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6, 7])]);
        assert_eq!(batch.bytes, 8);
    }
}
