//! Attempts to leave the root. Beside it lies a file whose text must never be sent.

use http::Uri;

use super::*;

const SECRET: &str = "the text outside";

fn site() -> Site {
    let site = Site::new();
    std::fs::write(site.outside.join("secret.txt"), SECRET).unwrap();
    std::fs::create_dir(site.outside.join("beside")).unwrap();
    std::fs::write(site.outside.join("beside/index.html"), SECRET).unwrap();
    site.write("inside.txt", "inside");
    site.write("sub/deep.txt", "deep");
    site
}

fn is_refusal(answer: &Answer) -> bool {
    matches!(answer.status.as_u16(), 400 | 403 | 404)
        && !answer.body.windows(4).any(|octets| octets == b"text")
}

#[tokio::test]
async fn no_path_leads_out() {
    let site = site();
    let absolute = site.outside.join("secret.txt");
    let absolute = absolute.to_str().unwrap();
    let escaped = absolute.replace('/', "%2f");
    let paths = [
        "/../secret.txt",
        "/../../secret.txt",
        "/../root/../secret.txt",
        "/sub/../../secret.txt",
        "/sub/../inside.txt",
        "/./../secret.txt",
        "/..",
        "/../",
        "/../beside/",
        "/sub/../../beside/",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/%2e./secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/sub/..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/sub\\..\\..\\secret.txt",
        "/%2e%2e%5csecret.txt",
        "/%252e%252e/secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/..%252fsecret.txt",
        "/%25252e%25252e/secret.txt",
        "/..%c0%afsecret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%e0%80%ae%e0%80%ae/secret.txt",
        "/%uff0e%uff0e/secret.txt",
        "/%EF%BC%8E%EF%BC%8E/secret.txt",
        "/..%00/secret.txt",
        "/../secret.txt%00",
        "/../secret.txt%00.html",
        "/inside.txt%00",
        "/....//secret.txt",
        "/...//secret.txt",
        "/..;/secret.txt",
        "/..%20/secret.txt",
        "/%20../secret.txt",
        "/..//secret.txt",
        "//../secret.txt",
        "///../../secret.txt",
        "/%2e%2e//secret.txt",
        "/sub/%2e%2e/%2e%2e/secret.txt",
        "/inside.txt/../../secret.txt",
        "/%2f..%2fsecret.txt",
        "/../../../../../../../../../../etc/passwd",
        "/%2fetc%2fpasswd",
        "//etc/passwd",
        "/C:/secret.txt",
        "/file:///etc/passwd",
        "/~/secret.txt",
        "/~root/secret.txt",
        "/proc/self/cwd/secret.txt",
        "/%zz../secret.txt",
        "/%",
        absolute,
        &format!("/{absolute}"),
        &format!("/{escaped}"),
    ];
    for path in paths {
        // What is no URI cannot be asked for.
        if path.parse::<Uri>().is_err() {
            continue;
        }
        for method in [Method::GET, Method::HEAD] {
            let answer = site.ask(method, path, &[]).await;
            assert!(is_refusal(&answer), "{path}: {}", answer.status);
            assert_eq!(answer.field("etag"), "", "{path}");
        }
    }
    assert!(paths.len() >= 50);
    assert_eq!(site.get("/inside.txt").await.text(), "inside");
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_followed_only_as_far_as_they_stay_inside() {
    use std::os::unix::fs::symlink;

    let site = site();
    let root = site.root.clone();
    let link = |to: &str, name: &str| symlink(to, root.join(name)).unwrap();
    link("inside.txt", "in");
    link("in", "in-chain");
    link("sub", "in-dir");
    link("../inside.txt", "sub/in-up");
    link("sub/../inside.txt", "in-around");
    for (path, text) in [
        ("/in", "inside"),
        ("/in-chain", "inside"),
        ("/in-dir/deep.txt", "deep"),
        ("/sub/in-up", "inside"),
        ("/in-dir/in-up", "inside"),
        ("/in-around", "inside"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.text(), text);
    }

    let secret = site.outside.join("secret.txt");
    link("../secret.txt", "out");
    link("out", "out-chain");
    link("..", "out-dir");
    link("../beside", "out-beside");
    link("../../secret.txt", "sub/out-deep");
    link("../root/inside.txt", "out-and-in");
    link(secret.to_str().unwrap(), "out-absolute");
    link("/", "out-slash");
    link("/proc/self/root", "out-proc");
    link(root.join("inside.txt").to_str().unwrap(), "in-absolute");
    link("nowhere", "dangling");
    for path in [
        "/out",
        "/out-chain",
        "/out-dir/secret.txt",
        "/out-dir/",
        "/out-dir",
        "/out-beside",
        "/out-beside/",
        "/sub/out-deep",
        "/in-dir/out-deep",
        "/out-and-in",
        "/out-absolute",
        "/out-slash",
        "/out-slash/etc/passwd",
        "/out-proc/etc/passwd",
        "/in-absolute",
        "/dangling",
    ] {
        let answer = site.get(path).await;
        assert!(is_refusal(&answer), "{path}: {}", answer.status);
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere() {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let site = site();
    // `door` is in turn a directory inside, and a link to the one outside.
    site.write("real/index.html", "inside");
    symlink("../beside", site.path("link")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (root, done) = (site.root.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let door = root.join("door");
            while !done.load(Ordering::Relaxed) {
                for name in ["real", "link"] {
                    std::fs::rename(root.join(name), &door).unwrap();
                    std::fs::rename(&door, root.join(name)).unwrap();
                }
            }
        })
    };
    for _ in 0..500 {
        let answer = site.get("/door/index.html").await;
        assert_ne!(answer.text(), SECRET);
        assert!(
            answer.text() == "inside" || is_refusal(&answer),
            "{}",
            answer.status
        );
    }
    done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
}

#[tokio::test]
async fn hidden_files_are_not_found_unless_they_are_to_be_served() {
    let paths = [
        "/.git/config",
        "/.env",
        "/%2eenv",
        "/sub/.htpasswd",
        "/.hidden/",
        "/.hidden",
        "/sub/.well-known/a",
        "/.well-known/.secret",
    ];
    let site = |hidden: bool| {
        let site = Site::with(|_| Settings {
            hidden,
            ..Settings::default()
        });
        for path in [".git/config", ".env", "sub/.htpasswd", ".hidden/index.html"] {
            site.write(path, "hidden text");
        }
        site.write("sub/.well-known/a", "hidden text");
        site.write(".well-known/.secret", "hidden text");
        site.write(".well-known/acme-challenge/token", "for all");
        site
    };
    let closed = site(false);
    for path in paths {
        for method in [Method::GET, Method::HEAD] {
            let answer = closed.ask(method, path, &[]).await;
            assert_eq!(answer.status, 404, "{path}");
            assert!(is_refusal(&answer), "{path}");
        }
    }
    assert_eq!(
        closed.get("/.well-known/acme-challenge/token").await.text(),
        "for all"
    );
    let open = site(true);
    for path in paths.iter().filter(|path| **path != "/.hidden") {
        assert_eq!(open.get(path).await.text(), "hidden text", "{path}");
    }
}
