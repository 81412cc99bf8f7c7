//! Whether `get` and `put` name what limits a transfer: causes that are staged over packets, one after another, beside what
//! was said. The engine's tests stage the windows on a virtual clock; here the kernel, the machine and the servers are real.

mod slow;
mod stages;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fullbore_packets::Path as PacketPath;
use serde_json::Value;

use self::slow::SlowServer;
use self::stages::{Moved, Server, Stage, stages};
use super::{Case, Report, Section};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::Kind;
use crate::process;
use crate::program;

const LIMIT: Duration = Duration::from_secs(120);
/// Many files for the stage of few streams, of so many bytes each.
const FILES: u32 = 300;
const FILE_BYTES: u64 = 5_000;

/// What a program said of one transfer.
struct Said {
    cause: String,
    sentence: String,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Causes, "What limits a transfer");
    if report.lacks_path() {
        return report.finish(cx, &[]);
    }
    report.paragraph(
        "Each row stages a cause over a path of packets with Linux's stock buffers and cubic, unless it says otherwise, and \
         compares what `--json` names. `right` counts the runs that named the cause, or one of two that cannot be told apart. \
         `blamed` counts those that named the server although it was ready.",
    );
    let mut table = Table::new(["staged", "transfer", "right", "blamed", "named", "said last"]);
    let (mut right, mut all, mut blamed) = (0, 0, 0);
    for stage in stages() {
        let transfer = stage.transfer();
        if !cx.measures(&format!("{}, {transfer}", stage.name)) {
            continue;
        }
        let mut named: Vec<String> = Vec::new();
        let mut of_stage = (0, 0, 0);
        let mut last = String::new();
        for _ in 0..cx.options.runs {
            let taken = stage.play(cx);
            let Some(said) = report.record(stage.name, Kind::Files, taken) else {
                continue;
            };
            of_stage.0 += u32::from(stage.causes.contains(&said.cause.as_str()));
            of_stage.1 += u32::from(said.cause == "peer" && !stage.causes.contains(&"peer"));
            of_stage.2 += 1;
            if !named.contains(&said.cause) {
                named.push(said.cause);
            }
            last = said.sentence;
        }
        right += of_stage.0;
        blamed += of_stage.1;
        all += of_stage.2;
        eprintln!(
            "{}: {}/{}: {}; {last}",
            stage.name,
            of_stage.0,
            of_stage.2,
            named.join(", ")
        );
        table.row([
            stage.name.to_owned(),
            transfer,
            format!("{}/{}", of_stage.0, of_stage.2),
            of_stage.1.to_string(),
            named.join(", "),
            last,
        ]);
    }
    report.table(&table);
    report.note(format!(
        "{right} of {all} transfers have the cause that was staged; {blamed} blame a server that was ready."
    ));
    report.finish(cx, &[])
}

impl Stage {
    /// Moves the file over a path and a server of its own.
    fn play(&self, cx: &Context) -> Result<Said, Error> {
        let folder = cx.folder("causes")?;
        self.make_files(&folder)?;
        let path = PacketPath::open(&self.settings).map_err(Error::NoPath)?;
        let address = path.server().address();
        let mut more = vec!["--uploads", "discard", "--overwrite"];
        let (_served, _slow, port);
        match &self.server {
            Server::Serve(options) => {
                more.extend(options.iter().copied());
                let serve = || program::serve_at(cx, &folder, address.into(), false, &more);
                let served = path.server().enter(serve)?;
                port = served.port;
                _served = served;
            }
            Server::Slow => {
                let slow = path.server().enter(|| SlowServer::start(address.into()))?;
                port = slow.port;
                _slow = slow;
            }
        }
        let mut command = self.command(cx, &folder, &format!("http://{address}:{port}"))?;
        let limit = cx.limit(LIMIT)?;
        let _busy = self.is_busy.then(slow::Busy::start);
        let output = path
            .client()
            .enter(|| process::run(&cx.reaper, &mut command, limit))?;
        said(&output.stdout)
    }

    fn make_files(&self, folder: &Path) -> Result<(), Error> {
        match self.moved {
            Moved::List => {
                (0..FILES).try_for_each(|number| make_file(&folder.join(format!("f{number}")), FILE_BYTES))
            }
            _ => make_file(&folder.join("file"), self.bytes),
        }
    }

    /// The client, which prints its document.
    fn command(&self, cx: &Context, folder: &Path, origin: &str) -> Result<Command, Error> {
        let program = cx.program.display();
        let options = self.options.join(" ");
        let file = folder.join("file");
        let (url, file) = (format!("{origin}/file"), file.display());
        let document = folder.join("document");
        let document = document.display();
        let script = match self.moved {
            Moved::Get => format!("exec {program} get --json --discard {options} {url}"),
            Moved::GetSlow(path) => format!("exec {program} get --json --discard {options} {origin}/{path}"),
            Moved::List => {
                let list = folder.join("list");
                let urls: String = (0..FILES).map(|number| format!("{origin}/f{number}\n")).collect();
                fs::write(&list, urls).map_err(|error| Error::File(list.clone(), error))?;
                let list = list.display();
                format!("exec {program} get --json --discard {options} -i {list}")
            }
            // The document is on standard error when the body is on standard output.
            Moved::ToSlowReader => format!(
                "{program} get --json -o - {options} {url} 2>{document} | \
                 while [ $(dd bs=64k count=1 2>/dev/null | wc -c) -gt 0 ]; do sleep 0.05; done; cat {document}"
            ),
            Moved::Put => format!("exec {program} put --json -fo {document} {options} {file} {origin}/up"),
            Moved::FromSlowSource => format!(
                "for part in $(seq 40); do head -c 50000 /dev/zero; sleep 0.05; done | \
                 {program} put --json -fo {document} {options} - {origin}/up"
            ),
        };
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        Ok(command)
    }
}

/// The cause in a document of `get` or `put`.
fn said(document: &str) -> Result<Said, Error> {
    let wrong = || Error::Output("fullbore --json".to_owned(), document.to_owned());
    let value: Value = serde_json::from_str(document).map_err(|_| wrong())?;
    let waited = value["totals"]
        .get("waited")
        .or_else(|| value.get("waited"))
        .ok_or_else(wrong)?;
    let text = |name: &str| waited[name].as_str().map(ToOwned::to_owned).ok_or_else(wrong);
    Ok(Said {
        cause: text("cause")?,
        sentence: text("sentence")?,
    })
}
