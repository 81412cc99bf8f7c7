//! Which certificates a client accepts, and what it says of each failure of TLS.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use fullbore::rustls::crypto::ring::default_provider;
use fullbore::rustls::pki_types::pem::PemObject;
use fullbore::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use fullbore::rustls::server::WebPkiClientVerifier;
use fullbore::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use fullbore::settings::HttpVersions;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{BoxError, Client, Error, ErrorKind, Server};
use http::{Request, Response, Uri};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{full, service, soon};

/// A certificate and its key.
struct Made {
    pem: String,
    key: String,
}

/// The fields of a certificate for these names, as `openssl req -x509 -addext subjectAltName=…` sets them: it is that of
/// an authority.
fn fields(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut fields = CertificateParams::new(names).unwrap();
    fields.distinguished_name.push(DnType::CommonName, "localhost");
    fields.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fields
}

fn sign_oneself(fields: &CertificateParams) -> Made {
    let key = KeyPair::generate().unwrap();
    Made {
        pem: fields.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

/// An authority's certificate, and one for `localhost` that it has signed.
fn signed_by(authority_key: &KeyPair) -> (String, Made, Issuer<'static, &KeyPair>) {
    let authority = fields(&[]);
    let pem = authority.self_signed(authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = CertificateParams::new(["localhost".to_owned()]).unwrap();
    leaf.serial_number = Some(SerialNumber::from(7));
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let made = Made {
        pem: leaf.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    };
    (pem, made, issuer)
}

/// The port of a server with this configuration.
async fn serve(tls: ServerConfig) -> u16 {
    let builder = Server::builder().tls_config(Arc::new(tls));
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let service = service(|_| async { Ok::<_, BoxError>(Response::new(full("hello"))) });
    tokio::spawn(server.serve(service));
    port
}

async fn serve_with(made: &Made) -> u16 {
    serve(server_config(made.pem.as_bytes(), made.key.as_bytes()).unwrap()).await
}

async fn request(host: &str, port: u16, config: ClientConfig) -> Result<u16, Error> {
    let client = Client::builder().tls_config(Arc::new(config)).build().unwrap();
    let answer = soon(client.get(format!("https://{host}:{port}/"))).await;
    answer.map(|answer| answer.status().as_u16())
}

async fn request_trusting(host: &str, port: u16, pem: &str) -> Result<u16, Error> {
    request(host, port, client_config(Roots::Pem(pem.into())).unwrap()).await
}

/// Serves with this certificate, which the client is told to trust.
async fn trusted(host: &str, fields: &CertificateParams) -> Result<u16, Error> {
    let made = sign_oneself(fields);
    request_trusting(host, serve_with(&made).await, &made.pem).await
}

/// Asserts the kind and the text of an error, that its text says all, and that it is not in the words of a program.
#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, parts: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(error.source().is_none(), "{text}: {:?}", error.source());
    let terms = ["subjectAltName", "digitalSignature", "serverAuth"];
    let plain = terms
        .iter()
        .fold(text.clone(), |text, term| text.replace(term, ""));
    let camel = plain
        .as_bytes()
        .windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    assert!(!camel, "{text}");
}

#[tokio::test]
async fn the_certificate_of_an_authority_is_trusted_for_its_own_names() {
    let fields = fields(&["localhost", "127.0.0.1"]);
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(trusted(host, &fields).await.unwrap(), 200, "{host}");
    }
    let made = sign_oneself(&fields);
    let older = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth();
    let chain = vec![CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let mut older = older.with_single_cert(chain, key).unwrap();
    older.alpn_protocols = vec![b"h2".to_vec()];
    let port = serve(older).await;
    assert_eq!(request_trusting("localhost", port, &made.pem).await.unwrap(), 200);
}

#[tokio::test]
async fn a_certificate_is_trusted_if_it_is_given_even_without_its_authority() {
    let key = KeyPair::generate().unwrap();
    let (_, made, _) = signed_by(&key);
    let port = serve_with(&made).await;
    assert_eq!(request_trusting("localhost", port, &made.pem).await.unwrap(), 200);
}

#[tokio::test]
async fn a_certificate_for_other_names_is_refused_and_its_names_are_listed() {
    let names = ["localhost", "*.example.org", "192.0.2.1"];
    says(
        trusted("127.0.0.1", &fields(&names)).await,
        ErrorKind::Certificate,
        &[
            "127.0.0.1 presented one that is valid for localhost, *.example.org and 192.0.2.1 only",
            "has 127.0.0.1 in its subjectAltName",
        ],
    );
    let mut ordinary = fields(&["localhost"]);
    ordinary.is_ca = IsCa::NoCa;
    let parts = ["presented one that is valid for localhost only"];
    says(
        trusted("127.0.0.1", &ordinary).await,
        ErrorKind::Certificate,
        &parts,
    );
}

#[tokio::test]
async fn a_certificate_with_a_common_name_alone_is_refused_and_the_remedy_is_named() {
    for ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
        let mut fields = fields(&[]);
        fields.is_ca = ca;
        for (host, name) in [("localhost", "DNS:localhost"), ("127.0.0.1", "IP:127.0.0.1")] {
            let remedy = format!("openssl req -x509 … -addext subjectAltName={name}");
            let parts = ["without subjectAltName, which is valid for no name", &remedy];
            says(trusted(host, &fields).await, ErrorKind::Certificate, &parts);
        }
    }
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_also_when_it_is_trusted() {
    for ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
        let mut fields = fields(&["localhost"]);
        fields.is_ca = ca;
        fields.not_after = date_time_ymd(2020, 2, 29);
        let parts = [
            "expired on Sat, 29 Feb 2020 00:00:00 GMT",
            "the clock of this machine says",
        ];
        says(
            trusted("localhost", &fields).await,
            ErrorKind::Certificate,
            &parts,
        );
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_refused_also_when_it_is_trusted() {
    for ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
        let mut fields = fields(&["localhost"]);
        fields.is_ca = ca;
        fields.not_before = date_time_ymd(4000, 1, 1);
        let parts = [
            "is valid from Sat, 01 Jan 4000 00:00:00 GMT on",
            "correct the clock",
        ];
        says(
            trusted("localhost", &fields).await,
            ErrorKind::Certificate,
            &parts,
        );
    }
}

#[tokio::test]
async fn a_certificate_for_other_purposes_is_refused_also_when_it_is_trusted() {
    let parts = ["its key usage is not that of a TLS server"];
    let mut signs = fields(&["localhost"]);
    signs.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    says(trusted("localhost", &signs).await, ErrorKind::Certificate, &parts);
    for ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
        let mut client = fields(&["localhost"]);
        client.is_ca = ca;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        says(
            trusted("localhost", &client).await,
            ErrorKind::Certificate,
            &parts,
        );
    }
    let mut both = fields(&["localhost"]);
    both.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    both.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    assert_eq!(trusted("localhost", &both).await.unwrap(), 200);
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_not_given_is_refused() {
    let made = sign_oneself(&fields(&["localhost"]));
    let other = sign_oneself(&fields(&["localhost"]));
    let port = serve_with(&made).await;
    let parts = [
        "an authority (CA:TRUE), as `openssl req -x509` makes it",
        "trust this very certificate",
    ];
    let answer = request_trusting("localhost", port, &other.pem).await;
    says(answer, ErrorKind::Certificate, &parts);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let key = KeyPair::generate().unwrap();
    let (_, made, _) = signed_by(&key);
    let port = serve_with(&made).await;
    let stranger = self_signed(&["stranger"]).unwrap().cert_pem;
    let parts = [
        "localhost presented one whose issuer is not trusted",
        "trust the authority that signed it",
    ];
    let answer = request_trusting("localhost", port, &stranger).await;
    says(answer, ErrorKind::Certificate, &parts);
}

#[tokio::test]
async fn a_certificate_that_another_key_has_signed_is_refused() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (_, made, _) = signed_by(&one);
    let (namesake, ..) = signed_by(&other);
    let port = serve_with(&made).await;
    let parts = [
        "a signature of localhost is wrong",
        "made anew under the same name",
    ];
    let answer = request_trusting("localhost", port, &namesake).await;
    says(answer, ErrorKind::Certificate, &parts);
}

#[tokio::test]
async fn a_certificate_that_was_revoked_is_refused() {
    let key = KeyPair::generate().unwrap();
    let (authority, made, issuer) = signed_by(&key);
    let revoked = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(4000, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(7),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = revoked.signed_by(&issuer).unwrap().pem().unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .with_crls([CertificateRevocationListDer::from_pem_slice(list.as_bytes()).unwrap()])
            .build()
            .unwrap();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let port = serve_with(&made).await;
    let parts = ["localhost presented one that its issuer has revoked"];
    says(
        request("localhost", port, config).await,
        ErrorKind::Certificate,
        &parts,
    );
}

/// A peer that answers whatever comes with these octets, and ends. Returns its port.
async fn answers(octets: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        io.read_exact(&mut [0; 5]).await.unwrap();
        io.write_all(octets).await.unwrap();
        io.shutdown().await.unwrap();
        io.read_to_end(&mut Vec::new()).await.ok();
    });
    port
}

async fn request_of_any(port: u16) -> Result<u16, Error> {
    request(
        "localhost",
        port,
        client_config(Roots::InsecureAcceptAny).unwrap(),
    )
    .await
}

#[tokio::test]
async fn a_port_that_does_not_speak_tls_is_named() {
    // HTTP/1.1, the SETTINGS frame of HTTP/2, and SSH.
    let greetings: [&[u8]; 3] = [
        b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100],
        b"SSH-2.0-OpenSSH_9.9\r\n",
    ];
    for greeting in greetings {
        let port = answers(greeting).await;
        let part = format!("port {port} of localhost does not speak TLS; try http://");
        says(request_of_any(port).await, ErrorKind::Tls, &[&part]);
    }
}

#[tokio::test]
async fn a_peer_that_closes_during_the_handshake_is_named() {
    let port = answers(b"").await;
    let parts = [
        "localhost closed the connection during the handshake",
        "try http://",
    ];
    says(request_of_any(port).await, ErrorKind::Tls, &parts);
}

#[tokio::test]
async fn every_alert_has_its_sentence() {
    // A record of type 21, a fatal alert (RFC 8446 section 6).
    const fn alert(description: u8) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, description]
    }
    static CASES: [([u8; 7], ErrorKind, &str); 7] = [
        (alert(70), ErrorKind::Tls, "speaks neither TLS 1.2 nor TLS 1.3"),
        (
            alert(40),
            ErrorKind::Tls,
            "accepted none of the cipher suites and parameters that were offered",
        ),
        (
            alert(112),
            ErrorKind::Tls,
            "has no site of this name (alert unrecognized_name)",
        ),
        (
            alert(80),
            ErrorKind::Tls,
            "failed in the handshake (alert internal_error); its log may say why",
        ),
        (
            alert(116),
            ErrorKind::Tls,
            "requires a client certificate, and was given none",
        ),
        (
            alert(50),
            ErrorKind::Tls,
            "ended the connection with the alert decode_error",
        ),
        (
            alert(120),
            ErrorKind::NotHttp2,
            "refused every protocol that was offered in the TLS handshake (ALPN)",
        ),
    ];
    for (octets, kind, part) in &CASES {
        let port = answers(octets).await;
        says(request_of_any(port).await, *kind, &[part]);
    }
}

#[tokio::test]
async fn a_server_without_a_common_version_is_named() {
    let made = sign_oneself(&fields(&["localhost"]));
    let port = serve_with(&made).await;
    let offered = [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]];
    for (versions, others) in [(offered[0], offered[1]), (offered[1], offered[0])] {
        let config = ServerConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(others)
            .unwrap()
            .with_no_client_auth();
        let chain = vec![CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap()];
        let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
        let port = serve(config.with_single_cert(chain, key).unwrap()).await;
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let parts = ["localhost speaks neither TLS 1.2 nor TLS 1.3"];
        says(request("localhost", port, config).await, ErrorKind::Tls, &parts);
    }
    assert_eq!(request_trusting("localhost", port, &made.pem).await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_certificate_that_is_missing_is_named() {
    let made = sign_oneself(&fields(&["localhost"]));
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap())
        .unwrap();
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), Arc::clone(&provider))
                .build()
                .unwrap();
        let chain = vec![CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap()];
        let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let port = serve(config).await;
        let parts = ["requires a client certificate, and was given none (alert certificate_required)"];
        says(
            request_trusting("localhost", port, &made.pem).await,
            ErrorKind::Tls,
            &parts,
        );
    }
}

/// A transport whose first read fails as that of TLS 1.3 does when the server does not accept the client's certificate.
struct Refused;

impl AsyncRead for Refused {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, alert)))
    }
}

impl AsyncWrite for Refused {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_alert_that_comes_before_the_request_is_sent_is_named_at_once() {
    for versions in [HttpVersions::Http2, HttpVersions::Http1] {
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let connector = tower::service_fn(move |_: Uri| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, io::Error>(Refused))
        });
        let client = Client::builder()
            .http_versions(versions)
            .connector(connector)
            .build()
            .unwrap();
        let request = Request::get("http://test.example/").body(String::new()).unwrap();
        let parts = ["requires a client certificate, and was given none"];
        says(soon(client.request(request)).await, ErrorKind::Tls, &parts);
        assert_eq!(
            connections.load(Ordering::Relaxed),
            1,
            "another attempt would end the same way"
        );
    }
}

#[tokio::test]
async fn a_peer_whose_handshake_failed_reads_the_alert_though_it_goes_on_sending() {
    let made = sign_oneself(&fields(&["localhost"]));
    let port = serve_with(&made).await;
    let mut io = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // More than the server reads for the handshake.
    for _ in 0..20 {
        io.write_all(&[b'x'; 64 << 10]).await.unwrap();
    }
    let mut alert = Vec::new();
    soon(io.read_to_end(&mut alert)).await.unwrap();
    assert_eq!(
        alert.first(),
        Some(&21),
        "the content type (RFC 8446 section 5.1)"
    );
}
