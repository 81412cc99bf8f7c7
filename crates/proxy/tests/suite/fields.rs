//! What the origin sees of a request, and the client of a response.

use fullbore::{BoxError, Incoming};
use fullbore_proxy::Proxy;
use http::{HeaderValue, Request, Response};

use crate::support::{Front, Reply, VERSIONS, client, full, get, origin, says, soon, text, urls};

/// Answers with what the origin has seen of a request: its target, and its fields in order.
async fn mirror(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let mut lines = vec![format!(
        "{} {}",
        request.method(),
        request.uri().path_and_query().unwrap()
    )];
    if let Some(authority) = request.uri().authority() {
        lines.push(format!("host: {authority}"));
    }
    let fields = request.headers().iter();
    lines.extend(fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
    lines.sort();
    Ok(Response::new(full(lines.join("\n"))))
}

#[tokio::test]
async fn the_origin_sees_the_request_of_the_client_and_who_it_is() {
    let site = origin(mirror).await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for version in VERSIONS {
            let mut request = get(&front.url("/a/../b%2f//c;d?e=%00&f=[]|{}"));
            for (name, value) in [
                ("host", "public.example:8443"),
                ("x-forwarded-for", "1.1.1.1"),
                ("x-real-ip", "1.1.1.1"),
                ("forwarded", "for=1.1.1.1"),
                ("te", "trailers, gzip;q=0.5"),
                ("cookie", "a=b"),
            ] {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            if version.has_http1() {
                for (name, value) in [
                    ("connection", "x-secret"),
                    ("x-secret", "1"),
                    ("keep-alive", "timeout=5"),
                    ("proxy-connection", "keep-alive"),
                ] {
                    request.headers_mut().append(name, value.parse().unwrap());
                }
            } else {
                request.headers_mut().insert("te", "trailers".parse().unwrap());
            }
            let response = soon(client(version).request(request)).await.unwrap();
            let seen = text(response.into_body()).await;
            let hop = if version.has_http1() { "1.1" } else { "2" };
            let connection = if url.starts_with("http:") {
                "connection: te\n"
            } else {
                ""
            };
            let expected = format!(
                "GET /a/../b%2f//c;d?e=%00&f=[]|{{}}\n{connection}cookie: a=b\n\
                 forwarded: for=127.0.0.1;proto=http;host=\"public.example:8443\"\n\
                 host: public.example:8443\nte: trailers\nvia: {hop} fullbore\nx-forwarded-for: 127.0.0.1\n\
                 x-forwarded-host: public.example:8443\nx-forwarded-proto: http",
            );
            let seen: Vec<_> = seen.lines().collect();
            let mut seen: Vec<_> = seen.into_iter().map(str::to_owned).collect();
            seen.dedup();
            assert_eq!(seen.join("\n"), expected, "{url} {version:?}");
        }
    }
}

#[tokio::test]
async fn the_host_scheme_and_trusted_proxies_are_settings() {
    let site = origin(mirror).await;
    for url in urls(&site) {
        let builder = Proxy::builder()
            .to(&url)
            .https(true)
            .origin_host(HeaderValue::from_static("app.internal"))
            .trusted_proxy("127.0.0.0/8".parse().unwrap());
        let front = Front::new(builder).await;
        for version in VERSIONS {
            let mut request = get(&front.url("/"));
            let headers = request.headers_mut();
            headers.insert("host", HeaderValue::from_static("public.example"));
            headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.7"));
            let response = soon(client(version).request(request)).await.unwrap();
            let seen = text(response.into_body()).await;
            for line in [
                "host: app.internal",
                "x-forwarded-for: 192.0.2.7, 127.0.0.1",
                "x-forwarded-proto: https",
                "x-forwarded-host: public.example",
            ] {
                assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
            }
        }
    }
}

#[tokio::test]
async fn a_response_keeps_its_fields_but_those_of_the_connection() {
    let answer = "HTTP/1.1 299 Fine\r\nConnection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Connection: close\r\nUpgrade: h2c\r\nServer: theirs\r\nSet-Cookie: a=b\r\n\
                  Set-Cookie: c=d\r\nContent-Length: 2\r\n\r\nok";
    let site = says(answer).await;
    let front = Front::to(&urls(&site)[0]).await;
    for version in VERSIONS {
        let response = soon(client(version).request(get(&front.url("/")))).await.unwrap();
        assert_eq!(response.status(), 299);
        let headers = response.headers();
        for name in [
            "connection",
            "x-secret",
            "keep-alive",
            "proxy-connection",
            "upgrade",
        ] {
            assert_eq!(headers.get(name), None, "{name} {version:?}");
        }
        assert_eq!(
            (&headers["server"], &headers["content-length"]),
            (
                &HeaderValue::from_static("theirs"),
                &HeaderValue::from_static("2")
            )
        );
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(text(response.into_body()).await, "ok");
    }
}

#[tokio::test]
async fn methods_that_are_for_the_proxy_itself_are_not_passed_on() {
    let site = origin(mirror).await;
    let front = Front::to(&urls(&site)[0]).await;
    for (request, status) in [
        (
            "CONNECT db.internal:5432 HTTP/1.1\r\nHost: db.internal:5432\r\nConnection: close\r\n\r\n",
            "405",
        ),
        ("TRACE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "405"),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n",
            "200",
        ),
    ] {
        let answer = front.raw(request.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
        assert!(!answer.contains("via: "), "{answer}");
    }
    let options = "OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 1\r\nConnection: close\r\n\r\n";
    let answer = front.raw(options.as_bytes()).await;
    assert!(
        answer.contains("OPTIONS *\n") && answer.contains("max-forwards: 0"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_proxy_that_leads_to_itself_answers_508() {
    let site = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = site.local_addr().unwrap();
    drop(site);
    let proxy = Proxy::to(&format!("http://{address}")).unwrap();
    let server = fullbore::Server::bind(address).await.unwrap();
    let serving = tokio::spawn(server.serve(proxy));
    let url = format!("http://{address}/");
    let response = soon(client(VERSIONS[1]).request(get(&url))).await.unwrap();
    assert_eq!(response.status(), 508);
    serving.abort();
}
