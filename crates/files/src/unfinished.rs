//! The unfinished uploads of a folder that later requests may continue.
//!
//! They are in a hidden folder below the one for uploads, which is never served: for each a part, with the bytes that were received,
//! and a record in JSON. So they outlive the process. A record stays when its upload is complete, for clients that did not
//! receive the response. Called by `resumable`. The methods of [`Unfinished`] block, but for [`Unfinished::known`].

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cap_std::fs::{Dir, DirBuilder, OpenOptions};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::store::{Kept, PendingFile, is_one_folder};

/// The folder, below that for uploads.
const FOLDER: &str = ".fullbore-uploads";

/// How long an upload is kept after the last request that continued it: a night and a day.
const IDLE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an upload without a byte is kept: long enough for a client that asks for a resource first and then reads the file. Clients are
/// told the age of others: they keep it with the reference, and then send content for hours.
const EMPTY_AGE: Duration = Duration::from_secs(10 * 60);

/// How long an upload is kept in all, so that nobody keeps one for good with a byte a day.
const LONGEST_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Unfinished uploads in all, and of one address. Each takes two inodes. Further ones are stored as before, and cannot be resumed.
const MOST: usize = 1_024;
const MOST_OF_ONE: usize = 64;

/// When there are too many, those with fewer bytes give way, unless a request to them is in progress: to send a MiB again costs a client
/// little, and to send it so often costs much. Otherwise 16 addresses could fill the table with empty uploads for a day.
const LEAST_KEPT: u64 = 1 << 20;

/// The bytes of the unfinished uploads of one address, in largest uploads.
const LARGEST_OF_ONE: u64 = 4;

/// Records of complete uploads. The oldest goes when there are more.
const MOST_COMPLETE: usize = 1_024;

/// The longest record. Its names and preconditions are those of a request.
const MOST_RECORD_BYTES: usize = 64 << 10;

/// How often expired uploads are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How often the records of other processes are read: one that is being replaced may begin uploads after the first time.
const LOAD_EVERY: Duration = Duration::from_secs(60 * 60);

/// Whether this is the name of the folder for unfinished uploads, which no request may read. File systems may not regard case.
pub(crate) fn is_private(name: &str) -> bool {
    name.eq_ignore_ascii_case(FOLDER)
}

/// Names an upload. Who has it may continue the upload, so it cannot be guessed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Token(String);

impl Token {
    fn new() -> io::Result<Token> {
        let mut octets = [0; 16];
        getrandom::fill(&mut octets).map_err(io::Error::other)?;
        Ok(Token(format!("{:032x}", u128::from_be_bytes(octets))))
    }

    /// `None` for what is no token.
    pub(crate) fn parse(text: &str) -> Option<Token> {
        let is_digit = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Token(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn part(&self) -> String {
        format!("{}.part", self.0)
    }

    fn record(&self) -> String {
        format!("{}.json", self.0)
    }
}

/// What is known of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The names from the folder for uploads to the file.
    pub(crate) names: Vec<String>,
    pub(crate) method: String,
    /// The fields of the first request with its preconditions.
    pub(crate) preconditions: Vec<(String, String)>,
    /// The second of the file's modification.
    pub(crate) modified: Option<i64>,
    /// The user who began it.
    pub(crate) owner: Option<String>,
    pub(crate) address: Option<IpAddr>,
    /// When it began, in seconds since 1970.
    created: u64,
    /// Its length, once that is known.
    pub(crate) length: Option<u64>,
    /// Its length, once it is complete.
    pub(crate) complete: Option<u64>,
    /// The inode of its part, which the file keeps: whether a server that was killed had given it its name.
    inode: Option<u64>,
}

impl Record {
    /// The record of an upload that begins now.
    pub(crate) fn new(names: Vec<String>, method: String, length: Option<u64>) -> Record {
        Record {
            names,
            method,
            preconditions: Vec::new(),
            modified: None,
            owner: None,
            address: None,
            created: now(),
            length,
            complete: None,
            inode: None,
        }
    }
}

/// One upload.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    /// The user who began it.
    owner: Option<String>,
    names: Vec<String>,
    address: Option<IpAddr>,
    created: u64,
    /// When a request last continued it, in seconds since 1970.
    last: AtomicU64,
    /// How many bytes it is known to have.
    received: AtomicU64,
    /// How many bytes it may come to have.
    claimed: u64,
    is_complete: AtomicBool,
    held: Arc<tokio::sync::Mutex<Held>>,
    /// Counts the requests. Each ends the one before it.
    turns: watch::Sender<u64>,
}

/// What one request at a time may change.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) record: Record,
    /// It was removed.
    pub(crate) is_gone: bool,
}

/// The turn of a request.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) held: OwnedMutexGuard<Held>,
    at: u64,
    turns: watch::Receiver<u64>,
}

impl Entry {
    fn new(token: Token, record: Record, (last, received): (u64, u64), largest: u64) -> Arc<Entry> {
        Arc::new(Entry {
            token,
            owner: record.owner.clone(),
            names: record.names.clone(),
            address: record.address,
            created: record.created,
            last: AtomicU64::new(last),
            received: AtomicU64::new(received),
            claimed: record.length.unwrap_or(largest),
            is_complete: AtomicBool::new(record.complete.is_some()),
            held: Arc::new(tokio::sync::Mutex::new(Held {
                record,
                is_gone: false,
            })),
            turns: watch::Sender::new(0),
        })
    }

    /// Ends the request that has the turn, and waits until it has written what it received.
    pub(crate) async fn turn(&self) -> Turn {
        let mut at = 0;
        self.turns.send_modify(|turns| {
            *turns += 1;
            at = *turns;
        });
        let turns = self.turns.subscribe();
        let held = Arc::clone(&self.held).lock_owned().await;
        Turn { held, at, turns }
    }

    /// A request has continued it.
    pub(crate) fn touch(&self) {
        self.last.store(now(), Ordering::Relaxed);
    }

    /// It has at least so many bytes.
    pub(crate) fn has_received(&self, bytes: u64) {
        self.received.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Whether this is an upload of this user to this file.
    pub(crate) fn is_of(&self, owner: Option<&str>, names: &[String]) -> bool {
        self.owner.as_deref() == owner && self.names == names
    }

    /// How long it will be kept once it has a byte; `None` if its time is over.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let idle = self
            .last
            .load(Ordering::Relaxed)
            .saturating_add(IDLE_AGE.as_secs());
        let end = idle.min(self.created.saturating_add(LONGEST_AGE.as_secs()));
        let left = end.checked_sub(now()).filter(|left| *left > 0);
        left.map(Duration::from_secs)
    }

    /// Whether a request has its turn.
    #[cfg(test)]
    pub(crate) fn is_in_progress(&self) -> bool {
        self.held.try_lock().is_err()
    }

    /// Whether its time is over.
    fn is_expired(&self) -> bool {
        let is_empty = self.received.load(Ordering::Relaxed) == 0 && !self.is_complete();
        let end = self
            .last
            .load(Ordering::Relaxed)
            .saturating_add(EMPTY_AGE.as_secs());
        self.remaining().is_none() || is_empty && end <= now()
    }

    /// Makes the last request to continue it so much older.
    #[cfg(test)]
    pub(crate) fn age(&self, by: Duration) {
        self.last.fetch_sub(by.as_secs(), Ordering::Relaxed);
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// Whether it is removed when there are too many. The order is that in which they are.
    fn gives_way(&self) -> Option<(u64, u64)> {
        let received = self.received.load(Ordering::Relaxed);
        let gives_way = !self.is_complete() && received < LEAST_KEPT && self.held.try_lock().is_ok();
        gives_way.then(|| (received, self.last.load(Ordering::Relaxed)))
    }
}

impl Turn {
    /// Waits until another request continues the upload.
    pub(crate) async fn taken(&mut self) {
        let at = self.at;
        // The sender lives as long as the entry. Without one, nobody takes the turn.
        if self.turns.wait_for(|now| *now != at).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The uploads of a folder.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// The folder for uploads.
    root: Arc<Dir>,
    /// The largest upload, in bytes.
    largest: u64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Token, Arc<Entry>>,
    /// When the records of other processes were read, in seconds since 1970.
    loaded: Option<u64>,
    /// When expired uploads were looked for, in seconds since 1970.
    swept: u64,
    /// The folder, while parts in it are being received.
    open: Weak<Dir>,
}

impl Unfinished {
    pub(crate) fn new(root: Arc<Dir>, largest: u64) -> Arc<Unfinished> {
        Arc::new(Unfinished {
            root,
            largest,
            table: Mutex::default(),
        })
    }

    /// Begins an upload to `name` in the folder `into`. `None`: there are too many, the parts would be on another file system, or
    /// the server may not write to the folder.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn begin(&self, record: Record, into: &Dir, name: &str) -> io::Result<Option<Arc<Entry>>> {
        let mut table = self.table();
        let (folder, is_new) = self.make_folder()?;
        if is_new {
            // Somebody has removed all that were in it.
            table.entries.clear();
        }
        if !is_on_one_file_system(&folder, into) || !is_writable(into) {
            return Ok(None);
        }
        let token = Token::new()?;
        let entry = Entry::new(token.clone(), record, (now(), 0), self.largest);
        // Nobody else has the entry. Its turn is taken until its files are there.
        let Ok(mut held) = entry.held.try_lock() else {
            return Ok(None);
        };
        self.load(&mut table, &folder);
        self.sweep(&mut table, &folder);
        if !self.has_room(&table, &entry) {
            let of_another = |old: &Entry| old.address != entry.address;
            table
                .entries
                .retain(|_, old| of_another(old) || !is_changed_elsewhere(&folder, old));
            if !self.make_room(&mut table, &folder, &entry) {
                return Ok(None);
            }
        }
        table.entries.insert(token.clone(), Arc::clone(&entry));
        drop(table);
        let created = PendingFile::create_kept(&folder, &token.part(), into, name).and_then(|()| {
            held.record.inode = inode(&folder.symlink_metadata(token.part())?);
            write_record(&folder, &token, &held.record)
        });
        drop(held);
        if let Err(error) = created {
            // A part without a record would stay until a server starts a week later.
            remove_files(&folder, &token);
            self.forget(&token);
            return Err(error);
        }
        Ok(Some(entry))
    }

    /// The upload, if it is known without a look at the disk. Does not block.
    pub(crate) fn known(&self, token: &Token) -> Option<Arc<Entry>> {
        self.table.try_lock().ok()?.entries.get(token).cloned()
    }

    /// Finds an upload. The caller may have the turn of `held`.
    pub(crate) fn find(&self, token: &Token, held: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        let folder = self.root.open_dir(FOLDER).ok()?;
        let found = {
            let mut table = self.table();
            self.load(&mut table, &folder);
            self.sweep(&mut table, &folder);
            let found = table.entries.get(token);
            let is_changed = |entry: &Arc<Entry>| match held {
                Some(held) if Arc::ptr_eq(held, entry) => is_part_gone(&folder, entry),
                _ => is_changed_elsewhere(&folder, entry),
            };
            if found.is_some_and(is_changed) {
                table.entries.remove(token);
            }
            table.entries.get(token).cloned()
        };
        let entry = match found {
            Some(entry) => entry,
            // Of another process that serves the same folder.
            None => {
                let entry = self.read(&folder, token)?;
                let mut table = self.table();
                if !self.has_room(&table, &entry) {
                    return None;
                }
                Arc::clone(table.entries.entry(token.clone()).or_insert(entry))
            }
        };
        if is_over(&folder, &entry) {
            remove_files(&folder, token);
            self.forget(token);
            return None;
        }
        Some(entry)
    }

    /// The length of an upload's part, all of which is on the disk afterwards: a client need not keep what was received.
    ///
    /// # Errors
    /// The error of the system. `NotFound`: somebody has removed it.
    pub(crate) fn offset(&self, token: &Token) -> io::Result<u64> {
        let folder = self.root.open_dir(FOLDER)?;
        let part = folder.open_with(token.part(), OpenOptions::new().append(true))?;
        part.sync_data()?;
        Ok(part.metadata()?.len())
    }

    /// The part, to append to at its end.
    ///
    /// # Errors
    /// The error of the system. `WouldBlock`: another process writes it.
    pub(crate) fn part(&self, token: &Token) -> io::Result<Kept> {
        let directory = self.shared_folder()?;
        let name = token.part();
        if PendingFile::is_locked(&directory, &name)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let offset = directory.metadata(&name)?.len();
        Ok(Kept {
            directory,
            name,
            offset,
        })
    }

    /// The open folder of all parts that are being received. A request that has received nothing has no descriptor of its own.
    fn shared_folder(&self) -> io::Result<Arc<Dir>> {
        let now = self.root.open_dir(FOLDER)?;
        let mut table = self.table();
        match table.open.upgrade() {
            Some(open) if is_one_folder(&open, &now) => Ok(open),
            _ => {
                let now = Arc::new(now);
                table.open = Arc::downgrade(&now);
                Ok(now)
            }
        }
    }

    /// Writes the record anew.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn save(&self, token: &Token, record: &Record) -> io::Result<()> {
        write_record(&self.root.open_dir(FOLDER)?, token, record)
    }

    /// The upload is complete, and its part has another name. Its record stays for clients without a response.
    pub(crate) fn complete(&self, entry: &Entry, record: &Record) {
        entry.is_complete.store(true, Ordering::Relaxed);
        entry.touch();
        // Without the record, a client is told of no such upload.
        if self.save(&entry.token, record).is_err() {
            self.remove(entry);
            return;
        }
        let oldest = {
            let table = self.table();
            let complete = || table.entries.values().filter(|entry| entry.is_complete());
            let oldest = complete().min_by_key(|entry| entry.last.load(Ordering::Relaxed));
            oldest
                .filter(|_| complete().count() > MOST_COMPLETE)
                .map(Arc::clone)
        };
        if let Some(oldest) = oldest {
            self.remove(&oldest);
        }
    }

    /// Removes an upload.
    pub(crate) fn remove(&self, entry: &Entry) {
        if let Ok(folder) = self.root.open_dir(FOLDER) {
            remove_files(&folder, &entry.token);
        }
        self.forget(&entry.token);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it holds the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next request read the records of other processes and look for expired uploads.
    #[cfg(test)]
    pub(crate) fn hurry(&self) {
        let mut table = self.table();
        (table.loaded, table.swept) = (None, 0);
    }

    fn forget(&self, token: &Token) {
        self.table().entries.remove(token);
    }

    /// The folder, and whether it was made now.
    fn make_folder(&self) -> io::Result<(Dir, bool)> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let is_new = match self.root.create_dir_with(FOLDER, &builder) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        Ok((self.root.open_dir(FOLDER)?, is_new))
    }

    fn has_room(&self, table: &Table, new: &Entry) -> bool {
        if new.is_complete() {
            return table.entries.len() < MOST + MOST_COMPLETE;
        }
        let unfinished = table.entries.values().filter(|entry| !entry.is_complete());
        unfinished.count() < MOST && self.has_room_of_address(table, new, |_| true)
    }

    /// Whether its address may have another upload beside those of `counted`.
    fn has_room_of_address(&self, table: &Table, new: &Entry, counted: impl Fn(&Entry) -> bool) -> bool {
        let entries = table.entries.values();
        let (mut count, mut claimed) = (0, new.claimed);
        for entry in
            entries.filter(|entry| !entry.is_complete() && entry.address == new.address && counted(entry))
        {
            count += 1;
            claimed = claimed.saturating_add(entry.claimed);
        }
        let most = self.largest.saturating_mul(LARGEST_OF_ONE);
        new.address.is_none() || count < MOST_OF_ONE && claimed <= most
    }

    /// Removes uploads with few bytes until there is room for a new one: those of its own address if that has too many. Returns whether
    /// there is.
    fn make_room(&self, table: &mut Table, folder: &Dir, new: &Entry) -> bool {
        if !self.has_room_of_address(table, new, |entry| entry.gives_way().is_none()) {
            return false;
        }
        let entries = table.entries.values();
        let mut small: Vec<_> = entries
            .filter_map(|entry| Some((entry.gives_way()?, Arc::clone(entry))))
            .collect();
        small.sort_by_key(|(order, _)| *order);
        for (_, entry) in &small {
            let is_room_of_address = self.has_room_of_address(table, new, |_| true);
            if is_room_of_address && self.has_room(table, new) {
                return true;
            }
            let helps = is_room_of_address || entry.address == new.address;
            if helps && may_give_way(folder, entry) {
                remove_files(folder, &entry.token);
                table.entries.remove(&entry.token);
            }
        }
        self.has_room(table, new)
    }

    /// Reads the records of other processes, now and then.
    fn load(&self, table: &mut Table, folder: &Dir) {
        let now = now();
        if table
            .loaded
            .is_some_and(|at| now.abs_diff(at) < LOAD_EVERY.as_secs())
        {
            return;
        }
        table.loaded = Some(now);
        let Ok(entries) = folder.entries() else { return };
        for entry in entries.flatten().take(4 * (MOST + MOST_COMPLETE)) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let token = name.split('.').next().and_then(Token::parse);
            if token
                .as_ref()
                .is_some_and(|token| table.entries.contains_key(token))
            {
                continue;
            }
            let loaded = token.and_then(|token| {
                let entry = self.read(folder, &token)?;
                Some((token, entry))
            });
            match loaded {
                Some((token, entry)) => {
                    table.entries.insert(token, entry);
                }
                // What was left when a server was killed between two files.
                None if is_older_than_all(folder, name) => {
                    let _ = folder.remove_file(name);
                }
                None => {}
            }
        }
    }

    fn read(&self, folder: &Dir, token: &Token) -> Option<Arc<Entry>> {
        let (mut text, name) = (Vec::new(), token.record());
        let file = folder.open(&name).ok()?;
        file.take(MOST_RECORD_BYTES as u64 + 1)
            .read_to_end(&mut text)
            .ok()?;
        let mut record: Record = serde_json::from_slice(&text).ok()?;
        let mut state = part_state(folder, &token.part());
        if state.is_none() {
            record.complete = record.complete.or_else(|| self.published(&record));
            state = record.complete.and_then(|_| part_state(folder, &name));
        }
        Some(Entry::new(token.clone(), record, state?, self.largest))
    }

    /// The length of the file that was the part of this upload, if it has its name.
    fn published(&self, record: &Record) -> Option<u64> {
        let file = self.root.symlink_metadata(record.names.join("/")).ok()?;
        let is_it = record.inode.is_some()
            && record.inode == inode(&file)
            && record.length.is_none_or(|length| length == file.len());
        is_it.then(|| file.len())
    }

    /// Removes what has expired, now and then.
    fn sweep(&self, table: &mut Table, folder: &Dir) {
        let now = now();
        if now.abs_diff(table.swept) < SWEEP_EVERY.as_secs() {
            return;
        }
        table.swept = now;
        table.entries.retain(|token, entry| {
            let stays = !is_over(folder, entry) || entry.held.try_lock().is_err();
            if !stays {
                remove_files(folder, token);
            }
            stays
        });
    }
}

/// Whether somebody else has completed or removed an upload: another process that serves the same folder, or its operator.
fn is_changed_elsewhere(folder: &Dir, entry: &Entry) -> bool {
    entry.held.try_lock().is_ok() && is_part_gone(folder, entry)
}

/// Whether an upload should have a part and has none.
fn is_part_gone(folder: &Dir, entry: &Entry) -> bool {
    let part = || folder.symlink_metadata(entry.token.part());
    !entry.is_complete() && part().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether no other process has continued an upload or continues it now.
fn may_give_way(folder: &Dir, entry: &Entry) -> bool {
    let part = entry.token.part();
    let Ok(found) = folder.symlink_metadata(&part) else {
        return true;
    };
    entry.has_received(found.len());
    entry.gives_way().is_some() && !PendingFile::is_locked(folder, &part).unwrap_or(false)
}

/// Whether the time of an upload is over, also if another process has continued it.
fn is_over(folder: &Dir, entry: &Entry) -> bool {
    if !entry.is_expired() {
        return false;
    }
    let (written, received) = part_state(folder, &entry.token.part()).unwrap_or_default();
    entry.last.fetch_max(written, Ordering::Relaxed);
    entry.has_received(received);
    entry.is_expired()
}

/// Whether a file was left long ago.
fn is_older_than_all(folder: &Dir, name: &str) -> bool {
    part_state(folder, name).is_some_and(|(at, _)| at.saturating_add(LONGEST_AGE.as_secs()) < now())
}

/// When a file was modified, in seconds since 1970, and its length.
fn part_state(folder: &Dir, name: &str) -> Option<(u64, u64)> {
    let found = folder.symlink_metadata(name).ok()?;
    let modified = found.modified().ok()?.into_std();
    Some((modified.duration_since(UNIX_EPOCH).ok()?.as_secs(), found.len()))
}

fn remove_files(folder: &Dir, token: &Token) {
    // Nothing more can be done if this fails.
    let _ = folder.remove_file(token.part());
    let _ = folder.remove_file(token.record());
}

#[cfg(unix)]
fn inode(metadata: &cap_std::fs::Metadata) -> Option<u64> {
    Some(cap_std::fs::MetadataExt::ino(metadata))
}

#[cfg(not(unix))]
fn inode(_: &cap_std::fs::Metadata) -> Option<u64> {
    None
}

fn write_record(folder: &Dir, token: &Token, record: &Record) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    if text.len() > MOST_RECORD_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (name, new) = (token.record(), format!("{}.new", token.0));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = folder.open_with(Path::new(&new), &options)?;
    let written = file.write_all(&text);
    let renamed = written.and_then(|()| folder.rename(&new, folder, &name));
    renamed.inspect_err(|_| {
        let _ = folder.remove_file(&new);
    })
}

/// Whether a part gets its name in `into` by a rename.
#[cfg(unix)]
fn is_on_one_file_system(folder: &Dir, into: &Dir) -> bool {
    use cap_std::fs::MetadataExt as _;
    match (folder.dir_metadata(), into.dir_metadata()) {
        (Ok(of_folder), Ok(of_into)) => of_folder.dev() == of_into.dev() && is_on_one_mount(folder, into),
        _ => false,
    }
}

/// Whether the server may make files in a folder. Parts are elsewhere: only the last request would find out.
#[cfg(unix)]
fn is_writable(folder: &Dir) -> bool {
    use rustix::fs::{Access, AtFlags, accessat};
    use rustix::io::Errno;
    let access = accessat(folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty());
    !matches!(access, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

#[cfg(not(unix))]
fn is_writable(_: &Dir) -> bool {
    true
}

/// Volumes of containers are often bind mounts of one file system, and no rename crosses them. Before Linux 5.8, nobody tells.
#[cfg(target_os = "linux")]
fn is_on_one_mount(folder: &Dir, into: &Dir) -> bool {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let mount = |of: &Dir| {
        let known = statx(of, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        (known.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(known.stx_mnt_id)
    };
    mount(folder) == mount(into)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_on_one_mount(_: &Dir, _: &Dir) -> bool {
    true
}

#[cfg(not(unix))]
fn is_on_one_file_system(_: &Dir, _: &Dir) -> bool {
    true
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs())
}
