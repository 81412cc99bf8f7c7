//! Unix sockets: their files, which outlive the process that made them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::exit::{Exit, Failure};

/// How many connections may wait to be accepted. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

/// The file of a socket. Dropping it removes the file, unless the name belongs to another one by then.
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a new socket with these permissions. A socket on which nobody listens is replaced.
///
/// # Errors
/// Somebody listens there, the file is no socket, or the system refuses.
pub(super) fn open(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), Failure> {
    let failed = |error: io::Error| cannot_listen(path, &plain(&error));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    let address = SockAddr::unix(path).map_err(failed)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(failed(error));
        }
        remove_stale(path, &address)?;
        socket.bind(&address).map_err(failed)?;
    }
    let file = SocketFile::of(path).map_err(failed)?;
    // Nobody can connect before `listen`, so nobody connects with other permissions.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed)?;
    Ok((socket.into(), file))
}

/// Removes a socket that a process has left behind.
fn remove_stale(path: &Path, address: &SockAddr) -> Result<(), Failure> {
    let found = fs::symlink_metadata(path).map_err(|error| cannot_listen(path, &plain(&error)))?;
    if !found.file_type().is_socket() {
        let text = "the file exists and is not a socket; remove it, or use another path";
        return Err(cannot_listen(path, text));
    }
    // A server that is too busy to accept would block the connection.
    let connected = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(address)
    });
    match connected {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| cannot_listen(path, &plain(&error)))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = "a socket of another user exists; use another path";
            Err(cannot_listen(path, text))
        }
        _ => {
            let text = "another program listens there; stop it, or use another path";
            Err(cannot_listen(path, text))
        }
    }
}

fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "its folder does not exist; create it, or use another path".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "this user may not write to its folder; use another path".to_owned()
        }
        _ => format!("{error}; use another path"),
    }
}

fn cannot_listen(path: &Path, text: &str) -> Failure {
    Failure::new(
        Exit::Listen,
        format!("cannot listen on unix:{}: {text}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_has_its_permissions_and_is_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        let opened = open(&path, 0o620).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        assert!(UnixStream::connect(&path).is_ok());
        drop(opened);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_a_dead_process_left_is_replaced_and_that_of_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        drop(UnixListener::bind(&path).unwrap());
        let first = open(&path, 0o600).unwrap();
        let refused = open(&path, 0o600).err().unwrap();
        assert_eq!(refused.exit, Exit::Listen);
        assert!(refused.message.contains("another program listens"), "{refused}");
        assert!(UnixStream::connect(&path).is_ok());
        // The name of another socket stays.
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "content").unwrap();
        let refused = open(&path, 0o600).err().unwrap();
        assert!(refused.message.contains("is not a socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }
}
