//! Counts HTTP/2 frames.
//!
//! A [`FrameReader`] reads one direction of one connection, in pieces of any size. It stores at most the nine octets of a
//! frame header, and nothing of a payload.

/// The client's connection preface: RFC 9113 section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// RFC 9113 section 4.1: length 24 bits, type 8, flags 8, reserved 1, stream identifier 31.
const HEAD: usize = 9;

/// DATA frames below this length indicate a sender whose window is nearly empty.
const SMALL_DATA: u32 = 100;

/// The first SETTINGS frame is short. A longer one is another protocol.
const LONGEST_FIRST_SETTINGS: u32 = 16_384;

/// Frame types: RFC 9113 section 6, and RFC 9218 section 7.1 for PRIORITY_UPDATE.
mod kind {
    pub(super) const DATA: u8 = 0x0;
    pub(super) const HEADERS: u8 = 0x1;
    pub(super) const PRIORITY: u8 = 0x2;
    pub(super) const RST_STREAM: u8 = 0x3;
    pub(super) const SETTINGS: u8 = 0x4;
    pub(super) const PUSH_PROMISE: u8 = 0x5;
    pub(super) const PING: u8 = 0x6;
    pub(super) const GO_AWAY: u8 = 0x7;
    pub(super) const WINDOW_UPDATE: u8 = 0x8;
    pub(super) const CONTINUATION: u8 = 0x9;
    pub(super) const PRIORITY_UPDATE: u8 = 0x10;
}

/// The frames of each type in one direction.
///
/// A frame is counted when its header has arrived at the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FrameCounts {
    /// DATA frames.
    pub data: u64,
    /// Bytes in the payloads of DATA frames with padding, as flow control counts them (RFC 9113 section 6.9.1).
    pub data_bytes: u64,
    /// DATA frames with a payload of less than 100 bytes, empty ones included.
    pub small_data: u64,
    /// The longest run of DATA frames with less than 100 bytes each, without a larger DATA frame between them, on any
    /// streams.
    pub longest_small_data_run: u64,
    /// HEADERS frames.
    pub headers: u64,
    /// PRIORITY frames.
    pub priority: u64,
    /// RST_STREAM frames.
    pub rst_stream: u64,
    /// SETTINGS frames, acknowledgements included.
    pub settings: u64,
    /// PUSH_PROMISE frames.
    pub push_promise: u64,
    /// PING frames, acknowledgements included.
    pub ping: u64,
    /// GOAWAY frames.
    pub go_away: u64,
    /// WINDOW_UPDATE frames for a stream.
    pub stream_window_update: u64,
    /// WINDOW_UPDATE frames for the connection.
    pub connection_window_update: u64,
    /// CONTINUATION frames.
    pub continuation: u64,
    /// PRIORITY_UPDATE frames (RFC 9218).
    pub priority_update: u64,
    /// Frames of any other type.
    pub other: u64,
}

impl FrameCounts {
    /// All frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.data
            + self.headers
            + self.priority
            + self.rst_stream
            + self.settings
            + self.push_promise
            + self.ping
            + self.go_away
            + self.stream_window_update
            + self.connection_window_update
            + self.continuation
            + self.priority_update
            + self.other
    }

    /// Every count with its name, in a fixed order.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, u64); 16] {
        [
            ("data", self.data),
            ("data_bytes", self.data_bytes),
            ("small_data", self.small_data),
            ("longest_small_data_run", self.longest_small_data_run),
            ("headers", self.headers),
            ("priority", self.priority),
            ("rst_stream", self.rst_stream),
            ("settings", self.settings),
            ("push_promise", self.push_promise),
            ("ping", self.ping),
            ("go_away", self.go_away),
            ("stream_window_update", self.stream_window_update),
            ("connection_window_update", self.connection_window_update),
            ("continuation", self.continuation),
            ("priority_update", self.priority_update),
            ("other", self.other),
        ]
    }

    /// Counts one frame, the last of `small_run` small DATA frames in a row if it is one.
    pub(crate) fn add(&mut self, frame: Frame, small_run: u64) {
        let count = match frame.kind {
            kind::DATA => {
                self.data_bytes += u64::from(frame.length);
                self.small_data += u64::from(frame.is_small_data());
                self.longest_small_data_run = self.longest_small_data_run.max(small_run);
                &mut self.data
            }
            kind::HEADERS => &mut self.headers,
            kind::PRIORITY => &mut self.priority,
            kind::RST_STREAM => &mut self.rst_stream,
            kind::SETTINGS => &mut self.settings,
            kind::PUSH_PROMISE => &mut self.push_promise,
            kind::PING => &mut self.ping,
            kind::GO_AWAY => &mut self.go_away,
            kind::WINDOW_UPDATE if frame.stream == 0 => &mut self.connection_window_update,
            kind::WINDOW_UPDATE => &mut self.stream_window_update,
            kind::CONTINUATION => &mut self.continuation,
            kind::PRIORITY_UPDATE => &mut self.priority_update,
            _ => &mut self.other,
        };
        *count += 1;
    }
}

/// A frame header without its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    length: u32,
    kind: u8,
    stream: u32,
}

impl Frame {
    fn parse(head: [u8; HEAD]) -> Self {
        let [l2, l1, l0, kind, _flags, s3, s2, s1, s0] = head;
        Self {
            length: u32::from_be_bytes([0, l2, l1, l0]),
            kind,
            // RFC 9113 section 4.1: the reserved bit is ignored.
            stream: u32::from_be_bytes([s3 & 0x7f, s2, s1, s0]),
        }
    }

    fn is_small_data(self) -> bool {
        self.kind == kind::DATA && self.length < SMALL_DATA
    }

    /// RFC 9113 section 3.4: either side's first frame is SETTINGS.
    fn may_be_first(self) -> bool {
        self.kind == kind::SETTINGS
            && self.stream == 0
            && self.length % 6 == 0
            && self.length <= LONGEST_FIRST_SETTINGS
    }
}

/// What the next octet is.
#[derive(Debug)]
enum ReaderState {
    /// Part of the client's preface, after this many octets.
    Preface(usize),
    /// Part of a frame header, after this many octets.
    Header(usize),
    /// Part of a payload with this many octets left.
    Payload(u32),
    /// Part of another protocol, or of TLS.
    Other,
}

/// Reads one direction.
#[derive(Debug)]
pub(crate) struct FrameReader {
    state: ReaderState,
    head: [u8; HEAD],
    begun: bool,
    /// The current run of small DATA frames.
    small_run: u64,
}

impl FrameReader {
    /// A reader of a client's bytes: the preface, then frames.
    pub(crate) fn client() -> Self {
        Self::new(ReaderState::Preface(0))
    }

    /// A reader of a server's bytes: frames.
    pub(crate) fn server() -> Self {
        Self::new(ReaderState::Header(0))
    }

    fn new(state: ReaderState) -> Self {
        Self {
            state,
            head: [0; HEAD],
            begun: false,
            small_run: 0,
        }
    }

    /// Reads the next octets. Calls back for each complete frame header, with its position in a run of small DATA frames.
    pub(crate) fn read(&mut self, mut octets: &[u8], mut found: impl FnMut(Frame, u64)) {
        while !octets.is_empty() {
            match self.state {
                ReaderState::Other => return,
                ReaderState::Preface(seen) => {
                    let expected = &PREFACE[seen..];
                    let count = expected.len().min(octets.len());
                    let (now, later) = octets.split_at(count);
                    if now != &expected[..count] {
                        self.state = ReaderState::Other;
                        return;
                    }
                    octets = later;
                    self.state = if count == expected.len() {
                        ReaderState::Header(0)
                    } else {
                        ReaderState::Preface(seen + count)
                    };
                }
                ReaderState::Header(seen) => {
                    let count = (HEAD - seen).min(octets.len());
                    let (now, later) = octets.split_at(count);
                    self.head[seen..seen + count].copy_from_slice(now);
                    octets = later;
                    if seen + count < HEAD {
                        self.state = ReaderState::Header(seen + count);
                        return;
                    }
                    let frame = Frame::parse(self.head);
                    if !self.begun && !frame.may_be_first() {
                        self.state = ReaderState::Other;
                        return;
                    }
                    self.begun = true;
                    self.note_run(frame);
                    found(frame, self.small_run);
                    self.state = ReaderState::Payload(frame.length);
                }
                ReaderState::Payload(left) => {
                    // A read is far below 4 GiB. A longer one would still find the end of the payload.
                    let count = (left as usize).min(octets.len());
                    octets = &octets[count..];
                    let left = left - count as u32;
                    self.state = if left == 0 {
                        ReaderState::Header(0)
                    } else {
                        ReaderState::Payload(left)
                    };
                }
            }
            if let ReaderState::Payload(0) = self.state {
                self.state = ReaderState::Header(0);
            }
        }
    }

    fn note_run(&mut self, frame: Frame) {
        if frame.is_small_data() {
            self.small_run += 1;
        } else if frame.kind == kind::DATA {
            self.small_run = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut octets = (length as u32).to_be_bytes()[1..].to_vec();
        octets.extend([kind, 0]);
        octets.extend(stream.to_be_bytes());
        octets.extend(vec![0xaa; length]);
        octets
    }

    fn count(mut reader: FrameReader, pieces: &[&[u8]]) -> FrameCounts {
        let mut counts = FrameCounts::default();
        for piece in pieces {
            reader.read(piece, |frame, run| counts.add(frame, run));
        }
        counts
    }

    fn conversation() -> Vec<u8> {
        let mut octets = PREFACE.to_vec();
        octets.extend(frame(kind::SETTINGS, 0, 12));
        octets.extend(frame(kind::WINDOW_UPDATE, 0, 4));
        octets.extend(frame(kind::HEADERS, 1, 300));
        octets.extend(frame(kind::DATA, 1, 16_384));
        for length in [99, 1, 0] {
            octets.extend(frame(kind::DATA, 1, length));
            octets.extend(frame(kind::WINDOW_UPDATE, 1, 4));
        }
        octets.extend(frame(kind::DATA, 1, 100));
        octets.extend(frame(kind::DATA, 1, 5));
        for kind in [
            kind::PRIORITY,
            kind::RST_STREAM,
            kind::PUSH_PROMISE,
            kind::PING,
            kind::GO_AWAY,
            kind::CONTINUATION,
            kind::PRIORITY_UPDATE,
            0xfa,
        ] {
            octets.extend(frame(kind, 3, 8));
        }
        octets
    }

    #[test]
    fn every_type_is_counted_and_window_updates_apart() {
        let counts = count(FrameReader::client(), &[&conversation()]);
        let expected = FrameCounts {
            data: 6,
            data_bytes: 16_384 + 99 + 1 + 100 + 5,
            small_data: 4,
            longest_small_data_run: 3,
            headers: 1,
            priority: 1,
            rst_stream: 1,
            settings: 1,
            push_promise: 1,
            ping: 1,
            go_away: 1,
            stream_window_update: 3,
            connection_window_update: 1,
            continuation: 1,
            priority_update: 1,
            other: 1,
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.frames(), 20);
    }

    #[test]
    fn where_reads_are_split_does_not_matter() {
        let octets = conversation();
        let whole = count(FrameReader::client(), &[&octets]);
        for size in [1, 2, 3, 5, 8, 9, 10, 1_000] {
            let pieces: Vec<&[u8]> = octets.chunks(size).collect();
            assert_eq!(count(FrameReader::client(), &pieces), whole, "pieces of {size}");
        }
        for at in 0..=60 {
            let (left, right) = octets.split_at(at);
            assert_eq!(
                count(FrameReader::client(), &[left, right]),
                whole,
                "split at {at}"
            );
        }
    }

    #[test]
    fn a_server_begins_with_settings() {
        let octets = [frame(kind::SETTINGS, 0, 0), frame(kind::DATA, 1, 10)].concat();
        let counts = count(FrameReader::server(), &[&octets]);
        assert_eq!((counts.settings, counts.data, counts.small_data), (1, 1, 1));
    }

    #[test]
    fn anything_but_http2_is_not_counted() {
        let nothing = FrameCounts::default();
        assert_eq!(
            count(FrameReader::client(), &[b"GET / HTTP/1.1\r\n\r\n"]),
            nothing
        );
        assert_eq!(
            count(FrameReader::client(), &[b"PRI * HTTP/2.0\r\n", b"\r\nSN"]),
            nothing
        );
        assert_eq!(
            count(FrameReader::server(), &[b"HTTP/1.1 200 OK\r\n\r\n"]),
            nothing
        );
        assert_eq!(
            count(
                FrameReader::server(),
                &[&[0x16, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3]]
            ),
            nothing
        );
        assert_eq!(count(FrameReader::client(), &[]), nothing);
    }
}
