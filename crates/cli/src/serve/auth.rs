//! `--auth` and its like: who may send which requests, by name and password (RFC 7617).
//!
//! A bcrypt hash takes much processor time, which is its purpose, and which nobody may have this server spend at will:
//!
//! - A password that was right once is known by a keyed hash of it in memory, and costs microseconds from then on.
//! - Hashes are computed on blocking threads, at most half as many at once as there are processors.
//! - Requests with the same credentials share one computation.
//! - An address that sends wrong passwords has to wait: ten are free, and then one every six seconds.
//!
//! Each wrong password takes the time of the highest cost of all hashes, whether there is such a user or not: the time does not
//! tell who the users are.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use fullbore::server::{PeerAddr, address_group};
use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::{OnceCell, Semaphore};

use super::text::text;
use crate::args::ServerArgs;
use crate::exit::{Exit, Failure};
use crate::hash_password::LONGEST_PASSWORD;

/// How many wrong passwords an address may send at once, and how soon it may send one more.
const FREE_ATTEMPTS: u32 = 10;
const ATTEMPT_EVERY: Duration = Duration::from_secs(6);

/// How many different credentials may wait for their hash.
const MAX_WAITING: usize = 128;

/// How many addresses are remembered for their wrong passwords.
const MAX_ADDRESSES: usize = 16_384;

/// The highest cost of a hash: twice the time for each step, some seconds for this one.
const MAX_COST: u32 = 16;

/// The longest user name, in bytes.
const LONGEST_NAME: usize = 256;

/// The longest file of users, in bytes: some 50,000.
const LONGEST_FILE: u64 = 4 << 20;

/// Padding is not required.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Admits users.
pub(super) struct Gate {
    users: HashMap<String, User>,
    /// Whether requests without a password may read.
    is_open: bool,
    /// A hash of the highest cost, for names that no user has.
    decoy: Arc<str>,
    highest_cost: u32,
    /// The key of the hashes in memory.
    key: hmac::Key,
    running: Arc<Semaphore>,
    state: Mutex<State>,
}

struct User {
    name: Arc<str>,
    /// Whether this user may send requests that do more than read.
    may_write: bool,
    hash: Arc<str>,
    cost: u32,
    /// The keyed hash of the password, once it was verified. A user has one password.
    verified: OnceLock<hmac::Tag>,
}

#[derive(Default)]
struct State {
    /// Credentials whose hash is being computed, or waits for that, by their keyed hash.
    waiting: HashMap<[u8; 32], Arc<OnceCell<bool>>>,
    /// Until when the attempts of an address count.
    attempts: HashMap<IpAddr, Instant>,
}

/// What is known of a request at once.
pub(super) enum Verdict {
    /// It reads, which needs no password.
    Open,
    Admitted(Arc<str>),
    /// The password is to be verified.
    Unknown(Credentials),
    Refused(Response<Bytes>),
}

/// The response to a request that is not admitted.
pub(super) type Refusal = Box<Response<Bytes>>;

/// A name and a password that a client sent.
pub(super) struct Credentials {
    name: String,
    password: Vec<u8>,
}

impl Gate {
    /// The gate that the options ask for; `None` when no request needs a password.
    ///
    /// # Errors
    /// As of [`Gate::new`], or the file of users cannot be read.
    pub(super) fn from_options(args: &ServerArgs) -> Result<Option<Self>, Failure> {
        let mut readers = args.auth.clone();
        if let Some(path) = &args.auth_file {
            let before = readers.len();
            readers.extend(read_users(path)?);
            if readers.len() == before {
                let path = path.display();
                return Err(Failure::usage(format!(
                    "--auth-file {path}: the file names no user; fullbore hash-password NAME prints a line for it"
                )));
            }
        }
        match args.has_users() {
            true => Self::new(&readers, &args.auth_write).map(Some),
            false => Ok(None),
        }
    }

    /// A gate for users in the form `NAME:HASH`. Where there are `writers`, the `readers` may only read; where there are no
    /// readers, everybody may.
    ///
    /// # Errors
    /// An entry is not in that form. The message does not show the hash: it may be a password.
    fn new(readers: &[String], writers: &[String]) -> Result<Self, Failure> {
        let mut users = HashMap::new();
        let readers = readers.iter().map(|entry| (entry, writers.is_empty()));
        let is_open = readers.len() == 0;
        for (entry, may_write) in readers.chain(writers.iter().map(|entry| (entry, true))) {
            let (name, hash, cost) = parse(entry)?;
            let user = User {
                name: name.into(),
                may_write,
                hash: hash.into(),
                cost,
                verified: OnceLock::new(),
            };
            if users.insert(name.to_owned(), user).is_some() {
                return Err(Failure::usage(format!(
                    "the user {name:?} is named twice by --auth, --auth-write or the file of --auth-file; a user has one password, so \
                     remove one of them"
                )));
            }
        }
        let costly = users.values().max_by_key(|user| user.cost);
        let (decoy, highest_cost) =
            costly.map_or_else(|| ("".into(), 0), |user| (Arc::clone(&user.hash), user.cost));
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| Failure::new(Exit::Other, "the system has no random numbers".to_owned()))?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            users,
            is_open,
            decoy,
            highest_cost,
            key,
            running: Arc::new(Semaphore::new((processors / 2).max(1))),
            state: Mutex::default(),
        })
    }

    /// What the method and the fields of a request say.
    pub(super) fn look(&self, method: &Method, fields: &HeaderMap) -> Verdict {
        if self.is_open && reads(method) && !fields.contains_key(AUTHORIZATION) {
            return Verdict::Open;
        }
        let Some(credentials) = fields.get(AUTHORIZATION).and_then(credentials) else {
            return Verdict::Refused(unauthorized());
        };
        let Some(user) = self.users.get(&credentials.name) else {
            return Verdict::Unknown(credentials);
        };
        match user.verified.get() {
            // `verify` compares in constant time.
            Some(tag) if hmac::verify(&self.key, &credentials.password, tag.as_ref()).is_ok() => {
                Verdict::Admitted(Arc::clone(&user.name))
            }
            _ => Verdict::Unknown(credentials),
        }
    }

    /// The response to a user who may only read and wants more.
    pub(super) fn refusal(&self, user: &str, method: &Method) -> Option<Response<Bytes>> {
        let may = reads(method) || self.users.get(user).is_some_and(|user| user.may_write);
        (!may).then(|| text(StatusCode::FORBIDDEN, "this user may only read\n"))
    }

    /// Verifies a password. Returns the user, or the response to an address that is not admitted.
    pub(super) async fn verify(
        &self,
        credentials: Credentials,
        peer: Option<PeerAddr>,
    ) -> Result<Arc<str>, Refusal> {
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| {
            address_group(peer.0.ip())
        });
        let waiting = self
            .wait(&credentials)
            .ok_or_else(|| try_later(StatusCode::SERVICE_UNAVAILABLE, 1))?;
        let compute = || self.compute(&credentials, peer);
        let right = *waiting.cell.get_or_try_init(compute).await?;
        match self.users.get(&credentials.name).filter(|_| right) {
            None => Err(Box::new(unauthorized())),
            Some(user) => {
                let _ = user.verified.set(hmac::sign(&self.key, &credentials.password));
                Ok(Arc::clone(&user.name))
            }
        }
    }

    /// Computes the hash. An attempt counts unless the password is right.
    async fn compute(&self, credentials: &Credentials, peer: IpAddr) -> Result<bool, Refusal> {
        let busy = || try_later(StatusCode::SERVICE_UNAVAILABLE, 1);
        self.lock().count(peer, Instant::now())?;
        let is_user = self.users.contains_key(&credentials.name);
        let (hash, rest) = self.work(&credentials.name);
        let permit = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|_| busy())?;
        let password = credentials.password.clone();
        let computed = tokio::task::spawn_blocking(move || {
            let right = bcrypt::non_truncating_verify(&password, &hash).unwrap_or(false);
            if !right {
                waste(&password, rest);
            }
            drop(permit);
            right
        });
        let right = computed.await.map_err(|_| busy())? && is_user;
        if right {
            self.lock().give_back(peer);
        }
        Ok(right)
    }

    /// The hash to compare a password for this name with, and the costs of what is to be computed too if it is wrong. The first
    /// of these is that of the hash.
    fn work(&self, name: &str) -> (Arc<str>, Range<u32>) {
        let user = self.users.get(name);
        let (hash, cost) = user.map_or((&self.decoy, self.highest_cost), |user| (&user.hash, user.cost));
        (Arc::clone(hash), cost..self.highest_cost)
    }

    /// Joins those who wait for the hash of these credentials; `None` when too many others wait.
    fn wait<'a>(&'a self, credentials: &Credentials) -> Option<Waiting<'a>> {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(credentials.name.as_bytes());
        // No name has a zero byte.
        context.update(&[0]);
        context.update(&credentials.password);
        let tag: [u8; 32] = context.sign().as_ref().try_into().ok()?;
        let mut state = self.lock();
        if state.waiting.len() >= MAX_WAITING && !state.waiting.contains_key(&tag) {
            return None;
        }
        let cell = Arc::clone(state.waiting.entry(tag).or_default());
        Some(Waiting {
            gate: self,
            tag,
            cell,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether requests with this method change nothing.
fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The users in a file, one a line. Empty lines and those that begin with `#` are none.
///
/// # Errors
/// The file cannot be read, is no text, or has a line that is no user.
fn read_users(path: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    let file = fs::File::open(path).and_then(|file| file.take(LONGEST_FILE + 1).read_to_string(&mut text));
    let read = file.map_err(|error| Failure::from_io("read", path, &error))?;
    if u64::try_from(read).is_ok_and(|read| read > LONGEST_FILE) {
        return Err(Failure::usage(format!(
            "--auth-file {}: the file is longer than 4 MiB; check that it is a list of users",
            path.display()
        )));
    }
    // Some editors write a mark in front of UTF-8, which is no part of a name.
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let users = lines
        .zip(1_u32..)
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let users = users.map(|(line, number)| match parse(line) {
        Ok(_) => Ok(line.to_owned()),
        Err(wrong) => {
            let text = format!("--auth-file {} line {number}: {}", path.display(), wrong.message);
            Err(Failure::usage(text))
        }
    });
    users.collect()
}

/// One who waits. The last one to leave removes the entry.
struct Waiting<'a> {
    gate: &'a Gate,
    tag: [u8; 32],
    cell: Arc<OnceCell<bool>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        // This one and the entry.
        if Arc::strong_count(&self.cell) == 2 {
            state.waiting.remove(&self.tag);
        }
    }
}

impl State {
    /// Counts an attempt of an address, unless it has to wait.
    fn count(&mut self, peer: IpAddr, now: Instant) -> Result<(), Refusal> {
        let free = ATTEMPT_EVERY * (FREE_ATTEMPTS - 1);
        let until = self.attempts.get(&peer).map_or(now, |until| *until.max(&now));
        let wait = until.duration_since(now).saturating_sub(free);
        if !wait.is_zero() {
            return Err(try_later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs() + 1));
        }
        if self.attempts.len() >= MAX_ADDRESSES && !self.attempts.contains_key(&peer) {
            self.attempts.retain(|_, until| *until > now);
            if self.attempts.len() >= MAX_ADDRESSES {
                return Err(try_later(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ATTEMPT_EVERY.as_secs(),
                ));
            }
        }
        self.attempts.insert(peer, until + ATTEMPT_EVERY);
        Ok(())
    }

    fn give_back(&mut self, peer: IpAddr) {
        if let Some(until) = self.attempts.get_mut(&peer) {
            *until = until.checked_sub(ATTEMPT_EVERY).unwrap_or(*until);
        }
    }
}

/// Takes the time that a hash of the highest cost takes beyond one of the lowest of these costs: each cost takes twice the time of
/// the one before, so all of them together take that of the next one, less that of the first.
fn waste(password: &[u8], costs: Range<u32>) {
    for cost in costs {
        let _ = std::hint::black_box(bcrypt::non_truncating_hash(password, cost));
    }
}

/// The parts of `NAME:HASH`, and the cost of the hash.
fn parse(entry: &str) -> Result<(&str, &str, u32), Failure> {
    let advice = "fullbore hash-password NAME prints what to type";
    let Some((name, hash)) = entry.split_once(':') else {
        return Err(Failure::usage(format!(
            "a user is NAME:HASH, and one has no colon; {advice}"
        )));
    };
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
        return Err(Failure::usage(format!(
            "a user is NAME:HASH, and one has no name, or one that is too long or has control characters; {advice}"
        )));
    }
    let of_base64 = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
    };
    let parts: Vec<&str> = hash.split('$').collect();
    let cost = match parts.as_slice() {
        ["", "2a" | "2b" | "2y", cost, rest] if rest.len() == 53 && of_base64(rest) => {
            cost.parse::<u32>().ok()
        }
        _ => None,
    };
    match cost {
        Some(cost @ 4..=MAX_COST) => Ok((name, hash, cost)),
        Some(cost) => Err(Failure::usage(format!(
            "the user {name:?}: the hash has the cost {cost}, and 4 to {MAX_COST} are possible; {advice}"
        ))),
        None => Err(Failure::usage(format!(
            "the user {name:?}: what follows the colon is no bcrypt hash, which begins with $2; {advice} (in single \
             quotes, for the shell replaces $)"
        ))),
    }
}

/// The credentials in an `authorization` field; `None` when there are none that anybody has.
fn credentials(field: &HeaderValue) -> Option<Credentials> {
    let (scheme, rest) = field.as_bytes().split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || rest.len() > 2 * (LONGEST_NAME + LONGEST_PASSWORD) {
        return None;
    }
    let decoded = BASE64.decode(rest.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
    // bcrypt takes no longer password whole, and ends it at a zero byte.
    if password.len() > LONGEST_PASSWORD || decoded.contains(&0) {
        return None;
    }
    Some(Credentials {
        name: String::from_utf8(name.to_vec()).ok()?,
        password: password.to_vec(),
    })
}

fn unauthorized() -> Response<Bytes> {
    let mut response = text(StatusCode::UNAUTHORIZED, "a name and a password are required\n");
    let challenge = HeaderValue::from_static("Basic realm=\"fullbore\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

fn try_later(status: StatusCode, seconds: u64) -> Refusal {
    let sentence = match status {
        StatusCode::TOO_MANY_REQUESTS => "too many wrong passwords came from this address\n",
        _ => "too many passwords wait to be verified\n",
    };
    let mut response = text(status, sentence);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least cost.
    const COST: u32 = 4;

    fn gate(users: &[(&str, &str)]) -> Gate {
        let entries = users.iter().map(|(name, password)| {
            let hash = bcrypt::non_truncating_hash(password, COST).unwrap();
            format!("{name}:{hash}")
        });
        Gate::new(&entries.collect::<Vec<_>>(), &[]).unwrap()
    }

    fn fields(name: &str, password: &str) -> HeaderMap {
        let coded = BASE64.encode(format!("{name}:{password}"));
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, format!("Basic {coded}").parse().unwrap());
        fields
    }

    fn peer(text: &str) -> Option<PeerAddr> {
        Some(PeerAddr(text.parse().unwrap()))
    }

    /// The status that a request gets, 200 for one that is admitted.
    async fn status(gate: &Gate, fields: &HeaderMap, from: &str) -> u16 {
        match gate.look(&Method::GET, fields) {
            Verdict::Open | Verdict::Admitted(_) => 200,
            Verdict::Refused(response) => response.status().as_u16(),
            Verdict::Unknown(credentials) => match gate.verify(credentials, peer(from)).await {
                Ok(_) => 200,
                Err(response) => response.status().as_u16(),
            },
        }
    }

    #[tokio::test]
    async fn a_right_password_is_verified_once_and_known_from_then_on() {
        let gate = gate(&[("ann", "secret"), ("bob", "other:one")]);
        let right = fields("ann", "secret");
        assert!(matches!(gate.look(&Method::GET, &right), Verdict::Unknown(_)));
        assert_eq!(status(&gate, &right, "192.0.2.1:1").await, 200);
        assert!(matches!(gate.look(&Method::GET, &right), Verdict::Admitted(name) if &*name == "ann"));
        assert_eq!(
            status(&gate, &fields("bob", "other:one"), "192.0.2.1:1").await,
            200
        );
        assert!(gate.lock().waiting.is_empty());
        for (name, password) in [
            ("ann", "other:one"),
            ("ann", ""),
            ("", "secret"),
            ("eve", "secret"),
        ] {
            assert_eq!(
                status(&gate, &fields(name, password), "192.0.2.2:1").await,
                401,
                "{name}"
            );
        }
        // The password of another user is none of this one's.
        assert!(matches!(gate.look(&Method::GET, &right), Verdict::Admitted(_)));
    }

    #[test]
    fn what_is_no_credential_is_refused_without_a_hash() {
        let gate = gate(&[("ann", "secret")]);
        let long = "a".repeat(LONGEST_PASSWORD + 1);
        let coded = |text: &str| format!("Basic {}", BASE64.encode(text));
        for field in [
            "",
            "Basic",
            "Basic ",
            "Basic !",
            "Bearer YW5uOnNlY3JldA==",
            &coded("ann"),
            &coded("ann:se\0cret"),
            &coded(&format!("ann:{long}")),
            &format!("Basic {}", "A".repeat(4_000)),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(AUTHORIZATION, field.parse().unwrap());
            let Verdict::Refused(response) = gate.look(&Method::GET, &fields) else {
                panic!("{field}");
            };
            assert_eq!(response.status(), 401);
            assert!(
                response.headers()[WWW_AUTHENTICATE]
                    .to_str()
                    .unwrap()
                    .starts_with("Basic realm=")
            );
        }
        assert!(matches!(
            gate.look(&Method::GET, &HeaderMap::new()),
            Verdict::Refused(_)
        ));
    }

    #[tokio::test]
    async fn a_wrong_password_takes_the_time_of_the_highest_cost_whosever_it_is() {
        let entry = |(name, cost): (&str, u32)| {
            format!("{name}:{}", bcrypt::non_truncating_hash("secret", cost).unwrap())
        };
        let entries = [("ann", 4), ("bob", 6), ("cy", 5)].map(entry);
        let gate = Gate::new(&entries, &[]).unwrap();
        for (name, cost) in [("ann", 4), ("bob", 6), ("cy", 5), ("eve", 6), ("", 6)] {
            let (hash, rest) = gate.work(name);
            assert!(hash.starts_with(&format!("$2b$0{cost}$")), "{name}: {hash}");
            assert_eq!(rest.start, cost);
            // Each cost doubles the time.
            let time: u32 = (1 << cost) + rest.map(|cost| 1 << cost).sum::<u32>();
            assert_eq!(time, 1 << 6, "{name}");
            assert_eq!(status(&gate, &fields(name, "wrong"), "192.0.2.1:1").await, 401);
        }
        for name in ["ann", "bob", "cy"] {
            assert_eq!(status(&gate, &fields(name, "secret"), "192.0.2.2:1").await, 200);
        }
    }

    #[tokio::test]
    async fn an_address_with_wrong_passwords_has_to_wait_and_others_have_not() {
        let gate = gate(&[("ann", "secret")]);
        for number in 0..FREE_ATTEMPTS {
            let wrong = fields("ann", &number.to_string());
            assert_eq!(status(&gate, &wrong, "192.0.2.1:1").await, 401);
        }
        // On a busy machine one of them may have returned.
        while status(&gate, &fields("ann", "wrong"), "192.0.2.1:1").await == 401 {}
        let right = fields("ann", "secret");
        let Verdict::Unknown(credentials) = gate.look(&Method::GET, &right) else {
            panic!("it was not verified");
        };
        let response = gate.verify(credentials, peer("192.0.2.1:9")).await.unwrap_err();
        assert_eq!(response.status(), 429);
        let seconds: u64 = response.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=6).contains(&seconds), "{seconds}");
        assert_eq!(status(&gate, &right, "192.0.2.2:1").await, 200);
        // What is known needs no attempt.
        assert_eq!(status(&gate, &right, "192.0.2.1:1").await, 200);
    }

    #[test]
    fn attempts_return_with_time_and_those_of_right_passwords_at_once() {
        let mut state = State::default();
        let (peer, start) = (IpAddr::V4(Ipv4Addr::LOCALHOST), Instant::now());
        for _ in 0..FREE_ATTEMPTS {
            assert!(state.count(peer, start).is_ok());
        }
        assert!(state.count(peer, start).is_err());
        assert!(state.count(peer, start + ATTEMPT_EVERY).is_ok());
        assert!(state.count(peer, start + ATTEMPT_EVERY).is_err());
        state.give_back(peer);
        assert!(state.count(peer, start + ATTEMPT_EVERY).is_ok());
        let later = start + ATTEMPT_EVERY * 100;
        for _ in 0..FREE_ATTEMPTS {
            assert!(state.count(peer, later).is_ok());
        }
        assert!(state.count(peer, later).is_err());
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let mut state = State::default();
        let now = Instant::now();
        for number in 0..MAX_ADDRESSES {
            let peer = IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap()));
            assert!(state.count(peer, now).is_ok());
        }
        let one_more = IpAddr::V4(Ipv4Addr::BROADCAST);
        assert_eq!(state.count(one_more, now).unwrap_err().status(), 503);
        assert!(state.count(one_more, now + ATTEMPT_EVERY).is_ok());
        assert_eq!(state.attempts.len(), 1);
    }

    #[tokio::test]
    async fn many_requests_with_the_same_credentials_cost_one_hash() {
        let gate = Arc::new(gate(&[("ann", "secret")]));
        let mut tasks = tokio::task::JoinSet::new();
        // More than the address may send of wrong ones.
        for _ in 0..10 * FREE_ATTEMPTS {
            let gate = Arc::clone(&gate);
            tasks.spawn(async move { status(&gate, &fields("ann", "secret"), "192.0.2.1:1").await });
        }
        while let Some(status) = tasks.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        assert!(gate.lock().waiting.is_empty());
    }

    #[test]
    fn an_entry_that_is_no_name_and_hash_is_refused_without_showing_the_secret() {
        let hash = bcrypt::hash("x", COST).unwrap();
        let costly = hash.replacen("$04$", "$20$", 1);
        for (entries, part) in [
            (vec!["topsecret".to_owned()], "has no colon"),
            (vec![":topsecret".to_owned()], "has no name"),
            (vec!["ann:topsecret".to_owned()], "no bcrypt hash"),
            (vec![format!("ann:{}", &hash[..50])], "no bcrypt hash"),
            (vec![format!("ann:{costly}")], "the cost 20"),
            (vec![format!("ann:{hash}"), format!("ann:{hash}")], "twice"),
        ] {
            let refused = Gate::new(&entries, &[]).err().unwrap();
            assert_eq!(refused.exit, Exit::Usage);
            assert!(refused.message.contains(part), "{refused}");
            assert!(
                !refused.message.contains("topsecret") && !refused.message.contains(&hash[20..]),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_name_has_256_bytes_at_most() {
        let hash = bcrypt::hash("x", COST).unwrap();
        for (bytes, allowed) in [(256, true), (257, false)] {
            let entry = format!("{}:{hash}", "n".repeat(bytes));
            assert_eq!(Gate::new(&[entry], &[]).is_ok(), allowed, "{bytes}");
        }
    }

    #[tokio::test]
    async fn the_longest_name_may_have_the_longest_password() {
        let (name, password) = ("n".repeat(LONGEST_NAME), "p".repeat(LONGEST_PASSWORD));
        let gate = gate(&[(&name, &password)]);
        let right = fields(&name, &password);
        assert_eq!(status(&gate, &right, "192.0.2.1:1").await, 200);
        let longer = fields(&name, &(password + "p"));
        assert!(matches!(gate.look(&Method::GET, &longer), Verdict::Refused(_)));
    }

    #[test]
    fn a_file_of_users_may_begin_with_a_mark_and_its_errors_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let hash = bcrypt::hash("x", COST).unwrap();
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_users(&path).map_err(|failure| failure.message)
        };
        let text = format!("\u{feff}ann:{hash}\r\n\n # note\n  käthe:{hash}");
        assert_eq!(
            read(&text).unwrap(),
            [format!("ann:{hash}"), format!("käthe:{hash}")]
        );
        assert_eq!(read("\u{feff}# none\n").unwrap(), [""; 0]);
        for (text, part) in [
            (format!("ann:{hash}\n\nbob"), "line 3: a user is NAME:HASH"),
            (format!("ann:{hash} # note"), "line 1: the user \"ann\""),
            ("x".repeat(5 << 20), "longer than 4 MiB"),
        ] {
            let message = read(&text).unwrap_err();
            assert!(message.contains(part) && !message.contains(&hash), "{message}");
        }
    }
}
