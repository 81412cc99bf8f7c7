//! Several equal instances of an application.

use fullbore::{BoxError, Incoming};
use fullbore_proxy::Proxy;
use fullbore_testing::frames::{HEADERS, RST_STREAM};
use fullbore_testing::peer::Peer;
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::support::{Front, VERSIONS, client, full, get, origin, post, raw_origin, soon, text, urls};

/// An address at which nobody listens.
fn absent() -> String {
    let site = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", site.local_addr().unwrap())
}

#[tokio::test]
async fn a_request_whose_instance_is_absent_goes_to_another_one_with_its_body() {
    let site = origin(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(full(body)))
    })
    .await;
    for url in urls(&site) {
        let front = Front::new(Proxy::builder().to(&absent()).to(&url)).await;
        let client = client(VERSIONS[1]);
        for number in 0..8 {
            let body = format!("body {number}");
            let response = soon(client.request(post(&front.url("/"), body.clone())))
                .await
                .unwrap();
            assert_eq!(text(response.into_body()).await, body);
            let response = soon(client.request(get(&front.url("/")))).await.unwrap();
            assert_eq!(response.status(), 200);
        }
        assert!(!front.proxy.stats()[0].in_use, "it is left out by now");
        assert!(front.proxy.stats()[1].in_use);
        assert_eq!(front.told(), [""; 0]);
    }
    let front = Front::new(Proxy::builder().to(&absent()).to(&absent())).await;
    let response = soon(client(VERSIONS[1]).request(post(&front.url("/"), "x")))
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(front.told().len(), 1);
}

#[tokio::test]
async fn an_instance_that_refuses_at_once_does_not_attract_all_requests() {
    let refusing = raw_origin(|_, stream| async move {
        let mut peer = Peer::server(stream, &[]).await;
        while let Some(frame) = peer.next().await {
            if frame.kind == HEADERS {
                // REFUSED_STREAM.
                peer.send(RST_STREAM, 0, frame.stream, &[0, 0, 0, 7]).await;
            }
        }
    })
    .await;
    let site = origin(|_: Request<Incoming>| async move {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        Ok::<_, BoxError>(Response::new(full("well")))
    })
    .await;
    let front = Front::new(Proxy::builder().to(&urls(&refusing)[1]).to(&urls(&site)[0])).await;
    let client = client(VERSIONS[1]);
    let mut served = 0;
    for _ in 0..20 {
        let response = soon(client.request(get(&front.url("/")))).await.unwrap();
        served += usize::from(response.status() == 200);
    }
    assert!(served >= 17, "{served} of 20");
    assert!(!front.proxy.stats()[0].in_use, "it is left out by now");
}

#[tokio::test]
async fn an_instance_that_says_it_is_not_healthy_gets_no_requests() {
    let answer = |name: &'static str, status: u16| {
        origin(move |request: Request<Incoming>| async move {
            let status = if request.uri().path() == "/health" {
                status
            } else {
                200
            };
            Ok::<_, BoxError>(Response::builder().status(status).body(full(name))?)
        })
    };
    let (sick, well) = (answer("sick", 503).await, answer("well", 204).await);
    let builder = Proxy::builder().to(&urls(&sick)[0]).to(&urls(&well)[1]);
    let front = Front::new(builder).await;
    let checking = tokio::spawn(front.proxy.clone().check_health("/health".to_owned()));
    soon(async {
        while front.proxy.stats()[0].in_use {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let client = client(VERSIONS[1]);
    for _ in 0..6 {
        let response = soon(client.request(get(&front.url("/")))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "well");
    }
    checking.abort();
}

#[test]
fn a_proxy_without_an_origin_or_with_a_wrong_one_is_not_built() {
    assert!(Proxy::builder().build().is_err());
    let error = Proxy::builder().to("http://a").to("a:1").build().unwrap_err();
    assert!(error.to_string().starts_with("a:1: expected a URL"), "{error}");
}
