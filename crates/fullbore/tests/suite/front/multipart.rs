//! Forms with files.

use fullbore::ErrorKind;
use fullbore::client::Body;
use fullbore::client::multipart::{Form, Part};

use super::{Site, client};
use crate::support::{Chunks, soon};

async fn sent(form: Form) -> String {
    let site = Site::echo().await;
    let response = soon(client().post(site.url("/")).multipart(form)).await;
    soon(response.expect("a response").text()).await.expect("text")
}

/// The echo's head and body, with the boundary's name in place of the boundary.
fn split(sent: &str) -> (String, String) {
    let boundary = sent
        .split("boundary=")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let boundary = boundary.expect("a boundary");
    assert_eq!(boundary.len(), 32);
    let (head, body) = sent.split_once("\n\n").expect("a body");
    (head.replace(boundary, "B"), body.replace(boundary, "B"))
}

#[tokio::test]
async fn fields_and_files_are_sent_as_browsers_send_them() {
    let form = Form::new()
        .text("name", "value")
        .part("photo", Part::new("pixels").file_name("day.jpg"))
        .part(
            "notes",
            Part::new("[]")
                .file_name("a.txt")
                .content_type("application/json"),
        );
    let (head, body) = split(&sent(form).await);
    let expected = "--B\r\ncontent-disposition: form-data; name=\"name\"\r\n\r\nvalue\r\n\
        --B\r\ncontent-disposition: form-data; name=\"photo\"; filename=\"day.jpg\"\r\ncontent-type: image/jpeg\r\n\r\npixels\r\n\
        --B\r\ncontent-disposition: form-data; name=\"notes\"; filename=\"a.txt\"\r\ncontent-type: application/json\r\n\r\n[]\r\n\
        --B--\r\n";
    assert_eq!(body, expected);
    // The boundary stands four times in the body, and is 31 octets longer than its name here.
    let length = expected.len() + 4 * 31;
    assert_eq!(
        head,
        format!("POST /\ncontent-type: multipart/form-data; boundary=B\ncontent-length: {length}")
    );
}

#[tokio::test]
async fn a_part_may_be_a_stream_of_known_or_unknown_length() {
    let chunks = || futures_util::stream::iter([Ok::<_, std::io::Error>("stream"), Ok("ed")]);
    for (body, is_known) in [
        (Body::wrap(Chunks::new(1_000, 7)), false),
        (Body::wrap_stream(chunks()), false),
        (
            Body::wrap(http_body_util::Full::<bytes::Bytes>::from("streamed")),
            true,
        ),
    ] {
        let form = Form::new()
            .part("file", Part::new(body).file_name("f"))
            .text("last", "1");
        let (head, body) = split(&sent(form).await);
        assert_eq!(head.contains("content-length"), is_known, "{head}");
        let last = "\r\n--B\r\ncontent-disposition: form-data; name=\"last\"\r\n\r\n1\r\n--B--\r\n";
        assert!(body.ends_with(last), "{body}");
    }
}

#[tokio::test]
async fn no_name_or_type_adds_a_line_to_a_part() {
    let name = "a\"b\r\nc\\é";
    let form = Form::new().part(name, Part::new("x").file_name(name));
    let (_, body) = split(&sent(form).await);
    let expected = "form-data; name=\"a%22b%0D%0Ac\\é\"; filename=\"a%22b%0D%0Ac\\é\"\r\n\r\nx";
    assert!(body.contains(expected), "{body}");
    let form = Form::new().part("name", Part::new("x").content_type("a\r\nb: c"));
    let error = soon(client().post("http://localhost/").multipart(form)).await;
    let error = error.expect_err("no type");
    assert_eq!(
        (error.kind(), error.url()),
        (ErrorKind::InvalidMessage, Some("http://localhost/"))
    );
}

#[tokio::test]
async fn an_empty_form_is_its_end() {
    let (_, body) = split(&sent(Form::new()).await);
    assert_eq!(body, "--B--\r\n");
}
