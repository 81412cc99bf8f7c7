//! What the program is for: bodies arrive whole, in their place, many at once, and uploads as well.

use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use crate::support::frames::END_STREAM;
use crate::support::peer::listen;
use crate::support::scripted::{Server as Scripted, Then, V1, body, head, whole};
use crate::support::{OtherCause, Serving, Signal, TestResult, measured, names, program, run, signal};
use bytes::Bytes;
use fullbore::{Incoming, Server};
use fullbore_testing::frames::GOAWAY;
use fullbore_testing::peer::BlockingPeer;
use fullbore_testing::random::Random;
use http::{Request, Response};
use http_body_util::Full;
use tower_service::Service;

/// Bytes in which a lost, doubled or moved part shows.
fn content(length: usize) -> Vec<u8> {
    Random::new(1).bytes(length)
}

fn json(text: &[u8]) -> TestResult<serde_json::Value> {
    Ok(serde_json::from_slice(text)?)
}

#[test]
fn the_demo_finds_every_byte_right() -> TestResult {
    let folder = tempfile::tempdir()?;
    measured(|| {
        let ended = run(folder.path(), ["demo"])?;
        ended.succeeded();
        let text = String::from_utf8(ended.stdout)?;
        assert_eq!(text.matches("every byte").count(), 8, "{text}");
        assert!(text.contains("278,872,064 bytes"), "{text}");
        match text.contains("window (65,535 B at ") {
            true => Ok(()),
            false => Err(OtherCause(text).into()),
        }
    })
}

#[test]
fn the_version_is_that_of_the_package() -> TestResult {
    let ended = run(Path::new("."), ["--version"])?;
    ended.succeeded();
    assert_eq!(
        ended.stdout,
        concat!("fullbore ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()
    );
    Ok(())
}

#[test]
fn a_large_file_arrives_whole_in_a_file_and_on_standard_output() -> TestResult {
    let root = tempfile::tempdir()?;
    let content = content(5_000_017);
    fs::write(root.path().join("large"), &content)?;
    let serving = Serving::start(root.path(), &["--self-signed"])?;
    let url = format!("{}/large", serving.origin);

    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "-v", "--insecure", "-O", &url])?;
    ended.succeeded();
    assert!(ended.summary().starts_with("5,000,017 bytes in "), "{ended:?}");
    assert_eq!(names(folder.path())?, ["large"]);
    assert!(fs::read(folder.path().join("large"))? == content);

    let ended = run(folder.path(), ["get", "--insecure", "--json", &url])?;
    ended.succeeded();
    assert!(ended.stdout == content);
    let document = json(ended.stderr.as_bytes())?;
    assert_eq!(document["totals"]["bytes"], 5_000_017);
    assert_eq!(document["results"][0]["status"], 200);
    Ok(())
}

#[test]
fn windows_of_the_smallest_size_change_nothing_but_the_speed() -> TestResult {
    let root = tempfile::tempdir()?;
    let content = content(300_000);
    fs::write(root.path().join("file"), &content)?;
    let serving = Serving::start(
        root.path(),
        &["--plaintext", "--threads", "1", "--max-streams", "1"],
    )?;
    let folder = tempfile::tempdir()?;
    let url = format!("{}/file", serving.origin);
    run(
        folder.path(),
        [
            "get",
            "--stream-window",
            "16KiB",
            "--connection-window",
            "65535",
            "-o",
            "a",
            &url,
        ],
    )?
    .succeeded();
    assert!(fs::read(folder.path().join("a"))? == content);
    Ok(())
}

#[test]
#[cfg(target_os = "linux")]
fn the_table_of_descriptors_does_not_grow_while_requests_wait() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let field = |file: &str, name: &str| -> TestResult<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", serving.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let figure = line.and_then(|line| line.split_whitespace().next());
        Ok(figure.ok_or("no such line")?.parse()?)
    };
    let limit = field("limits", "Max open files")?;
    assert!(field("status", "FDSize:")? >= limit.min(1 << 16));
    Ok(())
}

#[test]
#[cfg(target_os = "linux")]
fn threads_share_out_the_connections_and_end_together() -> TestResult {
    let root = tempfile::tempdir()?;
    let content = content(100_000);
    fs::write(root.path().join("file"), &content)?;
    let mut serving = Serving::start(root.path(), &["--plaintext", "--threads", "3"])?;
    let url = format!("{}/file", serving.origin);
    let folder = tempfile::tempdir()?;
    for _ in 0..8 {
        let ended = run(folder.path(), ["get", &url])?;
        ended.succeeded();
        assert!(ended.stdout == content);
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", serving.child.id()))?;
    let names = tasks.map(|task| fs::read_to_string(task?.path().join("comm")));
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    assert_eq!(
        names.iter().filter(|name| *name == "serve\n").count(),
        2,
        "{names:?}"
    );

    // Another one that would share the port is told that it is taken.
    let taken = serving.origin.trim_start_matches("http://");
    let second = ["serve", ".", "--plaintext", "--threads", "3", "--listen", taken];
    let ended = run(root.path(), second)?;
    ended.failed_with(5);
    assert!(ended.stderr.contains("cannot listen on"), "{ended:?}");

    signal(&serving.child, Signal::Terminate)?;
    assert_eq!(serving.child.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_list_of_many_urls_becomes_as_many_files() -> TestResult {
    const MANY: usize = 2_000;
    let root = tempfile::tempdir()?;
    for index in 0..MANY {
        fs::write(root.path().join(format!("{index}.txt")), content(index))?;
    }
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let mut list = String::from("# all of them\n\n");
    for index in 0..MANY {
        list.push_str(&format!("{}/{index}.txt\n", serving.origin));
    }
    let folder = tempfile::tempdir()?;
    let mut child = program(folder.path())
        .args(["get", "-i", "-", "--dir", "a/b", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(list.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = json(&output.stdout)?;
    assert_eq!(document["totals"]["urls"], MANY);
    assert_eq!(document["totals"]["failures"], 0);
    assert_eq!(document["totals"]["interrupted"], false);
    assert_eq!(document["results"].as_array().map(Vec::len), Some(MANY));
    let got = folder.path().join("a/b");
    assert_eq!(names(&got)?.len(), MANY);
    for index in 0..MANY {
        assert!(
            fs::read(got.join(format!("{index}.txt")))? == content(index),
            "{index}"
        );
    }
    Ok(())
}

#[test]
fn more_large_files_at_once_than_are_kept_open_all_arrive_whole() -> TestResult {
    const MANY: usize = 160;
    let root = tempfile::tempdir()?;
    let content = content(200_003);
    for index in 0..MANY {
        fs::write(root.path().join(index.to_string()), &content)?;
    }
    let serving = Serving::start(root.path(), &["--plaintext", "--max-streams", "1000"])?;
    let folder = tempfile::tempdir()?;
    let mut args = vec!["get".to_owned(), "-O".to_owned()];
    args.extend((0..MANY).map(|index| format!("{}/{index}", serving.origin)));
    run(folder.path(), args)?.succeeded();
    for index in 0..MANY {
        assert!(
            fs::read(folder.path().join(index.to_string()))? == content,
            "{index}"
        );
    }
    assert_eq!(names(folder.path())?.len(), MANY);
    Ok(())
}

#[test]
fn remote_names_may_be_those_of_a_folder() -> TestResult {
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), content(1_000))?;
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let folder = tempfile::tempdir()?;
    let url = format!("{}/file", serving.origin);
    run(folder.path(), ["get", "-O", "--dir", "new", &url])?.succeeded();
    assert!(fs::read(folder.path().join("new/file"))? == content(1_000));
    assert_eq!(names(folder.path())?, ["new"]);
    Ok(())
}

#[test]
fn discarded_bodies_are_counted_and_leave_nothing() -> TestResult {
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), content(100_000))?;
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let url = format!("{}/file", serving.origin);
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "--discard", "--json", &url, &url, &url])?;
    ended.succeeded();
    let document = json(&ended.stdout)?;
    assert_eq!(document["totals"]["bytes"], 300_000);
    assert_eq!(document["totals"]["urls"], 3);
    for result in document["results"].as_array().ok_or("no results")? {
        assert_eq!(result["bytes"], 100_000);
        assert!(result["seconds"].as_f64() > Some(0.0), "{result}");
        assert!(result["file"].is_null() && result["error"].is_null(), "{result}");
    }
    assert!(names(folder.path())?.is_empty());

    // What failed names its file no more than what was thrown away.
    let none = format!("{}/none", serving.origin);
    let ended = run(folder.path(), ["get", "--json", "-O", &url, &none])?;
    assert_eq!(ended.code, Some(14), "{ended:?}");
    let document = json(&ended.stdout)?;
    assert_eq!(document["totals"]["failures"], 1);
    for result in document["results"].as_array().ok_or("no results")? {
        let is_whole = result["status"] == 200;
        assert_eq!(result["file"].as_str(), is_whole.then_some("./file"), "{result}");
        assert_eq!(result["error"].is_null(), is_whole, "{result}");
    }
    assert_eq!(names(folder.path())?, ["file"]);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_with_data_behind_a_length_of_0_is_uploaded() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "."])?;
    let url = format!("{}/one", serving.origin);
    run(root.path(), ["put", "/proc/version", &url])?.succeeded();
    assert_eq!(fs::read(root.path().join("one"))?, fs::read("/proc/version")?);
    Ok(())
}

#[test]
fn an_upload_arrives_whole_from_a_file_and_from_a_pipe() -> TestResult {
    let root = tempfile::tempdir()?;
    fs::create_dir(root.path().join("incoming"))?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "incoming"])?;
    let folder = tempfile::tempdir()?;
    let content = content(3_000_001);
    fs::write(folder.path().join("file"), &content)?;
    let ended = run(
        folder.path(),
        [
            "put",
            "file",
            &format!("{}/one", serving.origin),
            "-o",
            "answer",
            "--json",
        ],
    )?;
    ended.succeeded();
    let document = json(&ended.stdout)?;
    assert_eq!(
        (&document["sent"], &document["received"]),
        (&3_000_001.into(), &8.into())
    );
    assert_eq!(fs::read(folder.path().join("answer"))?, b"3000001\n");
    assert!(fs::read(root.path().join("incoming/one"))? == content);

    let file = fs::File::open(folder.path().join("file"))?;
    let url = format!("{}/two", serving.origin);
    let ended = crate::support::ended(
        std::process::Command::new("cat")
            .stdin(file)
            .stdout(Stdio::piped())
            .spawn()?
            .stdout
            .map(|pipe| {
                let mut command = program(folder.path());
                command.args(["put", "-v", "-", &url]).stdin(pipe);
                command
            })
            .as_mut()
            .ok_or("no pipe")?,
    )?;
    ended.succeeded();
    assert!(
        ended.summary().starts_with("sent 3,000,001 bytes in "),
        "{ended:?}"
    );
    assert_eq!(ended.stdout, b"", "the closing line has the number");
    assert!(fs::read(root.path().join("incoming/two"))? == content);
    Ok(())
}

#[test]
fn a_run_ends_its_connection_with_goaway() -> TestResult {
    let (said, heard) = std::sync::mpsc::channel();
    let address = listen(move |stream| {
        let mut peer = BlockingPeer::server(stream)?;
        let mut goes = false;
        while let Ok(frame) = peer.receive() {
            goes |= frame.kind == GOAWAY;
            if frame.stream > 0 && frame.ends_stream() {
                peer.send(&head(frame.stream, END_STREAM, &[(":status", "200")]))?;
            }
        }
        let _ = said.send(goes);
        Ok(())
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "content")?;
    let url = format!("http://{address}/");
    for args in [["get", "--discard"], ["put", "file"]] {
        run(folder.path(), [args[0], args[1], &url])?.succeeded();
        assert!(heard.recv()?, "{args:?}");
    }
    Ok(())
}

#[test]
fn an_empty_file_is_uploaded_and_downloaded() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "."])?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("empty"), "")?;
    let url = format!("{}/empty", serving.origin);
    run(folder.path(), ["put", "empty", &url])?.succeeded();
    run(folder.path(), ["get", "-o", "back", &url])?.succeeded();
    assert_eq!(fs::read(folder.path().join("back"))?, b"");
    Ok(())
}

#[test]
fn a_refused_upload_exits_with_14_and_a_missing_file_with_17() -> TestResult {
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), "x")?;
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let url = format!("{}/x", serving.origin);
    run(root.path(), ["put", "file", &url])?.failed_with(14);
    run(root.path(), ["put", "no-such-file", &url])?.failed_with(17);
    // A folder goes to a URL that ends in a slash.
    run(root.path(), ["put", ".", &url])?.failed_with(2);
    assert_eq!(names(root.path())?, ["file"]);
    Ok(())
}

/// A page of 2 MiB for each buffer of 256 KiB would be what a peer that sends much costs at once.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_is_busy_takes_no_huge_pages() -> TestResult {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if setting.contains("[always]") {
        eprintln!("skipped: this system gives huge pages to everybody");
        return Ok(());
    }
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), content(5_000_000))?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "discard"])?;
    let url = format!("{}/file", serving.origin);
    run(root.path(), ["put", "file", &url])?.succeeded();
    run(root.path(), ["get", "--discard", &url])?.succeeded();
    let memory = fs::read_to_string(format!("/proc/{}/smaps_rollup", serving.child.id()))?;
    let huge = memory.lines().find(|line| line.starts_with("AnonHugePages:"));
    let huge: Vec<&str> = huge.ok_or("no such line")?.split_whitespace().collect();
    assert_eq!(huge, ["AnonHugePages:", "0", "kB"]);
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_server_told_to_end_exits_with_0() -> TestResult {
    for told in [Signal::Terminate, Signal::Interrupt] {
        let root = tempfile::tempdir()?;
        let mut serving = Serving::start(root.path(), &["--plaintext"])?;
        signal(&serving.child, told)?;
        assert_eq!(serving.child.wait()?.code(), Some(0));
    }
    Ok(())
}

#[test]
fn an_address_in_use_is_one_sentence() -> TestResult {
    let root = tempfile::tempdir()?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let ended = run(root.path(), ["serve", "--plaintext", "--listen", &address])?;
    ended.failed_with(5);
    assert!(ended.stderr.contains(&address), "{ended:?}");
    Ok(())
}

#[test]
fn ten_redirects_are_followed_and_no_eleventh() -> TestResult {
    for (redirects, code, asked) in [(10, 0, 11), (11, 14, 11)] {
        let server = Scripted::start(move |number, asked| match number <= redirects {
            true => {
                let fields = [(":status", "302"), ("location", "/next")];
                (head(asked.stream, END_STREAM, &fields), Then::Go)
            }
            false => (whole(asked, V1, &body(1)), Then::Go),
        })?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "-L", "--discard", &server.url()])?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(server.asked(), asked, "{ended:?}");
    }
    Ok(())
}

/// Redirects to another origin, or answers with the credentials it was sent.
#[derive(Clone)]
struct Gate {
    next: Option<String>,
}

impl Service<Request<Incoming>> for Gate {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let fields = request.headers();
        let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
        let shown = format!("{:?} {:?}", text("authorization"), text("x-kept"));
        let mut response = Response::new(Full::new(Bytes::from(shown)));
        let next = match request.uri().path() {
            "/away" => self.next.clone(),
            "/round" => Some("round".to_owned()),
            "/near" => Some("here?a=b".to_owned()),
            _ => None,
        };
        if let Some(Ok(location)) = next.map(|next| next.parse()) {
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", location);
        }
        Box::pin(async { Ok(response) })
    }
}

async fn gate(next: Option<String>) -> TestResult<String> {
    let server = Server::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", server.local_addr()?);
    tokio::spawn(server.serve(Gate { next }));
    Ok(origin)
}

#[test]
fn redirects_are_followed_and_credentials_stay_with_their_origin() -> TestResult {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (near, away) = runtime.block_on(async {
        let away = gate(None).await?;
        TestResult::Ok((gate(Some(format!("{away}/there"))).await?, away))
    })?;
    let folder = tempfile::tempdir()?;
    let get = |path: &str, more: &[&str]| {
        let url = format!("{near}{path}");
        let mut args = vec!["get", "-H", "authorization: secret", "-H", "x-kept: yes", &url];
        args.extend(more);
        run(folder.path(), args)
    };

    let same = get("/near", &[])?;
    same.succeeded();
    assert_eq!(same.stdout, b"Some(\"secret\") Some(\"yes\")");
    let other = get("/away", &["-L"])?;
    other.succeeded();
    assert_eq!(other.stdout, b"None None", "a field of any name may be a secret");
    let trusted = get("/away", &["--location-trusted"])?;
    trusted.succeeded();
    assert_eq!(trusted.stdout, b"Some(\"secret\") Some(\"yes\")");
    let unfollowed = get("/away", &["--no-location"])?;
    unfollowed.failed_with(14);
    assert!(
        unfollowed.stderr.contains(&format!("redirects to {away}/there")),
        "{unfollowed:?}"
    );
    get("/round", &["-L"])?.failed_with(14);
    Ok(())
}
