//! What options put around the files: fields, CORS, users, a path for health checks, and the formats of the log.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Site, ask_over_tcp, status, values};
use crate::support::{TestResult, program, run};

fn site(args: &[&str]) -> TestResult<(tempfile::TempDir, Site, String)> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.txt"), "hello")?;
    fs::create_dir(folder.path().join("in"))?;
    let listen = ["--plaintext", "--listen", "127.0.0.1:0"];
    let mut site = Site::start(folder.path(), &[&listen, args].concat())?;
    let origin = site.after("listening on ")?;
    Ok((folder, site, origin))
}

/// What `hash-password` prints for a user.
pub(super) fn entry(name: &str, password: &str) -> TestResult<String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(["hash-password", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    writeln!(stdin, "{password}")?;
    drop(stdin);
    let output = child.wait_with_output()?;
    assert!(output.status.success());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

pub(super) fn basic(name: &str, password: &str) -> String {
    use base64::Engine as _;
    let coded = base64::prelude::BASE64_STANDARD.encode(format!("{name}:{password}"));
    format!("authorization: Basic {coded}\r\n")
}

#[test]
fn fields_are_on_every_response_and_cache_control_on_files() -> TestResult {
    let (_folder, _site, origin) = site(&[
        "--header",
        "X-Frame-Options: DENY",
        "--header",
        "link: <a>",
        "--header",
        "link: <b>",
        "--header",
        "content-type: text/x",
        "--cache-control",
        "max-age=60",
    ])?;
    for (path, expected, cached) in [("/a.txt", "200", &["max-age=60"][..]), ("/none", "404", &[])] {
        let response = ask_over_tcp(&origin, &format!("GET {path}"), "")?;
        assert_eq!(status(&response), expected, "{response}");
        assert_eq!(values(&response, "x-frame-options"), ["DENY"]);
        assert_eq!(values(&response, "link"), ["<a>", "<b>"]);
        assert_eq!(values(&response, "content-type"), ["text/x"]);
        assert_eq!(values(&response, "cache-control"), cached, "{response}");
    }
    // Over HTTP/2 too.
    let ended = run(
        std::path::Path::new("."),
        ["get", "--http2", &format!("{origin}/a.txt")],
    )?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"hello");
    Ok(())
}

#[test]
fn scripts_of_other_origins_may_read_what_the_option_says() -> TestResult {
    let preflight = "origin: https://a.example\r\naccess-control-request-method: GET\r\n\
                     access-control-request-headers: authorization\r\n";
    let (_folder, _site, origin) = site(&["--cors"])?;
    let response = ask_over_tcp(&origin, "GET /a.txt", "origin: https://a.example\r\n")?;
    assert_eq!(values(&response, "access-control-allow-origin"), ["*"]);
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    let response = ask_over_tcp(&origin, "OPTIONS /a.txt", preflight)?;
    assert_eq!(status(&response), "200");
    assert_eq!(
        values(&response, "access-control-allow-headers"),
        ["authorization"]
    );
    assert_eq!(values(&response, "access-control-allow-methods"), ["GET,HEAD"]);
    // A preflight request has both of these fields (Fetch standard, CORS protocol).
    for fields in [
        "",
        "origin: https://a.example\r\n",
        "access-control-request-method: GET\r\n",
    ] {
        let response = ask_over_tcp(&origin, "OPTIONS /a.txt", fields)?;
        assert_eq!(status(&response), "204", "{fields}: {response}");
        assert_eq!(values(&response, "allow"), ["GET, HEAD, OPTIONS"]);
        assert!(values(&response, "access-control-allow-methods").is_empty());
    }
    let (_folder, _site, origin) = site(&["--cors", "--uploads", "discard"])?;
    let response = ask_over_tcp(&origin, "OPTIONS /a.txt", preflight)?;
    let methods = values(&response, "access-control-allow-methods");
    assert_eq!(methods, ["GET,HEAD,PUT,POST"]);

    let ann = entry("ann", "secret")?;
    let (_folder, _site, origin) = site(&["--cors=https://a.example", "--auth", &ann])?;
    for (from, allowed) in [
        ("https://a.example", &["https://a.example"][..]),
        ("https://b.example", &[]),
    ] {
        let response = ask_over_tcp(&origin, "GET /a.txt", &format!("origin: {from}\r\n"))?;
        assert_eq!(values(&response, "access-control-allow-origin"), allowed);
        // A preflight request has no password (Fetch standard, section 4.8).
        assert_eq!(status(&response), "401");
    }
    assert_eq!(
        status(&ask_over_tcp(&origin, "OPTIONS /a.txt", preflight)?),
        "200"
    );
    Ok(())
}

#[test]
fn users_need_their_password_except_for_the_health_path() -> TestResult {
    let (ann, bob) = (entry("ann", "secret")?, entry("bob", "zwölf Affen")?);
    let args = [
        "--auth",
        &ann,
        "--auth",
        &bob,
        "--health",
        "/healthz",
        "--header",
        "x-frame-options: DENY",
        "--cache-control",
        "max-age=9",
        "--log",
        "--log-format",
        "json",
    ];
    let (_folder, mut site, origin) = site(&args)?;
    let get = |fields: &str| ask_over_tcp(&origin, "GET /a.txt", fields);
    let refused = get("")?;
    assert_eq!(status(&refused), "401");
    assert_eq!(
        values(&refused, "www-authenticate"),
        ["Basic realm=\"fullbore\", charset=\"UTF-8\""]
    );
    assert!(!refused.contains("hello"), "{refused}");
    for (name, password) in [("ann", "zwölf Affen"), ("ann", ""), ("eve", "secret"), ("", "")] {
        assert_eq!(status(&get(&basic(name, password))?), "401", "{name}");
    }
    for _ in 0..3 {
        assert!(get(&basic("ann", "secret"))?.ends_with("\r\n\r\nhello"));
        assert!(get(&basic("bob", "zwölf Affen"))?.ends_with("\r\n\r\nhello"));
    }
    let response = ask_over_tcp(&origin, "GET /healthz", "")?;
    assert!(
        status(&response) == "200" && response.ends_with("\r\n\r\nok\n"),
        "{response}"
    );
    assert_eq!(values(&response, "x-frame-options"), ["DENY"]);
    assert!(!values(&response, "cache-control").contains(&"max-age=9"));
    let users: Vec<String> = (0..12)
        .map(|_| {
            let line: serde_json::Value = serde_json::from_str(&site.line()?)?;
            Ok(line["user"].as_str().unwrap_or("-").to_owned())
        })
        .collect::<TestResult<_>>()?;
    assert_eq!(
        users,
        [
            "-", "-", "-", "-", "-", "ann", "bob", "ann", "bob", "ann", "bob", "-"
        ]
    );
    Ok(())
}

#[test]
fn an_upload_without_a_password_stores_nothing() -> TestResult {
    let ann = entry("ann", "secret")?;
    let (folder, _site, origin) = site(&["--auth", &ann, "--uploads", "in"])?;
    let put = |fields: String| ask_over_tcp(&origin, "PUT /b.txt", &format!("{fields}content-length: 0\r\n"));
    assert_eq!(status(&put(basic("ann", "wrong"))?), "401");
    assert!(!folder.path().join("in/b.txt").exists());
    assert_eq!(status(&put(basic("ann", "secret"))?), "201");
    assert!(folder.path().join("in/b.txt").exists());
    Ok(())
}

#[test]
fn an_address_with_many_wrong_passwords_is_told_to_wait() -> TestResult {
    let ann = entry("ann", "secret")?;
    let (_folder, _site, origin) = site(&["--auth", &ann])?;
    assert!(ask_over_tcp(&origin, "GET /a.txt", &basic("ann", "secret"))?.ends_with("hello"));
    let wrong = |number: usize| ask_over_tcp(&origin, "GET /a.txt", &basic("ann", &number.to_string()));
    let responses = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..30)
            .map(|number| scope.spawn(move || wrong(number).map_err(|error| error.to_string())))
            .collect();
        asking.into_iter().map(|asked| asked.join()).collect::<Vec<_>>()
    });
    let mut waits = 0;
    for response in responses {
        let response = response.map_err(|_| "a request panicked")??;
        match status(&response) {
            "401" => {}
            "429" => waits += values(&response, "retry-after").len(),
            _ => return Err(response.into()),
        }
    }
    // At least ten of thirty, however slow the machine is.
    assert!(waits >= 10, "{waits}");
    // A password that was right before costs nothing.
    assert!(ask_over_tcp(&origin, "GET /a.txt", &basic("ann", "secret"))?.ends_with("hello"));
    Ok(())
}

#[test]
fn the_log_has_the_format_that_was_asked_for() -> TestResult {
    for (format, parts) in [
        ("text", &["GET \"/a.txt\" 200 5 ", "ms \"test\""][..]),
        (
            "combined",
            &[
                "127.0.0.1 - - [",
                "] \"GET /a.txt HTTP/1.1\" 200 5 \"-\" \"test\"",
            ],
        ),
        (
            "json",
            &[
                "{\"time\":\"",
                "\"version\":\"1.1\",\"status\":200,\"bytes\":5,\"duration_ms\":",
                "\"complete\":true,\"cause\":null}",
            ],
        ),
    ] {
        let (_folder, mut site, origin) = site(&["--log", "--log-format", format])?;
        ask_over_tcp(&origin, "GET /a.txt", "user-agent: test\r\n")?;
        let line = site.line()?;
        for part in parts {
            assert!(line.contains(part), "{line}");
        }
    }
    Ok(())
}

#[test]
fn a_password_that_cannot_be_used_is_refused_in_one_sentence() -> TestResult {
    for (input, part) in [
        (String::new(), "is empty"),
        ("a".repeat(72), "at most 71"),
        ("a\tb".to_owned(), "control characters"),
    ] {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("password");
        fs::write(&file, input)?;
        let mut command = program(folder.path());
        command
            .args(["hash-password", "ann"])
            .stdin(fs::File::open(&file)?);
        let ended = crate::support::ended(&mut command)?;
        ended.failed_with(2);
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_request_that_no_service_sees_stands_in_the_log() -> TestResult {
    for (format, refused, served) in [
        ("text", " - \"-\" 400 0 ", " GET \"/a.txt?q=%22%3C%3E\" 200 5 "),
        (
            "combined",
            " \"-\" 400 0 \"-\" \"-\"",
            " \"GET /a.txt?q=%22%3C%3E HTTP/1.1\" 200 5 ",
        ),
        (
            "json",
            "\"method\":null,\"path\":null,",
            "\"path\":\"/a.txt?q=%22%3C%3E\",",
        ),
    ] {
        let (_folder, mut site, origin) = site(&["--log", "--log-format", format])?;
        // hyper refuses the first one, and the server the second, which has no host.
        let response = ask_over_tcp(&origin, "GET /a.txt", "no colon\r\n")?;
        assert_eq!(status(&response), "400");
        let line = site.line()?;
        assert!(line.contains(refused), "{line}");
        let response = ask_over_tcp(&origin, "GET /a.txt", "host: another\r\n")?;
        assert_eq!(status(&response), "400");
        let line = site.line()?;
        assert!(line.contains(refused), "{line}");
        let response = ask_over_tcp(&origin, "GET /a.txt?q=\"<>", "")?;
        assert_eq!(status(&response), "200", "{response}");
        let line = site.line()?;
        assert!(line.contains(served), "{line}");
    }
    Ok(())
}

#[test]
fn the_answer_to_a_preflight_request_repeats_no_long_list() -> TestResult {
    let (_folder, _site, origin) = site(&["--cors"])?;
    for (bytes, expected) in [(4_096, "200"), (4_097, "204")] {
        let fields = format!(
            "origin: https://a.example\r\naccess-control-request-method: GET\r\naccess-control-request-headers: {}\r\n",
            "a".repeat(bytes)
        );
        let response = ask_over_tcp(&origin, "OPTIONS /a.txt", &fields)?;
        assert_eq!(status(&response), expected);
    }
    Ok(())
}

#[test]
fn the_address_of_a_client_behind_a_trusted_proxy_stands_in_the_log_and_counts_its_wrong_passwords()
-> TestResult {
    let from = |client: &str| format!("x-forwarded-for: {client}\r\n");
    for (network, client, expected) in [
        ("127.0.0.1", "203.0.113.9, 192.0.2.7", "\"peer\":\"192.0.2.7\","),
        ("10.0.0.0/8", "192.0.2.7", "\"peer\":\"127.0.0.1:"),
    ] {
        let (_folder, mut site, origin) =
            site(&["--log", "--log-format", "json", "--trusted-proxy", network])?;
        let response = ask_over_tcp(&origin, "GET /a.txt", &from(client))?;
        assert_eq!(status(&response), "200");
        let line = site.line()?;
        assert!(line.contains(expected), "{line}");
    }
    let ann = entry("ann", "secret")?;
    let (_folder, _site, origin) = site(&["--auth", &ann, "--trusted-proxy", "127.0.0.1"])?;
    let wrong = |client: &str| {
        // ann:wrong
        let fields = from(client) + "authorization: Basic YW5uOndyb25n\r\n";
        ask_over_tcp(&origin, "GET /a.txt", &fields).map(|response| status(&response).to_owned())
    };
    // Ten are free, and one more every six seconds; a busy machine takes long for each.
    let mut statuses = Vec::new();
    while statuses.last().is_none_or(|last| last == "401") && statuses.len() < 100 {
        statuses.push(wrong("192.0.2.7")?);
    }
    assert_eq!(statuses.last().map(String::as_str), Some("429"), "{statuses:?}");
    assert_eq!(wrong("192.0.2.8")?, "401", "another client of the same proxy");
    Ok(())
}

#[test]
fn who_asks_for_an_upload_without_a_password_is_asked_for_one() -> TestResult {
    let ann = entry("ann", "secret")?;
    let (_folder, _site, origin) = site(&["--uploads", ".", "--auth-write", &ann])?;
    let resource = format!("/a.txt?upload-resource={}", "0".repeat(32));
    for (fields, expected) in [("", "401"), ("authorization: Basic YW5uOnNlY3JldA==\r\n", "404")] {
        let response = ask_over_tcp(&origin, &format!("HEAD {resource}"), fields)?;
        assert_eq!(status(&response), expected, "{fields}");
    }
    let response = ask_over_tcp(&origin, "HEAD /a.txt", "")?;
    assert_eq!(status(&response), "200");
    Ok(())
}
