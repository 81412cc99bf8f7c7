//! The list of a folder as a JSON document. Called by `listing`.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::entry::{Entry, rfc3339};
use crate::file_body::{FileResponse, ResponseBody};
use crate::output::{Exhausted, Output};
use crate::page::is_deceptive;
use crate::respond;
use crate::sublists::{SUBLISTS, Sublist};

/// What a document has.
pub(crate) struct Document<'a> {
    /// The path of the folder, not encoded.
    pub(crate) path: &'a str,
    /// There are more entries.
    pub(crate) is_partial: bool,
    /// The query of the list that has them.
    pub(crate) next: Option<&'a str>,
    pub(crate) entries: &'a [Entry],
    /// The lists of folders below; `None` if they were not asked for.
    pub(crate) sublists: Option<&'a [Sublist]>,
}

pub(crate) fn response(body: Bytes) -> FileResponse {
    let mut response = respond::bare(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    *response.body_mut() = ResponseBody::full(body);
    response
}

impl Document<'_> {
    /// # Errors
    /// The memory of lists is used up.
    pub(crate) fn write(&self, output: &mut Output) -> Result<(), Exhausted> {
        let path = quoted(self.path);
        let partial = self.is_partial;
        let next = self.next.map_or("null".to_owned(), quoted);
        let _ = write!(
            output.text,
            "{{\"path\":{path},\"truncated\":{partial},\"next\":{next},\"entries\":["
        );
        write_entries(self.entries, output)?;
        if let Some(lists) = self.sublists {
            let _ = write!(output.text, ",\"{SUBLISTS}\":[");
            for (at, list) in lists.iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                let href = quoted(&list.href);
                let _ = write!(output.text, "{comma}\n{{\"href\":{href},\"entries\":[");
                write_entries(&list.entries, output)?;
                output.text.push('}');
            }
            output.text.push_str("\n]");
        }
        output.text.push_str("}\n");
        output.check()
    }
}

/// The entries, and the end of their array.
fn write_entries(entries: &[Entry], output: &mut Output) -> Result<(), Exhausted> {
    for (at, entry) in entries.iter().enumerate() {
        output.text.push_str(if at > 0 { ",\n" } else { "\n" });
        let json = JsonEntry {
            name: &entry.name,
            r#type: if entry.is_folder() { "folder" } else { "file" },
            size: entry.size,
            modified: entry.modified.and_then(rfc3339),
            href: entry.link(),
        };
        // Numbers, strings and null: serializing them does not fail.
        let json = plain(serde_json::to_string(&json).unwrap_or_default());
        output.text.push_str(&json);
        output.check()?;
    }
    output.text.push_str("\n]");
    Ok(())
}

fn quoted(text: &str) -> String {
    plain(serde_json::to_string(text).unwrap_or_default())
}

/// An entry of the JSON document.
#[derive(Serialize)]
struct JsonEntry<'a> {
    name: &'a str,
    /// `file` or `folder`.
    r#type: &'static str,
    /// Bytes; `null` for a folder.
    size: Option<u64>,
    /// RFC 3339, in UTC.
    modified: Option<String>,
    /// A reference relative to the folder; `null` for a name that no request can have.
    href: Option<String>,
}

/// JSON without characters that a terminal obeys, or that reorder the text. They can only be in strings.
fn plain(json: String) -> String {
    if !json.contains(is_deceptive) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        // Writing to a String does not fail. All of them have four digits.
        let _ = match is_deceptive(c) {
            true => write!(text, "\\u{:04x}", u32::from(c)),
            false => text.write_char(c),
        };
    }
    text
}
