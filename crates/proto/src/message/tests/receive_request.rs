//! Requests as they are received (RFC 9113 sections 8.3.1 and 8.5, RFC 8441 section 4).

use super::*;
use http::{Method, Version};

/// A GET request without the line of this name.
fn get_without(name: &str) -> Result<http::Request<()>, Malformed> {
    let lines: Vec<_> = GET.into_iter().filter(|line| line.0 != name).collect();
    request(&lines)
}

/// A GET request with this value for this pseudo-header.
fn get_but(name: &str, value: &str) -> Result<http::Request<()>, Malformed> {
    let lines: Vec<_> = GET
        .into_iter()
        .map(|line| if line.0 == name { (line.0, value) } else { line })
        .collect();
    request(&lines)
}

#[test]
fn a_request_has_method_uri_version_and_fields() {
    let request = get_with(&[("accept", "*/*"), ("x-a", "1")]).unwrap();
    assert_eq!(request.method(), Method::GET);
    assert_eq!(request.uri(), "https://example.com/a?b=c");
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.headers().len(), 2);
    assert_eq!(request.headers()["accept"], "*/*");
}

#[test]
fn the_order_of_pseudo_headers_does_not_matter() {
    let lines: Vec<_> = GET.into_iter().rev().collect();
    assert_eq!(request(&lines).unwrap().uri(), "https://example.com/a?b=c");
}

#[test]
fn a_request_must_have_method_scheme_and_path() {
    assert_eq!(get_without(":method").unwrap_err(), Malformed::MissingMethod);
    assert_eq!(get_without(":scheme").unwrap_err(), Malformed::MissingScheme);
    assert_eq!(get_without(":path").unwrap_err(), Malformed::MissingPath);
    assert_eq!(request(&[]).unwrap_err(), Malformed::MissingMethod);
}

#[test]
fn a_pseudo_header_must_not_be_repeated() {
    for line in GET {
        assert_eq!(
            request(&[&[line], &GET[..]].concat()).unwrap_err(),
            Malformed::RepeatedPseudoHeader,
            "{line:?}"
        );
    }
}

#[test]
fn a_pseudo_header_must_not_follow_a_field() {
    let lines = [GET[0], GET[1], GET[2], ("a", "b"), GET[3]];
    assert_eq!(request(&lines).unwrap_err(), Malformed::PseudoHeaderAfterField);
    let lines = [GET[0], GET[1], ("cookie", "b"), GET[2], GET[3]];
    assert_eq!(request(&lines).unwrap_err(), Malformed::PseudoHeaderAfterField);
}

#[test]
fn a_response_pseudo_header_must_not_be_in_a_request() {
    assert_eq!(
        request(&[&[(":status", "200")], &GET[..]].concat()).unwrap_err(),
        Malformed::MisplacedPseudoHeader
    );
}

#[test]
fn the_path_must_not_be_empty() {
    assert_eq!(get_but(":path", "").unwrap_err(), Malformed::EmptyPath);
}

#[test]
fn the_path_must_be_absolute() {
    for path in [
        "a",
        "?a",
        "https://example.com/",
        "*",
        "/a b",
        "/a#b",
        "#",
        "#a",
        "/\0",
        "/a\r\nb: c",
    ] {
        assert_eq!(get_but(":path", path).unwrap_err(), Malformed::Path, "{path}");
    }
}

#[test]
fn a_path_with_octets_that_are_to_be_encoded_is_encoded() {
    for (path, encoded) in [
        ("/a?q=\"<>\"", "/a?q=%22%3C%3E%22"),
        ("/<b>`", "/%3Cb%3E%60"),
        ("/é<", "/%C3%A9%3C"),
        // These are taken as they are.
        ("/{|}^[]'?{|}^[]'`", "/{|}^[]'?{|}^[]'`"),
        ("/é", "/é"),
        ("/%3cb%3E", "/%3cb%3E"),
    ] {
        let request = get_but(":path", path).unwrap();
        assert_eq!(
            request.uri().path_and_query().unwrap().as_str(),
            encoded,
            "{path}"
        );
    }
    let longest = format!("/{}<", "a".repeat(7_998));
    assert!(get_but(":path", &longest).is_ok());
    assert_eq!(get_but(":path", &(longest + "a")).unwrap_err(), Malformed::Path);
    for path in ["<", "/<#", "/< ", "/<\u{7f}"] {
        assert_eq!(get_but(":path", path).unwrap_err(), Malformed::Path, "{path}");
    }
}

#[test]
fn the_paths_of_the_static_table_are_paths() {
    for (index, path) in [(0x84, "/"), (0x85, "/index.html")] {
        let mut section = FieldSection::new();
        let limits = crate::hpack::FieldLimits {
            max_bytes: 1000,
            max_fields: 10,
        };
        let block = [0x82, 0x87, 0x41, 0x01, b'a', index];
        crate::hpack::Decoder::new(4096)
            .decode(&block, &limits, &mut section)
            .unwrap();
        assert_eq!(receive_request(&mut section, false).unwrap().uri().path(), path);
    }
}

#[test]
fn options_may_concern_the_server_itself() {
    let lines = [(":method", "OPTIONS"), GET[1], GET[2], (":path", "*")];
    let request = request(&lines).unwrap();
    assert_eq!(request.uri().path(), "*");
    assert_eq!(request.uri().authority().unwrap(), "example.com");
}

#[test]
fn the_method_must_be_a_token() {
    for method in ["", "GE T", "G\0T", "(GET)"] {
        assert_eq!(get_but(":method", method).unwrap_err(), Malformed::Method);
    }
    assert_eq!(get_but(":method", "PURGE").unwrap().method().as_str(), "PURGE");
}

#[test]
fn the_scheme_must_be_one() {
    for scheme in ["", "1http", "ht tp", "http:"] {
        assert_eq!(
            get_but(":scheme", scheme).unwrap_err(),
            Malformed::Scheme,
            "{scheme}"
        );
    }
    assert_eq!(
        get_but(":scheme", "coap").unwrap().uri().scheme_str(),
        Some("coap")
    );
}

#[test]
fn the_authority_must_be_one() {
    for authority in ["", "a b", "a/b", "a:b:c", "[::1", " a", "a\r\n"] {
        assert_eq!(
            get_but(":authority", authority).unwrap_err(),
            Malformed::Authority,
            "{authority}"
        );
    }
    assert_eq!(
        get_but(":authority", "[::1]:8080").unwrap().uri().port_u16(),
        Some(8080)
    );
}

#[test]
fn the_authority_must_not_hold_userinfo() {
    assert_eq!(
        get_but(":authority", "user@example.com").unwrap_err(),
        Malformed::UserInfo
    );
    assert_eq!(
        get_but(":authority", "user:secret@example.com").unwrap_err(),
        Malformed::UserInfo
    );
    let lines = [GET[0], GET[1], GET[3], ("host", "user@example.com")];
    assert_eq!(request(&lines).unwrap_err(), Malformed::UserInfo);
    for (scheme, refused) in [("http", true), ("https", true), ("coap", false)] {
        let scheme = (":scheme", scheme);
        let authority = (":authority", "user@example.com");
        let lines = GET.map(|line| {
            [scheme, authority]
                .into_iter()
                .find(|new| new.0 == line.0)
                .unwrap_or(line)
        });
        assert_eq!(request(&lines).is_err(), refused, "{scheme:?}");
    }
}

#[test]
fn host_stands_in_for_an_absent_authority() {
    let lines = [GET[0], GET[1], GET[3], ("host", "example.org:8443")];
    let request = request(&lines).unwrap();
    assert_eq!(request.uri(), "https://example.org:8443/a?b=c");
    assert_eq!(request.headers()["host"], "example.org:8443");
}

#[test]
fn a_host_that_is_no_authority_is_refused() {
    for host in ["", "a b", "a/b"] {
        let lines = [GET[0], GET[1], GET[3], ("host", host)];
        assert_eq!(request(&lines).unwrap_err(), Malformed::Authority, "{host}");
    }
}

#[test]
fn a_request_without_any_authority_has_a_path_alone() {
    let request = get_without(":authority").unwrap();
    assert_eq!(request.uri(), "/a?b=c");
    assert_eq!(request.uri().authority(), None);
}

#[test]
fn host_must_agree_with_the_authority() {
    for host in ["example.com", "EXAMPLE.com", "example.com:443"] {
        assert!(get_with(&[("host", host)]).is_ok(), "{host}");
    }
    for host in ["example.org", "example.com:80", "www.example.com", "", "a b"] {
        assert_eq!(
            get_with(&[("host", host)]).unwrap_err(),
            Malformed::Host,
            "{host}"
        );
    }
}

#[test]
fn host_must_not_be_repeated() {
    let lines = [("host", "example.com"), ("host", "example.com")];
    assert_eq!(get_with(&lines).unwrap_err(), Malformed::Host);
}

#[test]
fn cookie_crumbs_become_one_field() {
    let lines = [
        ("cookie", "a=b"),
        ("x", "y"),
        ("cookie", "c=d"),
        ("cookie", "e=f"),
    ];
    let request = get_with(&lines).unwrap();
    let cookies: Vec<_> = request.headers().get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=b; c=d; e=f"]);
    assert_eq!(get_with(&[("cookie", "a=b")]).unwrap().headers()["cookie"], "a=b");
}

#[test]
fn a_cookie_with_a_sensitive_crumb_is_sensitive() {
    for secret in 0..3 {
        let mut section = section(&GET);
        for crumb in 0..3 {
            let mut field = Field::parse(b"cookie", b"a=b");
            field.never_indexed = crumb == secret;
            section.push(field);
        }
        let request = receive_request(&mut section, false).unwrap();
        assert!(request.headers()["cookie"].is_sensitive());
    }
}

#[test]
fn connect_has_an_authority_alone() {
    let request = request(&[(":method", "CONNECT"), (":authority", "example.com:443")]).unwrap();
    assert_eq!(request.uri(), "example.com:443");
    assert_eq!(request.uri().scheme(), None);
    assert_eq!(request.uri().path_and_query(), None);
}

#[test]
fn connect_must_have_an_authority() {
    assert_eq!(
        request(&[(":method", "CONNECT")]).unwrap_err(),
        Malformed::ConnectWithoutAuthority
    );
    let lines = [(":method", "CONNECT"), ("host", "example.com:443")];
    assert_eq!(request(&lines).unwrap_err(), Malformed::ConnectWithoutAuthority);
}

#[test]
fn connect_must_not_have_a_scheme_or_a_path() {
    for line in [(":scheme", "https"), (":path", "/")] {
        let lines = [(":method", "CONNECT"), (":authority", "example.com:443"), line];
        assert_eq!(request(&lines).unwrap_err(), Malformed::ConnectWithSchemeOrPath);
    }
}

const EXTENDED: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    GET[1],
    GET[2],
    (":path", "/chat"),
];

#[test]
fn extended_connect_has_a_protocol_and_a_whole_uri() {
    let request = request(&EXTENDED).unwrap();
    assert_eq!(
        request.extensions().get::<Protocol>(),
        Some(&Protocol::from_static("websocket"))
    );
    assert_eq!(request.uri(), "https://example.com/chat");
    assert_eq!(request.method(), Method::CONNECT);
}

#[test]
fn extended_connect_must_have_scheme_path_and_authority() {
    for (missing, reason) in [
        (2, Malformed::MissingScheme),
        (3, Malformed::ConnectWithoutAuthority),
        (4, Malformed::MissingPath),
    ] {
        let mut lines = EXTENDED.to_vec();
        lines.remove(missing);
        assert_eq!(request(&lines).unwrap_err(), reason);
    }
}

#[test]
fn extended_connect_must_have_been_allowed() {
    let error = receive_request(&mut section(&EXTENDED), false).unwrap_err();
    assert_eq!(error, Malformed::ProtocolNotAllowed);
}

#[test]
fn a_protocol_needs_connect_and_a_token() {
    let lines = [&[(":protocol", "websocket")], &GET[..]].concat();
    assert_eq!(request(&lines).unwrap_err(), Malformed::ProtocolWithoutConnect);
    let mut lines = EXTENDED;
    lines[1].1 = "web socket";
    assert_eq!(request(&lines).unwrap_err(), Malformed::Protocol);
}

#[test]
fn a_map_has_room_for_the_fields_and_none_for_pseudo_headers() {
    // A map for six fields has room for six, and one for seven has room for twelve.
    let fields = [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4"),
        ("e", "5"),
        ("f", "6"),
    ];
    assert_eq!(get_with(&fields).unwrap().headers().capacity(), 6);
    let response = response(&[&[(":status", "200")], &fields[..]].concat()).unwrap();
    assert_eq!(response.headers().capacity(), 6);
    assert_eq!(get_with(&[]).unwrap().headers().capacity(), 0);
}
