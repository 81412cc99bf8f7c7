//! What became of the files of a form: lines of text for a program, a page for a browser.
//!
//! A form may have a thousand files with names of 8 KiB each, and a client need not read what it is answered with. So a
//! report has a fixed length at most, names are cut, and files beyond it are only counted. Its memory, and that of the
//! form's parser, is a share of the budget of all pages. Called by `form`.

use std::fmt::Write as _;

use http::StatusCode;

use crate::budget::Share;
use crate::file_body::FileResponse;
use crate::page::{self, Counted, Escaped, is_deceptive};
use crate::refusal::Refusal;
use crate::resolve::Target;
use crate::respond;

/// The most bytes of lines, as they are sent.
const LINES_BYTES: usize = 12 * 1024;

/// The most characters of a name that are shown.
const NAME_CHARS: usize = 200;

/// What a form holds: the parser has a frame and the header of a part, and the report is written twice.
const FORM_BYTES: usize = 48 * 1024;

/// The lines of the files so far.
pub(crate) struct Report {
    is_page: bool,
    lines: String,
    share: Share,
    files: usize,
    /// The status of the first file that was refused.
    refused: Option<StatusCode>,
    /// The files without a line: stored, and not stored.
    beyond: (usize, usize),
}

impl Report {
    /// A report for a form that begins: a page or lines. `None` if the budget has no room for it.
    pub(crate) fn begin(is_page: bool, mut share: Share) -> Option<Report> {
        share.reach(FORM_BYTES).then(|| Report {
            is_page,
            lines: String::new(),
            share,
            files: 0,
            refused: None,
            beyond: (0, 0),
        })
    }

    /// A file with these names was stored, with so many bytes, or refused.
    pub(crate) fn add(&mut self, names: &[String], outcome: Result<u64, &Refusal>) {
        self.files += 1;
        let name = shown(names);
        let line = match outcome {
            Ok(bytes) => format!("{name}: {bytes} bytes stored"),
            Err(refusal) => {
                self.refused.get_or_insert(refusal.status);
                format!("{name}: {}", refusal.line)
            }
        };
        if self.push(&line) {
            return;
        }
        match outcome {
            Ok(_) => self.beyond.0 += 1,
            Err(_) => self.beyond.1 += 1,
        }
    }

    /// Adds a line if there is room. After one that did not fit there is none.
    fn push(&mut self, line: &str) -> bool {
        let length = self.lines.len();
        if self.beyond == (0, 0) {
            self.write(line);
        }
        if self.lines.len() > LINES_BYTES {
            self.lines.truncate(length);
        }
        self.lines.len() > length
    }

    fn write(&mut self, line: &str) {
        // Writing to a String does not fail.
        let _ = match self.is_page {
            true => writeln!(self.lines, "<li>{}</li>", Escaped(line)),
            false => writeln!(self.lines, "{line}"),
        };
    }

    /// The status of the form, with what ended it early.
    pub(crate) fn status(&self, outcome: &Result<(), Refusal>) -> StatusCode {
        match (outcome, self.refused) {
            (Err(refusal), _) => refusal.status,
            (Ok(()), Some(status)) => status,
            (Ok(()), None) if self.files == 0 => StatusCode::BAD_REQUEST,
            (Ok(()), None) => StatusCode::CREATED,
        }
    }

    /// The response with the report.
    pub(crate) fn into_response(
        mut self,
        outcome: &Result<(), Refusal>,
        target: Option<&Target>,
    ) -> FileResponse {
        let status = self.status(outcome);
        let (stored, refused) = self.beyond;
        if stored + refused > 0 {
            self.write(&format!(
                "and {} more: {stored} stored, {refused} not stored",
                stored + refused
            ));
        }
        match outcome {
            Err(refusal) => self.write(&refusal.line),
            Ok(()) if self.files == 0 => self.write("the form has no file"),
            Ok(()) => {}
        }
        if self.is_page {
            let html = document(status, &self.lines, target);
            return page::response(status, Counted::bytes(html, self.share));
        }
        self.lines.shrink_to_fit();
        respond::plain(status, Counted::bytes(self.lines, self.share))
    }
}

fn document(status: StatusCode, lines: &str, target: Option<&Target>) -> String {
    let title = match status {
        StatusCode::CREATED => "Stored",
        _ => "Not everything was stored",
    };
    let mut html = format!("<h1>{title}</h1>\n<ul class=\"files\">\n{lines}</ul>\n");
    if let Some(target) = target {
        let _ = writeln!(
            html,
            "<p><a href=\"{}\">Back to the folder</a></p>",
            target.directory_reference()
        );
    }
    page::document(title, &html)
}

/// The path of a file, cut, on one line.
fn shown(names: &[String]) -> String {
    let mut all = names
        .iter()
        .enumerate()
        .flat_map(|(at, name)| (at > 0).then_some('/').into_iter().chain(name.chars()));
    let shown = all.by_ref().take(NAME_CHARS);
    let mut shown: String = shown.map(|c| if is_deceptive(c) { '?' } else { c }).collect();
    if all.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::budget::Budget;
    use crate::refusal::{name_taken, refuse};

    fn names(name: &str) -> Vec<String> {
        name.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn a_report_has_a_fixed_length_at_most_and_counts_the_rest() {
        for is_page in [true, false] {
            let budget = Budget::new(FORM_BYTES);
            let mut report = Report::begin(is_page, budget.share(None)).unwrap();
            let taken = name_taken();
            for number in 0..1_000 {
                let outcome = if number % 4 == 3 { Err(&taken) } else { Ok(7) };
                report.add(&names(&"<\"&'>/".repeat(1_300)), outcome);
            }
            let outcome = Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too many parts"));
            assert_eq!(report.status(&outcome), 413);
            assert_eq!(report.status(&Ok(())), 409);
            let (stored, refused) = report.beyond;
            assert!(report.lines.len() <= LINES_BYTES && report.lines.len() > LINES_BYTES / 2);
            assert!(stored > 700 && refused > 200, "{stored} and {refused}");
            let response = report.into_response(&outcome, None);
            assert_eq!(response.status(), 413);
            let length = response.body().size_hint().exact().unwrap();
            assert!(length <= 16 * 1024, "{length}");
            // What is sent counts until it is dropped, and no more than that.
            assert!(budget.used() >= length as usize && budget.used() <= FORM_BYTES / 2);
            drop(response);
            assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn a_form_for_which_the_budget_has_no_room_does_not_begin() {
        let budget = Budget::new(FORM_BYTES + 1);
        let first = Report::begin(true, budget.share(None)).unwrap();
        assert!(Report::begin(false, budget.share(None)).is_none());
        drop(first);
        assert!(Report::begin(false, budget.share(None)).is_some());
    }

    #[test]
    fn a_name_is_shown_on_one_line_in_the_order_of_its_characters() {
        assert_eq!(shown(&names("a/b\n\u{9b}2J\u{202e}txt.exe")), "a/b??2J?txt.exe");
        let long = shown(&names(&"é".repeat(300)));
        assert_eq!(long, format!("{}…", "é".repeat(200)));
        assert_eq!(shown(&names(&"é".repeat(200))), "é".repeat(200));
        assert_eq!(shown(&[]), "");
    }
}
