//! The access log: one line a request, written when its answer has been sent or given up.
//!
//! Lines go to a thread of their own through a bounded queue, so a reader of the log that stalls never holds up a
//! response; what does not fit is counted, and the count is written. Wraps any service with an HTTP body.
//!
//! A line has the fields time, peer, method, path, status, bytes of body sent, duration in milliseconds, user agent,
//! and `aborted` when the body did not end:
//!
//! ```text
//! 2026-11-21T20:02:24.512Z 127.0.0.1:40126 GET "/a.txt" 200 5 0.214ms "curl/8.14.1"
//! ```

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use bytes::Buf as _;
use fullbore::server::PeerAddr;
use http::header::USER_AGENT;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;

/// How many lines may wait for the writer before more are dropped.
const MAX_WAITING_LINES: usize = 8192;

/// How much is gathered for one write, in bytes.
const MAX_WRITE_BYTES: usize = 64 * 1024;

/// A service that writes a line for each request of another; without a writer, it passes all through.
#[derive(Clone, Debug)]
pub struct Log<S> {
    service: S,
    writer: Option<LogWriter>,
}

impl<S> Log<S> {
    /// Wraps `service`. Without a `writer` nothing is logged.
    pub fn new(service: S, writer: Option<LogWriter>) -> Log<S> {
        Log { service, writer }
    }
}

impl<S, Q, P> Service<Request<Q>> for Log<S>
where
    S: Service<Request<Q>, Response = Response<P>>,
    S::Future: Unpin,
    P: Body + Unpin,
{
    type Response = Response<LogBody<P>>;
    type Error = S::Error;
    type Future = LogFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> LogFuture<S::Future> {
        let line = self.writer.as_ref().map(|to| Box::new(Line::begin(to, &request)));
        LogFuture {
            future: self.service.call(request),
            line,
        }
    }
}

/// The future of a [`Log`].
#[derive(Debug)]
pub struct LogFuture<F> {
    future: F,
    line: Option<Box<Line>>,
}

impl<F, P, E> Future for LogFuture<F>
where
    F: Future<Output = Result<Response<P>, E>> + Unpin,
    P: Body + Unpin,
{
    type Output = Result<Response<LogBody<P>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.future).poll(cx).map_ok(|response| {
            let mut line = self.line.take();
            if let Some(line) = &mut line {
                line.status = Some(response.status().as_u16());
            }
            response.map(|body| LogBody { body, line })
        })
    }
}

/// A body that counts what it gives, for the line in the log.
#[derive(Debug)]
pub struct LogBody<P: Body + Unpin> {
    body: P,
    line: Option<Box<Line>>,
}

impl<P: Body + Unpin> Body for LogBody<P> {
    type Data = P::Data;
    type Error = P::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<P::Data>, P::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let this = &mut *self;
        let over = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(line), Some(data)) = (&mut this.line, frame.data_ref()) {
                    line.bytes += data.remaining() as u64;
                }
                this.body.is_end_stream()
            }
            // After a failure the end may be told too: it is the dropped line that says `aborted`.
            Poll::Ready(Some(Err(_))) => {
                this.line = None;
                false
            }
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        if over {
            this.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<P: Body + Unpin> LogBody<P> {
    fn end(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.whole = true;
        }
    }
}

impl<P: Body + Unpin> Drop for LogBody<P> {
    fn drop(&mut self) {
        // A body that is known to be over need not have been polled to its end: HEAD, 204, 304.
        if self.body.is_end_stream() {
            self.end();
        }
    }
}

/// A line in the making. It is written when dropped.
#[derive(Debug)]
struct Line {
    writer: LogWriter,
    began: Instant,
    time: SystemTime,
    peer: Option<SocketAddr>,
    method: http::Method,
    path: String,
    agent: Option<http::HeaderValue>,
    status: Option<u16>,
    bytes: u64,
    whole: bool,
}

impl Line {
    fn begin<Q>(writer: &LogWriter, request: &Request<Q>) -> Line {
        let uri = request.uri();
        let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
        Line {
            writer: writer.clone(),
            began: Instant::now(),
            time: SystemTime::now(),
            peer: request.extensions().get::<PeerAddr>().map(|peer| peer.0),
            method: request.method().clone(),
            path: path.to_owned(),
            agent: request.headers().get(USER_AGENT).cloned(),
            status: None,
            bytes: 0,
            whole: false,
        }
    }

    /// Writing to a String does not fail, so results are let go.
    fn text(&self) -> String {
        let mut text = String::with_capacity(160);
        let time = humantime::format_rfc3339_millis(self.time);
        let _ = write!(text, "{time} ");
        match self.peer {
            Some(peer) => drop(write!(text, "{peer}")),
            None => text.push('-'),
        }
        // A method is a token (RFC 9110 section 5.6.2), and so has nothing to escape.
        let _ = write!(text, " {} ", self.method);
        quote(&mut text, self.path.as_bytes());
        match self.status {
            Some(status) => drop(write!(text, " {status}")),
            None => text.push_str(" -"),
        }
        let millis = self.began.elapsed().as_secs_f64() * 1000.0;
        let _ = write!(text, " {} {millis:.3}ms ", self.bytes);
        match &self.agent {
            Some(agent) => quote(&mut text, agent.as_bytes()),
            None => text.push('-'),
        }
        if !self.whole {
            text.push_str(" aborted");
        }
        text.push('\n');
        text
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.writer.line(self.text());
    }
}

/// Writes what a peer sent between quotes, so that it can neither end the line, nor the field, nor steer a terminal.
fn quote(text: &mut String, raw: &[u8]) {
    text.push('"');
    for &byte in raw {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text.push('"');
}

/// Where lines go: a thread that owns the output. Clones write to the same; dropping the last one waits until all
/// lines are written.
#[derive(Clone, Debug)]
pub struct LogWriter {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogWriter {
    /// Writes to the standard output.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn stdout() -> std::io::Result<LogWriter> {
        LogWriter::new(std::io::stdout())
    }

    /// Writes to `output`, whole lines at a time.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn new(output: impl Write + Send + 'static) -> std::io::Result<LogWriter> {
        let (lines, receiver) = sync_channel(MAX_WAITING_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        let thread = std::thread::Builder::new()
            .name("fullbore-log".to_owned())
            .spawn(move || write_lines(&receiver, &counter, output))?;
        Ok(LogWriter {
            queue: Arc::new(Queue {
                lines: Some(lines),
                lost,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    fn line(&self, line: String) {
        let sent = self.queue.lines.as_ref().map(|to| to.try_send(line));
        if !matches!(sent, Some(Ok(()))) {
            self.queue.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.lines = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It ends with the queue; that it panicked has been told by the panic.
            let _ = thread.join();
        }
    }
}

/// The thread: takes all lines that wait, and writes them in one call. An output that fails ends the log, not the
/// server.
fn write_lines(lines: &Receiver<String>, lost: &AtomicU64, mut output: impl Write) {
    while let Ok(mut batch) = lines.recv() {
        while batch.len() < MAX_WRITE_BYTES {
            match lines.try_recv() {
                Ok(line) => batch.push_str(&line),
                Err(_) => break,
            }
        }
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(
                batch,
                "... {missing} lines lost: the log was not read fast enough"
            );
        }
        let written = output.write_all(batch.as_bytes());
        if written.and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_peer_sends_ends_a_line_or_a_field() {
        let mut text = String::new();
        quote(&mut text, b"a\"b\\c\r\nd\x1b[2J\x7f\xc3\xa9 ~");
        assert_eq!(text, r#""a\"b\\c\x0d\x0ad\x1b[2J\x7f\xc3\xa9 ~""#);
    }

    /// An output that waits for permission before its first write.
    struct Gate(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_output_loses_lines_and_says_how_many() {
        let (open, gate) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = LogWriter::new(Gate(gate, Arc::clone(&written))).unwrap();
        let sent = MAX_WAITING_LINES * 3;
        for _ in 0..sent {
            writer.line("x".repeat(99) + "\n");
        }
        drop(open);
        drop(writer);
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let kept = written.lines().filter(|l| l.starts_with('x')).count();
        let lost: usize = written
            .lines()
            .filter_map(|l| l.strip_prefix("... ")?.split(' ').next()?.parse::<usize>().ok())
            .sum();
        assert!(lost > 0, "nothing was lost");
        assert_eq!(kept + lost, sent);
    }
}
