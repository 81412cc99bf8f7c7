//! What errors say, and what they hide.

use super::*;

#[test]
fn a_chain_repeats_nothing_and_keeps_the_error_of_the_system() {
    let error = Error::io(io::Error::from_raw_os_error(104));
    assert_eq!(error.to_string(), "connection failed");
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(104));
    let error = Error::never_sent(&Error::connection_gone());
    let cause = error.source().expect("a cause").to_string();
    assert_eq!(cause, "connection closed: open another one");
    assert!(!error.to_string().contains(&cause), "{error}");
}

#[test]
fn the_error_of_a_request_is_the_same_behind_its_url() {
    let uri = "https://me:secret@one.example:444/a?key=secret"
        .parse()
        .expect("a URL");
    let plain = || Error::connect_timeout("TCP", Duration::from_secs(1));
    let error = plain().of_request(&uri);
    assert_eq!(error.url(), Some("https://one.example:444/a"));
    assert_eq!(
        error.to_string(),
        format!("https://one.example:444/a: {}", plain())
    );
    assert_eq!(error.without_url().to_string(), plain().to_string());
    assert_eq!((plain().url(), error.kind()), (None, ErrorKind::Timeout));
    assert!(error.is_connect() && error.is_timeout());
    let error = Error::io(io::Error::from_raw_os_error(104)).of_request(&uri);
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(104));
}

#[test]
fn what_is_shown_of_a_url_holds_no_secret() {
    let long = format!("http://h/{}", "x".repeat(1_000));
    for (url, expected) in [
        ("https://me:secret@h:1/a?secret#secret", "https://h:1/a"),
        ("https://me:sec@ret@h/a@b", "https://h/a@b"),
        ("https://me:sec/re?t@h h/", "https://…@h h/"),
        ("https://me@h h/secret@x", "https://…@x"),
        ("me:secret@h/a", "…@h/a"),
        ("https://h?secret", "https://h"),
        ("/a?secret@h", "/a"),
        ("http://h/\u{1b}[2J", "http://h/\u{fffd}[2J"),
        ("", ""),
        ("@", "…@"),
    ] {
        assert_eq!(shown(url), expected, "{url}");
    }
    assert!(shown(&long).len() < 310 && shown(&long).ends_with('…'));
}

#[test]
fn debug_data_of_a_goaway_is_escaped() {
    let frame = PeerGoAway {
        last_stream: 0,
        code: ErrorCode::ENHANCE_YOUR_CALM,
        debug: Bytes::from_static(b"\x1b[2J"),
    };
    let error = Error::from_go_away(&frame);
    assert!(
        error
            .to_string()
            .ends_with(r#"it sent GOAWAY with ENHANCE_YOUR_CALM and "\x1b[2J""#)
    );
    assert!(error.is_refused() && error.wants_pause());
}
