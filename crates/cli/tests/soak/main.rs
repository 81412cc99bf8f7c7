//! Long tests of the program and the library: random operations in which every byte is checked and nothing may be left
//! over (`soak`), and transfers whose two ends are killed again and again (`kills`). Both are ignored by default. `.ci/run`
//! runs them for some minutes; the variables set longer runs:
//!
//! ```text
//! MALLOC_ARENA_MAX=1 FULLBORE_SOAK_MINUTES=60 FULLBORE_KILLS=50 cargo test -p fullbore-cli --test soak -- --ignored --nocapture
//! ```
#![cfg(target_os = "linux")]

#[path = "../support/mod.rs"]
mod support;

mod body;
mod kills;
mod operations;
mod programs;
mod resumed_uploads;
mod run;
mod service;
mod watch;

/// What every step returns.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The number in an environment variable.
fn variable(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number"))
    })
}
