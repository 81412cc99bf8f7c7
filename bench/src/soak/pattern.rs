//! Bytes that depend on where they stand: made by who sends, compared by who receives, whatever the cuts between chunks.
//! Pure but for the pauses of a slow body; the soak's client and its service use it.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::BoxError;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::dice::Dice;

/// The pattern repeats after so many bytes: a prime, which divides no buffer's size.
const PERIOD: u64 = 1_048_573;
/// The longest piece at once.
const PIECE: u64 = 64 << 10;

static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut dice = Dice::new(0);
    let random: Vec<u8> = (0..PERIOD).map(|_| dice.next().to_le_bytes()[0]).collect();
    let again = random.iter().take(usize::try_from(PIECE).unwrap_or(0)).copied();
    random.iter().copied().chain(again).collect()
});

/// As many of the `length` bytes from `position` on as one piece has.
pub(crate) fn piece(position: u64, length: u64) -> Bytes {
    let from = usize::try_from(position % PERIOD).unwrap_or(0);
    TABLE.slice(from..from + usize::try_from(length.min(PIECE)).unwrap_or(0))
}

/// All of the `length` bytes from `position` on.
pub(crate) fn bytes(position: u64, length: u64) -> Vec<u8> {
    let mut made = Vec::new();
    let mut left = length;
    while left > 0 {
        let piece = piece(position + (length - left), left);
        left -= piece.len() as u64;
        made.extend_from_slice(&piece);
    }
    made
}

/// Compares what arrives with what should.
pub(crate) struct Check {
    begin: u64,
    position: u64,
}

impl Check {
    /// The first byte to come is the one at `position`.
    pub(crate) fn new(position: u64) -> Self {
        Self {
            begin: position,
            position,
        }
    }

    /// How many bytes have come.
    pub(crate) fn count(&self) -> u64 {
        self.position - self.begin
    }

    /// Compares the next bytes.
    ///
    /// # Errors
    /// Where the first byte stands that is wrong.
    pub(crate) fn update(&mut self, data: &[u8]) -> Result<(), String> {
        for part in data.chunks(PIECE as usize) {
            let wanted = piece(self.position, part.len() as u64);
            if wanted != part {
                let right = wanted.iter().zip(part).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "byte {} is not the one that was sent",
                    self.count() + right as u64
                ));
            }
            self.position += part.len() as u64;
        }
        Ok(())
    }
}

/// What is to happen while a body leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Waits so long before each piece.
    pub(crate) pause: Option<Duration>,
    /// Fails where it should end.
    pub(crate) fails: bool,
    /// Does not say how long it is.
    pub(crate) unsized_: bool,
}

/// A part of the pattern as a body.
pub(crate) struct Pieces {
    position: u64,
    end: u64,
    manner: Manner,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pieces {
    pub(crate) fn new(position: u64, length: u64, manner: Manner) -> Self {
        Self {
            position,
            end: position.saturating_add(length),
            manner,
            sleep: None,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(pause) = self.manner.pause {
            let waiting = self.sleep.get_or_insert_with(|| Box::pin(sleep(pause)));
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
        let left = self.end - self.position;
        if left == 0 {
            return Poll::Ready(self.manner.fails.then(|| Err("fails as it was told to".into())));
        }
        // A slow body is slow for its pauses, not for its length.
        let most = if self.manner.pause.is_some() {
            (left / 8).max(1)
        } else {
            left
        };
        let piece = piece(self.position, most);
        self.position += piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.end && !self.manner.fails
    }

    fn size_hint(&self) -> SizeHint {
        if self.manner.fails || self.manner.unsized_ {
            SizeHint::default()
        } else {
            SizeHint::with_exact(self.end - self.position)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_the_pattern_is_a_part_of_the_whole() {
        let whole = bytes(PERIOD - 10, 200_000);
        let mut check = Check::new(PERIOD - 10);
        for chunk in whole.chunks(70_001) {
            assert_eq!(check.update(chunk), Ok(()));
        }
        assert_eq!(check.count(), 200_000);
        assert_eq!(bytes(PERIOD + 90, 50), whole.get(100..150).unwrap_or_default());
    }

    #[test]
    fn a_byte_that_is_changed_lost_or_doubled_is_found() {
        let whole = bytes(7, 1_000);
        let changed: Vec<u8> = whole
            .iter()
            .enumerate()
            .map(|(at, byte)| if at == 500 { byte ^ 1 } else { *byte })
            .collect();
        assert!(
            Check::new(7)
                .update(&changed)
                .is_err_and(|why| why.contains("byte 500 "))
        );
        assert!(Check::new(7).update(whole.get(1..).unwrap_or_default()).is_err());
        assert!(Check::new(8).update(&whole).is_err());
    }
}
