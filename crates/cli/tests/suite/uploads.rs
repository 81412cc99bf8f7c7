//! What uploads may take of a server, over raw sockets: descriptors, sizes and the disk have bounds, and others are
//! served beside one who uploads all that he can.

use std::net::TcpStream;
use std::path::Path;

use fullbore_testing::peer::BlockingPeer;

use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::{PATIENCE, Serving, TestResult, names, run, until};

/// A connection to a server, greeted.
struct Peer(BlockingPeer<TcpStream>);

impl Peer {
    fn connect(serving: &Serving) -> TestResult<Self> {
        let address = serving.origin.strip_prefix("http://").ok_or("no address")?;
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BlockingPeer::client(stream)?))
    }

    fn say(&mut self, octets: &[u8]) -> TestResult {
        Ok(self.0.send(octets)?)
    }

    /// Reads to the next frame of this type; its stream. Each PING on the way is answered.
    fn hear(&mut self, kind: u8) -> TestResult<u32> {
        Ok(self.0.expect(kind)?.stream)
    }

    /// Asks for `/` and waits for the head of the answer.
    fn gets_an_answer(&mut self) -> TestResult {
        // Of the static table: `:scheme: http`, `:method: GET`, `:path: /`, and the name `:authority`.
        let fields = [&[0x86, 0x82, 0x84, 0x01, 9][..], b"localhost"].concat();
        self.say(&frames::frame(
            frames::HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &fields,
        ))?;
        assert_eq!(self.hear(frames::HEADERS)?, 1);
        Ok(())
    }
}

/// How many files below `root` a process has open.
#[cfg(target_os = "linux")]
fn files_open(serving: &Serving, root: &Path) -> TestResult<usize> {
    let mut count = 0;
    for descriptor in std::fs::read_dir(format!("/proc/{}/fd", serving.child.id()))? {
        let path = std::fs::read_link(descriptor?.path()).unwrap_or_default();
        count += usize::from(path.starts_with(root) && path != root);
    }
    Ok(count)
}

#[cfg(target_os = "linux")]
#[test]
fn newcomers_are_answered_while_one_client_uploads_all_that_it_can() -> TestResult {
    for threads in [&[][..], &["--threads", "2"]] {
        let root = tempfile::tempdir()?;
        std::fs::write(root.path().join("index.html"), "here")?;
        let args = [&["--plaintext", "--uploads", "."], threads].concat();
        let serving = Serving::start_within(64, root.path(), &args)?;
        let mut attacker = Peer::connect(&serving)?;
        let mut octets = Vec::new();
        for number in 0..200 {
            let stream = 2 * number + 1;
            octets.extend(frames::put(stream, &format!("/{number}")));
            octets.extend(frames::data(stream, 0, b"x"));
        }
        attacker.say(&octets)?;
        // A quarter of the descriptors are for uploads, half of those for one address; what is beyond is answered.
        let most = 8;
        for _ in 0..200 - most {
            attacker.hear(frames::HEADERS)?;
        }
        until("as many files are open as there may be", || {
            let open = files_open(&serving, root.path())?;
            assert!(open <= most, "{open} files are open");
            Ok(open == most)
        })?;
        let mut newcomers = Vec::new();
        for _ in 0..8 {
            let mut newcomer = Peer::connect(&serving)?;
            newcomer.gets_an_answer()?;
            newcomers.push(newcomer);
        }
        // What they hold is given back with the connection, and uploads go on.
        drop(attacker);
        let put = |newcomer: &mut Peer| -> TestResult {
            newcomer.say(&frames::put(3, "/new"))?;
            newcomer.say(&frames::data(3, END_STREAM, b"new"))?;
            assert_eq!(newcomer.hear(frames::HEADERS)?, 3);
            Ok(())
        };
        until("no file is open", || Ok(files_open(&serving, root.path())? == 0))?;
        put(&mut newcomers[0])?;
        assert_eq!(names(root.path())?, ["index.html", "new"]);
    }
    Ok(())
}

/// Puts a file of so many bytes to a server with these options; the status that it is told.
fn status_of_put(bytes: usize, args: &[&str]) -> TestResult<String> {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let serving = Serving::start(root.path(), &[&["--plaintext", "--uploads", "."], args].concat())?;
    std::fs::write(home.path().join("file"), vec![7; bytes])?;
    let ended = run(home.path(), ["put", "file", &format!("{}/file", serving.origin)])?;
    if ended.code == Some(0) {
        assert_eq!(std::fs::read(root.path().join("file"))?, vec![7; bytes]);
        return Ok("stored".to_owned());
    }
    ended.failed_with(14);
    assert_eq!(names(root.path())?, Vec::<String>::new());
    let status = ended
        .stderr
        .split(|c: char| !c.is_ascii_digit())
        .find(|word| ["413", "507"].contains(word));
    Ok(status.ok_or(format!("no status: {ended:?}"))?.to_owned())
}

#[test]
fn the_size_of_an_upload_has_the_limit_that_is_set() -> TestResult {
    let limit = ["--max-upload", "100kB", "--min-free", "0"];
    assert_eq!(status_of_put(100_000, &limit)?, "stored");
    assert_eq!(status_of_put(100_001, &limit)?, "413");
    Ok(())
}

#[test]
fn the_disk_keeps_what_is_to_stay_free() -> TestResult {
    assert_eq!(status_of_put(1_000, &["--min-free", "1000000TiB"])?, "507");
    Ok(())
}

#[test]
fn more_uploads_at_once_than_there_are_descriptors_for_are_refused_at_the_start() -> TestResult {
    let root = tempfile::tempdir()?;
    let args = ["--plaintext", "--uploads", ".", "--parallel-uploads"];
    assert!(Serving::start_within(64, root.path(), &[&args[..], &["32"]].concat()).is_ok());
    assert!(Serving::start_within(64, root.path(), &[&args[..], &["33"]].concat()).is_err());
    Ok(())
}

#[test]
fn two_uploads_of_one_name_in_two_folders_are_two_files() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "."])?;
    for (path, content) in [("a/x.txt", "one"), ("b/x.txt", "two")] {
        std::fs::write(home.path().join("file"), content)?;
        run(
            home.path(),
            ["put", "file", &format!("{}/{path}", serving.origin)],
        )?
        .succeeded();
    }
    assert_eq!(std::fs::read(root.path().join("a/x.txt"))?, b"one");
    assert_eq!(std::fs::read(root.path().join("b/x.txt"))?, b"two");
    assert_eq!(names(root.path())?, ["a", "b"]);
    Ok(())
}

#[test]
fn an_existing_file_is_replaced_with_overwrite_only() -> TestResult {
    for (args, code, stored) in [(&[][..], 14, "old"), (&["--overwrite"], 0, "new")] {
        let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
        std::fs::write(root.path().join("x"), "old")?;
        std::fs::write(home.path().join("file"), "new")?;
        let serving = Serving::start(root.path(), &[&["--plaintext", "--uploads", "."], args].concat())?;
        let ended = run(home.path(), ["put", "file", &format!("{}/x", serving.origin)])?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.stderr.contains("409"), code == 14, "{ended:?}");
        assert_eq!(std::fs::read_to_string(root.path().join("x"))?, stored);
    }
    Ok(())
}

#[test]
fn a_folder_for_uploads_that_does_not_exist_is_not_made() -> TestResult {
    let root = tempfile::tempdir()?;
    let ended = run(
        root.path(),
        ["serve", ".", "--plaintext", "--uploads", "no/such/dir"],
    )?;
    ended.failed_with(17);
    assert!(
        ended
            .stderr
            .contains("--uploads no/such/dir: there is no such folder; make it with: mkdir -p no/such/dir"),
        "{ended:?}"
    );
    assert_eq!(names(root.path())?, Vec::<String>::new());
    Ok(())
}
