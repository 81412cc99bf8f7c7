//! Paths without a file: the page for errors, and the page of an application.

use super::*;
use crate::settings::Limits;

#[tokio::test]
async fn a_page_of_its_own_answers_404() {
    let site = Site::with(|_| Settings {
        error_page: Some("errors/404.html".to_owned()),
        ..Settings::default()
    });
    assert_eq!(
        site.get("/none").await.text(),
        "Not Found\n",
        "there is no page yet"
    );
    let page = "x".repeat(10_000);
    site.write("errors/404.html", &page);
    site.write("file", "x");
    // Twice: the page does not become what the path is.
    for path in ["/none", "/none", "/dir/none/", "/.hidden", "/file/none"] {
        let answer = site
            .get_with(path, &[("range", "bytes=0-3"), ("if-none-match", "*")])
            .await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.text(), page);
        assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
        for field in ["etag", "last-modified", "accept-ranges"] {
            assert_eq!(answer.field(field), "", "{field}");
        }
    }
    let head = site.ask(Method::HEAD, "/none", &[]).await;
    assert_eq!(
        (head.status.as_u16(), head.field("content-length")),
        (404, "10000")
    );
    assert_eq!(site.get("/%").await.status, 400);
    assert_eq!(site.get("/errors/404.html").await.status, 200);
}

#[tokio::test]
async fn an_application_answers_the_paths_that_it_makes() {
    let site = Site::with(|_| Settings {
        spa: true,
        limits: Limits {
            cache_after: std::time::Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    assert_eq!(
        site.get("/route").await.status,
        404,
        "there is no application yet"
    );
    site.write("index.html", "the application");
    site.write("real", "file");
    for path in ["/route", "/route", "/a/b/c", "/a/b/"] {
        let answer = site.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "the application"),
            "{path}"
        );
        assert_ne!(answer.field("etag"), "");
    }
    assert_eq!(site.get("/real").await.text(), "file");
    for path in ["/app.js", "/img/x.png", "/.hidden"] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
    let json = [("accept", "application/json")];
    let html = [("accept", "text/html,*/*;q=0.8")];
    for (fields, status) in [(json, 404), (html, 200), (html, 200)] {
        let answer = site.get_with("/route", &fields).await;
        assert_eq!((answer.status.as_u16(), answer.field("vary")), (status, "accept"));
    }
    for path in ["/real", "/app.js", "/index.html"] {
        assert_eq!(
            site.get(path).await.field("vary"),
            "",
            "{path}: accept decides nothing"
        );
    }
    // What was a route is a file when it is there.
    site.write("route", "now a file");
    assert_eq!(site.get("/route").await.text(), "now a file");
}
