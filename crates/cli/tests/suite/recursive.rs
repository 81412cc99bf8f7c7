//! `get --recursive`: mirrors of trees that change, and lists that lead elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Ended, Serving, Signal, TestResult, program, run, signal};

/// Names that a URL, a page or a list has to escape.
const NAMES: [&str; 24] = [
    "plain",
    "a b",
    "100%",
    "%41",
    "&amp;",
    "a&b",
    "q?x=1",
    "#top",
    "semi;colon",
    "it's",
    "\"quoted\"",
    "<b>",
    "plus+plus",
    "~tilde",
    "-dash",
    "dot.",
    "e\u{301}",
    "\u{e9}",
    "\u{65e5}\u{672c}",
    "\u{1f600}",
    "new\nline",
    "tab\tname",
    "a:b",
    "[x]",
];

/// Contents and times, in seconds, of the files below a folder; folders without either.
type Tree = BTreeMap<PathBuf, Option<(Vec<u8>, u64)>>;

fn tree(folder: &Path) -> TestResult<Tree> {
    let mut found = Tree::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let (entry, path) = (entry?, PathBuf::new());
            let metadata = entry.metadata()?;
            let relative = path.join(entry.path().strip_prefix(folder)?);
            // What a killed run has begun.
            if entry.file_name().to_string_lossy().starts_with('.')
                || relative.to_string_lossy().contains(".part")
            {
                continue;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
                found.insert(relative, None);
            } else {
                let time = metadata.modified()?.duration_since(UNIX_EPOCH)?.as_secs();
                found.insert(relative, Some((fs::read(entry.path())?, time)));
            }
        }
    }
    Ok(found)
}

/// Random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % limit
    }
}

/// Writes a file, in a folder of one to three names, whose time is the number of the change.
fn change(root: &Path, draw: &mut Draw, number: u64) -> TestResult {
    let mut path = root.to_owned();
    for level in 0..draw.below(4) {
        path.push(format!("{}{level}", NAMES[draw.below(NAMES.len())]));
    }
    fs::create_dir_all(&path)?;
    if draw.below(8) == 0 {
        return Ok(());
    }
    path.push(NAMES[draw.below(NAMES.len())]);
    let length = [0, 1, 3_000, 70_000, 900_000][draw.below(5)];
    let content: Vec<u8> = (0..length)
        .map(|_| u8::try_from(draw.below(256)).unwrap_or_default())
        .collect();
    fs::write(&path, content)?;
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number);
    fs::File::options().write(true).open(&path)?.set_modified(time)?;
    Ok(())
}

/// How many files a run has received, and how many bytes.
fn totals(ended: &Ended) -> TestResult<(u64, u64)> {
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    let of = |name: &str| document["totals"][name].as_u64().unwrap_or_default();
    assert_eq!(of("failures"), 0, "{ended:?}");
    Ok((of("urls"), of("bytes") - of("resumed")))
}

fn mirror(rounds: u64, seed: u64) -> TestResult {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fs::create_dir(&root)?;
    let site = Serving::start(&root, &[])?;
    let mut draw = Draw(seed);
    let args = ["get", "-r", "-N", "--json", &format!("{}/", site.origin), "copy"];
    for round in 0..rounds {
        for step in 0..12 {
            change(&root, &mut draw, 20 * round + step)?;
        }
        if draw.below(2) == 0 {
            let mut killed = program(folder.path())
                .args(args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            std::thread::sleep(Duration::from_millis(draw.below(60) as u64));
            signal(&killed, Signal::Kill)?;
            killed.wait()?;
        }
        let copy = folder.path().join("copy");
        let (wanted, there) = (
            tree(&root)?,
            if copy.exists() { tree(&copy)? } else { Tree::new() },
        );
        let missing = wanted
            .iter()
            .filter(|(path, file)| file.is_some() && there.get(*path) != Some(file));
        let missing: Vec<usize> = missing
            .filter_map(|(_, file)| Some(file.as_ref()?.0.len()))
            .collect();
        let ended = run(folder.path(), args)?;
        ended.succeeded();
        let (files, bytes) = totals(&ended)?;
        assert_eq!(
            files,
            missing.len() as u64,
            "seed {seed}, round {round}: {ended:?}"
        );
        // Of a part that a killed run has left, only the rest comes.
        assert!(bytes <= missing.iter().sum::<usize>() as u64);
        let copied = tree(&copy)?;
        assert!(
            copied == wanted,
            "seed {seed}, round {round}: {:?}",
            difference(&wanted, &copied)
        );
    }
    let again = run(folder.path(), args)?;
    assert_eq!(totals(&again)?, (0, 0));
    Ok(())
}

fn difference<'a>(one: &'a Tree, other: &'a Tree) -> Vec<&'a PathBuf> {
    let differs = |path: &&PathBuf| one.get(*path) != other.get(*path);
    one.keys().chain(other.keys()).filter(differs).collect()
}

#[test]
fn a_tree_that_changes_is_mirrored_and_nothing_whole_comes_twice() -> TestResult {
    for seed in [1, 2] {
        mirror(6, seed)?;
    }
    Ok(())
}

#[test]
#[ignore = "takes minutes"]
fn a_thousand_changes_are_mirrored() -> TestResult {
    for seed in 10..24 {
        mirror(6, seed)?;
    }
    Ok(())
}

/// Answers GET in HTTP/1.1 by path: with a redirect for a text that begins with `->`, with JSON for one that begins with a
/// brace, otherwise with a page, or a file for a path without a slash at its end. `/gzip/` claims to be encoded, each
/// `/in/busy…/` is refused once, and the lists below `/with/` claim to have those of sub-folders. Ends with the process.
fn pages(pages: &[(&str, &str)]) -> TestResult<String> {
    let pages: BTreeMap<String, String> = pages
        .iter()
        .map(|&(path, page)| (path.to_owned(), page.to_owned()))
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let origin = format!("http://{}", listener.local_addr()?);
    let refused = Arc::new(Mutex::new(HashSet::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (pages, refused) = (pages.clone(), Arc::clone(&refused));
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut reader = BufReader::new(stream.try_clone()?);
                let mut stream = stream;
                loop {
                    let (mut line, mut field) = (String::new(), String::new());
                    if reader.read_line(&mut line)? == 0 {
                        return Ok(());
                    }
                    while reader.read_line(&mut field)? > 2 {
                        field.clear();
                    }
                    let path = line.split(' ').nth(1).unwrap_or_default();
                    let is_busy = path.starts_with("/in/busy")
                        && path.ends_with('/')
                        && refused
                            .lock()
                            .is_ok_and(|mut refused| refused.insert(path.to_owned()));
                    let (status, kind, body) = match pages.get(path) {
                        _ if is_busy => ("503 Service Unavailable", "text/plain", ""),
                        None => ("404 Not Found", "text/plain", ""),
                        Some(page) if path.starts_with("/with/") && page.starts_with('{') => (
                            "200 OK",
                            "application/json\r\npreference-applied: sublists",
                            page.as_str(),
                        ),
                        Some(page) if page.starts_with('{') => ("200 OK", "application/json", page.as_str()),
                        Some(page) if path == "/gzip/" => {
                            ("200 OK", "text/html\r\ncontent-encoding: gzip", page.as_str())
                        }
                        Some(page) if path.ends_with('/') => ("200 OK", "text/html", page.as_str()),
                        Some(page) => ("200 OK", "text/plain", page.as_str()),
                    };
                    match body.strip_prefix("->") {
                        Some(to) => write!(
                            stream,
                            "HTTP/1.1 301 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"
                        )?,
                        None => write!(
                            stream,
                            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                            body.len()
                        )?,
                    }
                }
            });
        }
    });
    Ok(origin)
}

fn get(folder: &Path, url: &str, more: &[&str]) -> TestResult<Ended> {
    run(folder, [&["get", "-r", "--http1.1", url], more].concat())
}

#[test]
fn lists_that_lead_elsewhere_lead_nowhere() -> TestResult {
    let origin = pages(&[
        (
            "/in/",
            "<a href='../secret'><a href='/secret'><a href='?C=N'><a href='x'><a href='sub/'><a href='sub/'><a href='gone'>\
             <a href='..%2fup'><a href='away/'><a href='deep/er'>",
        ),
        ("/in/x", "X"),
        ("/in/sub/", "<a href='../'><a href='./'><a href='y'><a href='z/'>"),
        ("/in/sub/y", "Y"),
        ("/in/sub/z/", ""),
        ("/in/away/", "->/out/"),
        ("/in/deep/er", "no"),
        ("/out/", "<a href='w'>"),
        ("/secret", "no"),
        ("/bare", "->/bare/"),
        ("/bare/", "<a href='one'><a href='two'>"),
        ("/bare/one", "1"),
        ("/bare/two", "2"),
        ("/file", "text"),
        ("/h2o/", "<a href='noslash'><a href='f'>"),
        ("/h2o/noslash", "->/h2o/noslash/"),
        ("/h2o/noslash/", "<a href='deeper'>"),
        ("/h2o/noslash/deeper", "->/h2o/noslash/deeper/"),
        ("/h2o/noslash/deeper/", "<a href='x'>"),
        ("/h2o/noslash/deeper/x", "X"),
        ("/h2o/f", "F"),
    ])?;
    let folder = tempfile::tempdir()?;
    let ended = get(folder.path(), &format!("{origin}/in/"), &["copy"])?;
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for part in [
        "the list has the name \"..%2fup\"",
        "/in/away/: the folder redirects to ",
        "/in/gone: ",
    ] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(part)).count(),
            1,
            "{part}: {ended:?}"
        );
    }
    assert_eq!(
        (ended.code.is_some_and(|code| code > 0), lines.len()),
        (true, 3),
        "{ended:?}"
    );
    let found: Vec<String> = tree(folder.path())?
        .keys()
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(found, ["copy", "copy/sub", "copy/sub/y", "copy/sub/z", "copy/x"]);

    // A redirect that adds the slash is that of a folder; without DIR, the folder has the name of the URL's.
    get(folder.path(), &format!("{origin}/bare"), &["--reject", "two"])?.succeeded();
    assert_eq!(fs::read(folder.path().join("bare/one"))?, b"1");
    assert!(!folder.path().join("bare/two").exists());
    for (path, says) in [("/file", "end its URL with a slash"), ("/none/", "404")] {
        let ended = get(folder.path(), &format!("{origin}{path}"), &["other"])?;
        ended.failed_with(14);
        assert!(ended.stderr.contains(says), "{ended:?}");
    }
    // Folders that are listed without a slash show themselves by a redirect.
    for more in [&[][..], &["-N"]] {
        get(
            folder.path(),
            &format!("{origin}/h2o/"),
            &[&["slashes"], more].concat(),
        )?
        .succeeded();
        assert_eq!(fs::read(folder.path().join("slashes/noslash/deeper/x"))?, b"X");
    }
    let ended = get(folder.path(), &format!("{origin}/in/"), &["a", "b"])?;
    ended.failed_with(2);
    Ok(())
}

#[test]
fn refused_names_are_told_once_and_counted_whatever_a_list_repeats() -> TestResult {
    let many = "<a href='%00a'><a href='..%2fb'><a href='ok'>".repeat(5_000);
    let root = format!("{many}<a href='d/'><a href='e/'>");
    let origin = pages(&[
        ("/in/", &root),
        ("/in/ok", "1"),
        ("/in/d/", &many),
        ("/in/d/ok", "2"),
        ("/in/e/", "<a href='%2e%2e%2f'>"),
    ])?;
    let folder = tempfile::tempdir()?;
    let ended = get(folder.path(), &format!("{origin}/in/"), &["copy"])?;
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!((ended.code, lines.len()), (Some(17), 2), "{ended:?}");
    assert!(
        lines[0].contains("10,000 names that no file here, or no URL, can have, the first is \"%00a\""),
        "{ended:?}"
    );
    assert!(
        lines[1].contains("10,001 more names of other lists are left out"),
        "{ended:?}"
    );
    assert_eq!(fs::read(folder.path().join("copy/d/ok"))?, b"2");
    Ok(())
}

#[test]
fn lists_that_a_busy_server_refuses_are_requested_again() -> TestResult {
    let names: Vec<String> = (0..40).map(|number| format!("busy{number}")).collect();
    let root: String = names.iter().map(|name| format!("<a href='{name}/'>")).collect();
    let paths: Vec<(String, String)> = names
        .iter()
        .map(|name| (format!("/in/{name}/"), format!("/in/{name}/x")))
        .collect();
    let mut site = vec![("/in/", root.as_str())];
    for (folder, file) in &paths {
        site.extend([(folder.as_str(), "<a href='x'>"), (file.as_str(), "X")]);
    }
    let origin = pages(&site)?;
    let folder = tempfile::tempdir()?;
    get(folder.path(), &format!("{origin}/in/"), &["copy"])?.succeeded();
    for name in names {
        assert_eq!(fs::read(folder.path().join("copy").join(name).join("x"))?, b"X");
    }
    // A folder that is refused from the start is not waited for.
    let ended = get(folder.path(), &format!("{origin}/in/busy/"), &["other"])?;
    ended.failed_with(14);
    Ok(())
}

#[test]
fn a_list_goes_on_where_it_says_and_an_encoded_one_is_no_empty_folder() -> TestResult {
    let page = |name: &str, next: &str| {
        format!(
            "{{\"truncated\":true,\"next\":{next},\"entries\":[{{\"name\":\"{name}\",\"type\":\"file\"}}]}}"
        )
    };
    let origin = pages(&[
        ("/in/", &page("a", "\"?after=a\"")),
        ("/in/?after=a", &page("b", "\"?after=b\"")),
        (
            "/in/?after=b",
            "{\"truncated\":false,\"entries\":[{\"name\":\"c\",\"type\":\"folder\"}]}",
        ),
        ("/in/a", "A"),
        ("/in/b", "B"),
        ("/in/c/", "<a href='d'>"),
        ("/in/c/d", "D"),
        ("/part/", &page("a", "null")),
        ("/part/a", "A"),
        ("/away/", &page("a", "\"../in/?after=a\"")),
        ("/away/a", "A"),
        ("/round/", &page("a", "\"?again\"")),
        ("/round/?again", &page("b", "\"?again\"")),
        ("/round/a", "A"),
        ("/round/b", "B"),
        ("/gzip/", "<a href='x'>"),
        ("/page/", "<h1>A page</h1><script>draw('list')</script>"),
        ("/~ann/", "<a href='/~ann/x'>"),
        ("/%7Eann/", "<a href='/~ann/x'>"),
        ("/%7Eann/x", "X"),
    ])?;
    let folder = tempfile::tempdir()?;
    let get = |path: &str| get(folder.path(), &format!("{origin}{path}"), &["copy"]);
    get("/in/")?.succeeded();
    for (path, content) in [("a", "A"), ("b", "B"), ("c/d", "D")] {
        assert_eq!(
            fs::read_to_string(folder.path().join("copy").join(path))?,
            content
        );
    }
    for path in ["/part/", "/away/", "/round/"] {
        fs::remove_dir_all(folder.path().join("copy"))?;
        let ended = get(path)?;
        assert_eq!(
            ended.stderr.matches("the server lists only a part").count(),
            1,
            "{path}: {ended:?}"
        );
        assert!(folder.path().join("copy/a").exists(), "{path}");
        assert!(!folder.path().join("copy/c").exists(), "{path}");
    }
    let ended = get("/gzip/")?;
    ended.failed_with(14);
    assert!(ended.stderr.contains("encoded (\"gzip\")"), "{ended:?}");
    let ended = get("/page/")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("names no files"), "{ended:?}");
    // The server escapes other characters than the user.
    get("/%7Eann/")?.succeeded();
    assert_eq!(fs::read(folder.path().join("copy/x"))?, b"X");
    Ok(())
}

#[test]
fn lists_of_folders_below_are_taken_only_for_folders_that_are_listed() -> TestResult {
    let list = |entries: &str| format!("\"entries\":[{entries}]");
    let folder = |name: &str| format!("{{\"name\":\"{name}\",\"type\":\"folder\"}}");
    let file = |name: &str| format!("{{\"name\":\"{name}\",\"type\":\"file\"}}");
    let below: Vec<String> = [
        ("a/", file("x")),
        ("a/", file("twice")),
        ("", file("itself")),
        ("../out/", file("out")),
        ("/with/none/", file("none")),
        ("a/unlisted/", file("unlisted")),
        ("b/?q", file("query")),
        ("b", file("no-folder")),
        ("http://other/with/b/", file("other")),
        ("%2e%2e/", file("up")),
        ("..%2f/", file("up")),
        ("c/", folder("d")),
        ("c/d/", [file("z"), file("..")].join(",")),
    ]
    .iter()
    .map(|(href, entries)| format!("{{\"href\":\"{href}\",{}}}", list(entries)))
    .chain([
        format!("{{{}}}", list(&file("nowhere"))),
        format!("{{{},\"href\":\"b/\"}}", list(&file("late"))),
        "{\"href\":\"b/\"}".to_owned(),
    ])
    .collect();
    let all = list(&["a", "b", "c"].map(folder).join(","));
    let document = format!("{{{all},\"sublists\":[{}]}}", below.join(","));
    // A folder is asked for by itself if its list is among those, too, but this server does not say so.
    let unsaid = format!(
        "{{{},\"sublists\":[{{\"href\":\"a/\",{}}}]}}",
        list(&folder("a")),
        list("")
    );
    let origin = pages(&[
        ("/with/", &document),
        ("/with/a/x", "X"),
        ("/with/b/", "<a href='y'>"),
        ("/with/b/y", "Y"),
        ("/with/c/d/z", "Z"),
        ("/unsaid/", &unsaid),
        ("/unsaid/a/", "<a href='x'>"),
        ("/unsaid/a/x", "X"),
    ])?;
    let place = tempfile::tempdir()?;
    let copied = |name: &str, path: &str, more: &[&str]| -> TestResult<Vec<String>> {
        get(
            place.path(),
            &format!("{origin}{path}"),
            &[&[name], more].concat(),
        )?;
        let found = tree(&place.path().join(name))?;
        Ok(found.keys().map(|path| path.display().to_string()).collect())
    };
    // No other list was asked for: it would have failed.
    assert_eq!(
        copied("copy", "/with/", &[])?,
        ["a", "a/x", "b", "b/y", "c", "c/d", "c/d/z"]
    );
    assert_eq!(
        copied("flat", "/with/", &["--depth", "1"])?,
        ["a", "a/x", "b", "b/y", "c"]
    );
    assert_eq!(
        copied("some", "/with/", &["--reject", "a/", "--accept", "z"])?,
        ["c", "c/d", "c/d/z"]
    );
    assert_eq!(copied("unsaid", "/unsaid/", &[])?, ["a", "a/x"]);
    // A file is in the place of a folder whose list came along.
    fs::create_dir(place.path().join("taken"))?;
    fs::write(place.path().join("taken/c"), "mine")?;
    assert_eq!(copied("taken", "/with/", &[])?, ["a", "a/x", "b", "b/y", "c"]);
    assert_eq!(fs::read(place.path().join("taken/c"))?, b"mine");
    Ok(())
}

#[test]
fn a_folder_of_more_files_than_a_list_has_is_mirrored_and_sent_back() -> TestResult {
    const FILES: usize = 10_020;
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("d"))?;
    for number in 0..FILES {
        let file = fs::File::create(root.join(format!("d/{number}")))?;
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000))?;
    }
    let site = Serving::start(&root, &["--uploads", &root.display().to_string()])?;
    let url = format!("{}/", site.origin);
    let ended = run(folder.path(), ["get", "-r", "--json", &url, "copy"])?;
    assert_eq!(totals(&ended)?.0, FILES as u64);
    assert_eq!(fs::read_dir(folder.path().join("copy/d"))?.count(), FILES);
    let ended = run(folder.path(), ["put", "--skip-existing", "--json", "copy/", &url])?;
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    let totals = &document["totals"];
    assert_eq!(
        (totals["same"].as_u64(), totals["sent"].as_u64()),
        (Some(FILES as u64), Some(0))
    );
    Ok(())
}

#[test]
fn files_that_exist_are_told_once_and_counted_and_links_are_not_followed() -> TestResult {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("d"))?;
    for number in 0..50 {
        fs::write(root.join(format!("{number}")), "new")?;
    }
    fs::write(root.join("d/x"), "new")?;
    let site = Serving::start(&root, &[])?;
    let url = format!("{}/", site.origin);
    let get = |more: &[&str]| run(folder.path(), [&["get", "-r", &url, "copy"], more].concat());
    get(&[])?.succeeded();
    let again = get(&[])?;
    assert_eq!(
        (again.code, again.stderr.lines().count()),
        (Some(15), 2),
        "{again:?}"
    );
    assert!(
        again
            .stderr
            .contains("50 more URLs failed in the same way: their files exist"),
        "{again:?}"
    );
    get(&["--skip-existing"])?.succeeded();

    // An older file of the same length stays, as in wget: only what is newer comes.
    let old = folder.path().join("copy/7");
    fs::write(&old, "old")?;
    get(&["-N"])?.succeeded();
    assert_eq!(fs::read(&old)?, b"old");
    fs::File::options()
        .write(true)
        .open(&old)?
        .set_modified(SystemTime::UNIX_EPOCH)?;
    get(&["-N"])?.succeeded();
    assert_eq!(fs::read(&old)?, b"new");

    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        let outside = folder.path().join("outside");
        fs::create_dir(&outside)?;
        fs::write(outside.join("file"), "mine")?;
        fs::remove_dir_all(folder.path().join("copy/d"))?;
        symlink("../outside", folder.path().join("copy/d"))?;
        fs::remove_file(&old)?;
        symlink("../outside/file", &old)?;
        for options in [&["-N"][..], &["--force"]] {
            let ended = get(options)?;
            assert_eq!(
                (ended.code, ended.stderr.matches("symbolic link").count()),
                (Some(15), 2),
                "{ended:?}"
            );
            assert_eq!(fs::read(outside.join("file"))?, b"mine");
            assert!(!outside.join("x").exists());
        }
    }
    Ok(())
}

#[test]
fn a_file_gets_the_time_of_the_server_on_request() -> TestResult {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fs::create_dir(&root)?;
    fs::write(root.join("x"), "new")?;
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options()
        .write(true)
        .open(root.join("x"))?
        .set_modified(time)?;
    let site = Serving::start(&root, &[])?;
    let url = format!("{}/x", site.origin);
    run(folder.path(), ["get", "-o", "now", &url])?.succeeded();
    run(folder.path(), ["get", "-R", "-o", "then", &url])?.succeeded();
    assert_eq!(fs::metadata(folder.path().join("then"))?.modified()?, time);
    assert!(fs::metadata(folder.path().join("now"))?.modified()? > time);
    Ok(())
}
