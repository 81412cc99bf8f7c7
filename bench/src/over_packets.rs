//! `fullbore serve` at one end of a path of packets and a client at the other: what the cases over packets share. Each
//! measurement has a path and a server of its own, so that nothing is left of the one before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fullbore_packets::{Path as PacketPath, Report, Settings};

use crate::context::Context;
use crate::error::Error;
use crate::process::{self, Output};
use crate::program::{self, Served};

/// A path with a server at its end.
pub(crate) struct Site<'a> {
    // The server ends before the path.
    _served: Served<'a>,
    path: PacketPath,
    secure: bool,
    port: u16,
}

/// What is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Serving<'a> {
    pub(crate) folder: &'a Path,
    /// Where uploads are stored, if they are taken.
    pub(crate) uploads: Option<&'a Path>,
    /// Over TLS.
    pub(crate) secure: bool,
}

/// A client of one URL, or of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Client {
    /// `fullbore get`, at its defaults or with so many connections.
    Get(Option<u32>),
    Curl,
    /// `aria2c` with so many connections and pieces of a MiB.
    Aria2(u32),
    Put,
    /// `fullbore put --congestion-control bbr`.
    PutBbr,
    CurlPut,
    /// `fullbore get -i LIST`.
    GetList,
    /// `h2load` with so many connections.
    H2load(u32),
}

impl Client {
    pub(crate) fn ours(self) -> bool {
        matches!(
            self,
            Client::Get(_) | Client::Put | Client::PutBbr | Client::GetList
        )
    }

    pub(crate) fn name(self) -> String {
        match self {
            Client::Get(None) => "fullbore get".to_owned(),
            Client::Get(Some(connections)) => format!("get --connections {connections}"),
            Client::Curl => "curl".to_owned(),
            Client::Aria2(connections) => format!("aria2c -x{connections} -s{connections}"),
            Client::Put => "fullbore put".to_owned(),
            Client::PutBbr => "put --congestion-control bbr".to_owned(),
            Client::CurlPut => "curl -T".to_owned(),
            Client::GetList => "fullbore get -i".to_owned(),
            Client::H2load(connections) => format!("h2load -c{connections}"),
        }
    }
}

/// What a client has to move, and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'a> {
    /// The folder that is served, or the one of the file to upload.
    pub(crate) folder: &'a Path,
    /// The names of the files in it.
    pub(crate) names: &'a [String],
    /// What `sha256sum` prints of them.
    pub(crate) digests: &'a str,
}

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// From the start of the client's process to its end; the limit, if it was not done by then.
    pub(crate) seconds: f64,
    /// Whether it was not done by then.
    pub(crate) over: bool,
    /// How many connections there were.
    pub(crate) connections: usize,
    /// How many of them were open when the last octet came.
    pub(crate) open: usize,
    /// Packets that the machine was too slow for.
    pub(crate) overrun: u64,
    /// The most that a packet was late because of the machine.
    pub(crate) latest: Duration,
}

impl<'a> Site<'a> {
    pub(crate) fn open(cx: &'a Context, settings: &Settings, serving: Serving) -> Result<Self, Error> {
        let path = PacketPath::open(settings).map_err(Error::NoPath)?;
        let mut more: Vec<&str> = Vec::new();
        let uploads = serving.uploads.map(|folder| folder.display().to_string());
        if let Some(folder) = &uploads {
            more.extend(["--overwrite", "--uploads", folder]);
        }
        let server = path.server();
        let address = server.address().into();
        let served =
            server.enter(|| program::serve_at(cx, serving.folder, address, serving.secure, &more))?;
        Ok(Self {
            port: served.port,
            _served: served,
            path,
            secure: serving.secure,
        })
    }

    /// The URL of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}:{}/{name}", self.path.server().address(), self.port)
    }

    pub(crate) fn path(&self) -> &PacketPath {
        &self.path
    }

    /// Runs a program at the client's end.
    pub(crate) fn run(&self, cx: &Context, command: &mut Command, limit: Duration) -> Result<Output, Error> {
        self.path
            .client()
            .enter(|| process::run(&cx.reaper, command, limit))
    }

    /// The command of a client that moves the work's files from, or to, `folder`.
    pub(crate) fn command(
        &self,
        cx: &Context,
        client: Client,
        work: Work,
        folder: &Path,
    ) -> Result<Command, Error> {
        let first = work.names.first().map_or("", String::as_str);
        let (url, own) = (self.url(first), folder.join(first));
        let mut command = match client {
            Client::Get(_) | Client::GetList => program::command(cx, "get"),
            Client::Put | Client::PutBbr => program::command(cx, "put"),
            Client::Curl | Client::CurlPut => Command::new("curl"),
            Client::Aria2(_) => Command::new("aria2c"),
            Client::H2load(_) => Command::new("h2load"),
        };
        match client {
            Client::Get(connections) => {
                if let Some(connections) = connections {
                    command.args(["--connections", &connections.to_string()]);
                }
                command.args(["--insecure", "-q", "-o"]).arg(own).arg(url);
            }
            Client::GetList => {
                command.args(["--insecure", "-q", "--dir"]).arg(folder);
                command.arg("-i").arg(self.list(work, folder)?);
            }
            Client::Put | Client::PutBbr => {
                if client == Client::PutBbr {
                    command.args(["--congestion-control", "bbr"]);
                }
                command
                    .args(["--insecure", "-q"])
                    .arg(work.folder.join(first))
                    .arg(url);
            }
            Client::Curl => {
                command.args(["-sSfk", "-o"]).arg(own).arg(url);
            }
            Client::CurlPut => {
                command
                    .args(["-sSfk", "-T"])
                    .arg(work.folder.join(first))
                    .arg(url);
            }
            Client::Aria2(connections) => {
                command.args([
                    format!("-x{connections}"),
                    format!("-s{connections}"),
                    "-k1M".to_owned(),
                    "-q".to_owned(),
                    // Its default writes the whole file with zeros first.
                    "--file-allocation=none".to_owned(),
                    "--check-certificate=false".to_owned(),
                ]);
                command.arg("-d").arg(folder).arg(url);
            }
            Client::H2load(connections) => {
                let requests = work.names.len();
                command.args([
                    format!("-n{requests}"),
                    format!("-c{connections}"),
                    "-m100".to_owned(),
                ]);
                command.arg("-i").arg(self.list(work, folder)?);
            }
        }
        Ok(command)
    }

    /// A file of the URLs of all files.
    fn list(&self, work: Work, folder: &Path) -> Result<PathBuf, Error> {
        let file = folder.join("list");
        let urls: Vec<String> = work.names.iter().map(|name| self.url(name) + "\n").collect();
        fs::write(&file, urls.concat()).map_err(|error| Error::File(file.clone(), error))?;
        Ok(file)
    }
}

/// Moves the work's files with a client over a path of its own, and compares their digests.
pub(crate) fn transfer(
    cx: &Context,
    settings: &Settings,
    secure: bool,
    client: Client,
    work: Work,
    limit: Duration,
) -> Result<Sample, Error> {
    // Ends with this measurement, so that no client finds what another has stored.
    let folder = Folder(cx.folder("moved")?);
    let uploads = matches!(client, Client::Put | Client::PutBbr | Client::CurlPut);
    let serving = Serving {
        folder: work.folder,
        uploads: uploads.then_some(folder.0.as_path()),
        secure,
    };
    let site = Site::open(cx, settings, serving)?;
    let mut command = site.command(cx, client, work, &folder.0)?;
    let (seconds, over) = match site.run(cx, &mut command, cx.limit(limit)?) {
        Ok(output) => {
            check(&client, &output, work)?;
            (output.wall.as_secs_f64(), false)
        }
        Err(Error::Slow(_, limit)) => (limit.as_secs_f64(), true),
        Err(error) => return Err(error),
    };
    let report = site.path.report();
    if !over && !matches!(client, Client::H2load(_)) && digests(cx, &folder.0, work.names)? != work.digests {
        return Err(Error::Output(
            client.name(),
            "a file with another SHA-256".to_owned(),
        ));
    }
    Ok(sample(seconds, over, &report))
}

fn sample(seconds: f64, over: bool, report: &Report) -> Sample {
    Sample {
        seconds,
        over,
        connections: report.flows.len(),
        open: report.open_at_the_end(),
        overrun: report.overrun,
        latest: report.latest,
    }
}

/// h2load ends well whatever it got, and keeps nothing.
fn check(client: &Client, output: &Output, work: Work) -> Result<(), Error> {
    match client {
        Client::H2load(_) => {
            crate::peers::h2loads_lines(&output.stdout, work.names.len() as u64).map(|_seconds| ())
        }
        _ => Ok(()),
    }
}

/// What `sha256sum` prints of the files of a folder.
pub(crate) fn digests(cx: &Context, folder: &Path, names: &[String]) -> Result<String, Error> {
    let mut command = Command::new("sha256sum");
    command.current_dir(folder).arg("--").args(names);
    Ok(process::run(&cx.reaper, &mut command, Duration::from_secs(60))?.stdout)
}

/// A folder that is removed with its files.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
