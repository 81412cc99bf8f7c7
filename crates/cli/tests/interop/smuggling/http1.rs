//! Requests of HTTP/1.1 and HTTP/1.0. The comments name where such a request was reported.
//!
//! In the tables each character is an octet: U+0080 to U+00FF are single ones.

use super::{Case, Meant, Sent};

/// What stands behind a request that is refused, and must not become one of its own.
pub(super) const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

/// Field lines behind `Host: h` of a POST to `/seen`, and its body. All are refused.
const REFUSED_LENGTHS: &[(&str, &str)] = &[
    ("Content-Length: 0\r\nContent-Length: 33", ""),
    ("Content-Length: 33\r\nContent-Length: 0", ""),
    ("Content-Length: 5\r\nX-A: 1\r\nContent-Length: 6", "hello"),
    ("Content-Length: 0, 33", ""),
    ("Content-Length: 5,", "hello"),
    ("Content-Length: ,5", "hello"),
    ("Content-Length: +5", "hello"),
    ("Content-Length: -5", ""),
    ("Content-Length: -0", ""),
    ("Content-Length: 0x5", "hello"),
    ("Content-Length: 5 5", "hello"),
    ("Content-Length: 5;", "hello"),
    ("Content-Length: 5.0", "hello"),
    ("Content-Length: 5e0", "hello"),
    ("Content-Length: 1_0", "hellohello"),
    ("Content-Length: \"5\"", "hello"),
    ("Content-Length: 18446744073709551621", "hello"),
    ("Content-Length: 340282366920938463463374607431768211461", "hello"),
    ("Content-Length: \u{b}5", "hello"),
    ("Content-Length: 5\u{c}", "hello"),
    ("Content-Length: 5\0", "hello"),
    ("Content-Length: \u{d9}\u{a5}", "hello"),
    // haproxy#2237: an empty one beside another.
    ("Content-Length:", ""),
    ("Content-Length: 33\r\nContent-Length:", ""),
    ("Content-Length:\r\nContent-Length: 33", ""),
    // tinyproxy#624.
    ("Content-Length : 33", ""),
    ("Content-Length\t: 33", ""),
    ("Content-Length\u{b}: 33", ""),
    ("Content-Length\0: 33", ""),
    // CVE-2024-27982 of Node: a length that is folded.
    (" Content-Length: 33", ""),
    ("\tContent-Length: 33", ""),
    ("Content-Length:\r\n 33", ""),
    ("Content-Length: 3\r\n 5", ""),
    ("X-A: 1\r\n Content-Length: 33", ""),
    ("X-A: 1\rContent-Length: 33", ""),
    ("X-A: 1\r\rContent-Length: 33", ""),
    ("X-A: 1\r\n\rContent-Length: 33", ""),
    // openlitespeed#392 and tinyproxy#609: both lengths.
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n"),
    ("Content-Length: 0\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Content-Length: 40\r\nTransfer-Encoding: identity", ""),
    ("Content-Length: 5\r\nTransfer-Encoding: xchunked", "0\r\n\r\n"),
    ("Content-Length: 5\r\nTransfer-Encoding:", "0\r\n\r\n"),
];

/// Values of `Transfer-Encoding`. All are refused.
const REFUSED_CODINGS: &[&str] = &[
    "xchunked",
    "chunkedx",
    "chunked-",
    "chun ked",
    "\"chunked\"",
    "'chunked'",
    "chunked;q=1",
    "chunked; a=b",
    "\u{b}chunked",
    "\u{c}chunked",
    "\u{a0}chunked",
    "\0chunked",
    "chunked\0",
    "chunked\u{b}",
    "chunked\u{ff}",
    // go#53188.
    "\rchunked",
    "chunked\r",
    // The sign of Kelvin, which is k in lower case.
    "chun\u{e2}\u{84}\u{aa}ed",
    "identity",
    "identity, chunked",
    "chunked, identity",
    "chunked, chunked",
    "gzip",
    "gzip, chunked",
    "chunked, gzip",
    "trailers, chunked",
    "cow",
    "",
    "chunked\r\nTransfer-Encoding: identity",
    "identity\r\nTransfer-Encoding: chunked",
    "chunked\r\nTransfer-Encoding: chunked",
    "chunked\r\nTransfer-Encoding: cow",
    "\r\n chunked",
    "chunked\r\n , identity",
];

/// Chunked bodies. All are refused.
const REFUSED_CHUNKS: &[&str] = &[
    "0x5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "5 5\r\nhello\r\n0\r\n\r\n",
    "5_\r\nhello\r\n0\r\n\r\n",
    "5,\r\nhello\r\n0\r\n\r\n",
    "g\r\nhello\r\n0\r\n\r\n",
    "\"5\"\r\nhello\r\n0\r\n\r\n",
    ";a\r\nhello\r\n0\r\n\r\n",
    "\r\nhello\r\n0\r\n\r\n",
    "5\0\r\nhello\r\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    // go#71988 and nginx#1016: a line feed alone ends the line of a size.
    "5\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    // CVE-2025-55315 of Kestrel, gunicorn#3327, fasthttp#1899, webrick#125: a line feed in an extension.
    "5;\nhello\r\n0\r\n\r\n",
    "5;a\nhello\r\n0\r\n\r\n",
    "2;\nxx\r\n23\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n\r\n0\r\n\r\n",
    "5;a\rb\r\nhello\r\n0\r\n\r\n",
    // netty#15522: what follows the octets of a chunk.
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r0\r\n\r\n",
    "5\r\nhelloXX0\r\n\r\n",
    "5\r\nhello!\r\n0\r\n\r\n",
    "5\r\nhello\r\n\r\n",
    "5\r\nhello\r\n0\n\n",
    "5\r\nhello\r\n0\r\n\n",
    // go#64517: an empty line in place of the last chunk.
    "\r\n\r\n",
    // zoxy#244: trailers that are no fields.
    "5\r\nhello\r\n0\r\nX-A : 1\r\n\r\n",
    "5\r\nhello\r\n0\r\nX A: 1\r\n\r\n",
    "5\r\nhello\r\n0\r\nX-A\r\n\r\n",
    "5\r\nhello\r\n0\r\n: 1\r\n\r\n",
    "5\r\nhello\r\n0\r\nX-A: a\0b\r\n\r\n",
    "5\r\nhello\r\n0\r\nX-A: a\rb\r\n\r\n",
];

/// Field lines behind `Host: h` of a GET. All are refused.
const REFUSED_FIELDS: &[&str] = &[
    "X-A: a\0b",
    "X-A: a\u{1}b",
    "X-A: a\u{b}b",
    "X-A: a\u{7f}b",
    "X-A: a\rb",
    "X-A: a\r\n b",
    "X-A:\r\n\tb",
    "X\0A: a",
    "X A: a",
    "X-A\t: a",
    "X(A): a",
    "X\u{80}A: a",
    "X,A: a",
    // CVE-2023-25725 of HAProxy: a field without a name.
    ": a",
    ":a",
    "X-A",
    "GET /hidden HTTP/1.1",
    "Host: h",
    "Host: other",
    "Host:",
    "Host : other",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    "Transfer-Encoding\0: chunked",
    "X-A: a\rTransfer-Encoding: chunked",
];

/// Values of the only `Host`. All are refused.
const REFUSED_HOSTS: &[&str] = &[
    "h, other", "h other", "h/hidden", "h?x", "h#x", "u@h", "u:p@h", "h\\other", "h:80:90", "h:port",
    "h:65536", "h:-1", "[::1", "::1]", "h\0", "h\u{7f}", "h\"", "h<", "http://h",
];

/// Request lines, with `Host: h`. All are refused.
const REFUSED_LINES: &[&str] = &[
    "GET /seen /hidden HTTP/1.1",
    "GET /seen?a b HTTP/1.1",
    "GET\t/seen HTTP/1.1",
    "GET  /seen HTTP/1.1",
    "GET /seen  HTTP/1.1",
    "GET /seen\tHTTP/1.1",
    " GET /seen HTTP/1.1",
    "GET /seen HTTP/1.1 x",
    "GET /se\0en HTTP/1.1",
    "GET /se\u{7f}en HTTP/1.1",
    "GET /se\ren HTTP/1.1",
    "GET /seen\u{b} HTTP/1.1",
    "GET seen HTTP/1.1",
    "GET * HTTP/1.1",
    "GET \\seen HTTP/1.1",
    "GET ?seen HTTP/1.1",
    "GET #seen HTTP/1.1",
    "GET h:80 HTTP/1.1",
    "GET http:/seen HTTP/1.1",
    "GET http:///seen HTTP/1.1",
    "GET http://u@h/seen HTTP/1.1",
    "GET http://h:80:90/seen HTTP/1.1",
    "GET http://h\\other/seen HTTP/1.1",
    "GET ftp://h/seen HTTP/1.1",
    "GET http://other/seen HTTP/1.1",
    "GET https://h:1/seen HTTP/1.1",
    "G\0ET /seen HTTP/1.1",
    "GE(T) /seen HTTP/1.1",
    "GET:/seen HTTP/1.1",
    "CONNECT h:80 HTTP/1.1",
    "CONNECT /seen HTTP/1.1",
    // llhttp#877: a line feed alone ends the line, and the version is not there.
    "GET /seen\nX-A: 1",
    "GET /seen",
    "GET /seen HTTP/0.9",
    "GET /seen HTTP/1.2",
    "GET /seen HTTP/2.0",
    "GET /seen HTTP/1.10",
    "GET /seen HTTP/11",
    "GET /seen http/1.1",
    "GET /seen HTTP/1.1\0",
    "GET /seen HTTP /1.1",
];

/// Whole requests that are refused, with what the case is.
const REFUSED: &[(&str, &str)] = &[
    ("HTTP/1.1 without a host", "GET /seen HTTP/1.1\r\n\r\n"),
    (
        "a space before the first field",
        "GET /seen HTTP/1.1\r\n Host: h\r\n\r\n",
    ),
    (
        "a field before the host is folded",
        "GET /seen HTTP/1.1\r\nX-A: 1\r\n Host: other\r\nHost: h\r\n\r\n",
    ),
    // httpwg/http-core#879.
    (
        "HTTP/1.0 with chunks",
        "POST /seen HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "HTTP/1.0 with chunks that are kept alive",
        "POST /seen HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "HTTP/1.0 with both lengths",
        "POST /seen HTTP/1.0\r\nHost: h\r\nContent-Length: 33\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
];

/// Field lines behind `Host: h` of a POST to `/seen`, its body, and what it means.
const PASSED_POSTS: &[(&str, &str, Meant)] = &[
    ("Content-Length: 5", "hello", Meant::post("hello")),
    ("content-length:5", "hello", Meant::post("hello")),
    ("Content-Length: \t 5", "hello", Meant::post("hello")),
    ("Content-Length: 5 \t", "hello", Meant::post("hello")),
    ("Content-Length: 0", "", Meant::post("")),
    (
        "Content-Length: 39",
        "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n\0",
        Meant::post("0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n\0"),
    ),
    ("Content_Length: 5", "", Meant::post("")),
    (
        "Transfer_Encoding: chunked\r\nContent-Length: 5",
        "0\r\n\r\n",
        Meant::post("0\r\n\r\n").lacks(&["transfer-encoding"]),
    ),
    (
        "X-Transfer-Encoding: chunked\r\nContent-Length: 5",
        "0\r\n\r\n",
        Meant::post("0\r\n\r\n").lacks(&["transfer-encoding"]),
    ),
    (
        "Transfer-Encoding: chunked",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "transfer-encoding:CHUNKED",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: \tchunked \t",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "A\r\nhellohello\r\n0\r\n\r\n",
        Meant::post("hellohello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "a\r\nhellohello\r\n000\r\n\r\n",
        Meant::post("hellohello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "00005\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "5;a=b;c\r\nhello\r\n0;d=\"e\"\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked",
        "26\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n\r\n0\r\n\r\n",
        Meant::post("0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"),
    ),
    ("Transfer-Encoding: chunked", "0\r\n\r\n", Meant::post("")),
    // Section 2.2: a line feed alone may end a line of a head. The application gets CR LF.
    (
        "X-A: 1\nContent-Length: 5",
        "hello",
        Meant::post("hello").has(&[("x-a", "1")]),
    ),
    // Extensions are not passed on.
    (
        "Transfer-Encoding: chunked",
        "5;a\0\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    // Trailers never become fields.
    (
        "Transfer-Encoding: chunked\r\nTrailer: host",
        "5\r\nhello\r\n0\r\nHost: other\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked\r\nTrailer: connection",
        "5\r\nhello\r\n0\r\nConnection: close\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked\r\nTrailer: x-forwarded-for",
        "5\r\nhello\r\n0\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Transfer-Encoding: chunked\r\nTrailer: authorization",
        "5\r\nhello\r\n0\r\nAuthorization: Basic eDp5\r\n\r\n",
        Meant::post("hello").lacks(&["authorization"]),
    ),
    (
        "Transfer-Encoding: chunked\r\nTrailer: x-a",
        "5\r\nhello\r\n0\r\nX-A: 1\r\n\r\n",
        Meant::post("hello").lacks(&["x-a"]),
    ),
    // What `Connection` names.
    (
        "Connection: content-length\r\nContent-Length: 5",
        "hello",
        Meant::post("hello"),
    ),
    (
        "Connection: close, Content-Length\r\nContent-Length: 5",
        "hello",
        Meant::post("hello"),
    ),
    (
        "Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "Connection: content-type\r\nContent-Type: a/b\r\nContent-Length: 5",
        "hello",
        Meant::post("hello").lacks(&["content-type"]),
    ),
    // An upgrade with a body is no upgrade.
    (
        "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: 5",
        "hello",
        Meant::post("hello").lacks(&["upgrade"]),
    ),
    (
        "Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello").lacks(&["upgrade"]),
    ),
    (
        "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 5",
        "hello",
        Meant::post("hello").lacks(&["upgrade", "http2-settings"]),
    ),
    // trafficserver#12081 and others: the body is on its way before 100 (Continue).
    (
        "Expect: 100-continue\r\nContent-Length: 5",
        "hello",
        Meant::post("hello"),
    ),
    (
        "Expect: 100-Continue\r\nTransfer-Encoding: chunked",
        "5\r\nhello\r\n0\r\n\r\n",
        Meant::post("hello"),
    ),
    ("Expect: 100-continue\r\nContent-Length: 0", "", Meant::post("")),
];

/// Field lines behind `Host: h` of a GET of `/seen`, and what it means.
const PASSED_GETS: &[(&str, Meant)] = &[
    ("X-A:", Meant::get("/seen")),
    (
        "X-A: a\tb",
        Meant::get("/seen").has(&[("host", "h"), ("x-a", "a\tb")]),
    ),
    (
        "X-A: 1\r\nX-A: 2",
        Meant::get("/seen").has(&[("host", "h"), ("x-a", "1, 2")]),
    ),
    ("x-a: 1", Meant::get("/seen").has(&[("x-a", "1")])),
    ("Connection: host", Meant::get("/seen")),
    ("Connection: Host, close", Meant::get("/seen")),
    (
        "Connection: authorization\r\nAuthorization: Basic eDp5",
        Meant::get("/seen").lacks(&["authorization"]),
    ),
    (
        "Connection: cookie\r\nCookie: a=b",
        Meant::get("/seen").lacks(&["cookie"]),
    ),
    (
        "Connection: x-a,, X-B ,\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3",
        Meant::get("/seen").has(&[("x-c", "3")]).lacks(&["x-a", "x-b"]),
    ),
    (
        "Connection: close\r\nConnection: x-a\r\nX-A: 1",
        Meant::get("/seen").lacks(&["x-a"]),
    ),
    // The proxy's own fields are not for the client to remove.
    (
        "Connection: x-forwarded-for, x-forwarded-proto, x-forwarded-host, forwarded, via",
        Meant::get("/seen").has(&[
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "h"),
            ("via", "1.1 fullbore"),
        ]),
    ),
    (
        "X-Forwarded-For: 192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\nForwarded: for=192.0.2.1",
        Meant::get("/seen")
            .has(&[("x-forwarded-for", "127.0.0.1")])
            .lacks(&["x-real-ip"]),
    ),
    (
        "X-Forwarded-Host: other\r\nX-Forwarded-Proto: https",
        Meant::get("/seen").has(&[("x-forwarded-host", "h"), ("x-forwarded-proto", "http")]),
    ),
    (
        "X_Forwarded_For: 192.0.2.1",
        Meant::get("/seen")
            .has(&[("x-forwarded-for", "127.0.0.1")])
            .lacks(&["x_forwarded_for"]),
    ),
    (
        "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive",
        Meant::get("/seen").lacks(&["keep-alive", "proxy-connection"]),
    ),
    ("TE: trailers", Meant::get("/seen").has(&[("te", "trailers")])),
    ("TE: chunked", Meant::get("/seen").lacks(&["te"])),
    (
        "TE: gzip;q=1, trailers",
        Meant::get("/seen").has(&[("te", "trailers")]),
    ),
    (
        "Connection: te\r\nTE: chunked\r\nTransfer-Encoding-X: chunked",
        Meant::get("/seen").lacks(&["te", "transfer-encoding"]),
    ),
    (
        "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        Meant::get("/seen").lacks(&["upgrade", "http2-settings"]),
    ),
    ("Upgrade: websocket", Meant::get("/seen").lacks(&["upgrade"])),
    ("Content-Length: 0", Meant::get("/seen")),
];

/// Whole requests, and what each means.
const PASSED: &[(&str, Meant)] = &[
    (
        "\r\n\r\nGET /seen HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("/seen"),
    ),
    ("GET /seen HTTP/1.1\r\nHost: \t h \r\n\r\n", Meant::get("/seen")),
    (
        "GET /seen HTTP/1.1\r\nHost: h:8080\r\n\r\n",
        Meant::get("/seen").has(&[("host", "h:8080")]),
    ),
    (
        "GET /seen HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        Meant::get("/seen").has(&[("host", "[::1]:80")]),
    ),
    (
        "GET http://h/seen HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("/seen"),
    ),
    ("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", Meant::get("/")),
    ("GET http://h?a HTTP/1.1\r\nHost: h\r\n\r\n", Meant::get("/?a")),
    // No part of a target is interpreted.
    (
        "GET //other/seen HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("//other/seen"),
    ),
    (
        "GET /a/../seen HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("/a/../seen"),
    ),
    (
        "GET /seen%0d%0aHost:%20other HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("/seen%0d%0aHost:%20other"),
    ),
    (
        "GET /seen?a;b&c=%00#x HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant::get("/seen?a;b&c=%00"),
    ),
    ("GET /seen HTTP/1.0\r\nHost: h\r\n\r\n", Meant::get("/seen")),
    (
        "GET /seen HTTP/1.0\r\nConnection: keep-alive\r\nHost: h\r\n\r\n",
        Meant::get("/seen"),
    ),
    (
        "POST /seen HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        Meant::post("hello"),
    ),
    (
        "GET /seen HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        Meant {
            method: "GET",
            ..Meant::post("hello")
        },
    ),
];

/// Whole requests, and what each means: but an application, or a version of HTTP, may have no such request, and then it is 400.
const PASSED_OR_REFUSED: &[(&str, Meant)] = &[
    ("GET /seen HTTP/1.0\r\n\r\n", Meant::get("/seen").has(&[])),
    (
        "get /seen HTTP/1.1\r\nHost: h\r\n\r\n",
        Meant {
            method: "get",
            ..Meant::get("/seen")
        },
    ),
    (
        "POST /seen HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: content-length\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 0\r\n\r\n",
        Meant::post("hello"),
    ),
    (
        "POST /seen HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: transfer-encoding\r\n\r\n5\r\nhello\r\n0\r\nTransfer-Encoding: identity\r\n\r\n",
        Meant::post("hello"),
    ),
];

/// All requests of this file.
pub(super) fn cases() -> Vec<Case> {
    let with_host =
        |line: &str, fields: &str, body: &str| format!("{line}\r\nHost: h\r\n{fields}\r\n\r\n{body}");
    let post = |fields: &str, body: &str| with_host("POST /seen HTTP/1.1", fields, body);
    let mut cases = Vec::new();
    let mut refused = |kind: &str, case: &str, octets: String| {
        cases.push(Case {
            name: format!("{kind} {case:?}"),
            sent: Sent::Http1(latin1(&(octets + HIDDEN))),
            meant: Vec::new(),
            may_be_refused: false,
        });
    };
    for (fields, body) in REFUSED_LENGTHS {
        refused("length", fields, post(fields, body));
    }
    for coding in REFUSED_CODINGS {
        let fields = format!("Transfer-Encoding: {coding}");
        refused("coding", coding, post(&fields, "0\r\n\r\n"));
    }
    for chunks in REFUSED_CHUNKS {
        refused("chunks", chunks, post("Transfer-Encoding: chunked", chunks));
    }
    // An extension that never ends.
    let chunks = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(100_000));
    refused(
        "chunks",
        "a long extension",
        post("Transfer-Encoding: chunked", &chunks),
    );
    for fields in REFUSED_FIELDS {
        refused("field", fields, with_host("GET /seen HTTP/1.1", fields, ""));
    }
    let long = format!("X-A: {}", "a".repeat(400_000));
    refused("field", "a long one", with_host("GET /seen HTTP/1.1", &long, ""));
    refused(
        "field",
        "many",
        with_host("GET /seen HTTP/1.1", &["X-A: 1"; 1_000].join("\r\n"), ""),
    );
    for host in REFUSED_HOSTS {
        refused(
            "host",
            host,
            format!("GET /seen HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
    }
    for line in REFUSED_LINES {
        refused("line", line, format!("{line}\r\nHost: h\r\n\r\n"));
    }
    let long = format!("GET /seen{} HTTP/1.1", "a".repeat(400_000));
    refused("line", "a long one", format!("{long}\r\nHost: h\r\n\r\n"));
    for (name, octets) in REFUSED {
        refused("request", name, (*octets).to_owned());
    }
    let mut passed = |octets: &str, meant: &Meant, may_be_refused: bool| {
        cases.push(Case {
            name: format!("passed {octets:?}"),
            sent: Sent::Http1(latin1(octets)),
            meant: vec![*meant],
            may_be_refused,
        });
    };
    for (fields, body, meant) in PASSED_POSTS {
        passed(&post(fields, body), meant, false);
    }
    for (fields, meant) in PASSED_GETS {
        passed(&with_host("GET /seen HTTP/1.1", fields, ""), meant, false);
    }
    for (octets, meant) in PASSED {
        passed(octets, meant, false);
    }
    for (octets, meant) in PASSED_OR_REFUSED {
        passed(octets, meant, true);
    }
    cases
}

/// Each character as an octet.
pub(super) fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|octet| octet as u8).collect()
}
