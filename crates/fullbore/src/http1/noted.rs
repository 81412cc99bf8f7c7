//! What hyper was given of the next head: hyper removes fields that a check has to see.

/// A note with more capacity than this is freed.
const KEPT: usize = 2 << 10;

/// The bytes that hyper was given of a head, and perhaps of what follows.
#[derive(Debug, Default)]
pub(super) struct Noted {
    bytes: Vec<u8>,
    most: usize,
    /// Whether the heads that hyper has parsed are forgotten when it reads more.
    pub(super) forgets: bool,
    /// The end of the last empty line.
    parsed: usize,
    /// Something was not noted for lack of room.
    has_gap: bool,
}

impl Noted {
    /// Room for so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Noted {
            most,
            ..Noted::default()
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing is noted, and nothing was left out.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.has_gap
    }

    /// hyper was given `read`.
    pub(super) fn note(&mut self, read: &[u8]) {
        // Most heads come alone and in one piece.
        if self.parsed == self.bytes.len() && !self.has_gap && self.is_whole(read) {
            self.bytes.clear();
            self.bytes.extend_from_slice(read);
            self.parsed = read.len();
            return;
        }
        if self.forgets && (self.parsed > 0 || self.has_gap) {
            self.forget(self.parsed);
        }
        let before = self.bytes.len();
        let room = self.most.saturating_sub(before);
        self.has_gap |= read.len() > room;
        self.bytes.extend_from_slice(&read[..read.len().min(room)]);
        if self.forgets {
            self.parsed = end_of_heads(&self.bytes, before);
        }
    }

    /// Whether a read ends a head, and takes the place of what was noted before in the same memory.
    fn is_whole(&self, read: &[u8]) -> bool {
        self.forgets
            && read.len() <= self.most.min(KEPT)
            && self.bytes.capacity() <= KEPT
            && read.ends_with(b"\r\n\r\n")
    }

    /// Forgets the beginning of what was noted, and all of it if it has a gap.
    pub(super) fn forget(&mut self, count: usize) {
        self.parsed = self.parsed.saturating_sub(count);
        let has_gap = std::mem::take(&mut self.has_gap);
        if count < self.bytes.len() && !has_gap {
            self.bytes.drain(..count);
            return;
        }
        self.parsed = 0;
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }
}

/// The end of the last empty line in `noted`, which has none that ends in its first `before` bytes.
fn end_of_heads(noted: &[u8], before: usize) -> usize {
    let is_end = |end: usize| noted[..end].ends_with(b"\n\r\n") || noted[..end].ends_with(b"\n\n");
    let ends = before + 1..=noted.len();
    ends.rev().find(|end| is_end(*end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is noted after each of these reads.
    fn notes(reads: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut noted = Noted::new(32);
        noted.forgets = true;
        let note = |read: &&[u8]| {
            noted.note(read);
            noted.bytes().to_vec()
        };
        reads.iter().map(note).collect()
    }

    #[test]
    fn heads_are_forgotten_when_more_is_read() {
        for end in ["\r\n\r\n", "\n\n", "\r\n\n"] {
            let heads = [format!("a{end}"), format!("b{end}c"), format!("d{end}")];
            let reads: Vec<_> = heads.iter().map(String::as_bytes).collect();
            let together = format!("cd{end}").into_bytes();
            let expected = vec![reads[0].to_vec(), reads[1].to_vec(), together];
            assert_eq!(notes(&reads), expected, "{end:?}");
        }
        let split: [&[u8]; 4] = [b"a\r", b"\n\r", b"\nb", b"c"];
        let expected: [&[u8]; 4] = [b"a\r", b"a\r\n\r", b"a\r\n\r\nb", b"bc"];
        assert_eq!(notes(&split), expected);
    }

    #[test]
    fn what_does_not_fit_is_forgotten_with_what_was_before_it() {
        let long = [b'x'; 40];
        let notes = notes(&[b"ab", &long, b"c\n\n", b"d"]);
        assert_eq!(notes[1].len(), 32);
        assert_eq!(notes[2..], [b"c\n\n".to_vec(), b"d".to_vec()]);
    }
}
