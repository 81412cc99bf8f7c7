//! Downloads into folders that others can write to: nothing of theirs is taken for ours, and nothing of ours is overwritten.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::scripted::{HALF, Server, Then, V1, body, half, holds, rest, whole};
use crate::support::{Ended, TestResult, ended, names, program, run};

/// Breaks off after half of a body, then sends the rest to whoever asks for it, or else the whole.
fn server() -> TestResult<Server> {
    Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => match asked.fields.get("range") {
            Some(_) => {
                let from = asked.from("\"v1\"").unwrap_or_default();
                (rest(asked, V1, &body(1), from), Then::Go)
            }
            None => (whole(asked, V1, &body(1)), Then::Go),
        },
    })
}

/// A download that broke off, and the part that it left.
struct Left {
    server: Server,
    folder: tempfile::TempDir,
    part: PathBuf,
}

impl Left {
    fn new() -> TestResult<Self> {
        let server = server()?;
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
        assert_eq!(names(folder.path())?, ["out.part", "out.part.json"]);
        let part = folder.path().join("out.part");
        Ok(Self { server, folder, part })
    }

    fn again(&self) -> TestResult<Ended> {
        run(self.folder.path(), ["get", "-o", "out", &self.server.url()])
    }

    /// Downloads again, and asserts that the whole was had from the server, which nobody was asked the rest of.
    #[track_caller]
    fn is_not_taken(&self, why: &str) -> TestResult {
        let ended = self.again()?;
        assert_eq!(ended.code, Some(0), "{why}: {ended:?}");
        assert!(
            fs::read(self.folder.path().join("out"))? == body(1),
            "{why}: foreign octets"
        );
        assert_eq!(self.server.asked(), 2, "{why}: the rest was asked for");
        Ok(())
    }
}

/// As many octets as the part has, of somebody else's.
fn foreign() -> Vec<u8> {
    vec![b'x'; HALF]
}

fn allow(path: &Path, mode: u32) -> TestResult {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

#[test]
fn a_part_that_others_can_write_is_not_taken() -> TestResult {
    for mode in [0o666, 0o620, 0o602] {
        let left = Left::new()?;
        fs::write(&left.part, foreign())?;
        allow(&left.part, mode)?;
        left.is_not_taken(&format!("{mode:o}"))?;

        let left = Left::new()?;
        allow(&left.folder.path().join("out.part.json"), mode)?;
        left.is_not_taken(&format!("{mode:o} of the record"))?;
    }
    Ok(())
}

#[test]
fn a_part_of_another_owner_is_not_taken() -> TestResult {
    let left = Left::new()?;
    fs::write(&left.part, foreign())?;
    if std::os::unix::fs::chown(&left.part, Some(65_534), None).is_err() {
        eprintln!("skipped: only root can give files away");
        return Ok(());
    }
    left.is_not_taken("another owner")
}

#[test]
fn a_part_with_two_names_is_not_taken() -> TestResult {
    let left = Left::new()?;
    fs::write(&left.part, foreign())?;
    let other = left.folder.path().join("other");
    fs::hard_link(&left.part, &other)?;
    left.is_not_taken("two names")?;
    assert!(fs::read(&other)? == foreign(), "it was written to");
    Ok(())
}

#[test]
fn a_link_in_the_place_of_a_part_is_not_followed() -> TestResult {
    let left = Left::new()?;
    let other = left.folder.path().join("other");
    fs::write(&other, foreign())?;
    fs::remove_file(&left.part)?;
    std::os::unix::fs::symlink(&other, &left.part)?;
    left.is_not_taken("a link")?;
    assert!(fs::read(&other)? == foreign(), "it was written to");
    Ok(())
}

#[test]
fn a_pipe_in_the_place_of_a_part_holds_nobody_up() -> TestResult {
    let left = Left::new()?;
    fs::remove_file(&left.part)?;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &left.part, rustix::fs::FileType::Fifo, mode, 0)?;
    left.is_not_taken("a pipe")
}

#[test]
fn a_part_is_not_taken_where_others_can_rename_it() -> TestResult {
    let left = Left::new()?;
    allow(left.folder.path(), 0o777)?;
    left.is_not_taken("a folder that all can write to")?;

    let left = Left::new()?;
    allow(left.folder.path(), 0o1777)?;
    left.again()?.succeeded();
    assert_eq!(left.server.asked(), 3, "a sticky folder keeps names");
    assert!(
        fs::read(left.folder.path().join("out"))? == body(1),
        "wrong bytes"
    );
    Ok(())
}

#[test]
fn a_part_is_not_left_where_others_can_rename_it() -> TestResult {
    let server = server()?;
    let folder = tempfile::tempdir()?;
    allow(folder.path(), 0o777)?;
    let broken = run(folder.path(), ["get", "-o", "out", &server.url()])?;
    broken.failed_with(10);
    assert!(!broken.stderr.contains("the next run resumes it"), "{broken:?}");
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn without_a_state_folder_a_part_is_left_and_resumed() -> TestResult {
    let server = server()?;
    let folder = tempfile::tempdir()?;
    let get = || {
        ended(
            program(folder.path())
                .args(["get", "-o", "out", &server.url()])
                .env_remove("XDG_STATE_HOME")
                .env_remove("HOME"),
        )
    };
    let broken = get()?;
    broken.failed_with(10);
    assert!(broken.stderr.contains("the next run resumes it"), "{broken:?}");
    get()?.succeeded();
    assert_eq!(server.asked(), 3, "the rest was asked for");
    holds(folder.path(), &body(1))
}

#[test]
fn nobody_else_writes_a_part_whatever_the_umask_and_a_complete_file_has_what_it_leaves() -> TestResult {
    let server = server()?;
    let folder = tempfile::tempdir()?;
    let get = || {
        let get = format!(
            "umask 002; exec '{}' get -o out {}",
            env!("CARGO_BIN_EXE_fullbore"),
            server.url()
        );
        let mut shell = Command::new("sh");
        let state = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");
        shell
            .current_dir(folder.path())
            .args(["-c", &get])
            .env("XDG_STATE_HOME", state);
        ended(&mut shell)
    };
    get()?.failed_with(10);
    let part = fs::metadata(folder.path().join("out.part"))?;
    assert_eq!(part.mode() & 0o777, 0o644);
    get()?.succeeded();
    assert_eq!(server.asked(), 3);
    assert_eq!(fs::metadata(folder.path().join("out"))?.mode() & 0o777, 0o664);
    Ok(())
}

#[test]
fn a_file_that_replaces_another_has_its_permissions() -> TestResult {
    for mode in [0o600, 0o640, 0o666, 0o444] {
        // The first server breaks off, and a second run resumes the part.
        for server in [
            server()?,
            Server::start(|_, asked| (whole(asked, V1, &body(1)), Then::Go))?,
        ] {
            let folder = tempfile::tempdir()?;
            let out = folder.path().join("out");
            fs::write(&out, "old")?;
            allow(&out, mode)?;
            let mut ended = run(folder.path(), ["get", "--force", "-o", "out", &server.url()])?;
            if ended.code == Some(10) {
                let part = fs::metadata(folder.path().join("out.part"))?.mode() & 0o777;
                assert_eq!(part & !(mode | 0o600), 0, "{part:o} for {mode:o}");
                ended = run(folder.path(), ["get", "--force", "-o", "out", &server.url()])?;
            }
            ended.succeeded();
            assert!(fs::read(&out)? == body(1));
            assert_eq!(fs::metadata(&out)?.mode() & 0o777, mode, "{mode:o}");
        }
    }
    Ok(())
}

#[test]
fn a_link_of_another_user_is_not_followed_by_force() -> TestResult {
    let server = Server::start(|_, asked| (whole(asked, V1, &body(1)), Then::Go))?;
    let folder = tempfile::tempdir()?;
    let mine = folder.path().join("mine");
    fs::write(&mine, "of mine")?;
    std::os::unix::fs::symlink(&mine, folder.path().join("out"))?;
    let get = || run(folder.path(), ["get", "--force", "-o", "out", &server.url()]);
    if std::os::unix::fs::lchown(folder.path().join("out"), Some(65_534), None).is_err() {
        eprintln!("skipped: only root can give links away");
        return Ok(());
    }
    get()?.failed_with(15);
    assert_eq!(fs::read_to_string(&mine)?, "of mine");
    std::os::unix::fs::lchown(
        folder.path().join("out"),
        Some(rustix::process::geteuid().as_raw()),
        None,
    )?;
    get()?.succeeded();
    assert!(fs::read(&mine)? == body(1), "a link of one's own is followed");
    Ok(())
}
