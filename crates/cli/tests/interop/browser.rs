//! A page of 300 images in Chromium, over HTTP/1.1 in cleartext and over HTTP/2 with TLS. A script of the page counts the
//! images that loaded, and says which versions of HTTP brought them.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;

use crate::files::Scratch;
use crate::fullbore::{Server, Transport, Uploads};
use crate::peers::{Peer, trial};
use crate::process::{Outcome, ensure, run_text};

const IMAGES: usize = 300;

/// Width and height of an image, in pixels.
const SIDE: u32 = 64;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |transport, protocol| {
        trial(
            &[Peer::Chromium],
            format!("Chromium loads a page of {IMAGES} images over {transport}"),
            move || page(transport, protocol),
        )
    };
    vec![of(Transport::Cleartext, "http/1.1"), of(Transport::Tls, "h2")]
}

fn page(transport: Transport, protocol: &str) -> Outcome {
    let scratch = Scratch::new()?;
    let site = scratch.folder("site")?;
    write_site(&site)?;
    let server = Server::start(transport, &site, Uploads::None)?;
    let mut command = chromium(&scratch)?;
    command.arg("--dump-dom");
    let dom =
        run_text(command.arg(format!("{}/index.html", server.url))).map_err(|fault| server.blame(&fault))?;
    let expected = format!("{IMAGES} of {IMAGES} loaded over {protocol}");
    ensure(dom.contains(&expected), || {
        format!("not {expected:?}, but:\n{dom}")
    })
}

/// Chromium without a window, with a profile of its own.
pub(crate) fn chromium(scratch: &Scratch) -> Outcome<Command> {
    let mut command = Peer::Chromium.command()?;
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    // Names of other hosts are not resolved, whatever a browser asks for by itself.
    command.args([
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--disable-background-networking",
        "--ignore-certificate-errors",
    ]);
    let profile = scratch.path().join("profile");
    command.arg(format!("--user-data-dir={}", profile.display()));
    Ok(command)
}

/// The page and its images, each of another colour.
fn write_site(site: &Path) -> Outcome {
    let images: String = (0..IMAGES)
        .map(|index| format!("<img src=\"{index}.bmp\">\n"))
        .collect();
    let page = format!(
        "<!doctype html><title>images</title><body>\n{images}<script>\n\
         addEventListener('load', () => {{\n\
           const images = [...document.images];\n\
           const whole = images.filter((image) => image.complete && image.naturalWidth === {SIDE}).length;\n\
           const entries = performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('.bmp'));\n\
           const protocols = [...new Set(entries.map((entry) => entry.nextHopProtocol))].sort().join(' and ');\n\
           document.body.textContent = `${{whole}} of ${{images.length}} loaded over ${{protocols}}`;\n\
         }});\n</script>\n"
    );
    fs::write(site.join("index.html"), page)?;
    for index in 0..IMAGES {
        fs::write(site.join(format!("{index}.bmp")), image(index))?;
    }
    Ok(())
}

/// A bitmap of one colour: a file header, a BITMAPINFOHEADER, and the pixels as blue, green and red.
fn image(index: usize) -> Vec<u8> {
    const HEADERS: u32 = 54;
    let pixels = 3 * SIDE * SIDE;
    let mut file = b"BM".to_vec();
    for field in [
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
    ] {
        file.extend(field.to_le_bytes());
    }
    let colour = [index as u8, (index / 256) as u8 * 64, !(index as u8)];
    file.extend(colour.repeat((SIDE * SIDE) as usize));
    file
}
