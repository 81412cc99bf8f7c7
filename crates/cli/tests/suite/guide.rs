//! The first hour of a new user (`docs/guide/first-hour.md`), run as it is written: each command of a `console` block, and what
//! the guide says that it prints. `…` stands for any text in a line, and a line of it for any lines.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{OtherCause, TestResult, measured, without_proxies};

/// A command, and the lines that it prints.
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The steps of all `console` blocks.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in guide.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    expected: Vec::new(),
                }),
                (None, Some(step)) => step.expected.push(line.to_owned()),
                (None, None) => {}
            }
        }
    }
    steps
}

/// Whether a line is what the guide says, where `…` is any text.
fn fits(line: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Whether lines are what the guide says, where a line `…` is any number of lines.
fn all_fit(lines: &[&str], expected: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, others)) if first == "…" => {
            (0..=lines.len()).any(|count| all_fit(&lines[count..], others))
        }
        Some((first, others)) => lines
            .split_first()
            .is_some_and(|(line, rest)| fits(line, first) && all_fit(rest, others)),
    }
}

/// The guide without one part, from its heading to the next.
fn without(guide: &str, heading: &str) -> String {
    let (before, after) = guide.split_once(heading).unwrap_or((guide, ""));
    let rest = after.find("\n## ").map_or("", |at| &after[at..]);
    format!("{before}{rest}")
}

/// Free ports in the place of those of the guide.
fn with_free_ports(guide: &str) -> TestResult<String> {
    let mut guide = guide.to_owned();
    for port in ["8080", "8081", "9000", "8888"] {
        let free = fullbore_testing::process::free_port()?;
        for place in [":", "Port "] {
            guide = guide.replace(&format!("{place}{port}"), &format!("{place}{free}"));
        }
    }
    Ok(guide)
}

/// `timeout -s INT 1` for a download of `big.iso`, but with the signal when a part of it is there: on a busy machine that takes
/// longer than a second. A download that was complete before is had again.
const INTERRUPTED: &str = r#"
timeout() {
    shift 3
    while rm -f big.iso; do
        set -m
        "$@" & child=$!
        set +m
        while kill -0 $child 2> /dev/null && [ ! -s big.iso.part ]; do sleep 0.05; done
        kill -INT $child 2> /dev/null
        wait $child
        [ -e big.iso ] || break
    done
}
"#;

/// One script for all commands. Output of the background is shown when its first line is there.
fn script(steps: &[Step]) -> String {
    let mut script = String::from("trap 'kill $(jobs -p) 2>/dev/null' EXIT\nexec 2>&1\n");
    script.push_str(INTERRUPTED);
    for (number, step) in steps.iter().enumerate() {
        script.push_str(&format!("echo '@@@ {number}'\n"));
        match step.command.strip_suffix(" &") {
            None => script.push_str(&format!("{}\n", step.command)),
            Some(command) => {
                // tinyproxy prints its first line before it listens.
                let ready = if command.starts_with("tinyproxy") {
                    "(exec 3<>/dev/tcp/127.0.0.1/$(sed -n 's/^Port //p' proxy.conf)) 2> /dev/null".to_owned()
                } else {
                    format!("[ -s .log{number} ]")
                };
                script.push_str(&format!(
                    "{command} > .log{number} &\nfor i in $(seq 600); do {ready} && break; sleep 0.1; done\n\
                     cat .log{number}\n"
                ));
            }
        }
    }
    script.push_str("echo '@@@ end'\n");
    script
}

#[test]
fn the_first_hour_of_a_new_user_prints_what_the_guide_says() -> TestResult {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/first-hour.md");
    let mut guide = with_free_ports(&fs::read_to_string(path)?)?;
    let missing = |tool: &str| Command::new(tool).arg("--version").output().is_err();
    let required = std::env::var("FULLBORE_PEERS").is_ok_and(|peers| peers == "required");
    if missing("tinyproxy") {
        assert!(!required, "no tinyproxy (Debian: tinyproxy-bin)");
        eprintln!("skipped: no tinyproxy for the part about proxies");
        guide = without(&guide, "## Through a proxy");
    }
    let steps = steps(&guide);
    assert!(steps.len() >= 12, "{} steps", steps.len());
    for tool in ["curl", "sha256sum"] {
        if missing(tool) {
            assert!(!required, "no {tool}");
            eprintln!("skipped: no {tool}");
            return Ok(());
        }
    }
    measured(|| follow(&steps))
}

/// Types what the steps say, and compares what is printed.
fn follow(steps: &[Step]) -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = Path::new(env!("CARGO_BIN_EXE_fullbore"));
    let programs = program.parent().ok_or("no folder")?;
    let search = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    without_proxies(&mut bash);
    let output = bash
        .env_remove("RUST_LOG")
        .current_dir(folder.path())
        .env("PATH", format!("{}:{search}", programs.display()))
        .env("XDG_STATE_HOME", folder.path().join(".state"))
        .env("HOME", folder.path())
        .args(["-c", &script(steps)])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut wrong = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let said = text.split(&format!("@@@ {number}\n")).nth(1).unwrap_or_default();
        let said = said.split("@@@ ").next().unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        if !all_fit(&lines, &step.expected) {
            wrong.push(format!(
                "$ {}\n--- the guide:\n{}\n--- printed:\n{said}",
                step.command,
                step.expected.join("\n")
            ));
        }
    }
    // The step that tells what a download waited for.
    if let [wrong] = wrong.as_slice() {
        if wrong.contains("limited by the path") {
            return Err(OtherCause(wrong.clone()).into());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

#[test]
fn a_part_is_left_out_from_its_heading_to_the_next() {
    let guide = "# a\n## b\nx\n## c\ny\n";
    assert_eq!(without(guide, "## b"), "# a\n\n## c\ny\n");
    assert_eq!(without(guide, "## c"), "# a\n## b\nx\n");
    assert_eq!(without(guide, "## d"), guide);
}

#[test]
fn three_dots_are_any_text_and_nothing_else_is() {
    assert!(fits("fullbore 0.1.0", "fullbore …") && fits("a b c", "a…c") && fits("a", "a"));
    assert!(!fits("fullbore", "fullbore …") && !fits("a b d", "a…c") && !fits("ab", "a"));
    let expected = ["a", "…", "d"].map(ToOwned::to_owned);
    assert!(all_fit(&["a", "b", "c", "d"], &expected) && all_fit(&["a", "d"], &expected));
    assert!(!all_fit(&["a", "b", "c"], &expected) && !all_fit(&["b", "d"], &expected));
}
