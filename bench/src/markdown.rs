//! Tables in markdown, and the sections of a file that stand between `<!-- begin NAME -->` and `<!-- end NAME -->`.
//! The cases make tables, `main` writes sections; the one place that touches a file is `write_section`.

use std::io::ErrorKind;
use std::path::Path;

use crate::fault::Fault;

/// Replaces the section `name` of `file`, or appends it; makes the file if there is none.
pub(crate) fn write_section(file: &Path, name: &str, text: &str) -> Result<(), Fault> {
    let fault = |error| Fault::File(file.to_owned(), error);
    let before = match std::fs::read_to_string(file) {
        Ok(before) => before,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fault(error)),
    };
    let after = with_section(&before, name, text).map_err(|why| Fault::Markers(file.to_owned(), why))?;
    // A reader never meets half a file: the new text takes the old one's place in one step.
    let mut draft = file.as_os_str().to_owned();
    draft.push(".new");
    std::fs::write(&draft, after)
        .and_then(|()| std::fs::rename(&draft, file))
        .map_err(fault)
}

/// `document` with `text` as its section `name`.
///
/// # Errors
/// What is wrong with the markers: one without the other, in the wrong order, or more than a pair.
fn with_section(document: &str, name: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- begin {name} -->"), format!("<!-- end {name} -->"));
    let section = format!("{begin}\n{}\n{end}", text.trim_end());
    let begins: Vec<usize> = document.match_indices(&begin).map(|(at, _)| at).collect();
    let ends: Vec<usize> = document.match_indices(&end).map(|(at, _)| at).collect();
    match (begins.as_slice(), ends.as_slice()) {
        ([], []) if document.trim().is_empty() => Ok(format!("{section}\n")),
        ([], []) => Ok(format!("{}\n\n{section}\n", document.trim_end())),
        ([from], [to]) if from < to => {
            let (head, _) = document.split_at(*from);
            let (_, tail) = document.split_at(*to + end.len());
            Ok(format!("{head}{section}{tail}"))
        }
        ([_], [_]) => Err(format!("`{end}` stands before `{begin}`")),
        (begins, ends) => Err(format!(
            "there are {} of `{begin}` and {} of `{end}`",
            begins.len(),
            ends.len()
        )),
    }
}

/// A table: a head and rows of as many cells.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells that are wanting are left empty, so that no figure slides under another's heading.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, each column as wide as its widest cell; all but the first are aligned to the right.
    pub(crate) fn text(&self) -> String {
        let cell =
            |row: &[String], column: usize| row.get(column).map_or(String::new(), |text| escaped(text));
        let lines = || std::iter::once(self.head.as_slice()).chain(self.rows.iter().map(Vec::as_slice));
        let columns = lines().map(<[String]>::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                lines()
                    .map(|row| cell(row, column).chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(2)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in lines().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                match column {
                    0 => text.push_str(&format!("| {:<width$} |", cell(row, column))),
                    _ => text.push_str(&format!(" {:>width$} |", cell(row, column))),
                }
            }
            text.push('\n');
            if number > 0 {
                continue;
            }
            for (column, &width) in widths.iter().enumerate() {
                match column {
                    0 => text.push_str(&format!("| {} |", "-".repeat(width))),
                    _ => text.push_str(&format!(" {}: |", "-".repeat(width - 1))),
                }
            }
            text.push('\n');
        }
        text
    }
}

fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_becomes_the_section() {
        let made = with_section("", "a", "text\n\n").expect("no markers, none wrong");
        assert_eq!(made, "<!-- begin a -->\ntext\n<!-- end a -->\n");
    }

    #[test]
    fn a_section_that_is_not_there_is_appended() {
        let made = with_section("# Head\n\n\n", "a", "text").expect("no markers, none wrong");
        assert_eq!(made, "# Head\n\n<!-- begin a -->\ntext\n<!-- end a -->\n");
    }

    #[test]
    fn a_section_takes_the_old_ones_place_and_leaves_the_rest() {
        let before =
            "x\n<!-- begin a -->\nold\n<!-- end a -->\ny\n<!-- begin ab -->\nkeep\n<!-- end ab -->\n";
        let made = with_section(before, "a", "new").expect("the markers stand in pairs");
        assert_eq!(
            made,
            "x\n<!-- begin a -->\nnew\n<!-- end a -->\ny\n<!-- begin ab -->\nkeep\n<!-- end ab -->\n"
        );
        assert_eq!(with_section(&made, "a", "new").as_ref(), Ok(&made));
    }

    #[test]
    fn markers_that_stand_alone_crossed_or_twice_are_refused() {
        for broken in [
            "<!-- begin a -->",
            "<!-- end a -->",
            "<!-- end a --><!-- begin a -->",
            "<!-- begin a --><!-- begin a --><!-- end a --><!-- end a -->",
        ] {
            assert!(with_section(broken, "a", "text").is_err(), "{broken}");
        }
    }

    #[test]
    fn a_table_aligns_escapes_and_fills_its_cells() {
        let mut table = Table::new(["path", "a|b"]);
        table.row(["20 ms", "1"]);
        table.row(["x"]);
        assert_eq!(
            table.text(),
            "| path  | a\\|b |\n| ----- | ---: |\n| 20 ms |    1 |\n| x     |      |\n"
        );
    }
}
