//! `fullbore serve` under seccomp filters that deny one system call each, as sandboxes do.
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

    use super::support::{Serving, TestResult};

    /// What a process is to be denied, and with which error, such as `splice 38`.
    const DENIED: &str = "FULLBORE_TEST_DENIED";

    /// The call as the tests name it, its number, and what an argument is to be like for a call to be denied.
    type Call = (&'static str, i64, Option<(u8, u64)>);

    const O_TMPFILE: u64 = libc::O_TMPFILE as u64;

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
        let trials = CALLS
            .iter()
            .map(|&(name, ..)| {
                let title = format!("files are served and uploads are stored where {name} is denied");
                Trial::test(title, move || under_each_error(name)).with_ignored_flag(why.is_some())
            })
            .collect();
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    /// Puts the filter on this process and has it become the program, with the arguments that it has.
    fn become_fullbore(denied: &str) -> TestResult {
        let (name, error) = denied.rsplit_once(' ').ok_or("no error is named")?;
        let &(_, number, argument) = CALLS.iter().find(|row| row.0 == name).ok_or("no such call")?;
        let rules = match argument {
            None => Vec::new(),
            Some((at, bits)) => {
                let condition = SeccompCondition::new(at, Dword, MaskedEq(bits), bits)?;
                vec![SeccompRule::new(vec![condition])?]
            }
        };
        let filter = SeccompFilter::new(
            [(number, rules)].into(),
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

    fn under_each_error(name: &str) -> Result<(), Failed> {
        for (error, number) in ERRORS {
            run_under(name, number).map_err(|failed| format!("{name} fails with {error}: {failed}"))?;
        }
        Ok(())
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
        let client = Client::new()?;
        // Twice, for what is denied the first time is remembered.
        for round in 0..2 {
            for (path, status, expected) in [
                ("/sub/short", 200, Some(&b"short"[..])),
                ("/long", 200, Some(long)),
                ("/none", 404, None),
                ("/sub", 308, None),
                ("/sub/short/none", 404, None),
            ] {
                let response = client.get(&format!("{origin}{path}")).await?;
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
                    .get(&format!("{origin}/{path}"))
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
