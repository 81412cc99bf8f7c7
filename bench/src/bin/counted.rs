//! The program `fullbore-bench-counted`: `fullbore-bench` on an allocator that counts, for cases that measure allocations and
//! not time.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    fullbore_bench::run_program()
}
