//! valgrind's callgrind: the instructions of a program, by function.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::unexpected;
use crate::context::Context;
use crate::error::Error;
use crate::process;

/// callgrind runs a program some fifty times as slowly.
const LIMIT: Duration = Duration::from_secs(300);

/// What one run of a program took.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Instructions in each function itself.
    pub(crate) own: BTreeMap<String, u64>,
    /// With those in the functions that it calls.
    pub(crate) with_calls: BTreeMap<String, u64>,
}

impl Profile {
    /// The instructions in the function of that name and in what it calls.
    pub(crate) fn of(&self, function: &str) -> u64 {
        self.with_calls.get(function).copied().unwrap_or(0)
    }
}

/// Runs a program under callgrind. Whenever it enters or leaves a function whose name has one of these patterns,
/// counting begins or ends.
pub(crate) fn run(cx: &Context, program: &Command, toggles: &[&str]) -> Result<Profile, Error> {
    let file = cx.folder("callgrind")?.join("out");
    let mut command = under(&file);
    command.args(toggles.iter().map(|name| format!("--toggle-collect={name}")));
    command.arg(program.get_program()).args(program.get_args());
    process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
    let annotated = |inclusive: &str| {
        let mut command = Command::new("callgrind_annotate");
        command.args([
            "--threshold=100",
            "--auto=no",
            &format!("--inclusive={inclusive}"),
        ]);
        let output = process::run(&cx.reaper, command.arg(&file), cx.limit(LIMIT)?)?;
        functions(&output.stdout, inclusive == "yes")
    };
    Ok(Profile {
        own: annotated("no")?,
        with_calls: annotated("yes")?,
    })
}

/// A program under which another counts its instructions, all of them, and writes them to `file` when it ends.
pub(crate) fn under(file: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command
}

/// The instructions that it has written there.
pub(crate) fn total(file: &Path) -> Result<u64, Error> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::File(file.to_owned(), error))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    totals
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| unexpected("callgrind", "no line `totals:`"))
}

/// The rows `COUNT (SHARE%) FILE:FUNCTION [OBJECT]`: one function has a row for each file of which something was inlined
/// into it, whose counts add up; of inclusive ones the largest is that of the whole function.
fn functions(text: &str, inclusive: bool) -> Result<BTreeMap<String, u64>, Error> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, count)) = function(line) else {
            continue;
        };
        let sum = all.entry(name.to_owned()).or_default();
        *sum = if inclusive {
            (*sum).max(count)
        } else {
            *sum + count
        };
    }
    if all.is_empty() {
        return Err(unexpected("callgrind_annotate", "no functions"));
    }
    Ok(all)
}

fn function(line: &str) -> Option<(&str, u64)> {
    let (count, rest) = line.trim_start().split_once(" (")?;
    let count = count.replace(',', "").parse().ok()?;
    let (share, place) = rest.split_once("%)")?;
    share.trim().parse::<f64>().ok()?;
    let (_file, name) = place.trim().split_once(':')?;
    let name = match name.rsplit_once(" [") {
        Some((name, object)) if object.ends_with(']') => name,
        _ => name,
    };
    Some((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "Event sort order: Ir\n\
        40,985,523 (100.0%)  PROGRAM TOTALS\n\n\
        3,688,527 ( 9.00%)  ./string/memmove.S:__memcpy_avx [/usr/lib/libc.so.6]\n\
        \x20 200,000 ( 0.49%)  src/map.rs:krate::Map<T>::get_all [/target/release/program]\n\
        \x20  50,000 ( 0.12%)  /rustc/5/core/ptr.rs:krate::Map<T>::get_all\n";

    #[test]
    fn what_was_inlined_counts_for_the_function_that_it_is_in() {
        let all = functions(OWN, false).expect("there are functions");
        assert_eq!(all.get("krate::Map<T>::get_all"), Some(&250_000));
        assert_eq!(all.get("__memcpy_avx"), Some(&3_688_527));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn inclusive_rows_of_one_function_are_not_added_up() {
        let all = functions(OWN, true).expect("there are functions");
        assert_eq!(all.get("krate::Map<T>::get_all"), Some(&200_000));
    }

    #[test]
    fn a_text_without_functions_is_no_profile() {
        assert!(functions("valgrind: no such program\n", false).is_err());
    }
}
