//! Each adapter against a `fullbore::Server`, which speaks HTTP/2 with each of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use bytes::Bytes;
use fullbore::{Client, Server};
use http::{StatusCode, Version};
use tokio::task::JoinHandle;

/// A server, ended when dropped.
struct Site {
    origin: String,
    serving: JoinHandle<Result<(), fullbore::Error>>,
}

impl Site {
    async fn start(app: Router) -> Self {
        let server = Server::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", server.local_addr().expect("an address"));
        let serving = tokio::spawn(server.serve(app));
        Site { origin, serving }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[tokio::test]
async fn requests_of_reqwest_middleware_go_through_fullbore() {
    let echo = |version: Version, body: String| async move { format!("{version:?} {body}") };
    let app = Router::new()
        .route("/echo", post(echo))
        .route("/silent", get(std::future::pending::<()>));
    let site = Site::start(app).await;
    let fullbore = Client::new();
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(fullbore_recipes::reqwest_middleware::Fullbore(fullbore.clone()))
        .build();
    let url = format!("{}/echo", site.origin);
    let response = client.post(&url).body("content").send().await.unwrap();
    assert_eq!(response.url().as_str(), url);
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.content_length(), Some(16));
    assert_eq!(response.text().await.unwrap(), "HTTP/2.0 content");
    assert_eq!(fullbore.connections(&site.origin), 1);
    let silent = client.get(format!("{}/silent", site.origin));
    let error = silent
        .timeout(Duration::from_millis(20))
        .send()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("deadline"), "{error}");
    // Errors keep their kinds.
    let error = client.get("http://127.0.0.1:1/").send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else {
        panic!("not of the middleware: {error}");
    };
    let error = error.downcast::<fullbore::Error>().unwrap();
    assert_eq!(error.kind(), fullbore::ErrorKind::Connect);
}

/// Keeps what is put, and answers with it.
fn files() -> Router {
    let files = Arc::new(Mutex::new(HashMap::<String, Bytes>::new()));
    let kept = Arc::clone(&files);
    let put = |Path(name): Path<String>, body: Bytes| async move {
        kept.lock().unwrap().insert(name, body);
        StatusCode::CREATED
    };
    let give = |Path(name): Path<String>| async move {
        files
            .lock()
            .unwrap()
            .get(&name)
            .cloned()
            .ok_or(StatusCode::NOT_FOUND)
    };
    Router::new()
        .route("/{*name}", get(give).put(put))
        .layer(axum::extract::DefaultBodyLimit::disable())
}

#[tokio::test]
async fn stores_of_object_store_put_and_get_through_fullbore() {
    use object_store::{ObjectStore, ObjectStoreExt};

    let site = Site::start(files()).await;
    let fullbore = Client::new();
    let store = object_store::http::HttpBuilder::new()
        .with_url(&site.origin)
        .with_http_connector(fullbore_recipes::object_store::Fullbore(fullbore.clone()))
        .build()
        .unwrap();
    let path = object_store::path::Path::from("one/two");
    let content = Bytes::from(vec![7; 3_000_000]);
    store
        .put_opts(&path, content.clone().into(), Default::default())
        .await
        .unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), content);
    let missing = store.get(&object_store::path::Path::from("three")).await;
    assert!(matches!(missing, Err(object_store::Error::NotFound { .. })));
    assert_eq!(fullbore.connections(&site.origin), 1);
}

#[tokio::test]
async fn clients_of_kube_send_through_fullbore() {
    use k8s_openapi::api::core::v1::Pod;

    let pod = |Path(name): Path<String>, headers: http::HeaderMap| async move {
        assert_eq!(headers["authorization"], "Bearer secret");
        let pod = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}}}}"#);
        ([("content-type", "application/json")], pod)
    };
    let app = Router::new().route("/api/v1/namespaces/default/pods/{name}", get(pod));
    let site = Site::start(app).await;
    let mut config = kube::Config::new(site.origin.parse().unwrap());
    config.auth_info.token = Some("secret".to_owned().into());
    let fullbore = Client::new();
    let client = fullbore_recipes::kube::client(fullbore.clone(), config).unwrap();
    let pods: kube::Api<Pod> = kube::Api::default_namespaced(client);
    assert_eq!(
        pods.get("one").await.unwrap().metadata.name.as_deref(),
        Some("one")
    );
    let missing: kube::Api<Pod> = kube::Api::namespaced(pods.into_client(), "other");
    assert!(missing.get("one").await.is_err());
    assert_eq!(fullbore.connections(&site.origin), 1);
}

#[tokio::test]
async fn clients_of_the_aws_sdk_send_through_fullbore() {
    use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorSettings};
    use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
    use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
    use aws_smithy_types::body::SdkBody;

    let app = Router::new()
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/silent", get(std::future::pending::<()>));
    let site = Site::start(app).await;
    let fullbore = Client::new();
    let adapter = fullbore_recipes::aws_smithy::Fullbore(fullbore.clone());
    let components = RuntimeComponentsBuilder::for_tests().build().unwrap();
    let settings = HttpConnectorSettings::builder().build();
    let connector = adapter.http_connector(&settings, &components);
    let request = |method: &str, path: &str, body: &'static str| {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", site.origin));
        HttpRequest::try_from(request.body(SdkBody::from(body)).unwrap()).unwrap()
    };
    use aws_smithy_runtime_api::client::http::HttpConnector;
    let response = connector.call(request("POST", "/echo", "content")).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap();
    assert_eq!(body.to_bytes(), "content");
    assert_eq!(fullbore.connections(&site.origin), 1);
    let settings = HttpConnectorSettings::builder()
        .read_timeout(Duration::from_millis(20))
        .build();
    let connector = adapter.http_connector(&settings, &components);
    let error = connector.call(request("GET", "/silent", "")).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let mut refused = request("GET", "/", "");
    refused.set_uri("http://127.0.0.1:1/").unwrap();
    assert!(connector.call(refused).await.unwrap_err().is_io());
}
