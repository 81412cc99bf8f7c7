//! `fullbore get` and `fullbore put` against foreign servers: every size down and up, in cleartext and over TLS, and a GiB.

use std::slice;

use libtest_mimic::Trial;

use crate::files::{Payload, gigabyte, one_at_a_time, small};
use crate::fullbore::{self, Transport};
use crate::peers::{Peer, trial, trial_of_a_gigabyte};
use crate::process::Outcome;
use crate::servers::{Foreign, SERVERS, needs};

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for transport in Transport::BOTH {
        for server in SERVERS {
            let name = server.name();
            let needs = needs(server);
            trials.push(trial(
                &needs,
                format!("get: files of every size from {name} over {transport}"),
                move || get(server, transport, small()),
            ));
            trials.push(trial_of_a_gigabyte(
                &needs,
                format!("get: 1 GiB from {name} over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    get(server, transport, slice::from_ref(gigabyte()))
                },
            ));
            trials.push(trial(
                &needs,
                format!("put: files of every size to {name} over {transport}"),
                move || put(server, transport, small()),
            ));
            trials.push(trial_of_a_gigabyte(
                &needs,
                format!("put: 1 GiB to {name} over {transport}"),
                move || {
                    let _turn = one_at_a_time();
                    put(server, transport, slice::from_ref(gigabyte()))
                },
            ));
        }
    }
    trials
}

fn get(server: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let foreign = Foreign::start(server, transport)?;
    fullbore::get(transport, &foreign.origin, payloads, &foreign.folder()?)
        .map_err(|fault| foreign.blame(&fault))
}

fn put(server: Peer, transport: Transport, payloads: &[Payload]) -> Outcome {
    let mut foreign = Foreign::start(server, transport)?;
    for payload in payloads {
        foreign
            .take_upload(transport, payload)
            .map_err(|fault| foreign.blame(&fault))?;
    }
    Ok(())
}
