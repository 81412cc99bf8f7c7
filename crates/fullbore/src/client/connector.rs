//! A connector of the caller's, with its type erased.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::error::{BoxError, Error, ErrorKind};
use crate::tcp::OverTcp;

/// Opens transports in place of TCP.
#[derive(Clone)]
pub(super) struct Connector(Arc<dyn Connect>);

/// A transport that a connector opened.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Its options of TCP are the connector's own.
impl OverTcp for Box<dyn Transport> {
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }
}

impl Connector {
    pub(super) fn new<C>(service: C) -> Self
    where
        C: Service<Uri> + Clone + Send + 'static,
        C::Response: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send,
    {
        Connector(Arc::new(Erased(Mutex::new(service))))
    }

    /// Opens a transport. An error of the connector is the source of the error, unless it is one of this library's own.
    pub(super) async fn connect(&self, uri: Uri) -> Result<Box<dyn Transport>, Error> {
        let text = format!("the connector failed for {uri}");
        let connected = self.0.connect(uri).await;
        connected.map_err(|error| match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::with_source(ErrorKind::Connect, text, error),
        })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

trait Connect: Send + Sync {
    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<Box<dyn Transport>, BoxError>>;
}

/// The lock makes a service that is not `Sync` shareable. Each attempt has a clone of its own.
struct Erased<C>(Mutex<C>);

impl<C> Connect for Erased<C>
where
    C: Service<Uri> + Clone + Send + 'static,
    C::Response: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<Box<dyn Transport>, BoxError>> {
        let mut service = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let io = service.call(uri).await.map_err(Into::into)?;
            Ok(Box::new(io) as Box<dyn Transport>)
        })
    }
}
