//! Where `serve` listens.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{Site, ask, ask_over_tcp, status};
use crate::support::{Signal, TestResult, program, run, signal};

fn folder() -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.txt"), "hello")?;
    Ok(folder)
}

#[test]
fn every_address_is_served_and_announced_in_the_order_of_the_options() -> TestResult {
    for threads in [&[][..], &["--threads", "2"]] {
        let folder = folder()?;
        let socket = folder.path().join("web.sock");
        let unix = format!("unix:{}", socket.display());
        let listen = [
            "--plaintext",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            &unix,
            "--listen",
            "127.0.0.1:0",
        ];
        let mut site = Site::start(folder.path(), &[&listen, threads].concat())?;
        let first = site.after("listening on ")?;
        assert_eq!(site.line()?, format!("listening on {unix} (http)"));
        let second = site.after("listening on ")?;
        assert_ne!(first, second);
        for origin in [first, second] {
            let response = ask_over_tcp(&origin, "GET /a.txt", "")?;
            assert!(response.ends_with("\r\n\r\nhello"), "{response}");
        }
        assert_eq!(fs::metadata(&socket)?.mode() & 0o777, 0o600);
        for _ in 0..8 {
            let response = ask(UnixStream::connect(&socket)?, "GET /a.txt", "")?;
            assert!(response.ends_with("\r\n\r\nhello"), "{response}");
        }
        signal(&site.child, Signal::Terminate)?;
        assert_eq!(site.child.wait()?.code(), Some(0));
        assert!(!socket.exists());
    }
    Ok(())
}

#[test]
fn a_port_alone_is_that_of_this_machine_in_both_versions_of_ip() -> TestResult {
    let folder = folder()?;
    // The port was free a moment ago.
    let mut tries = 0..5;
    let (mut site, port) = loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut site = Site::start(folder.path(), &["--plaintext", "-p", &port])?;
        match site.after("listening on ") {
            Ok(origin) => {
                assert_eq!(origin, format!("http://127.0.0.1:{port}"));
                break (site, port);
            }
            Err(error) if tries.next().is_none() => return Err(error),
            Err(_) => {}
        }
    };
    assert_eq!(
        status(&ask_over_tcp(
            &format!("http://127.0.0.1:{port}"),
            "GET /a.txt",
            ""
        )?),
        "200"
    );
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(site.line()?, format!("listening on http://[::1]:{port}"));
        assert_eq!(
            status(&ask_over_tcp(&format!("http://[::1]:{port}"), "GET /a.txt", "")?),
            "200"
        );
    }
    Ok(())
}

#[test]
fn every_address_of_ipv6_takes_ipv4_too() -> TestResult {
    if TcpListener::bind("[::]:0").is_err() {
        return Ok(());
    }
    for threads in [&[][..], &["--threads", "2"]] {
        let folder = folder()?;
        let listen = ["--plaintext", "--listen", "[::]:0"];
        let mut site = Site::start(folder.path(), &[&listen, threads].concat())?;
        let port = site.after("listening on http://[::]:")?;
        for host in ["127.0.0.1", "[::1]"] {
            let response = ask_over_tcp(&format!("http://{host}:{port}"), "GET /a.txt", "")?;
            assert_eq!(status(&response), "200");
        }
    }
    Ok(())
}

#[test]
fn a_socket_that_nobody_serves_is_replaced_and_any_other_file_stays() -> TestResult {
    let folder = folder()?;
    let socket = folder.path().join("web.sock");
    let unix = format!("unix:{}", socket.display());
    let args = ["serve", "--plaintext", "--listen", &unix, "--socket-mode", "666"];
    drop(UnixListener::bind(&socket)?);
    let mut site = Site::spawn(program(folder.path()).args(args))?;
    site.after("listening on unix:")?;
    assert_eq!(fs::metadata(&socket)?.mode() & 0o777, 0o666);
    let ended = run(folder.path(), args)?;
    ended.failed_with(5);
    assert!(
        ended.stderr.contains("another program listens there"),
        "{ended:?}"
    );
    assert_eq!(
        status(&ask(UnixStream::connect(&socket)?, "GET /a.txt", "")?),
        "200"
    );
    drop(site);
    // It was killed.
    assert!(socket.exists());
    fs::remove_file(&socket)?;
    fs::write(&socket, "a file")?;
    let ended = run(folder.path(), args)?;
    ended.failed_with(5);
    assert!(ended.stderr.contains("is not a socket"), "{ended:?}");
    assert_eq!(fs::read(&socket)?, b"a file");
    Ok(())
}

/// As systemd does: the sockets are descriptors 3 and following, and LISTEN_PID is the process that becomes the server.
fn passed(folder: &std::path::Path, descriptors: [i32; 2]) -> Command {
    let mut shell = Command::new("bash");
    shell
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .env("LISTEN_FDS", "2")
        .arg("-c")
        .arg(format!(
            "exec {{tcp}}<&{} {{unix}}<&{}; exec 3<&$tcp 4<&$unix; LISTEN_PID=$$ exec \"$@\"",
            descriptors[0], descriptors[1]
        ))
        .arg0("bash")
        .args(["bash", env!("CARGO_BIN_EXE_fullbore"), "serve", "--plaintext"]);
    shell
}

#[test]
fn sockets_that_systemd_passes_take_the_place_of_the_default_address() -> TestResult {
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::os::fd::AsRawFd;
    for threads in [&[][..], &["--threads", "2"]] {
        let folder = folder()?;
        let socket = folder.path().join("web.sock");
        let (tcp, unix) = (TcpListener::bind("127.0.0.1:0")?, UnixListener::bind(&socket)?);
        fcntl_setfd(&tcp, FdFlags::empty())?;
        fcntl_setfd(&unix, FdFlags::empty())?;
        let address = tcp.local_addr()?;
        let mut command = passed(folder.path(), [tcp.as_raw_fd(), unix.as_raw_fd()]);
        let mut site = Site::spawn(command.args(threads))?;
        assert_eq!(site.line()?, format!("listening on http://{address}"));
        assert_eq!(
            site.line()?,
            format!("listening on unix:{} (http)", socket.display())
        );
        for _ in 0..4 {
            assert_eq!(
                status(&ask(TcpStream::connect(address)?, "GET /a.txt", "")?),
                "200"
            );
            assert_eq!(
                status(&ask(UnixStream::connect(&socket)?, "GET /a.txt", "")?),
                "200"
            );
        }
        signal(&site.child, Signal::Terminate)?;
        assert_eq!(site.child.wait()?.code(), Some(0));
        // It belongs to systemd.
        assert!(socket.exists());
    }
    Ok(())
}

#[test]
fn the_environment_sets_options_and_the_command_line_precedes_it() -> TestResult {
    let folder = folder()?;
    let mut command = program(folder.path());
    command
        .env("FULLBORE_PLAINTEXT", "true")
        .env("FULLBORE_LISTEN", "127.0.0.1:0\n127.0.0.1:0")
        .env("FULLBORE_HEADER", "x-one: a, b\nx-two: c")
        .env("FULLBORE_CACHE_CONTROL", "no-store")
        .args(["serve", "--cache-control", "max-age=60"]);
    let mut site = Site::spawn(&mut command)?;
    let first = site.after("listening on ")?;
    assert_ne!(first, site.after("listening on ")?);
    let response = ask_over_tcp(&first, "GET /a.txt", "")?;
    assert_eq!(super::values(&response, "x-one"), ["a, b"]);
    assert_eq!(super::values(&response, "x-two"), ["c"]);
    assert_eq!(super::values(&response, "cache-control"), ["max-age=60"]);
    Ok(())
}
