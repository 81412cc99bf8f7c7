//! Foreign clients against `fullbore serve`: every size down and up, in cleartext and over TLS, and 256 MiB within the
//! server's bound of memory.

use std::fs;
use std::process::Command;

use libtest_mimic::Trial;

use crate::clients::{self, CLIENTS};
use crate::files::{Hasher, Payload, Scratch, big, one_at_a_time, site, small};
use crate::fullbore::{Server, Transport, UPLOAD_WINDOW, Uploads};
use crate::http1_clients;
use crate::peers::{Peer, trial, trial_of_a_big_file};
use crate::process::{DEADLINE, Outcome, ensure, run_into, run_text};
use crate::servers::haproxy;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for transport in Transport::BOTH {
        for client in CLIENTS {
            if !clients::speaks(client, transport) {
                continue;
            }
            let name = client.name();
            trials.push(trial(
                &[client],
                format!("{name} fetches files of every size over {transport}"),
                move || download(client, transport, small()),
            ));
            trials.push(trial_of_a_big_file(
                &[client],
                format!("{name} fetches 256 MiB over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    download(client, transport, std::slice::from_ref(big()))
                },
            ));
            if !small().iter().any(|payload| clients::can_upload(client, payload)) {
                continue;
            }
            trials.push(trial(
                &[client],
                format!("{name} uploads files of every size over {transport}"),
                move || upload(client, transport, small()),
            ));
            trials.push(trial_of_a_big_file(
                &[client],
                format!("{name} uploads 256 MiB over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    upload(client, transport, std::slice::from_ref(big()))
                },
            ));
        }
        for client in http1_clients::CLIENTS {
            http1_trials(client, transport, &mut trials);
        }
        trials.push(trial(
            &[Peer::Curl],
            format!("curl posts files of every size over HTTP/1.1 and {transport}, by length and in chunks"),
            move || http1_posts(transport),
        ));
        trials.push(trial(
            &[Peer::Haproxy, Peer::Curl],
            format!("haproxy passes files of every size on from fullbore serve over {transport}"),
            move || through_haproxy(transport),
        ));
    }
    trials.push(trial(
        &[Peer::Curl],
        "an upload that is discarded is answered with its length",
        discard,
    ));
    trials.push(trial(
        &[Peer::Curl],
        "SIGTERM lets a download finish and the server exit with 0",
        drain,
    ));
    trials
}

fn download(client: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let server = Server::start(transport, site(), Uploads::None)?;
    clients::download(client, transport, &server.url, payloads).map_err(|fault| server.blame(&fault))?;
    server.check_memory(0)
}

fn upload(client: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let scratch = Scratch::new()?;
    let server = Server::start(transport, site(), Uploads::Into(scratch.path()))?;
    let payloads: Vec<Payload> = payloads
        .iter()
        .filter(|payload| clients::can_upload(client, payload))
        .cloned()
        .collect();
    clients::upload(client, transport, &server.url, &payloads).map_err(|fault| server.blame(&fault))?;
    for payload in &payloads {
        payload.check_file(&scratch.path().join(&payload.name), "what fullbore serve stored")?;
    }
    server.check_memory(UPLOAD_WINDOW)
}

/// What `client` does over HTTP/1.1.
fn http1_trials(client: Peer, transport: Transport, trials: &mut Vec<Trial>) {
    let name = client.name();
    let uploads = small()
        .iter()
        .any(|payload| http1_clients::can_upload(client, transport, payload));
    trials.push(trial(
        &[client],
        format!("{name} fetches files of every size over HTTP/1.1 and {transport}"),
        move || http1_download(client, transport, small()),
    ));
    if uploads {
        trials.push(trial(
            &[client],
            format!("{name} uploads files of every size over HTTP/1.1 and {transport}"),
            move || http1_upload(client, transport, small()),
        ));
    }
    if !http1_clients::moves_a_big_file(client) {
        return;
    }
    trials.push(trial_of_a_big_file(
        &[client],
        format!("{name} fetches 256 MiB over HTTP/1.1 and {transport}"),
        move || {
            let _turn = one_at_a_time();
            http1_download(client, transport, std::slice::from_ref(big()))
        },
    ));
    if uploads {
        trials.push(trial_of_a_big_file(
            &[client],
            format!("{name} uploads 256 MiB over HTTP/1.1 and {transport}"),
            move || {
                let _turn = one_at_a_time();
                http1_upload(client, transport, std::slice::from_ref(big()))
            },
        ));
    }
}

fn http1_download(client: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let server = Server::start(transport, site(), Uploads::None)?;
    http1_clients::download(client, transport, &server.url, payloads)
        .map_err(|fault| server.blame(&fault))?;
    server.check_memory(0)
}

fn http1_upload(client: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let scratch = Scratch::new()?;
    let server = Server::start(transport, site(), Uploads::Into(scratch.path()))?;
    let payloads: Vec<Payload> = payloads
        .iter()
        .filter(|payload| http1_clients::can_upload(client, transport, payload))
        .cloned()
        .collect();
    http1_clients::upload(client, transport, &server.url, &payloads).map_err(|fault| server.blame(&fault))?;
    for payload in &payloads {
        payload.check_file(&scratch.path().join(&payload.name), "what fullbore serve stored")?;
    }
    server.check_memory(0)
}

fn http1_posts(transport: Transport) -> Outcome {
    for chunked in [false, true] {
        let scratch = Scratch::new()?;
        let server = Server::start(transport, site(), Uploads::Into(scratch.path()))?;
        for payload in small() {
            http1_clients::post_by_curl(transport, &server.url, payload, chunked)
                .map_err(|fault| server.blame(&fault))?;
            payload.check_file(&scratch.path().join(&payload.name), "what fullbore serve stored")?;
        }
    }
    Ok(())
}

fn through_haproxy(transport: Transport) -> Outcome {
    let scratch = Scratch::new()?;
    let stored = scratch.folder("stored")?;
    let server = Server::start(Transport::Cleartext, site(), Uploads::Into(&stored))?;
    let (_proxy, origin) = haproxy(transport, server.port()?, &scratch)?;
    clients::download(Peer::Curl, transport, &origin, small())?;
    clients::upload(Peer::Curl, transport, &origin, small())?;
    small()
        .iter()
        .try_for_each(|payload| payload.check_file(&stored.join(&payload.name), "what came through haproxy"))
}

fn discard() -> Outcome {
    let scratch = Scratch::new()?;
    let server = Server::start(Transport::Cleartext, scratch.path(), Uploads::Discard)?;
    for payload in small() {
        let mut curl = Peer::Curl.command()?;
        curl.args([
            "--silent",
            "--show-error",
            "--http2-prior-knowledge",
            "-w",
            " %{http_code}",
            "-T",
        ]);
        let answer = run_text(
            curl.arg(&payload.path)
                .arg(format!("{}/{}", server.url, payload.name)),
        )?;
        let words: Vec<&str> = answer.split_whitespace().collect();
        ensure(words == [payload.bytes.to_string().as_str(), "200"], || {
            format!("{} bytes were answered with {answer:?}", payload.bytes)
        })?;
    }
    ensure(fs::read_dir(scratch.path())?.next().is_none(), || {
        "a discarded upload was stored".into()
    })
}

/// The client reads slowly, so the body is far from sent when the signal arrives.
fn drain() -> Outcome {
    let mut server = Server::start(Transport::Cleartext, site(), Uploads::None)?;
    let payload = small().last().ok_or("no files")?.clone();
    let url = format!("{}/{}", server.url, payload.name);
    let scratch = Scratch::new()?;
    let headers = scratch.path().join("headers");
    let curl = Peer::Curl.program()?;
    let reader = std::thread::spawn({
        let headers = headers.clone();
        move || {
            let mut command = Command::new(curl);
            command.args([
                "--silent",
                "--show-error",
                "--http2-prior-knowledge",
                "--limit-rate",
                "800k",
                "-D",
            ]);
            run_into(command.arg(headers).arg(url), Hasher::default(), DEADLINE)
        }
    });
    // The response has begun once its status is there.
    let has_begun = || fs::read_to_string(&headers).is_ok_and(|text| text.contains("200"));
    while !has_begun() {
        ensure(!reader.is_finished() || has_begun(), || {
            "curl ended before the response began".into()
        })?;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    server.daemon.terminate()?;
    let (seen, _) = reader.join().map_err(|_| "curl's reader panicked")??;
    payload.check_hash(&seen, "curl")?;
    let status = server.daemon.wait()?;
    ensure(status.code() == Some(0), || {
        format!("fullbore serve ended with {status}")
    })
}
