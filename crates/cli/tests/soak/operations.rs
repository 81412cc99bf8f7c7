//! What the soak does with the library's client and with raw sockets. One operation is some requests whose every byte is
//! checked, or which are given up at some point.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore::rustls::{ClientConfig, ServerConfig};
use fullbore::{Client, ErrorKind, Incoming, Server};
use fullbore_testing::frames::{self, END_HEADERS, PREFACE};
use fullbore_testing::random::Random;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Outcome;
use crate::body::{Manner, Pieces, check, check_all};
use crate::service::answer;

/// The files of a file server, each named after its length.
pub(crate) const FILES: [u64; 8] = [0, 1, 100, 10_000, 65_536, 300_007, 1_000_003, 4_194_304];
/// Bodies are below `1 << BITS` bytes.
pub(crate) const BITS: u32 = 22;

/// A server under test.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    /// `fullbore serve`, which has files instead of handlers.
    pub(crate) files: bool,
}

/// Something to download: its URL, where in the pattern it begins, and its length.
pub(crate) type Source = (String, u64, u64);

impl Target {
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}/{path}", self.address)
    }

    pub(crate) fn source(&self, random: &mut Random) -> Source {
        if self.files {
            let length = random.choose(&FILES).copied().unwrap_or(0);
            return (self.url(&length.to_string()), 0, length);
        }
        let (salt, length) = (salt(random), random.magnitude(BITS));
        let kinds = ["bytes", "bytes", "bytes", "unsized", "late", "slow"];
        let kind = random.choose(&kinds).unwrap_or(&"bytes");
        (self.url(&format!("{kind}/{salt}/{length}")), salt, length)
    }
}

pub(crate) fn salt(random: &mut Random) -> u64 {
    random.below(1 << 20)
}

/// What all operations share.
pub(crate) struct Shared {
    /// Pools its connections over the whole soak.
    pub(crate) client: Client,
    pub(crate) targets: Vec<Target>,
    /// Where the file servers store uploads.
    pub(crate) stored: PathBuf,
    pub(crate) client_tls: Arc<ClientConfig>,
    pub(crate) server_tls: Arc<ServerConfig>,
}

impl Shared {
    pub(crate) fn new_client(&self) -> Outcome<Client> {
        Ok(Client::builder()
            .tls_config(Arc::clone(&self.client_tls))
            .build()?)
    }
}

/// The kinds of operations on the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Downloads.
    Get,
    /// Part of a file.
    Range,
    /// An upload that the server checks as it arrives.
    Upload,
    /// Both directions at once.
    Echo,
    /// An upload to a file server, read back and removed.
    Stored,
    /// A request given up before its response.
    AbandonedRequest,
    /// A response given up midway.
    AbandonedResponse,
    /// An upload given up midway.
    AbandonedUpload,
    /// A response that the server breaks off.
    BrokenResponse,
    /// An upload that the client breaks off.
    BrokenUpload,
    SlowReader,
    SlowUpload,
    /// An upload that is answered before its end.
    EarlyAnswer,
    /// A client of its own, with windows of its own, that shuts down or is dropped.
    Reconnect,
    /// A raw connection that breaks off anywhere.
    Abrupt,
    /// A server of its own that shuts down gracefully under load.
    Drain,
}

use Operation::*;

/// Each operation is drawn as often as it stands here.
#[rustfmt::skip]
const MIX: [Operation; 24] = [
    Get, Get, Get, Get, Range, Upload, Upload, Upload, Echo, Echo, Stored, AbandonedRequest,
    AbandonedResponse, AbandonedResponse, AbandonedUpload, AbandonedUpload, BrokenResponse, BrokenUpload,
    SlowReader, SlowUpload, EarlyAnswer, Reconnect, Abrupt, Drain,
];

impl Operation {
    pub(crate) fn draw(random: &mut Random) -> Self {
        random.choose(&MIX).copied().unwrap_or(Get)
    }

    /// Whether it needs a server with files or one with handlers; some do with either.
    fn wants_files(self, random: &mut Random) -> bool {
        match self {
            Range | Stored => true,
            Get | AbandonedRequest | AbandonedResponse | SlowReader | Reconnect | Abrupt => random.once_in(2),
            _ => false,
        }
    }

    /// Does it once. A soak without file servers skips what needs one.
    ///
    /// # Errors
    /// What was not as it should be.
    pub(crate) async fn run(self, shared: &Shared, random: &mut Random) -> Outcome {
        let files = self.wants_files(random) && shared.targets.iter().any(|target| target.files);
        if matches!(self, Range | Stored) && !files {
            return Ok(());
        }
        let suitable: Vec<&Target> = shared
            .targets
            .iter()
            .filter(|target| target.files == files)
            .collect();
        let target = random.choose(&suitable).ok_or("no server")?;
        let client = &shared.client;
        match self {
            Get => gets(client, target, random).await,
            Range => range(client, target, random).await,
            Upload => upload(client, target, random, false).await,
            SlowUpload => upload(client, target, random, true).await,
            Echo => echo(client, target, random).await,
            Stored => stored(shared, target, random).await,
            AbandonedRequest => abandoned_request(client, target, random).await,
            AbandonedResponse => abandoned_response(client, target, random).await,
            AbandonedUpload => abandoned_upload(shared, target, random).await,
            BrokenResponse => broken_response(client, target, random).await,
            BrokenUpload => broken_upload(client, target, random).await,
            SlowReader => slow_reader(client, target, random).await,
            EarlyAnswer => early_answer(client, target, random).await,
            Reconnect => reconnect(shared, target, random).await,
            Abrupt => abrupt(target, random).await,
            Drain => drain(shared, random).await,
        }
    }
}

/// The body of a response with this status.
fn expect(status: StatusCode, response: Response<Incoming>) -> Outcome<Incoming> {
    match response.status() {
        other if other == status => Ok(response.into_body()),
        other => Err(format!("status {other}, not {status}").into()),
    }
}

async fn body_of(client: &Client, url: &str) -> Outcome<Incoming> {
    expect(StatusCode::OK, client.get(url).await?.into())
}

async fn text(body: Incoming) -> Outcome<String> {
    Ok(String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned())
}

async fn get(client: Client, (url, salt, length): Source) -> Outcome {
    let read = async { check_all(body_of(&client, &url).await?, salt, length, None).await };
    read.await.map_err(|error| format!("{url}: {error}").into())
}

/// One download, or many at once.
async fn gets(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let mut downloads = JoinSet::new();
    for _ in 0..=random.magnitude(5) {
        downloads.spawn(get(client.clone(), target.source(random)));
    }
    while let Some(done) = downloads.join_next().await {
        done??;
    }
    Ok(())
}

async fn range(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let whole = random.choose(&FILES).copied().unwrap_or(0).max(1);
    let from = random.below(whole);
    let to = random.between(from, whole - 1);
    let request = Request::get(target.url(&whole.to_string()))
        .header("range", format!("bytes={from}-{to}"))
        .body(Empty::<Bytes>::new())?;
    let body = expect(StatusCode::PARTIAL_CONTENT, client.request(request).await?)?;
    check_all(body, from, to - from + 1, None).await
}

/// An upload of random bytes to `path`, in this manner.
async fn put(
    client: &Client,
    url: String,
    salt: u64,
    length: u64,
    manner: Manner,
) -> Outcome<Response<Incoming>> {
    Ok(client
        .request(Request::put(url).body(Pieces::new(salt, length, manner))?)
        .await?)
}

async fn upload(client: &Client, target: &Target, random: &mut Random, slow: bool) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let pause = slow.then(|| Duration::from_millis(random.between(1, 10)));
    let manner = Manner {
        pause,
        unsized_: random.once_in(3),
        fails: false,
    };
    let response = put(client, target.url(&format!("check/{salt}")), salt, length, manner).await?;
    let said = text(expect(StatusCode::OK, response)?).await?;
    match said == length.to_string() {
        true => Ok(()),
        false => Err(format!("an upload of {length} bytes was answered with: {said}").into()),
    }
}

async fn echo(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let response = put(client, target.url("echo"), salt, length, Manner::default()).await?;
    check_all(expect(StatusCode::OK, response)?, salt, length, None).await
}

async fn stored(shared: &Shared, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let name = format!("{:016x}", random.next());
    let response = put(&shared.client, target.url(&name), salt, length, Manner::default()).await?;
    text(expect(StatusCode::CREATED, response)?).await?;
    get(
        shared.client.clone(),
        (target.url(&format!("stored/{name}")), salt, length),
    )
    .await?;
    Ok(std::fs::remove_file(shared.stored.join(name))?)
}

async fn abandoned_request(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (url, ..) = target.source(random);
    // Whether the response came first or not, neither is an error.
    match timeout(Duration::from_micros(random.magnitude(14)), client.get(&url)).await {
        Ok(response) => expect(StatusCode::OK, response?.into()).map(drop),
        Err(_) => Ok(()),
    }
}

async fn abandoned_response(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (url, salt, length) = target.source(random);
    let enough = random.below(length + 1);
    let count = check(&mut body_of(client, &url).await?, salt, enough, None).await?;
    match count >= enough {
        true => Ok(()),
        false => Err(format!("{count} bytes arrived, {length} were sent").into()),
    }
}

async fn abandoned_upload(shared: &Shared, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let pause = random.once_in(2).then_some(Duration::from_millis(2));
    let files = shared.targets.iter().find(|one| one.files && random.once_in(2));
    // An upload that ends before it is given up has its name then, which tells it from what others left behind.
    let url = match files {
        Some(files) => files.url(&format!("whole-{salt}-{length}")),
        None => target.url(&format!("check/{salt}")),
    };
    let wait = Duration::from_micros(random.magnitude(15));
    let manner = Manner {
        pause,
        ..Manner::default()
    };
    match timeout(wait, put(&shared.client, url, salt, length, manner)).await {
        Ok(response) => response.map(drop),
        Err(_) => Ok(()),
    }
}

async fn broken_response(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let whole = async {
        let response = client.get(target.url(&format!("broken/{salt}/{length}"))).await?;
        response.into_body().collect().await
    };
    match whole.await {
        Err(error) if error.kind() == ErrorKind::Reset => Ok(()),
        Err(error) => Err(format!("instead of a reset: {error}").into()),
        Ok(_) => Err("a response that broke off ended as if it were whole".into()),
    }
}

async fn broken_upload(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(BITS));
    let manner = Manner {
        fails: true,
        ..Manner::default()
    };
    let body = Pieces::new(salt, length, manner);
    let request = Request::put(target.url(&format!("check/{salt}"))).body(body)?;
    match client.request(request).await {
        Err(error) if error.kind() == ErrorKind::Body => Ok(()),
        Err(error) => Err(format!("an upload whose body fails: {error}").into()),
        Ok(response) => match expect(StatusCode::OK, response)?.collect().await {
            Err(_) => Ok(()),
            Ok(whole) => {
                Err(format!("an upload whose body fails was answered: {:?}", whole.to_bytes()).into())
            }
        },
    }
}

async fn slow_reader(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let (url, salt, length) = target.source(random);
    let body = body_of(client, &url).await?;
    sleep(Duration::from_millis(random.below(500))).await;
    // At most some 256 frames of 16 KiB.
    check_all(
        body,
        salt,
        length,
        Some(Duration::from_millis(random.between(1, 10))),
    )
    .await
}

async fn early_answer(client: &Client, target: &Target, random: &mut Random) -> Outcome {
    let length = random.magnitude(BITS);
    let url = target.url(&format!("early/{}", random.below(length + 1)));
    let response = put(client, url, 0, length, Manner::default()).await?;
    match text(expect(StatusCode::OK, response)?).await?.as_str() {
        "enough" => Ok(()),
        said => Err(format!("an early answer was: {said}").into()),
    }
}

async fn reconnect(shared: &Shared, target: &Target, random: &mut Random) -> Outcome {
    let mut builder = Client::builder()
        .tls_config(Arc::clone(&shared.client_tls))
        .max_connections(random.between(1, 4) as u32);
    if random.once_in(2) {
        let window = random.between(65_535, 4 << 20) as u32;
        builder = builder.stream_window(window).connection_window(window);
    }
    let client = builder.build()?;
    if random.once_in(4) {
        // Dropped while all of these are in flight.
        for _ in 0..random.between(1, 8) {
            let wait = Duration::from_micros(random.magnitude(15));
            tokio::spawn(timeout(wait, get(client.clone(), target.source(random))));
        }
        return Ok(());
    }
    gets(&client, target, random).await?;
    if random.once_in(2) {
        client.shutdown().await;
    }
    Ok(())
}

/// The preface, SETTINGS and the beginning of a request, cut anywhere. The answer is not read, so the kernel resets the
/// connection.
async fn abrupt(target: &Target, random: &mut Random) -> Outcome {
    let request = frames::headers(1, END_HEADERS, &[0x82, 0x86, 0x84]);
    let octets = [PREFACE, &frames::settings(&[]), &request].concat();
    let cut = random.below(octets.len() as u64) as usize;
    let mut socket = TcpStream::connect(target.address).await?;
    socket.write_all(&octets[..cut]).await?;
    sleep(Duration::from_millis(random.below(20))).await;
    Ok(())
}

/// Every response that began before a graceful shutdown must come to its end, and so must the server.
async fn drain(shared: &Shared, random: &mut Random) -> Outcome {
    let tls = random.once_in(2);
    let mut builder = Server::builder();
    if tls {
        builder = builder.tls_config(Arc::clone(&shared.server_tls));
    }
    let server = builder.bind("127.0.0.1:0").await?;
    let target = Target {
        address: server.local_addr()?,
        tls,
        files: false,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let server = server.graceful_shutdown(async {
        // A dropped sender means the same.
        let _ = stopped.await;
    });
    let serving = tokio::spawn(server.serve(tower::service_fn(answer)));
    let client = shared.new_client()?;
    let mut bodies = Vec::new();
    for _ in 0..random.between(1, 10) {
        let (url, salt, length) = target.source(random);
        bodies.push((body_of(&client, &url).await?, salt, length));
    }
    let _ = stop.send(());
    for (body, salt, length) in bodies {
        let whole = check_all(body, salt, length, None).await;
        whole.map_err(|error| format!("during a graceful shutdown: {error}"))?;
    }
    Ok(serving.await??)
}
