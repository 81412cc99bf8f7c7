//! Completions and man pages, which packagers generate with the program, and the help.

use std::path::Path;

use crate::support::{TestResult, names, program, run};

#[test]
fn every_shell_gets_completions_of_every_command() -> TestResult {
    for (shell, mark) in [
        ("bash", "complete -F _fullbore"),
        ("zsh", "#compdef fullbore"),
        ("fish", "complete -c fullbore"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let ended = run(Path::new("."), ["completions", shell])?;
        ended.succeeded();
        let text = String::from_utf8(ended.stdout)?;
        for part in [mark, "get", "serve", "skip-existing", "checksum"] {
            assert!(text.contains(part), "{shell}: {part}");
        }
    }
    assert_eq!(run(Path::new("."), ["completions", "csh"])?.code, Some(2));
    Ok(())
}

#[test]
fn bash_accepts_its_completions() -> TestResult {
    let text = run(Path::new("."), ["completions", "bash"])?.stdout;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("fullbore"), text)?;
    let checked = std::process::Command::new("bash")
        .current_dir(folder.path())
        .args(["-c", ". ./fullbore && complete -p fullbore"])
        .output();
    match checked {
        Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
        Err(_) => eprintln!("skipped: no bash"),
    }
    Ok(())
}

#[test]
fn every_command_has_a_man_page() -> TestResult {
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["man", "pages"])?.succeeded();
    let pages = folder.path().join("pages");
    let expected = [
        "completions",
        "demo",
        "get",
        "hash-password",
        "link",
        "man",
        "proxy",
        "put",
        "serve",
    ];
    let mut expected: Vec<String> = expected.iter().map(|name| format!("fullbore-{name}.1")).collect();
    expected.push("fullbore.1".to_owned());
    assert_eq!(names(&pages)?, expected);
    let page = std::fs::read_to_string(pages.join("fullbore-get.1"))?;
    assert!(page.starts_with(".ie") || page.starts_with(".TH"), "{page:.100}");
    assert!(
        page.contains("\\-\\-checksum") && page.contains("EXTRA"),
        "{page:.2000}"
    );
    let first = run(folder.path(), ["man"])?;
    first.succeeded();
    assert_eq!(first.stdout, std::fs::read(pages.join("fullbore.1"))?);
    std::fs::write(folder.path().join("file"), "")?;
    run(folder.path(), ["man", "file"])?.failed_with(17);
    Ok(())
}

/// What prints text and ends.
const PRINTS: [&[&str]; 7] = [
    &["--help"],
    &["-h"],
    &["--version"],
    &["help", "get"],
    &["serve", "--help"],
    &["completions", "bash"],
    &["man"],
];

#[cfg(target_os = "linux")]
#[test]
fn text_that_cannot_be_printed_is_a_failure() -> TestResult {
    for args in PRINTS {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
        let output = program(Path::new(".")).args(args).stdout(full).output()?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(17), "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("fullbore: cannot write to standard output: the disk is full"),
            "{args:?}: {stderr}"
        );
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_reader_that_closes_the_help_hears_no_complaint() -> TestResult {
    for args in PRINTS {
        let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
        drop(reader);
        let writer = std::os::fd::OwnedFd::from(writer);
        let output = program(Path::new(".")).args(args).stdout(writer).output()?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(17), "{args:?}: {stderr}");
        let is_help = !["completions", "man"].contains(&args[0]);
        assert_eq!(stderr.is_empty(), is_help, "{args:?}: {stderr}");
    }
    Ok(())
}
