//! Tests of response bodies.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use http_body_util::BodyExt as _;
use tempfile::TempDir;

use super::*;
use crate::buffers::Sizes;
use crate::disk::FileSystem;
use crate::source::Descriptors;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A file, and what bodies of it share.
struct Stage {
    folder: TempDir,
    content: Vec<u8>,
    jobs: Arc<Jobs>,
}

impl Stage {
    fn new(length: u64) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..length as usize).map(|at| (at % 251) as u8).collect();
        std::fs::write(folder.path().join("a"), &content).unwrap();
        Stage {
            folder,
            content,
            jobs: Jobs::new(8),
        }
    }

    fn context(&self, file_system: FileSystem, hands_over_ranges: bool) -> ReadContext {
        let root = Arc::new(Dir::open_ambient_dir(self.folder.path(), ambient_authority()).unwrap());
        let file = std::fs::File::open(self.folder.path().join("a")).unwrap();
        let sizes = Sizes {
            first: 4 << 10,
            most: 256 << 10,
            all: 64 << 20,
            whole: 0,
        };
        ReadContext {
            source: Source::new(file, file_system, None, &root, &Descriptors::new(9)),
            buffers: Buffers::new(sizes, 1),
            jobs: Arc::clone(&self.jobs),
            peer: None,
            hands_over_ranges,
        }
    }

    /// A body of all of the file.
    fn body(
        &self,
        file_system: FileSystem,
        hands_over_ranges: bool,
        blocking: Blocking,
    ) -> io::Result<ResponseBody> {
        let segments = VecDeque::from([Segment::File(0..self.content.len() as u64)]);
        ResponseBody::file(self.context(file_system, hands_over_ranges), segments, blocking)
    }
}

/// Reads a body to its end: how long its chunks are, and what they hold.
async fn read_all(mut body: ResponseBody) -> (Vec<u64>, Vec<u8>) {
    let (mut lengths, mut octets) = (Vec::new(), Vec::new());
    let all = body.size_hint().exact().unwrap();
    while let Some(frame) = body.frame().await {
        let chunk = frame.unwrap().into_data().unwrap();
        lengths.push(chunk.len() as u64);
        let chunk = http_body_util::Full::new(chunk)
            .collect()
            .await
            .unwrap()
            .to_bytes();
        octets.extend(&chunk);
        let left = all - octets.len() as u64;
        assert_eq!(body.size_hint().exact(), Some(left));
        assert_eq!(body.is_end_stream(), left == 0);
    }
    (lengths, octets)
}

#[tokio::test]
async fn a_body_in_memory_has_its_octets_once() {
    for (body, expected) in [
        (ResponseBody::empty(), vec![]),
        (ResponseBody::full(Bytes::new()), vec![]),
        (ResponseBody::full(Bytes::from("one")), vec![3]),
        (ResponseBody::memory(VecDeque::new()), vec![]),
        (
            ResponseBody::memory(VecDeque::from(
                ["one", "three"].map(|text| Segment::Memory(Bytes::from(text))),
            )),
            vec![3, 5],
        ),
    ] {
        let all: u64 = expected.iter().sum();
        assert_eq!(body.is_end_stream(), all == 0, "{body:?}");
        assert_eq!(body.size_hint().exact(), Some(all), "{body:?}");
        assert_eq!(read_all(body).await.0, expected);
    }
}

#[tokio::test]
async fn without_patience_only_what_is_in_memory_makes_a_body() {
    let stage = Stage::new(300 * KIB);
    for hands_over_ranges in [true, false] {
        for file_system in [FileSystem::PageCache, FileSystem::Unknown] {
            let body = stage.body(file_system, hands_over_ranges, Blocking::Forbidden);
            assert_eq!(
                body.unwrap_err().kind(),
                io::ErrorKind::WouldBlock,
                "{file_system:?}"
            );
        }
        let body = stage.body(FileSystem::Memory, hands_over_ranges, Blocking::Forbidden);
        assert!(read_all(body.unwrap()).await.1 == stage.content);
        assert_eq!(stage.jobs.begun(), 0);
    }
}

#[tokio::test]
async fn ranges_are_as_long_as_any_chunk_from_the_first_on() {
    let stage = Stage::new(3 * MIB + 5);
    for (file_system, blocking, jobs) in [
        (FileSystem::Memory, Blocking::Forbidden, 0..1),
        (FileSystem::PageCache, Blocking::Allowed, 3..10),
    ] {
        let before = stage.jobs.begun();
        let body = stage.body(file_system, true, blocking).unwrap();
        let (lengths, octets) = read_all(body).await;
        assert!(octets == stage.content, "{file_system:?}");
        assert_eq!(lengths[..12], [256 * KIB; 12], "{file_system:?}");
        assert_eq!(lengths[12..], [5], "{file_system:?}");
        // Stretches of 512 KiB, 1 MiB and the rest; more of them after a pause of a second.
        let begun = stage.jobs.begun() - before;
        assert!(jobs.contains(&begun), "{file_system:?}: {begun} jobs");
    }
}

#[tokio::test]
async fn chunks_that_are_read_begin_short_and_take_a_job_each_behind_the_first() {
    let stage = Stage::new(600 * KIB);
    let lengths = [4, 4, 8, 16, 32, 64, 128, 256, 88].map(|kib| kib * KIB);
    for (file_system, hands_over_ranges, jobs) in [
        (FileSystem::Unknown, true, 8),
        (FileSystem::Unknown, false, 8),
        (FileSystem::PageCache, false, 8),
        (FileSystem::Memory, false, 0),
    ] {
        let before = stage.jobs.begun();
        let body = stage
            .body(file_system, hands_over_ranges, Blocking::Allowed)
            .unwrap();
        let (found, octets) = read_all(body).await;
        assert!(octets == stage.content, "{file_system:?}");
        assert_eq!(found, lengths, "{file_system:?}");
        assert_eq!(
            stage.jobs.begun() - before,
            jobs,
            "{file_system:?} {hands_over_ranges}"
        );
    }
}

#[tokio::test]
async fn segments_keep_their_order_however_the_file_is_read() {
    let stage = Stage::new(600 * KIB);
    let text = |text| Segment::Memory(Bytes::from(text));
    for file_system in [FileSystem::Memory, FileSystem::PageCache, FileSystem::Unknown] {
        for hands_over_ranges in [true, false] {
            let segments = VecDeque::from([
                text("<"),
                Segment::File(300_000..310_000),
                text("|"),
                Segment::File(5..400_000),
                text("|"),
                Segment::File(614_399..614_400),
                text(">"),
            ]);
            let context = stage.context(file_system, hands_over_ranges);
            let body = ResponseBody::file(context, segments, Blocking::Allowed).unwrap();
            let (_, octets) = read_all(body).await;
            let of = |range: Range<usize>| &stage.content[range];
            let expected = [
                b"<",
                of(300_000..310_000),
                b"|",
                of(5..400_000),
                b"|",
                of(614_399..614_400),
                b">",
            ];
            assert!(octets == expected.concat(), "{file_system:?} {hands_over_ranges}");
        }
    }
}

#[tokio::test]
async fn a_file_that_became_shorter_fails_its_body_once_and_for_good() {
    for (file_system, hands_over_ranges) in [
        (FileSystem::PageCache, true),
        (FileSystem::Unknown, true),
        (FileSystem::Memory, false),
    ] {
        let stage = Stage::new(3 * MIB);
        let mut body = stage
            .body(file_system, hands_over_ranges, Blocking::Allowed)
            .unwrap();
        let path = stage.folder.path().join("a");
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(0)
            .unwrap();
        let first = body.frame().await.unwrap();
        assert!(first.is_ok(), "{file_system:?}: it had been read");
        let error = loop {
            match body.frame().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(
            error.kind(),
            io::ErrorKind::UnexpectedEof,
            "{file_system:?}: {error}"
        );
        assert!(body.frame().await.is_none(), "{file_system:?}");
        assert!(!body.is_end_stream(), "{file_system:?}");
        assert!(body.size_hint().exact() > Some(0), "{file_system:?}");
    }
}

#[tokio::test]
async fn each_stretch_is_as_long_as_all_before_it_from_256_kib_to_4_mib() {
    let stage = Stage::new(20 * MIB);
    let body = stage
        .body(FileSystem::PageCache, true, Blocking::Allowed)
        .unwrap();
    let Kind::File(mut body) = body.0 else {
        panic!("no body of a file");
    };
    assert_eq!(body.readahead.range, 0..256 * KIB);
    let mut lengths = Vec::new();
    while let Some(next) = body.next_stretch() {
        assert_eq!(next.start, body.readahead.range.end);
        lengths.push((next.end - next.start) / KIB);
        body.readahead.completed(next);
    }
    assert_eq!(lengths, [512, 1024, 2048, 4096, 4096, 4096, 4096, 256]);
    assert_eq!(body.readahead.range, 0..20 * MIB);
}

#[tokio::test]
async fn the_next_stretch_is_begun_when_half_of_the_last_one_is_left() {
    for (left, is_begun) in [(128 * KIB + 1, false), (128 * KIB, true), (0, true)] {
        let stage = Stage::new(MIB);
        let body = stage
            .body(FileSystem::PageCache, true, Blocking::Allowed)
            .unwrap();
        let Kind::File(mut body) = body.0 else {
            panic!("no body of a file");
        };
        assert_eq!(body.readahead.stretch, 256 * KIB);
        // The first chunk is ready to be given out, and the next one begins behind it.
        body.readahead.completed(256 * KIB..256 * KIB + left);
        body.continue_read_ahead();
        assert_eq!(body.readahead.job.is_some(), is_begun, "{left}");
        // It is begun once.
        body.continue_read_ahead();
        drop(body.readahead.job.take());
        assert!(stage.jobs.begun() <= 1);
    }
}

#[tokio::test]
async fn the_next_chunk_is_under_way_while_one_that_had_to_wait_is_given_out() {
    let stage = Stage::new(MIB);
    for (file_system, hands_over_ranges) in [
        (FileSystem::Unknown, true),
        (FileSystem::PageCache, true),
        (FileSystem::Memory, false),
    ] {
        for (blocking, is_under_way) in [(Blocking::Allowed, true), (Blocking::Forbidden, false)] {
            let Ok(mut body) = stage.body(file_system, hands_over_ranges, blocking) else {
                continue;
            };
            assert!(body.frame().await.unwrap().is_ok());
            let Kind::File(body) = body.0 else {
                panic!("no body of a file");
            };
            let found = match body.next {
                Next::Ready(_) | Next::Reading(_) => true,
                // The next stretch is on its way.
                Next::Idle => body.readahead.job.is_some(),
                Next::Failed => false,
            };
            assert_eq!(found, is_under_way, "{file_system:?} {blocking:?}");
        }
    }
}

#[test]
fn what_is_read_ahead_grows_by_what_follows_on_it_and_is_forgotten_after_a_second() {
    let mut readahead = Readahead {
        range: 0..0,
        since: Instant::now(),
        job: None,
        stretch: 0,
    };
    readahead.completed(10..20);
    assert_eq!(readahead.range, 10..20);
    readahead.completed(20..30);
    assert_eq!(readahead.range, 10..30);
    for (range, is_cached) in [(10..30, true), (15..15, true), (9..10, false), (29..31, false)] {
        assert_eq!(readahead.has(&range), is_cached, "{range:?}");
    }
    readahead.completed(40..50);
    assert_eq!(readahead.range, 40..50);
    readahead.since = readahead.since.checked_sub(CACHED_FOR).unwrap();
    assert!(!readahead.has(&(40..50)));
    readahead.completed(50..60);
    assert!(readahead.has(&(40..60)));
}
