//! DNS over HTTPS (RFC 8484): hickory's client, and a server of hyper.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hickory_net::h2::HttpsClientStream;
use hickory_net::proto::op::{DnsRequestOptions, Message, Query};
use hickory_net::proto::rr::rdata::{A, TXT};
use hickory_net::proto::rr::{Name, RData, Record, RecordType};
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::{DnsExchange, DnsHandle, FirstAnswer};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::soon;
use crate::tls::SERVER;

const TYPE: &str = "application/dns-message";

/// The answer to a question: an address for A, and a text of 60,000 octets for TXT. None for a name that is `broken`.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    let query = question.queries[0].clone();
    let name = query.name().clone();
    if name.to_ascii().starts_with("broken") {
        return None;
    }
    let data = match query.query_type() {
        RecordType::TXT => RData::TXT(TXT::new(vec!["x".repeat(250); 240])),
        _ => RData::A(A::new(127, 0, 0, name.to_ascii().len() as u8)),
    };
    answer.add_query(query);
    answer.add_answer(Record::from_rdata(name, 60, data));
    Some(answer.to_vec().unwrap())
}

async fn on_hyper(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.uri().to_string(), format!("https://{SERVER}/dns-query"));
    assert_eq!(request.headers()["content-type"], TYPE);
    let question = request.into_body().collect().await.unwrap().to_bytes();
    Ok(response(answer(&question)))
}

fn response(answer: Option<Vec<u8>>) -> Response<Full<Bytes>> {
    let response = match &answer {
        Some(answer) => Response::builder()
            .header("content-type", TYPE)
            .header("content-length", answer.len()),
        None => Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR),
    };
    response.body(answer.unwrap_or_default().into()).unwrap()
}

async fn serve(stream: TlsStream<TcpStream>) {
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), service_fn(on_hyper));
    let _ = served.await;
}

/// A server of DNS over HTTPS; the task accepts connections until it is aborted.
pub(crate) async fn dns_server(tls: &Arc<ServerConfig>) -> (SocketAddr, JoinHandle<()>) {
    let tls = TlsAcceptor::from(Arc::clone(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = tls.accept(stream).await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    (address, task)
}

/// A client; `runtime` has its tasks.
async fn client(
    runtime: &TokioRuntimeProvider,
    tls: Arc<ClientConfig>,
    server: SocketAddr,
) -> DnsExchange<TokioRuntimeProvider> {
    let builder = HttpsClientStream::builder(tls, runtime.clone());
    let exchange = builder.exchange(server, SERVER.into(), "/dns-query".into());
    soon(exchange).await.unwrap()
}

/// Asks a server for names of all lengths at once, for a long answer, and for one that fails.
pub(crate) async fn resolves(tls: &Arc<ClientConfig>, server: SocketAddr) {
    let runtime = TokioRuntimeProvider::new();
    let client = client(&runtime, Arc::clone(tls), server).await;
    let mut lookups = Vec::new();
    for length in 1..60 {
        let name: Name = format!("{}.example.", "n".repeat(length)).parse().unwrap();
        let query = Query::query(name, RecordType::A);
        let lookup = client.lookup(query, DnsRequestOptions::default()).first_answer();
        lookups.push(tokio::spawn(async move {
            let response = lookup.await.unwrap();
            let last = (length + ".example.".len()) as u8;
            assert_eq!(response.answers[0].data, RData::A(A::new(127, 0, 0, last)));
        }));
    }
    for lookup in lookups {
        soon(lookup).await.unwrap();
    }
    let long = Query::query("long.example.".parse().unwrap(), RecordType::TXT);
    let lookup = client.lookup(long, DnsRequestOptions::default()).first_answer();
    let response = soon(lookup).await.unwrap();
    let RData::TXT(text) = &response.answers[0].data else {
        panic!("{response:?}");
    };
    assert_eq!(text.txt_data.len(), 240);
    let broken = Query::query("broken.example.".parse().unwrap(), RecordType::A);
    let lookup = client.lookup(broken, DnsRequestOptions::default()).first_answer();
    let error = soon(lookup).await.unwrap_err();
    assert!(error.to_string().contains("500"), "{error}");
}
