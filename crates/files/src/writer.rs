//! From the octets of an upload to its file: they are gathered into batches, and blocking jobs write those.
//!
//! An upload takes a slot with its first octet, and a descriptor with its first batch; one of which nothing has come
//! takes neither. Called by `uploads`; `store` is the file.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use cap_std::fs::Dir;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::room::{Room, Slot};
use crate::store::{Part, Published};

/// How many pieces a batch has at most, so that a peer that sends single octets does not fill memory with their
/// bookkeeping; as many as one vectored write takes on Linux.
const MAX_BATCH_SLICES: usize = 1024;

/// Where an upload goes, and where it comes from.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: Arc<Dir>,
    /// A single segment that may be stored.
    pub(crate) name: String,
    /// Where it comes from, if that is known.
    pub(crate) peer: Option<IpAddr>,
}

/// Why an upload cannot be stored.
#[derive(Debug)]
pub(crate) enum Failure {
    /// As many uploads are under way as may be.
    Busy,
    /// What the system said.
    Io(io::Error),
    /// A job did not end as it should.
    Lost,
}

/// Gathers what arrives, and has it written: one batch at the disk, the next one gathering.
pub(crate) struct Writer {
    room: Arc<Room>,
    place: Arc<Place>,
    state: State,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// When the first octets of the batch came.
    since: Option<Instant>,
}

enum State {
    /// No octet has come.
    New,
    Ready(Begun),
    Writing(JoinHandle<io::Result<Begun>>),
    /// While one becomes the other; and for good when a write failed.
    Broken,
}

/// An upload that holds memory, and a descriptor once it has a part. Dropping it removes what was written.
struct Begun {
    part: Option<Part>,
    /// Dropped after the part: a descriptor is counted until it is closed.
    slot: Slot,
}

impl Writer {
    pub(crate) fn new(room: Arc<Room>, place: Arc<Place>) -> Writer {
        Writer {
            room,
            place,
            state: State::New,
            batch: Vec::new(),
            batch_bytes: 0,
            since: None,
        }
    }

    /// Takes what came.
    ///
    /// # Errors
    /// [`Failure`], also of earlier octets; the upload is then of no use.
    pub(crate) async fn push(&mut self, data: Bytes) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        self.begin()?;
        self.batch_bytes += data.len();
        self.batch.push(data);
        self.since.get_or_insert_with(Instant::now);
        if self.batch_bytes >= self.room.batch_bytes() || self.batch.len() >= MAX_BATCH_SLICES {
            self.flush().await?;
        }
        Ok(())
    }

    /// When [`Self::flush`] should be called if nothing comes before; none while nothing waits to be written.
    pub(crate) fn flush_at(&self) -> Option<Instant> {
        self.since.map(|since| since + self.room.flush_after())
    }

    /// Starts to write the batch, once the one before is written.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        let mut begun = self.ready().await?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.since = None;
        let (room, place) = (Arc::clone(&self.room), Arc::clone(&self.place));
        self.state = State::Writing(spawn_blocking(move || {
            begun.write(&room, &place, &batch)?;
            Ok(begun)
        }));
        Ok(())
    }

    /// Writes what is left and gives the file its name, in place of one that has it if `replace`. This is done in a task
    /// of its own: an upload that has come whole is stored even if its peer goes away now.
    ///
    /// # Errors
    /// As [`Self::push`]; what [`Part::publish`] says.
    pub(crate) async fn publish(mut self, replace: bool) -> Result<Published, Failure> {
        self.begin()?;
        let task = tokio::spawn(async move {
            let mut begun = self.ready().await?;
            let job = spawn_blocking(move || {
                begun.write(&self.room, &self.place, &self.batch)?;
                begun.publish(&self.place, replace)
            });
            job.await.map_err(|_| Failure::Lost)?.map_err(Failure::Io)
        });
        task.await.map_err(|_| Failure::Lost)?
    }

    /// Removes what was written, so that it is gone before the peer hears of it.
    pub(crate) async fn abandon(mut self) {
        if !matches!(self.state, State::New) {
            drop(self.ready().await);
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        if matches!(self.state, State::New) {
            let slot = self.room.admit(self.place.peer).ok_or(Failure::Busy)?;
            self.state = State::Ready(Begun { part: None, slot });
        }
        Ok(())
    }

    async fn ready(&mut self) -> Result<Begun, Failure> {
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Ready(begun) => Ok(begun),
            State::Writing(job) => job.await.map_err(|_| Failure::Lost)?.map_err(Failure::Io),
            State::New | State::Broken => Err(Failure::Lost),
        }
    }
}

impl Begun {
    /// Appends a batch; makes the file if there is none. Blocks.
    fn write(&mut self, room: &Room, place: &Place, batch: &[Bytes]) -> io::Result<()> {
        let part = match &mut self.part {
            Some(part) => part,
            empty => empty.insert(Part::create(&place.directory, &place.name)?),
        };
        let bytes: usize = batch.iter().map(Bytes::len).sum();
        room.check_more(part.file(), bytes as u64)?;
        part.write(batch)
    }

    fn publish(self, place: &Place, replace: bool) -> io::Result<Published> {
        let Begun { part, slot } = self;
        let published = match part {
            Some(part) => part.publish(&place.name, replace),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        drop(slot);
        published
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cap_std::ambient_authority;

    use super::*;
    use crate::Settings;

    fn place(root: &tempfile::TempDir) -> Arc<Place> {
        Arc::new(Place {
            directory: Arc::new(Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap()),
            name: "a".to_owned(),
            peer: None,
        })
    }

    #[tokio::test]
    async fn a_batch_is_written_when_it_is_long_enough_or_has_1024_pieces() {
        for (batch_bytes, octets, pieces) in [(10, 1, 10), (10, 5, 2), (1 << 20, 1, 1024)] {
            let root = tempfile::tempdir().unwrap();
            let settings = Settings {
                upload_batch_bytes: batch_bytes,
                min_free_bytes: Some(0),
                ..Settings::default()
            };
            let mut writer = Writer::new(Room::new(&settings), place(&root));
            for round in 0..2 {
                for piece in 1..=pieces {
                    writer.push(Bytes::from(vec![7; octets])).await.unwrap();
                    let waits = writer.flush_at().is_some();
                    assert_eq!(waits, piece < pieces, "{piece} of {pieces}, round {round}");
                }
            }
            writer.publish(false).await.unwrap();
            let written = std::fs::read(root.path().join("a")).unwrap();
            assert_eq!(written, vec![7; 2 * octets * pieces]);
        }
    }

    #[tokio::test]
    async fn an_upload_holds_a_slot_from_its_first_octet_on_and_leaves_nothing_when_it_is_abandoned() {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings {
            max_uploads: 1,
            min_free_bytes: Some(0),
            ..Settings::default()
        };
        let room = Room::new(&settings);
        Writer::new(Arc::clone(&room), place(&root)).abandon().await;
        let mut writer = Writer::new(Arc::clone(&room), place(&root));
        writer.push(Bytes::new()).await.unwrap();
        assert_eq!(room.under_way(), 0);
        writer.push(Bytes::from("some")).await.unwrap();
        assert_eq!(room.under_way(), 1);
        let mut other = Writer::new(Arc::clone(&room), place(&root));
        let refused = other.push(Bytes::from("more")).await;
        assert!(matches!(refused, Err(Failure::Busy)), "{refused:?}");
        writer.flush().await.unwrap();
        writer.push(Bytes::from("more")).await.unwrap();
        writer.abandon().await;
        assert_eq!(room.under_way(), 0);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        other.push(Bytes::from("more")).await.unwrap();
        other.publish(false).await.unwrap();
        assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"more");
        assert_eq!(room.under_way(), 0);
    }

    #[tokio::test]
    async fn what_was_gathered_is_due_so_long_after_its_first_octets() {
        let root = tempfile::tempdir().unwrap();
        let after = Duration::from_secs(7);
        let settings = Settings {
            upload_flush_after: after,
            min_free_bytes: Some(0),
            ..Settings::default()
        };
        let mut writer = Writer::new(Room::new(&settings), place(&root));
        assert_eq!(writer.flush_at(), None);
        writer.push(Bytes::new()).await.unwrap();
        assert_eq!(writer.flush_at(), None);
        let earliest = Instant::now();
        writer.push(Bytes::from("some")).await.unwrap();
        let latest = Instant::now();
        let due = writer.flush_at().unwrap();
        assert!((earliest + after..=latest + after).contains(&due));
        // More octets put nothing off, and nothing is due once they are written.
        writer.push(Bytes::from("more")).await.unwrap();
        assert_eq!(writer.flush_at(), Some(due));
        writer.flush().await.unwrap();
        assert_eq!(writer.flush_at(), None);
        writer.publish(false).await.unwrap();
        assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"somemore");
    }
}
