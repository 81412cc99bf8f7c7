//! Tests of the message rules, one a sentence of the RFCs.

mod receive_fields;
mod receive_request;
mod receive_response;
mod send;

use super::*;
use crate::hpack::{Field, FieldSection};
use crate::role::Role;

/// A section of these lines.
fn section(lines: &[(&str, &str)]) -> FieldSection {
    let mut section = FieldSection::new();
    for (name, value) in lines {
        section.push(Field::parse(name.as_bytes(), value.as_bytes()));
    }
    section
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/a?b=c"),
];

/// A whole GET request with these lines after it.
fn get_with(lines: &[(&str, &str)]) -> Result<http::Request<()>, Malformed> {
    request(&[&GET[..], lines].concat())
}

fn request(lines: &[(&str, &str)]) -> Result<http::Request<()>, Malformed> {
    let mut section = section(lines);
    let result = receive_request(&mut section, true);
    assert!(section.fields().is_empty(), "a section is always emptied");
    result
}

fn response(lines: &[(&str, &str)]) -> Result<http::Response<()>, Malformed> {
    receive_response(&mut section(lines))
}

fn trailers(lines: &[(&str, &str)]) -> Result<http::HeaderMap, Malformed> {
    receive_trailers(&mut section(lines), Role::Client)
}
