//! Wrong options, addresses, certificates and folders of `serve`: each is one sentence that says what is wrong, where, and what
//! to type.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use fullbore::tls;

use crate::support::{Ended, Serving, TestResult, program, until};

/// Files that the cases name.
fn folder() -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let (one, other) = (
        tls::self_signed(&["localhost"])?,
        tls::self_signed(&["localhost"])?,
    );
    let write = |name: &str, content: &str| fs::write(folder.path().join(name), content);
    write("cert.pem", &one.cert_pem)?;
    write("key.pem", &one.key_pem)?;
    write("other.key", &other.key_pem)?;
    write("half.pem", &one.cert_pem[..100])?;
    write("empty", "")?;
    write("text", "no certificate")?;
    Ok(folder)
}

/// Runs `serve` with these arguments, which end it. One that serves all the same is ended.
fn serve(folder: &Path, args: &[&str]) -> TestResult<Ended> {
    serve_with(folder, &[], args)
}

/// The same with these variables.
fn serve_with(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> TestResult<Ended> {
    let mut command = program(folder);
    command
        .arg("serve")
        .args(args)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let waited = until("serve refuses its options", || Ok(child.try_wait()?.is_some()));
    let _ = child.kill();
    let output = child.wait_with_output()?;
    waited.map_err(|error| format!("{args:?}: {error}"))?;
    Ok(Ended {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// Asserts the exit code and the parts of the message, which has neither the name of a type nor the number of an error alone.
#[track_caller]
fn refused(ended: &Ended, args: &[&str], code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
    assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
    // clap adds how to ask for help.
    let message = ended.stderr.split("\n\nUsage:").next().unwrap_or_default();
    let message = message
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default()
        .trim();
    let begins = ["fullbore: ", "error: "]
        .iter()
        .any(|start| message.starts_with(start));
    assert!(begins && message.len() > 30, "{args:?}: {ended:?}");
    for part in parts {
        assert!(
            message.contains(part),
            "{args:?} says {message:?} without {part:?}"
        );
    }
    for foreign in ["::", "Err(", "Error {", "Some(", "ParseIntError", "panicked"] {
        let named = foreign == "::" && args.iter().any(|arg| arg.contains("::"));
        assert!(
            named || !message.contains(foreign) || message.contains("[::"),
            "{args:?} says {message:?}"
        );
    }
    assert!(!message.ends_with(": (os error"), "{message:?}");
}

#[test]
fn each_wrong_option_is_one_sentence_that_says_what_to_type() -> TestResult {
    let folder = folder()?;
    let long = format!("unix:/{}", "a".repeat(200));
    let plain = |more: &[&'static str]| [&["--plaintext"], more].concat();
    let files =
        |cert: &'static str, key: &'static str| vec!["--listen", "127.0.0.1:0", "--cert", cert, "--key", key];
    let cases: Vec<(Vec<&str>, i32, &[&str])> = vec![
        (
            vec!["--listen", "0.0.0.0:0"],
            2,
            &["other machines", "--cert", "--self-signed", "--plaintext"],
        ),
        (
            vec!["--redirect-http", "127.0.0.1:0"],
            2,
            &["--cert", "--self-signed"],
        ),
        (
            vec!["--lan", "--listen", "127.0.0.1:0"],
            2,
            &["--lan", "--listen"],
        ),
        (
            vec!["text", "--uploads", "."],
            2,
            &["text is a file", "--uploads"],
        ),
        (
            vec!["--auth-file", "empty"],
            2,
            &["empty", "names no user", "hash-password"],
        ),
        (vec!["--auth-file", "none"], 17, &["none"]),
        (
            vec!["--plaintext", "--self-signed"],
            2,
            &["--plaintext", "--self-signed"],
        ),
        (vec!["--cert", "cert.pem"], 2, &["--key"]),
        (
            plain(&["--listen", "8080"]),
            2,
            &["--listen", "127.0.0.1:8080", "[::]:8080"],
        ),
        (
            plain(&["--listen", "127.0.0.1:0", "--congestion-control", "renown"]),
            2,
            &["the congestion control \"renown\" "],
        ),
        (plain(&["--listen", ":8080"]), 2, &["127.0.0.1:8080", "[::]:8080"]),
        (
            plain(&["--listen", "localhost"]),
            2,
            &["the port is missing", "127.0.0.1:8080"],
        ),
        (plain(&["--listen", "::1:8080"]), 2, &["brackets", "[::1]:8080"]),
        (plain(&["--listen", "127.0.0.1:http"]), 2, &["0 to 65535"]),
        (
            plain(&["--listen", "http://127.0.0.1:80"]),
            2,
            &["no URL", "127.0.0.1:8080"],
        ),
        (plain(&["--listen", "unix:"]), 2, &["unix:/run/web.sock"]),
        (
            vec!["--plaintext", "--listen", &long],
            2,
            &["at most 107 bytes", "shorter"],
        ),
        (
            plain(&["--listen", "unix:no/such/web.sock"]),
            5,
            &["unix:no/such/web.sock", "folder does not exist"],
        ),
        (
            plain(&["--listen", "unix:empty"]),
            5,
            &["unix:empty", "is not a socket", "another path"],
        ),
        (
            plain(&["--listen", "192.0.2.1:8080"]),
            5,
            &["192.0.2.1:8080", "does not have the address", "[::]"],
        ),
        (
            plain(&["--listen", "name.invalid:8080"]),
            5,
            &["name.invalid", "does not resolve", "127.0.0.1:8080"],
        ),
        (plain(&["--port", "0"]), 2, &["--port"]),
        (plain(&["--port", "65536"]), 2, &["--port"]),
        (
            plain(&["--socket-mode", "rw"]),
            2,
            &["--socket-mode", "octal", "660"],
        ),
        (plain(&["--socket-mode", "1777"]), 2, &["octal"]),
        (
            plain(&["--redirect-http", "127.0.0.1:0"]),
            2,
            &["--redirect-http", "--plaintext"],
        ),
        (
            plain(&["--client-ca", "cert.pem"]),
            2,
            &["--client-ca", "--plaintext"],
        ),
        (plain(&["--self-signed-name", "a.example"]), 2, &["--self-signed"]),
        (
            vec!["--self-signed", "--self-signed-name", "https://a.example"],
            2,
            &["DNS name", "files.example.org"],
        ),
        (files("none.pem", "key.pem"), 17, &["none.pem", "cannot read"]),
        (files("cert.pem", "none.pem"), 17, &["none.pem", "cannot read"]),
        (files("text", "key.pem"), 2, &["--cert text", "BEGIN"]),
        (files("half.pem", "key.pem"), 2, &["half.pem", "complete"]),
        (files("empty", "key.pem"), 2, &["--cert empty", "BEGIN"]),
        (files("key.pem", "cert.pem"), 2, &["swapped"]),
        (
            files("cert.pem", "other.key"),
            2,
            &["other.key", "not the one of the first certificate"],
        ),
        (
            [files("cert.pem", "key.pem"), vec!["--client-ca", "text"]].concat(),
            2,
            &["--client-ca text", "BEGIN"],
        ),
        (
            [files("cert.pem", "key.pem"), vec!["--client-ca", "none"]].concat(),
            17,
            &["none", "cannot read"],
        ),
        (
            vec!["no/such/folder", "--plaintext"],
            17,
            &["no/such/folder", "cannot open the folder"],
        ),
        (
            plain(&["--header", "no colon"]),
            2,
            &["a name, a colon and a value"],
        ),
        (
            plain(&["--header", "a b: c"]),
            2,
            &["letters, digits and hyphens"],
        ),
        (
            plain(&["--header", "content-length: 5"]),
            2,
            &["sets content-length itself"],
        ),
        (plain(&["--header", "x: a\u{1}b"]), 2, &["one line"]),
        (plain(&["--cache-control", ""]), 2, &["--cache-control"]),
        (plain(&["--cors=a.example"]), 2, &["https://app.example.org"]),
        (plain(&["--cors=https://a.example/path"]), 2, &["without a path"]),
        (plain(&["--health", "healthz"]), 2, &["begins with a slash"]),
        (
            plain(&["--auth", "ann"]),
            2,
            &["no colon", "fullbore hash-password"],
        ),
        (
            plain(&["--auth", "ann:secret"]),
            2,
            &["\"ann\"", "bcrypt", "single quotes"],
        ),
        (plain(&["--log-format", "json"]), 2, &["--log"]),
        (
            plain(&["--log", "--log-format", "xml"]),
            2,
            &["text, combined, json"],
        ),
        (plain(&["--metrics", "9100"]), 2, &["--metrics", "127.0.0.1:9100"]),
    ];
    for (args, code, parts) in &cases {
        refused(&serve(folder.path(), args)?, args, *code, parts);
    }
    assert!(cases.len() >= 25);
    // Nothing of it shows a password.
    let ended = serve(folder.path(), &["--plaintext", "--auth", "ann:topsecret"])?;
    assert!(!ended.stderr.contains("topsecret"), "{ended:?}");
    Ok(())
}

#[test]
fn a_variable_of_a_switch_is_true_or_false() -> TestResult {
    let folder = folder()?;
    let listen = ["--listen", "192.0.2.1:8080"];
    for (name, value) in [
        ("FULLBORE_PLAINTEXT", "maybe"),
        ("FULLBORE_PLAINTEXT", "2"),
        ("FULLBORE_PLAINTEXT", ""),
        ("FULLBORE_NO_LISTING", "nope"),
        ("FULLBORE_HTTP1_1", "\u{e9}"),
    ] {
        let ended = serve_with(folder.path(), &[(name, value)], &listen)?;
        refused(&ended, &listen, 2, &[name, value, "neither true nor false"]);
    }
    // One that is false conflicts with nothing.
    for (value, options, scheme) in [
        ("true", &[][..], "http:"),
        ("YES", &[], "http:"),
        ("1", &[], "http:"),
        ("false", &["--self-signed"], "https:"),
        ("Off", &["--self-signed"], "https:"),
        ("0", &["--self-signed"], "https:"),
    ] {
        let mut command = program(folder.path());
        command
            .arg("serve")
            .args(options)
            .env("FULLBORE_PLAINTEXT", value);
        let serving = Serving::spawn(&mut command)?;
        assert!(serving.origin.starts_with(scheme), "{value}: {}", serving.origin);
    }
    let all = ["--listen", "0.0.0.0:0"];
    let ended = serve_with(folder.path(), &[("FULLBORE_PLAINTEXT", "false")], &all)?;
    refused(&ended, &all, 2, &["--plaintext", "--self-signed"]);
    Ok(())
}

#[test]
fn a_variable_that_kubernetes_sets_for_a_service_of_this_name_is_no_port() -> TestResult {
    let folder = folder()?;
    for value in ["tcp://10.0.0.1:80", "udp://10.0.0.1:53"] {
        let mut command = program(folder.path());
        command.args(["serve", "--plaintext"]).env("FULLBORE_PORT", value);
        let serving = Serving::spawn(&mut command)?;
        assert!(
            serving.origin.starts_with("http://127.0.0.1:"),
            "{}",
            serving.origin
        );
    }
    let ended = serve_with(folder.path(), &[("FULLBORE_PORT", "http")], &["--plaintext"])?;
    refused(&ended, &["--plaintext"], 2, &["http", "--port"]);
    Ok(())
}

#[test]
fn a_port_that_another_program_has_is_named_for_each_listener() -> TestResult {
    let folder = folder()?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let tls = [
        "--listen",
        "127.0.0.1:0",
        "--cert",
        "cert.pem",
        "--key",
        "key.pem",
    ];
    for args in [
        vec!["--plaintext", "--listen", "127.0.0.1:0", "--listen", &address],
        vec!["--plaintext", "--threads", "2", "--listen", &address],
        vec!["--plaintext", "--listen", "127.0.0.1:0", "--metrics", &address],
        [&tls[..], &["--redirect-http", &address]].concat(),
    ] {
        let ended = serve(folder.path(), &args)?;
        refused(&ended, &args, 5, &[&address, "another program listens there"]);
    }
    Ok(())
}
