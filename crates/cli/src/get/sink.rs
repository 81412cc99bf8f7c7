//! A body's way from the library to its place, with few writes, bounded memory and no wait for the disk.
//!
//! Chunks are gathered as they come, by reference, and handed to a blocking thread up to a MiB at a time, while the
//! next ones are gathered. A small body is one such job: create, write and rename. `get` and `put` call `receive`;
//! the blocking half is `draft`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::Incoming;
use http_body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use crate::exit::{Exit, Failure};

use super::draft::{Draft, Shared};
use super::part_names::PartNames;
use super::progress::Progress;
use super::target::Target;
use super::version::Extent;

/// As much as one write takes. Past a MiB a system call's cost is lost among the copying.
const FULL: usize = 1 << 20;
/// As little as is worth a blocking job of its own while the body goes on.
const WORTH_A_JOB: usize = 64 << 10;
/// Bytes that all bodies of a run together may hold back for a larger write; past it each writes what it has at once.
const GATHERED_BY_ALL: usize = 64 << 20;
/// Files kept open between two writes. Those beyond it are opened for each write, so that 10,000 large files in
/// parallel keep below the usual limit of 1,024 (256 on macOS) descriptors, and none has to wait for another.
const FILES_KEPT_OPEN: usize = 128;

/// What the bodies of a run share: memory and file descriptors.
pub(crate) struct Disk {
    memory: Arc<Semaphore>,
    shared: Shared,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self {
            memory: Arc::new(Semaphore::new(GATHERED_BY_ALL)),
            shared: Shared {
                files: Arc::new(Semaphore::new(FILES_KEPT_OPEN)),
                names: Arc::new(PartNames::of_user()),
            },
        }
    }

    /// A draft of the target, of which nothing is written.
    pub(super) fn draft(&self, target: Target) -> Draft {
        Draft::new(target, self.shared.clone())
    }
}

/// Receives the whole body into the target and counts what came, even if it fails. `place` is the URL, for messages.
///
/// # Errors
/// The body broke off, or the target cannot be written. Nothing of the file is left then.
pub(crate) async fn receive(
    place: &str,
    body: &mut Incoming,
    target: Target,
    disk: &Disk,
    progress: &Progress,
    received: &mut u64,
) -> Result<(), Failure> {
    let draft = disk.draft(target);
    match receive_into(draft, body, disk, progress, received, Bounds::default()).await {
        Ok(Received::Whole) => Ok(()),
        Err(Broken::Body(error, _)) => Err(Failure::from_library(place, &error)),
        Err(Broken::Target(failure)) => Err(failure),
        // A body without bounds ends where it ends.
        Ok(Received::Short(_)) | Err(Broken::Length(_) | Broken::Late(_)) => {
            let text = format!("{place}: the body has another length by a fault of this program");
            Err(Failure::new(Exit::Other, text))
        }
    }
}

/// How receiving a body failed.
pub(super) enum Broken {
    /// The body broke off. The draft has all that came.
    Body(fullbore::Error, Draft),
    /// The deadline has passed.
    Late(Draft),
    /// The body is not as long as its range.
    Length(Draft),
    /// The target cannot be written.
    Target(Failure),
}

/// How much of the whole there is after a body has come.
pub(super) enum Received {
    /// All, under its name.
    Whole,
    /// Less: the range ends before the whole does.
    Short(Draft),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Broken::Target(failure)
    }
}

/// What ends a body beside itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Bounds {
    /// Where the body of a 206 response ends.
    pub(super) extent: Option<Extent>,
    /// When the try has taken too long.
    pub(super) deadline: Option<Instant>,
}

/// Receives a body behind what the draft has of it.
///
/// # Errors
/// See [`Broken`].
pub(super) async fn receive_into(
    draft: Draft,
    body: &mut Incoming,
    disk: &Disk,
    progress: &Progress,
    received: &mut u64,
    bounds: Bounds,
) -> Result<Received, Broken> {
    if let Some(length) = body.size_hint().exact() {
        progress.expect(length);
    }
    let mut count = |bytes: usize| {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        *received += bytes;
        progress.moved(bytes);
    };
    let mut sink = Sink::new(draft, disk);
    loop {
        let step = poll_fn(|cx| sink.poll_step(cx, body, &mut count));
        let step = match bounds.deadline {
            None => step.await,
            Some(at) => match timeout_at(at, step).await {
                Ok(step) => step,
                Err(_) => return Err(Broken::Late(sink.keep().await?)),
            },
        };
        match step {
            Step::Write => sink.begin_write(),
            Step::Wrote(draft) => sink.draft = Some(draft?),
            Step::Failed(error) => return Err(Broken::Body(error, sink.keep().await?)),
            Step::End => break,
        }
    }
    match bounds.extent {
        Some(extent) if *received != extent.end => Err(Broken::Length(sink.keep().await?)),
        Some(extent) if extent.end < extent.total => Ok(Received::Short(sink.keep().await?)),
        _ => {
            sink.finish().await?;
            Ok(Received::Whole)
        }
    }
}

/// The async half: what was gathered, and the draft, which is either here or away at a write.
struct Sink<'a> {
    disk: &'a Disk,
    discard: bool,
    draft: Option<Draft>,
    write: Option<JoinHandle<Result<Draft, Failure>>>,
    gathered: Gathered,
}

enum Step {
    Write,
    Wrote(Result<Draft, Failure>),
    Failed(fullbore::Error),
    End,
}

impl<'a> Sink<'a> {
    fn new(draft: Draft, disk: &'a Disk) -> Self {
        Self {
            disk,
            discard: draft.discards(),
            draft: Some(draft),
            write: None,
            gathered: Gathered::default(),
        }
    }

    /// Gathers what is there, and says what is to be done next.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
        count: &mut impl FnMut(usize),
    ) -> Poll<Step> {
        if let Some(write) = &mut self.write {
            if let Poll::Ready(joined) = Pin::new(write).poll(cx) {
                self.write = None;
                return Poll::Ready(Step::Wrote(flatten(joined)));
            }
        }
        let mut starved = false;
        while !self.gathered.is_full() && !starved {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(Step::End),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Step::Failed(error)),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers say nothing that a file could keep.
                    if let Ok(data) = frame.into_data() {
                        count(data.len());
                        if !self.discard {
                            self.gathered.push(data, &self.disk.memory);
                        }
                    }
                }
                Poll::Pending => starved = true,
            }
        }
        let worth_a_job = self.gathered.is_worth_a_job();
        if self.write.is_none() && (!starved || worth_a_job) {
            return Poll::Ready(Step::Write);
        }
        if starved && !worth_a_job {
            self.gathered.compact();
        }
        Poll::Pending
    }

    fn begin_write(&mut self) {
        if let Some(mut draft) = self.draft.take() {
            let gathered = std::mem::take(&mut self.gathered);
            self.write = Some(spawn_blocking(move || {
                draft.append(&gathered.chunks)?;
                Ok(draft)
            }));
        }
    }

    /// Writes what was gathered, and hands the draft back.
    async fn keep(mut self) -> Result<Draft, Failure> {
        let draft = match self.write.take() {
            Some(write) => Some(flatten(write.await)?),
            None => self.draft.take(),
        };
        // Away at a write or here: it cannot be in neither place.
        let lost = || Failure::new(Exit::Other, "a file was lost by a fault of this program");
        let mut draft = draft.ok_or_else(lost)?;
        let gathered = std::mem::take(&mut self.gathered);
        if self.discard || gathered.chunks.is_empty() {
            return Ok(draft);
        }
        flatten(
            spawn_blocking(move || {
                draft.append(&gathered.chunks)?;
                Ok(draft)
            })
            .await,
        )
    }

    async fn finish(mut self) -> Result<(), Failure> {
        if self.discard {
            return Ok(());
        }
        if let Some(write) = self.write.take() {
            self.draft = Some(flatten(write.await)?);
        }
        let gathered = std::mem::take(&mut self.gathered);
        match self.draft.take() {
            None => Ok(()),
            Some(draft) => flatten(spawn_blocking(move || draft.finish(&gathered.chunks)).await),
        }
    }
}

fn flatten<T>(joined: Result<Result<T, Failure>, JoinError>) -> Result<T, Failure> {
    joined.unwrap_or_else(|error| {
        Err(Failure::new(
            Exit::Other,
            format!("a write stopped by a fault of this program: {error}"),
        ))
    })
}

/// Chunks that wait to be written, and the share of the run's memory that they hold.
#[derive(Default)]
struct Gathered {
    chunks: Vec<Bytes>,
    bytes: usize,
    share: Option<OwnedSemaphorePermit>,
    /// The run's memory is used up: write now.
    pressed: bool,
    /// The chunks are one, and it is a copy.
    compact: bool,
}

impl Gathered {
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

    /// Copies the little there is into a buffer of its size: a chunk may be a small slice of a large receive buffer,
    /// and would keep all of it alive while this body waits for more.
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
    fn push(gathered: &mut Gathered, bytes: usize, memory: &Arc<Semaphore>) {
        let octets: Vec<u8> = (0..bytes).map(|at| (gathered.bytes + at) as u8).collect();
        gathered.push(Bytes::from(octets), memory);
    }

    #[test]
    fn bodies_of_a_run_share_64_mib_and_128_open_files() {
        let disk = Disk::new();
        assert_eq!(disk.memory.available_permits(), 64 << 20);
        assert_eq!(disk.shared.files.available_permits(), 128);
    }

    #[test]
    fn what_is_gathered_is_worth_a_job_from_64_kib_on_and_full_at_a_mib() {
        let memory = Arc::new(Semaphore::new(2 << 20));
        let mut gathered = Gathered::default();
        for (bytes, is_worth_a_job, is_full) in [
            (0, false, false),
            (65_535, false, false),
            (65_536, true, false),
            (1_048_575, true, false),
            (1_048_576, true, true),
        ] {
            let more = bytes - gathered.bytes;
            push(&mut gathered, more, &memory);
            assert_eq!(gathered.bytes, bytes);
            assert_eq!(gathered.is_worth_a_job(), is_worth_a_job, "{bytes}");
            assert_eq!(gathered.is_full(), is_full, "{bytes}");
        }
    }

    #[test]
    fn what_is_gathered_holds_its_share_of_the_memory_until_it_is_written() {
        let memory = Arc::new(Semaphore::new(100));
        let mut gathered = Gathered::default();
        push(&mut gathered, 0, &memory);
        assert!(gathered.chunks.is_empty() && gathered.share.is_none());
        push(&mut gathered, 60, &memory);
        push(&mut gathered, 40, &memory);
        assert_eq!(memory.available_permits(), 0);
        assert!(!gathered.is_full());
        // Past the end of it, what there is is written at once.
        push(&mut gathered, 1, &memory);
        assert!(gathered.is_full());
        assert_eq!((gathered.bytes, gathered.chunks.len()), (101, 3));
        drop(gathered);
        assert_eq!(memory.available_permits(), 100);
    }

    #[test]
    fn the_little_that_waits_is_copied_once() {
        let memory = Arc::new(Semaphore::new(100));
        let mut gathered = Gathered::default();
        gathered.compact();
        assert!(gathered.chunks.is_empty());
        push(&mut gathered, 3, &memory);
        push(&mut gathered, 4, &memory);
        gathered.compact();
        assert_eq!(gathered.chunks, [Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6])]);
        let place = gathered.chunks[0].as_ptr();
        gathered.compact();
        assert_eq!(gathered.chunks[0].as_ptr(), place, "it was copied again");
        push(&mut gathered, 1, &memory);
        assert_eq!(gathered.chunks.len(), 2);
        gathered.compact();
        assert_eq!(gathered.chunks, [Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6, 7])]);
        assert_eq!(gathered.bytes, 8);
    }
}
