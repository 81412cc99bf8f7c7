//! The causes that are staged: a path, a server, a client, and the names that are right.

use std::time::Duration;

use fullbore_packets::{Direction, Policer, STOCK_RECEIVE_BUFFER, Settings, Tcp};

use super::super::MIB;

/// A cause and how it is staged.
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) settings: Settings,
    pub(super) server: Server,
    pub(super) moved: Moved,
    pub(super) bytes: u64,
    /// Options of the client.
    pub(super) options: Vec<&'static str>,
    /// What may be named.
    pub(super) causes: &'static [&'static str],
    /// Whether other programs keep the processors busy.
    pub(super) is_busy: bool,
}

/// Who answers.
#[derive(Clone)]
pub(super) enum Server {
    /// `fullbore serve` with these options.
    Serve(Vec<&'static str>),
    /// A server that takes its time.
    Slow,
}

/// What the client does.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Moved {
    Get,
    /// This path of the slow server.
    GetSlow(&'static str),
    List,
    ToSlowReader,
    Put,
    FromSlowSource,
}

impl Stage {
    /// The transfer in words.
    pub(super) fn transfer(&self) -> String {
        let mebibytes = self.bytes / MIB;
        let what = match self.moved {
            Moved::Get => format!("get {mebibytes} MiB"),
            Moved::GetSlow(path) => format!("get {path}"),
            Moved::List => "get -i, 300 x 5 KB".to_owned(),
            Moved::ToSlowReader => format!("get {mebibytes} MiB to a pipe"),
            Moved::Put => format!("put {mebibytes} MiB"),
            Moved::FromSlowSource => "put 2 MB from a pipe".to_owned(),
        };
        [vec![what.as_str()], self.options.clone()].concat().join(" ")
    }

    fn named(mut self, causes: &'static [&'static str]) -> Self {
        self.causes = causes;
        self
    }

    fn with(mut self, options: &[&'static str]) -> Self {
        self.options.extend(options);
        self
    }

    fn served_with(mut self, options: &[&'static str]) -> Self {
        self.server = Server::Serve(options.to_vec());
        self
    }

    fn over(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}

fn tcp(congestion_control: &str) -> Tcp {
    Tcp {
        congestion_control: congestion_control.to_owned(),
        ..Tcp::default()
    }
}

/// A path with this rate and round trip.
fn path(megabits: u64, round_trip: u64) -> Settings {
    let direction = Direction {
        delay: Duration::from_millis(round_trip / 2),
        rate: Some(megabits * 1_000_000),
        ..Direction::default()
    };
    Settings::new(direction, tcp("cubic"))
}

fn stage(name: &'static str, moved: Moved, mebibytes: u64) -> Stage {
    Stage {
        name,
        settings: path(100, 100),
        server: Server::Serve(Vec::new()),
        moved,
        bytes: mebibytes * MIB,
        options: Vec::new(),
        causes: &["path"],
        is_busy: false,
    }
}

fn lossy(loss: f64) -> impl FnOnce(&mut Settings) {
    move |settings| {
        settings.to_client.loss = loss;
        settings.to_server.loss = loss;
    }
}

fn policed(settings: &mut Settings) {
    settings.to_client.policer = Some(Policer::new(20_000_000));
    settings.to_server.policer = Some(Policer::new(20_000_000));
}

fn bbr(settings: &mut Settings) {
    lossy(0.01)(settings);
    (settings.server, settings.client) = (tcp("bbr"), tcp("bbr"));
}

/// A receive buffer of at most so many bytes, at both ends.
fn receive_buffer(most: u32) -> impl FnOnce(&mut Settings) {
    move |settings| {
        let sizes = [STOCK_RECEIVE_BUFFER[0], STOCK_RECEIVE_BUFFER[1], most];
        settings.server.receive_buffer = sizes;
        settings.client.receive_buffer = sizes;
    }
}

/// All of them.
pub(super) fn stages() -> Vec<Stage> {
    [downloads(), windows(), slow_ends(), uploads()]
        .into_iter()
        .flatten()
        .collect()
}

fn downloads() -> Vec<Stage> {
    // A further connection is what lifts most of these: here one shows the cause.
    let get = |name, mebibytes| stage(name, Moved::Get, mebibytes).with(&["--connections", "1"]);
    vec![
        get("the link, 100 Mbit/s, 100 ms", 64),
        get("the link, 20 Mbit/s, 20 ms", 16).over(|settings| *settings = path(20, 20)),
        get("0.1 % lost, 100 ms", 16).over(lossy(0.001)).named(&["loss"]),
        get("1 % lost, 20 ms", 16)
            .over(|settings| *settings = path(100, 20))
            .over(lossy(0.01))
            .named(&["loss"]),
        get("each connection policed to 20 Mbit/s", 16)
            .over(policed)
            .named(&["loss"]),
        get("the link, 1 % lost, bbr", 64).over(bbr),
        get("the server's send buffer, 400 Mbit/s, 100 ms", 256)
            .over(|settings| *settings = path(400, 100))
            .named(&["peer_window"]),
        get("the server's send buffer, 400 Mbit/s, 230 ms", 256)
            .over(|settings| *settings = path(400, 230))
            .named(&["peer_window"]),
        get("the receive buffer here, 1 MiB", 64)
            .over(receive_buffer(1 << 20))
            .named(&["tcp_receive_buffer"]),
        get("slow start", 2).named(&["slow_start"]),
        Stage {
            is_busy: true,
            ..get("the link, 50 Mbit/s, on a busy machine", 32).over(|settings| *settings = path(50, 100))
        },
    ]
}

/// The receive windows of both kinds.
fn windows() -> Vec<Stage> {
    let get = |name, mebibytes, options: &[&'static str]| {
        let one = stage(name, Moved::Get, mebibytes).with(&["--connections", "1"]);
        one.with(options)
    };
    vec![
        get("a stream window of 128 KiB", 4, &["--stream-window", "128KiB"]).named(&["stream_window"]),
        get("a stream window of 512 KiB", 16, &["--stream-window", "512KiB"]).named(&["stream_window"]),
        get(
            "a connection window of 1 MiB, 400 Mbit/s",
            32,
            &["--stream-window", "64MiB", "--connection-window", "1MiB"],
        )
        .over(|settings| *settings = path(400, 100))
        .named(&["connection_window"]),
    ]
}

fn slow_ends() -> Vec<Stage> {
    let slow = |name, path| Stage {
        server: Server::Slow,
        ..stage(name, Moved::GetSlow(path), 0)
    };
    vec![
        slow("a server that thinks for 3 s", "think").named(&["peer"]),
        slow("a server that dribbles, 20 ms", "dribble")
            .over(|settings| *settings = path(100, 20))
            .named(&["peer"]),
        stage("two streams at a time", Moved::List, 0)
            .served_with(&["--max-streams", "2"])
            .with(&["--connections", "1"])
            .named(&["stream_count"]),
        stage("a slow reader", Moved::ToSlowReader, 4).named(&["this_side"]),
    ]
}

fn uploads() -> Vec<Stage> {
    let put = |name, mebibytes| stage(name, Moved::Put, mebibytes);
    vec![
        put("the link", 64),
        put("0.1 % lost", 16).over(lossy(0.001)).named(&["loss"]),
        put("each connection policed to 20 Mbit/s", 16)
            .over(policed)
            .named(&["loss"]),
        put("the link, 1 % lost, bbr", 64).over(bbr),
        put("the server's receive buffer, 512 KiB", 16)
            .over(receive_buffer(512 << 10))
            .named(&["peer_tcp_receive_buffer"]),
        put("the send buffer here, 1 MiB", 32)
            .over(|settings| {
                *settings = path(400, 100);
                settings.client.send_buffer = [4_096, 16_384, 1 << 20];
            })
            .named(&["tcp_send_buffer"]),
        put("slow start", 2).named(&["slow_start"]),
        put("a stream window of 128 KiB there", 4)
            .served_with(&["--stream-window", "128KiB"])
            .named(&["stream_window"]),
        Stage {
            server: Server::Slow,
            ..put("a server that thinks about it for 3 s", 2).named(&["peer"])
        },
        stage("a slow source", Moved::FromSlowSource, 0).named(&["this_side"]),
    ]
}
