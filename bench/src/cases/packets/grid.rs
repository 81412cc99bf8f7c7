//! Cells of a grid of paths, drawn by a seed, and whether each keeps what is asked of it.

use fullbore_testing::random::Random;

use super::{Files, Noted, figures, measure, median, path, seconds, size};
use crate::cases::{MIB, Report, series};
use crate::comparison::Series;
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::over_packets::{Client, Sample};

/// How many cells are drawn, of 96.
const CELLS: usize = 24;
const SEED: u64 = 44;

const MEGABITS: u64 = 100;
const DOWN_BYTES: u64 = 64 * MIB;
const UP_BYTES: u64 = 32 * MIB;

const DOWN: &[Client] = &[
    Client::Get(None),
    Client::Get(Some(1)),
    Client::Aria2(8),
    Client::Get(Some(16)),
    Client::Aria2(16),
];
const UP: &[Client] = &[Client::Put, Client::CurlPut, Client::PutBbr];

/// A time may be so many times that of aria2 where one connection is the limit, that of curl for uploads, and that of bbr
/// without loss for uploads with bbr.
const OF_MANY: f64 = 1.1;
/// And of one connection where it is not, with so many connections at the end.
const OF_ONE: f64 = 1.03;
const MOST_OPEN: f64 = 2.0;

/// A path of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    congestion_control: &'static str,
    loss: f64,
    round_trip: u64,
    /// Of a bandwidth-delay product.
    queue: f64,
    secure: bool,
}

impl Cell {
    fn name(&self) -> String {
        let Cell {
            congestion_control,
            loss,
            round_trip,
            queue,
            secure,
        } = self;
        let queue = if *queue < 1.0 { "1/8" } else { "1" };
        let security = if *secure { "TLS" } else { "cleartext" };
        format!(
            "{congestion_control}, {} % lost, {round_trip} ms, queue {queue}, {security}",
            loss * 100.0
        )
    }

    fn settings(&self) -> fullbore_packets::Settings {
        let mut settings = path(MEGABITS, self.round_trip, self.loss, self.congestion_control);
        let product = settings.bandwidth_delay_product(&settings.to_client);
        let queue = Some((product as f64 * self.queue) as u64);
        settings.to_client.queue = queue;
        settings.to_server.queue = queue;
        settings
    }
}

/// Different cells, in the order in which they were drawn.
fn drawn() -> Vec<Cell> {
    let mut all = Vec::new();
    for congestion_control in ["bbr", "cubic"] {
        for loss in [0.0, 0.0001, 0.001, 0.01] {
            for round_trip in [20, 100, 230] {
                for queue in [0.125, 1.0] {
                    all.extend([false, true].map(|secure| Cell {
                        congestion_control,
                        loss,
                        round_trip,
                        queue,
                        secure,
                    }));
                }
            }
        }
    }
    let mut random = Random::new(SEED);
    let mut drawn = Vec::new();
    while drawn.len() < CELLS {
        drawn.push(all.swap_remove(random.below(all.len() as u64) as usize));
    }
    drawn
}

/// Downloads and uploads over each cell.
pub(super) fn tables(cx: &Context, report: &mut Report, noted: &Noted) -> Result<(), Error> {
    let cells = |direction: &str| -> Vec<Cell> {
        let cells = drawn().into_iter();
        cells
            .filter(|cell| cx.measures(&format!("grid {direction}, {}", cell.name())))
            .collect()
    };
    let (down, up) = (cells("down"), cells("up"));
    if down.is_empty() && up.is_empty() {
        return Ok(());
    }
    report.paragraph(&format!(
        "{CELLS} of the 96 cells of a grid, drawn by the seed {SEED}: {MEGABITS} Mbit/s; bbr and cubic; 0, 0.01, 0.1 and 1 % \
         lost; 20, 100 and 230 ms; queues of 1/8 and 1 bandwidth-delay product; cleartext and TLS. 64 MiB down, 32 MiB up. \
         One connection is the limit where it takes more than {OF_MANY} times as long as aria2c with 8. There, `fullbore \
         get` is to take at most {OF_MANY} times as long as aria2c with 8, and with 16 connections as aria2c with 16. \
         Elsewhere it is to take at most {OF_ONE} times as long as with one, and to have at most {MOST_OPEN} open at the end. \
         `fullbore put` is to take at most {OF_MANY} times as long as `curl -T`, and with bbr as bbr without loss."
    ));
    if !down.is_empty() {
        let files = Files::make(cx, "grid-down", 1, size(cx, DOWN_BYTES))?;
        let table = downloads(cx, report, noted, &down, &files);
        report.table(&table);
    }
    if !up.is_empty() {
        let files = Files::make(cx, "grid-up", 1, size(cx, UP_BYTES))?;
        let table = uploads(cx, report, noted, &up, &files);
        report.table(&table);
    }
    Ok(())
}

fn downloads(cx: &Context, report: &mut Report, noted: &Noted, cells: &[Cell], files: &Files) -> Table {
    let names = DOWN.iter().map(|client| client.name());
    let head = ["path".to_owned()].into_iter().chain(names);
    let mut table =
        Table::new(head.chain(["connections", "open at the end", "asked", "kept"].map(str::to_owned)));
    for cell in cells {
        let all = measured(cx, report, noted, cell, DOWN, files);
        let mut row = vec![cell.name()];
        row.extend(all.iter().map(seconds));
        if let Some(own) = all.first() {
            let [_, connections, open] = figures(own);
            row.extend([connections, open]);
        }
        row.extend(
            judged(&all).map_or(["-".to_owned(), "-".to_owned()], |(asked, kept)| {
                [asked, if kept { "yes" } else { "no" }.to_owned()]
            }),
        );
        table.row(row);
    }
    table
}

fn uploads(cx: &Context, report: &mut Report, noted: &Noted, cells: &[Cell], files: &Files) -> Table {
    let names = UP.iter().map(|client| client.name());
    let head = ["path".to_owned()].into_iter().chain(names);
    let mut table = Table::new(head.chain(["bbr without loss", "asked", "kept"].map(str::to_owned)));
    for cell in cells {
        let all = measured(cx, report, noted, cell, UP, files);
        // The queue of the cell stays.
        let lossless = Cell {
            congestion_control: "bbr",
            loss: 0.0,
            ..*cell
        };
        let reference = measured(cx, report, noted, &lossless, &[Client::Put], files);
        let mut row = vec![cell.name()];
        row.extend(all.iter().chain(&reference).map(seconds));
        row.extend(verdict(judged_up(&all, &reference)));
        table.row(row);
    }
    table
}

/// What is asked, and whether it is kept, as cells.
fn verdict(judged: Option<(String, bool)>) -> [String; 2] {
    judged.map_or(["-".to_owned(), "-".to_owned()], |(asked, kept)| {
        [asked, if kept { "yes" } else { "no" }.to_owned()]
    })
}

fn measured(
    cx: &Context,
    report: &mut Report,
    noted: &Noted,
    cell: &Cell,
    clients: &[Client],
    files: &Files,
) -> Vec<Series<Sample>> {
    eprintln!("fullbore-bench: packets: {}", cell.name());
    let all = measure(cx, &cell.settings(), cell.secure, clients, files);
    report.note_errors(&cell.name(), &all);
    noted.all(&all);
    all
}

/// What is asked of a cell, with the ratios, and whether it is kept.
fn judged(all: &[Series<Sample>]) -> Option<(String, bool)> {
    let of = |client: Client| series(all, &client.name());
    let time = |client: Client| median(of(client));
    let own = time(Client::Get(None))?;
    let (one, eight) = (time(Client::Get(Some(1)))?, time(Client::Aria2(8))?);
    if one > OF_MANY * eight {
        let sixteen = time(Client::Get(Some(16)))? / time(Client::Aria2(16))?;
        let asked = format!("{:.2} of 8, {sixteen:.2} of 16, at most {OF_MANY}", own / eight);
        return Some((asked, own / eight <= OF_MANY && sixteen <= OF_MANY));
    }
    let open = of(Client::Get(None))?.spread(|sample| sample.open as f64)?.median;
    let asked = format!("{:.2} of one, at most {OF_ONE}; {open} open", own / one);
    Some((asked, own / one <= OF_ONE && open <= MOST_OPEN))
}

/// The same for uploads: at most as long as curl, and with bbr as bbr without loss.
fn judged_up(all: &[Series<Sample>], reference: &[Series<Sample>]) -> Option<(String, bool)> {
    let time = |client: Client| median(series(all, &client.name()));
    let curls = time(Client::Put)? / time(Client::CurlPut)?;
    let bbrs = time(Client::PutBbr)? / median(reference.first())?;
    let asked = format!("{curls:.2} of curl, {bbrs:.2} of bbr without loss, at most {OF_MANY}");
    Some((asked, curls <= OF_MANY && bbrs <= OF_MANY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(seconds: [f64; 5], open: usize) -> Vec<Series<Sample>> {
        let sample = |seconds| Sample {
            seconds,
            over: false,
            connections: open,
            open,
            overrun: 0,
            latest: std::time::Duration::ZERO,
        };
        let named = DOWN.iter().zip(seconds).map(|(client, seconds)| Series {
            name: client.name(),
            ours: client.ours(),
            samples: vec![Some(sample(seconds))],
            error: None,
        });
        named.collect()
    }

    #[test]
    fn the_cells_are_the_same_in_each_run_and_differ_from_each_other() {
        let cells = drawn();
        assert_eq!(cells, drawn());
        for (number, cell) in cells.iter().enumerate() {
            assert!(!cells[..number].contains(cell), "{}", cell.name());
        }
        for secure in [false, true] {
            assert!(cells.iter().any(|cell| cell.secure == secure));
        }
    }

    #[test]
    fn where_one_connection_is_the_limit_aria2_is_the_measure() {
        assert_eq!(
            judged(&all([8.7, 70.0, 8.0, 8.0, 8.0], 8)).map(|judged| judged.1),
            Some(true)
        );
        assert_eq!(
            judged(&all([8.9, 70.0, 8.0, 8.0, 8.0], 8)).map(|judged| judged.1),
            Some(false)
        );
        assert_eq!(
            judged(&all([8.0, 70.0, 8.0, 9.0, 8.0], 8)).map(|judged| judged.1),
            Some(false)
        );
    }

    #[test]
    fn elsewhere_one_connection_is_the_measure_and_few_may_be_open() {
        assert_eq!(
            judged(&all([6.5, 6.4, 6.8, 6.4, 6.8], 2)).map(|judged| judged.1),
            Some(true)
        );
        assert_eq!(
            judged(&all([6.7, 6.4, 6.8, 6.4, 6.8], 1)).map(|judged| judged.1),
            Some(false)
        );
        assert_eq!(
            judged(&all([6.5, 6.4, 6.8, 6.4, 6.8], 3)).map(|judged| judged.1),
            Some(false)
        );
    }
}
