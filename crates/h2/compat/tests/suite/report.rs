//! What connections of an unchanged reqwest program say they waited for, behind an emulated path.
//!
//! The variables that switch reports on and windows fixed are read once a process, so each case is a process of its own: this
//! program again, with the test `case`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use fullbore_link::Link;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

const CASE: &str = "H2_COMPAT_CASE";

/// Answers `/N` with N bytes, `/late` after a while, and an upload when it has ended.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path()[1..].to_owned();
    if path == "late" {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    let _ = request.into_body().collect().await;
    let body = vec![7; path.parse().unwrap_or(0)];
    Ok(Response::new(Full::from(body)))
}

async fn serve(builder: Builder<TokioExecutor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
    address
}

/// One transfer, with what is to hold it.
async fn transfer(case: &str) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    match case {
        "stream_window" => builder.initial_stream_window_size(65_535),
        "connection_window" => builder.initial_connection_window_size(65_535),
        "stream_count" => builder.max_concurrent_streams(1),
        _ => &mut builder,
    };
    let server = serve(builder).await;
    let rate = if case == "moving" {
        20_000_000
    } else {
        1_000_000_000
    };
    let link = Link::builder().rtt(Duration::from_millis(40)).rate(rate);
    let link = link.start(server).unwrap();
    let url = |path: &str| format!("http://{}/{path}", link.local_addr());
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let get = async |path: &str| client.get(url(path)).send().await.unwrap();
    match case {
        "stream_window" | "connection_window" => {
            let body = vec![7; 2 << 20];
            client.post(url("0")).body(body).send().await.unwrap();
        }
        "stream_count" => {
            // Their number is known from the first response on.
            get("0").await;
            let requests = (0..40).map(|_| tokio::spawn(client.get(url("1")).send()));
            for request in requests.collect::<Vec<_>>() {
                request.await.unwrap().unwrap();
            }
        }
        "application" => {
            let mut response = get("12000000").await;
            while response.chunk().await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
        "peer" => drop(get("late").await.bytes().await.unwrap()),
        "moving" => drop(get("5000000").await.bytes().await.unwrap()),
        other => panic!("no case {other}"),
    }
    drop(client);
    // The report is written before the connection is closed.
    while link.stats().open > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the other tests"]
async fn case() {
    let case = std::env::var(CASE).unwrap();
    let limit = Duration::from_secs(300);
    tokio::time::timeout(limit, transfer(&case)).await.unwrap();
}

/// What a process says on standard error in a case.
fn said(case: &str, report: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "report::case", "--ignored", "--nocapture"])
        .env(CASE, case)
        .env("FULLBORE_H2_WINDOWS", "fixed")
        .env("FULLBORE_REPORT", report)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

/// How often a case is tried: on a busy machine a transfer waits for the machine, and rightly says so.
const TRIES: usize = 20;

#[track_caller]
fn names(case: &str, direction: &str) {
    let expected = [
        format!(r#""direction":"{direction}""#),
        format!(r#""held_by":"{case}""#),
    ];
    let mut named = String::new();
    for _ in 0..TRIES {
        let said = said(case, "json");
        let of_client = |line: &&str| line.starts_with(r#"{"role":"client""#);
        let lines: Vec<_> = said.lines().filter(of_client).collect();
        assert_eq!(lines.len(), 1, "{said}");
        if expected.iter().all(|field| lines[0].contains(field)) {
            return;
        }
        named = lines[0].to_owned();
    }
    panic!("{named}");
}

#[test]
fn the_stream_window_of_a_server() {
    names("stream_window", "sending");
}

#[test]
fn the_connection_window_of_a_server() {
    names("connection_window", "sending");
}

#[test]
fn the_number_of_streams() {
    names("stream_count", "receiving");
}

#[test]
fn a_reader_that_is_slow() {
    names("application", "receiving");
}

#[test]
fn a_handler_that_is_slow() {
    names("peer", "receiving");
}

#[test]
fn the_path() {
    names("moving", "receiving");
}

#[test]
fn sentences_go_to_standard_error_or_to_a_file() {
    let said_there = said("peer", "1");
    let sentence = "% of the time waiting for the server";
    assert!(said_there.contains(sentence), "{said_there}");
    let file = std::env::temp_dir().join(format!("h2-report-{}", std::process::id()));
    let rest = said("peer", file.to_str().unwrap());
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(
        written.contains(sentence) && !rest.contains(sentence),
        "{written}"
    );
    assert!(!said("peer", "0").contains(sentence));
}
