//! A request to one server for the authority of another: the URL says where to connect, and `host` what is asked.

use bytes::Bytes;
use fullbore::ErrorKind;
use http::Response;
use http_body_util::BodyExt;

use crate::support::{config, empty, full, pair, post, soon};

#[tokio::test]
async fn over_http_2_the_host_field_of_a_request_is_its_authority() {
    let two = pair(config(), config(), |request| async move {
        let authority = request.uri().authority().expect("one").as_str();
        let text = format!("{authority} {:?}", request.headers().get("host"));
        Ok(Response::new(full(Bytes::from(text))))
    });
    for (host, seen) in [
        ("test.example", "test.example None"),
        ("other.example:8443", "other.example:8443 None"),
        ("[::1]:8443", "[::1]:8443 None"),
    ] {
        let mut request = post("/", empty());
        request.headers_mut().insert("host", host.parse().unwrap());
        // Such a field is removed from the same request.
        request
            .headers_mut()
            .insert("keep-alive", "timeout=5".parse().unwrap());
        let response = soon(two.client.send(request)).await.unwrap();
        let body = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(body.to_bytes(), seen);
    }
    for hosts in [&["a b"][..], &[""], &["a", "b"], &["user@a"]] {
        let mut request = post("/", empty());
        for host in hosts {
            request.headers_mut().append("host", host.parse().unwrap());
        }
        let refused = soon(two.client.send(request)).await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidMessage, "{hosts:?}");
    }
    two.end().await;
}
