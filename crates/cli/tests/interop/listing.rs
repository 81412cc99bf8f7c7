//! The list of a folder in Chromium, over cleartext and TLS: its pictures in light and dark, an upload by its form, and a
//! recording in the folder that is played from its middle.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;

use crate::browser::chromium;
use crate::files::Scratch;
use crate::fullbore::{Server, Transport, Uploads};
use crate::peers::{Peer, trial};
use crate::process::{Outcome, ensure, run_text};

const RATE: u32 = 44_100;
const SECONDS: u32 = 120;

/// Keeps a page loading until `done` is set: Chromium prints it when it has loaded.
const LOADING: &str = "let count = 0;\n\
    let done = false;\n\
    const hold = () => {\n\
      if (done) return;\n\
      const image = new Image();\n\
      image.onerror = hold;\n\
      image.src = `none.png?${count++}`;\n\
    };\n\
    hold();\n";

/// A page beside the listing, which takes the form out of it, chooses files in it and submits it. The listing itself may
/// run no script.
const UPLOAD: &str = "(async () => {\n\
      const html = await (await fetch('folder/')).text();\n\
      const form = document.adoptNode(new DOMParser().parseFromString(html, 'text/html').querySelector('form'));\n\
      form.action = 'folder/';\n\
      document.body.append(form);\n\
      const chosen = new DataTransfer();\n\
      chosen.items.add(new File(['one'], 'new \\u00e9 & \\u201cone\\u201d.txt'));\n\
      chosen.items.add(new File([new Uint8Array(3000000).fill(7)], 'large.bin'));\n\
      form.querySelector('input').files = chosen.files;\n\
      form.requestSubmit();\n\
    })();\n";

/// A page that goes to a place in the middle of a recording.
const SEEK: &str = "const audio = new Audio('recording.wav');\n\
    const say = (text) => { document.body.textContent = text; done = true; };\n\
    audio.preload = 'metadata';\n\
    audio.onerror = () => say(`failed: ${audio.error.message}`);\n\
    audio.onloadedmetadata = () => { audio.currentTime = 100; };\n\
    audio.onseeked = () => say(`at ${audio.currentTime} of ${Math.round(audio.duration)}`);\n";

fn page(script: &str) -> String {
    format!("<!doctype html><title>test</title><body><script>\n{LOADING}{script}</script>\n")
}

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |name: &str, transport, run: fn(Transport) -> Outcome| {
        let title = format!("{name} in Chromium over {transport}");
        trial(&[Peer::Chromium], title, move || run(transport))
    };
    [Transport::Cleartext, Transport::Tls]
        .into_iter()
        .flat_map(|transport| {
            [
                of("a folder is listed in light and in dark", transport, pictures),
                of("the form of a listing uploads", transport, upload),
                of("a recording is played from its middle", transport, seek),
            ]
        })
        .collect()
}

/// What a browser shows of a page that has loaded.
fn dom(scratch: &Scratch, server: &Server, path: &str) -> Outcome<String> {
    let mut command = chromium(scratch)?;
    command.arg("--dump-dom");
    run_text(command.arg(format!("{}/{path}", server.url))).map_err(|fault| server.blame(&fault))
}

fn pictures(transport: Transport) -> Outcome {
    let scratch = Scratch::new()?;
    let site = scratch.folder("site")?;
    write_folder(&site)?;
    let server = Server::start(transport, &site, Uploads::Into(&site))?;
    let mut pictures = Vec::new();
    for (name, arguments) in [
        ("light", &["--blink-settings=preferredColorScheme=1"]),
        ("dark", &["--blink-settings=preferredColorScheme=0"]),
    ] {
        let picture = scratch.path().join(format!("{name}.png"));
        let mut command = chromium(&scratch)?;
        command.args(arguments).arg("--window-size=1000,700");
        command.arg(format!("--screenshot={}", picture.display()));
        run_text(command.arg(format!("{}/folder/?sort=size&order=desc", server.url)))
            .map_err(|fault| server.blame(&fault))?;
        pictures.push(fs::read(picture)?);
    }
    for picture in &pictures {
        ensure(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, || {
            format!("a picture of {} bytes", picture.len())
        })?;
    }
    ensure(pictures[0] != pictures[1], || "light and dark are alike".into())?;
    let dom = dom(&scratch, &server, "folder/?sort=size&order=desc")?;
    for expected in [
        "<a href=\"Reports/\">",
        "aria-sort=\"descending\"",
        "2.00 MiB",
        "<form ",
    ] {
        ensure(dom.contains(expected), || format!("no {expected} in:\n{dom}"))?;
    }
    Ok(())
}

fn upload(transport: Transport) -> Outcome {
    let scratch = Scratch::new()?;
    let site = scratch.folder("site")?;
    write_folder(&site)?;
    // Pages in the folder for uploads are sandboxed: this one is beside it.
    fs::write(site.join("upload.html"), page(UPLOAD))?;
    let uploads = site.join("folder");
    let server = Server::start(transport, &site, Uploads::Into(&uploads))?;
    let dom = dom(&scratch, &server, "upload.html")?;
    // The browser has gone to the listing, which has them.
    for expected in [
        "new é &amp; “one”.txt",
        "large.bin",
        "2.86 MiB",
        "<title>/folder/</title>",
    ] {
        ensure(dom.contains(expected), || format!("no {expected} in:\n{dom}"))?;
    }
    let folder = site.join("folder");
    ensure(fs::read(folder.join("new é & “one”.txt"))? == b"one", || {
        "another content".into()
    })?;
    ensure(fs::read(folder.join("large.bin"))? == vec![7; 3_000_000], || {
        "another content".into()
    })
}

fn seek(transport: Transport) -> Outcome {
    let scratch = Scratch::new()?;
    let site = scratch.folder("site")?;
    fs::write(site.join("seek.html"), page(SEEK))?;
    fs::write(site.join("recording.wav"), recording())?;
    let server = Server::start(transport, &site, Uploads::None)?;
    let dom = dom(&scratch, &server, "seek.html")?;
    let expected = format!("at 100 of {SECONDS}");
    ensure(dom.contains(&expected), || {
        format!("not {expected:?}, but:\n{dom}")
    })
}

/// A folder as somebody might have.
fn write_folder(site: &Path) -> Outcome {
    let folder = site.join("folder");
    for name in ["Reports", "photos 2026"] {
        fs::create_dir_all(folder.join(name))?;
    }
    for (name, bytes) in [
        ("README.md", 1_400),
        ("big.iso", 2 << 20),
        ("index of <everything> & more.txt", 300),
        ("notes.txt", 0),
        ("übersicht.pdf", 48_211),
    ] {
        fs::write(folder.join(name), vec![b'x'; bytes])?;
    }
    Ok(())
}

/// Silence of 16 bits in two channels: 20 MB, of which a browser reads what it needs.
fn recording() -> Vec<u8> {
    let bytes = RATE * 4 * SECONDS;
    let mut file = b"RIFF".to_vec();
    file.extend((bytes + 36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // PCM, channels; frames and bytes a second; bytes of a frame, bits of a sample.
    file.extend([1_u16, 2].map(u16::to_le_bytes).concat());
    file.extend([RATE, RATE * 4].map(u32::to_le_bytes).concat());
    file.extend([4_u16, 16].map(u16::to_le_bytes).concat());
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.resize(file.len() + bytes as usize, 0);
    file
}
