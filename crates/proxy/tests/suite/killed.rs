//! Random requests while connections on both sides of the proxy are killed and origins are restarted. Every body is checked, and
//! every failure has something beside it that was killed.
//!
//! ```text
//! cargo test -p fullbore-proxy --test suite killed -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullbore::{BoxError, Client, Incoming};
use fullbore_proxy::Proxy;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::support::{Front, Reply, Site, VERSIONS, body, client, full, get, origin, post, soon};

/// Requests at once.
const AT_ONCE: usize = 64;

/// A failure that comes so long after a kill may be its result: a connection of the pool, or an instance that is left out.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Sends a body back, or one that the path names: `/NUMBER/BYTES`.
async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let path = request.uri().path().to_owned();
    let received = request.into_body().collect().await?.to_bytes();
    let mut parts = path[1..].split('/');
    let (number, bytes) = match (parts.next(), parts.next()) {
        (Some(number), Some(bytes)) => (number.parse()?, bytes.parse()?),
        _ => return Ok(Response::new(full(received))),
    };
    Ok(Response::new(full(body(number, bytes))))
}

/// Carries connections to an address that may change, and ends them when it is told to.
struct Relay {
    address: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    carried: Arc<Mutex<Vec<AbortHandle>>>,
    task: AbortHandle,
}

impl Relay {
    async fn to(address: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a relay");
        let own = listener.local_addr().expect("an address");
        let (to, carried) = (
            Arc::new(Mutex::new(address)),
            Arc::<Mutex<Vec<AbortHandle>>>::default(),
        );
        let (target, handles) = (Arc::clone(&to), Arc::clone(&carried));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let address = *target.lock().unwrap();
                let handle = connections.spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                    }
                });
                let mut handles = handles.lock().unwrap();
                handles.retain(|handle| !handle.is_finished());
                handles.push(handle);
            }
        });
        Self {
            address: own,
            to,
            carried,
            task: task.abort_handle(),
        }
    }

    fn kill_one(&self, random: &mut fastrand::Rng) {
        let carried = self.carried.lock().unwrap();
        if let Some(handle) = random.choice(carried.iter()) {
            handle.abort();
        }
    }

    fn kill_all(&self) {
        self.carried
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|handle| handle.abort());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill_all();
        self.task.abort();
    }
}

/// What was killed, and when the last time.
struct Kills {
    count: u64,
    last: Instant,
}

impl Kills {
    fn note(kills: &Mutex<Self>) {
        let mut kills = kills.lock().unwrap();
        kills.count += 1;
        kills.last = Instant::now();
    }
}

/// Kills connections on both sides, and restarts origins.
async fn kill(
    clients: Arc<Relay>,
    origins: [Arc<Relay>; 2],
    mut sites: [Site; 2],
    kills: Arc<Mutex<Kills>>,
    seed: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(2..40))).await;
        let instance = random.usize(..2);
        Kills::note(&kills);
        match random.usize(..10) {
            0..4 => clients.kill_one(&mut random),
            4..8 => origins[instance].kill_one(&mut random),
            _ => {
                // An address at which nobody listens comes between.
                let old = std::mem::replace(&mut sites[instance], origin(answer).await);
                drop(old);
                origins[instance].kill_all();
                tokio::time::sleep(Duration::from_millis(random.u64(0..10))).await;
                *origins[instance].to.lock().unwrap() = sites[instance].address;
            }
        }
        Kills::note(&kills);
    }
}

/// One request. Returns what became of it.
async fn ask(
    client: &Client,
    url: &str,
    number: usize,
    bytes: usize,
    is_post: bool,
) -> Result<u16, fullbore::Error> {
    let expected = body(number, bytes);
    let request = match is_post {
        true => post(&format!("{url}/"), expected.clone()),
        false => get(&format!("{url}/{number}/{bytes}")),
    };
    let response = client.request(request).await?;
    let status = response.status().as_u16();
    let received = response.into_body().collect().await?.to_bytes();
    if status == 200 {
        assert!(
            received == expected,
            "{number}: {} octets in place of {bytes}",
            received.len()
        );
    }
    Ok(status)
}

async fn random_requests(count: usize, scheme: &str) {
    let seed = fastrand::u64(..);
    let sites = [origin(answer).await, origin(answer).await];
    let [one, other] = [
        Relay::to(sites[0].address).await,
        Relay::to(sites[1].address).await,
    ]
    .map(Arc::new);
    let url = |relay: &Relay| format!("{scheme}://{}", relay.address);
    let front = Front::new(Proxy::builder().to(&url(&one)).to(&url(&other))).await;
    let near = Arc::new(Relay::to(front.site.address).await);
    let begun = Kills {
        count: 0,
        last: Instant::now(),
    };
    let kills = Arc::new(Mutex::new(begun));
    let killing = kill(Arc::clone(&near), [one, other], sites, Arc::clone(&kills), seed);
    let killing = tokio::spawn(killing);
    let base = format!("http://{}", near.address);
    let clients = VERSIONS.map(client);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut asking = JoinSet::new();
    let mut outcomes = BTreeMap::<String, usize>::new();
    for number in 0..count {
        let turn = Arc::clone(&turns).acquire_owned().await.expect("a turn");
        let most = 2 << random.usize(1..16);
        let (bytes, is_post) = (random.usize(1..most), random.bool());
        let version = random.usize(..2);
        let (client, base, kills) = (clients[version].clone(), base.clone(), Arc::clone(&kills));
        asking.spawn(async move {
            let _turn = turn;
            let before = kills.lock().unwrap().count;
            let asked = soon(ask(&client, &base, number, bytes, is_post)).await;
            let outcome = match asked {
                Ok(200) => return "200".to_owned(),
                Ok(status @ (502..=504)) => status.to_string(),
                Ok(status) => panic!("{number} of seed {seed}: {status}"),
                Err(error) => format!("{:?}", error.kind()),
            };
            let kills = kills.lock().unwrap();
            let is_explained = kills.count > before || kills.last.elapsed() < AFTERMATH;
            assert!(
                is_explained,
                "{number} of seed {seed}: {outcome}, and nothing was killed"
            );
            outcome
        });
        while let Some(asked) = asking.try_join_next() {
            *outcomes.entry(asked.expect("it is checked")).or_default() += 1;
        }
    }
    while let Some(asked) = asking.join_next().await {
        *outcomes.entry(asked.expect("it is checked")).or_default() += 1;
    }
    killing.abort();
    let killed = kills.lock().unwrap().count / 2;
    println!("{count} requests to {scheme}://, {killed} kills and restarts: {outcomes:?}");
    let answered = outcomes.get("200").copied().unwrap_or_default();
    assert_eq!(outcomes.values().sum::<usize>(), count);
    // Each kill ends at most what is under way at once.
    let failed = count - answered;
    assert!(
        failed as u64 <= killed * AT_ONCE as u64,
        "{failed} failures of {killed} kills"
    );
    assert!(answered * 2 > count, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_stay_whole_while_both_sides_are_killed() {
    for scheme in ["http", "h2c"] {
        random_requests(1_000, scheme).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes"]
async fn a_hundred_thousand_bodies_stay_whole_while_both_sides_are_killed() {
    for scheme in ["http", "h2c"] {
        random_requests(50_000, scheme).await;
    }
}
