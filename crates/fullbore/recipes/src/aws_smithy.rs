//! An `HttpClient` of `aws-smithy-runtime-api` that sends the requests of the AWS SDK through fullbore.

use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use fullbore::{Client, Error, ErrorKind};

/// For `http_client` of an SDK's configuration. The SDK's read timeout limits the time to the head of a response. The
/// limit on connecting is that of [`Client`].
///
/// ```
/// # fn main() -> Result<(), fullbore::Error> {
/// use aws_smithy_runtime_api::client::http::SharedHttpClient;
/// use fullbore_recipes::aws_smithy::Fullbore;
///
/// // aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
/// let http = SharedHttpClient::new(Fullbore(fullbore::Client::new()));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Fullbore(pub Client);

impl HttpClient for Fullbore {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector {
            client: self.0.clone(),
            read_timeout: settings.read_timeout(),
        })
    }
}

#[derive(Debug)]
struct Connector {
    client: Client,
    read_timeout: Option<Duration>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (client, limit) = (self.client.clone(), self.read_timeout);
        HttpConnectorFuture::new(async move {
            let sent = send(client, request);
            match limit {
                None => sent.await,
                Some(limit) => match tokio::time::timeout(limit, sent).await {
                    Ok(answered) => answered,
                    Err(elapsed) => Err(ConnectorError::timeout(elapsed.into())),
                },
            }
        })
    }
}

async fn send(client: Client, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let invalid = |error: aws_smithy_runtime_api::http::HttpError| ConnectorError::user(error.into());
    let request = request.try_into_http1x().map_err(invalid)?;
    let response = client.request(request).await.map_err(error)?;
    let response = response.map(SdkBody::from_body_1_x);
    let invalid = |error: aws_smithy_runtime_api::http::HttpError| ConnectorError::other(error.into(), None);
    HttpResponse::try_from(response).map_err(invalid)
}

/// The kind decides whether the SDK repeats the request.
fn error(error: Error) -> ConnectorError {
    match error.kind() {
        ErrorKind::Timeout => ConnectorError::timeout(error.into()),
        ErrorKind::InvalidUrl | ErrorKind::InvalidMessage | ErrorKind::Config | ErrorKind::Body => {
            ConnectorError::user(error.into())
        }
        _ if error.is_connect() => ConnectorError::io(error.into()).never_connected(),
        _ => ConnectorError::io(error.into()),
    }
}
