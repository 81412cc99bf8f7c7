//! A `kube::Client` whose requests go through fullbore. A watch is a stream of an HTTP/2 connection, so that any number of
//! them share one. What needs an upgrade of HTTP/1.1 (exec, attach, port-forward) does not work.

use ::kube::client::ConfigExt;
use ::kube::{Client, Config, Result};
use tower::ServiceBuilder;

/// A client with the URL, the authorization and the namespace of `config`. Certificates are the settings of `http`
/// (`tls_config`): those of `config` are not used.
///
/// # Errors
/// The authorization of `config` cannot be had.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = kube::Config::infer().await?;
/// let client = fullbore_recipes::kube::client(fullbore::Client::new(), config)?;
/// # Ok(()) }
/// ```
pub fn client(http: fullbore::Client, config: Config) -> Result<Client> {
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
