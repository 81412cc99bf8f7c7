//! Certificates as people make them, and the sentence that the program says of each failure of TLS.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::support::peer;
use crate::support::{Ended, Serving, TestResult, ended, program, run};

/// A folder with `file`, and with a certificate and its key as `cert.pem` and `key.pem`.
struct Stage {
    folder: TempDir,
}

impl Stage {
    /// The certificate has the fields that `openssl req -x509` sets, with this change.
    fn new(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TestResult<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("file"), "content")?;
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut fields = CertificateParams::new(names)?;
        fields.distinguished_name.push(DnType::CommonName, "localhost");
        fields.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut fields);
        let key = KeyPair::generate()?;
        fs::write(folder.path().join("cert.pem"), fields.self_signed(&key)?.pem())?;
        fs::write(folder.path().join("key.pem"), key.serialize_pem())?;
        Ok(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> TestResult {
        Ok(fs::write(self.path().join(name), content)?)
    }

    /// Serves the folder. Returns the port with it.
    fn serve(&self) -> TestResult<(Serving, String)> {
        let serving = Serving::start(self.path(), &["--cert", "cert.pem", "--key", "key.pem"])?;
        let port = serving.origin.rsplit(':').next().unwrap_or_default().to_owned();
        Ok((serving, port))
    }

    /// Downloads the file from this host, where the certificate is a trusted one.
    fn get(&self, host: &str) -> TestResult<Ended> {
        let (_serving, port) = self.serve()?;
        let url = format!("https://{host}:{port}/file");
        run(self.path(), ["get", "--cacert", "cert.pem", "-o", "-", &url])
    }

    /// Tries to serve with these files.
    fn serve_with(&self, cert: &str, key: &str) -> TestResult<Ended> {
        let options = ["serve", "--listen", "127.0.0.1:0", "--cert", cert, "--key", key];
        run(self.path(), options)
    }
}

#[track_caller]
fn says(ended: &Ended, code: i32, parts: &[&str]) {
    ended.failed_with(code);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} is not in {ended:?}");
    }
}

fn get_insecurely(port_of: &str) -> TestResult<Ended> {
    let folder = tempfile::tempdir()?;
    let port = port_of.rsplit(':').next().unwrap_or_default();
    let url = format!("https://localhost:{port}/file");
    run(folder.path(), ["get", "--insecure", "-o", "out", &url])
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_trusted_for_its_names() -> TestResult {
    let stage = Stage::new(&["localhost", "127.0.0.1"], |_| ())?;
    for host in ["localhost", "127.0.0.1"] {
        let ended = stage.get(host)?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"content");
    }
    Ok(())
}

#[test]
#[cfg(target_os = "linux")]
fn one_that_the_system_trusts_is_trusted_for_its_names_alone() -> TestResult {
    let stage = Stage::new(&["localhost"], |_| ())?;
    let (_serving, port) = stage.serve()?;
    let get = |host: &str| -> TestResult<Ended> {
        let mut command = program(stage.path());
        command
            .env("SSL_CERT_FILE", "cert.pem")
            .env_remove("SSL_CERT_DIR");
        ended(command.args(["get", &format!("https://{host}:{port}/file")]))
    };
    let trusted = get("localhost")?;
    trusted.succeeded();
    assert_eq!(trusted.stdout, b"content");
    says(&get("127.0.0.1")?, 6, &["valid for localhost only"]);
    Ok(())
}

#[test]
fn a_certificate_for_other_names_exits_with_6_and_lists_them() -> TestResult {
    let stage = Stage::new(&["localhost", "example.org"], |_| ())?;
    let parts = [
        "the certificate does not verify: 127.0.0.1 presented one that is valid for localhost and example.org only",
        "or a certificate that has 127.0.0.1 in its subjectAltName",
        "--insecure accepts any certificate",
    ];
    says(&stage.get("127.0.0.1")?, 6, &parts);
    Ok(())
}

#[test]
fn a_certificate_without_names_exits_with_6_and_says_how_to_make_one() -> TestResult {
    let stage = Stage::new(&[], |_| ())?;
    let parts = ["without subjectAltName", "-addext subjectAltName=DNS:localhost"];
    says(&stage.get("localhost")?, 6, &parts);
    Ok(())
}

#[test]
fn a_certificate_that_has_expired_exits_with_6_and_says_when() -> TestResult {
    let stage = Stage::new(&["localhost"], |fields| {
        fields.not_after = date_time_ymd(2020, 2, 29)
    })?;
    let parts = ["localhost presented one that expired on Sat, 29 Feb 2020 00:00:00 GMT; it must be renewed"];
    says(&stage.get("localhost")?, 6, &parts);
    Ok(())
}

#[test]
fn a_certificate_that_is_not_valid_yet_exits_with_6_and_says_from_when() -> TestResult {
    let stage = Stage::new(&["localhost"], |fields| {
        fields.not_before = date_time_ymd(4000, 1, 1)
    })?;
    let parts = ["localhost presented one that is valid from Sat, 01 Jan 4000 00:00:00 GMT on"];
    says(&stage.get("localhost")?, 6, &parts);
    Ok(())
}

#[test]
fn a_certificate_that_is_not_a_trusted_one_exits_with_6_and_names_the_option() -> TestResult {
    for (is_ca, part) in [
        (IsCa::NoCa, "presented one whose issuer is not trusted"),
        (
            IsCa::Ca(BasicConstraints::Unconstrained),
            "presented one of an authority (CA:TRUE)",
        ),
    ] {
        let stage = Stage::new(&["localhost"], |fields| fields.is_ca = is_ca)?;
        let stranger = Stage::new(&["stranger"], |fields| {
            fields.distinguished_name.push(DnType::CommonName, "stranger");
        })?;
        let (_serving, port) = stage.serve()?;
        let url = format!("https://localhost:{port}/file");
        let ended = run(stranger.path(), ["get", "--cacert", "cert.pem", &url])?;
        says(
            &ended,
            6,
            &[
                part,
                "--cacert FILE trusts it, --insecure accepts any certificate",
            ],
        );
    }
    Ok(())
}

#[test]
fn a_port_without_tls_exits_with_6_and_points_to_http() -> TestResult {
    let stage = Stage::new(&[], |_| ())?;
    let serving = Serving::start(stage.path(), &["--plaintext"])?;
    let addresses = [
        peer::says(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
        serving.origin.clone(),
    ];
    for address in &addresses {
        let port = address.rsplit(':').next().unwrap_or_default();
        let part = format!("TLS handshake failed: port {port} of localhost does not speak TLS; try http://");
        says(&get_insecurely(address)?, 6, &[&part]);
    }
    Ok(())
}

#[test]
fn a_peer_that_closes_during_the_handshake_exits_with_6() -> TestResult {
    let parts = [
        "localhost closed the connection during the handshake",
        "does not speak TLS, try http://",
    ];
    says(&get_insecurely(&peer::says(b"")?)?, 6, &parts);
    Ok(())
}

#[test]
fn a_port_with_tls_that_is_spoken_to_without_exits_with_9_and_points_to_https() -> TestResult {
    let stage = Stage::new(&["localhost"], |_| ())?;
    let (_serving, port) = stage.serve()?;
    let ended = run(
        stage.path(),
        ["get", "-o", "-", &format!("http://localhost:{port}/file")],
    )?;
    says(&ended, 9, &["it answered with an alert of TLS; try https://"]);
    Ok(())
}

#[test]
fn alerts_have_sentences_and_exit_codes() -> TestResult {
    // A record of type 21, a fatal alert (RFC 8446 section 6).
    let cases: [(&[u8], i32, &[&str]); 5] = [
        (
            &[21, 3, 1, 0, 2, 2, 70],
            6,
            &["speaks neither TLS 1.2 nor TLS 1.3"],
        ),
        (
            &[21, 3, 3, 0, 2, 2, 40],
            6,
            &["none of the cipher suites and parameters", "handshake_failure"],
        ),
        (
            &[21, 3, 3, 0, 2, 2, 112],
            6,
            &["localhost has no site of this name"],
        ),
        (
            &[21, 3, 3, 0, 2, 2, 116],
            6,
            &["requires a client certificate", "--cert FILE --key FILE"],
        ),
        (
            &[21, 3, 3, 0, 2, 2, 120],
            9,
            &["refused every protocol that was offered", "(ALPN)"],
        ),
    ];
    for (octets, code, parts) in cases {
        says(&get_insecurely(&peer::says(octets)?)?, code, parts);
    }
    Ok(())
}

#[test]
fn a_handshake_that_takes_too_long_exits_with_13_and_names_the_option() -> TestResult {
    let folder = tempfile::tempdir()?;
    let url = format!("https://{}/file", peer::is_silent()?);
    let options = ["get", "--insecure", "--connect-timeout", "1", "-o", "out", &url];
    let parts = ["TLS", "(limit: 1 s)", "--connect-timeout"];
    says(&run(folder.path(), options)?, 13, &parts);
    Ok(())
}

#[test]
fn files_that_are_no_certificate_or_key_exit_with_2_and_say_what_they_are() -> TestResult {
    let stage = Stage::new(&["localhost"], |_| ())?;
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    stage.write("encrypted.pem", encrypted)?;
    stage.write("empty.pem", "")?;
    stage.write("cert.der", [0x30, 0x82, 1, 0, 0x30, 0x81, 0xa0])?;
    stage.write("both.p12", [0x30, 0x82, 9, 0x5a, 2, 1, 3, 0x30])?;
    stage.write("other.pem", KeyPair::generate()?.serialize_pem())?;
    for (cert, key, part) in [
        ("key.pem", "cert.pem", "have the two files been swapped?"),
        (
            "cert.pem",
            "cert.pem",
            "a certificate and no private key; have the two files been swapped?",
        ),
        (
            "key.pem",
            "key.pem",
            "a private key and no certificate; have the two files been swapped?",
        ),
        ("cert.pem", "encrypted.pem", "is encrypted; decrypt it"),
        ("cert.pem", "other.pem", "is not the one of the first certificate"),
        ("empty.pem", "key.pem", "has no certificate"),
        ("cert.pem", "empty.pem", "has no private key"),
        ("cert.der", "key.pem", "openssl x509 -inform der"),
        ("cert.pem", "cert.der", "openssl pkey -inform der"),
        ("both.p12", "key.pem", "openssl pkcs12 -in FILE -nokeys"),
        ("cert.pem", "both.p12", "openssl pkcs12 -in FILE -nocerts"),
    ] {
        let files = format!("--cert {cert} with --key {key}");
        says(&stage.serve_with(cert, key)?, 2, &[&files, part]);
    }
    says(
        &stage.serve_with("none.pem", "key.pem")?,
        17,
        &["cannot read none.pem"],
    );
    says(
        &stage.serve_with("cert.pem", "none.pem")?,
        17,
        &["cannot read none.pem"],
    );
    for (file, code, part) in [
        ("key.pem", 2, "have the two files been swapped?"),
        ("cert.der", 2, "openssl x509 -inform der"),
        ("both.p12", 2, "openssl pkcs12 -in FILE -nokeys"),
        ("empty.pem", 2, "has no certificate"),
        ("none.pem", 17, "cannot read none.pem"),
    ] {
        let ended = run(stage.path(), ["get", "--cacert", file, "https://localhost:1/"])?;
        says(&ended, code, &[file, part]);
    }
    Ok(())
}

/// The lines of a file of secrets that are about the traffic of a connection, sorted.
fn traffic_secrets(path: &Path) -> TestResult<Vec<String>> {
    let lines = fs::read_to_string(path)?;
    let traffic = lines.lines().filter(|line| line.contains("_TRAFFIC_SECRET_0 "));
    let mut traffic: Vec<_> = traffic.map(ToOwned::to_owned).collect();
    traffic.sort();
    Ok(traffic)
}

const TOLD: &str =
    "fullbore: warning: SSLKEYLOGFILE is set: the secrets of TLS connections are written to its file";

#[test]
fn get_put_and_serve_write_the_secrets_that_sslkeylogfile_asks_for_and_say_so() -> TestResult {
    let stage = Stage::new(&["localhost"], |_| ())?;
    let (theirs, ours) = (stage.path().join("server.keys"), stage.path().join("client.keys"));
    fs::write(&ours, "# kept\n")?;
    let mut serve = program(stage.path());
    serve.args([
        "serve",
        "--cert",
        "cert.pem",
        "--key",
        "key.pem",
        "--uploads",
        "discard",
    ]);
    let mut serving = Serving::spawn(serve.env("SSLKEYLOGFILE", &theirs))?;
    let port = serving.origin.rsplit(':').next().unwrap_or_default();
    let url = format!("https://localhost:{port}/file");
    let client = |command: &str, options: &[&str]| {
        let mut client = program(stage.path());
        client.args([command, "--cacert", "cert.pem"]).args(options);
        ended(client.arg(&url).env("SSLKEYLOGFILE", &ours))
    };
    for (command, options, told) in [
        ("get", &["-o", "-"][..], true),
        ("get", &["-q", "-o", "-"], false),
        ("put", &["file"], true),
        ("put", &["-s", "file"], false),
    ] {
        let ended = client(command, options)?;
        ended.succeeded();
        let is_told = ended.stderr.starts_with(TOLD);
        assert_eq!(is_told, told, "{command} {options:?}: {ended:?}");
    }
    // Standard error is the document.
    let ended = client("get", &["--json", "-o", "-"])?;
    let document: serde_json::Value = serde_json::from_str(&ended.stderr)?;
    assert!(document["results"].is_array(), "{document}");

    let written = traffic_secrets(&ours)?;
    assert_eq!(written.len(), 2 * 5, "{written:?}");
    assert_eq!(written, traffic_secrets(&theirs)?);
    assert!(fs::read_to_string(&ours)?.starts_with("# kept\n"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&theirs)?.permissions().mode() & 0o777, 0o600);
    }
    let mut said = String::new();
    BufReader::new(serving.child.stderr.take().expect("piped")).read_line(&mut said)?;
    assert!(said.starts_with(TOLD), "{said}");
    Ok(())
}

#[test]
fn secrets_that_cannot_be_written_stop_nothing_and_an_empty_variable_is_none() -> TestResult {
    let stage = Stage::new(&["localhost"], |_| ())?;
    let (_serving, port) = stage.serve()?;
    let url = format!("https://localhost:{port}/file");
    let get = |path: &str| {
        let mut get = program(stage.path());
        get.args(["get", "--cacert", "cert.pem", "-o", "-", &url]);
        ended(get.env("SSLKEYLOGFILE", path))
    };
    let ignored = get("missing/keys")?;
    ignored.succeeded();
    let told =
        "fullbore: note: SSLKEYLOGFILE is ignored: the file missing/keys of SSLKEYLOGFILE cannot be opened: ";
    assert!(ignored.stderr.starts_with(told), "{ignored:?}");
    let empty = get("")?;
    empty.succeeded();
    assert_eq!(empty.stderr, "");
    Ok(())
}
