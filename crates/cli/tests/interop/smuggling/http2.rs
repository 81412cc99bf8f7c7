//! Requests of HTTP/2. The comments name where such a request was reported.
//!
//! In the tables each character is an octet: U+0080 to U+00FF are single ones.

use super::http1::{HIDDEN, latin1};
use super::{Case, Meant, Sent};

/// The kind of the requests that an application, or the version that it speaks, may not have.
const PERHAPS: &str = "passed or refused";

type Fields = &'static [(&'static str, &'static str)];

/// Fields behind the four pseudo-header fields of a POST to `/seen` whose body is [`HIDDEN`], 33 octets. All are refused.
const REFUSED_FIELDS: &[Fields] = &[
    &[("transfer-encoding", "chunked")],
    &[("transfer-encoding", "identity")],
    &[("transfer-encoding", "")],
    &[("transfer-encoding", "chunked"), ("content-length", "33")],
    &[("content-length", "0")],
    &[("content-length", "32")],
    &[("content-length", "34")],
    &[("content-length", "33"), ("content-length", "32")],
    &[("content-length", "33, 32")],
    &[("content-length", "+33")],
    &[("content-length", "-33")],
    &[("content-length", "0x21")],
    &[("content-length", "")],
    &[("content-length", "33 ")],
    &[("content-length", " 33")],
    &[("content-length", "33;")],
    &[("content-length", "18446744073709551649")],
    &[("connection", "close")],
    &[("connection", "content-length")],
    &[("connection", "x-a"), ("x-a", "1")],
    &[("keep-alive", "timeout=5")],
    &[("proxy-connection", "keep-alive")],
    &[("upgrade", "h2c")],
    &[("upgrade", "websocket")],
    &[("te", "chunked")],
    &[("te", "trailers, gzip")],
    &[("host", "other")],
    &[("host", "h"), ("host", "other")],
    &[("x-a", "a\r\nTransfer-Encoding: chunked")],
    &[("x-a", "a\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h")],
    &[("x-a", "a\nTransfer-Encoding: chunked")],
    &[("x-a", "a\rTransfer-Encoding: chunked")],
    &[("x-a", "a\0b")],
    &[("x-a", "a\u{1}b")],
    &[("x-a", "a\u{7f}b")],
    &[("x-a", "a\r\n")],
    &[("x-a\r\ntransfer-encoding: chunked\r\nx-b", "a")],
    &[("x-a: 1\r\nx-b", "a")],
    &[("x-a\n", "a")],
    &[("x a", "a")],
    &[("x-a ", "a")],
    &[(" x-a", "a")],
    &[("x-a:", "a")],
    &[("transfer-encoding:chunked", "")],
    &[("transfer-encoding ", "chunked")],
    &[("transfer-encoding\0", "chunked")],
    &[("X-A", "a")],
    &[("Transfer-Encoding", "chunked")],
    &[("x\0a", "a")],
    &[("x\u{80}a", "a")],
    &[("x\"a", "a")],
    // The decoders of HAProxy let it pass before CVE-2023-25725.
    &[("", "a")],
    &[(":", "a")],
    &[(":path", "/hidden")],
    &[(":method", "GET")],
    &[(":authority", "other")],
    &[("x-a", "1"), (":path", "/hidden")],
    &[(":status", "200")],
    &[(":x", "1")],
    &[(":protocol", "websocket")],
    &[("content-length", "33\r\nX-A: 1")],
    &[("expect", "100-continue\r\nX-A: 1")],
];

/// All pseudo-header fields of a request without a body. All are refused.
const REFUSED_PSEUDO: &[Fields] = &[
    &[(":scheme", "http"), (":authority", "h"), (":path", "/seen")],
    &[(":method", "GET"), (":authority", "h"), (":path", "/seen")],
    &[(":method", "GET"), (":scheme", "http"), (":authority", "h")],
    &[
        (":method", "GET"),
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/seen"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":scheme", "https"),
        (":authority", "h"),
        (":path", "/seen"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":authority", "h"),
        (":path", "/seen"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/seen"),
        (":path", "/seen"),
    ],
    &[
        ("x-a", "1"),
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/seen"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        ("x-a", "1"),
        (":path", "/seen"),
    ],
    &[
        (":Method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/seen"),
    ],
];

/// Pseudo-header fields that replace those of a GET of `/seen`. All are refused.
const REFUSED_VALUES: &[(&str, &str)] = &[
    (":method", ""),
    (":method", "GET /hidden HTTP/1.1\r\nX-A:"),
    (":method", "GET /hidden"),
    (":method", "GE T"),
    (":method", "G\0ET"),
    (":method", "GET\n"),
    (":method", "CONNECT"),
    (":method", "TRACE"),
    (":path", ""),
    (":path", "seen"),
    (":path", "*"),
    (":path", "/seen HTTP/1.1\r\nX-A: 1"),
    (":path", "/seen HTTP/1.1"),
    (":path", "/se en"),
    (":path", "/seen\r\n"),
    (":path", "/seen\n"),
    (":path", "/seen\t"),
    (":path", "/se\0en"),
    (":path", "/se\u{7f}en"),
    (":path", " /seen"),
    (":path", "http://other/seen"),
    (":path", "\\seen"),
    (":scheme", ""),
    (":scheme", "http://other/hidden?"),
    (":scheme", "ht tp"),
    (":scheme", "ftp"),
    (":scheme", "http\r\nX-A: 1"),
    // haproxy#2941.
    (":authority", "h/hidden"),
    (":authority", "h?a"),
    (":authority", "h#a"),
    (":authority", "u@h"),
    (":authority", "u:p@h"),
    (":authority", "h other"),
    (":authority", "h\r\nX-A: 1"),
    (":authority", "h\n"),
    (":authority", "h\0"),
    (":authority", "h, other"),
    (":authority", "h\\other"),
    (":authority", "h:port"),
    (":authority", "h:80:90"),
    (":authority", "h:65536"),
    (":authority", "[::1"),
    (":authority", "http://h"),
];

/// Trailers of a POST. All are refused.
const REFUSED_TRAILERS: &[Fields] = &[
    &[(":path", "/hidden")],
    &[(":status", "200")],
    &[("connection", "close")],
    &[("transfer-encoding", "chunked")],
    &[("X-A", "1")],
    &[("x-a", "a\r\nb")],
    &[("x a", "1")],
    &[("", "1")],
];

/// Fields behind the pseudo-header fields of a POST to `/seen` whose body is `hello`, and what it means.
const PASSED_FIELDS: &[(Fields, Meant)] = &[
    (&[], Meant::post("hello")),
    (&[("content-length", "5")], Meant::post("hello")),
    (&[("host", "h")], Meant::post("hello")),
    (
        &[("te", "trailers")],
        Meant::post("hello").has(&[("host", "h"), ("te", "trailers")]),
    ),
    (&[("x-a", "")], Meant::post("hello")),
    (
        &[("x-a", "1"), ("x-a", "2")],
        Meant::post("hello").has(&[("x-a", "1, 2")]),
    ),
    (&[("x-a", "a\tb")], Meant::post("hello").has(&[("x-a", "a\tb")])),
    (
        &[("cookie", "a=b"), ("cookie", "c=d")],
        Meant::post("hello").has(&[("cookie", "a=b; c=d")]),
    ),
    (&[("content_length", "0")], Meant::post("hello")),
    (&[("transfer_encoding", "chunked")], Meant::post("hello")),
    (
        &[("x-forwarded-for", "192.0.2.1"), ("x_forwarded_for", "192.0.2.1")],
        Meant::post("hello")
            .has(&[("x-forwarded-for", "127.0.0.1")])
            .lacks(&["x_forwarded_for"]),
    ),
    (
        &[
            ("x-forwarded-host", "other"),
            ("x-real-ip", "192.0.2.1"),
            ("forwarded", "host=other"),
        ],
        Meant::post("hello")
            .has(&[("x-forwarded-host", "h")])
            .lacks(&["x-real-ip"]),
    ),
    (
        &[("http2-settings", "AAMAAABkAAQAAP__")],
        Meant::post("hello").lacks(&["http2-settings"]),
    ),
    (
        &[("proxy-authorization", "Basic eDp5")],
        Meant::post("hello").lacks(&["proxy-authorization"]),
    ),
    (&[("expect", "100-continue")], Meant::post("hello")),
];

/// Pseudo-header fields of a request without a body, with what follows them, and what it means.
const PASSED_PSEUDO: &[(Fields, Meant)] = &[
    (
        &[
            (":path", "/seen"),
            (":authority", "h"),
            (":scheme", "http"),
            (":method", "GET"),
        ],
        Meant::get("/seen"),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/seen"),
            ("host", "h"),
        ],
        Meant::get("/seen"),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "h"),
            (":path", "/seen"),
        ],
        Meant::get("/seen").has(&[("x-forwarded-proto", "http")]),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "//other/seen"),
        ],
        Meant::get("//other/seen"),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/a/../seen"),
        ],
        Meant::get("/a/../seen"),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/seen%0d%0aX-A:1"),
        ],
        Meant::get("/seen%0d%0aX-A:1").lacks(&["x-a"]),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h:8080"),
            (":path", "/seen"),
        ],
        Meant::get("/seen").has(&[("host", "h:8080")]),
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/seen"),
            ("content-length", "0"),
        ],
        Meant::get("/seen"),
    ),
];

/// Trailers of a POST that are passed on or left out, and never become fields.
const PASSED_TRAILERS: &[(Fields, Fields)] = &[
    (&[("trailer", "x-a")], &[("x-a", "1")]),
    (&[], &[("content-length", "0")]),
    (&[("trailer", "host")], &[("host", "other")]),
    (
        &[("trailer", "authorization")],
        &[("authorization", "Basic eDp5")],
    ),
    (
        &[("trailer", "x-forwarded-for")],
        &[("x-forwarded-for", "192.0.2.1")],
    ),
];

/// All requests of this file.
pub(super) fn cases() -> Vec<Case> {
    let pseudo = |method| {
        [
            (":method", method),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/seen"),
        ]
    };
    let post = |fields: Fields| octets(pseudo("POST").iter().chain(fields));
    let mut cases = Vec::new();
    let mut add = |kind: &str, case: String, fields: Vec<_>, body: &str, trailers: Fields, meant| {
        cases.push(Case {
            name: format!("HTTP/2 {kind} {case}"),
            sent: Sent::Http2 {
                fields,
                body: latin1(body),
                trailers: octets(trailers),
            },
            meant,
            may_be_refused: kind == PERHAPS,
        });
    };
    for fields in REFUSED_FIELDS {
        add("fields", format!("{fields:?}"), post(fields), HIDDEN, &[], vec![]);
    }
    for fields in REFUSED_PSEUDO {
        add(
            "pseudo-header fields",
            format!("{fields:?}"),
            octets(*fields),
            "",
            &[],
            vec![],
        );
    }
    for &(name, value) in REFUSED_VALUES {
        let fields = pseudo("GET").map(|(own, before)| (own, if own == name { value } else { before }));
        add(
            "value",
            format!("{name}: {value:?}"),
            octets(&fields),
            "",
            &[],
            vec![],
        );
    }
    for trailers in REFUSED_TRAILERS {
        add(
            "trailers",
            format!("{trailers:?}"),
            post(&[]),
            "hello",
            trailers,
            vec![],
        );
    }
    let long = "a".repeat(400_000);
    for (name, fields) in [
        ("a long field", [&pseudo("GET")[..], &[("x-a", &long)]].concat()),
        (
            "a long path",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "h"),
                (":path", &long),
            ],
        ),
    ] {
        add("fields", name.to_owned(), octets(&fields), "", &[], vec![]);
    }
    let length = [&pseudo("GET")[..], &[("content-length", "5")]].concat();
    add(
        "fields",
        "a length without a body".to_owned(),
        octets(&length),
        "",
        &[],
        vec![],
    );
    for (fields, meant) in PASSED_FIELDS {
        add(
            "passed",
            format!("{fields:?}"),
            post(fields),
            "hello",
            &[],
            vec![*meant],
        );
    }
    for (fields, meant) in PASSED_PSEUDO {
        add(
            "passed",
            format!("{fields:?}"),
            octets(*fields),
            "",
            &[],
            vec![*meant],
        );
    }
    let announced = &[("trailer", "content-length")];
    add(
        PERHAPS,
        format!("{announced:?}"),
        post(announced),
        "hello",
        &[],
        vec![Meant::post("hello")],
    );
    let mut lower = pseudo("GET");
    lower[0].1 = "get";
    let meant = Meant {
        method: "get",
        ..Meant::get("/seen")
    };
    add(
        PERHAPS,
        format!("{lower:?}"),
        octets(&lower),
        "",
        &[],
        vec![meant],
    );
    for (fields, trailers) in PASSED_TRAILERS {
        let meant = Meant::post("hello").lacks(&["x-a", "authorization"]);
        add(
            "passed trailers",
            format!("{trailers:?}"),
            post(fields),
            "hello",
            trailers,
            vec![meant],
        );
    }
    cases
}

fn octets<'a>(fields: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let both = |(name, value): &(&str, &str)| (latin1(name), latin1(value));
    fields.into_iter().map(both).collect()
}
