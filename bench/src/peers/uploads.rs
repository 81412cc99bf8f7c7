//! Servers that take uploads over cleartext: lighttpd into a folder, and haproxy before another server.

use std::path::Path;
use std::process::Command;

use crate::context::Context;
use crate::error::Error;
use crate::process::Running;

use super::PeerServer;

/// lighttpd, which takes PUT into `folder`.
pub(crate) fn lighttpd<'a>(cx: &'a Context, folder: &Path) -> Result<PeerServer<'a>, Error> {
    let port = cx.free_port()?;
    let root = folder.display();
    let config = format!(
        "server.modules = (\"mod_webdav\")\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         server.document-root = \"{root}\"\nserver.upload-dirs = (\"{root}\")\nserver.max-request-size = 0\n\
         webdav.activate = \"enable\"\n"
    );
    let mut command = Command::new("lighttpd");
    command
        .arg("-D")
        .arg("-f")
        .arg(written(folder, "lighttpd.conf", &config)?);
    start(cx, &mut command, port)
}

/// haproxy, which passes everything on over HTTP/2 to the server at `behind`.
pub(crate) fn haproxy<'a>(cx: &'a Context, folder: &Path, behind: u16) -> Result<PeerServer<'a>, Error> {
    let port = cx.free_port()?;
    let config = format!(
        "defaults\n  mode http\n  timeout connect 60s\n  timeout client 120s\n  timeout server 120s\n\
         listen front\n  bind 127.0.0.1:{port} proto h2\n  server back 127.0.0.1:{behind} proto h2\n"
    );
    let mut command = Command::new("haproxy");
    command
        .arg("-db")
        .arg("-f")
        .arg(written(folder, "haproxy.cfg", &config)?);
    start(cx, &mut command, port)
}

fn written(folder: &Path, name: &str, text: &str) -> Result<std::path::PathBuf, Error> {
    let file = folder.join(name);
    match std::fs::write(&file, text) {
        Ok(()) => Ok(file),
        Err(error) => Err(Error::File(file, error)),
    }
}

fn start<'a>(cx: &'a Context, command: &mut Command, port: u16) -> Result<PeerServer<'a>, Error> {
    Ok(PeerServer {
        _running: Running::listening(&cx.reaper, command, port)?,
        port,
    })
}
