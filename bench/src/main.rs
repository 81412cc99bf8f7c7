//! The program `fullbore-bench`: see the library of the same name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fullbore_bench::run_program()
}
