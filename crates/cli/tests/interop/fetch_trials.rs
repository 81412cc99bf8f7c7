//! `fullbore get` and `fullbore put` against foreign servers: every size down and up, in cleartext and over TLS, and 256 MiB.

use std::slice;

use libtest_mimic::Trial;

use crate::files::{Payload, big, one_at_a_time, small};
use crate::fullbore::{self, Transport, Version};
use crate::peers::{Peer, trial, trial_of_a_big_file};
use crate::process::Outcome;
use crate::servers::{Foreign, SERVERS, needs, speaks, takes_uploads};

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for transport in Transport::BOTH {
        for (server, version) in SERVERS {
            if !speaks(server, transport) {
                continue;
            }
            let name = match version {
                Version::Http1 => format!("{} with HTTP/1.1", server.name()),
                Version::Http2 => server.name().to_owned(),
            };
            let needs = needs(server);
            trials.push(trial(
                &needs,
                format!("get: files of every size from {name} over {transport}"),
                move || get(server, version, transport, small()),
            ));
            trials.push(trial_of_a_big_file(
                &needs,
                format!("get: 256 MiB from {name} over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    get(server, version, transport, slice::from_ref(big()))
                },
            ));
            if !takes_uploads(server) {
                continue;
            }
            trials.push(trial(
                &needs,
                format!("put: files of every size to {name} over {transport}"),
                move || put(server, version, transport, small()),
            ));
            trials.push(trial_of_a_big_file(
                &needs,
                format!("put: 256 MiB to {name} over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    put(server, version, transport, slice::from_ref(big()))
                },
            ));
        }
    }
    trials
}

fn get(server: Peer, version: Version, transport: Transport, payloads: &[Payload]) -> Outcome {
    let foreign = Foreign::start(server, version, transport)?;
    fullbore::get(transport, &foreign.origin, payloads, &foreign.folder()?)
        .map_err(|fault| foreign.blame(&fault))
}

fn put(server: Peer, version: Version, transport: Transport, payloads: &[Payload]) -> Outcome {
    let mut foreign = Foreign::start(server, version, transport)?;
    for payload in payloads {
        foreign
            .take_upload(transport, payload)
            .map_err(|fault| foreign.blame(&fault))?;
    }
    Ok(())
}
