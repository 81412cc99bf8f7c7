//! `fullbore serve` under seccomp filters that deny one system call each, as sandboxes do; and `fullbore get` without the
//! calls that some file systems lack.
//!
//! This program runs itself again with a filter on, and then becomes `fullbore` (exec keeps filters).

#[cfg(target_os = "linux")]
mod support;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::{Command, ExitCode};

    use bytes::Bytes;
    use fullbore::Client;
    use http::Request;
    use http_body_util::{BodyExt as _, Full};
    use libtest_mimic::{Arguments, Failed, Trial};
    use seccompiler::SeccompCmpArgLen::Dword;
    use seccompiler::SeccompCmpOp::MaskedEq;
    use seccompiler::{SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

    use super::support::scripted::{HALF, Server, Then, V1, body, half, holds, rest, whole};
    use super::support::{Serving, TestResult};

    /// What a process is to be denied, and with which error, such as `splice 38`.
    const DENIED: &str = "FULLBORE_TEST_DENIED";

    /// The call as the tests name it, its number, and what an argument is to be like for a call to be denied.
    type Call = (&'static str, i64, Option<(u8, u64)>);

    const O_TMPFILE: u64 = libc::O_TMPFILE as u64;

    /// Calls that some file systems do not have, as `get` needs them; those of a row are denied together.
    const LACKED: [&str; 2] = ["flock", "renameat2+linkat"];

    /// What the file systems of the tests for `get` lack.
    const MORE_CALLS: [Call; 1] = [("flock", libc::SYS_flock, None)];

    /// Whatever optional call `serve` makes.
    const CALLS: [Call; 13] = [
        ("splice", libc::SYS_splice, None),
        ("pipe2", libc::SYS_pipe2, None),
        (
            "F_SETPIPE_SZ",
            libc::SYS_fcntl,
            Some((1, libc::F_SETPIPE_SZ as u64)),
        ),
        ("preadv2", libc::SYS_preadv2, None),
        ("openat2", libc::SYS_openat2, None),
        ("statx", libc::SYS_statx, None),
        ("fadvise64", libc::SYS_fadvise64, None),
        ("fstatfs", libc::SYS_fstatfs, None),
        ("prlimit64", libc::SYS_prlimit64, None),
        ("O_TMPFILE", libc::SYS_openat, Some((2, O_TMPFILE))),
        ("linkat", libc::SYS_linkat, None),
        ("renameat2", libc::SYS_renameat2, None),
        ("copy_file_range", libc::SYS_copy_file_range, None),
    ];

    const ERRORS: [(&str, i32); 4] = [
        ("EPERM", libc::EPERM),
        ("ENOSYS", libc::ENOSYS),
        ("EINVAL", libc::EINVAL),
        ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ];

    pub(super) fn main() -> ExitCode {
        if let Ok(denied) = std::env::var(DENIED) {
            let failed = become_fullbore(&denied);
            eprintln!("no filter: {failed:?}");
            return ExitCode::from(77);
        }
        let arguments = Arguments::from_args();
        // One that denies what nobody calls says whether this machine has filters at all.
        let here = run_under("copy_file_range", libc::ENOSYS);
        let why = here.err().map(|error| error.to_string());
        if let Some(why) = &why {
            eprintln!("skipped: seccomp filters cannot be had here: {why}");
        }
        let served = CALLS.iter().map(|&(name, ..)| {
            let title = format!("files are served and uploads are stored where {name} is denied");
            Trial::test(title, move || under_each_error(name, run_under))
        });
        let stored = LACKED.iter().map(|&names| {
            let title = format!("a download gets its name and leaves nothing else where {names} is denied");
            Trial::test(title, move || under_each_error(names, get_under))
        });
        let trials = served.chain(stored);
        let trials = trials
            .map(|trial| trial.with_ignored_flag(why.is_some()))
            .collect();
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    /// Puts the filter on this process and has it become the program, with the arguments that it has.
    fn become_fullbore(denied: &str) -> TestResult {
        let (names, error) = denied.rsplit_once(' ').ok_or("no error is named")?;
        let mut rules = std::collections::BTreeMap::new();
        for name in names.split('+') {
            let mut calls = CALLS.iter().chain(&MORE_CALLS);
            let &(_, number, argument) = calls.find(|row| row.0 == name).ok_or("no such call")?;
            let conditions = match argument {
                None => Vec::new(),
                Some((at, bits)) => {
                    let condition = SeccompCondition::new(at, Dword, MaskedEq(bits), bits)?;
                    vec![SeccompRule::new(vec![condition])?]
                }
            };
            rules.insert(number, conditions);
        }
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(error.parse()?),
            TargetArch::try_from(std::env::consts::ARCH)?,
        )?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
        let arguments = std::env::args_os().skip(1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullbore"));
        Err(command.env_remove(DENIED).args(arguments).exec().into())
    }

    fn under_each_error(name: &str, run: fn(&str, i32) -> TestResult) -> Result<(), Failed> {
        for (error, number) in ERRORS {
            run(name, number).map_err(|failed| format!("{name} fails with {error}: {failed}"))?;
        }
        Ok(())
    }

    /// Downloads twice from a server, to a program to which calls are denied: the first response breaks off.
    fn get_under(names: &str, error: i32) -> TestResult {
        let server = Server::start(|number, asked| match (number, asked.is_whole()) {
            (1, _) => (half(asked, V1, &body(1)), Then::Close),
            (_, true) => (whole(asked, V1, &body(1)), Then::Go),
            (_, false) => (rest(asked, V1, &body(1), HALF), Then::Go),
        })?;
        let folder = tempfile::tempdir()?;
        let state = tempfile::tempdir()?;
        let get = || {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .current_dir(folder.path())
                .env(DENIED, format!("{names} {error}"))
                .env("XDG_STATE_HOME", state.path())
                .args(["get", "-o", "out", &server.url()]);
            super::support::ended(&mut command)
        };
        let broken = get()?;
        let is_kept = broken.stderr.contains("the next run resumes it");
        let left = super::support::names(folder.path())?;
        // A part and its record. Without locks two runs could write to one part.
        let expected = 2 * usize::from(names != "flock");
        if broken.code != Some(10) || left.len() != expected || is_kept != (expected > 0) {
            return Err(format!("{broken:?} left {left:?}").into());
        }
        let ended = get()?;
        if ended.code != Some(0) || super::support::names(folder.path())? != ["out"] {
            return Err(format!("{ended:?}").into());
        }
        holds(folder.path(), &body(1))
    }

    /// Asks for all kinds of answers of a server to which a call is denied.
    fn run_under(name: &str, error: i32) -> TestResult {
        let home = tempfile::tempdir()?;
        let (root, uploads) = (home.path().join("root"), home.path().join("uploads"));
        fs::create_dir_all(root.join("sub"))?;
        fs::create_dir(&uploads)?;
        let long: Vec<u8> = (0..3_000_000_usize).map(|at| (at ^ (at >> 9)) as u8).collect();
        fs::write(root.join("long"), &long)?;
        fs::write(root.join("sub/short"), "short")?;
        for sendfile in [true, false] {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .env(DENIED, format!("{name} {error}"))
                .arg("serve")
                .arg(&root);
            command
                .args(["--plaintext", "--overwrite", "--uploads"])
                .arg(&uploads);
            if sendfile {
                command.arg("--sendfile");
            }
            let serving = Serving::spawn(&mut command)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(ask_for_all(&serving.origin, &long, &uploads))?;
        }
        Ok(())
    }

    async fn ask_for_all(origin: &str, long: &[u8], uploads: &Path) -> TestResult {
        let client = Client::new();
        // Twice, for what is denied the first time is remembered.
        for round in 0..2 {
            for (path, status, expected) in [
                ("/sub/short", 200, Some(&b"short"[..])),
                ("/long", 200, Some(long)),
                ("/none", 404, None),
                ("/sub", 308, None),
                ("/sub/short/none", 404, None),
            ] {
                let response = client.get(format!("{origin}{path}")).await?;
                if response.status() != status {
                    return Err(format!("{path}: {}", response.status()).into());
                }
                let body = response.into_body().collect().await?.to_bytes();
                if expected.is_some_and(|expected| expected != body) {
                    return Err(format!("{path}: {} octets, not what is in the file", body.len()).into());
                }
            }
            for (path, name) in [("", "long"), ("sub/", "short")] {
                let body = client
                    .get(format!("{origin}/{path}"))
                    .await?
                    .into_body()
                    .collect()
                    .await?
                    .to_bytes();
                let link = format!("<a href=\"{name}\">");
                if !String::from_utf8_lossy(&body).contains(&link) {
                    return Err(format!("/{path} is not listed").into());
                }
            }
            let content = vec![round; 100_000];
            for path in ["up", &format!("new-{round}/folder/up")] {
                let body = Full::new(Bytes::from(content.clone()));
                let response = client
                    .request(Request::put(format!("{origin}/{path}")).body(body)?)
                    .await?;
                if !response.status().is_success() {
                    return Err(format!("PUT {path}: {}", response.status()).into());
                }
                if fs::read(uploads.join(path))? != content {
                    return Err("an upload is not what was sent".into());
                }
            }
        }
        Ok(())
    }
}
