//! `put` of many files and folders: what is stored, what is left out, and that a mirror sends nothing twice.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullbore_testing::random::Random;

use crate::support::{Ended, Serving, TestResult, program, run};

/// What is in a tree: for each file its content and the second of its modification.
type Files = BTreeMap<PathBuf, (Vec<u8>, u64)>;

fn files(root: &Path) -> TestResult<Files> {
    let mut found = Files::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let modified = fs::metadata(&path)?.modified()?;
            let second = modified.duration_since(UNIX_EPOCH)?.as_secs();
            found.insert(path.strip_prefix(root)?.to_owned(), (fs::read(&path)?, second));
        }
    }
    Ok(found)
}

fn totals(ended: &Ended) -> TestResult<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    Ok(document["totals"].clone())
}

/// The uploads that a server has stored whole, by path, up to a request that is made now.
fn stored(serving: &mut Serving, folder: &Path, marks: &mut u32) -> TestResult<BTreeMap<String, u32>> {
    *marks += 1;
    let mark = format!("/mark-{marks}");
    run(folder, ["get", "--discard", &format!("{}{mark}", serving.origin)])?;
    let mut stored = BTreeMap::new();
    loop {
        let line: serde_json::Value = serde_json::from_str(&serving.line()?)?;
        let path = line["path"].as_str().unwrap_or_default().to_owned();
        if path == mark {
            return Ok(stored);
        }
        if line["method"] == "PUT" && matches!(line["status"].as_u64(), Some(200 | 201)) {
            *stored.entry(path).or_default() += 1;
        }
    }
}

/// A tree that changes at random. Its files are older than a second, so no later change is in the second of the one before.
struct Tree {
    root: PathBuf,
    random: Random,
    /// The time that the next file gets.
    second: u64,
    /// How often each file was written.
    versions: BTreeMap<PathBuf, u32>,
}

/// Names that a URL, a shell or a list could take for something else.
const NAMES: [&str; 14] = [
    "a",
    "b.txt",
    "with space",
    "%2e%2e",
    "%",
    "?q=1",
    "#f",
    "a:b",
    "ä",
    "文件",
    "+&=",
    "'\"",
    "~",
    "x;y,z",
];

impl Tree {
    fn path(&mut self) -> PathBuf {
        let mut path = PathBuf::new();
        for depth in 0..=self.random.below(3) {
            let name = self.random.choose(&NAMES).copied().unwrap_or("a");
            // A name is that of a file or that of a folder.
            path.push(format!("{name}-{depth}"));
        }
        path.set_file_name(format!(
            "{}.f",
            path.file_name().and_then(OsStr::to_str).unwrap_or("a")
        ));
        path
    }

    /// Writes a file, or removes one, or gives one another time.
    fn change(&mut self) -> TestResult {
        let known: Vec<PathBuf> = self.versions.keys().cloned().collect();
        let old = self.random.choose(&known).cloned();
        match (self.random.below(8), old) {
            // Other octets of the same length.
            (0 | 1, Some(path)) => {
                let length = usize::try_from(fs::metadata(self.root.join(&path))?.len())?;
                self.write(path, length)
            }
            (2, Some(path)) => {
                self.second += 1;
                let file = File::options().append(true).open(self.root.join(&path))?;
                file.set_modified(UNIX_EPOCH + Duration::from_secs(self.second))?;
                *self.versions.entry(path).or_default() += 1;
                Ok(())
            }
            _ => {
                let path = self.path();
                let length = usize::try_from(self.random.magnitude(19))?;
                self.write(path, length)
            }
        }
    }

    fn write(&mut self, path: PathBuf, length: usize) -> TestResult {
        let whole = self.root.join(&path);
        fs::create_dir_all(whole.parent().ok_or("no folder")?)?;
        let seed = self.random.next().to_le_bytes();
        let octets: Vec<u8> = seed.iter().copied().cycle().take(length).collect();
        fs::write(&whole, octets)?;
        self.second += 1;
        File::options()
            .append(true)
            .open(&whole)?
            .set_modified(UNIX_EPOCH + Duration::from_secs(self.second))?;
        *self.versions.entry(path).or_default() += 1;
        Ok(())
    }
}

fn mirrored(seed: u64, rounds: u32) -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let options = [
        "--plaintext",
        "--uploads",
        ".",
        "--overwrite",
        "--log",
        "--log-format",
        "json",
    ];
    let mut serving = Serving::start(root.path(), &options)?;
    let url = format!("{}/", serving.origin);
    let mut tree = Tree {
        root: home.path().join("tree"),
        random: Random::new(seed),
        second: 1_500_000_000,
        versions: BTreeMap::new(),
    };
    fs::create_dir(&tree.root)?;
    let mut sent: BTreeMap<String, u32> = BTreeMap::new();
    let mut marks = 0;
    for round in 0..=rounds {
        for _ in 0..=tree.random.below(8) {
            tree.change()?;
        }
        let args = ["put", "--skip-existing", "--json", "tree", &url];
        let is_killed = round < rounds && tree.random.once_in(3);
        if is_killed {
            let mut child = program(home.path())
                .args(args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            std::thread::sleep(Duration::from_millis(tree.random.below(40)));
            let _ = child.kill();
            child.wait()?;
        } else {
            let ended = run(home.path(), args)?;
            ended.succeeded();
            let totals = totals(&ended)?;
            let here = files(&tree.root)?;
            let there = files(&root.path().join("tree"))?;
            assert_eq!(
                totals["sent"]
                    .as_u64()
                    .zip(totals["same"].as_u64())
                    .map(|(a, b)| a + b),
                Some(here.len() as u64),
                "seed {seed}"
            );
            assert!(here == there, "seed {seed}, round {round}");
            // Again, which changes nothing.
            let again = self::totals(&run(home.path(), args)?)?;
            assert_eq!(again["sent"], 0, "seed {seed}, round {round}");
        }
        for (path, count) in stored(&mut serving, home.path(), &mut marks)? {
            *sent.entry(path).or_default() += count;
        }
    }
    let most: u32 = tree.versions.values().sum();
    let all: u32 = sent.values().sum();
    assert!(
        all <= most,
        "seed {seed}: {all} uploads of {most} versions: {sent:?}"
    );
    Ok(())
}

#[test]
fn a_tree_that_changes_is_mirrored_and_no_version_is_stored_twice_though_runs_are_killed() -> TestResult {
    for seed in 0..2 {
        mirrored(seed, 20)?;
    }
    Ok(())
}

#[test]
#[ignore = "takes minutes"]
fn a_tree_that_changes_a_thousand_times_is_mirrored() -> TestResult {
    mirrored(1_000, 250)
}

#[test]
fn what_no_upload_can_be_is_said_with_a_count_and_everything_else_is_stored() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("a/b"))?;
    fs::create_dir_all(tree.join("empty"))?;
    fs::create_dir_all(tree.join(".hidden"))?;
    fs::write(tree.join(".hidden/x"), "x")?;
    fs::write(tree.join(".dot"), "x")?;
    fs::write(tree.join("a/b/file"), "content")?;
    fs::write(tree.join("zero"), "")?;
    fs::write(tree.join("large"), vec![7; 1 << 20])?;
    symlink("a/b/file", tree.join("link"))?;
    symlink("..", tree.join("a/up"))?;
    symlink("loop", tree.join("loop"))?;
    symlink("nowhere", tree.join("dangling"))?;
    for number in 0..9_u8 {
        fs::write(tree.join(OsString::from_vec(vec![b'n', 0xf0 + number])), "x")?;
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "."])?;
    let url = format!("{}/", serving.origin);
    let ended = run(home.path(), ["put", "--json", "tree", &url])?;
    // The first failure is that of a link, or that of a name that the server refuses.
    assert!(matches!(ended.code, Some(14 | 17)), "{ended:?}");
    let expected = |name: &str| fs::read(root.path().join("tree").join(name));
    assert_eq!(expected("a/b/file")?, b"content");
    assert_eq!(expected("link")?, b"content");
    assert_eq!(expected("zero")?, b"");
    assert_eq!(expected("large")?, vec![7; 1 << 20]);
    let counts = totals(&ended)?;
    for (name, count) in [
        ("sent", 4),
        ("same", 0),
        ("failures", 11),
        ("hidden", 2),
        ("linked_folders", 1),
        ("empty_folders", 1),
        ("special", 1),
    ] {
        assert_eq!(counts[name], count, "{name} in {counts}");
    }
    for sentence in [
        "cannot read tree/loop: ",
        "cannot read tree/dangling: ",
        "6 more failures like this: …: status 400",
        "2 names that begin with a dot left out; --hidden sends them",
        "1 link to a folder not followed",
        "1 empty folder left out",
        "1 socket, FIFO or device left out",
    ] {
        assert!(ended.stderr.contains(sentence), "{sentence}: {ended:?}");
    }
    // Without --overwrite, what is there is refused, and nothing of it changes.
    fs::write(tree.join("zero"), "more")?;
    let again = run(
        home.path(),
        ["put", "--json", "tree/zero", "tree/large", &format!("{url}tree/")],
    )?;
    assert_eq!(again.code, Some(14));
    assert_eq!(expected("zero")?, b"");
    // The content of a folder, and one that is named by a link.
    symlink("tree/a/b", home.path().join("named"))?;
    run(home.path(), ["put", "tree/a/", "named", &url])?.succeeded();
    assert_eq!(fs::read(root.path().join("b/file"))?, b"content");
    assert_eq!(fs::read(root.path().join("named/file"))?, b"content");
    Ok(())
}

#[test]
fn wrong_combinations_are_refused_before_the_first_request() -> TestResult {
    let home = tempfile::tempdir()?;
    fs::create_dir_all(home.path().join("a/x"))?;
    fs::create_dir_all(home.path().join("b/x"))?;
    for (args, words) in [
        (&["a", "http://127.0.0.1:1/file"][..], "end the URL with a slash"),
        (
            &["a", "b", "-X", "POST", "http://127.0.0.1:1/"],
            "-X is for one file",
        ),
        (&["a", "-o", "out", "http://127.0.0.1:1/"], "-o is for one file"),
        (&["a", "-", "http://127.0.0.1:1/"], "`-` has no name"),
        (&["a/x", "b/x", "http://127.0.0.1:1/"], "would be stored as x"),
    ] {
        let ended = run(home.path(), [&["put"], args].concat())?;
        ended.failed_with(2);
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
    // A server that cannot be reached is one sentence for all of them.
    for number in 0..100 {
        fs::write(home.path().join(format!("a/{number}")), "x")?;
    }
    let ended = run(home.path(), ["put", "a/", "http://127.0.0.1:1/"])?;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(ended.stderr.matches("cannot connect").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("the rest was not sent"), "{ended:?}");
    Ok(())
}

#[test]
fn a_server_that_takes_few_uploads_at_once_gets_all_files() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for number in 0..60 {
        fs::write(home.path().join(number.to_string()), vec![7; 3_000])?;
    }
    let options = [
        "--plaintext",
        "--uploads",
        ".",
        "--parallel-uploads",
        "16",
        "--min-free",
        "0",
    ];
    let serving = Serving::start(root.path(), &options)?;
    let ended = run(home.path(), ["put", "./", &format!("{}/", serving.origin)])?;
    ended.succeeded();
    assert_eq!(fs::read_dir(root.path())?.count(), 60);
    Ok(())
}

/// The files of `name` change all the time, and what the server has is always a whole version.
#[test]
fn a_file_that_changes_while_it_is_sent_is_named_and_nothing_half_is_stored() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    fs::write(home.path().join("shrinks"), vec![1; 8 << 20])?;
    fs::write(home.path().join("stays"), "stays")?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "."])?;
    // A slow upload has sent a part of the file when it becomes shorter.
    let child = program(home.path())
        .args([
            "put",
            "--limit-rate",
            "2M",
            "--json",
            "./",
            &format!("{}/", serving.origin),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(700));
    File::options()
        .write(true)
        .open(home.path().join("shrinks"))?
        .set_len(1 << 20)?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(17), "{stderr}");
    assert!(
        stderr.contains("shrinks became shorter") || stderr.contains("shrinks changed"),
        "{stderr}"
    );
    assert!(!root.path().join("shrinks").exists());
    assert_eq!(fs::read(root.path().join("stays"))?, b"stays");
    Ok(())
}

/// A server without lists is asked for each file with HEAD.
#[test]
fn a_server_without_lists_is_asked_for_each_file() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let long_ago = SystemTime::now() - Duration::from_secs(1_000);
    for name in ["a", "b", "c"] {
        fs::write(home.path().join(name), name)?;
        File::options()
            .append(true)
            .open(home.path().join(name))?
            .set_modified(long_ago)?;
    }
    let options = ["--plaintext", "--uploads", ".", "--overwrite", "--no-listing"];
    let serving = Serving::start(root.path(), &options)?;
    let url = format!("{}/", serving.origin);
    let sent = |expected: u64| -> TestResult {
        let ended = run(home.path(), ["put", "--skip-existing", "--json", "./", &url])?;
        ended.succeeded();
        assert_eq!(totals(&ended)?["sent"], expected);
        Ok(())
    };
    sent(3)?;
    sent(0)?;
    fs::write(home.path().join("b"), "B")?;
    sent(1)?;
    assert_eq!(fs::read(root.path().join("b"))?, b"B");
    sent(0)
}
