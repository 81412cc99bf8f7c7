//! The interoperability tests of gRPC through `fullbore proxy`: the client and the server of grpc-go, with origins of HTTP/2 in
//! cleartext and over TLS.

use std::process::Command;

use libtest_mimic::Trial;

use crate::certs::certs;
use crate::fullbore;
use crate::peers::{Peer, grpc_programs, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, run_any, spawn_on_free_port};

/// The cases of grpc/doc/interop-test-descriptions.md that need no credentials of a cloud.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |scheme: &'static str, front: &'static str| {
        trial(
            &[Peer::GrpcGo],
            format!(
                "the interoperability tests of grpc-go pass {front} through fullbore proxy to {scheme}://"
            ),
            move || pass(scheme, front == "over TLS"),
        )
    };
    vec![
        of("h2c", "in cleartext"),
        of("h2c", "over TLS"),
        of("https", "over TLS"),
    ]
}

/// A server of the tests. Returns its port besides.
pub(crate) fn server(tls: bool) -> Outcome<(Daemon, u16)> {
    let certs = certs()?;
    spawn_on_free_port(|port| {
        let mut command = Command::new(grpc_programs().join("server"));
        command.arg(format!("-port={port}"));
        if tls {
            command.arg("-use_tls=true");
            command.arg(format!("-tls_cert_file={}", certs.chain.display()));
            command.arg(format!("-tls_key_file={}", certs.key.display()));
        }
        Ok(command)
    })
}

/// Runs all cases against a port.
pub(crate) fn run_cases(port: &str, tls: bool) -> Outcome {
    let certs = certs()?;
    for case in CASES {
        let mut command = Command::new(grpc_programs().join("client"));
        command.args(["-server_host=127.0.0.1", &format!("-server_port={port}")]);
        command.arg(format!("-test_case={case}"));
        if tls {
            command.args([
                "-use_tls=true",
                "-use_test_ca=true",
                "-server_host_override=localhost",
            ]);
            command.arg(format!("-ca_file={}", certs.authority.display()));
        }
        let (status, _, said) = run_any(&mut command, std::io::sink(), DEADLINE)?;
        ensure(status.success(), || format!("{case}: {status}\n{said}"))?;
    }
    Ok(())
}

fn pass(scheme: &str, tls: bool) -> Outcome {
    let certs = certs()?;
    let (_server, port) = server(scheme == "https")?;
    let mut command = Command::new(fullbore::program());
    command.args([
        "proxy",
        &format!("{scheme}://127.0.0.1:{port}"),
        "--listen",
        "127.0.0.1:0",
    ]);
    // What an origin over TLS is verified with.
    command.env("SSL_CERT_FILE", &certs.authority);
    match tls {
        true => command
            .arg("--cert")
            .arg(&certs.chain)
            .arg("--key")
            .arg(&certs.key),
        false => command.arg("--plaintext"),
    };
    let mut proxy = Daemon::spawn(&mut command)?;
    let url = proxy.wait_line("listening on ")?;
    let front = url
        .trim()
        .trim_end_matches('/')
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .to_owned();
    let ran = run_cases(&front, tls);
    ran.map_err(|fault| format!("{fault}\nfullbore proxy said:\n{}", proxy.stderr_tail()))?;
    proxy.check_alive()
}
