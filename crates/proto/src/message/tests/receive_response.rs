//! Responses as they are received (RFC 9113 sections 8.3.2 and 8.6).

use super::*;
use http::Version;

#[test]
fn a_response_has_status_version_and_fields() {
    let response = response(&[
        (":status", "404"),
        ("server", "x"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
    ])
    .unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.headers().len(), 3);
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
}

#[test]
fn a_response_must_have_a_status() {
    assert_eq!(response(&[]).unwrap_err(), Malformed::MissingStatus);
    assert_eq!(
        response(&[("server", "x")]).unwrap_err(),
        Malformed::MissingStatus
    );
}

#[test]
fn a_status_is_three_digits_from_100_on() {
    for status in ["", "20", "2000", "099", "abc", "+20", "2 0", "000"] {
        assert_eq!(
            response(&[(":status", status)]).unwrap_err(),
            Malformed::Status,
            "{status}"
        );
    }
    assert_eq!(response(&[(":status", "999")]).unwrap().status(), 999);
    assert_eq!(response(&[(":status", "103")]).unwrap().status(), 103);
}

#[test]
fn switching_protocols_does_not_exist() {
    assert_eq!(
        response(&[(":status", "101")]).unwrap_err(),
        Malformed::SwitchingProtocols
    );
}

#[test]
fn a_status_must_not_be_repeated_or_follow_a_field() {
    assert_eq!(
        response(&[(":status", "200"), (":status", "200")]).unwrap_err(),
        Malformed::RepeatedPseudoHeader
    );
    assert_eq!(
        response(&[("a", "b"), (":status", "200")]).unwrap_err(),
        Malformed::PseudoHeaderAfterField
    );
}

#[test]
fn a_request_pseudo_header_must_not_be_in_a_response() {
    for name in [":method", ":scheme", ":authority", ":path", ":protocol"] {
        let lines = [(":status", "200"), (name, "x")];
        assert_eq!(response(&lines).unwrap_err(), Malformed::MisplacedPseudoHeader);
    }
}

#[test]
fn host_and_cookie_mean_nothing_in_responses_and_trailers() {
    let lines = [("cookie", "a"), ("host", "b"), ("cookie", "c"), ("host", "d")];
    let response = response(&[&[(":status", "200")], &lines[..]].concat()).unwrap();
    for fields in [response.headers(), &trailers(&lines).unwrap()] {
        let all: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            all,
            [("cookie", "a"), ("cookie", "c"), ("host", "b"), ("host", "d")]
        );
    }
}
