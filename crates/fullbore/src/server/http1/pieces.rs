//! Ranges of files, read in pieces just before hyper writes them.
//!
//! A connection holds one piece, until the transport has taken it. Pieces of all connections together are bounded.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::file::FileRange;
use crate::http1::Meter;

/// The length of a piece, which one system call writes: pieces of 128 KiB cost a tenth more CPU on loopback.
const PIECE: usize = 512 << 10;

/// The length of a piece while all pieces have [`ALL_PIECES`] bytes, so that many slow readers hold little.
const SHORT_PIECE: usize = 16 << 10;

/// Where a long piece begins in its memory: as `FETCH_START` of the engine's lists, so that the copy into TLS records is fast.
const START: usize = 512;

/// The bytes of long pieces of all connections of the process.
const ALL_PIECES: usize = 64 << 20;

static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Memory for a long piece, which connections of a thread use one after the other.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads the next piece off a range. The connection holds it until it is dropped.
///
/// # Errors
/// The file ends before the range, or another error of the system.
pub(super) fn read_piece(range: &mut FileRange, meter: &Arc<Meter>) -> io::Result<Bytes> {
    let mut piece = Piece::new(range.len(), meter);
    let range = range.split_to(if piece.long { PIECE } else { SHORT_PIECE });
    piece.length = range.len();
    let end = piece.start + piece.length;
    range.read_into(&mut piece.memory[piece.start..end])?;
    Ok(Bytes::from_owner(piece))
}

struct Piece {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    /// Counted in [`HELD`].
    long: bool,
    meter: Arc<Meter>,
}

impl Piece {
    /// Memory for a piece of `length` bytes or less.
    fn new(length: usize, meter: &Arc<Meter>) -> Self {
        meter.hold_piece();
        let long = length > SHORT_PIECE && is_room_for_long();
        let (start, memory) = if long {
            let mut memory = SPARE.try_with(Cell::take).unwrap_or_default();
            memory.resize(START + PIECE, 0);
            (START, memory)
        } else {
            (0, vec![0; length.min(SHORT_PIECE)])
        };
        Piece {
            memory,
            start,
            length: 0,
            long,
            meter: Arc::clone(meter),
        }
    }
}

/// Counts a long piece, unless long pieces take all that they may.
fn is_room_for_long() -> bool {
    let is_room = HELD.fetch_add(PIECE, Ordering::Relaxed) <= ALL_PIECES - PIECE;
    if !is_room {
        HELD.fetch_sub(PIECE, Ordering::Relaxed);
    }
    is_room
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.meter.drop_piece();
        if self.long {
            HELD.fetch_sub(PIECE, Ordering::Relaxed);
            // A thread that is ending keeps none.
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.memory)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::task::{Context, Waker};

    use fullbore_testing::wakes::Wakes;

    use super::*;
    use crate::file::OpenFile;

    /// A file without a name of so many zeros.
    fn zeros(length: u64) -> Arc<OpenFile> {
        let name = format!("fullbore-pieces-{}-{length}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        let _ = std::fs::remove_file(&path);
        file.set_len(length).unwrap();
        OpenFile::new(file)
    }

    #[test]
    fn pieces_are_short_while_others_hold_all_that_they_may() {
        const LENGTH: usize = 2 * ALL_PIECES;
        let mut range = FileRange::new(zeros(LENGTH as u64), 0, LENGTH);
        let mut read = || read_piece(&mut range, &Arc::default()).unwrap();
        let mut held: Vec<_> = (0..ALL_PIECES / PIECE).map(|_| read()).collect();
        assert!(held.iter().all(|piece| piece.len() == PIECE));
        assert_eq!(read().len(), SHORT_PIECE);
        held.pop();
        assert_eq!(read().len(), PIECE);
        drop(held);
        assert_eq!(HELD.load(Ordering::Relaxed), 0);
        assert_eq!(LENGTH - range.len(), ALL_PIECES + SHORT_PIECE + PIECE);
    }
    #[test]
    fn a_connection_reads_the_next_piece_when_the_last_one_is_dropped() {
        let meter = Arc::new(Meter::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = Context::from_waker(&waker);
        let file = zeros(SHORT_PIECE as u64);
        for _ in 0..3 {
            let mut range = FileRange::new(Arc::clone(&file), 0, SHORT_PIECE);
            assert!(meter.poll_piece(&cx).is_ready());
            let piece = read_piece(&mut range, &meter).unwrap();
            assert_eq!((piece.len(), range.len()), (SHORT_PIECE, 0));
            assert!(meter.poll_piece(&cx).is_pending());
            let before = wakes.count();
            drop(piece);
            assert_eq!(wakes.count(), before + 1);
        }
        let mut beyond = FileRange::new(file, 5, SHORT_PIECE);
        assert!(read_piece(&mut beyond, &meter).is_err());
        assert!(meter.poll_piece(&cx).is_ready());
    }
}
