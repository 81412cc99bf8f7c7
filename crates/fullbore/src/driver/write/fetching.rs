//! How much is read from files for each write, and how much of it a waiting connection holds.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullbore_proto::Config;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::timeout;

use super::*;
use crate::body::Incoming;
use crate::cell::Mailbox;
use crate::driver::Unanswered;
use crate::file::{Chunk, FileRange, OpenFile};
use crate::sender::Sender;

const LENGTH: usize = 4_000_000;

/// The preface, SETTINGS with the largest window for each stream, the acknowledgement of the server's, the same window for the
/// connection, and GET / on stream 1.
const ASK: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\0\0\0\x04\x01\0\0\0\0\
    \0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01h";

/// A PING that is acknowledged already.
const PING: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0rejoiced";

/// Answers each request with a file.
struct Answer(Arc<OpenFile>, Option<Sender>);

impl Accept for Answer {
    fn accept(&mut self, _: Request<Incoming>, unanswered: &mut Unanswered<'_>, _: &mut Context<'_>) {
        let mut sender = unanswered.sender();
        sender.send_response(Response::new(()), false);
        let range = Chunk::from(FileRange::new(Arc::clone(&self.0), 0, LENGTH));
        sender.send_data(range.into_payload(), true);
        self.1 = Some(sender);
    }
}

fn octet(at: usize) -> u8 {
    (at ^ (at >> 7)) as u8
}

/// A file without a name, where the system allows that.
fn file() -> Arc<OpenFile> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("fullbore-fetching-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let mut file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a new file in the temporary folder");
    let _ = std::fs::remove_file(&path);
    file.write_all(&(0..LENGTH).map(octet).collect::<Vec<u8>>())
        .expect("room on the disk");
    OpenFile::new(file)
}

/// How a transport behaves, and what was offered to it.
#[derive(Debug, Default)]
struct Ways {
    /// How many octets it takes, of one write or several, until this is set again.
    takes: Option<usize>,
    /// Whether it holds what it took, so that a flush waits.
    holds: bool,
    /// The octets that each write offered.
    offered: Vec<usize>,
}

/// One end of a pipe that behaves so. It takes more when the other end sends something.
struct Meter(DuplexStream, Arc<Mutex<Ways>>);

impl AsyncRead for Meter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Meter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(octets)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut ways = self.1.lock().expect("no thread panics");
        let offered = slices.iter().map(|slice| slice.len()).sum();
        ways.offered.push(offered);
        let Some(takes) = &mut ways.takes else {
            return Poll::Ready(Ok(offered));
        };
        let taken = offered.min(*takes);
        *takes -= taken;
        match taken {
            0 => Poll::Pending,
            taken => Poll::Ready(Ok(taken)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.1.lock().expect("no thread panics").holds {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A server's driver over a `Meter`, and the other end.
struct Metered {
    driver: Driver<Meter, Answer>,
    far: DuplexStream,
    ways: Arc<Mutex<Ways>>,
}

impl Metered {
    fn new(config: Config) -> Self {
        let (near, far) = tokio::io::duplex(64 << 10);
        let ways = Arc::new(Mutex::new(Ways::default()));
        let meter = Meter(near, Arc::clone(&ways));
        let driver = Driver::server(meter, Arc::new(config), Mailbox::new(), Answer(file(), None));
        Metered { driver, far, ways }
    }

    /// Sends `says` to the driver and runs it until it waits; returns what its writes offered.
    async fn run(&mut self, says: &[u8], takes: Option<usize>, holds: bool) -> Vec<usize> {
        let set = |ways: &mut Ways| {
            ways.takes = takes;
            ways.holds = holds;
            ways.offered.clear();
        };
        set(&mut self.ways.lock().expect("no thread panics"));
        self.far.write_all(says).await.expect("the pipe has room");
        let ended = timeout(Duration::from_millis(1), poll_fn(|cx| self.driver.poll(cx))).await;
        assert!(ended.is_err(), "the connection ended: {ended:?}");
        core::mem::take(&mut self.ways.lock().expect("no thread panics").offered)
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_holds_no_memory_of_a_file_whatever_it_says() {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    let answer = Answer(file(), None);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), answer);
    far.write_all(ASK).await.expect("the pipe has room");
    let mut most = Vec::new();
    for _ in 0..20 {
        let ended = timeout(Duration::from_millis(60), poll_fn(|cx| driver.poll(cx))).await;
        assert!(ended.is_err(), "the connection ended: {ended:?}");
        assert!(driver.out.has_external(), "something of the file waits");
        most.push(driver.out.room());
        far.write_all(PING).await.expect("the pipe has room");
    }
    assert_eq!(most, [0; 20], "octets of memory held");

    // The rest of the file comes when the peer reads again.
    let mut body = Vec::new();
    let ended = timeout(Duration::from_secs(1), poll_fn(|cx| driver.poll(cx)));
    let read = async {
        let mut head = [0; 9];
        while body.len() < LENGTH {
            far.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            far.read_exact(&mut payload).await.expect("its payload");
            if head[3] == 0 {
                body.append(&mut payload);
            }
        }
    };
    let (ended, ()) = tokio::join!(ended, read);
    assert!(ended.is_err(), "the connection ended: {ended:?}");
    assert!(body.into_iter().eq((0..LENGTH).map(octet)));
}

#[tokio::test(start_paused = true)]
async fn what_is_read_at_a_time_doubles_while_the_transport_takes_all_of_it() {
    let mut metered = Metered::new(Config::default());
    let offered = metered.run(ASK, None, false).await;
    let files: Vec<usize> = offered.into_iter().filter(|octets| *octets > 100_000).collect();
    assert_eq!(files[0], FETCH, "{files:?}");
    // The rest of the first list, and then whole lists.
    assert!(files[1].abs_diff(2 * FETCH) < 1_000, "{files:?}");
    for octets in &files[2..files.len() - 1] {
        assert!(
            (LONGEST_FETCH..LONGEST_FETCH + FETCH_TAIL).contains(octets),
            "{files:?}"
        );
    }
    assert!(files.len() > 6, "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_takes_a_part_is_offered_twice_that_part() {
    let mut metered = Metered::new(Config::default());
    metered.run(ASK, Some(0), false).await;
    assert_eq!(metered.driver.fetch_size, SHORTEST_FETCH, "it took nothing");
    metered.driver.fetch_size = FETCH;
    let mut size = FETCH;
    for (takes, next) in [(40_000, 80_000), (10_000, SHORTEST_FETCH), (100, SHORTEST_FETCH)] {
        // A write, the rest of it, and whenever the task is woken again, one of which nothing is taken.
        let offered = metered.run(PING, Some(takes), false).await;
        assert_eq!(offered[..3], [size, size - takes, next], "{takes} taken");
        assert!(offered[3..].iter().all(|octets| *octets == SHORTEST_FETCH));
        size = SHORTEST_FETCH;
    }
    let offered = metered.run(PING, Some(300_000), false).await;
    assert_eq!(offered[..3], [SHORTEST_FETCH, 2 * SHORTEST_FETCH, FETCH]);
    assert!(metered.driver.fetch_size <= FETCH, "after {offered:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_for_tls_is_what_is_sealed_at_a_time() {
    let mut config = Config::default();
    config.set_record_size(16_384);
    let mut metered = Metered::new(config);
    let offered = metered.run(ASK, None, false).await;
    assert!(offered.len() > LENGTH / FETCH, "{offered:?}");
    assert!(
        offered.iter().all(|octets| *octets <= FETCH + FETCH_TAIL),
        "{offered:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_from_a_file_while_the_transport_holds_what_it_took() {
    let mut metered = Metered::new(Config::default());
    let offered = metered.run(ASK, None, true).await;
    assert!(
        offered.is_empty() && metered.driver.out.has_external(),
        "{offered:?}"
    );
    let offered = metered.run(PING, None, true).await;
    assert!(offered.is_empty(), "{offered:?}");
    let offered = metered.run(PING, None, false).await;
    assert!(offered.iter().sum::<usize>() > LENGTH, "{offered:?}");
}

#[tokio::test(start_paused = true)]
async fn the_memory_for_reads_is_used_again_for_the_next_write() {
    let kept = || {
        FETCH_BUFFER.with(|kept| {
            let buffer = kept.take();
            let address = buffer.as_ptr();
            kept.set(buffer);
            address
        })
    };
    let mut metered = Metered::new(Config::default());
    metered.run(ASK, Some(40_000), false).await;
    let first = kept();
    for _ in 0..3 {
        metered.run(PING, Some(40_000), false).await;
        assert_eq!(kept(), first);
    }
}
