//! Tables in markdown, the files of results, and the same tables as TSV for programs to read.

use std::path::Path;

use crate::error::Error;

/// Writes a case's section to `NAME.md`, and its tables to `NAME.tsv`.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    for (extension, content) in [("md", text.trim_end().to_owned() + "\n"), ("tsv", tsv(text))] {
        let file = folder.join(name).with_extension(extension);
        std::fs::write(&file, content).map_err(|error| Error::File(file.clone(), error))?;
    }
    Ok(())
}

/// The tables of a section. Each begins with a line `# HEADING` and the names of its columns. A column of figures with a
/// spread becomes three: the median, the least and the most.
fn tsv(markdown: &str) -> String {
    let (mut out, mut heading, mut table) = (String::new(), "", Vec::<Vec<String>>::new());
    for line in markdown.lines().chain([""]) {
        if let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
            table.push(
                row.replace("\\|", "\0")
                    .split('|')
                    .map(|cell| cell.trim().replace('\0', "|"))
                    .collect(),
            );
        } else if !table.is_empty() {
            out.push_str(&format!("# {heading}\n{}\n", wide(&std::mem::take(&mut table))));
        }
        if line.starts_with('#') {
            heading = line.trim_start_matches(['#', ' ']);
        }
    }
    out
}

fn wide(table: &[Vec<String>]) -> String {
    let [head, _rule, rows @ ..] = table else {
        return String::new();
    };
    let spreads = |column: usize| {
        rows.iter()
            .any(|row| row.get(column).is_some_and(|cell| figures(cell).is_some()))
    };
    let mut out = String::new();
    let mut line = |cells: Vec<String>| out.push_str(&(cells.join("\t") + "\n"));
    let names = head
        .iter()
        .enumerate()
        .flat_map(|(column, name)| match spreads(column) {
            true => vec![name.clone(), format!("{name}, least"), format!("{name}, most")],
            false => vec![name.clone()],
        });
    line(names.collect());
    for row in rows {
        let cells =
            row.iter()
                .enumerate()
                .flat_map(|(column, cell)| match (spreads(column), figures(cell)) {
                    (true, Some(figures)) => figures.map(str::to_owned).to_vec(),
                    (true, None) => vec![cell.clone(); 3],
                    (false, _) => vec![cell.clone()],
                });
        line(cells.collect());
    }
    out
}

/// The parts of `median (least-most)`.
fn figures(cell: &str) -> Option<[&str; 3]> {
    let (median, spread) = cell.strip_suffix(')')?.split_once(" (")?;
    let (least, most) = spread.split_once('-')?;
    [median, least, most]
        .iter()
        .all(|figure| figure.parse::<f64>().is_ok())
        .then_some([median, least, most])
}

/// A table that [`tsv`] made: the names of its columns, and its rows.
pub(crate) struct Read {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Read {
    /// The `number`-th table under this heading.
    pub(crate) fn find(tsv: &str, heading: &str, number: usize) -> Option<Self> {
        let mut tables = tsv
            .split("# ")
            .filter_map(|table| table.strip_prefix(heading)?.strip_prefix('\n'));
        let mut lines = tables
            .nth(number)?
            .lines()
            .map(|line| line.split('\t').map(str::to_owned).collect());
        Some(Self {
            head: lines.next()?,
            rows: lines.filter(|row: &Vec<String>| row.len() > 1).collect(),
        })
    }

    /// The rows as the cells of these columns.
    pub(crate) fn columns<const N: usize>(&self, names: [&str; N]) -> Option<Vec<[&str; N]>> {
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(names) {
            *place = self.head.iter().position(|column| column == name)?;
        }
        let rows = self.rows.iter();
        Some(
            rows.map(|row| places.map(|place| row.get(place).map_or("", String::as_str)))
                .collect(),
        )
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
    fn tables_become_tsv_with_their_spreads() {
        let text = "# One\n\ntext\n\n| a | b |\n| - | -: |\n| x\\|y | 1.5 (1-2) |\n| z | 3 |\n\n## Two\n\n| c |\n| - |\n| 1 |\n";
        let tsv = tsv(text);
        assert_eq!(
            tsv,
            "# One\na\tb\tb, least\tb, most\nx|y\t1.5\t1\t2\nz\t3\t3\t3\n\n# Two\nc\n1\n\n"
        );
        let read = Read::find(&tsv, "One", 0).expect("a table");
        assert_eq!(
            read.columns(["b, most", "a"]),
            Some(vec![["2", "x|y"], ["3", "z"]])
        );
        assert_eq!(read.columns(["d"]), None);
        assert!(Read::find(&tsv, "One", 1).is_none());
    }

    #[test]
    fn the_results_that_are_kept_agree_with_each_other() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        for entry in std::fs::read_dir(folder).expect("there are results").flatten() {
            let file = entry.path();
            if file.extension().is_some_and(|extension| extension == "md") {
                let read = |file: &Path| std::fs::read_to_string(file).expect("it is text");
                assert!(
                    tsv(&read(&file)) == read(&file.with_extension("tsv")),
                    "{}",
                    file.display()
                );
            }
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
