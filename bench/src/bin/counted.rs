//! The program `fullbore-bench-counted`: `fullbore-bench` on an allocator that counts, which costs it some time. The cases
//! start it where allocations are the figure, and never where time is.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    fullbore_bench::run_program()
}
