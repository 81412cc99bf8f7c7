//! A server of axum that answers from memory, with everything at its defaults but TCP_NODELAY.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract;
use axum::routing::get;
use axum::serve::{Listener, ListenerExt};
use bytes::Bytes;
use clap::Args;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::{Failure, Threads};

/// What a long body hands over at once.
const PIECE: Bytes = Bytes::from_static(&[b'x'; 256 << 10]);

#[derive(Args)]
pub(crate) struct Server {
    #[command(flatten)]
    threads: Threads,
    /// The certificate chain, PEM; without it in the clear
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long)]
    key: Option<PathBuf>,
}

impl Server {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(tls(cert, key)?),
            _ => None,
        };
        let runtime = self.threads.runtime()?;
        // On a worker, if there are some: no connection wakes this thread.
        runtime.block_on(runtime.spawn(serve(tls)))?
    }
}

async fn serve(tls: Option<TlsAcceptor>) -> Result<(), Failure> {
    let router = Router::new()
        .route("/wait", get(std::future::pending::<()>))
        .route("/{length}", get(answer).put(discard));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    match tls {
        Some(acceptor) => axum::serve(Secure { listener, acceptor }, router).await?,
        None => {
            let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
            axum::serve(listener, router).await?;
        }
    }
    Ok(())
}

async fn answer(extract::Path(length): extract::Path<usize>) -> Body {
    match length <= PIECE.len() {
        true => PIECE.slice(..length).into(),
        false => Body::new(Pieces { left: length }),
    }
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// A body of so many bytes.
struct Pieces {
    left: usize,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let now = self.left.min(PIECE.len());
        self.left -= now;
        Poll::Ready((now > 0).then(|| Ok(Frame::data(PIECE.slice(..now)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

fn tls(cert: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert)?.collect();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain?, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connections over TLS.
struct Secure {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (socket, address) = Listener::accept(&mut self.listener).await;
            let _ = socket.set_nodelay(true);
            // One that fails is its client's loss, who tells of it.
            if let Ok(stream) = self.acceptor.accept(socket).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
