//! Uploads into a folder that is served: what they do to the answers of other paths, and to the pages of the server.

use crate::Uploads;

use super::*;

#[tokio::test]
async fn an_upload_that_replaces_nothing_changes_the_answer_of_no_other_path() {
    let site = |overwrite| {
        let site = Site::with(|root| Settings {
            uploads: Uploads::Directory(root.to_owned()),
            overwrite,
            listing: true,
            precompressed: true,
            error_page: Some("errors/404.html".to_owned()),
            min_free_bytes: Some(0),
            ..Settings::default()
        });
        site.write("app.js", "operator");
        site.write("lib.css.br", "operator");
        site.write("folder/a", "operator");
        site
    };
    let reserved = [
        "/index.html",
        "/folder/index.html",
        "/folder/INDEX.html",
        "/new/index.html",
        "/app.js.gz",
        "/app.js.br",
        "/app.js.zst",
        "/lib.css",
        "/errors/404.html",
    ];
    let fields = [("accept-encoding", "br, zstd, gzip")];
    let all = ["/", "/folder/", "/new/", "/app.js", "/lib.css", "/missing"];
    let kept = site(false);
    let replaced = site(true);
    let mut before = Vec::new();
    for path in all {
        before.push(kept.get_with(path, &fields).await.body);
    }
    for path in reserved {
        let answer = kept.put(path, "of somebody else").await;
        assert_eq!(answer.status, 409, "{path}: {}", answer.text());
        assert!(answer.text().contains("use another name"), "{}", answer.text());
        assert_eq!(kept.post(path, "of somebody else").await.status, 409, "{path}");
        let answer = replaced.put(path, "of somebody else").await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    }
    for (path, before) in all.into_iter().zip(before) {
        let now = kept.get_with(path, &fields).await.body;
        assert_eq!(now, before, "{path}");
    }
    // Names of which nothing else depends.
    for path in [
        "/archive.tar.gz",
        "/folder/archive.gz",
        "/new/folder/app.js.gz",
        "/index.htm",
    ] {
        assert_eq!(kept.put(path, "some").await.status, 201, "{path}");
    }
}

#[tokio::test]
async fn of_a_file_and_its_sibling_that_arrive_at_once_one_is_stored() {
    let site = Site::with(|root| Settings {
        uploads: Uploads::Directory(root.to_owned()),
        precompressed: true,
        min_free_bytes: Some(0),
        ..Settings::default()
    });
    for round in 0..20 {
        let (plain, sibling) = (format!("/{round}.js"), format!("/{round}.js.gz"));
        let answers = tokio::join!(site.put(&plain, "one"), site.put(&sibling, "two"));
        let mut statuses = [answers.0.status.as_u16(), answers.1.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409]);
    }
    assert_eq!(site.names().len(), 20);
}

#[tokio::test]
async fn an_upload_is_no_route_of_an_application_unless_it_has_a_dot() {
    let site = Site::with(|root| Settings {
        uploads: Uploads::Directory(root.to_owned()),
        spa: true,
        listing: true,
        min_free_bytes: Some(0),
        ..Settings::default()
    });
    site.write("index.html", "the application");
    site.write("uploads/a", "");
    for path in [
        "/login",
        "/login/a.png",
        "/uploads/index.html",
        "/uploads/new/a.png",
    ] {
        let answer = site.put(path, "of somebody else").await;
        assert_eq!(answer.status, 409, "{path}: {}", answer.text());
    }
    assert_eq!(site.get("/login").await.text(), "the application");
    for path in ["/a.png", "/uploads/a.png", "/uploads/v1.0/a.png"] {
        assert_eq!(site.put(path, "some").await.status, 201, "{path}");
    }
    // The server gives names that no application has.
    assert_eq!(site.post("/uploads/", "some").await.status, 201);
}

#[tokio::test]
async fn uploads_that_are_not_served_may_have_any_name() {
    let site = Site::with(|root| {
        let uploads = root.parent().unwrap().join("incoming");
        std::fs::create_dir(&uploads).unwrap();
        Settings {
            uploads: Uploads::Directory(uploads),
            listing: true,
            spa: true,
            precompressed: true,
            min_free_bytes: Some(0),
            ..Settings::default()
        }
    });
    for path in ["/a.js", "/a.js.gz", "/index.html", "/login"] {
        assert_eq!(site.put(path, "some").await.status, 201, "{path}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_page_that_was_uploaded_is_none_of_this_server() {
    let site = |uploads: &'static str, overwrite| {
        let site = Site::with(|root| {
            std::fs::create_dir_all(root.join("in")).unwrap();
            std::os::unix::fs::symlink("in", root.join("link")).unwrap();
            Settings {
                uploads: Uploads::Directory(root.join(uploads)),
                overwrite,
                listing: true,
                error_page: Some("errors/404.html".to_owned()),
                min_free_bytes: Some(0),
                ..Settings::default()
            }
        });
        for name in [
            "a.html",
            "index.html",
            "errors/404.html",
            "in/a.html",
            "in/a.svg",
            "in/a.xml",
            "in/a.txt",
            "in/a.pdf",
        ] {
            site.write(name, "<script>alert(1)</script>");
        }
        site
    };
    let below = ["/in/a.html", "/link/a.html", "/in/a.svg", "/in/a.xml"];
    for (uploads, overwrite, others) in [
        ("in", false, &[][..]),
        ("in", true, &[]),
        (".", false, &["/a.html"]),
        (".", true, &["/a.html", "/", "/errors/404.html", "/missing"]),
    ] {
        let site = site(uploads, overwrite);
        for path in [
            "/a.html",
            "/",
            "/errors/404.html",
            "/missing",
            "/in/a.html",
            "/link/a.html",
            "/in/a.svg",
            "/in/a.xml",
            "/in/a.txt",
            "/in/a.pdf",
        ] {
            let expected = below.contains(&path) || others.contains(&path);
            for fields in [&[][..], &[("range", "bytes=0-3")]] {
                let answer = site.get_with(path, fields).await;
                let policy = answer.field("content-security-policy");
                assert_eq!(
                    policy.starts_with("sandbox "),
                    expected,
                    "{path} with uploads to {uploads}, {overwrite}"
                );
                assert!(!policy.contains("allow-same-origin"));
            }
        }
    }
}
