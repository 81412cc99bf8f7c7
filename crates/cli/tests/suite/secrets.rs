//! What only the user and the origin that the user named are to know: where it is sent, and where it is shown; and how
//! much is shown of what a server names.

use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::support::frames::END_STREAM;
use crate::support::scripted::{Server, Then, data, head};
use crate::support::{TestResult, run};
use bytes::Bytes;
use fullbore::Incoming;
use http::{Request, Response};
use http_body_util::Full;
use tower_service::Service;

/// The keys that came, one for each request.
type Keys = Arc<Mutex<Vec<Option<String>>>>;

/// A server that answers every request with the same short body, or a redirect, and notes the keys that it was sent.
fn noting(redirect: Option<String>) -> TestResult<(Server, Keys)> {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&keys);
    let server = Server::start(move |_, asked| {
        let key = asked.fields.get("x-api-key").cloned();
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        let out = match &redirect {
            Some(to) => head(asked.stream, END_STREAM, &[(":status", "302"), ("location", to)]),
            None => {
                let mut out = head(asked.stream, 0, &[(":status", "200")]);
                out.extend(data(asked.stream, b"body", true));
                out
            }
        };
        (out, Then::Go)
    })?;
    Ok((server, keys))
}

fn keys(noted: &Mutex<Vec<Option<String>>>) -> Vec<Option<String>> {
    noted.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

const KEY: [&str; 2] = ["-H", "X-Api-Key: secret"];

#[test]
fn a_field_of_any_name_stays_with_the_origin_that_redirects() -> TestResult {
    let (away, told) = noting(None)?;
    let (near, first) = noting(Some(away.url()))?;
    let folder = tempfile::tempdir()?;
    let url = near.url();
    run(folder.path(), [&["get", "-L", &url][..], &KEY].concat())?.succeeded();
    assert_eq!(keys(&first), [Some("secret".to_owned())]);
    assert_eq!(keys(&told), [None]);
    let trusted = [&["get", "--location-trusted", &url][..], &KEY].concat();
    run(folder.path(), trusted)?.succeeded();
    assert_eq!(keys(&told), [None, Some("secret".to_owned())]);
    Ok(())
}

#[test]
fn a_list_tells_the_fields_to_its_first_origin_and_says_so() -> TestResult {
    let (near, first) = noting(None)?;
    let (away, told) = noting(None)?;
    let folder = tempfile::tempdir()?;
    fs::write(
        folder.path().join("list"),
        format!("{}\n{}\n", near.url(), away.url()),
    )?;
    let args = [&["get", "--discard", "-i", "list"][..], &KEY].concat();
    let ended = run(folder.path(), args)?;
    ended.succeeded();
    assert_eq!(
        (keys(&first), keys(&told)),
        (vec![Some("secret".to_owned())], vec![None])
    );
    assert!(ended.stderr.contains("--location-trusted"), "{ended:?}");

    // Whoever types both means both.
    let (one, two) = (near.url(), away.url());
    run(
        folder.path(),
        [&["get", "--discard", &one, &two][..], &KEY].concat(),
    )?
    .succeeded();
    assert_eq!(keys(&told), [None, Some("secret".to_owned())]);
    Ok(())
}

/// Redirects every request.
#[derive(Clone)]
struct Redirecting(String);

impl Service<Request<Incoming>> for Redirecting {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        let mut response = Response::new(Full::default());
        *response.status_mut() = http::StatusCode::FOUND;
        if let Ok(to) = self.0.parse() {
            response.headers_mut().insert("location", to);
        }
        ready(Ok(response))
    }
}

#[test]
fn a_redirect_from_https_to_http_is_refused_unless_it_is_asked_for() -> TestResult {
    let (away, _) = noting(None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let signed = fullbore::tls::self_signed(&["localhost"])?;
    let tls = fullbore::tls::server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes())?;
    let origin = runtime.block_on(async {
        let builder = fullbore::Server::builder().tls_config(Arc::new(tls));
        let server = builder.bind("127.0.0.1:0").await?;
        let origin = format!("https://{}", server.local_addr()?);
        tokio::spawn(server.serve(Redirecting(away.url())));
        TestResult::Ok(origin)
    })?;
    let folder = tempfile::tempdir()?;
    let get = |option| run(folder.path(), ["get", "--insecure", option, &origin]);
    let refused = get("-L")?;
    refused.failed_with(14);
    assert!(refused.stderr.contains(" redirects to http://"), "{refused:?}");
    assert!(refused.stderr.contains("--location-insecure"), "{refused:?}");
    assert_eq!(away.asked(), 0, "{refused:?}");
    let followed = get("--location-insecure")?;
    followed.succeeded();
    assert_eq!(followed.stdout, b"body");
    Ok(())
}

#[test]
fn a_password_in_a_url_is_printed_nowhere() -> TestResult {
    let (redirecting, _) = noting(Some("http://user:hunter2@127.0.0.1:1/".to_owned()))?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "content")?;
    let url = redirecting.url();
    // RFC 6761 section 6.4: no name under .invalid ever resolves.
    fs::write(folder.path().join("list"), "http://user:hunter2@h.invalid/\n")?;
    for (code, args) in [
        (
            5,
            &["get", "--discard", "--json", "http://user:hunter2@h.invalid/"][..],
        ),
        (5, &["get", "-v", "--discard", "http://user:hunter2@h.invalid/"]),
        (2, &["get", "--discard", "--json", "ftp://user:hunter2@h/"]),
        (2, &["get", "--discard", "--json", "user:hunter2@h"]),
        (5, &["get", "--discard", "--json", "-i", "list"]),
        // Followed with these, and no server is there.
        (5, &["get", "--discard", "--json", "-L", &url]),
        (5, &["put", "file", "--json", "https://user:hunter2@h.invalid/"]),
        (5, &["get", "-vv", "-u", "user:hunter2", "http://h.invalid/"]),
        (
            2,
            &[
                "get",
                "-u",
                "user:hunter2",
                "-H",
                "authorization: x",
                "http://h.invalid/",
            ],
        ),
    ] {
        let ended = run(folder.path(), args)?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let shown = String::from_utf8_lossy(&ended.stdout).into_owned() + &ended.stderr;
        assert!(!shown.contains("hunter2"), "{args:?}: {ended:?}");
    }
    Ok(())
}

#[test]
fn a_long_location_is_cut_wherever_it_is_shown() -> TestResult {
    let tail = "x".repeat(15_000);
    let (away, _) = noting(None)?;
    let missing = Server::start(|_, asked| {
        let fields = [(":status", "404")];
        (head(asked.stream, END_STREAM, &fields), Then::Go)
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "content")?;
    for (to, args, code) in [
        (format!("http://:1/{tail}"), &["get", "-L"][..], 9),
        (format!("ftp://h/{tail}"), &["get", "-L"], 9),
        (format!("{}?{tail}", away.url()), &["get", "--no-location"], 14),
        (format!("{}?{tail}", missing.url()), &["get", "-L"], 14),
        (format!("http://127.0.0.1:1/{tail}"), &["get", "-L"], 5),
        (format!("http://127.0.0.1:1/{tail}"), &["put", "file"], 5),
    ] {
        let (server, _) = noting(Some(to.clone()))?;
        let url = server.url();
        let ended = run(folder.path(), [args, &[url.as_str()]].concat())?;
        let begin: String = to.chars().take(100).collect();
        assert!(ended.stderr.contains(&begin), "{args:?} {begin}: {ended:?}");
        assert!(ended.stderr.len() < 2_000, "{} octets", ended.stderr.len());
        assert_eq!(ended.code, Some(code), "{args:?} {begin}: {ended:?}");
    }
    Ok(())
}
