//! Rules on fields, which hold for requests, responses and trailers alike (RFC 9113 sections 8.2 and 8.3).

use super::*;

/// Asserts that a line is refused wherever it stands.
#[track_caller]
fn refused(line: (&str, &str), reason: Malformed) {
    assert_eq!(get_with(&[line]).unwrap_err(), reason, "request: {line:?}");
    assert_eq!(
        response(&[(":status", "200"), line]).unwrap_err(),
        reason,
        "response: {line:?}"
    );
    assert_eq!(trailers(&[line]).unwrap_err(), reason, "trailers: {line:?}");
}

#[test]
fn a_field_name_must_be_lower_case() {
    refused(("X-Test", "1"), Malformed::FieldName);
    refused(("x-Test", "1"), Malformed::FieldName);
}

#[test]
fn a_field_name_must_be_a_token() {
    for name in ["", "a b", "a:b", "a\0", "a\u{e9}", "a\r\n", "a/b"] {
        refused((name, "1"), Malformed::FieldName);
    }
}

#[test]
fn a_field_value_must_not_hold_control_characters() {
    for value in ["a\0b", "a\rb", "a\nb", "a\r\nx: y", "\u{1}", "a\u{7f}"] {
        refused(("x", value), Malformed::FieldValue);
    }
}

#[test]
fn a_field_value_of_a_request_must_not_begin_or_end_with_white_space() {
    for value in [" a", "a ", "\ta", "a\t", " ", "\t"] {
        assert_eq!(get_with(&[("x", value)]).unwrap_err(), Malformed::FieldValue);
        let of_request = receive_trailers(&mut section(&[("x", value)]), Role::Server);
        assert_eq!(of_request.unwrap_err(), Malformed::FieldValue);
    }
}

#[test]
fn white_space_at_the_ends_of_a_field_value_of_a_response_is_left_out() {
    for (value, meant) in [
        (" a", "a"),
        ("a ", "a"),
        ("\t a b \t", "a b"),
        (" ", ""),
        ("\t", ""),
    ] {
        let response = response(&[(":status", "200"), ("x", value)]).unwrap();
        assert_eq!(response.headers()["x"], meant);
        assert_eq!(trailers(&[("x", value)]).unwrap()["x"], meant);
    }
    // Nothing else is.
    for value in ["\u{b}a", "a\r", "a\u{a0}\n", " \0 ", "a\u{c} "] {
        refused(("x", value), Malformed::FieldValue);
    }
    let length = response(&[(":status", "200"), ("content-length", " 5\t")]).unwrap();
    assert_eq!(received_length(length.headers()), Ok(Some(5)));
    // A pseudo-header is no field, and a connection-specific field stays one.
    assert_eq!(response(&[(":status", "200 ")]).unwrap_err(), Malformed::Status);
    let framed = response(&[(":status", "200"), ("transfer-encoding", " chunked ")]);
    assert_eq!(framed.unwrap_err(), Malformed::ConnectionSpecificField);
}

#[test]
fn a_field_value_may_hold_white_space_within_and_octets_past_ascii() {
    let fields = trailers(&[("x", "a b\tc"), ("y", "caf\u{e9}"), ("z", "")]).unwrap();
    assert_eq!(fields["x"], "a b\tc");
    assert_eq!(fields["y"].as_bytes(), "caf\u{e9}".as_bytes());
    assert_eq!(fields["z"], "");
}

#[test]
fn a_connection_specific_field_is_refused() {
    for name in [
        "connection",
        "proxy-connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ] {
        refused((name, "x"), Malformed::ConnectionSpecificField);
    }
}

#[test]
fn te_must_not_say_more_than_trailers() {
    for value in ["gzip", "trailers, gzip", "trailers;q=1", ""] {
        refused(("te", value), Malformed::Te);
    }
    assert_eq!(
        get_with(&[("te", "trailers")]).unwrap().headers()["te"],
        "trailers"
    );
}

#[test]
fn an_unknown_pseudo_header_is_refused() {
    for name in [":test", ":", ":Method", ":host"] {
        let line = (name, "1");
        assert_eq!(
            request(&[&[line], &GET[..]].concat()).unwrap_err(),
            Malformed::UnknownPseudoHeader
        );
        assert_eq!(
            response(&[line, (":status", "200")]).unwrap_err(),
            Malformed::UnknownPseudoHeader
        );
        assert_eq!(trailers(&[line]).unwrap_err(), Malformed::PseudoHeaderInTrailers);
    }
}

#[test]
fn a_pseudo_header_must_not_be_in_trailers() {
    for line in [
        (":method", "GET"),
        (":status", "200"),
        (":path", "/"),
        (":protocol", "x"),
    ] {
        assert_eq!(
            trailers(&[("a", "b"), line]).unwrap_err(),
            Malformed::PseudoHeaderInTrailers
        );
        assert_eq!(trailers(&[line]).unwrap_err(), Malformed::PseudoHeaderInTrailers);
    }
}

#[test]
fn a_never_indexed_field_is_sensitive() {
    let mut section = section(&[("a", "1"), ("b", "2")]);
    let mut secret = Field::parse(b"c", b"3");
    secret.never_indexed = true;
    section.push(secret);
    let fields = receive_trailers(&mut section, Role::Server).unwrap();
    assert!(!fields["a"].is_sensitive());
    assert!(fields["c"].is_sensitive());
}

#[test]
fn repeated_fields_keep_their_order() {
    let fields = trailers(&[
        ("a", "1"),
        ("b", "2"),
        ("a", "3"),
        ("cookie", "x"),
        ("cookie", "y"),
    ])
    .unwrap();
    let values: Vec<_> = fields.get_all("a").iter().collect();
    assert_eq!(values, ["1", "3"]);
    assert_eq!(fields.get_all("cookie").iter().count(), 2);
}

#[test]
fn more_fields_than_a_map_holds_are_refused() {
    let names: Vec<String> = (0..40_000).map(|number| format!("x{number}")).collect();
    let lines: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(trailers(&lines).unwrap_err(), Malformed::TooManyFields);
}

fn length(values: &[&'static str]) -> Result<Option<u64>, Malformed> {
    let mut headers = http::HeaderMap::new();
    for value in values {
        headers.append("content-length", http::HeaderValue::from_static(value));
    }
    received_length(&headers)
}

#[test]
fn content_length_is_one_number_however_often_it_is_said() {
    assert_eq!(length(&[]), Ok(None));
    assert_eq!(length(&["0"]), Ok(Some(0)));
    assert_eq!(length(&["18446744073709551615"]), Ok(Some(u64::MAX)));
    assert_eq!(length(&["5", "5"]), Ok(Some(5)));
    assert_eq!(length(&["5, 5", "5 ,5"]), Ok(Some(5)));
}

#[test]
fn content_lengths_that_differ_are_refused() {
    assert_eq!(length(&["5", "6"]), Err(Malformed::ContentLengthsDiffer));
    assert_eq!(length(&["5, 6"]), Err(Malformed::ContentLengthsDiffer));
}

#[test]
fn a_content_length_that_is_no_number_is_refused() {
    for value in [
        "",
        "+5",
        "-5",
        "5a",
        "5:",
        "5/",
        "0x5",
        "5.0",
        "5 5",
        "5,",
        ",",
        "18446744073709551616",
    ] {
        assert_eq!(length(&[value]), Err(Malformed::ContentLength), "{value}");
    }
}

#[test]
fn every_reason_names_its_rule() {
    for reason in [
        Malformed::UnknownPseudoHeader,
        Malformed::EmptyPath,
        Malformed::ConnectionSpecificField,
        Malformed::ProtocolNotAllowed,
        Malformed::ContentLengthsDiffer,
    ] {
        assert!(reason.to_string().contains("RFC"), "{reason}");
    }
}
