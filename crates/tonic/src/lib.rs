//! gRPC with [`tonic`] over [`fullbore`].
//!
//! A [`Channel`] takes the place of `tonic::transport::Channel` under the clients that tonic generates:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use fullbore_tonic::Channel;
//! use tonic_health::pb::HealthCheckRequest;
//! use tonic_health::pb::health_client::HealthClient;
//!
//! let channel = Channel::from_static("http://127.0.0.1:50051").connect().await?;
//! let mut client = HealthClient::new(channel);
//! let answer = client.check(HealthCheckRequest::default()).await?;
//! # drop(answer); Ok(()) }
//! ```
//!
//! [`GrpcService`] lets [`fullbore::Server`] serve `tonic::service::Routes`, or a single service:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use fullbore_tonic::GrpcService;
//! use tonic::service::Routes;
//!
//! let (_, health) = tonic_health::server::health_reporter();
//! let server = fullbore::Server::bind("127.0.0.1:50051").await?;
//! server.serve(GrpcService::new(Routes::new(health))).await?;
//! # Ok(()) }
//! ```
//!
//! tonic needs none of its transport features for either. Without them, no second implementation of HTTP/2 is built.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `ring` | on | TLS by rustls with the provider `ring` |
//! | `connect-info` | off | `tonic::Request::remote_addr`; it turns on tonic's feature `server` and with it the crate `h2` |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod channel;
mod deadline;
mod request;
mod response;
mod server;
mod status;

pub use self::channel::{Channel, ChannelBuilder, ResponseFuture};
pub use self::response::ResponseBody;
pub use self::server::{GrpcBody, GrpcFuture, GrpcService, RequestBody};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The examples of the guide, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/grpc.md")]
mod guide {}
