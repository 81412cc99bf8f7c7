//! How many blocking jobs requests take: each costs several times the rest of a request, and a queue that others wait in.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use fullbore::body::Chunk;
use fullbore::server::PeerAddr;
use rustix::fs::{Advice, fadvise, statfs};

use super::*;
use crate::settings::Limits;

const MIB: usize = 1 << 20;

/// Names the root for the test that runs on a file system of its own.
const OVERLAY: &str = "FULLBORE_TEST_OVERLAY";

/// What the parent of that test takes for "this machine cannot do it".
const NO_OVERLAY: i32 = 77;

fn with_ranges(root: &Path) -> Files<Chunk> {
    Files::open_with_ranges(root, Settings::default()).unwrap()
}

fn begun<D>(files: &Files<D>) -> usize {
    files.shared_for_tests().jobs.begun()
}

async fn fetch(files: &Files<Chunk>, path: &str) -> Answer {
    let request = request(Method::GET, path, &[], Empty::<Bytes>::new());
    let Ok::<_, Infallible>(response) = files.clone().call(request).await;
    Answer::read(response).await
}

#[tokio::test]
async fn a_name_that_is_not_there_takes_a_job_the_first_time_only() {
    /// A file system that remembers no names that it does not have.
    const TMPFS: i64 = 0x0102_1994;
    let site = Site::new();
    // The type has another width on other architectures.
    #[allow(clippy::useless_conversion)]
    let kind = i64::from(statfs(&site.root).unwrap().f_type);
    for _ in 0..50 {
        assert_eq!(site.get("/nobody/knows").await.status, 404);
        assert_eq!(site.get("/nothing.txt").await.status, 404);
    }
    let jobs = begun(&site.files);
    match kind == TMPFS {
        true => assert_eq!(jobs, 100, "tmpfs"),
        false => assert!(jobs <= 2, "{jobs} jobs for 100 requests"),
    }
    // What was not there is found at once when it is.
    site.write("nothing.txt", "something");
    assert_eq!(site.get("/nothing.txt").await.text(), "something");
}

#[tokio::test]
async fn what_is_not_in_memory_is_brought_there_in_long_stretches() {
    let site = Site::over(with_ranges);
    let content = pattern(20 * MIB + 5);
    site.write("long", &content);
    let file = std::fs::File::open(site.path("long")).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert!(fetch(&site.files, "/long").await.body == content);
    let jobs = begun(&site.files);
    // With one for each chunk of 256 KiB there were 85.
    // 9, and one more for each pause of a second.
    println!("{jobs} jobs for 20 MiB");
    assert!(jobs <= 40, "{jobs} jobs for 20 MiB");
    // It is there now.
    assert!(fetch(&site.files, "/long").await.body == content);
    assert!(begun(&site.files) <= jobs + 40, "{} jobs", begun(&site.files));
}

#[tokio::test]
async fn a_file_that_becomes_shorter_before_it_is_in_memory_fails_its_body_alone() {
    let site = Site::over(with_ranges);
    site.write("long", pattern(20 * MIB));
    let file = std::fs::File::options()
        .write(true)
        .open(site.path("long"))
        .unwrap();
    let request = request(Method::GET, "/long", &[], Empty::<Bytes>::new());
    let mut body = site.call(request).await.into_body();
    file.set_len(MIB as u64).unwrap();
    let mut seen = 0;
    let error = loop {
        match body.frame().await.expect("no short body passes for a whole one") {
            Ok(frame) => seen += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert!(seen <= MIB, "{seen}");
    assert!(!body.is_end_stream());
}

#[tokio::test]
async fn a_peer_has_few_jobs_at_a_time_and_all_its_answers_in_the_end() {
    let site = Site::with(|_| Settings {
        limits: Limits {
            jobs_per_peer: 2,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    site.write("a", "here");
    let ask = |number: usize| {
        // Names that nobody has asked for, so that each takes a job.
        let mut request = request(Method::GET, &format!("/no{number}"), &[], Empty::<Bytes>::new());
        let address = SocketAddr::new(IpAddr::from([10, 0, 0, 1]), 9);
        request.extensions_mut().insert(PeerAddr(address));
        tokio::spawn(site.files.clone().call(request))
    };
    let asked: Vec<_> = (0..200).map(ask).collect();
    // Half of them are given up, and the others are answered.
    for (number, answer) in asked.into_iter().enumerate() {
        match number % 2 {
            0 => answer.abort(),
            _ => assert_eq!(answer.await.unwrap().unwrap().status(), 404),
        }
    }
    assert!(begun(&site.files) >= 100, "{} jobs", begun(&site.files));
}

/// Runs the test below on an overlay, as containers have it, in a mount namespace of its own.
#[test]
fn on_an_overlay_files_are_brought_into_memory_in_long_stretches() {
    let home = tempfile::tempdir().unwrap();
    let script = format!(
        "cd '{}' && mkdir lower upper work root && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root \
         || exit {NO_OVERLAY}; {OVERLAY}=$PWD/root exec '{}' --ignored --exact tests::jobs::overlay",
        home.path().display(),
        std::env::current_exe().unwrap().display(),
    );
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output();
    let Ok(output) = ran else {
        eprintln!("skipped: there is no `unshare` here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_OVERLAY) || said.contains("unshare failed") {
        eprintln!("skipped: an overlay cannot be mounted here: {said}");
        return;
    }
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "runs on an overlay that another test mounts"]
async fn overlay() {
    let root = PathBuf::from(std::env::var_os(OVERLAY).expect("the folder in which the overlay is"));
    let content = pattern(100 * MIB);
    std::fs::write(root.join("long"), &content).unwrap();
    std::fs::write(root.join("short"), "short").unwrap();
    assert_eq!(std::fs::metadata(root.join("long")).unwrap().size(), 100 << 20);
    let files = with_ranges(&root);
    assert!(fetch(&files, "/long").await.body == content);
    let jobs = begun(&files);
    // 29, and one more for each pause of a second. With one for each chunk there were 754.
    println!("{jobs} jobs for 100 MiB");
    assert!(jobs <= 100, "{jobs} jobs for 100 MiB");
    // One that is gone is known to be, there too.
    for _ in 0..20 {
        assert_eq!(fetch(&files, "/none").await.status, 404);
    }
    assert!(begun(&files) <= jobs + 1, "{} jobs", begun(&files) - jobs);
}
