//! What the soak does with the library's client, and with raw sockets: one operation is some requests whose every byte is
//! checked, or which are given up at some point. `soak` draws them and gives each its time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore::rustls::{ClientConfig, ServerConfig};
use fullbore::{Client, ErrorKind, Incoming, Server};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::pattern::{Check, Manner, Pieces, bytes};
use super::service::answer;
use crate::dice::Dice;

/// The files that a file server has; each is named after its length.
pub(super) const FILES: [u64; 8] = [0, 1, 100, 10_000, 65_536, 300_007, 1_000_003, 4_194_304];
/// Bodies are below `1 << BITS` bytes.
const BITS: u32 = 22;

/// A server that is soaked.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    /// `fullbore serve`, which has files and no handlers.
    pub(super) files: bool,
}

impl Target {
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}/{path}", self.address)
    }

    /// Something to download: its URL, where in the pattern it begins, and its length.
    pub(super) fn source(&self, dice: &mut Dice) -> (String, u64, u64) {
        if self.files {
            let length = dice.one_of(&FILES).copied().unwrap_or(0);
            return (self.url(&length.to_string()), 0, length);
        }
        let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
        let what = *dice
            .one_of(&["bytes", "bytes", "bytes", "unsized", "late", "slow"])
            .unwrap_or(&"bytes");
        (self.url(&format!("{what}/{salt}/{length}")), salt, length)
    }
}

/// What all operations share.
pub(super) struct Ground {
    /// Pools its connections over the whole soak.
    pub(super) client: Client,
    pub(super) targets: Vec<Target>,
    /// Where the file servers store uploads.
    pub(super) stored: PathBuf,
    pub(super) trusting: Arc<ClientConfig>,
    pub(super) keys: Arc<ServerConfig>,
}

/// The kinds of operations on the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Downloads.
    Get,
    /// Part of a file.
    Range,
    /// An upload that is checked as it comes.
    Upload,
    /// Both directions at once.
    Echo,
    /// An upload to a file server, read back and removed.
    Stored,
    /// A request given up before its head.
    GivenUpBeforeHead,
    /// A response given up midway.
    GivenUpAfterHead,
    /// An upload given up midway.
    UploadGivenUp,
    /// A response that the server breaks off.
    BrokenResponse,
    /// An upload that the client breaks off.
    BrokenUpload,
    /// A response that is read slowly.
    SlowReader,
    /// An upload that comes slowly.
    SlowUpload,
    /// An upload that is answered before its end.
    EarlyAnswer,
    /// A client of its own, with windows of its own, that ends or is dropped.
    Reconnect,
    /// A raw connection that breaks off anywhere.
    Abrupt,
    /// A server of its own that is shut down gracefully under load.
    Drain,
}

/// Each as often as it stands here.
const MIX: [Operation; 24] = [
    Operation::Get,
    Operation::Get,
    Operation::Get,
    Operation::Get,
    Operation::Range,
    Operation::Upload,
    Operation::Upload,
    Operation::Upload,
    Operation::Echo,
    Operation::Echo,
    Operation::Stored,
    Operation::GivenUpBeforeHead,
    Operation::GivenUpAfterHead,
    Operation::GivenUpAfterHead,
    Operation::UploadGivenUp,
    Operation::UploadGivenUp,
    Operation::BrokenResponse,
    Operation::BrokenUpload,
    Operation::SlowReader,
    Operation::SlowUpload,
    Operation::EarlyAnswer,
    Operation::Reconnect,
    Operation::Abrupt,
    Operation::Drain,
];

impl Operation {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        dice.one_of(&MIX).copied().unwrap_or(Operation::Get)
    }

    /// Whether it needs a server with files, or one with handlers; most do with either.
    fn wants_files(self, dice: &mut Dice) -> bool {
        match self {
            Operation::Range | Operation::Stored => true,
            Operation::Get
            | Operation::GivenUpBeforeHead
            | Operation::GivenUpAfterHead
            | Operation::SlowReader
            | Operation::Reconnect
            | Operation::Abrupt => dice.once_in(2),
            _ => false,
        }
    }

    /// Does it once.
    ///
    /// # Errors
    /// What was not as it should be.
    pub(super) async fn run(self, ground: &Ground, dice: &mut Dice) -> Result<(), String> {
        let files = self.wants_files(dice);
        let fitting: Vec<&Target> = ground.targets.iter().filter(|one| one.files == files).collect();
        let target = match dice.one_of(&fitting) {
            Some(target) => *target,
            // A soak without file servers.
            None => match dice.one_of(&ground.targets) {
                Some(target) if !matches!(self, Operation::Range | Operation::Stored) => target,
                _ => return Ok(()),
            },
        };
        let client = &ground.client;
        match self {
            Operation::Get => gets(client, target, dice).await,
            Operation::Range => range(client, target, dice).await,
            Operation::Upload => upload(client, target, dice, false).await,
            Operation::SlowUpload => upload(client, target, dice, true).await,
            Operation::Echo => echo(client, target, dice).await,
            Operation::Stored => stored(ground, target, dice).await,
            Operation::GivenUpBeforeHead => given_up_before_head(client, target, dice).await,
            Operation::GivenUpAfterHead => given_up_after_head(client, target, dice).await,
            Operation::UploadGivenUp => upload_given_up(ground, target, dice).await,
            Operation::BrokenResponse => broken_response(client, target, dice).await,
            Operation::BrokenUpload => broken_upload(client, target, dice).await,
            Operation::SlowReader => slow_reader(client, target, dice).await,
            Operation::EarlyAnswer => early_answer(client, target, dice).await,
            Operation::Reconnect => reconnect(ground, target, dice).await,
            Operation::Abrupt => abrupt(target, dice).await,
            Operation::Drain => drain(ground, dice).await,
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn ok(response: Response<Incoming>) -> Result<Incoming, String> {
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status => Err(format!("status {status}")),
    }
}

fn equal(came: u64, sent: u64) -> Result<(), String> {
    if came == sent {
        Ok(())
    } else {
        Err(format!("{came} bytes came, {sent} were sent"))
    }
}

/// Reads to the end, after a pause for each frame, and compares.
async fn read(mut body: Incoming, salt: u64, length: u64, pause: Option<Duration>) -> Result<(), String> {
    let mut check = Check::new(salt);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("after {} of {length} bytes: {error}", check.count()))?;
        check.update(frame.data_ref().map_or(&[][..], |data| data))?;
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    equal(check.count(), length)
}

async fn text(body: Incoming) -> Result<String, String> {
    let bytes = body.collect().await.map_err(words)?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn get(client: Client, (url, salt, length): (String, u64, u64)) -> Result<(), String> {
    let response = client.get(&url).await.map_err(words);
    let read = match response.and_then(ok) {
        Ok(body) => read(body, salt, length, None).await,
        Err(why) => Err(why),
    };
    read.map_err(|why| format!("{url}: {why}"))
}

/// One alone or many at once.
async fn gets(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let mut under_way = JoinSet::new();
    for _ in 0..1 + dice.size(5) {
        under_way.spawn(get(client.clone(), target.source(dice)));
    }
    while let Some(done) = under_way.join_next().await {
        done.map_err(words)??;
    }
    Ok(())
}

async fn range(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let whole = dice.one_of(&FILES).copied().unwrap_or(0).max(1);
    let from = dice.below(whole);
    let to = dice.between(from, whole - 1);
    let request = Request::get(target.url(&whole.max(1).to_string()))
        .header("range", format!("bytes={from}-{to}"))
        .body(Empty::<Bytes>::new());
    let response = client.request(request.map_err(words)?).await.map_err(words)?;
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return Err(format!("a range was answered with {}", response.status()));
    }
    read(response.into_body(), from, to - from + 1, None).await
}

fn put(url: String, body: Pieces) -> Result<Request<Pieces>, String> {
    Request::put(url).body(body).map_err(words)
}

async fn upload(client: &Client, target: &Target, dice: &mut Dice, slow: bool) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let manner = Manner {
        pause: slow.then(|| Duration::from_millis(dice.between(1, 10))),
        unsized_: dice.once_in(3),
        ..Manner::default()
    };
    let request = put(
        target.url(&format!("check/{salt}")),
        Pieces::new(salt, length, manner),
    )?;
    let said = text(ok(client.request(request).await.map_err(words)?)?).await?;
    if said == length.to_string() {
        Ok(())
    } else {
        Err(format!("an upload of {length} bytes was answered with: {said}"))
    }
}

async fn echo(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let request = put(target.url("echo"), Pieces::new(salt, length, Manner::default()))?;
    let body = ok(client.request(request).await.map_err(words)?)?;
    read(body, salt, length, None).await
}

async fn stored(ground: &Ground, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let name = format!("{:016x}", dice.next());
    let request = put(target.url(&name), Pieces::new(salt, length, Manner::default()))?;
    let response = ground.client.request(request).await.map_err(words)?;
    if response.status() != StatusCode::CREATED {
        return Err(format!("an upload was answered with {}", response.status()));
    }
    text(response.into_body()).await?;
    get(
        ground.client.clone(),
        (target.url(&format!("stored/{name}")), salt, length),
    )
    .await?;
    std::fs::remove_file(ground.stored.join(name)).map_err(words)
}

async fn given_up_before_head(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, ..) = target.source(dice);
    let wait = Duration::from_micros(dice.size(14));
    // Whether the head came before it was given up or not: neither is a fault, an error is.
    match timeout(wait, client.get(&url)).await {
        Ok(response) => ok(response.map_err(words)?).map(drop),
        Err(_) => Ok(()),
    }
}

async fn given_up_after_head(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, salt, length) = target.source(dice);
    let mut body = ok(client.get(&url).await.map_err(words)?)?;
    let enough = dice.below(length + 1);
    let mut check = Check::new(salt);
    while check.count() < enough {
        match body.frame().await {
            Some(frame) => {
                let frame = frame.map_err(words)?;
                check.update(frame.data_ref().map_or(&[][..], |data| data))?;
            }
            None => return equal(check.count(), length),
        }
    }
    Ok(())
}

async fn upload_given_up(ground: &Ground, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let manner = Manner {
        pause: dice.once_in(2).then_some(Duration::from_millis(2)),
        ..Manner::default()
    };
    let files = ground.targets.iter().find(|one| one.files && dice.once_in(2));
    // What ends before it is given up has its name then, and is told from what is left of the others.
    let name = format!("whole-{salt}-{length}");
    let url = match files {
        Some(files) => files.url(&name),
        None => target.url(&format!("check/{salt}")),
    };
    let request = put(url, Pieces::new(salt, length, manner))?;
    let wait = Duration::from_micros(dice.size(15));
    match timeout(wait, ground.client.request(request)).await {
        Ok(response) => response.map(drop).map_err(words),
        Err(_) => Ok(()),
    }
}

async fn broken_response(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let mut body = match client.get(&target.url(&format!("broken/{salt}/{length}"))).await {
        Ok(response) => ok(response)?,
        Err(error) if error.kind() == ErrorKind::Reset => return Ok(()),
        Err(error) => return Err(format!("instead of a reset: {error}")),
    };
    let mut check = Check::new(salt);
    loop {
        match body.frame().await {
            Some(Ok(frame)) => check.update(frame.data_ref().map_or(&[][..], |data| data))?,
            Some(Err(error)) if error.kind() == ErrorKind::Reset => return Ok(()),
            Some(Err(error)) => return Err(format!("instead of a reset: {error}")),
            None => {
                return Err(format!(
                    "a response that broke off came to its end after {} bytes",
                    check.count()
                ));
            }
        }
    }
}

async fn broken_upload(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(BITS));
    let manner = Manner {
        fails: true,
        ..Manner::default()
    };
    let request = put(
        target.url(&format!("check/{salt}")),
        Pieces::new(salt, length, manner),
    )?;
    match client.request(request).await {
        Err(error) if error.kind() == ErrorKind::Body => Ok(()),
        Err(error) => Err(format!("an upload whose body fails: {error}")),
        Ok(response) => match ok(response)?.collect().await {
            Err(_) => Ok(()),
            Ok(whole) => Err(format!(
                "an upload whose body fails was answered with {:?}",
                whole.to_bytes()
            )),
        },
    }
}

async fn slow_reader(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, salt, length) = target.source(dice);
    let body = ok(client.get(&url).await.map_err(words)?)?;
    sleep(Duration::from_millis(dice.below(500))).await;
    // At most some 256 frames of 16 KiB.
    let pause = Duration::from_millis(dice.between(1, 10));
    read(body, salt, length, Some(pause)).await
}

async fn early_answer(client: &Client, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let length = dice.size(BITS);
    let enough = dice.below(length + 1);
    let request = put(
        target.url(&format!("early/{enough}")),
        Pieces::new(0, length, Manner::default()),
    )?;
    let said = text(ok(client.request(request).await.map_err(words)?)?).await?;
    if said == "enough" {
        Ok(())
    } else {
        Err(format!("an early answer was: {said}"))
    }
}

async fn reconnect(ground: &Ground, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let builder = Client::builder()
        .tls_config(Arc::clone(&ground.trusting))
        .max_connections(u32::try_from(dice.between(1, 4)).unwrap_or(1));
    let builder = if dice.once_in(2) {
        let window = u32::try_from(dice.between(65_535, 4 << 20)).unwrap_or(65_535);
        builder.stream_window(window).connection_window(window)
    } else {
        builder
    };
    let client = builder.build().map_err(words)?;
    if dice.once_in(4) {
        // Dropped with everything under way.
        for _ in 0..dice.between(1, 8) {
            tokio::spawn(timeout(
                Duration::from_micros(dice.size(15)),
                get(client.clone(), target.source(dice)),
            ));
        }
        return Ok(());
    }
    gets(&client, target, dice).await?;
    if dice.once_in(2) {
        client.shutdown().await;
    }
    Ok(())
}

/// A preface, SETTINGS and the beginning of a request's frame, cut anywhere; what the server says is not read, so that the
/// kernel resets the connection.
async fn abrupt(target: &Target, dice: &mut Dice) -> Result<(), String> {
    const SAID: &[u8] =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x03\x01\x04\0\0\0\x01\x82\x86\x84";
    let cut = usize::try_from(dice.below(SAID.len() as u64 + 1)).unwrap_or(0);
    let mut socket = TcpStream::connect(target.address).await.map_err(words)?;
    socket
        .write_all(SAID.get(..cut).unwrap_or_default())
        .await
        .map_err(words)?;
    sleep(Duration::from_millis(dice.below(20))).await;
    Ok(())
}

/// Whatever had its head when the server was told to end has to come to its end, and the server too.
async fn drain(ground: &Ground, dice: &mut Dice) -> Result<(), String> {
    let secure = dice.once_in(2);
    let mut server = Server::bind("127.0.0.1:0").await.map_err(words)?;
    if secure {
        server = server.tls_config(Arc::clone(&ground.keys));
    }
    let target = Target {
        address: server.local_addr().map_err(words)?,
        secure,
        files: false,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let server = server.graceful_shutdown(async {
        // A sender that is dropped says the same.
        let _ = stopped.await;
    });
    let serving = tokio::spawn(server.serve(tower::service_fn(answer)));
    let client = Client::builder()
        .tls_config(Arc::clone(&ground.trusting))
        .build()
        .map_err(words)?;
    let mut bodies = Vec::new();
    for _ in 0..dice.between(1, 10) {
        let (url, salt, length) = target.source(dice);
        bodies.push((ok(client.get(&url).await.map_err(words)?)?, salt, length));
    }
    let _ = stop.send(());
    for (body, salt, length) in bodies {
        let whole = read(body, salt, length, None).await;
        whole.map_err(|why| format!("during a graceful shutdown: {why}"))?;
    }
    serving.await.map_err(words)?.map_err(words)
}

/// Makes the files of a file server.
pub(super) fn make_files(folder: &std::path::Path) -> std::io::Result<()> {
    FILES
        .iter()
        .try_for_each(|&length| std::fs::write(folder.join(length.to_string()), bytes(0, length)))
}
