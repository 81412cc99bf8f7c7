//! Network namespaces without a name, which a descriptor holds, and the settings of TCP inside. A thread enters one for the
//! time of a closure; processes that it starts there stay there.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{FlockOperation, flock};

const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";
/// Where TCP is set, in the namespace of the thread that writes there.
const SETTINGS: &str = "/proc/sys/net/ipv4";
const CONGESTION_CONTROL: &str = "tcp_congestion_control";
const ALLOWED: &str = "tcp_allowed_congestion_control";

/// A network namespace. It ends with this value and the last process inside.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// A new one, in which nothing is set up.
    pub(crate) fn new() -> io::Result<Self> {
        // A thread cannot leave a namespace that it has made for one whose descriptor it has not; a new thread need not.
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::current()
        });
        made.join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread of a new namespace failed")))
    }

    fn open(path: &str) -> io::Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    /// That of this thread.
    pub(crate) fn current() -> io::Result<Self> {
        Self::open(OF_THIS_THREAD)
    }

    fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// The descriptor that holds it.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Does something inside: this thread, the sockets that it opens and the processes that it starts.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let before = Before(Self::current()?);
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        let done = work();
        drop(before);
        Ok(done)
    }
}

/// Brings the thread back, after a panic too.
struct Before(Namespace);

impl Drop for Before {
    fn drop(&mut self) {
        if let Err(why) = setns(&self.0.0, CloneFlags::CLONE_NEWNET) {
            // What the thread does from now on would happen on another network than its caller thinks.
            eprintln!("a thread cannot return to its network namespace: {why}");
            std::process::abort();
        }
    }
}

/// Writes a setting of TCP in the namespace of this thread.
pub(crate) fn set(name: &str, value: &str) -> io::Result<()> {
    let file = Path::new(SETTINGS).join(name);
    fs::write(&file, value)
        .map_err(|error| io::Error::new(error.kind(), format!("{} = {value}: {error}", file.display())))
}

/// Sets the congestion control of this namespace.
///
/// Only those that the host allows to every user can be set in a namespace. Another is allowed for the moment that this
/// takes, under a lock, since another process may do the same. `caller` is the namespace that the caller came from.
pub(crate) fn set_congestion_control(inside: &Namespace, caller: &Namespace, name: &str) -> io::Result<()> {
    match inside.enter(|| set(CONGESTION_CONTROL, name))? {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        done => return done,
    }
    let _lock = lock()?;
    let allowed = Path::new(SETTINGS).join(ALLOWED);
    let before = fs::read_to_string(&allowed)?;
    let before = before.trim();
    let host = allow(caller, &format!("{before} {name}"))?;
    let done = inside.enter(|| set(CONGESTION_CONTROL, name));
    host.enter(|| set(ALLOWED, before))??;
    done?
}

/// Held while the host's setting is not as it was.
fn lock() -> io::Result<File> {
    let lock = File::create(std::env::temp_dir().join("fullbore-packets.lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Writes which congestion controls every user may have, where the host lets this process do so: only in the first
/// namespace. The caller, its parent or the first process are there.
fn allow(caller: &Namespace, names: &str) -> io::Result<Namespace> {
    let write = |host: Namespace| host.enter(|| set(ALLOWED, names))?.map(|()| host);
    let denied = match write(caller.try_clone()?) {
        Err(error) => error,
        host => return host,
    };
    let parent = std::os::unix::process::parent_id();
    let others = [format!("/proc/{parent}/ns/net"), "/proc/1/ns/net".to_owned()];
    let host = others
        .iter()
        .find_map(|file| Namespace::open(file).and_then(write).ok());
    host.ok_or(denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_it_was_after_a_panic_in_a_namespace() {
        let Ok(namespace) = Namespace::new() else {
            return eprintln!("skipped: no network namespace can be made here");
        };
        let here = || fs::read_link(OF_THIS_THREAD).expect("a thread has a namespace");
        let before = here();
        let inside = namespace.enter(here).expect("it can be entered");
        assert_ne!(inside, before);
        let panicked = std::panic::catch_unwind(|| namespace.enter(|| panic!("inside")));
        assert!(panicked.is_err());
        assert_eq!(here(), before);
    }

    #[test]
    fn the_host_allows_what_it_did_after_another_congestion_control_was_set_in_a_namespace() {
        let Ok(namespace) = Namespace::new() else {
            return eprintln!("skipped: no network namespace can be made here");
        };
        let of_the_host = || {
            let _lock = lock().expect("the lock is free in a moment");
            fs::read_to_string(Path::new(SETTINGS).join(ALLOWED)).ok()
        };
        let before = of_the_host();
        let caller = Namespace::current().expect("a thread has a namespace");
        if let Err(why) = set_congestion_control(&namespace, &caller, "cubic") {
            return eprintln!("skipped: {why}");
        }
        let inside = namespace.enter(|| fs::read_to_string(Path::new(SETTINGS).join(CONGESTION_CONTROL)));
        assert_eq!(
            inside.expect("it can be entered").ok().as_deref(),
            Some("cubic\n")
        );
        assert_eq!(of_the_host(), before);
    }
}
