//! How `fullbore serve` ends: what a signal, the time that it allows, and a sudden death make of an upload under way.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

use fullbore_testing::peer::BlockingPeer;

use crate::support::frames::{self, END_STREAM};
use crate::support::{Ended, PATIENCE, Serving, Signal, TestResult, names, signal, until};

/// A server that takes uploads into the folder it serves, and an upload of which `first` has come.
struct Upload {
    serving: Serving,
    peer: BlockingPeer<TcpStream>,
}

impl Upload {
    fn begin(root: &Path, args: &[&str], first: &[u8]) -> TestResult<Self> {
        let serving = Serving::start(root, &[&["--plaintext", "--uploads", "."], args].concat())?;
        let address = serving.origin.strip_prefix("http://").ok_or("no address")?;
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut peer = BlockingPeer::client(stream)?;
        peer.send(&[frames::put(1, "/up"), frames::data(1, 0, first)].concat())?;
        let mut upload = Self { serving, peer };
        upload.is_taken_in()?;
        Ok(upload)
    }

    /// Waits for the answer to a PING, before which all that was said before has been read.
    fn is_taken_in(&mut self) -> TestResult {
        self.peer.send(&frames::ping(0, b"12345678"))?;
        self.hear(frames::PING)
    }

    /// Reads to the next frame of this type, and answers each PING on the way.
    fn hear(&mut self, kind: u8) -> TestResult {
        self.peer.expect(kind)?;
        Ok(())
    }

    /// How the server ended.
    fn ended(&mut self) -> TestResult<Ended> {
        let code = self.serving.child.wait()?.code();
        let mut stderr = String::new();
        if let Some(mut said) = self.serving.child.stderr.take() {
            said.read_to_string(&mut stderr)?;
        }
        Ok(Ended {
            code,
            stdout: Vec::new(),
            stderr,
        })
    }
}

#[test]
fn an_upload_that_does_not_end_within_the_drain_timeout_is_dropped() -> TestResult {
    for threads in [&[][..], &["--threads", "2"]] {
        let root = tempfile::tempdir()?;
        let args = [&["--drain-timeout", "100ms"], threads].concat();
        let mut upload = Upload::begin(root.path(), &args, b"half")?;
        signal(&upload.serving.child, Signal::Terminate)?;
        let ended = upload.ended()?;
        assert_eq!(ended.code, Some(13), "{ended:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("--drain-timeout"), "{ended:?}");
        assert_eq!(names(root.path())?, Vec::<String>::new());
    }
    Ok(())
}

#[test]
fn an_upload_may_end_within_the_drain_timeout_and_0_is_none() -> TestResult {
    for timeout in ["1000s", "0"] {
        let root = tempfile::tempdir()?;
        let mut upload = Upload::begin(root.path(), &["--drain-timeout", timeout], b"half")?;
        signal(&upload.serving.child, Signal::Terminate)?;
        upload.hear(frames::GOAWAY)?;
        upload.is_taken_in()?;
        upload.peer.send(&frames::data(1, END_STREAM, b" and half"))?;
        let ended = upload.ended()?;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(names(root.path())?, ["up"]);
        assert_eq!(std::fs::read(root.path().join("up"))?, b"half and half");
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_is_killed_leaves_nothing_of_an_upload() -> TestResult {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    for old in [None, Some("old")] {
        let root = tempfile::tempdir()?;
        if let Some(old) = old {
            std::fs::write(root.path().join("up"), old)?;
        }
        let before = names(root.path())?;
        if openat(CWD, root.path(), OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR).is_err() {
            eprintln!("skipped: {} knows no files without names", root.path().display());
            return Ok(());
        }
        let mut upload = Upload::begin(root.path(), &["--overwrite"], &[b'x'; 10_000])?;
        let descriptors = format!("/proc/{}/fd", upload.serving.child.id());
        // The first upload of a server has another unnamed file, which is empty: it tries whether it can give one a name.
        let is_written = || -> TestResult<bool> {
            for descriptor in std::fs::read_dir(&descriptors)? {
                let descriptor = descriptor?.path();
                let path = std::fs::read_link(&descriptor).unwrap_or_default();
                if path.starts_with(root.path()) && path.to_string_lossy().ends_with(" (deleted)") {
                    return Ok(std::fs::metadata(descriptor).is_ok_and(|file| file.len() > 0));
                }
            }
            Ok(false)
        };
        until("the upload begins", is_written)?;
        assert_eq!(names(root.path())?, before);
        signal(&upload.serving.child, Signal::Kill)?;
        upload.ended()?;
        assert_eq!(names(root.path())?, before);
        if let Some(old) = old {
            assert_eq!(std::fs::read_to_string(root.path().join("up"))?, old);
        }
    }
    Ok(())
}
