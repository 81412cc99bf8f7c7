//! Bytes that depend on their position: a lost, repeated or moved byte is found however the chunks are cut.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::random::Random;

/// The pattern repeats after this many bytes: a prime, so that no buffer size divides it.
pub const PERIOD: u64 = 1_048_583;
/// The longest slice in one piece.
pub const PIECE: u64 = 1 << 20;

static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut bytes = Random::new(0).bytes(PERIOD as usize);
    bytes.extend_from_within(..PIECE as usize);
    bytes.into()
});

/// The `length` bytes from `position` on, or as many of them as one piece holds.
pub fn slice(position: u64, length: u64) -> Bytes {
    let from = (position % PERIOD) as usize;
    TABLE.slice(from..from + length.min(PIECE) as usize)
}

/// All of the `length` bytes from `position` on.
pub fn bytes(position: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        let made = bytes.len() as u64;
        bytes.extend_from_slice(&slice(position + made, length - made));
    }
    bytes
}

/// Compares bytes with the pattern as they arrive.
pub struct Check {
    start: u64,
    position: u64,
}

impl Check {
    /// The first byte to arrive is the one at `position`.
    pub fn new(position: u64) -> Self {
        Self {
            start: position,
            position,
        }
    }

    /// How many bytes have arrived.
    pub fn count(&self) -> u64 {
        self.position - self.start
    }

    /// Compares the next bytes.
    ///
    /// # Errors
    /// Names the first byte that differs.
    pub fn update(&mut self, data: &[u8]) -> Result<(), String> {
        for chunk in data.chunks(PIECE as usize) {
            let expected = slice(self.position, chunk.len() as u64);
            if let Some(at) = expected.iter().zip(chunk).position(|(a, b)| a != b) {
                return Err(format!(
                    "byte {} differs from what was sent",
                    self.count() + at as u64
                ));
            }
            self.position += chunk.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slice_is_a_part_of_the_whole() {
        let whole = bytes(PERIOD - 10, 200_000);
        let mut check = Check::new(PERIOD - 10);
        for chunk in whole.chunks(70_001) {
            assert_eq!(check.update(chunk), Ok(()));
        }
        assert_eq!(check.count(), 200_000);
        assert_eq!(bytes(PERIOD + 90, 50), whole[100..150]);
    }

    #[test]
    fn a_changed_lost_or_repeated_byte_is_found() {
        let whole = bytes(7, 1_000);
        let mut changed = whole.clone();
        changed[500] ^= 1;
        let error = Check::new(7).update(&changed).expect_err("byte 500 is wrong");
        assert!(error.contains("byte 500 "), "{error}");
        assert!(Check::new(7).update(&whole[1..]).is_err());
        assert!(Check::new(8).update(&whole).is_err());
    }
}
