//! The results of the URLs and of the run: sentences and a closing line, or one JSON document.
//!
//! Results are printed as they arrive, and only totals are kept, so a run of any length costs the same memory.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use fullbore::client::DownloadReport;
use http::HeaderValue;
use serde::{Serialize, Serializer};

use crate::exit::{Exit, Failure};
use crate::figures::{grouped, rate};
use crate::run;

use crate::transfer::output::{Format, json, moved};
use crate::transfer::progress::Progress;
use crate::transfer::waits::{StreamWaits, Waits};
use crate::volume::Volume;

/// The result of one URL, and its entry in the document.
#[derive(Serialize, Debug)]
pub(crate) struct Outcome {
    pub(crate) url: String,
    pub(crate) status: Option<u16>,
    /// The length of what there is of the body.
    pub(crate) bytes: u64,
    /// How many of these bytes an earlier run has received.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) resumed: u64,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy")]
    pub(crate) file: Option<PathBuf>,
    /// A remark, also about a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The entity tag, if any, of the body that was received, for `--etag-save`; `None` when no body was.
    #[serde(skip)]
    pub(crate) tag: Option<Option<HeaderValue>>,
    /// The length of the whole in a 416 response.
    #[serde(skip)]
    pub(crate) whole: Option<u64>,
    /// The most connections that carried it at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<usize>,
    /// If further connections have paid: what one of them carried before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) megabytes_per_second_of_one: Option<f64>,
    /// What further connections have shown.
    #[serde(skip)]
    pub(crate) further: Option<DownloadReport>,
    /// What its stream waited for, with `--json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited: Option<StreamWaits>,
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
    /// It is a folder, and walked as one.
    #[serde(skip)]
    pub(crate) is_folder: bool,
    /// The body is not newer than the file.
    #[serde(skip)]
    pub(crate) is_unchanged: bool,
    /// The same failure was printed for another URL of its origin.
    #[serde(skip)]
    pub(crate) repeated: bool,
}

impl Outcome {
    /// The result before the request.
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            status: None,
            bytes: 0,
            resumed: 0,
            seconds: 0.0,
            file: None,
            failure: None,
            repeated: false,
            is_unchanged: false,
            is_folder: false,
            note: None,
            tag: None,
            whole: None,
            connections: None,
            megabytes_per_second_of_one: None,
            further: None,
            waited: None,
        }
    }

    /// It came over these connections, at last.
    pub(crate) fn over(&mut self, report: &DownloadReport) {
        self.connections = self.connections.max(Some(report.most_connections));
        let of_one = report.alone.map(|bytes| bytes as f64 / 1e6);
        self.megabytes_per_second_of_one = of_one.or(self.megabytes_per_second_of_one);
        self.further = report.alone.map(|_| *report).or(self.further);
    }

    /// A failure before the request.
    pub(crate) fn failed(url: String, failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::new(url)
        }
    }
}

/// The report of a run. Dropping it unfinished still closes the document.
pub(crate) struct Report {
    format: Format,
    volume: Volume,
    progress: Arc<Progress>,
    begun: Instant,
    /// When the last transfer had ended.
    ended: Option<Instant>,
    results: u64,
    failures: u64,
    /// The failures that are only counted: files that exist, and origins that cannot be reached.
    existing: u64,
    is_recursive: bool,
    repeated: u64,
    /// The files that `--newer` has left as they were.
    unchanged: u64,
    /// The names of lists that were left out and not told.
    refused_names: u64,
    /// Those results among them for which a request was sent.
    not_modified: u64,
    bytes: u64,
    resumed: u64,
    first_failure: Option<Exit>,
    /// Of the URL that came over most connections: how many, and what one carried, in megabytes a second.
    spread: Option<(usize, f64)>,
    /// What its further connections have shown.
    further: Option<DownloadReport>,
    /// What the transfers waited for, at the end.
    waited: Option<Waits>,
    /// The part of the document that is not printed yet.
    unprinted: String,
    /// Standard output cannot be written, so the rest of the document is dropped.
    is_cut: bool,
    finished: bool,
}

/// The document is printed when it has grown by this many bytes.
const PRINTED_AT_ONCE: usize = 64 << 10;

impl Report {
    pub(crate) fn new(format: Format, volume: Volume, progress: Arc<Progress>) -> Self {
        Self {
            format,
            volume,
            progress,
            begun: Instant::now(),
            ended: None,
            results: 0,
            failures: 0,
            repeated: 0,
            bytes: 0,
            resumed: 0,
            first_failure: None,
            existing: 0,
            is_recursive: false,
            unchanged: 0,
            refused_names: 0,
            not_modified: 0,
            spread: None,
            further: None,
            waited: None,
            unprinted: String::new(),
            is_cut: false,
            finished: false,
        }
    }

    /// Adds a result. The next [`Self::flush`] prints it at the latest.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.bytes += outcome.bytes;
        self.resumed += outcome.resumed;
        self.progress.ended();
        if let (Some(connections), Some(of_one)) = (outcome.connections, outcome.megabytes_per_second_of_one)
        {
            if self.spread.is_none_or(|(most, _)| most < connections) {
                self.spread = Some((connections, of_one));
                self.further = outcome.further;
            }
        }
        if let Some(failure) = &outcome.failure {
            self.failures += 1;
            self.first_failure.get_or_insert(failure.exit);
        }
        self.not_modified += u64::from(outcome.is_unchanged);
        let exists = outcome.failure.as_ref().is_some_and(Failure::is_existing_file);
        match outcome.repeated && exists {
            true => self.existing += 1,
            false => self.repeated += u64::from(outcome.repeated),
        }
        if self.format != Format::JsonErr && !outcome.repeated {
            if let Some(failure) = outcome.failure.as_ref().filter(|_| self.volume.prints_errors()) {
                self.progress.aside(|| run::complain(failure));
            }
            if let Some(note) = outcome.note.as_ref().filter(|_| self.volume.prints_notes()) {
                self.progress.aside(|| run::complain(note));
            }
        }
        if self.format != Format::Text {
            let before = if self.results == 0 {
                "{\"results\":[\n"
            } else {
                ",\n"
            };
            self.unprinted.push_str(before);
            self.unprinted.push_str(&json(&outcome));
            if self.unprinted.len() >= PRINTED_AT_ONCE {
                self.flush();
            }
        }
        self.results += 1;
    }

    /// What further connections have shown, of the URL that came over most.
    pub(crate) fn further(&self) -> Option<DownloadReport> {
        self.further
    }

    /// So many files are as they were.
    pub(crate) fn leave_unchanged(&mut self, files: u64) {
        self.unchanged = files;
    }

    /// Whether there was nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.results == 0 && self.unchanged == 0
    }

    /// The run is one of `get -r`.
    pub(crate) fn set_recursive(&mut self) {
        self.is_recursive = true;
    }

    /// So many names of lists were left out, and none of them was told.
    pub(crate) fn leave_out(&mut self, names: u64) {
        self.refused_names = names;
    }

    /// The transfers have ended: what follows takes no part in their time.
    pub(crate) fn set_ended(&mut self) {
        self.ended = Some(Instant::now());
        self.progress.clear();
    }

    /// Prints the totals; the exit code is that of the first failure. A document that cannot be printed is one, too.
    pub(crate) fn finish(mut self, waited: Option<Waits>) -> ExitCode {
        self.waited = waited;
        self.close(false);
        self.first_failure.map_or(ExitCode::SUCCESS, ExitCode::from)
    }

    fn close(&mut self, interrupted: bool) {
        self.finished = true;
        self.progress.clear();
        let seconds = (self.ended.unwrap_or_else(Instant::now) - self.begun).as_secs_f64();
        if self.format != Format::Text {
            let end = self.end_of_document(seconds, interrupted);
            self.unprinted.push_str(&end);
            self.flush();
        }
        if self.format != Format::JsonErr && self.volume.prints_errors() {
            let existing = match self.is_recursive {
                true => "their files exist; -N downloads what is new or has changed",
                false => "their files exist; --skip-existing leaves them out",
            };
            for (count, why) in [
                (self.repeated, "no connection to the server can be made"),
                (self.existing, existing),
            ] {
                let urls = if count == 1 { "URL" } else { "URLs" };
                if count > 0 {
                    let text = format!("{} more {urls} failed in the same way: {why}", grouped(count));
                    run::complain(&text);
                }
            }
            let names = if self.refused_names == 1 { "name" } else { "names" };
            if self.refused_names > 0 {
                let count = grouped(self.refused_names);
                run::complain(&format!(
                    "{count} more {names} of other lists are left out for the same reason"
                ));
            }
        }
        // The sentence about a single failed URL is enough.
        let said = self.results == 1 && self.failures == 1;
        if self.format != Format::JsonErr && self.volume.prints_summary() && !interrupted && !said {
            let _ = writeln!(io::stderr(), "{}", self.closing_line(seconds));
        }
    }

    /// The end of the document, after the last result.
    fn end_of_document(&self, seconds: f64, interrupted: bool) -> String {
        let totals = Totals {
            urls: self.results,
            failures: self.failures,
            bytes: self.bytes,
            resumed: self.resumed,
            unchanged: self.unchanged,
            seconds,
            megabytes_per_second: rate(self.received(), seconds),
            interrupted,
            waited: self.waited.as_ref(),
        };
        let before = if self.results == 0 { "{\"results\":[" } else { "\n" };
        format!("{before}],\"totals\":{}}}\n", json(&totals))
    }

    /// What this run has received.
    fn received(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed)
    }

    fn closing_line(&self, seconds: f64) -> String {
        let mut line = moved(self.received(), seconds);
        if self.results > 1 {
            let files = self.results - self.failures - self.not_modified;
            let noun = if files == 1 { "file" } else { "files" };
            line = format!("{} {noun}, {line}", grouped(files));
        }
        if self.resumed > 0 {
            line.push_str(&format!("; {} bytes were there already", grouped(self.resumed)));
        }
        if self.unchanged > 0 {
            line.push_str(&format!("; {} unchanged", grouped(self.unchanged)));
        }
        if self.failures > 0 {
            line.push_str(&format!("; {} failed", grouped(self.failures)));
        }
        if let Some((connections, of_one)) = self.spread {
            line.push_str(&format!(
                "; over {connections} connections, since one carried {of_one:.1} MB/s"
            ));
        }
        let waited = self.waited.as_ref();
        if let Some(clause) = waited.and_then(|waited| waited.clause(self.received(), seconds)) {
            line.push_str(&format!("; {clause}"));
        }
        line
    }

    /// Prints the document so far.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.unprinted);
        if text.is_empty() || self.is_cut {
            return;
        }
        let mut printed = Ok(());
        self.progress.aside(|| printed = self.format.print(&text));
        if let Err(failure) = printed {
            self.is_cut = true;
            self.first_failure.get_or_insert(failure.exit);
            if self.volume.prints_errors() {
                self.progress.aside(|| run::complain(&failure));
            }
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.finished {
            self.close(true);
        }
    }
}

#[derive(Serialize)]
struct Totals<'a> {
    urls: u64,
    failures: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    resumed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    unchanged: u64,
    seconds: f64,
    megabytes_per_second: f64,
    interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<&'a Waits>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn lossy<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref()
        .map(|path| path.to_string_lossy())
        .serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(bytes: u64) -> Outcome {
        let mut outcome = Outcome::new("http://h/a".to_owned());
        outcome.bytes = bytes;
        outcome
    }

    /// A report that prints nothing by itself: its document stays in `unprinted` until it is long.
    fn report(outcomes: Vec<Outcome>) -> Report {
        let mut report = Report::new(Format::JsonErr, Volume::Normal, Progress::hidden());
        report.finished = true;
        for outcome in outcomes {
            report.add(outcome);
        }
        report
    }

    #[test]
    fn a_document_has_every_result_and_the_totals() -> Result<(), serde_json::Error> {
        for count in 0..4 {
            let mut outcomes: Vec<Outcome> = (0..count).map(|_| of_bytes(1_000_000)).collect();
            if let Some(outcome) = outcomes.get_mut(1) {
                outcome.failure = Some(Failure::new(Exit::Exists, "x exists"));
            }
            if let Some(outcome) = outcomes.get_mut(2) {
                outcome.failure = Some(Failure::new(Exit::Status, "status 404"));
            }
            let failures = count.max(1) - 1;
            let report = report(outcomes);
            assert_eq!(report.first_failure, (failures > 0).then_some(Exit::Exists));
            let text = report.unprinted.clone() + &report.end_of_document(2.0, count == 3);
            let document: serde_json::Value = serde_json::from_str(&text)?;
            let results = document["results"].as_array().map(Vec::len);
            assert_eq!(results, usize::try_from(count).ok());
            let totals = &document["totals"];
            assert_eq!(totals["urls"], count);
            assert_eq!(totals["failures"], failures);
            assert_eq!(totals["bytes"], count * 1_000_000);
            assert_eq!(totals["seconds"], 2.0);
            assert_eq!(totals["megabytes_per_second"], count as f64 / 2.0);
            assert_eq!(totals["interrupted"], count == 3);
        }
        Ok(())
    }

    #[test]
    fn the_closing_line_counts_the_files_when_there_are_several_and_the_failures() {
        let failed = || Outcome::failed("http://h/a".to_owned(), Failure::new(Exit::Exists, "x exists"));
        for (outcomes, line) in [
            (vec![], "0 bytes in 2.00 s, 0.0 MB/s"),
            (vec![of_bytes(3_000_000)], "3,000,000 bytes in 2.00 s, 1.5 MB/s"),
            (vec![failed()], "0 bytes in 2.00 s, 0.0 MB/s; 1 failed"),
            (
                vec![of_bytes(1_000), of_bytes(2_000)],
                "2 files, 3,000 bytes in 2.00 s, 0.0 MB/s",
            ),
            (
                vec![of_bytes(1_000), failed(), failed()],
                "1 file, 1,000 bytes in 2.00 s, 0.0 MB/s; 2 failed",
            ),
        ] {
            assert_eq!(report(outcomes).closing_line(2.0), line);
        }
    }

    #[test]
    fn the_closing_line_says_what_one_of_several_connections_carried() {
        let over = |connections, of_one| {
            let mut outcome = of_bytes(20_000_000);
            outcome.connections = Some(connections);
            outcome.megabytes_per_second_of_one = of_one;
            outcome
        };
        let line = report(vec![over(1, None), over(8, Some(1.24)), over(4, Some(2.0))]).closing_line(2.0);
        assert_eq!(
            line,
            "3 files, 60,000,000 bytes in 2.00 s, 30.0 MB/s; over 8 connections, since one carried 1.2 MB/s"
        );
        // Further ones that did not pay are not worth a word.
        let line = report(vec![over(2, None)]).closing_line(2.0);
        assert_eq!(line, "20,000,000 bytes in 2.00 s, 10.0 MB/s");
    }

    #[test]
    fn what_an_earlier_run_received_is_not_counted_as_speed() {
        let mut resumed = of_bytes(3_000_000);
        resumed.resumed = 2_000_000;
        let report = report(vec![resumed]);
        assert_eq!(
            report.closing_line(2.0),
            "1,000,000 bytes in 2.00 s, 0.5 MB/s; 2,000,000 bytes were there already"
        );
    }

    #[test]
    fn a_result_is_one_json_object() -> Result<(), serde_json::Error> {
        let mut outcome = Outcome::failed(
            "http://h/\"x\"".to_owned(),
            Failure::new(Exit::Exists, "x exists"),
        );
        outcome.bytes = 7;
        let value: serde_json::Value = serde_json::from_str(&json(&outcome))?;
        assert_eq!(value["url"], "http://h/\"x\"");
        assert_eq!(value["bytes"], 7);
        assert_eq!(value["error"]["kind"], "exists");
        assert_eq!(value["error"]["exit"], 15);
        assert!(value["status"].is_null());
        Ok(())
    }
}
