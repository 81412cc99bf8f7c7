//! Where the system denies what sending by reference takes, files are read. A program of its own: that a call was denied is
//! remembered for the whole process.
#![cfg(target_os = "linux")]

mod support;

use std::fs::File;
use std::io::Write;

use fullbore::client::handshake;
use fullbore::server::serve_connection;
use fullbore::{BoxError, Chunk, FileRange, Incoming, OpenFile};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use tokio::net::{TcpListener, TcpStream};

use support::{config, get, pattern, soon, take};

const LENGTH: usize = 1_000_000;

#[tokio::test]
async fn a_file_is_read_when_the_socket_takes_nothing_from_a_pipe() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    // splice(2) answers EINVAL for a descriptor that is to be appended to.
    fcntl_setfl(&far, OFlags::NONBLOCK | OFlags::APPEND).unwrap();
    let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    rustix::io::write(&write, b"x").unwrap();
    let spliced = splice(&read, None, &far, None, 1, SpliceFlags::NONBLOCK);
    assert_eq!(spliced, Err(Errno::INVAL));

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
    for _ in 0..3 {
        let response = soon(sender.send(get("/"))).await.unwrap();
        let taken = soon(take(response.into_body())).await.unwrap();
        assert_eq!(taken.bytes, LENGTH as u64);
    }
    drop(sender);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}
