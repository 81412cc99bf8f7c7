//! The list of a folder's files, as HTML or JSON.
//!
//! The HTML works without scripts: links sort it, and a form uploads into the folder where uploads reach it. All links are
//! relative, so a listing works below any prefix. JSON of a large folder comes in pages, and a client may ask for the lists of
//! sub-folders beside it. How many entries are read, and the memory of all listings, have limits (`listed`, `sublisted` and
//! `all_listings_bytes` of `settings`). Called by `files`, in blocking jobs.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;

use cap_std::fs::Dir;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, RETRY_AFTER, VARY};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::accept::{self, Form};
use crate::archive::{Archive, Format, Means, Refused};
use crate::conditional::{self, Validators, Verdict};
use crate::destination::is_storable;
use crate::entry::{Column, ENTRY_BYTES, Entry, Order, QUERY_PAIRS, rfc3339};
use crate::file_body::{FileResponse, ResponseBody};
use crate::head::Head;
use crate::json_list::{self, Document};
use crate::name_order;
use crate::open::{OpenError, open_folder};
use crate::output::{Exhausted, Output};
use crate::page::{self, Counted, Escaped};
use crate::peer::Peer;
use crate::resolve::{Target, encode};
use crate::respond;
use crate::shared::{Shared, UploadTarget};
use crate::sublists::{self, SUBLISTS};

/// How many entries are looked at for each one that is listed at most. The others are hidden, or no files.
const LOOKED_AT: usize = 4;

/// The field of a response that names the preferences of its request that it has met (RFC 7240).
static PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What was read of a folder.
struct Listing {
    entries: Vec<Entry>,
    /// There are more.
    is_partial: bool,
    /// The query of the list that has them.
    next: Option<String>,
}

/// Answers GET or HEAD of a folder; `None` if there is no such folder. Blocks.
pub(crate) fn answer(
    shared: &Shared,
    head: Head<'_>,
    target: &Target,
    peer: Option<Peer>,
) -> Option<FileResponse> {
    let folder = match open_folder(&shared.root, &target.relative()) {
        Ok(folder) => folder,
        Err(error) => match OpenError::from_io(&error) {
            OpenError::NotFound => return None,
            error => return Some(respond::status(error.status())),
        },
    };
    let mut output = Output {
        text: String::new(),
        beside: 0,
        share: shared.pages.share(peer),
    };
    let form = accept::preferred(head.headers);
    let listing = match form {
        Form::Html => read(shared, target, &folder, &mut output),
        Form::Json => read_page(shared, target, &folder, head.uri.query(), &mut output),
    };
    let listing = match listing {
        Ok(Ok(listing)) => listing,
        Ok(Err(Exhausted)) => return Some(respond::status(StatusCode::SERVICE_UNAVAILABLE)),
        Err(_) => return Some(respond::status(StatusCode::INTERNAL_SERVER_ERROR)),
    };
    let Ok(has_sublists) = write(shared, head, target, form, listing, &mut output) else {
        return Some(respond::status(StatusCode::SERVICE_UNAVAILABLE));
    };
    let mut response = finish(head, form, output);
    if has_sublists {
        let applied = HeaderValue::from_static(SUBLISTS);
        response.headers_mut().insert(PREFERENCE_APPLIED.clone(), applied);
    }
    Some(response)
}

/// Answers GET or HEAD of a folder with its archive; `None` if there is no such folder. Blocks; needs the context of a runtime.
pub(crate) fn archive(
    shared: &Shared,
    format: Format,
    head: Head<'_>,
    target: &Target,
    peer: Option<Peer>,
) -> Option<FileResponse> {
    let name = target.names().last().map_or("files", String::as_str);
    let means = Means {
        root: &shared.root,
        hidden: shared.settings.hidden,
        slots: &shared.archives,
        names: &shared.pages,
        directories: &shared.zip_directories,
        jobs: &shared.jobs,
    };
    let archive = match Archive::of(&means, format, target, name, peer) {
        Ok(archive) => archive,
        Err(Refused::NotFound) => return None,
        Err(Refused::Busy) => {
            let mut response = respond::status(StatusCode::SERVICE_UNAVAILABLE);
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("5"));
            return Some(response);
        }
    };
    let mut response = respond::bare(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    let named = format!(
        "attachment; filename*=UTF-8''{}.{}",
        encode(name),
        format.extension()
    );
    if let Ok(named) = HeaderValue::try_from(named) {
        headers.insert(CONTENT_DISPOSITION, named);
    }
    if head.method != Method::HEAD {
        *response.body_mut() = ResponseBody::archive(archive);
    }
    Some(response)
}

/// Reads the entries of the folder, up to the limit.
fn read(
    shared: &Shared,
    target: &Target,
    folder: &Dir,
    output: &mut Output,
) -> io::Result<Result<Listing, Exhausted>> {
    let most = shared.settings.limits.listed;
    let mut listing = Listing {
        entries: Vec::new(),
        is_partial: false,
        next: None,
    };
    for (at, entry) in folder.entries()?.enumerate() {
        // What cannot be looked at is not listed.
        let Ok(entry) = entry else { continue };
        if listing.entries.len() >= most || at >= most.saturating_mul(LOOKED_AT) {
            listing.is_partial = true;
            break;
        }
        let Some(entry) = Entry::of(shared, target, &entry) else {
            continue;
        };
        // Sorting takes two more names for each entry.
        output.beside += 3 * entry.name.len() + ENTRY_BYTES;
        if output.check().is_err() {
            return Ok(Err(Exhausted));
        }
        listing.entries.push(entry);
    }
    Ok(Ok(listing))
}

/// Reads the entries of the folder that the query asks for, in the order of their names, up to the limit.
fn read_page(
    shared: &Shared,
    target: &Target,
    folder: &Dir,
    query: Option<&str>,
    output: &mut Output,
) -> io::Result<Result<Listing, Exhausted>> {
    let after = name_order::after(query, QUERY_PAIRS);
    let wanted = |name: &OsString| shared.settings.hidden || !name.as_encoded_bytes().starts_with(b".");
    let names = name_order::read(
        folder,
        &after,
        shared.settings.limits.listed,
        wanted,
        |count, bytes| {
            // Sorting takes two more names for each entry.
            output.beside = 3 * bytes + ENTRY_BYTES * count;
            output.check().is_ok()
        },
    );
    let names = match names {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Ok(Err(Exhausted)),
        Err(error) => return Err(error),
    };
    let entries = names.entries.iter();
    Ok(Ok(Listing {
        entries: entries
            .filter_map(|entry| Entry::of(shared, target, entry))
            .collect(),
        is_partial: names.is_cut || names.next.is_some(),
        next: names.next,
    }))
}

/// Writes the document. Returns whether it has the lists of sub-folders.
fn write(
    shared: &Shared,
    head: Head<'_>,
    target: &Target,
    form: Form,
    mut listing: Listing,
    output: &mut Output,
) -> Result<bool, Exhausted> {
    let order = Order::of(head.uri.query());
    order.sort(&mut listing.entries);
    let mut has_sublists = false;
    match form {
        Form::Html => write_html(shared, target, order, &listing, output)?,
        Form::Json => {
            let read = || sublists::read(shared, target, order, &listing.entries, output);
            let sublists = sublists::are_asked_for(head.headers).then(read);
            let document = Document {
                path: &path(target),
                is_partial: listing.is_partial,
                next: listing.next.as_deref(),
                entries: &listing.entries,
                sublists: sublists.as_deref(),
            };
            document.write(output)?;
            has_sublists = sublists.is_some();
        }
    }
    output.beside = 0;
    output.text.shrink_to_fit();
    output.check()?;
    Ok(has_sublists)
}

fn finish(head: Head<'_>, form: Form, output: Output) -> FileResponse {
    let mut hash = DefaultHasher::new();
    hash.write(output.text.as_bytes());
    let validators = Validators::tagged(format!("\"{:x}-{:016x}\"", output.text.len(), hash.finish()));
    let mut response = match conditional::evaluate(head.method, head.headers, Some(&validators)) {
        Verdict::Failed => return respond::status(StatusCode::PRECONDITION_FAILED),
        Verdict::NotModified => respond::bare(StatusCode::NOT_MODIFIED),
        Verdict::Proceed => {
            let body = Counted::bytes(output.text, output.share);
            match form {
                Form::Html => page::response(StatusCode::OK, body),
                Form::Json => json_list::response(body),
            }
        }
    };
    let headers = response.headers_mut();
    headers.insert(
        VARY,
        HeaderValue::from_static(match form {
            Form::Html => "accept",
            Form::Json => "accept, prefer",
        }),
    );
    if let Some(etag) = validators.etag() {
        headers.insert(ETAG, etag);
    }
    response
}

/// The path of the folder, not encoded.
fn path(target: &Target) -> String {
    target
        .names()
        .iter()
        .fold("/".to_owned(), |path, name| path + name + "/")
}

/// The icons, drawn once.
const ICONS: &str = "<svg width=\"0\" height=\"0\" hidden>\
    <symbol id=\"folder\" viewBox=\"0 0 16 16\"><path d=\"M1 3.5A1.5 1.5 0 0 1 2.5 2h3.2c.4 0 .8.2 1.1.5L8 3.8h5.5A1.5 1.5 0 0 1 \
    15 5.3v7.2a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 1 12.5z\"/></symbol>\
    <symbol id=\"file\" viewBox=\"0 0 16 16\"><path fill-rule=\"evenodd\" d=\"M3.5 1h6L13 4.5v9c0 .8-.7 1.5-1.5 1.5h-8A1.5 1.5 0 0 1 \
    2 13.5v-11C2 1.7 2.7 1 3.5 1zm0 1.3v11.4h8V5.5H8.7V2.3z\"/></symbol></svg>\n";

fn write_html(
    shared: &Shared,
    target: &Target,
    order: Order,
    listing: &Listing,
    output: &mut Output,
) -> Result<(), Exhausted> {
    let html = &mut output.text;
    page::begin(html, &path(target));
    html.push_str(ICONS);
    write_path(html, target);
    if takes_uploads(shared, target) {
        html.push_str(
            "<form method=\"post\" enctype=\"multipart/form-data\">\n\
             <label for=\"file\">Upload to this folder</label>\n\
             <input id=\"file\" name=\"file\" type=\"file\" multiple required>\n<button>Upload</button>\n</form>\n",
        );
    }
    html.push_str("<table>\n<thead><tr>");
    for (column, title, class, key) in [
        (Column::Name, "Name", "name", "name"),
        (Column::Size, "Size", "size", "size"),
        (Column::Date, "Modified (UTC)", "time", "date"),
    ] {
        write_column(html, order, column, (title, class, key));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    if !target.names().is_empty() {
        html.push_str(
            "<tr><td class=\"name\"><a href=\"../\"><svg class=\"folder\" aria-hidden=\"true\"><use href=\"#folder\"/></svg>..</a>\
             </td><td class=\"size\"></td><td class=\"time\"></td></tr>\n",
        );
    }
    for entry in &listing.entries {
        write_row(&mut output.text, entry);
        output.check()?;
    }
    let html = &mut output.text;
    html.push_str("</tbody>\n</table>\n");
    write_sum(html, listing);
    page::end(html);
    Ok(())
}

/// Whether a form on the page of this folder can upload into it.
fn takes_uploads(shared: &Shared, target: &Target) -> bool {
    let UploadTarget::Directory(folder, _) = &shared.uploads else {
        return false;
    };
    let below = folder.below(target.names());
    folder.serves(target.names())
        && below.len() <= shared.settings.limits.upload_folders
        && below.iter().all(|name| is_storable(name))
}

/// The names on the path, each with a link to its folder.
fn write_path(html: &mut String, target: &Target) {
    let names = target.names();
    html.push_str("<h1>");
    // Writing to a String does not fail.
    for (at, name) in ["Files"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .enumerate()
    {
        let above = names.len() - at;
        let name = Escaped(name);
        let _ = match above {
            0 => write!(html, "<span aria-current=\"page\">{name}</span>"),
            _ => write!(
                html,
                "<a href=\"{}\">{name}</a><span class=\"sep\">/</span>",
                "../".repeat(above)
            ),
        };
    }
    html.push_str("</h1>\n");
}

/// The head of a column, whose link sorts by it: names upwards first, sizes and dates downwards.
fn write_column(html: &mut String, order: Order, column: Column, (title, class, key): (&str, &str, &str)) {
    let (sorted, mark, descending) = match (order.by == column, order.descending) {
        (true, false) => (" aria-sort=\"ascending\"", " ▲", true),
        (true, true) => (" aria-sort=\"descending\"", " ▼", false),
        (false, _) => ("", "", column != Column::Name),
    };
    let next = if descending { "desc" } else { "asc" };
    let _ = write!(
        html,
        "<th scope=\"col\" class=\"{class}\"{sorted}><a href=\"?sort={key}&amp;order={next}\">{title}{mark}</a></th>"
    );
}

fn write_row(html: &mut String, entry: &Entry) {
    let icon = if entry.is_folder() { "folder" } else { "file" };
    let slash = if entry.is_folder() { "/" } else { "" };
    let name = Escaped(&entry.name);
    let icon = format!("<svg class=\"{icon}\" aria-hidden=\"true\"><use href=\"#{icon}\"/></svg>");
    let _ = match entry.link() {
        Some(link) => write!(
            html,
            "<tr><td class=\"name\"><a href=\"{link}\">{icon}{name}{slash}</a></td>"
        ),
        None => write!(
            html,
            "<tr><td class=\"name\" title=\"no URL can have this name\">{icon}{name}{slash}</td>"
        ),
    };
    let size = entry.size.map(readable).unwrap_or_default();
    let bytes = entry
        .size
        .map(|size| format!(" title=\"{size} bytes\""))
        .unwrap_or_default();
    let _ = write!(html, "<td class=\"size\"{bytes}>{size}</td><td class=\"time\">");
    if let Some(time) = entry.modified.and_then(rfc3339) {
        // Of 2026-01-02T03:04:05Z: the date and the minute.
        let (date, clock) = time.split_once('T').unwrap_or((&time, ""));
        let _ = write!(
            html,
            "<time datetime=\"{time}\">{date} {}</time>",
            clock.get(..5).unwrap_or_default()
        );
    }
    html.push_str("</td></tr>\n");
}

fn write_sum(html: &mut String, listing: &Listing) {
    let folders = listing.entries.iter().filter(|entry| entry.is_folder()).count();
    let files = listing.entries.len() - folders;
    let bytes = listing
        .entries
        .iter()
        .filter_map(|entry| entry.size)
        .fold(0, u64::saturating_add);
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let _ = writeln!(
        html,
        "<p class=\"sum\">{}, {}, {}</p>",
        count(folders, "folder"),
        count(files, "file"),
        readable(bytes)
    );
    if !listing.entries.is_empty() {
        // No link: a program that follows all links would download each folder once more.
        html.push_str(
            "<form class=\"archive\">\n<button name=\"archive\" value=\"tar\">Download as .tar</button>\n<button name=\"archive\" value=\"zip\">Download as .zip</button>\n</form>\n",
        );
    }
    if listing.is_partial {
        html.push_str("<p class=\"note\">The folder has more entries than are listed here.</p>\n");
    }
}

/// A size with three digits and a unit.
fn readable(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1_024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.00 KiB"),
            (1_536, "1.50 KiB"),
            (10_235, "10.0 KiB"),
            (10_240, "10.0 KiB"),
            (102_400, "100 KiB"),
            (1_023_487, "999 KiB"),
            (1_023_488, "0.98 MiB"),
            (5 << 30, "5.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(readable(bytes), expected, "{bytes}");
        }
    }
}
