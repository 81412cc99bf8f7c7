//! A reverse proxy as a [`tower_service::Service`], over the client of [`fullbore`].
//!
//! [`Proxy`] takes an [`http::Request`] and sends it to its origin: an application, or several equal instances of it. It runs
//! under [`fullbore::Server`], alone or as a route of an axum application:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use fullbore_proxy::Proxy;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let application = Router::new()
//!     .route("/healthz", get(|| async { "ok" }))
//!     .fallback_service(Proxy::to("http://127.0.0.1:3000")?);
//! let server = fullbore::Server::builder().peer_addresses(true).bind("[::]:8080").await?;
//! server.serve(application).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | subject | behaviour |
//! |---|---|
//! | origins | `http://` is HTTP/1.1, `h2c://` HTTP/2, `https://` either by ALPN, `unix:` either |
//! | several instances | the one with the fewest requests under way; one that cannot be reached, does not answer or refuses three times in a row is left out for 10 s |
//! | bodies | streamed both ways; a reader that stops stops the sender |
//! | ends | a reset on one side resets the other; a body that breaks off never ends well |
//! | fields | those of a connection are removed both ways (RFC 9110 section 7.6.1); `via` is added to requests |
//! | the client's address | `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host` and `forwarded` (RFC 7239) are replaced; those of a [trusted proxy](ProxyBuilder::trusted_proxy) are extended |
//! | host | the client's, or that of [`ProxyBuilder::origin_host`] |
//! | informational responses | `Expect: 100-continue` is the origin's to answer; 103 and others are passed on over HTTP/2 |
//! | WebSockets | over HTTP/1.1 and HTTP/2 (RFC 8441), each on to either |
//! | repeats | once, of a request that was not processed, or that is idempotent, has no body and met a used connection that closed |
//! | limits on time | connecting 5 s, the head of a response 60 s from the end of the request, idle connections 4 s |
//! | failures | 502, 503 and 504 without the origin's address; [`ProxyBuilder::on_failure`] is told why |
//!
//! The limits are settings of the client: [`ProxyBuilder::client`].
//!
//! A call needs the context of a tokio runtime with timers. The client's address is that of the extension
//! [`PeerAddr`](fullbore::server::PeerAddr), or what `fullbore::Server` knows of the connection.

#![forbid(unsafe_code)]

mod body;
mod builder;
mod fields;
mod figures;
mod forwarded;
mod instances;
mod origin;
mod proxy;
mod refusal;
mod request_body;
mod settings;
mod upgrade;

pub use self::body::ProxyBody;
pub use self::builder::{BuildError, ProxyBuilder};
pub use self::figures::{ANSWER_BOUNDS, InstanceFigures};
pub use self::instances::InstanceStats;
pub use self::proxy::{Proxy, ProxyFuture};
pub use self::settings::{Change, Failure, InstanceChange};

/// The guide's snippet, compiled.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/proxy.md")]
    mod proxy {}
}
