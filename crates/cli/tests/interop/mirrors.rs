//! `fullbore get -r` by the lists of foreign servers: 1,000 files whose names have everything that a URL, a page or JSON has to
//! escape. The copy is equal, and what a server cannot list or send is told.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::Trial;

use crate::files::{Scratch, workshop};
use crate::fullbore::{self, Server, Transport, Uploads, Version};
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Daemon, Fault, Outcome, ensure, run_any, spawn_on_free_port};
use crate::servers::{Foreign, run_as};

/// Names of files and of folders. Each folder has all of them.
const NAMES: [&[u8]; 52] = [
    b"plain",
    b"a b",
    b" lead",
    b"trail ",
    b"%41",
    b"100%",
    b"%zz",
    b"%2e%2e",
    b"%2F",
    b"&amp;",
    b"a&b",
    b"q?x=1",
    b"#top",
    b"semi;colon",
    b"it's",
    b"\"quoted\"",
    b"<b>",
    b"plus+plus",
    b"~tilde",
    b"-dash",
    b"--option",
    b".dot",
    b"..dots",
    b"dot.",
    b"e\xcc\x81",
    b"\xc3\xa9",
    b"\xe6\x97\xa5\xe6\x9c\xac",
    b"\xf0\x9f\x98\x80",
    b"new\nline",
    b"return\r",
    b"tab\tname",
    b"\x01\x1b[31m",
    b"\x7f",
    b"a:b",
    b"http:x",
    b"javascript:x",
    b"[x]",
    b"{x}",
    b"|^`",
    b"*$=@!",
    b"(p),",
    b"CASE",
    b"case",
    b"\xe2\x80\xaegpj.exe",
    b"\xef\xbf\xbd",
    b"name\xe2\x80\xa8line",
    b"x.tar.gz",
    b"page.html",
    b"back\\slash",
    b"caf\xe9",
    b"CON",
    b"\xc2\x9b31m",
];

/// Of 255 bytes: the longest that a file system has.
const LONG: [&[u8]; 2] = [&[b'n'; 255], &[0xc3; 255]];

/// The folders, by the places of their names. Beside the root there are nineteen.
const FOLDERS: [&[usize]; 19] = [
    &[0],
    &[0, 1],
    &[0, 1, 2],
    &[0, 1, 2, 3],
    &[4],
    &[4, 9],
    &[7],
    &[8],
    &[10, 12],
    &[10, 15, 16],
    &[11],
    &[17, 19],
    &[22],
    &[24],
    &[25, 26, 27],
    &[28, 30],
    &[31],
    &[33, 34],
    &[38, 39, 43],
];

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |peers: &[Peer], name: &str, start: fn(&Scratch) -> Outcome<Running>, faults: Faults| {
        trial(
            peers,
            format!("get -r: 1,000 files with names of every kind from {name}"),
            move || mirror(start, faults),
        )
    };
    let all = Faults {
        hides: |_| false,
        lacks: |_| false,
    };
    let hides: fn(&[u8]) -> bool = |name| name.starts_with(b".");
    vec![
        of(
            &[],
            "fullbore serve",
            own,
            Faults {
                lacks: |name| name.contains(&b'\\') || !is_utf8(name),
                ..all
            },
        ),
        of(
            &[Peer::Nginx],
            "nginx",
            |_| nginx("autoindex on;"),
            Faults { hides, ..all },
        ),
        // It writes octets into its JSON as they are, which is no JSON.
        of(
            &[Peer::Nginx],
            "nginx with JSON",
            |_| nginx("autoindex on; autoindex_format json;"),
            Faults {
                hides,
                lacks: |name| !is_utf8(name) || name == b"\xef\xbf\xbd",
            },
        ),
        of(&[Peer::Caddy], "caddy", caddy, all),
        // In its list, octets that are no UTF-8 become surrogates, which are other octets.
        of(
            &[Peer::PythonModule],
            "python3 -m http.server",
            python,
            Faults {
                lacks: |name| !is_utf8(name),
                ..all
            },
        ),
        of(&[Peer::H2o], "h2o", h2o, all),
        // It refuses control characters in a URL.
        of(
            &[Peer::Lighttpd],
            "lighttpd",
            lighttpd,
            Faults {
                lacks: |name| name.iter().any(u8::is_ascii_control),
                ..all
            },
        ),
        of(&[Peer::Apache], "Apache", apache, all),
    ]
}

fn is_utf8(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

/// The names that a server does not list, and those that it cannot list or send, which is told.
#[derive(Clone, Copy)]
struct Faults {
    hides: fn(&[u8]) -> bool,
    lacks: fn(&[u8]) -> bool,
}

/// A server, and its origin.
struct Running {
    origin: String,
    _server: Kind,
}

enum Kind {
    Own(#[allow(dead_code)] Server),
    Foreign(#[allow(dead_code)] Foreign),
    Daemon(#[allow(dead_code)] Daemon),
}

fn mirror(start: fn(&Scratch) -> Outcome<Running>, faults: Faults) -> Outcome {
    let scratch = Scratch::new()?;
    let server = start(&scratch)?;
    let copy = scratch.path().join("copy");
    let mut command = fullbore::client("get", Transport::Cleartext)?;
    command.arg("-r").arg(format!("{}/", server.origin)).arg(&copy);
    let (status, _, said) = run_any(&mut command, std::io::sink(), DEADLINE)?;
    let (wanted, found) = (tree(site()?)?, tree(&copy)?);
    let has = |path: &Path, is: fn(&[u8]) -> bool| path.iter().any(|name| is(name.as_bytes()));
    let listed = wanted.iter().filter(|(path, _)| !has(path, faults.hides));
    let (lacking, expected): (BTreeMap<_, _>, BTreeMap<_, _>) =
        listed.partition(|(path, _)| has(path, faults.lacks));
    let wrong = expected
        .iter()
        .filter(|(path, content)| found.get(**path) != Some(**content))
        .map(|(path, _)| *path);
    let others = found
        .keys()
        .filter(|path| !expected.contains_key(path) && !has(path, faults.lacks));
    let wrong: Vec<&PathBuf> = wrong.chain(others).collect();
    ensure(expected.len() > 800 && wrong.is_empty(), || {
        format!("{} are missing, or others: {wrong:?}\n{said}", wrong.len())
    })?;
    // What is missing is told.
    let is_whole = lacking.is_empty();
    ensure(
        status.success() == is_whole && said.is_empty() == is_whole,
        || format!("{status}: {said}"),
    )
}

/// The files below a folder.
fn tree(root: &Path) -> Outcome<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let relative = path.strip_prefix(root).map_err(|error| error.to_string())?;
            found.insert(relative.to_owned(), fs::read(&path)?);
        }
    }
    Ok(found)
}

/// The folder of the files. Each has its own path as content.
fn site() -> Outcome<&'static Path> {
    static SITE: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    SITE.get_or_init(|| {
        let site = workshop().join("names");
        for folder in std::iter::once(&[][..]).chain(FOLDERS) {
            let mut path = site.clone();
            for (level, &at) in folder.iter().enumerate() {
                // A file beside it has the name itself.
                let name = [NAMES[at], format!("{level}").as_bytes()].concat();
                path.push(OsString::from_vec(name));
            }
            fs::create_dir_all(&path)?;
            let long = LONG.iter().filter(|_| folder.len() < 2);
            for name in NAMES.iter().chain(long) {
                let file = path.join(OsStr::from_bytes(name));
                fs::write(&file, file.as_os_str().as_bytes())?;
            }
        }
        Ok(site)
    })
    .as_deref()
    .map_err(Fault::clone)
}

fn own(_: &Scratch) -> Outcome<Running> {
    let server = Server::start_with(Transport::Cleartext, site()?, Uploads::None, &["--hidden"])?;
    Ok(Running {
        origin: server.url.clone(),
        _server: Kind::Own(server),
    })
}

fn nginx(directives: &str) -> Outcome<Running> {
    let server = Foreign::start_nginx(directives, site()?)?;
    Ok(Running {
        origin: server.origin.clone(),
        _server: Kind::Foreign(server),
    })
}

fn python(_: &Scratch) -> Outcome<Running> {
    let server = Foreign::start_over(Peer::PythonModule, Version::Http1, Transport::Cleartext, site()?)?;
    Ok(Running {
        origin: server.origin.clone(),
        _server: Kind::Foreign(server),
    })
}

/// A server with a configuration for its port.
fn configured(
    peer: Peer,
    scratch: &Scratch,
    arguments: &[&str],
    text: impl Fn(u16, &Path, &Path) -> String,
) -> Outcome<Running> {
    let (root, work) = (site()?, scratch.folder("server")?);
    let (daemon, port) = spawn_on_free_port(|port| {
        let mut command: Command = peer.command()?;
        // caddy keeps its configuration and its state in the user's folders otherwise.
        command.env("XDG_CONFIG_HOME", &work).env("XDG_DATA_HOME", &work);
        command.args(arguments);
        command.arg(scratch.file("server.conf", &text(port, root, &work))?);
        Ok(command)
    })?;
    Ok(Running {
        origin: format!("http://127.0.0.1:{port}"),
        _server: Kind::Daemon(daemon),
    })
}

fn caddy(scratch: &Scratch) -> Outcome<Running> {
    let arguments = ["run", "--adapter", "caddyfile", "--config"];
    configured(Peer::Caddy, scratch, &arguments, |port, root, work| {
        format!(
            "{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {}\n}}\n\
             http://127.0.0.1:{port} {{\n\tbind 127.0.0.1\n\troot * {}\n\tfile_server browse\n}}\n",
            work.display(),
            root.display()
        )
    })
}

fn h2o(scratch: &Scratch) -> Outcome<Running> {
    configured(Peer::H2o, scratch, &["-c"], |port, root, _| {
        format!(
            "num-threads: 1\n{}listen:\n  host: 127.0.0.1\n  port: {port}\n\
             hosts:\n  default:\n    paths:\n      /:\n        file.dir: {}\n        file.dirlisting: ON\n",
            run_as(),
            root.display()
        )
    })
}

fn lighttpd(scratch: &Scratch) -> Outcome<Running> {
    configured(Peer::Lighttpd, scratch, &["-D", "-f"], |port, root, _| {
        format!(
            "server.modules = (\"mod_dirlisting\")\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             server.document-root = \"{}\"\ndir-listing.activate = \"enable\"\ndir-listing.hide-dotfiles = \"disable\"\n",
            root.display()
        )
    })
}

/// In one process: the trial ends it with SIGKILL, and its children would stay.
fn apache(scratch: &Scratch) -> Outcome<Running> {
    configured(Peer::Apache, scratch, &["-X", "-f"], |port, root, work| {
        let modules: String = ["mpm_event", "authz_core", "autoindex"]
            .iter()
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .collect();
        format!(
            "{modules}ServerName localhost\nListen 127.0.0.1:{port}\nServerRoot {work}\nDefaultRuntimeDir {work}\n\
             PidFile {work}/pid\nErrorLog {work}/log\nDocumentRoot {root}\nIndexIgnoreReset ON\n\
             <Directory {root}>\n  Options +Indexes\n  Require all granted\n</Directory>\n",
            work = work.display(),
            root = root.display()
        )
    })
}
