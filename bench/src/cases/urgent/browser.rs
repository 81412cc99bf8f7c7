//! The same by a browser: Chromium loads a page with a large image, and a script of the page asks for scripts meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{LONGEST, Program, Report, path_name};
use crate::comparison::{Candidate, Series, compare};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Testbed};
use crate::process;
use crate::program::Narrow;
use crate::route::{self, Route};

/// Mbit/s and milliseconds.
const PATHS: [(u32, u32); 1] = [(20, 50)];

const PROGRAMS: [Program; 6] = [
    Program::Limited,
    Program::Unlimited,
    Program::Peer(Kind::Nginx),
    Program::Peer(Kind::H2o),
    Program::Peer(Kind::Nghttpd),
    Program::Peer(Kind::Go),
];

const SCRIPTS: usize = 20;
/// Without a limit a script may take several seconds, and the browser itself takes some to start and to end.
const LIMIT: Duration = Duration::from_secs(120);

/// Width and height of the image: 192 MiB, more than any path carries meanwhile.
const SIDE: u32 = 8_192;

/// What the page says at its end, before the times in milliseconds and the versions of HTTP.
const RESULT: &str = "scripts took";

/// The times of the scripts in milliseconds, in ascending order.
type Times = Vec<f64>;

/// The table of the paths.
pub(super) fn measure(bed: &Testbed<'_>, report: &mut Report) -> Result<(), Error> {
    let cx = bed.cx;
    write_site(&bed.folder)?;
    report.paragraph(&format!(
        "A page in Chromium without a window, over TLS: its image of 192 MiB (`fetchpriority`: low) loads, and 2 s later a \
         script of the page asks for other scripts (high), {SCRIPTS} one after the other, 100 ms apart, none of them after \
         {LONGEST} s: the time from the request until the script has run, median and worst, in ms."
    ));
    let mut table = None;
    for (megabits, rtt_ms) in PATHS {
        let path = Narrow::new(rtt_ms, megabits);
        let candidates = PROGRAMS.map(|program| {
            Candidate::new(program.name(), program.is_ours(), move || {
                let route = Route::narrow(cx, path, route::BBR)?;
                let server = route.serve(|| program.start(bed, true))?;
                let hop = route.to(server.port())?;
                route.ask(|| load(cx, hop.port))
            })
        });
        let all = compare(cx.options.runs, candidates.into());
        report.note_errors(&format!("Chromium: {}", path_name(path)), &all);
        let table = table.get_or_insert_with(|| Table::new(super::head(&["Chromium"], &all)));
        let mut row = vec![path_name(path)];
        row.extend(all.iter().map(times));
        table.row(row);
    }
    table.iter().for_each(|table| report.table(table));
    let version = process::run(&cx.reaper, Command::new("chromium").arg("--version"), LIMIT);
    if let Ok(version) = version {
        report.note(format!("Browser: {}.", version.stdout.trim()));
    }
    Ok(())
}

/// The median of the medians, and the worst of all.
fn times(series: &Series<Times>) -> String {
    let median = series.spread(|times| times.get(times.len() / 2).copied().unwrap_or_default());
    let worst = series.spread(|times| times.last().copied().unwrap_or_default());
    let count = series.samples.iter().flatten().map(Vec::len).min();
    let (Some(median), Some(worst), Some(count)) = (median, worst, count) else {
        return "failed".to_owned();
    };
    let few = match count < SCRIPTS {
        true => format!(" of {count}"),
        false => String::new(),
    };
    format!("{:.0}, {:.0}{few}", median.median, worst.max)
}

/// Loads the page, and reads what it says at its end.
fn load(cx: &Context, port: u16) -> Result<Times, Error> {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    // Names of other hosts are not resolved, whatever a browser asks for by itself.
    command.args([
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--disable-background-networking",
        "--ignore-certificate-errors",
    ]);
    let profile = cx.folder("chromium")?;
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.args(["--dump-dom", &format!("https://127.0.0.1:{port}/index.html")]);
    let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
    times_in(&output.stdout).ok_or_else(|| {
        let end: String = output.stdout.chars().rev().take(200).collect();
        Error::Output("chromium".to_owned(), end.chars().rev().collect())
    })
}

/// The times that the page tells, if all of it came over HTTP/2.
fn times_in(page: &str) -> Option<Times> {
    let (_, told) = page.rsplit_once(RESULT)?;
    let (told, _) = told.split_once('.')?;
    let (times, version) = told.split_once(" over ")?;
    let mut times: Times = times
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    times.sort_by(f64::total_cmp);
    (version == "h2" && !times.is_empty()).then_some(times)
}

/// The page, the image and the script.
fn write_site(folder: &Path) -> Result<(), Error> {
    let write = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        fs::write(&file, bytes).map_err(|error| Error::File(file.clone(), error))
    };
    let page = format!(
        "<!doctype html><title>urgent</title><body>\
         <img src=\"image.bmp\" fetchpriority=\"low\" width=\"64\" height=\"64\">\n<script>\n\
         const took = [];\n\
         function ask() {{\n\
           const began = performance.now();\n\
           const script = document.createElement('script');\n\
           script.fetchPriority = 'high';\n\
           script.src = `script.js?${{took.length}}`;\n\
           script.onload = () => {{ took.push(Math.round(performance.now() - began)); next(began); }};\n\
           document.head.append(script);\n\
         }}\n\
         function next(began) {{\n\
           if (took.length < {SCRIPTS} && began < {LONGEST}000) return setTimeout(ask, 100);\n\
           const versions = performance.getEntriesByType('resource').map((entry) => entry.nextHopProtocol);\n\
           const text = `{RESULT} ${{took.join(' ')}} over ${{[...new Set(versions)].join(' and ')}}.`;\n\
           document.body.append(text);\n\
           document.images[0].src = 'data:,';\n\
         }}\n\
         setTimeout(ask, 2000);\n</script>\n"
    );
    write("index.html", page.as_bytes())?;
    write("script.js", b"window.ran = true;\n")?;
    let pixels = 3 * SIDE * SIDE;
    let image = folder.join("image.bmp");
    make_hollow_file(&image, u64::from(HEADERS + pixels))?;
    let opened = fs::OpenOptions::new().write(true).open(&image);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, &headers(pixels)));
    written.map_err(|error| Error::File(image, error))
}

const HEADERS: u32 = 54;

/// Of a bitmap: a file header and a BITMAPINFOHEADER.
fn headers(pixels: u32) -> Vec<u8> {
    let fields = [
        HEADERS + pixels,
        0,
        HEADERS,
        40,
        SIDE,
        SIDE,
        1 | 24 << 16,
        0,
        pixels,
        0,
        0,
        0,
        0,
    ];
    let fields = fields.into_iter().flat_map(u32::to_le_bytes);
    b"BM".iter().copied().chain(fields).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_last_words_are_read_and_another_version_of_http_is_no_measurement() {
        let page = |version: &str| {
            format!(
                "<script>`{RESULT} ${{took}} over ${{versions}}.`</script>\n{RESULT} 90 7 80 over {version}.</body>"
            )
        };
        assert_eq!(times_in(&page("h2")), Some(vec![7.0, 80.0, 90.0]));
        assert_eq!(times_in(&page("http/1.1")), None);
        assert_eq!(times_in(&page("h2 and http/1.1")), None);
        assert_eq!(times_in("<body></body>"), None);
        assert_eq!(headers(0).len(), HEADERS as usize);
    }
}
