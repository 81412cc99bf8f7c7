//! Write lists through the pipe, over TCP on loopback, octet for octet.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use fullbore_proto::{Config, Connection, Event, Payload, Time};
use http::{Request, Response};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::file::{Chunk, FileRange, OpenFile};

/// Ends a test that hangs.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

/// A file without a name, of `length` octets that depend on their position.
fn file(length: usize) -> File {
    let octets: Vec<u8> = (0..length).map(|at| (at ^ (at >> 7)) as u8).collect();
    let mut file = tempfile();
    file.write_all(&octets).unwrap();
    file
}

fn tempfile() -> File {
    use rustix::fs::{CWD, Mode, openat};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let folder = std::env::temp_dir();
    File::from(openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR).expect("a file system with O_TMPFILE"))
}

fn range(file: &Arc<OpenFile>, start: u64, length: usize) -> Payload {
    Chunk::from(FileRange::new(Arc::clone(file), start, length)).into_payload()
}

/// The engine of a server that sends a response.
struct Answering {
    server: Connection,
    stream: fullbore_proto::StreamId,
}

impl Answering {
    fn new() -> Self {
        let mut client = Connection::client(Config::default(), Time::ZERO);
        let mut server = Connection::server(Config::default(), Time::ZERO);
        client
            .open(Request::get("http://x/").body(()).unwrap(), true)
            .unwrap();
        let mut out = Transmit::new();
        client.transmit(&mut out, Time::ZERO);
        server
            .receive(out.copy_to_bytes(out.remaining()), Time::ZERO)
            .unwrap();
        let stream = loop {
            match server.poll_event() {
                Some(Event::Request { stream, .. }) => break stream,
                Some(_) => {}
                None => panic!("no request"),
            }
        };
        server.send_response(stream, &Response::new(()), false).unwrap();
        Answering { server, stream }
    }

    /// The write list after these payloads were sent.
    fn list(&mut self, payloads: impl IntoIterator<Item = Payload>) -> Transmit {
        for payload in payloads {
            self.server.send_data(self.stream, payload, false).unwrap();
        }
        let mut out = Transmit::new();
        self.server.transmit(&mut out, Time::ZERO);
        out
    }
}

/// The octets of a list.
fn octets(out: &Transmit) -> Vec<u8> {
    let mut all = Vec::new();
    for part in out.segments() {
        match part {
            Segment::Memory(octets) => all.extend_from_slice(octets),
            Segment::External(range) => {
                let before = all.len();
                all.resize(before + range.len(), 0);
                file::read_payload(range, &mut all[before..]).unwrap();
            }
        }
    }
    all
}

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let far = listener.accept().await.unwrap().0;
    far.writable().await.unwrap();
    (near, far)
}

/// One write, if the socket takes anything.
fn write_once(io: &TcpStream, out: &mut Transmit, at_once: &mut usize) -> Poll<io::Result<usize>> {
    write(io, &mut Context::from_waker(Waker::noop()), out, at_once)
}

/// Reads from the socket, and lets the runtime notice that the other end is writable.
async fn read_some(near: &mut TcpStream, most: usize, seen: &mut Vec<u8>) {
    let mut some = vec![0; most];
    let count = tokio::time::timeout(SOON, near.read(&mut some)).await;
    seen.extend_from_slice(&some[..count.expect("octets within the time").unwrap()]);
    tokio::task::yield_now().await;
}

/// Writes a list while the other end reads it; returns what was read, and the number of writes.
async fn write_all(far: &TcpStream, near: &mut TcpStream, out: &mut Transmit) -> (Vec<u8>, usize) {
    let (mut seen, mut at_once, mut writes) = (BytesMut::new(), 0, 0);
    let length = out.remaining();
    while seen.len() < length {
        while out.has_remaining() {
            match write_once(far, out, &mut at_once) {
                Poll::Ready(written) => {
                    assert_ne!(written.unwrap(), 0);
                    writes += 1;
                }
                Poll::Pending => break,
            }
        }
        let read = tokio::time::timeout(SOON, near.read_buf(&mut seen)).await;
        assert_ne!(read.expect("octets within the time").unwrap(), 0);
    }
    (seen.to_vec(), writes)
}

#[tokio::test]
async fn heads_octets_and_ranges_of_several_files_come_in_their_order() {
    let (mut near, far) = tcp().await;
    let files: Vec<_> = [400_000, 300_001, 50_000].map(file).into_iter().collect();
    let [long, middle, short] = [0, 1, 2].map(|at| OpenFile::new(files[at].try_clone().unwrap()));
    let mut answering = Answering::new();
    for round in 0..30 {
        let here = |length: usize| Payload::from(Bytes::from(vec![round; length]));
        let mut out = answering.list([
            range(&long, 5, 40_000),
            here(1),
            range(&middle, 299_000, 1_001),
            range(&short, 0, 50_000),
            here(5_000),
            here(20_000),
            // Consecutive ranges, and others.
            range(&long, 40_005, 10),
            range(&long, 40_015, 100_000),
            range(&long, 40_015, 20_000),
            here(900),
        ]);
        assert!(out.has_external());
        let expected = octets(&out);
        let (seen, _) = write_all(&far, &mut near, &mut out).await;
        assert!(seen == expected, "round {round}");
    }
}

#[tokio::test]
async fn what_the_socket_does_not_take_stays_on_the_list() {
    let (mut near, far) = tcp().await;
    let file = OpenFile::new(file(3 << 20));
    let mut answering = Answering::new();
    let (mut expected, mut blocked, mut partial) = (Vec::new(), 0, 0);
    let (mut seen, mut at_once) = (Vec::new(), MOST);
    // More than the socket holds.
    for turn in 0..40 {
        let mut out = answering.list([range(&file, turn * 1_000, 1 << 20)]);
        expected.append(&mut octets(&out));
        while out.has_remaining() {
            let before = out.remaining();
            let most = at_once.clamp(LEAST, MOST);
            match write_once(&far, &mut out, &mut at_once) {
                Poll::Ready(Ok(count)) => {
                    assert_ne!(count, 0);
                    assert_eq!(before - out.remaining(), count);
                    // Twice what the socket took, or more if it took all.
                    assert!(
                        [2 * count, 2 * most].contains(&at_once),
                        "{at_once} after {count}"
                    );
                    partial += usize::from(at_once < 2 * most);
                }
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => {
                    assert_eq!(out.remaining(), before);
                    blocked += 1;
                    read_some(&mut near, 300_000, &mut seen).await;
                }
            }
        }
    }
    assert!(blocked > 0 && partial > 0, "the socket took all at once");
    drop(far);
    near.read_to_end(&mut seen).await.unwrap();
    assert!(seen == expected);
}

#[tokio::test]
async fn a_list_takes_few_writes() {
    let (mut near, far) = tcp().await;
    let file = OpenFile::new(file(3 << 20));
    let mut answering = Answering::new();
    answering.list([]);
    let mut out = answering.list([range(&file, 0, 3 << 20)]);
    let length = out.remaining();
    assert!(length > 500_000, "{length}");
    // The socket has room for all of it, so that only the pipe is the limit.
    let socket = socket2::SockRef::from(&far);
    socket.set_send_buffer_size(4 << 20).unwrap();
    let mut at_once = length;
    let written = write_once(&far, &mut out, &mut at_once);
    let Poll::Ready(Ok(count)) = written else {
        panic!("{written:?}");
    };
    assert!(count > 150_000, "{count} of {length}");
    let (_, writes) = write_all(&far, &mut near, &mut out).await;
    assert!(writes < 20, "{writes}");
}

#[tokio::test]
async fn zeros_behind_the_end_of_a_file_are_never_sent() {
    for end in [299_999, 299_000, 4_096, 1, 0] {
        let (mut near, far) = tcp().await;
        let file = file(300_000);
        let open = OpenFile::new(file.try_clone().unwrap());
        let mut out = Answering::new().list([range(&open, 0, 300_000)]);
        let whole = octets(&out);
        file.set_len(end).unwrap();
        let (mut seen, mut at_once) = (Vec::new(), MOST);
        loop {
            match write_once(&far, &mut out, &mut at_once) {
                // Reading ends the connection.
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(written) => drop(written.unwrap()),
                Poll::Pending => read_some(&mut near, 300_000, &mut seen).await,
            }
        }
        drop(far);
        near.read_to_end(&mut seen).await.unwrap();
        assert!(seen.len() >= end as usize && whole.starts_with(&seen), "{end}");
    }
}

/// Writes a list of which `change` changes the file after the first write.
async fn changed_meanwhile(change: impl FnOnce(&File)) -> io::Result<()> {
    let (mut near, far) = tcp().await;
    let file = file(400_000);
    let open = OpenFile::new(file.try_clone().unwrap());
    let mut out = Answering::new().list([range(&open, 0, 400_000)]);
    let mut at_once = LEAST;
    let written = write_once(&far, &mut out, &mut at_once);
    assert!(matches!(written, Poll::Ready(Ok(1..))), "{written:?}");
    assert!(out.has_external());
    change(&file);
    while out.has_remaining() {
        match write_once(&far, &mut out, &mut at_once) {
            Poll::Ready(written) => drop(written?),
            Poll::Pending => read_some(&mut near, 300_000, &mut Vec::new()).await,
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_changed_while_it_is_sent_by_reference_ends_the_connection() {
    let other_time = |file: &File| file.set_modified(std::time::UNIX_EPOCH).unwrap();
    // Truncated and extended again, so that the length is the same.
    let refilled = changed_meanwhile(|file| {
        file.set_len(1).unwrap();
        file.set_len(400_000).unwrap();
        other_time(file);
    });
    let appended = changed_meanwhile(|file| file.set_len(400_001).unwrap());
    let written = changed_meanwhile(other_time);
    for ended in [refilled.await, appended.await, written.await] {
        let error = ended.expect_err("a change is noticed");
        assert!(error.to_string().contains("was changed"), "{error}");
    }
    let error = changed_meanwhile(|file| file.set_len(1).unwrap()).await;
    let error = error.expect_err("a change is noticed");
    assert!(error.to_string().contains("became shorter"), "{error}");
}

#[tokio::test]
async fn a_file_that_only_gets_other_permissions_is_sent_to_its_end() {
    let permit = |file: &File| {
        use std::os::unix::fs::PermissionsExt as _;
        file.set_permissions(std::fs::Permissions::from_mode(0o640))
            .unwrap();
    };
    changed_meanwhile(permit).await.unwrap();
}

#[test]
fn a_change_that_comes_when_the_socket_has_taken_the_octets_is_noticed() {
    let file = file(300_000);
    let open = OpenFile::new(file.try_clone().unwrap());
    let out = Answering::new().list([range(&open, 0, 300_000)]);
    check_unchanged(&out, out.remaining()).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    // Nothing of the file is among the first octets, which are the head of the response.
    check_unchanged(&out, 1).unwrap();
    let error = check_unchanged(&out, out.remaining()).unwrap_err();
    assert!(error.to_string().contains("was changed"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_spliced_is_to_be_read() {
    let (mut near, far) = tcp().await;
    let folder = OpenFile::new(File::open(std::env::temp_dir()).unwrap());
    let mut out = Answering::new().list([range(&folder, 0, 100)]);
    let mut at_once = MOST;
    while let Poll::Ready(Ok(1..)) = write_once(&far, &mut out, &mut at_once) {}
    assert!(matches!(
        write_once(&far, &mut out, &mut at_once),
        Poll::Ready(Ok(0))
    ));
    assert_eq!(out.remaining(), 100);
    read_some(&mut near, 10_000, &mut Vec::new()).await;

    // splice(2) answers EINVAL for a descriptor that is to be appended to.
    let set = |flags| rustix::fs::fcntl_setfl(&far, flags).unwrap();
    set(OFlags::NONBLOCK | OFlags::APPEND);
    let file = OpenFile::new(file(300_000));
    let mut out = Answering::new().list([range(&file, 0, 300_000)]);
    let expected = octets(&out);
    let written = write_once(&far, &mut out, &mut at_once);
    assert!(matches!(written, Poll::Ready(Ok(0))), "{written:?}");
    // Nothing of it stays in the pipe.
    set(OFlags::NONBLOCK);
    assert!(write_all(&far, &mut near, &mut out).await.0 == expected);
}
