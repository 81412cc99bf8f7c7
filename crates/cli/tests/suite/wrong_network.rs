//! Wrong inputs for the way to a server and for who asks: each is answered with one sentence that says what is wrong, where,
//! and what to type. And a client certificate that is right.

use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::Incoming;
use fullbore::rustls::crypto::ring::default_provider;
use fullbore::rustls::pki_types::pem::PemObject;
use fullbore::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fullbore::rustls::server::WebPkiClientVerifier;
use fullbore::rustls::{RootCertStore, ServerConfig};
use fullbore_testing::nobody::Nobody;
use http::{Request, Response};
use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tower_service::Service;

use crate::support::{Serving, TestResult, ended, peer, program, run};

/// Options, the exit code, and parts of what is said.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

/// Writes the files that the cases name.
fn write_files(folder: &Path) -> TestResult {
    let (one, other) = (
        fullbore::tls::self_signed(&["localhost"])?,
        fullbore::tls::self_signed(&["localhost"])?,
    );
    for (name, content) in [
        ("cert.pem", one.cert_pem.as_str()),
        ("key.pem", &one.key_pem),
        ("other.pem", &other.key_pem),
        ("text", "this is no PEM"),
        (
            "encrypted.pem",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        ),
        ("bad-netrc", "machine h.invalid\nlogn me\n"),
    ] {
        fs::write(folder.join(name), content)?;
    }
    Ok(())
}

/// Runs `get` for each case. What clap says has its sentence in the first line.
fn check(folder: &Path, cases: &[Case<'_>]) -> TestResult {
    for (args, code, parts) in cases {
        let mut command = program(folder);
        let ended = ended(command.env("HOME", folder).arg("get").args(*args))?;
        assert_eq!(ended.code, Some(*code), "{args:?}: {ended:?}");
        let mut lines = ended.stderr.lines();
        let first = lines.next().unwrap_or_default();
        let is_usage = first.starts_with("error: ");
        assert!(
            is_usage || lines.next().is_none(),
            "{args:?}: more than a sentence: {ended:?}"
        );
        for part in *parts {
            let said = if is_usage { ended.stderr.as_str() } else { first };
            assert!(said.contains(part), "{args:?}: {part:?} is not in {ended:?}");
        }
        let words = ended.stderr.to_lowercase();
        for unwanted in ["hunter2", "invalid configuration", "kind:", "err(", "::"] {
            // Addresses of IPv6 and URLs have colons.
            let is_there = words
                .replace("[::1]", "")
                .replace("::ffff", "")
                .contains(unwanted);
            assert!(
                !is_there || (unwanted == "::" && args.iter().any(|arg| arg.contains("::"))),
                "{args:?}: {ended:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn wrong_proxies_and_addresses_are_explained() -> TestResult {
    let folder = tempfile::tempdir()?;
    let nobody = Nobody::bind();
    let dead = nobody.to_string();
    let dead_url = format!("http://{dead}/");
    let no_tls = peer::says(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
    let tls_proxy = format!("https://{no_tls}");
    let url = "https://h.invalid/";
    check(
        folder.path(),
        &[
            (
                &["-x", "ftp://h", url],
                2,
                &["--proxy", "ftp://h", "none of http, https, socks5 and socks5h"],
            ),
            (&["-x", "socks4://h", url], 2, &["socks4://h", "try socks5://"]),
            (&["-x", "http://h:99999", url], 2, &["http://h:99999", "--proxy"]),
            (&["-x", "http://", url], 2, &["--proxy", "http://host:port"]),
            (&["-x", "http://me:hunter2@x@h:1", url], 2, &["***@h:1", "%40"]),
            (
                &["-x", "http://proxy.invalid:1", url],
                5,
                &["http://proxy.invalid:1", "cannot be reached", "--proxy"],
            ),
            (&["-x", &dead, url], 5, &[&dead, "cannot be reached", "--proxy"]),
            (
                &["-x", &tls_proxy, url],
                5,
                &[
                    "the proxy https://127.0.0.1:",
                    "does not speak TLS",
                    "try http://",
                ],
            ),
            (
                &["--resolve", "h:443", url],
                2,
                &["--resolve", "HOST:PORT:ADDR", "example.org:443:192.0.2.7"],
            ),
            (
                &["--resolve", "h:x:192.0.2.7", url],
                2,
                &["--resolve", "port", "1 to 65535"],
            ),
            (
                &["--resolve", "h:443:name", url],
                2,
                &["--resolve", "\"name\" is not an IPv4 or IPv6 address"],
            ),
            (&["-4", "-6", url], 2, &["'--ipv4' cannot be used with '--ipv6'"]),
            (&["-6", &dead_url], 5, &["127.0.0.1 has no IPv6 address"]),
            (&["-4", "http://[::1]/"], 5, &["::1 has no IPv4 address"]),
            (
                &["--limit-rate", "0", url],
                2,
                &["--limit-rate", "at least 1 byte"],
            ),
            (&["--limit-rate", "fast", url], 2, &["--limit-rate", "64K"]),
            (&["--max-redirs", "many", url], 2, &["--max-redirs"]),
            (
                &["--no-location", "--location-trusted", url],
                2,
                &["'--no-location' cannot be used with '--location-trusted'"],
            ),
            (&["h/x"], 2, &["h/x", "no scheme", "https://"]),
            (&["http://"], 2, &["http://", "host"]),
            (&["http://[::1"], 2, &["http://[::1"]),
            (&["http://h:99999/"], 2, &["h:99999", "port"]),
            (&["gopher://h/"], 2, &["gopher://h/", "not http or https"]),
            (&[url], 5, &["h.invalid", "check the host name"]),
            (&[&dead_url], 5, &[&dead, "check the port"]),
        ],
    )?;
    for (variable, value) in [
        ("https_proxy", "quic://h"),
        ("all_proxy", "socks4://h"),
        ("http_proxy", "http://h:x"),
    ] {
        let ended = ended(program(folder.path()).env(variable, value).args(["get", url]))?;
        ended.failed_with(2);
        assert!(
            ended.stderr.contains(&format!("the variable {variable}")),
            "{ended:?}"
        );
    }
    Ok(())
}

#[test]
fn wrong_credentials_and_certificates_are_explained() -> TestResult {
    let folder = tempfile::tempdir()?;
    write_files(folder.path())?;
    let url = "https://h.invalid/";
    check(
        folder.path(),
        &[
            (&["-u", "me", url], 2, &["--user", "USER:PASSWORD"]),
            (
                &["-u", "me:hunter2", "-H", "Authorization: x", url],
                2,
                &["-u and -H both give the field authorization"],
            ),
            (&["-b", "jar.txt", url], 2, &["--cookie", "NAME=VALUE"]),
            (&["-A", "a\nb", url], 2, &["--user-agent", "control characters"]),
            (&["-n", url], 17, &[".netrc"]),
            (&["--netrc-file", "none", url], 17, &["cannot read none"]),
            (
                &["--netrc-file", "bad-netrc", url],
                2,
                &["bad-netrc, line 2", "machine HOST login USER password PASSWORD"],
            ),
            (&["-n", "--netrc-file", "x", url], 2, &["cannot be used with"]),
            (&["--key", "key.pem", url], 2, &["--cert <FILE>"]),
            (&["--cert", "none.pem", url], 17, &["cannot read none.pem"]),
            (
                &["--cert", "cert.pem:hunter2", url],
                2,
                &["--cert cert.pem:…", "openssl pkey -in cert.pem", "--key key.pem"],
            ),
            (
                &["--cert", "cert.pem", url],
                2,
                &["--cert cert.pem", "certificate and no private key"],
            ),
            (
                &["--cert", "key.pem", "--key", "cert.pem", url],
                2,
                &["--cert key.pem --key cert.pem", "swapped"],
            ),
            (
                &["--cert", "cert.pem", "--key", "other.pem", url],
                2,
                &["--key other.pem", "not the one of the first certificate"],
            ),
            (
                &["--cert", "cert.pem", "--key", "encrypted.pem", url],
                2,
                &["encrypted", "openssl pkey"],
            ),
            (&["--cacert", "none.pem", url], 17, &["cannot read none.pem"]),
            (
                &["--cacert", "text", url],
                2,
                &["--cacert text", "BEGIN CERTIFICATE"],
            ),
            (&["--cacert", "text", "-k", url], 2, &["cannot be used with"]),
        ],
    )
}

/// Answers every request.
#[derive(Clone)]
struct Content;

impl Service<Request<Incoming>> for Content {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(Full::from("content"))))
    }
}

#[test]
fn a_client_certificate_opens_a_server_that_asks_for_one() -> TestResult {
    let folder = tempfile::tempdir()?;
    let mut fields = CertificateParams::default();
    fields.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let authority = fields.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(fields, authority_key);
    let leaf = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
    fs::write(folder.path().join("ca.pem"), authority.pem())?;
    fs::write(folder.path().join("cert.pem"), leaf.pem())?;
    fs::write(folder.path().join("key.pem"), key.serialize_pem())?;
    fs::write(folder.path().join("both.pem"), leaf.pem() + &key.serialize_pem())?;

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(leaf.pem().as_bytes())?],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?,
        )?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let port = runtime.block_on(async {
        let builder = fullbore::Server::builder().tls_config(Arc::new(config));
        let server = builder.bind("127.0.0.1:0").await?;
        let port = server.local_addr()?.port();
        tokio::spawn(server.serve(Content));
        TestResult::Ok(port)
    })?;
    let url = format!("https://localhost:{port}/");
    for certificate in [
        &["--cert", "cert.pem", "--key", "key.pem"][..],
        &["-E", "both.pem"],
    ] {
        let args = [&["get", "--cacert", "ca.pem", url.as_str()][..], certificate].concat();
        let ended = run(folder.path(), args)?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"content");
    }
    for version in ["--http2", "--http1.1"] {
        let without = run(folder.path(), ["get", "--cacert", "ca.pem", version, &url])?;
        without.failed_with(6);
        assert!(without.stderr.contains("--cert FILE --key FILE"), "{without:?}");
    }
    // Whoever has set the variable has forgotten it.
    fs::write(folder.path().join("empty.pem"), "")?;
    let mut command = program(folder.path());
    command.env("SSL_CERT_FILE", "empty.pem");
    let untrusted = ended(command.args(["get", &url]))?;
    untrusted.failed_with(6);
    if cfg!(target_os = "linux") {
        let text = "the variable SSL_CERT_FILE names the certificates that are trusted";
        assert!(untrusted.stderr.contains(text), "{untrusted:?}");
    }
    Ok(())
}

#[test]
fn a_server_without_tls_or_with_tls_alone_is_named() -> TestResult {
    let folder = tempfile::tempdir()?;
    let plain = Serving::start(folder.path(), &[".", "--plaintext"])?;
    let sealed = Serving::start(folder.path(), &[".", "--self-signed"])?;
    let swapped = |origin: &str, from: &str, to: &str| origin.replace(from, to) + "/x";
    check(
        folder.path(),
        &[
            (
                &["-k", &swapped(&plain.origin, "http://", "https://")],
                6,
                &["does not speak TLS", "http://"],
            ),
            (
                &[&swapped(&sealed.origin, "https://", "http://")],
                9,
                &["https://"],
            ),
            (
                &[&format!("{}/x", sealed.origin)],
                6,
                &["--cacert FILE", "--insecure"],
            ),
        ],
    )
}
