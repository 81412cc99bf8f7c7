//! A certificate of `localhost` that its clients trust.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::support::answer;

pub(crate) const SERVER: &str = "localhost";

pub(crate) struct Tls {
    pub(crate) client: Arc<ClientConfig>,
    /// It chooses HTTP/2 by ALPN.
    pub(crate) server: Arc<ServerConfig>,
    /// The certificate, PEM.
    pub(crate) pem: String,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What trusts this certificate alone.
pub(crate) fn trusting(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(client)
}

impl Tls {
    pub(crate) fn new() -> Self {
        let certified = rcgen::generate_simple_self_signed([SERVER.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let certificate = certified.cert.der().clone();
        let client = trusting(certificate.clone());
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        server.alpn_protocols = vec![b"h2".to_vec()];
        Tls {
            client,
            server: Arc::new(server),
            pem: certified.cert.pem(),
        }
    }

    /// A server of hyper that answers with [`answer`]; the task accepts connections until it is aborted.
    pub(crate) async fn hyper_server(&self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::clone(&self.server));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                });
            }
        });
        (address, task)
    }
}
