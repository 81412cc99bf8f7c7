//! pingora's proxy, with HTTP/2 on both sides, in cleartext or over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::apps::{HttpServerOptions, ServerApp};
use pingora_core::listeners::tls::Acceptor;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::{ALPN, IO};
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::tls::SERVER;

/// Forwards everything to one server, over HTTP/2.
struct Forward {
    to: SocketAddr,
    secure: bool,
}

#[async_trait]
impl ProxyHttp for Forward {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.to, self.secure, SERVER.to_owned());
        peer.options.alpn = ALPN::H2;
        peer.options.max_h2_streams = 100;
        // Whom it trusts is no part of HTTP/2.
        peer.options.verify_cert = false;
        Ok(Box::new(peer))
    }
}

/// A proxy in cleartext before a server in cleartext; the task accepts connections until it is aborted.
pub(crate) async fn proxy(to: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    start(Forward { to, secure: false }, None).await
}

/// The same over TLS, on both sides.
pub(crate) async fn proxy_over_tls(to: SocketAddr, tls: &Arc<ServerConfig>) -> (SocketAddr, JoinHandle<()>) {
    start(Forward { to, secure: true }, Some(Arc::clone(tls))).await
}

async fn start(forward: Forward, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut proxy = http_proxy(&Arc::new(ServerConf::default()), forward);
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    proxy.server_options = Some(options);
    let proxy = Arc::new(proxy);
    let acceptor = tls.map(|tls| Arc::new(Acceptor::from_server_config(tls)));
    let task = tokio::spawn(async move {
        let (_stop, shutdown) = watch::channel(false);
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (proxy, shutdown, acceptor) = (Arc::clone(&proxy), shutdown.clone(), acceptor.clone());
            tokio::spawn(async move {
                let stream = Stream::from(stream);
                let stream: Box<dyn IO> = match acceptor {
                    Some(acceptor) => Box::new(acceptor.tls_handshake(stream).await.unwrap()),
                    None => Box::new(stream),
                };
                proxy.process_new(stream, &shutdown).await;
            });
        }
    });
    (address, task)
}
