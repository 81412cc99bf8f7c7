//! Octets that are not what was sent: corrupted, cut short, repeated, left out.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, StreamId, Time, Transmit};
use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::frames;
use crate::support::pair::{End, Pair};
use crate::support::path::PathConfig;

/// What is done to a stretch of octets.
#[derive(Debug, Clone)]
enum Damage {
    Change(usize, u8),
    Cut(usize),
    LeaveOut(usize, usize),
    Repeat(usize, usize),
    Insert(usize, Vec<u8>),
}

fn damages() -> impl Strategy<Value = Damage> {
    let place = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 16));
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, octet)| Damage::Change(at, octet)),
        1 => place().prop_map(Damage::Cut),
        2 => (place(), 1usize..50).prop_map(|(at, count)| Damage::LeaveOut(at, count)),
        2 => (place(), 1usize..200).prop_map(|(at, count)| Damage::Repeat(at, count)),
        2 => (place(), vec(any::<u8>(), 1..20)).prop_map(|(at, octets)| Damage::Insert(at, octets)),
    ]
}

impl Damage {
    fn apply(&self, octets: &mut Vec<u8>) {
        if octets.is_empty() {
            return;
        }
        let place = |at: usize| at % octets.len();
        match *self {
            Damage::Change(at, octet) => {
                let at = place(at);
                octets[at] = octet;
            }
            Damage::Cut(at) => octets.truncate(place(at)),
            Damage::LeaveOut(at, count) => {
                let from = place(at);
                octets.drain(from..octets.len().min(from + count));
            }
            Damage::Repeat(at, count) => {
                let from = place(at);
                let again = octets[from..octets.len().min(from + count)].to_vec();
                octets.splice(from..from, again);
            }
            Damage::Insert(at, ref inserted) => {
                let from = place(at);
                octets.splice(from..from, inserted.iter().copied());
            }
        }
    }
}

/// All that one end says in a conversation, as its peer hears it when nothing is wrong.
static CONVERSATION: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let mut pair = Pair::new(Config::default(), Config::default(), PathConfig::delay_millis(1)).with_apps();
    pair.client.tap.record = Some(Vec::new());
    pair.server.tap.record = Some(Vec::new());
    ask(&mut pair.client);
    pair.run();
    pair.assert_nothing_leaked();
    let record = |end: &mut End| end.tap.record.take().unwrap_or_default();
    (record(&mut pair.client), record(&mut pair.server))
});

/// What the client of the conversation asks for.
fn ask(client: &mut End) {
    let End { connection, app, .. } = client;
    let app = app.as_mut().unwrap();
    for index in 0..8u64 {
        let request = Request::post(format!("http://example.com/{}", index * 777)).header("x-index", index);
        let whole = index % 2 == 0;
        let stream = connection.open(request.body(()).unwrap(), whole).unwrap();
        if !whole {
            let trailers = (index == 3).then(http::HeaderMap::new);
            app.send_body(connection, stream, index * 999, trailers);
        }
    }
}

/// An end that hears damaged octets, and whose owner goes on as if nothing were wrong.
struct Listener {
    end: End,
    now: Time,
}

impl Listener {
    fn new(of_client: bool) -> Self {
        let pair = Pair::new(Config::default(), Config::default(), PathConfig::default()).with_apps();
        let mut end = match of_client {
            true => pair.client,
            false => pair.server,
        };
        if of_client {
            ask(&mut end);
        }
        end.app().compares = false;
        Listener { end, now: Time::ZERO }
    }

    /// Hears octets; whether the connection lives.
    fn hear(&mut self, octets: &[u8]) -> bool {
        self.now = self.now + Duration::from_micros(100);
        let end = &mut self.end;
        let result = end.connection.receive(Bytes::copy_from_slice(octets), self.now);
        assert_eq!(result.as_ref().err(), end.connection.error());
        self.go_on();
        result.is_ok()
    }

    /// The owner takes its events, and all that is to be said is said, in whole frames.
    fn go_on(&mut self) {
        let end = &mut self.end;
        while let Some(event) = end.connection.poll_event() {
            let app = end.app.as_mut().unwrap();
            app.on_event(&mut end.connection, event, self.now);
        }
        for _ in 0..10_000 {
            if !end.connection.wants_transmit() {
                return;
            }
            let mut out = Transmit::new();
            end.connection.transmit(&mut out, self.now);
            let octets = out.copy_to_bytes(out.remaining());
            if !octets.is_empty() {
                end.tap.write(&octets, self.now);
            }
        }
        panic!("it never stops transmitting");
    }

    /// Once it failed nothing more comes of it, whatever its owner does.
    fn is_silent(&mut self) {
        let before = self.end.tap.frames.len();
        let last = self.end.tap.frames.last().unwrap();
        assert_eq!(last.header.frame_type, FrameType::GOAWAY);
        let goaways = self.end.tap.of(FrameType::GOAWAY).count();
        assert_eq!(goaways, 1);
        assert!(!self.hear(&frames::get(99)));
        let connection = &mut self.end.connection;
        for stream in (1..20).filter_map(StreamId::new) {
            let _ = connection.send_response(stream, &http::Response::new(()), false);
            let _ = connection.send_data(stream, Bytes::from_static(b"x"), true);
            let _ = connection.reset(stream, ErrorCode::CANCEL);
            connection.release_credit(stream, 1 << 20);
            connection.release(stream);
        }
        connection.shutdown(self.now);
        assert_eq!(connection.next_deadline(), None);
        self.go_on();
        assert_eq!(self.end.tap.frames.len(), before);
        assert_eq!(self.end.connection.stream_count(), 0);
    }
}

fn listen(of_client: bool, damages: &[Damage], piece: usize) {
    let (said_by_client, said_by_server) = &*CONVERSATION;
    let mut octets = if of_client { said_by_server } else { said_by_client }.clone();
    for damage in damages {
        damage.apply(&mut octets);
    }
    let mut listener = Listener::new(of_client);
    let lives = octets.chunks(piece).all(|piece| listener.hear(piece));
    if !lives {
        return listener.is_silent();
    }
    assert_eq!(listener.end.connection.unreleased(), 0);
    // Whatever it waits for, deadlines pass and come to an end.
    for _ in 0..100 {
        let Some(deadline) = listener.end.connection.next_deadline() else {
            return;
        };
        listener.now = listener.now.max(deadline);
        listener.end.connection.handle_timeout(listener.now);
        listener.go_on();
    }
    panic!("deadlines without end");
}

#[test]
fn the_conversation_is_understood_when_nothing_is_wrong_with_it() {
    for of_client in [false, true] {
        for piece in [1, 7, 100_000] {
            let (said_by_client, said_by_server) = &*CONVERSATION;
            let octets = if of_client { said_by_server } else { said_by_client };
            let mut listener = Listener::new(of_client);
            assert!(octets.chunks(piece).all(|piece| listener.hear(piece)));
            let talks = &listener.end.app().talks;
            assert!(
                talks.len() == 8 && talks.values().all(|talk| talk.ended),
                "{talks:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_server_survives_damaged_octets(damages in vec(damages(), 1..6), piece in 1usize..5_000) {
        listen(false, &damages, piece);
    }

    #[test]
    fn a_client_survives_damaged_octets(damages in vec(damages(), 1..6), piece in 1usize..5_000) {
        listen(true, &damages, piece);
    }

    #[test]
    fn either_survives_noise(octets in vec(any::<u8>(), 0..2_000), of_client in any::<bool>()) {
        let mut listener = Listener::new(of_client);
        let greeting = match of_client {
            true => frames::settings(&[]),
            false => [frames::PREFACE, &frames::settings(&[])[..]].concat(),
        };
        listener.hear(&greeting);
        if !listener.hear(&octets) {
            listener.is_silent();
        }
    }

    #[test]
    fn either_survives_frames_of_noise(
        frames in vec((0u8..18, any::<u8>(), 0u32..12, vec(any::<u8>(), 0..40)), 0..60),
        of_client in any::<bool>(),
    ) {
        let mut listener = Listener::new(of_client);
        let greeting = match of_client {
            true => frames::settings(&[]),
            false => [frames::PREFACE, &frames::settings(&[])[..]].concat(),
        };
        listener.hear(&greeting);
        for (kind, flags, stream, payload) in frames {
            if !listener.hear(&frames::frame(kind, flags, stream, &payload)) {
                listener.is_silent();
                break;
            }
        }
    }
}
