//! A client behind a proxy that is reached over TLS, and one that is not reached at all. The program's tests have more proxies.

use std::sync::{Arc, Mutex};

use fullbore::client::Proxies;
use fullbore::rustls::crypto::ring::default_provider;
use fullbore::rustls::pki_types::pem::PemObject;
use fullbore::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fullbore::rustls::server::WebPkiClientVerifier;
use fullbore::rustls::{RootCertStore, ServerConfig};
use fullbore::settings::HttpVersions;
use fullbore::tls::{Roots, client_config_with_certificate};
use fullbore::{BoxError, Client, ErrorKind, Server};
use http::{Response, Version};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{full, service, soon};

/// What a proxy saw of one connection.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    head: String,
    has_certificate: bool,
    protocol: Option<Vec<u8>>,
}

/// Certificates of one authority: its own, and one for 127.0.0.1 with its key.
struct Made {
    authority: String,
    leaf: String,
    key: String,
}

fn make() -> Made {
    let mut fields = CertificateParams::default();
    fields.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = fields.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(fields, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    Made {
        authority,
        leaf: leaf.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

/// A server's configuration that asks for a certificate, and may insist on it.
fn server_config(made: &Made, insists: bool, protocols: &[&[u8]]) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(made.authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(default_provider());
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    if !insists {
        verifier = verifier.allow_unauthenticated();
    }
    let chain = vec![CertificateDer::from_pem_slice(made.leaf.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

/// A proxy over TLS that opens every tunnel. Returns its port, and what it sees.
async fn tls_proxy(config: ServerConfig) -> (u16, Arc<Mutex<Vec<Seen>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (io, _) = listener.accept().await.unwrap();
            let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
            tokio::spawn(async move {
                let mut stream = acceptor.accept(io).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                let session = stream.get_ref().1;
                noted.lock().unwrap().push(Seen {
                    head,
                    has_certificate: session.peer_certificates().is_some(),
                    protocol: session.alpn_protocol().map(<[u8]>::to_vec),
                });
                let mut server = TcpStream::connect(target).await.unwrap();
                // The second line is no field, and the first is folded.
                stream
                    .write_all(
                        b"HTTP/1.1 200 Connection established\r\nvia: 1.1\r\n here\r\nproxy agent: x\r\n\r\n",
                    )
                    .await
                    .unwrap();
                copy_bidirectional(&mut stream, &mut server).await.ok();
            });
        }
    });
    (port, seen)
}

#[tokio::test]
async fn a_tunnel_through_a_proxy_over_tls_carries_http2_and_the_certificate_is_for_the_server_alone() {
    let made = make();
    let tls = Arc::new(server_config(&made, true, &[b"h2"]));
    let server = Server::builder()
        .tls_config(tls)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let target = server.local_addr().unwrap().to_string();
    let service = service(|_| async { Ok::<_, BoxError>(Response::new(full("hello"))) });
    tokio::spawn(server.serve(service));
    let (port, seen) = tls_proxy(server_config(&made, false, &[b"h2", b"http/1.1"])).await;

    let roots = Roots::Pem(made.authority.clone().into());
    let config = client_config_with_certificate(roots, made.leaf.as_bytes(), made.key.as_bytes()).unwrap();
    let proxies = Proxies::all(&format!("https://user:pass@127.0.0.1:{port}")).unwrap();
    let client = Client::builder().tls_config(Arc::new(config)).proxies(proxies);
    let client = client.build().unwrap();
    for _ in 0..2 {
        let response = soon(client.get(format!("https://{target}/"))).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.version()),
            (200, Version::HTTP_2)
        );
    }
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 1, "one tunnel is enough");
    assert_eq!(seen[0].protocol.as_deref(), Some(&b"http/1.1"[..]));
    assert!(!seen[0].has_certificate, "the proxy was given the certificate");
    let head = seen[0].head.to_lowercase();
    assert!(
        head.starts_with(&format!("connect {target} http/1.1\r\nhost: {target}\r\n")),
        "{head}"
    );
    assert!(
        head.contains("\r\nproxy-authorization: basic dxnlcjpwyxnz\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_the_cause_and_http2_alone_asks_it_for_a_tunnel() {
    let nobody = fullbore_testing::nobody::Nobody::bind();
    let proxies = Proxies::all(&nobody.to_string()).unwrap();
    let client = Client::builder().proxies(proxies).build().unwrap();
    for url in ["http://127.0.0.1:1/", "https://127.0.0.1:1/"] {
        let error = soon(client.get(url)).await.unwrap_err();
        assert!(error.is_proxy() && error.is_connect(), "{error}");
        assert_eq!(error.kind(), ErrorKind::Connect);
    }
    let direct = Client::new();
    let error = soon(direct.get(format!("http://{nobody}/"))).await.unwrap_err();
    assert!(!error.is_proxy() && error.is_connect(), "{error}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxies = Proxies::all(&listener.local_addr().unwrap().to_string()).unwrap();
    let client = Client::builder()
        .proxies(proxies)
        .http_versions(HttpVersions::Http2);
    let client = client.build().unwrap();
    let asked = async {
        let (mut io, _) = listener.accept().await.unwrap();
        let mut begin = [0; 8];
        io.read_exact(&mut begin).await.unwrap();
        begin
    };
    let request = client.get("http://one.invalid/");
    let (begin, error) = tokio::join!(soon(asked), soon(request));
    assert_eq!(&begin, b"CONNECT ");
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Proxy, "{error}");
}

#[tokio::test]
async fn a_proxy_that_sends_informational_responses_without_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
        let mut sent = 0;
        // Until the client closes.
        while io.write_all(&many).await.is_ok() {
            sent += many.len();
        }
        sent
    });
    let client = Client::builder()
        .proxies(Proxies::all(&url).unwrap())
        .build()
        .unwrap();
    let error = soon(client.get("https://one.example/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Proxy, "{error}");
    assert!(error.to_string().contains("informational"), "{error}");
    soon(proxy).await.unwrap();
}

#[tokio::test]
async fn a_proxy_may_send_a_few_informational_responses_before_its_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        let few = "HTTP/1.1 100 Continue\r\n\r\n".repeat(8);
        let answer = format!("{few}HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        io.write_all(answer.as_bytes()).await.unwrap();
        io.read_to_end(&mut Vec::new()).await.ok();
    });
    let client = Client::builder()
        .proxies(Proxies::all(&url).unwrap())
        .build()
        .unwrap();
    let error = soon(client.get("https://one.example/")).await.unwrap_err();
    assert!(error.to_string().contains("403"), "{error}");
}
