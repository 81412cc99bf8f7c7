//! The size of a flow-control window.

/// The window that every stream and connection starts with (RFC 9113 section 6.9.2).
pub const DEFAULT_WINDOW: WindowSize = WindowSize(65_535);

/// The size of a flow-control window: 1..=2^31-1 octets (RFC 9113 section 6.9.1), or [`WindowSize::CLOSED`].
///
/// ```
/// use fullbore_proto::WindowSize;
///
/// assert_eq!(WindowSize::new(4 << 20).map(WindowSize::bytes), Some(4_194_304));
/// assert_eq!(WindowSize::new(1 << 31), None);
/// assert_eq!(WindowSize::new(0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowSize(u32);

impl WindowSize {
    /// The window of streams that receive nothing until another size is set. That of a connection has at least an octet.
    pub const CLOSED: WindowSize = WindowSize(0);

    /// The largest window.
    pub const MAX: WindowSize = WindowSize((1 << 31) - 1);

    /// A window of `bytes` octets, unless that is 0 or more than 2^31-1.
    pub const fn new(bytes: u32) -> Option<WindowSize> {
        if bytes == 0 || bytes > Self::MAX.0 {
            None
        } else {
            Some(WindowSize(bytes))
        }
    }

    /// A window of `mebibytes` times 1,048,576 octets, or the largest one.
    pub const fn from_mebibytes(mebibytes: u32) -> WindowSize {
        match mebibytes {
            0 => WindowSize(1),
            1..=2047 => WindowSize(mebibytes << 20),
            _ => Self::MAX,
        }
    }

    /// A window of twice as many octets, or the largest one.
    pub(crate) const fn doubled(self) -> WindowSize {
        match self.0 > Self::MAX.0 / 2 {
            true => Self::MAX,
            false => WindowSize(2 * self.0),
        }
    }

    /// Its size in octets.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_doubles_up_to_the_largest_and_a_closed_one_stays_closed() {
        let window = |bytes| WindowSize::new(bytes).unwrap();
        assert_eq!(WindowSize::CLOSED.doubled(), WindowSize::CLOSED);
        assert_eq!(window(1).doubled(), window(2));
        assert_eq!(window((1 << 30) - 1).doubled(), window((1 << 31) - 2));
        assert_eq!(window(1 << 30).doubled(), WindowSize::MAX);
    }
}
