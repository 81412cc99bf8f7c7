//! What a server sends in its part of the TLS handshake.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::BytesMut;
use fullbore::rustls::crypto::ring::{default_provider, kx_group};
use fullbore::rustls::pki_types::ServerName;
use fullbore::rustls::{self, ClientConfig, ClientConnection, ServerConfig};
use fullbore::settings::MemoryBudget;
use fullbore::tls::{
    Roots, SelfSigned, client_config, self_signed, server_config, server_config_for_clients_of,
};
use fullbore::{BoxError, Client, Server};
use fullbore_testing::frames::{self, Frame};
use http::{Response, Version};
use tokio::task::spawn_blocking;

use crate::support::{full, service, soon};

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// The port of a server with this configuration.
async fn serve(tls: ServerConfig, budget: &MemoryBudget) -> u16 {
    let builder = Server::builder()
        .tls_config(Arc::new(tls))
        .memory_budget(budget.clone());
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let service = service(|_| async { Ok::<_, BoxError>(Response::new(full("hello"))) });
    tokio::spawn(server.serve(service));
    port
}

fn made() -> SelfSigned {
    self_signed(&["localhost"]).unwrap()
}

fn server_with(made: &SelfSigned) -> ServerConfig {
    server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap()
}

fn client_of(made: &SelfSigned, protocol: &str) -> ClientConfig {
    let mut config = client_config(Roots::Pem(made.cert_pem.clone().into())).unwrap();
    config.alpn_protocols = vec![protocol.into()];
    config
}

/// A client that has had the server's part of the handshake and sent nothing of its own but the ClientHello.
struct Halfway {
    tls: ClientConnection,
    tcp: TcpStream,
}

impl Halfway {
    fn reach(port: u16, config: ClientConfig) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
        tls.write_tls(&mut tcp).unwrap();
        while tls.is_handshaking() {
            assert!(tls.read_tls(&mut tcp).unwrap() > 0, "the server has closed");
            tls.process_new_packets().unwrap();
        }
        Halfway { tls, tcp }
    }

    /// The frames that come without another word from the client.
    fn frames(&mut self, count: usize) -> Vec<Frame> {
        let mut octets = BytesMut::new();
        let mut frames = Vec::new();
        loop {
            let mut plain = [0; 1_024];
            if let Ok(read) = self.tls.reader().read(&mut plain) {
                octets.extend_from_slice(&plain[..read]);
            }
            while let Some(frame) = Frame::split(&mut octets) {
                frames.push(frame);
            }
            if frames.len() >= count {
                return frames;
            }
            assert!(
                self.tls.read_tls(&mut self.tcp).unwrap() > 0,
                "the server has closed"
            );
            self.tls.process_new_packets().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_come_before_the_client_has_finished_and_not_again() {
    let made = made();
    let budget = MemoryBudget::new(512 << 20);
    let port = serve(server_with(&made), &budget).await;
    let config = client_of(&made, "h2");
    let kinds = spawn_blocking(move || {
        let mut client = Halfway::reach(port, config);
        let first = client.frames(2);
        let said = [
            frames::PREFACE,
            &frames::settings(&[]),
            &frames::settings_ack(),
            &frames::ping(0, b"halfway."),
        ]
        .concat();
        let mut stream = rustls::Stream::new(&mut client.tls, &mut client.tcp);
        stream.write_all(&said).unwrap();
        let then = [
            Frame::read(&mut stream).unwrap(),
            Frame::read(&mut stream).unwrap(),
        ];
        let of = |frames: &[Frame]| -> Vec<_> {
            let kind = |frame: &Frame| (frame.kind, frame.is_ack(), frame.stream);
            frames.iter().map(kind).collect()
        };
        (of(&first), of(&then))
    });
    let (first, then) = soon(kinds).await.unwrap();
    assert_eq!(first, [(SETTINGS, false, 0), (WINDOW_UPDATE, false, 0)]);
    assert_eq!(then, [(SETTINGS, true, 0), (PING, true, 0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_halfway_gives_back_what_its_windows_had() {
    let made = made();
    let budget = MemoryBudget::new(512 << 20);
    let port = serve(server_with(&made), &budget).await;
    let config = client_of(&made, "h2");
    let halfway = spawn_blocking(move || {
        let mut client = Halfway::reach(port, config);
        client.frames(1);
        client
    });
    let halfway = soon(halfway).await.unwrap();
    assert!(budget.leased() > 0);
    drop(halfway);
    soon(async {
        while budget.leased() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_1_has_nothing_before_its_response() {
    let made = made();
    let port = serve(server_with(&made), &MemoryBudget::new(512 << 20)).await;
    let config = client_of(&made, "http/1.1");
    let response = spawn_blocking(move || {
        let mut client = Halfway::reach(port, config);
        let mut stream = rustls::Stream::new(&mut client.tls, &mut client.tcp);
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    });
    let response = soon(response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
}

/// The status and version of the response to a request.
async fn request(port: u16, config: ClientConfig) -> (u16, Version) {
    let client = Client::builder().tls_config(Arc::new(config)).build().unwrap();
    let answer = soon(client.get(format!("https://localhost:{port}/")))
        .await
        .unwrap();
    (answer.status().as_u16(), answer.version())
}

#[tokio::test]
async fn handshakes_of_more_round_trips_are_as_before() {
    let made = made();
    let budget = MemoryBudget::new(512 << 20);
    let trusting = |versions: &[&'static rustls::SupportedProtocolVersion]| {
        let mut roots = rustls::RootCertStore::empty();
        let pem = made.cert_pem.as_bytes();
        for certificate in rustls::pki_types::pem::PemObject::pem_slice_iter(pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let mut config = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec!["h2".into()];
        config
    };
    let port = serve(server_with(&made), &budget).await;
    let version_12 = trusting(&[&rustls::version::TLS12]);
    assert_eq!(request(port, version_12).await, (200, Version::HTTP_2));

    // The client offers a key that this server does not take: HelloRetryRequest.
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::SECP384R1];
    let chain = rustls::pki_types::pem::PemObject::pem_slice_iter(made.cert_pem.as_bytes());
    let key = rustls::pki_types::pem::PemObject::from_pem_slice(made.key_pem.as_bytes()).unwrap();
    let mut retrying = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    retrying.alpn_protocols = vec!["h2".into()];
    retrying.send_half_rtt_data = true;
    let port = serve(retrying, &budget).await;
    let version_13 = trusting(&[&rustls::version::TLS13]);
    assert_eq!(request(port, version_13).await, (200, Version::HTTP_2));
}

#[test]
fn clients_that_have_to_show_a_certificate_are_sent_nothing_before() {
    let made = made();
    let (chain, key) = (made.cert_pem.as_bytes(), made.key_pem.as_bytes());
    assert!(server_config(chain, key).unwrap().send_half_rtt_data);
    let config = server_config_for_clients_of(chain, key, chain).unwrap();
    assert!(!config.send_half_rtt_data);
}
