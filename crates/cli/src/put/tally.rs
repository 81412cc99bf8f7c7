//! The result of an upload of many files: failures by kind, a closing line, or one JSON document.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::figures::{grouped, rate};
use crate::run;
use crate::transfer::output::{Format, json, moved};
use crate::transfer::progress::Progress;
use crate::transfer::waits::Waits;
use crate::volume::Volume;

use super::tree::LeftOut;

/// So many failures of a kind are printed with their names. The others are counted.
const SHOWN_OF_A_KIND: u64 = 3;
/// So many kinds are told apart. A server may answer each request in other words.
const MOST_KINDS: usize = 100;

/// The report of a run. Dropping it unfinished still closes the document.
pub(super) struct Tally {
    format: Format,
    volume: Volume,
    progress: Arc<Progress>,
    left_out: Arc<LeftOut>,
    begun: Instant,
    /// When the last transfer had ended.
    ended: Option<Instant>,
    sent: u64,
    bytes: u64,
    same: u64,
    failures: u64,
    first_failure: Option<Exit>,
    /// How many failures there are of each sentence without its place and its numbers; and the first one, without its place.
    kinds: BTreeMap<String, (u64, String)>,
    /// Whether the rest was not sent.
    is_stopped: bool,
    waited: Option<Waits>,
    finished: bool,
}

impl Tally {
    pub(super) fn new(
        format: Format,
        volume: Volume,
        progress: Arc<Progress>,
        left_out: Arc<LeftOut>,
    ) -> Self {
        Self {
            format,
            volume,
            progress,
            left_out,
            begun: Instant::now(),
            ended: None,
            sent: 0,
            bytes: 0,
            same: 0,
            failures: 0,
            first_failure: None,
            kinds: BTreeMap::new(),
            is_stopped: false,
            waited: None,
            finished: false,
        }
    }

    /// A file was sent.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.progress.ended();
        self.sent += 1;
        self.bytes += bytes;
    }

    /// The server has this file.
    pub(super) fn same(&mut self) {
        self.progress.ended();
        self.same += 1;
    }

    /// `place` is the file or the URL that the sentence names.
    pub(super) fn failed(&mut self, place: &str, failure: &Failure) {
        self.progress.ended();
        let is_first = self.failures == 0;
        self.failures += 1;
        self.first_failure.get_or_insert(failure.exit);
        let mut sentence = match place.is_empty() {
            true => failure.message.clone(),
            false => failure.message.replace(place, "…"),
        };
        if let Some(body) = &failure.body {
            sentence.push_str(&format!(" ({body})"));
        }
        let mut kind: String = sentence.chars().filter(|c| !c.is_ascii_digit()).collect();
        if !self.kinds.contains_key(&kind) && self.kinds.len() >= MOST_KINDS {
            kind = String::new();
            sentence = "various reasons".to_owned();
        }
        let (count, _) = self.kinds.entry(kind).or_insert((0, sentence));
        *count += 1;
        if *count <= SHOWN_OF_A_KIND && self.volume.prints_errors() {
            self.progress.aside(|| run::complain(failure));
        }
        if self.format != Format::Text {
            #[derive(Serialize)]
            struct Entry<'a> {
                place: &'a str,
                error: &'a Failure,
            }
            let before = if is_first { "{\"failures\":[\n" } else { ",\n" };
            let entry = json(&Entry {
                place,
                error: failure,
            });
            self.print(&format!("{before}{entry}"));
        }
    }

    /// Nothing more is sent.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The uploads have ended: what follows takes no part in their time.
    pub(super) fn set_ended(&mut self) {
        self.ended = Some(Instant::now());
        self.progress.clear();
    }

    /// Prints the totals; the exit code is that of the first failure.
    pub(super) fn finish(mut self, waited: Option<Waits>) -> ExitCode {
        self.waited = waited;
        self.close(false);
        self.first_failure.map_or(ExitCode::SUCCESS, ExitCode::from)
    }

    fn close(&mut self, interrupted: bool) {
        self.finished = true;
        self.progress.clear();
        let seconds = (self.ended.unwrap_or_else(Instant::now) - self.begun).as_secs_f64();
        if self.volume.prints_errors() {
            for (count, kind) in self.kinds.values() {
                if *count > SHOWN_OF_A_KIND {
                    let more = *count - SHOWN_OF_A_KIND;
                    let noun = if more == 1 { "failure" } else { "failures" };
                    run::complain(&format!("{} more {noun} like this: {kind}", grouped(more)));
                }
            }
            if self.is_stopped && !interrupted {
                run::complain(&"the rest was not sent, as it would fail in the same way");
            }
        }
        if self.volume.prints_notes() {
            for note in self.left_out.notes() {
                run::complain(&note);
            }
        }
        if self.format != Format::Text {
            let end = self.end_of_document(seconds, interrupted);
            self.print(&end);
        }
        if self.volume.prints_summary() && !interrupted {
            let _ = writeln!(io::stderr(), "{}", self.closing_line(seconds));
        }
    }

    fn end_of_document(&self, seconds: f64, interrupted: bool) -> String {
        use std::sync::atomic::Ordering::Relaxed;
        let totals = Totals {
            sent: self.sent,
            same: self.same,
            failures: self.failures,
            bytes: self.bytes,
            hidden: self.left_out.hidden.load(Relaxed),
            linked_folders: self.left_out.linked_folders.load(Relaxed),
            empty_folders: self.left_out.empty_folders.load(Relaxed),
            special: self.left_out.special.load(Relaxed),
            seconds,
            megabytes_per_second: rate(self.bytes, seconds),
            stopped: self.is_stopped,
            interrupted,
            waited: self.waited.as_ref(),
        };
        let before = if self.failures == 0 {
            "{\"failures\":["
        } else {
            "\n"
        };
        format!("{before}],\"totals\":{}}}\n", json(&totals))
    }

    fn closing_line(&self, seconds: f64) -> String {
        let noun = if self.sent == 1 { "file" } else { "files" };
        let mut line = format!(
            "sent {} {noun}, {}",
            grouped(self.sent),
            moved(self.bytes, seconds)
        );
        if self.same > 0 {
            line.push_str(&format!("; {} the same", grouped(self.same)));
        }
        if self.failures > 0 {
            line.push_str(&format!("; {} failed", grouped(self.failures)));
        }
        let waited = self.waited.as_ref();
        if let Some(clause) = waited.and_then(|waited| waited.clause(self.bytes, seconds)) {
            line.push_str(&format!("; {clause}"));
        }
        line
    }

    fn print(&mut self, text: &str) {
        let mut printed = Ok(());
        self.progress.aside(|| printed = self.format.print(text));
        if let Err(failure) = printed {
            self.format = Format::Text;
            self.first_failure.get_or_insert(failure.exit);
            if self.volume.prints_errors() {
                self.progress.aside(|| run::complain(&failure));
            }
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.finished {
            self.close(true);
        }
    }
}

#[derive(Serialize)]
struct Totals<'a> {
    sent: u64,
    same: u64,
    failures: u64,
    bytes: u64,
    hidden: u64,
    linked_folders: u64,
    empty_folders: u64,
    special: u64,
    seconds: f64,
    megabytes_per_second: f64,
    stopped: bool,
    interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<&'a Waits>,
}
