//! Servers of the service, and channels to them.

#![allow(dead_code, reason = "each test program uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fullbore::tls::{Roots, SelfSigned, client_config, self_signed, server_config};
use fullbore_tonic::{Channel, GrpcService};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::{self, Certificate, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig};

use crate::support::echo::{Echo, Event};

/// A test that has not ended by then hangs; how long it takes is not what is tested.
const HANG: Duration = Duration::from_secs(120);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("the test hangs")
}

/// A server in a task of its own.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) events: UnboundedReceiver<Event>,
    /// The certificate, if the site has TLS.
    pub(crate) made: Option<SelfSigned>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), fullbore::BoxError>>,
}

impl Site {
    /// The service on fullbore's server.
    pub(crate) async fn fullbore() -> Site {
        Site::fullbore_over(None).await
    }

    pub(crate) async fn fullbore_over_tls() -> Site {
        Site::fullbore_over(Some(self_signed(&["localhost"]).expect("a certificate"))).await
    }

    async fn fullbore_over(made: Option<SelfSigned>) -> Site {
        let (echo, events) = Echo::new();
        let mut builder = fullbore::Server::builder();
        if let Some(made) = &made {
            let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes());
            builder = builder.tls_config(Arc::new(tls.expect("a configuration")));
        }
        let server = builder.bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let server = server.graceful_shutdown(async move { drop(stopped.await) });
        let service = GrpcService::new(Routes::new(echo));
        let serving = tokio::spawn(async move { Ok(server.serve(service).await?) });
        Site {
            address,
            events,
            made,
            stop,
            serving,
        }
    }

    /// The service on tonic's server.
    pub(crate) async fn tonic() -> Site {
        Site::tonic_over(None).await
    }

    pub(crate) async fn tonic_over_tls() -> Site {
        Site::tonic_over(Some(self_signed(&["localhost"]).expect("a certificate"))).await
    }

    async fn tonic_over(made: Option<SelfSigned>) -> Site {
        let (echo, events) = Echo::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut builder = transport::Server::builder();
        if let Some(made) = &made {
            let identity = Identity::from_pem(&made.cert_pem, &made.key_pem);
            let tls = ServerTlsConfig::new().identity(identity);
            builder = builder.tls_config(tls).expect("a configuration");
        }
        let (stop, stopped) = oneshot::channel();
        let router = builder.add_service(echo);
        let serving = tokio::spawn(async move {
            let stopped = async move { drop(stopped.await) };
            let incoming = TcpListenerStream::new(listener);
            Ok(router.serve_with_incoming_shutdown(incoming, stopped).await?)
        });
        Site {
            address,
            events,
            made,
            stop,
            serving,
        }
    }

    /// fullbore's channel to it, which has not connected yet.
    pub(crate) fn channel(&self) -> Channel {
        let builder = Channel::builder(self.origin().parse().expect("a URL"));
        let builder = match &self.made {
            Some(made) => {
                let roots = Roots::Pem(made.cert_pem.clone().into_bytes());
                let tls = Arc::new(client_config(roots).expect("a configuration"));
                builder.client(|client| client.tls_config(tls))
            }
            None => builder,
        };
        builder.connect_lazy().expect("a channel")
    }

    /// tonic's channel to it, which has not connected yet.
    pub(crate) fn tonic_channel(&self) -> transport::Channel {
        let mut endpoint = Endpoint::from_shared(self.origin()).expect("a URL");
        if let Some(made) = &self.made {
            let authority = Certificate::from_pem(&made.cert_pem);
            let tls = ClientTlsConfig::new().ca_certificate(authority);
            endpoint = endpoint.tls_config(tls).expect("a configuration");
        }
        endpoint.connect_lazy()
    }

    pub(crate) fn origin(&self) -> String {
        match self.made.is_some() {
            true => format!("https://localhost:{}", self.address.port()),
            false => format!("http://{}", self.address),
        }
    }

    /// Waits for the next call of this method, and returns the address that it comes from.
    pub(crate) async fn began(&mut self, wanted: &str) -> Option<SocketAddr> {
        loop {
            match soon(self.events.recv()).await.expect("the site serves") {
                Event::Began(method, address) if method == wanted => return address,
                _ => {}
            }
        }
    }

    /// Whether a call of this method has reached its handler.
    pub(crate) fn has_begun(&mut self, method: &str) -> bool {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .any(|event| matches!(event, Event::Began(begun, _) if begun == method))
    }

    /// Waits until a handler was dropped before its end.
    pub(crate) async fn dropped(&mut self) {
        while soon(self.events.recv()).await.expect("the site serves") != Event::Dropped {}
    }

    /// Shuts down gracefully, without waiting for the end.
    pub(crate) fn shut_down(self) -> JoinHandle<Result<(), fullbore::BoxError>> {
        let _ = self.stop.send(());
        self.serving
    }
}
