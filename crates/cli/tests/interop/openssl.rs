//! Certificates that the program `openssl` makes, as people make them: `fullbore serve` and `get` take them, or say what is
//! wrong with them.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;

use crate::files::{Hasher, Scratch, site, small};
use crate::fullbore::program;
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, run_any, run_into, run_text, spawn_on_free_port};

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let openssl = [Peer::Openssl];
    let mut trials = vec![
        trial(
            &openssl,
            "a key that openssl has encrypted is refused until openssl has decrypted it",
            encrypted_key,
        ),
        trial(
            &openssl,
            "a certificate in DER or PKCS #12 is refused until openssl has converted it",
            converted,
        ),
        trial(
            &openssl,
            "a certificate of X.509 version 1 is refused and says why",
            version_1,
        ),
        trial(
            &openssl,
            "a certificate without subjectAltName is refused and says how to add it",
            nameless,
        ),
        trial(
            &openssl,
            "openssl s_server that requires a client certificate is named",
            client_certificate,
        ),
        trial(
            &openssl,
            "openssl s_server with TLS 1.1 alone is named",
            old_version,
        ),
    ];
    for key in ["rsa:2048", "ec:P-256", "ed25519"] {
        trials.push(trial(
            &[Peer::Openssl, Peer::Curl],
            format!("what openssl req -x509 makes with {key} is trusted by get and curl"),
            move || self_signed(key),
        ));
    }
    trials
}

/// Runs openssl in a folder.
fn openssl(folder: &Path, args: &[&str]) -> Outcome {
    let mut command = Peer::Openssl.command()?;
    run_text(command.current_dir(folder).args(args)).map(drop)
}

/// Makes `cert.pem` and `key.pem`.
fn make(folder: &Path, key: &str, more: &[&str]) -> Outcome {
    let key: &[&str] = match key {
        "ec:P-256" => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        other => &["-newkey", other],
    };
    let args = [
        "req",
        "-x509",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
    ];
    openssl(folder, &[&args[..], key, more].concat())
}

const NAMES: [&str; 2] = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];

/// `fullbore serve` with these files of the folder. Returns its port.
fn serve(folder: &Path, cert: &str, key: &str) -> Outcome<(Daemon, String)> {
    let mut command = Command::new(program());
    command.current_dir(folder).arg("serve").arg(site());
    command.args(["--listen", "127.0.0.1:0", "--cert", cert, "--key", key]);
    let mut daemon = Daemon::spawn(&mut command)?;
    let url = daemon.wait_line("listening on ")?;
    let port = url.rsplit(':').next().unwrap_or_default().to_owned();
    Ok((daemon, port))
}

/// Fails unless `fullbore` with these arguments ends with this code and says this.
fn refuses(folder: &Path, args: &[&str], code: i32, parts: &[&str]) -> Outcome {
    let mut command = Command::new(program());
    let (status, _, said) = run_any(command.current_dir(folder).args(args), std::io::sink(), DEADLINE)?;
    ensure(status.code() == Some(code), || format!("{status}: {said}"))?;
    parts
        .iter()
        .try_for_each(|part| ensure(said.contains(part), || format!("{part:?} is not in {said}")))
}

fn serve_refuses(folder: &Path, cert: &str, key: &str, part: &str) -> Outcome {
    let args = ["serve", "--listen", "127.0.0.1:0", "--cert", cert, "--key", key];
    refuses(folder, &args, 2, &[part])
}

fn self_signed(key: &str) -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(folder, key, &[&["-nodes"], &NAMES[..]].concat())?;
    let (_daemon, port) = serve(folder, "cert.pem", "key.pem")?;
    let payload = small().last().ok_or("no files")?;
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{port}/{}", payload.name);
        let mut get = Command::new(program());
        get.current_dir(folder)
            .args(["get", "--cacert", "cert.pem", "-o", "-", &url]);
        let (seen, _) = run_into(&mut get, Hasher::default(), DEADLINE)?;
        payload.check_hash(&seen, "fullbore get")?;
        let mut curl = Peer::Curl.command()?;
        curl.current_dir(folder)
            .args(["--silent", "--show-error", "--cacert", "cert.pem", &url]);
        let (seen, _) = run_into(&mut curl, Hasher::default(), DEADLINE)?;
        payload.check_hash(&seen, "curl")?;
    }
    let url = format!("https://localhost:{port}/");
    make(
        folder,
        key,
        &[
            &["-nodes", "-out", "other.pem", "-keyout", "other.key"],
            &NAMES[..],
        ]
        .concat(),
    )?;
    refuses(
        folder,
        &["get", "--cacert", "other.pem", &url],
        6,
        &["--cacert FILE trusts it"],
    )
}

fn encrypted_key() -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(
        folder,
        "rsa:2048",
        &[&["-passout", "pass:secret"], &NAMES[..]].concat(),
    )?;
    serve_refuses(
        folder,
        "cert.pem",
        "key.pem",
        "openssl pkey -in FILE -out DECRYPTED",
    )?;
    // The older format says so in a field.
    openssl(
        folder,
        &[
            "rsa",
            "-traditional",
            "-aes128",
            "-in",
            "key.pem",
            "-passin",
            "pass:secret",
            "-passout",
            "pass:secret",
            "-out",
            "old.pem",
        ],
    )?;
    serve_refuses(
        folder,
        "cert.pem",
        "old.pem",
        "openssl pkey -in FILE -out DECRYPTED",
    )?;
    openssl(
        folder,
        &[
            "pkey",
            "-in",
            "key.pem",
            "-passin",
            "pass:secret",
            "-out",
            "plain.pem",
        ],
    )?;
    serve(folder, "cert.pem", "plain.pem").map(drop)
}

fn converted() -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(folder, "rsa:2048", &[&["-nodes"], &NAMES[..]].concat())?;
    openssl(
        folder,
        &["x509", "-in", "cert.pem", "-outform", "der", "-out", "cert.der"],
    )?;
    openssl(
        folder,
        &["pkey", "-in", "key.pem", "-outform", "der", "-out", "key.der"],
    )?;
    openssl(
        folder,
        &[
            "pkcs12", "-export", "-in", "cert.pem", "-inkey", "key.pem", "-passout", "pass:", "-out",
            "both.p12",
        ],
    )?;
    serve_refuses(
        folder,
        "cert.der",
        "key.pem",
        "openssl x509 -inform der -in FILE -out PEM",
    )?;
    serve_refuses(
        folder,
        "cert.pem",
        "key.der",
        "openssl pkey -inform der -in FILE -out PEM",
    )?;
    serve_refuses(
        folder,
        "both.p12",
        "key.pem",
        "openssl pkcs12 -in FILE -nokeys -out PEM",
    )?;
    serve_refuses(
        folder,
        "cert.pem",
        "both.p12",
        "openssl pkcs12 -in FILE -nocerts -nodes -out PEM",
    )?;
    serve_refuses(folder, "key.pem", "cert.pem", "have the two files been swapped?")?;
    // The commands of the messages.
    openssl(
        folder,
        &["x509", "-inform", "der", "-in", "cert.der", "-out", "1.pem"],
    )?;
    openssl(
        folder,
        &["pkey", "-inform", "der", "-in", "key.der", "-out", "2.pem"],
    )?;
    openssl(
        folder,
        &[
            "pkcs12", "-in", "both.p12", "-passin", "pass:", "-nokeys", "-out", "3.pem",
        ],
    )?;
    openssl(
        folder,
        &[
            "pkcs12", "-in", "both.p12", "-passin", "pass:", "-nocerts", "-nodes", "-out", "4.pem",
        ],
    )?;
    serve(folder, "1.pem", "2.pem")?;
    serve(folder, "3.pem", "4.pem").map(drop)
}

/// What `openssl x509 -req` of OpenSSL 3.0 makes without an extension.
fn version_1() -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(folder, "rsa:2048", &["-nodes"])?;
    openssl(
        folder,
        &[
            "req",
            "-new",
            "-key",
            "key.pem",
            "-subj",
            "/CN=localhost",
            "-out",
            "request.pem",
        ],
    )?;
    serve_refuses(
        folder,
        "request.pem",
        "key.pem",
        "a request for a certificate and no certificate",
    )?;
    let sign = [
        "x509",
        "-req",
        "-in",
        "request.pem",
        "-key",
        "key.pem",
        "-days",
        "2",
        "-out",
        "old.pem",
    ];
    openssl(folder, &sign)?;
    let text = run_text(
        Peer::Openssl
            .command()?
            .current_dir(folder)
            .args(["x509", "-in", "old.pem", "-noout", "-text"]),
    )?;
    match text.contains("Version: 1") {
        true => serve_refuses(folder, "old.pem", "key.pem", "it is of X.509 version 1"),
        // A newer OpenSSL makes version 3.
        false => serve(folder, "old.pem", "key.pem").map(drop),
    }
}

fn nameless() -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(folder, "rsa:2048", &["-nodes"])?;
    let (_daemon, port) = serve(folder, "cert.pem", "key.pem")?;
    let url = format!("https://localhost:{port}/");
    let parts = [
        "without subjectAltName",
        "openssl req -x509 … -addext subjectAltName=DNS:localhost",
    ];
    refuses(folder, &["get", "--cacert", "cert.pem", &url], 6, &parts)
}

/// `openssl s_server` with these options, and what `get` says of it.
fn s_server_is_named(options: &[&str], code: i32, parts: &[&str]) -> Outcome {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    make(folder, "rsa:2048", &[&["-nodes"], &NAMES[..]].concat())?;
    let (_daemon, port) = spawn_on_free_port(|port| {
        let mut command = Peer::Openssl.command()?;
        command
            .current_dir(folder)
            .args(["s_server", "-www", "-cert", "cert.pem", "-key", "key.pem"]);
        command.args(["-alpn", "h2,http/1.1", "-accept", &format!("127.0.0.1:{port}")]);
        command.args(options);
        Ok(command)
    })?;
    let url = format!("https://localhost:{port}/");
    refuses(folder, &["get", "--cacert", "cert.pem", &url], code, parts)
}

fn client_certificate() -> Outcome {
    let parts = ["requires a client certificate", "--cert FILE --key FILE"];
    s_server_is_named(&["-Verify", "1", "-CAfile", "cert.pem", "-tls1_3"], 6, &parts)?;
    // OpenSSL has no alert of its own for it in TLS 1.2.
    let parts = ["or requires a client certificate (alert handshake_failure)"];
    s_server_is_named(&["-Verify", "1", "-CAfile", "cert.pem", "-tls1_2"], 6, &parts)
}

fn old_version() -> Outcome {
    let options = ["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"];
    s_server_is_named(&options, 6, &["localhost speaks neither TLS 1.2 nor TLS 1.3"])
}
