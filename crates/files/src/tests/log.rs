//! The access log: what a line says, and when it is written.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullbore::ext::OriginTime;
use http_body_util::Full;

use crate::settings::Limits;
use crate::{Log, LogBody, LogFormat, LogLimits, LogUser, LogWriter, PeerAddr};

use super::*;

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A site behind a log.
struct Logged {
    site: Site,
    log: Log<Files>,
    paper: Paper,
}

impl Logged {
    fn new() -> Logged {
        Logged::in_format(LogFormat::Text)
    }

    fn in_format(format: LogFormat) -> Logged {
        let site = Site::with(|_| Settings {
            limits: Limits {
                whole_body_bytes: 100,
                one_frame_bytes: 100,
                chunk_bytes: 1000,
                ..Limits::DEFAULT
            },
            ..Settings::default()
        });
        let paper = Paper::default();
        let writer = LogWriter::new(paper.clone(), LogLimits::default()).unwrap();
        let log = Log::new(site.files.clone(), Some(writer.format(format)));
        Logged { site, log, paper }
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Response<LogBody<ServeBody>> {
        let Ok::<_, Infallible>(response) = self.log.clone().call(request).await;
        response
    }

    async fn read(&self, request: Request<Full<Bytes>>) {
        let response = self.call(request).await;
        response.into_body().collect().await.unwrap();
    }

    /// The lines, once the log is closed.
    fn lines(self) -> Vec<String> {
        drop(self.log);
        let text = String::from_utf8(self.paper.0.lock().unwrap().clone()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }
}

fn get(path: &str) -> Request<Full<Bytes>> {
    request(Method::GET, path, &[], Full::default())
}

/// A line without its time and its duration, which differ.
fn steady(line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(
        humantime::parse_rfc3339(time).is_ok() && time.len() == 24,
        "{time}"
    );
    let kept = rest.split(' ').filter(|field| {
        let millis = field.strip_suffix("ms").and_then(|m| m.parse::<f64>().ok());
        millis.is_none()
    });
    kept.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn no_line_has_the_token_of_an_unfinished_upload() {
    for format in [LogFormat::Text, LogFormat::Combined, LogFormat::Json] {
        let logged = Logged::in_format(format);
        let token = "0123456789abcdef0123456789abcdef";
        logged.read(get(&format!("/a?upload-resource={token}"))).await;
        let lines = logged.lines();
        assert!(lines[0].contains("/a?upload-resource=01234567..."), "{lines:?}");
        assert!(!lines[0].contains(&token[..9]), "{lines:?}");
    }
}

#[tokio::test]
async fn a_line_says_who_asked_for_what_and_what_came_of_it() {
    let logged = Logged::new();
    logged.site.write("a.txt", "hello");
    let mut request = get("/a.txt?q=1");
    let peer = PeerAddr("127.0.0.1:40126".parse().unwrap());
    request.extensions_mut().insert(peer);
    request
        .headers_mut()
        .insert("user-agent", "curl/8.14.1".parse().unwrap());
    logged.read(request).await;
    let lines = logged.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        steady(&lines[0]),
        r#"127.0.0.1:40126 GET "/a.txt?q=1" 200 5 "curl/8.14.1""#
    );
    assert!(lines[0].contains("ms "), "{}", lines[0]);
}

/// A request with everything that a line shows.
fn full_request() -> Request<Full<Bytes>> {
    let mut request = get("/a.txt?q=1");
    let peer = PeerAddr("[2001:db8::7]:40126".parse().unwrap());
    request.extensions_mut().insert(peer);
    let fields = request.headers_mut();
    fields.insert("user-agent", "curl/8.14.1".parse().unwrap());
    fields.insert("referer", "https://a.example/\"".parse().unwrap());
    request
}

#[tokio::test]
async fn a_line_in_the_combined_format_is_that_of_apache() {
    let logged = Logged::in_format(LogFormat::Combined);
    logged.site.write("a.txt", "hello");
    logged.read(full_request()).await;
    logged.read(get("/none")).await;
    let lines = logged.lines();
    let (before, rest) = lines[0].split_once(" [").unwrap();
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!(before, "2001:db8::7 - -");
    assert_eq!(
        rest,
        r#""GET /a.txt?q=1 HTTP/1.1" 200 5 "https://a.example/\"" "curl/8.14.1""#
    );
    // `23/Nov/2026:20:02:25 +0000`
    let (date, clock) = time.split_once(':').unwrap();
    assert_eq!(
        date.split('/').map(str::len).collect::<Vec<_>>(),
        [2, 3, 4],
        "{time}"
    );
    assert!(clock.ends_with(" +0000") && clock.len() == 14, "{time}");
    assert!(lines[1].starts_with("- - - ["), "{}", lines[1]);
    assert!(
        lines[1].contains(r#"] "GET /none HTTP/1.1" 404 "#),
        "{}",
        lines[1]
    );
    assert!(lines[1].ends_with(r#" "-" "-""#), "{}", lines[1]);
}

#[tokio::test]
async fn a_line_in_json_is_one_object() {
    let logged = Logged::in_format(LogFormat::Json);
    logged.site.write("a.txt", "hello");
    logged.read(full_request()).await;
    let lines = logged.lines();
    let (before, rest) = lines[0].split_once(r#","duration_ms":"#).unwrap();
    let (millis, after) = rest.split_once(',').unwrap();
    assert!(millis.parse::<f64>().is_ok(), "{millis}");
    let (time, before) = before.split_once(r#"","peer":"#).unwrap();
    let time = time.strip_prefix(r#"{"time":""#).unwrap();
    assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    assert_eq!(
        before,
        r#""[2001:db8::7]:40126","user":null,"method":"GET","path":"/a.txt?q=1","version":"1.1","status":200,"bytes":5"#
    );
    assert_eq!(
        after,
        r#""referer":"https://a.example/\"","user_agent":"curl/8.14.1","complete":true,"cause":null}"#
    );
}

/// A service that knows the user of each request, and got its answer from elsewhere.
#[derive(Clone)]
struct Named(Files);

impl Service<Request<Full<Bytes>>> for Named {
    type Response = Response<ServeBody>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            response.extensions_mut().insert(LogUser("ann \"lee\"".into()));
            let origin = OriginTime(Duration::from_micros(12_500));
            response.extensions_mut().insert(origin);
            Ok(response)
        })
    }
}

#[tokio::test]
async fn a_user_and_the_time_of_an_origin_are_named_where_the_format_has_a_place_for_them() {
    for (format, part) in [
        (LogFormat::Combined, r#"- - ann\x20\"lee\" ["#),
        (LogFormat::Json, r#","user":"ann \"lee\"","#),
        (
            LogFormat::Json,
            r#","cause":null,"origin_ms":12.500,"held_by":null}"#,
        ),
        (LogFormat::Text, "ms - origin=12.500ms"),
    ] {
        let logged = Logged::in_format(format);
        let writer = LogWriter::new(logged.paper.clone(), LogLimits::default()).unwrap();
        let mut log = Log::new(Named(logged.site.files.clone()), Some(writer.format(format)));
        let Ok::<_, Infallible>(response) = log.call(get("/none")).await;
        response.into_body().collect().await.unwrap();
        drop(log);
        let lines = logged.lines();
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
}

#[tokio::test]
async fn answers_without_a_body_are_whole_even_when_nobody_polls_them() {
    let logged = Logged::new();
    logged.site.write("a.txt", "hello");
    for (method, fields) in [
        (Method::HEAD, &[][..]),
        (Method::GET, &[("if-none-match", "*")][..]),
        (Method::OPTIONS, &[][..]),
    ] {
        let request = request(method, "/a.txt", fields, Full::default());
        drop(logged.call(request).await);
    }
    let lines: Vec<String> = logged.lines().iter().map(|line| steady(line)).collect();
    assert_eq!(
        lines,
        [
            r#"- HEAD "/a.txt" 200 0 -"#,
            r#"- GET "/a.txt" 304 0 -"#,
            r#"- OPTIONS "/a.txt" 204 0 -"#,
        ]
    );
}

#[tokio::test]
async fn a_body_that_is_dropped_is_aborted_with_the_bytes_it_gave() {
    let logged = Logged::new();
    logged.site.write("a", pattern(10_000));
    let mut body = logged.call(get("/a")).await.into_body();
    for _ in 0..3 {
        assert!(body.frame().await.unwrap().is_ok());
    }
    drop(body);
    // The last frame tells the end: nobody has to poll for what comes after.
    let mut body = logged.call(get("/a")).await.into_body();
    for _ in 0..10 {
        assert!(body.frame().await.unwrap().is_ok());
    }
    assert!(body.is_end_stream());
    drop(body);
    drop(logged.call(get("/a")).await);
    let lines: Vec<String> = logged.lines().iter().map(|line| steady(line)).collect();
    assert_eq!(
        lines,
        [
            r#"- GET "/a" 200 3000 - aborted"#,
            r#"- GET "/a" 200 10000 -"#,
            r#"- GET "/a" 200 0 - aborted"#,
        ]
    );
}

#[tokio::test]
async fn a_body_that_fails_is_aborted() {
    let logged = Logged::new();
    logged.site.write("a", pattern(10_000));
    let mut body = logged.call(get("/a")).await.into_body();
    let file = std::fs::File::options()
        .write(true)
        .open(logged.site.path("a"))
        .unwrap();
    file.set_len(2000).unwrap();
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            break;
        }
    }
    assert!(body.frame().await.is_none());
    drop(body);
    let lines = logged.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(steady(&lines[0]), r#"- GET "/a" 200 2000 - aborted"#);
}

#[tokio::test]
async fn a_request_given_up_before_its_answer_has_no_status() {
    let logged = Logged::new();
    let mut log = logged.log.clone();
    drop(log.call(get("/a")));
    drop(log);
    let lines = logged.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(steady(&lines[0]), r#"- GET "/a" - 0 - aborted"#);
}

#[tokio::test]
async fn a_peer_cannot_write_lines_of_its_own() {
    let logged = Logged::new();
    let mut request = get("/a%0a\"b\"\\?x=%0d");
    let agent = http::HeaderValue::from_bytes(b"evil\" 200 0 \xff\xc2\x85\ttab\\").unwrap();
    request.headers_mut().insert("user-agent", agent);
    logged.read(request).await;
    let lines = logged.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        steady(&lines[0]),
        r#"- GET "/a%0a\"b\"\\?x=%0d" 400 12 "evil\" 200 0 \xff\xc2\x85\x09tab\\""#
    );
}

/// A request whose path, method and user agent are as long as peers can make them.
fn long_fields() -> Request<Full<Bytes>> {
    let method = Method::from_bytes(&[b'M'; 5_000]).unwrap();
    let mut request = request(method, &format!("/{}", "p".repeat(8_000)), &[], Full::default());
    let agent = http::HeaderValue::from_bytes(&[0xff; 60_000]).unwrap();
    request.headers_mut().insert("user-agent", agent);
    request
}

#[tokio::test]
async fn a_line_takes_a_kib_for_each_field_at_most_whatever_the_peer_sends() {
    let logged = Logged::new();
    logged.read(long_fields()).await;
    let lines = logged.lines();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].len() < 3 * 1024 + 200, "{}", lines[0].len());
    let method = "M".repeat(1024) + "+3976";
    let path = format!("\"/{}\"+6977", "p".repeat(1023));
    let agent = format!("\"{}\"+59744", "\\xff".repeat(256));
    assert_eq!(steady(&lines[0]), format!("- {method} {path} 405 19 {agent}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_requests_at_once_stay_whole() {
    let logged = Logged::new();
    let long = "x".repeat(500);
    let requests: Vec<_> = (0..200)
        .map(|i| {
            let mut log = logged.log.clone();
            let path = format!("/{i}-{long}");
            tokio::spawn(async move {
                let Ok::<_, Infallible>(response) = log.call(get(&path)).await;
                response.into_body().collect().await.unwrap();
            })
        })
        .collect();
    for request in requests {
        request.await.unwrap();
    }
    let mut seen: Vec<usize> = logged
        .lines()
        .iter()
        .map(|line| {
            let line = steady(line);
            let rest = line.strip_prefix(r#"- GET "/"#).unwrap();
            let (number, rest) = rest.split_once('-').unwrap();
            assert_eq!(rest, format!(r#"{long}" 404 10 -"#));
            number.parse().unwrap()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

/// An output that takes nothing before it is told to.
struct Stalled(std::sync::mpsc::Receiver<()>, Paper);

impl Write for Stalled {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_waits_for_a_stalled_output_is_bounded_in_bytes_and_what_is_dropped_is_counted() {
    let site = Site::new();
    let (open, gate) = std::sync::mpsc::channel();
    let paper = Paper::default();
    let writer = LogWriter::new(Stalled(gate, paper.clone()), LogLimits::default()).unwrap();
    let mut log = Log::new(site.files.clone(), Some(writer));
    let sent = 6_000;
    for _ in 0..sent {
        let mut request = request(Method::OPTIONS, "/", &[], Full::default());
        let agent = http::HeaderValue::from_bytes(&[0xff; 1024]).unwrap();
        request.headers_mut().insert("user-agent", agent);
        let Ok::<_, Infallible>(response) = log.call(request).await;
        drop(response);
    }
    drop(open);
    drop(log);
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let note = "lines dropped: the log was not read fast enough";
    let told: usize = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("... ")?
                .strip_suffix(note)?
                .trim()
                .parse::<usize>()
                .ok()
        })
        .sum();
    let kept = text.lines().filter(|line| line.contains("OPTIONS")).count();
    assert!(text.len() < (4 << 20) + 200, "{} bytes waited", text.len());
    assert!(told > 0);
    assert_eq!(kept + told, sent);
}

#[tokio::test]
async fn without_a_writer_all_passes_through() {
    let site = Site::new();
    site.write("a", "hello");
    let mut log = Log::new(site.files.clone(), None);
    let Ok::<_, Infallible>(response) = log.call(get("/a")).await;
    assert_eq!(response.body().size_hint().exact(), Some(5));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
}
