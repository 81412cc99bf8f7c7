//! The certificates of `serve`, and its redirect to https.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore::rustls::pki_types::pem::PemObject as _;
use fullbore::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fullbore::rustls::{ClientConfig, RootCertStore};
use fullbore::tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::{Site, ask_over_tcp, status, values};
use crate::support::{Ended, Signal, TestResult, program, run, signal, until};

/// A folder with a file, and a certificate with its key.
fn folder(names: &[&str]) -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.txt"), "hello")?;
    renew(folder.path(), names)?;
    Ok(folder)
}

/// Writes another certificate with its key.
fn renew(folder: &Path, names: &[&str]) -> TestResult {
    let made = tls::self_signed(names)?;
    fs::write(folder.join("key.pem"), made.key_pem)?;
    fs::write(folder.join("cert.pem"), made.cert_pem)?;
    Ok(())
}

const FILES: [&str; 6] = [
    "--listen",
    "127.0.0.1:0",
    "--cert",
    "cert.pem",
    "--key",
    "key.pem",
];

fn get(origin: &str, cacert: &Path) -> TestResult<Ended> {
    let (url, cacert) = (format!("{origin}/a.txt"), cacert.display().to_string());
    run(Path::new("."), ["get", "--cacert", &cacert, &url])
}

#[test]
fn a_new_certificate_is_used_when_its_file_changes_and_on_sighup() -> TestResult {
    let folder = folder(&["127.0.0.1"])?;
    let old = folder.path().join("old.pem");
    fs::copy(folder.path().join("cert.pem"), &old)?;
    let mut site = Site::start(folder.path(), &FILES)?;
    let origin = site.after("listening on ")?;
    get(&origin, &old)?.succeeded();
    let mut said = BufReader::new(site.child.stderr.take().ok_or("no output")?).lines();
    let server = &site.child;
    // The files are looked at now and then as well: on a busy machine that may be in between.
    let mut says = |expected: &str| -> TestResult {
        for _ in 0..5 {
            let line = said.next().ok_or("serve has ended")??;
            if line.starts_with(expected) {
                return Ok(());
            }
            signal(server, Signal::Hangup)?;
        }
        Err(format!("never said: {expected}").into())
    };
    // By its files. The name has another length, for the clock of a file system may be coarse.
    renew(folder.path(), &["127.0.0.1", "a.example"])?;
    let new = folder.path().join("cert.pem");
    until("the new certificate is used", || {
        Ok(get(&origin, &new)?.code == Some(0))
    })?;
    says("fullbore: the certificate in cert.pem was reloaded")?;
    get(&origin, &old)?.failed_with(6);

    // By a signal, and one that cannot be used.
    fs::write(folder.path().join("cert.pem"), "no certificate")?;
    signal(server, Signal::Hangup)?;
    says("fullbore: the old certificate stays in use: --cert cert.pem")?;
    fs::copy(&old, &new)?;
    renew(folder.path(), &["127.0.0.1"])?;
    signal(&site.child, Signal::Hangup)?;
    says("fullbore: the certificate in cert.pem was reloaded")?;
    get(&origin, &new)?.succeeded();
    signal(&site.child, Signal::Hangup)?;
    says("fullbore: the certificate in cert.pem has not changed")?;
    signal(&site.child, Signal::Terminate)?;
    assert_eq!(site.child.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_server_without_a_certificate_goes_on_after_sighup() -> TestResult {
    let folder = tempfile::tempdir()?;
    let mut site = Site::start(folder.path(), &["--plaintext", "--listen", "127.0.0.1:0"])?;
    let origin = site.after("listening on ")?;
    let mut said = BufReader::new(site.child.stderr.take().ok_or("no output")?).lines();
    signal(&site.child, Signal::Hangup)?;
    let line = said.next().ok_or("nothing was said")??;
    assert_eq!(line, "fullbore: SIGHUP: there is no certificate to read again");
    assert_eq!(status(&ask_over_tcp(&origin, "GET /", "")?), "200");
    signal(&site.child, Signal::Terminate)?;
    assert_eq!(site.child.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_self_signed_certificate_stays_the_same_and_is_trusted_as_the_server_says() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.txt"), "hello")?;
    let state = folder.path().join("it's state");
    let mut certificates = Vec::new();
    for _ in 0..2 {
        let mut command = program(folder.path());
        command.env("XDG_STATE_HOME", &state);
        command.args([
            "serve",
            "--self-signed",
            "--self-signed-name",
            "files.example",
            "--listen",
            "127.0.0.1:0",
        ]);
        let mut site = Site::spawn(&mut command)?;
        let origin = site.after("listening on ")?;
        let mut said = BufReader::new(site.child.stderr.take().ok_or("no output")?).lines();
        let line = said.next().ok_or("nothing was said")??;
        assert!(
            line.contains("clients trust the certificate ") && line.contains("valid until "),
            "{line}"
        );
        // The command, but for its URL.
        let (_curl, fullbore) = (said.next(), said.next().ok_or("no command")??);
        let port = origin.rsplit(':').next().ok_or("no port")?;
        let url = format!(" https://files.example:{port}/");
        let command = fullbore
            .trim()
            .strip_suffix(&url)
            .ok_or_else(|| format!("{fullbore:?}"))?;
        let command = command.strip_prefix("fullbore ").ok_or("no command")?;
        let script = format!("'{}' {command} {origin}/a.txt", env!("CARGO_BIN_EXE_fullbore"));
        let output = std::process::Command::new("sh").args(["-c", &script]).output()?;
        assert_eq!(
            output.stdout,
            b"hello",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let kept = state.join("fullbore/self-signed");
        let of_kind = |kind: &str| -> TestResult<PathBuf> {
            let mut files = fs::read_dir(&kept)?.flatten().map(|entry| entry.path());
            Ok(files
                .find(|path| path.extension().is_some_and(|found| found == kind))
                .ok_or("no file")?)
        };
        assert_eq!(fs::metadata(of_kind("key")?)?.mode() & 0o7777, 0o600);
        certificates.push(fs::read(of_kind("pem")?)?);
        drop(site);
    }
    assert!(certificates[0] == certificates[1]);
    Ok(())
}

#[test]
fn a_self_signed_certificate_that_cannot_be_kept_is_new_each_time() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "")?;
    let mut command = program(folder.path());
    command.env("XDG_STATE_HOME", folder.path().join("file"));
    let mut site = Site::spawn(command.args(["serve", "--self-signed", "--listen", "127.0.0.1:0"]))?;
    let origin = site.after("listening on ")?;
    let mut said = BufReader::new(site.child.stderr.take().ok_or("no output")?).lines();
    let line = said.next().ok_or("nothing was said")??;
    assert!(line.contains("the certificate is new at each start"), "{line}");
    run(Path::new("."), ["get", "--insecure", &format!("{origin}/file")])?.succeeded();
    Ok(())
}

/// An authority, and a client's certificate that it has signed.
fn authority(folder: &Path) -> TestResult<ClientConfig> {
    let key = KeyPair::generate()?;
    let mut fields = CertificateParams::new(Vec::new())?;
    fields.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(folder.join("ca.pem"), fields.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(fields, key);
    let own_key = KeyPair::generate()?;
    let mut own = CertificateParams::new(vec!["ann".to_owned()])?;
    own.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let own = own.signed_by(&own_key, &issuer)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("cert.pem"))?)?;
    let provider = Arc::new(fullbore::rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![own.der().clone()],
            PrivateKeyDer::from_pem_slice(own_key.serialize_pem().as_bytes())?,
        )?)
}

#[tokio::test]
async fn only_clients_of_the_authority_are_admitted() -> TestResult {
    let folder = folder(&["localhost", "127.0.0.1"])?;
    let config = authority(folder.path())?;
    let mut site = Site::start(folder.path(), &[&FILES[..], &["--client-ca", "ca.pem"]].concat())?;
    let origin = site.after("listening on ")?;
    let refused = get(&origin, &folder.path().join("cert.pem"))?;
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("requires a client certificate"),
        "{refused:?}"
    );
    let client = fullbore::Client::builder().tls_config(Arc::new(config)).build()?;
    let response = client.get(format!("{origin}/a.txt")).await?;
    assert_eq!(response.status(), 200);
    Ok(())
}

#[test]
fn cleartext_requests_are_redirected_to_https_for_hosts_of_the_certificate() -> TestResult {
    let folder = folder(&["localhost", "127.0.0.1"])?;
    let mut site = Site::start(
        folder.path(),
        &[&FILES[..], &["--redirect-http", "127.0.0.1:0"]].concat(),
    )?;
    let origin = site.after("listening on ")?;
    let line = site.after("redirecting ")?;
    let cleartext = line.strip_suffix(" to https").ok_or("no address")?;
    let port = origin.rsplit(':').next().ok_or("no port")?;
    let response = ask_over_tcp(cleartext, "GET /a.txt?b", "")?;
    assert_eq!(status(&response), "308");
    assert_eq!(
        values(&response, "location"),
        [format!("https://localhost:{port}/a.txt?b")]
    );
    let response = ask_over_tcp(cleartext, "GET http://evil.example/", "")?;
    assert_ne!(status(&response), "308", "{response}");
    assert!(values(&response, "location").is_empty(), "{response}");
    // Over HTTP/2, and followed.
    let cert = folder.path().join("cert.pem").display().to_string();
    let url = format!("{cleartext}/a.txt");
    let ended = run(Path::new("."), ["get", "-L", "--http2", "--cacert", &cert, &url])?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"hello");
    Ok(())
}
