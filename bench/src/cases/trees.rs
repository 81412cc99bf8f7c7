//! A folder of 10,000 files of 10 KB in 200 folders over a long path, down and up, and the same again when nothing has changed.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Case, RATE, Report, Section};
use crate::comparison::{Candidate, compare, speedup};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::process;
use crate::program;
use crate::route::{self, Route};

const FOLDERS: u32 = 200;
const FILES_OF_ONE: u32 = 50;
const FILE_BYTES: u64 = 10_000;
const BYTES: u64 = FOLDERS as u64 * FILES_OF_ONE as u64 * FILE_BYTES;
const RTT_MS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(120);
/// The share of packets that are lost on the second path.
const LOSS: f64 = 0.001;
/// The most that curl took before 8.16.
const CURL_AT_ONCE: u32 = 300;
/// The most connections of aria2, and of files at once that rclone is told to have.
const AT_ONCE: &str = "16";

/// Where the trees are.
struct Places {
    source: PathBuf,
    /// Where a client downloads to, and a server stores uploads.
    target: PathBuf,
    /// Where what they have left is kept. ext4 takes no inode that was removed in the last seconds, and looks for another one: a run
    /// behind a removal of 10,000 files would take up to twice as long.
    past: PathBuf,
    moved: AtomicUsize,
}

impl Places {
    /// Empties the target.
    fn clear(&self) -> Result<(), Error> {
        let to_error = |error| Error::File(self.target.clone(), error);
        let number = self.moved.fetch_add(1, Ordering::Relaxed);
        let past = self.past.join(number.to_string());
        fs::create_dir(&past).map_err(to_error)?;
        for entry in fs::read_dir(&self.target).map_err(to_error)?.flatten() {
            fs::rename(entry.path(), past.join(entry.file_name())).map_err(to_error)?;
        }
        Ok(())
    }
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let places = Places {
        source: cx.folder("trees")?,
        target: cx.folder("trees-target")?,
        past: cx.folder("trees-past")?,
        moved: AtomicUsize::new(0),
    };
    for place in paths() {
        let file = places.source.join(&place);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|error| Error::File(folder.to_owned(), error))?;
        }
        make_file(&file, FILE_BYTES)?;
    }
    let mut report = Report::new(Case::Trees, "A folder over a long path, down and up");
    let limit = 3.0 * f64::from(RTT_MS) / 1000.0 + BYTES as f64 / RATE;
    let mut table = Table::new([
        "direction",
        "path",
        "client",
        "seconds",
        "of the limit",
        "fullbore is so many times as fast",
    ]);
    for (path, loss) in [("no loss", 0.0), ("0.1 % of packets lost", LOSS)] {
        if loss > 0.0 && report.lacks_path() {
            continue;
        }
        for direction in ["down", "up"] {
            let route = Route::lossy_gigabit(cx, RTT_MS, route::CUBIC, loss)?;
            let served = route.serve(|| serve(cx, &places))?;
            let hop = route.to(served.port)?;
            let origin = format!("https://127.0.0.1:{}/", hop.port);
            let candidates = match direction {
                "down" => downloads(cx, &places, &origin)?,
                _ => uploads(cx, &places, &origin)?,
            };
            let all = route.ask(|| compare(cx.options.runs, candidates));
            report.note_errors(&format!("{direction}, {path}"), &all);
            for series in &all {
                let ratio = all.first().filter(|own| own.name != series.name);
                table.row([
                    direction.to_owned(),
                    path.to_owned(),
                    series.name.clone(),
                    series.cell(2, |seconds| *seconds),
                    series.cell(2, |seconds| seconds / limit),
                    ratio
                        .and_then(|own| speedup(own, series))
                        .map_or("-".to_owned(), |spread| spread.text(2)),
                ]);
            }
        }
    }
    report.paragraph(&format!(
        "{}. 10,000 files of 10,000 bytes in 200 folders, over TLS, from and to `fullbore serve`. The limit is three round trips \
         and the bodies at the link's rate: {limit:.2} s; the handshakes and slow start are not in it. The clock is that of the \
         whole process.",
        route::described(route::CUBIC)
    ));
    report.table(&table);
    report.note("`fullbore get -r`; again with `-N`; `fullbore put`; again with `--skip-existing`. `wget2 -r -np -nH`; `rclone copy :http:/ --transfers 16 --checkers 16`; `aria2c -j 16` and `curl --parallel --parallel-max 300` have the URLs in a list, for they read no lists of folders.");
    report.note("rclone uploads to WebDAV and not with PUT alone, and wget2 and aria2 upload nothing.");
    report.finish(cx, &["wget2", "rclone", "aria2c", "curl"])
}

fn serve<'a>(cx: &'a Context, places: &Places) -> Result<program::Served<'a>, Error> {
    let mut command = program::command(cx, "serve");
    command.arg(&places.source);
    command.args([
        "--self-signed",
        "--listen",
        "127.0.0.1:0",
        "--overwrite",
        "--uploads",
    ]);
    program::listening(cx, command.arg(&places.target))
}

/// The paths of the files below the folder.
fn paths() -> impl Iterator<Item = String> {
    (0..FOLDERS).flat_map(|folder| (0..FILES_OF_ONE).map(move |file| format!("d{folder}/f{file}")))
}

fn downloads<'a>(
    cx: &'a Context,
    places: &'a Places,
    origin: &str,
) -> Result<Vec<Candidate<'a, f64>>, Error> {
    let (urls, config) = (
        cx.folder("trees-lists")?.join("urls"),
        cx.folder("trees-lists")?.join("get"),
    );
    let (mut text, mut curls) = (String::new(), String::new());
    for path in paths() {
        let _ = writeln!(text, "{origin}{path}\n  out={path}");
        let output = places.target.join(&path);
        let _ = writeln!(
            curls,
            "url = \"{origin}{path}\"\noutput = \"{}\"",
            output.display()
        );
    }
    write(&urls, &text)?;
    write(&config, &curls)?;
    let target = &places.target;
    let get = |more: &[&str]| {
        let mut command = program::command(cx, "get");
        command
            .args(["-r", "--insecure"])
            .args(more)
            .arg(origin)
            .arg(target);
        command
    };
    let mut wget2 = Command::new("wget2");
    wget2.args(["-q", "-r", "-np", "-nH", "--no-check-certificate", "-P"]);
    wget2.arg(target).arg(origin);
    let mut rclone = Command::new("rclone");
    rclone.args([
        "copy",
        "--config",
        "/dev/null",
        "--no-check-certificate",
        "--transfers",
        AT_ONCE,
    ]);
    rclone
        .args(["--checkers", AT_ONCE, "--http-url", origin, ":http:"])
        .arg(target);
    let mut aria2 = Command::new("aria2c");
    aria2.args(["-q", "--check-certificate=false", "-j", AT_ONCE, "-d"]);
    aria2.arg(target).arg("-i").arg(&urls);
    let mut curl = peers::curl_parallel(CURL_AT_ONCE);
    curl.arg("--create-dirs").arg("--config").arg(&config);
    Ok(vec![
        candidate(cx, "fullbore get -r", true, places, true, get(&[])),
        candidate(cx, "fullbore get -r -N, again", true, places, false, get(&["-N"])),
        candidate(cx, "wget2 -r", false, places, true, wget2),
        candidate(cx, "rclone copy", false, places, true, rclone),
        candidate(cx, "aria2c, a list", false, places, true, aria2),
        candidate(cx, "curl -Z, a list", false, places, true, curl),
    ])
}

fn uploads<'a>(cx: &'a Context, places: &'a Places, origin: &str) -> Result<Vec<Candidate<'a, f64>>, Error> {
    let config = cx.folder("trees-lists")?.join("put");
    let mut text = String::new();
    for path in paths() {
        let file = places.source.join(&path);
        let _ = writeln!(
            text,
            "upload-file = \"{}\"\nurl = \"{origin}{path}\"",
            file.display()
        );
    }
    write(&config, &text)?;
    let mut source = places.source.clone().into_os_string();
    source.push(OsStr::new("/"));
    let put = |more: &[&str]| {
        let mut command = program::command(cx, "put");
        command.args(["--insecure"]).args(more).arg(&source).arg(origin);
        command
    };
    let mut curl = peers::curl_parallel(CURL_AT_ONCE);
    curl.args(["--output", "/dev/null", "--config"]).arg(&config);
    Ok(vec![
        candidate(cx, "fullbore put", true, places, true, put(&[])),
        candidate(
            cx,
            "fullbore put --skip-existing, again",
            true,
            places,
            false,
            put(&["--skip-existing"]),
        ),
        candidate(cx, "curl -Z, a list", false, places, true, curl),
    ])
}

/// A client whose command leaves all files in the target, which is empty before with `is_fresh`.
fn candidate<'a>(
    cx: &'a Context,
    name: &str,
    is_ours: bool,
    places: &'a Places,
    is_fresh: bool,
    mut command: Command,
) -> Candidate<'a, f64> {
    let name_of_it = name.to_owned();
    Candidate::new(name, is_ours, move || {
        if is_fresh {
            places.clear()?;
        }
        let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
        let is_whole = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() == FILE_BYTES);
        let missing = paths()
            .filter(|path| !is_whole(&places.target.join(path)))
            .count();
        match missing {
            0 => Ok(output.wall.as_secs_f64()),
            missing => Err(Error::Output(
                name_of_it.clone(),
                format!("{missing} files are missing"),
            )),
        }
    })
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text).map_err(|error| Error::File(file.to_owned(), error))
}
