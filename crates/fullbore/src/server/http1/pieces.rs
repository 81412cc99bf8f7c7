//! Ranges of files, read in pieces just before hyper writes them.
//!
//! A connection holds one piece, until the transport has taken it. Pieces of all connections together are bounded.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::file::FileRange;

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

/// Reads the next piece off a range.
///
/// # Errors
/// The file ends before the range, or another error of the system.
pub(super) fn read_piece(range: &mut FileRange) -> io::Result<Bytes> {
    let long = (range.len() > SHORT_PIECE).then(LongPiece::new).flatten();
    let Some(mut piece) = long else {
        let range = range.split_to(SHORT_PIECE);
        let mut memory = vec![0; range.len()];
        range.read_into(&mut memory)?;
        return Ok(memory.into());
    };
    let range = range.split_to(PIECE);
    piece.length = range.len();
    range.read_into(&mut piece.memory[START..START + piece.length])?;
    Ok(Bytes::from_owner(piece))
}

struct LongPiece {
    memory: Vec<u8>,
    length: usize,
}

impl LongPiece {
    /// `None` if long pieces take all that they may.
    fn new() -> Option<Self> {
        if HELD.fetch_add(PIECE, Ordering::Relaxed) > ALL_PIECES - PIECE {
            HELD.fetch_sub(PIECE, Ordering::Relaxed);
            return None;
        }
        let mut memory = SPARE.try_with(Cell::take).unwrap_or_default();
        memory.resize(START + PIECE, 0);
        Some(LongPiece { memory, length: 0 })
    }
}

impl AsRef<[u8]> for LongPiece {
    fn as_ref(&self) -> &[u8] {
        &self.memory[START..START + self.length]
    }
}

impl Drop for LongPiece {
    fn drop(&mut self) {
        HELD.fetch_sub(PIECE, Ordering::Relaxed);
        // A thread that is ending keeps none.
        let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.memory)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::file::OpenFile;

    /// A file without a name of so many zeros.
    fn zeros(length: u64) -> Arc<OpenFile> {
        let path = std::env::temp_dir().join(format!("fullbore-pieces-{}", std::process::id()));
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
        let mut read = || read_piece(&mut range).unwrap();
        let mut held: Vec<_> = (0..ALL_PIECES / PIECE).map(|_| read()).collect();
        assert!(held.iter().all(|piece| piece.len() == PIECE));
        assert_eq!(read().len(), SHORT_PIECE);
        held.pop();
        assert_eq!(read().len(), PIECE);
        drop(held);
        assert_eq!(HELD.load(Ordering::Relaxed), 0);
        assert_eq!(LENGTH - range.len(), ALL_PIECES + SHORT_PIECE + PIECE);
    }
}
