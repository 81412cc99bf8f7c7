//! 64 KiB responses again and again on one connection over loopback, beside clients in Java and reqwest, each with the
//! window of 65,535 bytes that HTTP/2 begins with and with 16 MiB.

use std::process::Command;
use std::time::Duration;

use super::{Case, Draft, MIB, Section};
use crate::contest::{Contender, Series, hold, times_as_much};
use crate::fault::Fault;
use crate::markdown::Table;
use crate::part;
use crate::peers::java::{Client, Java};
use crate::process;
use crate::session::{Session, make_file};

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

pub(super) fn run(session: &Session) -> Result<Section, Fault> {
    let folder = session.folder("responses")?;
    make_file(&folder.join("body"), BYTES)?;
    let mut draft = Draft::new(Case::Responses, "64 KiB responses");
    let clear = session.fullbore.serve(session, &folder, &[])?;
    let tls = session.fullbore.serve_tls(session, &folder, &[])?;
    let java = Java::build(session).map_err(|fault| draft.complain(format!("Without Java: {fault}.")));
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
        let mut contenders = Vec::new();
        for (window, bytes) in WINDOWS {
            for (secure, url) in [(false, clear_url), (true, tls_url)] {
                let mut add = |client: &'static str, contender| {
                    entries.push(Entry {
                        client,
                        window,
                        secure,
                    });
                    contenders.push(contender);
                };
                add(
                    "fullbore",
                    Contender::ours("fullbore", move || load.part(session, "fullbore", url, bytes)),
                );
                if !secure {
                    add(
                        "reqwest",
                        Contender::peer("reqwest", move || load.part(session, "reqwest", url, bytes)),
                    );
                }
                let Ok(java) = &java else { continue };
                for client in Client::ALL {
                    if client.secure() != secure || (client.window_is_fixed() && bytes != 16 * MIB) {
                        continue;
                    }
                    add(
                        client.name(),
                        Contender::peer(client.name(), move || {
                            load.measure(session, java.command(client), url, bytes, JAVA_WARM_UP_MS)
                        }),
                    );
                }
            }
        }
        let all = hold(session.runs, contenders);
        draft.note_faults(&format!("{at_once} at once"), &all);
        for (entry, series) in entries.iter().zip(&all) {
            let own = entries.iter().zip(&all).find(|(own, _)| {
                own.client == "fullbore" && own.window == entry.window && own.secure == entry.secure
            });
            table.row(row(at_once, entry, series, own.map(|(_, own)| own)));
        }
    }
    draft.say(
        "Responses of 65,536 bytes from `fullbore serve` on one connection over loopback, one request after another or 16 \
         at once: requests a second over three seconds, after one of warming up (six in Java), and how long the middle one took. \
         The window is the stream's and the connection's.",
    );
    draft.table(&table);
    draft.note("The JDK's HttpClient does not speak HTTP/2 in the clear by prior knowledge and is measured over TLS; OkHttp's window is 16 MiB and cannot be set; AsyncHttpClient's connection window is HTTP/2's own 65,535 bytes raised by as much as its setting says.");
    if let Ok(java) = &java {
        draft.note(java.versions());
    }
    draft.done(session, &["java"])
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
            .and_then(|own| times_as_much(own, series, |one| one.a_second))
            .map_or("-".to_owned(), |spread| spread.text(2)),
    ]
}

/// How a client is asked to load the server.
#[derive(Clone, Copy)]
struct Load {
    at_once: u32,
}

impl Load {
    fn part(self, session: &Session, library: &str, url: &str, window: u64) -> Result<Sample, Fault> {
        let mut command = part::command("load")?;
        command.arg(library);
        self.measure(session, command, url, window, WARM_UP_MS)
    }

    /// The arguments are the same for the programs in Java.
    fn measure(
        self,
        session: &Session,
        command: Command,
        url: &str,
        window: u64,
        warm_up_ms: u64,
    ) -> Result<Sample, Fault> {
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
        let said = process::run(&session.janitor, &mut command, session.limit(LIMIT)?)?;
        let words: Vec<f64> = said
            .stdout
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match words.as_slice() {
            &[a_second, median_micros] => Ok(Sample {
                a_second,
                median_micros,
            }),
            _ => Err(Fault::Output("the client".to_owned(), said.stdout)),
        }
    }
}
