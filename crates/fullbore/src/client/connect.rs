//! From the origin of a URL to a connection: name resolution, TCP, TLS.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use fullbore_proto::Config;
use http::Uri;
use http::uri::Scheme;
use tokio::net::TcpStream;

use super::connection::{SendRequest, handshake_observed};
use crate::error::{Error, ErrorKind};
use crate::observer::Observer;
use crate::settings::TcpBuffers;

/// The origin of a URL, by which connections are pooled. For a lookup it borrows from the URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin<'a> {
    tls: bool,
    host: Cow<'a, str>,
    port: u16,
}

impl<'a> Origin<'a> {
    pub(super) fn of(uri: &'a Uri) -> Result<Self, Error> {
        let invalid = |text: String| Error::new(ErrorKind::InvalidUrl, text);
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) => return Err(invalid(format!("{scheme}:// is neither http:// nor https://"))),
            None => {
                return Err(invalid(format!(
                    "{uri} has no scheme; begin it with http:// or https://"
                )));
            }
        };
        let host = match uri.host() {
            Some(host) if !host.is_empty() => host,
            _ => return Err(invalid(format!("{uri} has no host"))),
        };
        // The brackets of an IPv6 address belong to the URL.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Origin {
            tls,
            host: Cow::Borrowed(address.unwrap_or(host)),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        })
    }

    /// The origin with a name of its own.
    pub(super) fn into_owned(self) -> Origin<'static> {
        Origin {
            host: Cow::Owned(self.host.into_owned()),
            ..self
        }
    }
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// What connecting needs.
pub(super) struct Connector {
    pub(super) config: Arc<Config>,
    pub(super) tcp_buffers: TcpBuffers,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
    /// Replaces TCP in tests.
    #[cfg(test)]
    pub(super) dial: Option<Dial>,
}

/// Opens the transport of a test.
#[cfg(test)]
pub(super) type Dial =
    Arc<dyn Fn() -> futures_util::future::BoxFuture<'static, std::io::Result<Box<dyn Dialed>>> + Send + Sync>;

/// The transport of a test.
#[cfg(test)]
pub(super) trait Dialed: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}

#[cfg(test)]
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Dialed for T {}

impl Connector {
    /// Opens a connection to the origin, and spawns its task.
    pub(super) async fn connect(
        &self,
        origin: &Origin<'_>,
        observer: Arc<dyn Observer>,
    ) -> Result<SendRequest, Error> {
        #[cfg(test)]
        if let Some(dial) = &self.dial {
            let opened = dial().await;
            let io = opened.map_err(|error| Error::with_source(ErrorKind::Connect, "not dialed", error))?;
            return Ok(start(io, Arc::clone(&self.config), observer));
        }
        let tcp = connect_tcp(origin, self.tcp_buffers).await?;
        if origin.tls {
            return self.connect_tls(origin, tcp, observer).await;
        }
        Ok(start(tcp, Arc::clone(&self.config), observer))
    }

    #[cfg(feature = "tls")]
    async fn connect_tls(
        &self,
        origin: &Origin<'_>,
        tcp: TcpStream,
        observer: Arc<dyn Observer>,
    ) -> Result<SendRequest, Error> {
        use tokio_rustls::TlsConnector;
        use tokio_rustls::rustls::pki_types::ServerName;

        let config = match &self.tls {
            Some(config) => Arc::clone(config),
            None => Arc::new(crate::tls::client_config(crate::tls::Roots::Platform)?),
        };
        let host = &origin.host;
        let name = ServerName::try_from(host.clone().into_owned()).map_err(|error| {
            Error::with_source(
                ErrorKind::InvalidUrl,
                format!("{host} is not a valid name for TLS"),
                error,
            )
        })?;
        let connected = TlsConnector::from(config).connect(name, tcp).await;
        let mut stream = connected.map_err(|error| crate::tls::handshake_error(host, origin.port, error))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let text = format!("{host} did not select h2 in the TLS handshake (ALPN)");
            return Err(Error::new(ErrorKind::NotHttp2, text));
        }
        stream.get_mut().1.set_buffer_limit(Some(crate::tls::SEALED));
        let mut config = Config::clone(&self.config);
        config.record_size = crate::tls::RECORD;
        Ok(start(stream, Arc::new(config), observer))
    }

    #[cfg(not(feature = "tls"))]
    async fn connect_tls(
        &self,
        _: &Origin<'_>,
        _: TcpStream,
        _: Arc<dyn Observer>,
    ) -> Result<SendRequest, Error> {
        Err(Error::new(
            ErrorKind::Config,
            "https:// needs the feature `tls` of the crate fullbore",
        ))
    }
}

fn start<T>(io: T, config: Arc<Config>, observer: Arc<dyn Observer>) -> SendRequest
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake_observed(io, config, Some(observer));
    tokio::spawn(async move {
        // Every stream has the error already.
        let _ = connection.await;
    });
    sender
}

async fn connect_tcp(origin: &Origin<'_>, buffers: TcpBuffers) -> Result<TcpStream, Error> {
    let (host, port) = (&*origin.host, origin.port);
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<_> = resolved
        .map_err(|error| Error::with_source(ErrorKind::Resolve, host, error))?
        .collect();
    if addresses.is_empty() {
        return Err(Error::new(ErrorKind::Resolve, format!("{host} has no address")));
    }
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                buffers.apply(&stream);
                return Ok(stream);
            }
            Err(error) => last = Some((address, error)),
        }
    }
    Err(match last {
        Some((address, error)) => {
            Error::with_source(ErrorKind::Connect, format!("{host} at {address}"), error)
        }
        None => Error::new(ErrorKind::Connect, host),
    })
}
