//! A 206 response counts only as far as it proves: where its range begins and ends, of what whole, of which version.

use std::sync::Arc;

use crate::support::frames::END_STREAM;
use crate::support::scripted::{Asked, HALF, SIZE, Server, Then, V1, body, data, half, head, holds, whole};
use crate::support::{TestResult, names, run};

type Fields = Vec<(&'static str, String)>;

/// A response with these fields and octets.
fn answer(asked: &Asked, fields: &Fields, octets: &[u8]) -> Vec<u8> {
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut out = head(asked.stream, 0, &fields);
    out.extend(data(asked.stream, octets, true));
    out
}

/// 206 with this Content-Range, this entity tag and more.
fn part(range: &str, tag: Option<&str>, more: &[(&'static str, &str)]) -> Fields {
    let mut fields: Fields = vec![(":status", "206".into())];
    if !range.is_empty() {
        fields.push(("content-range", range.into()));
    }
    fields.extend(tag.map(|tag| ("etag", tag.into())));
    fields.extend(more.iter().map(|(name, value)| (*name, (*value).into())));
    fields
}

/// The end of a range of the body's second half.
fn to(last: usize, total: &str) -> String {
    format!("bytes {HALF}-{last}/{total}")
}

#[test]
fn a_part_that_ends_before_the_whole_is_put_behind_what_came_and_the_rest_is_asked_for() -> TestResult {
    const END: usize = 700_000;
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => {
            let fields = part(&to(END - 1, "1000000"), Some("\"v1\""), &[]);
            (answer(asked, &fields, &body(1)[HALF..END]), Then::Go)
        }
        _ => {
            assert_eq!(asked.from("\"v1\""), Some(END));
            let range = format!("bytes {END}-{}/{SIZE}", SIZE - 1);
            let fields = part(&range, Some("\"v1\""), &[]);
            (answer(asked, &fields, &body(1)[END..]), Then::Go)
        }
    })?;
    server.completes(3, &body(1))
}

#[test]
fn parts_of_a_few_octets_are_no_progress_and_come_to_an_end() -> TestResult {
    let server = Server::start(|number, asked| match (number, asked.from("\"v1\"")) {
        (1, _) => (half(asked, V1, &body(1)), Then::Close),
        (_, from) => {
            let from = from.unwrap_or_default();
            let fields = part(&format!("bytes {from}-{from}/{SIZE}"), Some("\"v1\""), &[]);
            (answer(asked, &fields, &body(1)[from..=from]), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "--retry", "2", "-o", "out", &server.url()])?;
    ended.failed_with(10);
    assert_eq!(server.asked(), 3);
    assert!(!names(folder.path())?.contains(&"out".to_owned()));
    Ok(())
}

#[test]
fn a_part_of_64_kib_is_progress_and_one_octet_less_is_a_failure() -> TestResult {
    for (size, asked) in [(65_536, 9), (65_535, 2)] {
        let server = Server::start(move |number, asked| match (number, asked.from("\"v1\"")) {
            (1, _) => (half(asked, V1, &body(1)), Then::Close),
            (_, from) => {
                let from = from.unwrap_or_default();
                let end = SIZE.min(from + size);
                let fields = part(&format!("bytes {from}-{}/{SIZE}", end - 1), Some("\"v1\""), &[]);
                (answer(asked, &fields, &body(1)[from..end]), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        assert_eq!(server.asked(), asked, "{size}: {ended:?}");
        match asked {
            2 => ended.failed_with(10),
            _ => {
                ended.succeeded();
                holds(folder.path(), &body(1))?;
            }
        }
    }
    Ok(())
}

/// Breaks off after half of a body, answers the request for the rest with this part, and any other with all of another
/// version.
fn with_part(first: &'static [(&'static str, &'static str)], fields: Fields) -> TestResult<Server> {
    let fields = Arc::new(fields);
    Server::start(move |number, asked| match number {
        1 => (half(asked, first, &body(1)), Then::Close),
        2 => {
            assert!(!asked.is_whole());
            (answer(asked, &fields, &body(1)[HALF..]), Then::Go)
        }
        _ => {
            assert!(asked.is_whole());
            (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
        }
    })
}

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const DATED: &[(&str, &str)] = &[("last-modified", DATE)];
const TAG: Option<&str> = Some("\"v1\"");

#[test]
fn a_part_that_does_not_agree_with_the_beginning_is_dropped_and_the_whole_is_asked_for() -> TestResult {
    let all = to(SIZE - 1, "1000000");
    let cases: Vec<(&str, Fields)> = vec![
        ("another total", part(&to(SIZE - 1, "1000001"), TAG, &[])),
        ("another total, short", part(&to(SIZE - 1, "2000000"), TAG, &[])),
        ("no Content-Range", part("", TAG, &[])),
        (
            "several parts",
            part("", TAG, &[("content-type", "multipart/byteranges; boundary=x")]),
        ),
        ("another unit", part(&all.replace("bytes", "octets"), TAG, &[])),
        (
            "an end before its beginning",
            part("bytes 500000-499999/1000000", TAG, &[]),
        ),
        (
            "an end behind the whole",
            part("bytes 500000-1000000/1000000", TAG, &[]),
        ),
        (
            "a number that is too large",
            part("bytes 500000-99999999999999999999/1000000", TAG, &[]),
        ),
        ("a sign", part("bytes +500000-999999/1000000", TAG, &[])),
        ("two ranges", part(&all, TAG, &[("content-range", &all)])),
        ("another beginning", part("bytes 400000-999999/1000000", TAG, &[])),
        ("another entity tag", part(&all, Some("\"v2\""), &[])),
        ("a weak entity tag", part(&all, Some("W/\"v1\""), &[])),
        ("two entity tags", part(&all, TAG, &[("etag", "\"v2\"")])),
        ("no entity tag", part(&all, None, &[])),
        (
            "a content coding",
            part(&all, TAG, &[("content-encoding", "gzip")]),
        ),
        (
            "a content-length of another range",
            part(&to(SIZE - 2, "999999"), TAG, &[("content-length", "500000")]),
        ),
    ];
    for (name, fields) in cases {
        let server = with_part(V1, fields)?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert_eq!(server.asked(), 3, "{name}");
        assert!(std::fs::read(folder.path().join("out"))? == body(2), "{name}");
        assert_eq!(names(folder.path())?, ["out"], "{name}");
    }
    for (name, fields) in [
        (
            "another date",
            part(&all, None, &[("last-modified", "Sun, 06 Nov 1994 08:49:38 GMT")]),
        ),
        (
            "a tag that was not there",
            part(&all, TAG, &[("last-modified", DATE)]),
        ),
    ] {
        let server = with_part(DATED, fields)?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert!(std::fs::read(folder.path().join("out"))? == body(2), "{name}");
    }
    Ok(())
}

#[test]
fn a_part_that_agrees_is_taken_with_as_few_fields_as_rfc_9110_requires() -> TestResult {
    let all = to(SIZE - 1, "1000000");
    for (first, fields) in [
        (V1, part(&all, TAG, &[])),
        (V1, part(&to(SIZE - 1, "*"), TAG, &[])),
        (V1, part(&all, TAG, &[("content-length", "500000")])),
        (DATED, part(&all, None, &[])),
        (DATED, part(&all, None, &[("last-modified", DATE)])),
    ] {
        let shown = format!("{first:?} {fields:?}");
        let server = with_part(first, fields)?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        assert_eq!(ended.code, Some(0), "{shown}: {ended:?}");
        assert_eq!(server.asked(), 2, "{shown}");
        assert!(std::fs::read(folder.path().join("out"))? == body(1), "{shown}");
    }
    Ok(())
}

#[test]
fn on_standard_output_a_part_that_does_not_agree_is_a_failure() -> TestResult {
    let server = with_part(V1, part(&to(699_999, "700000"), TAG, &[]))?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "--retry", "3", &server.url()])?;
    ended.failed_with(9);
    assert!(ended.stdout == body(1)[..HALF], "it was begun anew in the middle");
    Ok(())
}

#[test]
fn a_part_that_nobody_asked_for_exits_with_9() -> TestResult {
    let server = Server::start(|_, asked| {
        let fields = part("bytes 0-499999/1000000", TAG, &[]);
        (answer(asked, &fields, &body(1)[..HALF]), Then::Go)
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &server.url()])?.failed_with(9);
    assert_eq!(server.asked(), 1);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn a_body_that_is_not_as_long_as_its_range_is_not_taken_for_it() -> TestResult {
    // Without a content-length only Content-Range says how long the body is to be.
    for octets in [199_999, 500_001] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            2 => {
                let fields = part(&to(SIZE - 1, "1000000"), TAG, &[]);
                let mut long = body(1)[HALF..].to_vec();
                long.push(0);
                (answer(asked, &fields, &long[..octets]), Then::Go)
            }
            _ => {
                assert!(asked.is_whole(), "no rest is asked for any more");
                (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        let url = server.url();
        let ended = run(folder.path(), ["get", "--retry", "2", "-o", "out", &url])?;
        assert_eq!(ended.code, Some(0), "{octets}: {ended:?}");
        holds(folder.path(), &body(2))?;
    }
    Ok(())
}

#[test]
fn only_a_200_is_resumed() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => {
            let fields = [
                (":status", "203"),
                ("content-length", "1000000"),
                ("etag", "\"v1\""),
            ];
            let mut out = head(asked.stream, 0, &fields);
            out.extend(data(asked.stream, &body(1)[..HALF], false));
            (out, Then::Close)
        }
        _ => {
            assert!(asked.is_whole(), "a range of a body that is not the resource's");
            (whole(asked, V1, &body(2)), Then::Go)
        }
    })?;
    server.completes(2, &body(2))
}

#[test]
fn a_date_of_this_minute_proves_no_version() -> TestResult {
    // RFC 9110 section 8.8.2.2: what was changed within the second of its date may be changed again in it, and the two dates
    // may be of two clocks.
    for date in [DATE, "Sun, 06 Nov 1994 08:50:36 GMT"] {
        let young = move |asked: &Asked, seed, all: bool| {
            let fields = [("last-modified", DATE), ("date", date)];
            match all {
                true => whole(asked, &fields, &body(seed)),
                false => half(asked, &fields, &body(seed)),
            }
        };
        let server = Server::start(move |number, asked| {
            assert!(
                asked.is_whole(),
                "If-Range with a date that is no strong validator"
            );
            match number {
                1 => (young(asked, 1, false), Then::Close),
                _ => (young(asked, 2, true), Then::Go),
            }
        })?;
        server.completes(2, &body(2))?;
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn the_part_of_an_earlier_run_is_not_taken_for_a_body_of_another_length_or_coding() -> TestResult {
    for (length, coding) in [("900000", "identity"), ("1000000", "gzip")] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            _ => {
                assert!(asked.is_whole());
                let mut fields = part("", TAG, &[("content-length", length)]);
                fields[0].1 = "200".into();
                if coding != "identity" {
                    fields.push(("content-encoding", coding.into()));
                }
                let octets = &body(2)[..length.parse().unwrap_or_default()];
                (answer(asked, &fields, octets), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
        run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
        assert_eq!(server.asked(), 2);
        let got = std::fs::read(folder.path().join("out"))?;
        assert!(got == body(2)[..length.parse::<usize>()?], "wrong bytes");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_body_of_512_kib_is_had_again_and_one_octet_more_is_resumed() -> TestResult {
    // The whole body but its last octet and END_STREAM.
    for (length, left) in [(524_288, 0), (524_289, 1)] {
        let server = Server::start(move |number, asked| {
            let total = length.to_string();
            let fields = [(":status", "200"), ("etag", "\"v1\""), ("content-length", &total)];
            let mut out = head(asked.stream, 0, &fields);
            match number {
                1 => {
                    out.extend(data(asked.stream, &body(1)[..length - 1], false));
                    (out, Then::Close)
                }
                2 => {
                    assert!(asked.is_whole());
                    out.extend(data(asked.stream, &body(1)[..length], true));
                    (out, Then::Go)
                }
                _ => {
                    assert_eq!(asked.from("\"v1\""), Some(length - 1));
                    let range = format!("bytes {}-{}/{length}", length - 1, length - 1);
                    let fields = part(&range, TAG, &[]);
                    (answer(asked, &fields, &body(1)[length - 1..length]), Then::Go)
                }
            }
        })?;
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
        assert_eq!(
            names(folder.path())?.len(),
            2 * left,
            "{length}: a part and its record"
        );
        run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
        assert_eq!(server.asked(), 2 + left, "{length}");
        holds(folder.path(), &body(1)[..length])?;
    }
    Ok(())
}

#[test]
fn a_range_of_the_users_own_is_refused() -> TestResult {
    let folder = tempfile::tempdir()?;
    for line in ["Range: bytes=0-9", "if-range: \"v1\""] {
        let ended = run(folder.path(), ["get", "-H", line, "http://127.0.0.1:1/"])?;
        assert_eq!(ended.code, Some(2), "{ended:?}");
    }
    Ok(())
}

#[test]
fn the_end_of_a_stream_is_told_from_the_end_of_a_part() -> TestResult {
    // 416 to a request for the rest: what came is no beginning of this version.
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => {
            let fields = [(":status", "416"), ("content-range", "bytes */400000")];
            (head(asked.stream, END_STREAM, &fields), Then::Go)
        }
        _ => {
            assert!(asked.is_whole());
            (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
        }
    })?;
    server.completes(3, &body(2))
}
