//! 64 KiB responses again and again on one connection over loopback, beside clients in Java and reqwest, each with the
//! window of 65,535 bytes that HTTP/2 begins with and with 16 MiB.

use std::process::Command;
use std::time::Duration;

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::java::{Client, Java};
use crate::process;
use crate::program;
use crate::worker;

const BYTES: u64 = 65_536;
const WINDOWS: [(&str, u64); 2] = [("65,535 B", 65_535), ("16 MiB", 16 * MIB)];
const AT_ONCE: [u32; 2] = [1, 16];
const MEASURE_MS: u64 = 3_000;
/// A program that is compiled as it runs needs a while until it is.
const JAVA_WARM_UP_MS: u64 = 6_000;
const WARM_UP_MS: u64 = 1_000;
const LIMIT: Duration = Duration::from_secs(60);

/// What a client did.
struct Sample {
    a_second: f64,
    median_micros: f64,
}

/// One client with one window.
struct Entry {
    client: &'static str,
    window: &'static str,
    secure: bool,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("responses")?;
    make_file(&folder.join("body"), BYTES)?;
    let mut report = Report::new(Case::Responses, "64 KiB responses");
    let clear = program::serve(cx, &folder, &[])?;
    let tls = program::serve_tls(cx, &folder, &[])?;
    let java = Java::build(cx).map_err(|error| report.warn(format!("Without Java: {error}.")));
    let urls = [
        format!("http://127.0.0.1:{}/body", clear.port),
        format!("https://127.0.0.1:{}/body", tls.port),
    ];
    let [clear_url, tls_url] = &urls;

    let mut table = Table::new([
        "requests at once",
        "transport",
        "window",
        "client",
        "requests a second",
        "median, us",
        "fullbore's rate is so many times that",
    ]);
    for at_once in AT_ONCE {
        let load = Load { at_once };
        let mut entries = Vec::new();
        let mut candidates = Vec::new();
        for (window, bytes) in WINDOWS {
            for (secure, url) in [(false, clear_url), (true, tls_url)] {
                let mut add = |client: &'static str, candidate| {
                    entries.push(Entry {
                        client,
                        window,
                        secure,
                    });
                    candidates.push(candidate);
                };
                add(
                    "fullbore",
                    Candidate::ours("fullbore", move || load.part(cx, "fullbore", url, bytes)),
                );
                if !secure {
                    add(
                        "reqwest",
                        Candidate::peer("reqwest", move || load.part(cx, "reqwest", url, bytes)),
                    );
                }
                let Ok(java) = &java else { continue };
                for client in Client::ALL {
                    if client.secure() != secure || (client.window_is_fixed() && bytes != 16 * MIB) {
                        continue;
                    }
                    add(
                        client.name(),
                        Candidate::peer(client.name(), move || {
                            load.measure(cx, java.command(client), url, bytes, JAVA_WARM_UP_MS)
                        }),
                    );
                }
            }
        }
        let all = compare(cx.options.runs, candidates);
        report.note_errors(&format!("{at_once} at once"), &all);
        for (entry, series) in entries.iter().zip(&all) {
            let own = entries.iter().zip(&all).find(|(own, _)| {
                own.client == "fullbore" && own.window == entry.window && own.secure == entry.secure
            });
            table.row(row(at_once, entry, series, own.map(|(_, own)| own)));
        }
    }
    report.paragraph(
        "Responses of 65,536 bytes from `fullbore serve` on one connection over loopback, one request after another or 16 \
         at once: requests a second over three seconds, after one of warming up (six in Java), and how long the middle one took. \
         The window is the stream's and the connection's.",
    );
    report.table(&table);
    report.note("The JDK's HttpClient does not speak HTTP/2 in the clear by prior knowledge and is measured over TLS; OkHttp's window is 16 MiB and cannot be set; AsyncHttpClient's connection window is HTTP/2's own 65,535 bytes raised by as much as its setting says.");
    if let Ok(java) = &java {
        report.note(java.versions());
    }
    report.finish(cx, &["java"])
}

fn row(at_once: u32, entry: &Entry, series: &Series<Sample>, own: Option<&Series<Sample>>) -> [String; 7] {
    let transport = if entry.secure { "TLS" } else { "cleartext" };
    let ratio = own.filter(|_| entry.client != "fullbore");
    [
        at_once.to_string(),
        transport.to_owned(),
        entry.window.to_owned(),
        entry.client.to_owned(),
        series.cell(0, |one| one.a_second),
        series.cell(0, |one| one.median_micros),
        ratio
            .and_then(|own| ratio_of(own, series, |one| one.a_second))
            .map_or("-".to_owned(), |spread| spread.text(2)),
    ]
}

/// How a client is asked to load the server.
#[derive(Clone, Copy)]
struct Load {
    at_once: u32,
}

impl Load {
    fn part(self, cx: &Context, library: &str, url: &str, window: u64) -> Result<Sample, Error> {
        let mut command = worker::command("load")?;
        command.arg(library);
        self.measure(cx, command, url, window, WARM_UP_MS)
    }

    /// The arguments are the same for the programs in Java.
    fn measure(
        self,
        cx: &Context,
        command: Command,
        url: &str,
        window: u64,
        warm_up_ms: u64,
    ) -> Result<Sample, Error> {
        let mut command = command;
        command.arg(url);
        for (name, value) in [
            ("--bytes", BYTES),
            ("--window", window),
            ("--at-once", u64::from(self.at_once)),
            ("--warm-up-ms", warm_up_ms),
            ("--measure-ms", MEASURE_MS),
        ] {
            command.args([name, &value.to_string()]);
        }
        let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
        let words: Vec<f64> = output
            .stdout
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match words.as_slice() {
            &[a_second, median_micros] => Ok(Sample {
                a_second,
                median_micros,
            }),
            _ => Err(Error::Output("the client".to_owned(), output.stdout)),
        }
    }
}
