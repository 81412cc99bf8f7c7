//! What `serve` answers for folders, for paths without a file, and in which encoding, by its options.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::support::{PATIENCE, Serving, TestResult, run};

fn serve(root: &Path, args: &[&str]) -> TestResult<Serving> {
    Serving::start(root, &[&["--plaintext"], args].concat())
}

/// The response to a GET, as text.
fn get(serving: &Serving, path: &str, fields: &str) -> TestResult<String> {
    let address = serving.origin.strip_prefix("http://").ok_or("no address")?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[track_caller]
fn has(response: &str, status: &str, text: &str) {
    let line = format!("HTTP/1.1 {status} ");
    assert!(
        response.starts_with(&line) && response.contains(text),
        "{response}"
    );
}

#[test]
fn folders_are_listed_unless_that_is_off() -> TestResult {
    let root = tempfile::tempdir()?;
    std::fs::create_dir(root.path().join("sub"))?;
    std::fs::write(root.path().join("a b.txt"), "hello")?;
    let serving = serve(root.path(), &[])?;
    let html = get(&serving, "/", "")?;
    has(&html, "200", "<a href=\"a%20b.txt\">");
    has(&html, "200", "<a href=\"sub/\">");
    assert!(!html.contains("<form method"), "{html}");
    let json = get(&serving, "/", "Accept: application/json\r\n")?;
    has(
        &json,
        "200",
        "{\"name\":\"a b.txt\",\"type\":\"file\",\"size\":5,",
    );
    let serving = serve(root.path(), &["--no-listing"])?;
    has(&get(&serving, "/", "")?, "404", "Not Found");
    let serving = serve(root.path(), &["--uploads", "sub"])?;
    assert!(!get(&serving, "/", "")?.contains("<form method"));
    has(&get(&serving, "/sub/", "")?, "200", "<form method=\"post\"");
    Ok(())
}

#[test]
fn a_path_without_a_file_is_answered_as_the_options_say() -> TestResult {
    let root = tempfile::tempdir()?;
    std::fs::write(root.path().join("404.html"), "<p>lost</p>")?;
    std::fs::write(root.path().join("index.html"), "<p>application</p>")?;
    let serving = serve(root.path(), &["--error-page", "404.html"])?;
    has(&get(&serving, "/none", "")?, "404", "<p>lost</p>");
    let serving = serve(root.path(), &["--spa", "--error-page", "404.html"])?;
    has(&get(&serving, "/none", "")?, "200", "<p>application</p>");
    has(&get(&serving, "/none.js", "")?, "404", "<p>lost</p>");
    let inner = root.path().join("inner");
    std::fs::create_dir(&inner)?;
    #[cfg(unix)]
    std::os::unix::fs::symlink("../404.html", inner.join("link.html"))?;
    for (folder, page) in [
        (root.path(), "none.html"),
        (root.path(), "/404.html"),
        (&inner, "../404.html"),
        (&inner, "link.html"),
    ] {
        let ended = run(folder, ["serve", ".", "--plaintext", "--error-page", page])?;
        ended.failed_with(2);
        assert!(ended.stderr.contains("there is no such file below"), "{ended:?}");
    }
    Ok(())
}

#[test]
fn encodings_are_sent_when_they_are_asked_for() -> TestResult {
    let root = tempfile::tempdir()?;
    std::fs::write(root.path().join("a.js"), "x".repeat(5_000))?;
    std::fs::write(root.path().join("b.js"), "y".repeat(5_000))?;
    std::fs::write(root.path().join("b.js.br"), "sibling")?;
    let accept = "Accept-Encoding: gzip, br\r\n";
    let serving = serve(root.path(), &["--precompressed"])?;
    has(
        &get(&serving, "/b.js", accept)?,
        "200",
        "content-encoding: br\r\n",
    );
    has(&get(&serving, "/b.js", accept)?, "200", "\r\n\r\nsibling");
    assert!(!get(&serving, "/a.js", accept)?.contains("content-encoding"));
    let serving = serve(root.path(), &["--compress"])?;
    let compressed = get(&serving, "/a.js", accept)?;
    has(&compressed, "200", "content-encoding: gzip\r\n");
    assert!(compressed.len() < 1_000, "{compressed}");
    let serving = serve(root.path(), &[])?;
    for path in ["/a.js", "/b.js"] {
        assert!(
            !get(&serving, path, accept)?.contains("content-encoding"),
            "{path}"
        );
    }
    Ok(())
}
