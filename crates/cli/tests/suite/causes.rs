//! The closing line names what a transfer waited for, in text and in JSON: each cause staged over an emulated path.

use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use crate::support::{Ended, Linked, OtherCause, Serving, TestResult, measured, program, run, until};
use bytes::Bytes;
use fullbore::{Incoming, Server};
use http::{Request, Response};
use http_body::{Body, Frame};
use tempfile::TempDir;
use tokio::time::Sleep;
use tower_service::Service;

/// A round trip that a few dozen of make a second.
const LONG: &[&str] = &["--rtt", "50ms"];

/// A folder with a file of this length.
fn folder(length: usize) -> TestResult<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), vec![7; length])?;
    Ok(folder)
}

/// A file that is served with these options, over a path with those.
struct Stage {
    root: TempDir,
    serving: Serving,
    linked: Linked,
}

impl Stage {
    fn new(length: usize, serve: &[&str], link: &[&str]) -> TestResult<Self> {
        let root = folder(length)?;
        let mut options = vec!["--plaintext"];
        options.extend(serve);
        let serving = Serving::start(root.path(), &options)?;
        let linked = Linked::start(&serving.origin, link)?;
        Ok(Self {
            root,
            serving,
            linked,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.linked.origin)
    }

    /// Downloads the file and throws it away.
    fn get(&self, options: &[&str]) -> TestResult<Ended> {
        let url = self.url("file");
        let mut args = vec!["-v", "get", "--discard", "--json", &url];
        args.extend(options);
        run(self.root.path(), args)
    }

    /// Uploads the file; once for the text and once for the document.
    fn put(&self, options: &[&str]) -> TestResult<[Ended; 2]> {
        let url = self.url("up");
        let args = || [&["put", "file", &url][..], options].concat();
        let text = run(self.root.path(), [&args()[..], &["-v"]].concat())?;
        let document = run(
            self.root.path(),
            [&args()[..], &["--json", "-o", "answer"]].concat(),
        )?;
        Ok([text, document])
    }
}

/// What the document says that it waited for, without `totals` around it in that of `put`.
fn waited(document: &[u8]) -> TestResult<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_slice(document)?;
    let totals = document.get("totals").unwrap_or(&document);
    Ok(totals["waited"].clone())
}

/// Whether it says so, where `50+ ms` is a round trip of that path: a busy machine makes it longer, nothing shorter.
fn says(text: &str, clause: &str) -> bool {
    let Some((before, least)) = clause.strip_suffix("+ ms").and_then(|rest| rest.rsplit_once(' ')) else {
        return text.contains(clause);
    };
    let measured = text
        .split_once(before)
        .and_then(|(_, rest)| rest.trim_start().split_once(" ms"));
    measured.is_some_and(|(millis, _)| {
        millis
            .parse::<f64>()
            .is_ok_and(|millis| least.parse().is_ok_and(|least: f64| millis >= least))
    })
}

fn named(text: &str, document: &[u8], states: &[&str], clause: &str) -> TestResult {
    let waited = waited(document)?;
    let is_held = states.iter().any(|state| waited["held_by"] == *state);
    match is_held && says(text, clause) {
        true => Ok(()),
        false => Err(OtherCause(format!("not {states:?} and {clause:?}, but {text:?}: {waited}")).into()),
    }
}

#[track_caller]
fn get_names(ended: &Ended, state: &str, clause: &str) -> TestResult {
    ended.succeeded();
    named(ended.summary(), &ended.stdout, &[state], clause)
}

#[track_caller]
fn put_names(ended: &[Ended; 2], state: &str, clause: &str) -> TestResult {
    put_names_one_of(ended, &[state], clause)
}

#[track_caller]
fn put_names_one_of(ended: &[Ended; 2], states: &[&str], clause: &str) -> TestResult {
    ended.iter().for_each(Ended::succeeded);
    named(ended[0].summary(), &ended[1].stdout, states, clause)
}

#[test]
fn a_download_held_by_the_stream_window_says_so() -> TestResult {
    measured(|| {
        let stage = Stage::new(2 << 20, &[], LONG)?;
        // Over further connections there is no report of a stream.
        let ended = stage.get(&["--stream-window", "65535", "--connections", "1"])?;
        get_names(
            &ended,
            "stream_window",
            "limited by the stream window (65,535 B at 50+ ms",
        )?;
        assert!(ended.summary().contains("try --stream-window 16MiB"), "{ended:?}");
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        let of_file = &document["results"][0]["waited"];
        assert_eq!(of_file["held_by"], "stream_window", "{of_file}");
        assert_eq!(of_file["received_bytes"], 2 << 20);
        assert_eq!(of_file["stream_window"], 65_535);
        Ok(())
    })
}

#[test]
fn the_access_log_says_what_limited_a_long_response_or_upload() -> TestResult {
    measured(|| {
        for (format, cause) in [
            ("text", " cause=stream_window"),
            ("json", "\"cause\":\"stream_window\"}"),
        ] {
            let log = ["--log", "--log-format", format, "--uploads", "discard"];
            let mut stage = Stage::new(2 << 20, &[&log[..], &["--stream-window", "65535"]].concat(), LONG)?;
            fs::write(stage.root.path().join("small"), "small")?;
            stage
                .get(&["--stream-window", "65535", "--connections", "1"])?
                .succeeded();
            let line = stage.serving.line()?;
            assert!(line.contains("/file") && line.ends_with(cause), "{line}");
            stage.put(&[])?.iter().for_each(Ended::succeeded);
            for _ in 0..2 {
                let line = stage.serving.line()?;
                assert!(line.contains("/up") && line.ends_with(cause), "{line}");
            }
            run(stage.root.path(), ["get", "--discard", &stage.url("small")])?.succeeded();
            let line = stage.serving.line()?;
            assert!(
                line.contains("/small") && !line.contains("stream_window"),
                "{line}"
            );
        }
        Ok(())
    })
}

/// The bodies are larger than what the buffers of both kernels hold.
#[test]
#[cfg(target_os = "linux")]
fn the_access_log_and_the_metrics_say_of_http_1_what_tcp_knows() -> TestResult {
    measured(|| {
        let metrics = ["--metrics", "127.0.0.1:0"];
        let log = [&["--log", "--log-format", "json", "--plaintext"], &metrics[..]].concat();
        let root = folder(24 << 20)?;
        let mut serving = Serving::start(root.path(), &log)?;
        let figures = serving.line()?;
        let figures = figures.strip_prefix("metrics on ").ok_or("no address")?;
        let url = format!("{}/file", serving.origin);
        let get = [
            "get",
            "--discard",
            "--http1.1",
            "--connections",
            "1",
            "--limit-rate",
            "8MB",
            &url,
        ];
        run(root.path(), get)?.succeeded();
        let line = serving.line()?;
        let known: serde_json::Value = serde_json::from_str(&line)?;
        if known["cause"] != "peer_tcp_receive_buffer" {
            return Err(OtherCause(line).into());
        }
        let counted = "limited_connections_total{cause=\"peer_tcp_receive_buffer\"} 1";
        let figures = format!("{figures}/metrics");
        until("the connection is counted", || {
            let text = run(root.path(), ["get", "-o", "-", &figures])?.stdout;
            Ok(String::from_utf8(text)?.contains(counted))
        })?;
        Ok(())
    })
}

#[test]
fn a_download_held_by_the_connection_window_says_so() -> TestResult {
    measured(|| {
        let stage = Stage::new(2 << 20, &[], LONG)?;
        let ended = stage.get(&["--stream-window", "4MiB", "--connection-window", "65535"])?;
        get_names(
            &ended,
            "connection_window",
            "limited by the connection window (65,535 B at 50+ ms",
        )?;
        assert!(
            ended.summary().contains("try --connection-window 16MiB"),
            "{ended:?}"
        );
        Ok(())
    })
}

#[test]
fn downloads_held_by_the_number_of_streams_say_so() -> TestResult {
    measured(|| {
        // A hundred requests leave before the server's SETTINGS arrive. The others wait for more than two seconds.
        let stage = Stage::new(6_000, &["--max-streams", "2"], LONG)?;
        let list: String = (0..200).map(|_| format!("{}\n", stage.url("file"))).collect();
        fs::write(stage.root.path().join("list"), list)?;
        let args = [
            "-v",
            "get",
            "--discard",
            "--json",
            "--connections",
            "1",
            "-i",
            "list",
        ];
        let ended = run(stage.root.path(), args)?;
        get_names(
            &ended,
            "stream_count",
            "limited by the number of streams (the server allows 2 at a time",
        )?;
        Ok(())
    })
}

#[test]
fn a_download_whose_path_sets_the_speed_says_so() -> TestResult {
    measured(|| {
        let stage = Stage::new(4 << 20, &[], &["--rtt", "20ms", "--rate", "25Mbit"])?;
        let ended = stage.get(&[])?;
        get_names(&ended, "moving", "limited by the path")?;
        Ok(())
    })
}

#[test]
fn transfers_over_http_1_have_their_causes_too() -> TestResult {
    measured(|| {
        let path = ["--rtt", "20ms", "--rate", "25Mbit"];
        let stage = Stage::new(4 << 20, &["--uploads", "discard"], &path)?;
        let ended = stage.get(&["--http1.1", "--connections", "1"])?;
        ended.succeeded();
        let document = waited(&ended.stdout)?;
        match document["http1_1"]["cause"] == "path" {
            true => {}
            false => return Err(OtherCause(document.to_string()).into()),
        }
        let summary = ended.summary();
        assert!(
            summary.contains("over HTTP/1.1, ") && summary.contains("limited by the path"),
            "{summary}"
        );
        // The relay has buffers, and ends TCP: whether the server reads slowly is not known.
        for ended in stage.put(&["--http1.1"])? {
            ended.succeeded();
            assert!(!ended.stderr.contains("waiting for the server to"), "{ended:?}");
        }
        Ok(())
    })
}

/// Reads `from` to its end, a little at a time.
fn read_slowly(mut from: impl Read) -> std::io::Result<usize> {
    let mut some = vec![0; 64 << 10];
    let mut all = 0;
    loop {
        match from.read(&mut some)? {
            0 => return Ok(all),
            count => all += count,
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Downloads to a pipe that is read slowly; what standard error says.
fn read_through_a_slow_pipe(stage: &Stage, options: &[&str]) -> TestResult<String> {
    let mut child = program(stage.root.path())
        .args(["get", &stage.url("file")])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pipe = child.stdout.take().ok_or("no pipe")?;
    assert_eq!(read_slowly(pipe)?, 5 << 20);
    let mut said = String::new();
    child.stderr.take().ok_or("no pipe")?.read_to_string(&mut said)?;
    assert!(child.wait()?.success(), "{said}");
    Ok(said)
}

#[test]
fn a_download_whose_reader_is_slow_says_so() -> TestResult {
    measured(|| {
        let stage = Stage::new(5 << 20, &[], &["--rtt", "10ms"])?;
        for options in [&[][..], &["--stream-window", "256KiB"]] {
            let text = read_through_a_slow_pipe(&stage, &[options, &["-v"]].concat())?;
            let document = read_through_a_slow_pipe(&stage, &[options, &["--json"]].concat())?;
            let clause = "limited by this side: the disk or reader is slower than the path";
            named(&text, document.as_bytes(), &["application"], clause)?;
        }
        Ok(())
    })
}

/// Answers with a body that comes in small pieces; takes a request's body in, and thinks about it.
#[derive(Clone)]
struct Slow;

/// Pieces of sixty thousand octets, one at a time.
struct Dribble {
    left: usize,
    next: Pin<Box<Sleep>>,
}

const BETWEEN: Duration = Duration::from_millis(50);

impl Body for Dribble {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.left -= 1;
        self.next = Box::pin(tokio::time::sleep(BETWEEN));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 60_000])))))
    }
}

impl Service<Request<Incoming>> for Slow {
    type Response = Response<Dribble>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let pieces = if request.uri().path() == "/up" { 0 } else { 25 };
        Box::pin(async move {
            let _ = http_body_util::BodyExt::collect(request.into_body()).await;
            if pieces == 0 {
                tokio::time::sleep(BETWEEN * 25).await;
            }
            Ok(Response::new(Dribble {
                left: pieces,
                next: Box::pin(tokio::time::sleep(BETWEEN)),
            }))
        })
    }
}

/// A slow server, and the runtime that it lives on.
fn slow_server() -> TestResult<(tokio::runtime::Runtime, String)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let origin = runtime.block_on(async {
        let server = Server::bind("127.0.0.1:0").await?;
        let origin = format!("http://{}", server.local_addr()?);
        tokio::spawn(server.serve(Slow));
        TestResult::Ok(origin)
    })?;
    Ok((runtime, origin))
}

#[test]
fn a_download_whose_server_dribbles_behind_a_proxy_blames_the_server_or_the_path() -> TestResult {
    measured(|| {
        let (_runtime, origin) = slow_server()?;
        let linked = Linked::start(&origin, &["--rtt", "10ms"])?;
        let url = format!("{}/dribble", linked.origin);
        let ended = run(Path::new("."), ["-v", "get", "--discard", "--json", &url])?;
        let clause = "waiting for the server or the path, the round trip is 10+ ms";
        get_names(&ended, "peer", clause)?;
        Ok(())
    })
}

#[test]
#[cfg(target_os = "linux")]
fn a_download_whose_server_dribbles_blames_the_server_if_tcp_has_lost_nothing() -> TestResult {
    measured(|| {
        let (_runtime, origin) = slow_server()?;
        let url = format!("{origin}/dribble");
        let ended = run(Path::new("."), ["-v", "get", "--discard", "--json", &url])?;
        if waited(&ended.stdout)?.get("tcp").is_none() {
            eprintln!("skipped: the kernel says nothing of TCP");
            return Ok(());
        }
        get_names(&ended, "peer", "waiting for the server, the round trip is ")?;
        Ok(())
    })
}

#[test]
fn an_upload_held_by_the_stream_window_says_so() -> TestResult {
    measured(|| {
        let serve = ["--uploads", "discard", "--stream-window", "65535"];
        let stage = Stage::new(2 << 20, &serve, LONG)?;
        let clause = "limited by the stream window (65,535 B at 50+ ms";
        put_names(&stage.put(&[])?, "stream_window", clause)?;
        Ok(())
    })
}

#[test]
fn an_upload_held_by_the_connection_window_says_so() -> TestResult {
    measured(|| {
        let serve = [
            "--uploads",
            "discard",
            "--stream-window",
            "4MiB",
            "--connection-window",
            "65535",
        ];
        let stage = Stage::new(2 << 20, &serve, LONG)?;
        put_names(
            &stage.put(&[])?,
            "connection_window",
            "limited by the connection window; only the server can enlarge it",
        )?;
        Ok(())
    })
}

#[test]
fn an_upload_whose_path_sets_the_speed_says_so() -> TestResult {
    measured(|| {
        let link = ["--rtt", "10ms", "--rate", "50Mbit", "--buffer", "64KiB"];
        let stage = Stage::new(10 << 20, &["--uploads", "discard"], &link)?;
        let ended = stage.put(&["--tcp-send-buffer", "64KiB"])?;
        put_names_one_of(&ended, &["moving", "socket"], "limited by the path")?;
        Ok(())
    })
}

#[test]
fn an_upload_whose_server_thinks_about_it_says_so() -> TestResult {
    measured(|| {
        let (_runtime, origin) = slow_server()?;
        let root = folder(1_100_000)?;
        let url = format!("{origin}/up");
        let text = run(root.path(), ["-v", "put", "file", &url])?;
        let document = run(root.path(), ["put", "file", &url, "--json", "-o", "answer"])?;
        let clause = "waiting for the server to read and respond";
        put_names(&[text, document], "peer", clause)?;
        Ok(())
    })
}

/// Uploads from a pipe into which little comes at a time.
fn put_through_a_slow_pipe(stage: &Stage, options: &[&str]) -> TestResult<Ended> {
    let mut child = program(stage.root.path())
        .args(["put", "-", &stage.url("up")])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdin.take().ok_or("no pipe")?;
    for _ in 0..25 {
        pipe.write_all(&[7; 50_000])?;
        thread::sleep(BETWEEN);
    }
    drop(pipe);
    let output = child.wait_with_output()?;
    Ok(Ended {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr)?,
    })
}

#[test]
fn an_upload_whose_source_is_slow_says_so() -> TestResult {
    measured(|| {
        let stage = Stage::new(0, &["--uploads", "discard"], &["--rtt", "10ms"])?;
        let ended = [
            put_through_a_slow_pipe(&stage, &["-v"])?,
            put_through_a_slow_pipe(&stage, &["--json", "-o", "answer"])?,
        ];
        let clause = "limited by this side: the source is slower than the path";
        put_names(&ended, "application", clause)?;
        Ok(())
    })
}
