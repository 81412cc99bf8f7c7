//! Adapters that put a [`fullbore::Client`] below the HTTP clients of other crates. Copy the module that you need.
//!
//! | module | puts it below |
//! |---|---|
//! | [`reqwest_middleware`] | `reqwest_middleware::ClientBuilder`, as the last middleware |
//! | [`object_store`] | every store of `object_store`, as its `HttpConnector` |
//! | [`kube`] | `kube::Client`, as its service |
//! | [`aws_smithy`] | the clients of the AWS SDK, as their `HttpClient` |

#![forbid(unsafe_code)]

pub mod aws_smithy;
pub mod kube;
pub mod object_store;
pub mod reqwest_middleware;
