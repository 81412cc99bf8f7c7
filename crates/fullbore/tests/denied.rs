//! Where the system denies what sending by reference takes, files are read. A program of its own: that a call was denied is
//! remembered for the whole process.
#![cfg(target_os = "linux")]

mod support;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use fullbore::client::handshake;
use fullbore::server::serve_connection;
use fullbore::{BoxError, Chunk, FileRange, Incoming, OpenFile};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};

use support::{config, get, pattern, soon, take};

const LENGTH: usize = 1_000_000;

/// How many descriptors of this process are ends of pipes.
fn pipes() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_pipe = |path: std::path::PathBuf| {
        std::fs::read_link(path)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"pipe:"))
    };
    all.filter(|entry| is_pipe(entry.as_ref().unwrap().path()))
        .count()
}

/// Lets this process open no descriptor more; returns the limit before.
fn forbid_descriptors() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let current = Some(u64::try_from(next).unwrap());
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    limit
}

#[tokio::test]
async fn a_file_is_read_when_a_call_is_denied_which_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let socket = rustix::io::dup(&far).unwrap();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(file.expect("a file system with O_TMPFILE"));
    file.write_all(&pattern(0, LENGTH)).unwrap();
    let open = OpenFile::new(file);
    let service = tower::service_fn(move |_: Request<Incoming>| {
        let range = Chunk::from(FileRange::new(open.clone(), 0, LENGTH));
        let body = StreamBody::new(futures_util::stream::iter([Ok::<_, BoxError>(Frame::data(
            range,
        ))]));
        async move { Ok::<_, BoxError>(Response::new(body)) }
    });
    let server = tokio::spawn(serve_connection(far, service, config()).sending_files());
    let (sender, connection) = handshake(near, config());
    let connection = tokio::spawn(connection);
    let get = async || {
        let response = soon(sender.send(get("/"))).await.unwrap();
        let taken = soon(take(response.into_body())).await.unwrap();
        assert_eq!(taken.bytes, LENGTH as u64);
    };
    // Want of descriptors passes.
    let none = pipes();
    let limit = forbid_descriptors();
    get().await;
    get().await;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(pipes(), none);
    get().await;
    assert_eq!(pipes(), none + 2, "the thread keeps a pipe");

    // splice(2) answers EINVAL for a descriptor that is to be appended to.
    fcntl_setfl(&socket, OFlags::NONBLOCK | OFlags::APPEND).unwrap();
    let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    rustix::io::write(&write, b"x").unwrap();
    let spliced = splice(&read, None, &socket, None, 1, SpliceFlags::NONBLOCK);
    assert_eq!(spliced, Err(Errno::INVAL));
    drop((read, write));
    get().await;
    assert_eq!(pipes(), none);
    // It would succeed now.
    fcntl_setfl(&socket, OFlags::NONBLOCK).unwrap();
    get().await;
    assert_eq!(pipes(), none);
    drop(sender);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}
