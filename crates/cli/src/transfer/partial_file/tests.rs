//! Partial files on the disk of this machine.

use super::*;
use std::fs;
use std::io::Write as _;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn file(path: &Path, force: bool, files: usize) -> PartialFile {
    let target = Target::File {
        path: path.to_owned(),
        force,
    };
    let shared = Shared {
        files: Arc::new(Semaphore::new(files)),
        parts: Arc::new(Parts::of_user()),
        leftovers: Arc::default(),
    };
    PartialFile::new(target, shared)
}

fn key(version: u8) -> PartKey {
    PartKey {
        url: "http://h/a".to_owned(),
        version: vec![version],
    }
}

const SOUGHT: Role = Role {
    is_sought: true,
    supersedes: true,
};

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// As if the run were killed: its locks are lost, and its file is not.
fn kill(mut file: PartialFile) -> Result {
    let temporary = file.temporary.take().ok_or("no file")?;
    temporary.path.keep();
    std::mem::forget(temporary.claim);
    Ok(())
}

#[test]
fn a_file_has_its_name_only_once_it_is_complete() -> Result {
    for files in [0, 1] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.bin");
        let mut file = file(&path, false, files);
        file.append(&[Bytes::from_static(b"one "), Bytes::from_static(b"two ")])?;
        let while_written = names(folder.path())?;
        assert_eq!(while_written.len(), 1);
        assert!(while_written[0].starts_with(".a.bin.") && while_written[0].ends_with(".part"));
        assert_eq!(file.open.is_some(), files == 1);
        file.append(&[Bytes::from_static(b"three ")])?;
        file.finish(&[Bytes::from_static(b"four")])?;
        assert_eq!(fs::read(&path)?, b"one two three four");
        assert_eq!(names(folder.path())?, ["a.bin"]);
    }
    Ok(())
}

#[test]
fn a_dropped_draft_leaves_nothing() -> Result {
    let folder = tempfile::tempdir()?;
    let mut file = file(&folder.path().join("a"), false, 1);
    file.append(&[Bytes::from_static(b"half")])?;
    drop(file);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn what_is_cut_off_is_written_anew_and_counts_in_no_checksum() -> Result {
    for files in [0, 1] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut file = file(&path, false, files);
        let digest = ring::digest::digest(&ring::digest::SHA256, b"one two");
        let digits: String = digest
            .as_ref()
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect();
        file.expect(format!("sha256:{digits}").parse()?);
        file.append(&[Bytes::from_static(b"one three")])?;
        assert!(file.cut(4)?);
        file.finish(&[Bytes::from_static(b"two")])?;
        assert_eq!(fs::read(&path)?, b"one two", "{files}");
        let mut file = self::file(&path, true, files);
        file.append(&[Bytes::from_static(b"one three")])?;
        assert!(file.cut(4)?);
        file.finish(&[Bytes::from_static(b"two")])?;
        assert_eq!(fs::read(&path)?, b"one two", "{files}, without a checksum");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_was_left_is_found_by_its_mark_alone_and_by_one_at_a_time() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let mut first = file(&path, false, 1);
    first.set_key(key(7), SOUGHT);
    first.append(&[Bytes::from_static(b"half ")])?;
    assert_eq!(
        file(&path, false, 1).find(key(7), true),
        None,
        "it is being written"
    );
    assert!(first.leave());
    assert_eq!(file(&path, false, 1).find(key(8), true), None, "another version");
    assert_eq!(
        file(&path, false, 0).find(key(7), true),
        None,
        "no file may stay open"
    );
    let mut second = file(&path, false, 1);
    assert_eq!(second.find(key(7), true), Some(5));
    assert_eq!(
        file(&path, false, 1).find(key(7), true),
        None,
        "it is being written again"
    );
    second.append(&[Bytes::from_static(b"and ")])?;
    assert!(second.leave(), "it is interrupted again");
    let mut third = file(&path, false, 1);
    assert_eq!(third.find(key(7), true), Some(9));
    third.finish(&[Bytes::from_static(b"half")])?;
    assert_eq!(fs::read(&path)?, b"half and half");
    assert_eq!(names(folder.path())?, ["a"]);
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_file_that_somebody_replaces_while_it_is_written_never_gets_the_name() -> Result {
    // One that stays open, and one that is opened for each write.
    for files in [1, 0] {
        for by_link in [false, true] {
            let folder = tempfile::tempdir()?;
            let elsewhere = tempfile::tempdir()?;
            let path = folder.path().join("a");
            let other = elsewhere.path().join("other");
            fs::write(&other, b"of mine")?;
            let mut file = file(&path, true, files);
            file.append(&[Bytes::from_static(b"half ")])?;
            let temporary = folder.path().join(&names(folder.path())?[0]);
            fs::remove_file(&temporary)?;
            if by_link {
                std::os::unix::fs::symlink(&other, &temporary)?;
            } else {
                // The inode may be the same again: that others can write to it gives it away then.
                use std::os::unix::fs::PermissionsExt;
                fs::write(&temporary, b"foreign")?;
                fs::set_permissions(&temporary, fs::Permissions::from_mode(0o666))?;
            }
            let failure = file.finish(&[Bytes::from_static(b"and half")]);
            let failure = failure.err().ok_or("it was published")?;
            assert_eq!(failure.exit, crate::exit::Exit::LocalIo);
            assert!(!path.exists());
            assert_eq!(fs::read(&other)?, b"of mine");
        }
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_takes_the_place_of_a_device_is_not_overwritten() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    fs::write(&path, b"of mine")?;
    let file = file(&path, false, 1);
    let file = PartialFile::new(Target::Device(path.clone()), file.shared.clone());
    assert!(file.finish(&[Bytes::from_static(b"new")]).is_err());
    assert_eq!(fs::read(&path)?, b"of mine");
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_has_another_checksum_is_not_left_for_a_later_run_even_by_an_interrupt() -> Result {
    let folder = tempfile::tempdir()?;
    let mut file = file(&folder.path().join("a"), false, 1);
    file.shared.leftovers.interrupt();
    file.set_key(key(7), SOUGHT);
    file.expect(format!("sha256:{}", "0".repeat(64)).parse()?);
    file.append(&[Bytes::from_static(b"wrong")])?;
    assert!(file.finish(&[]).is_err());
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn a_draft_that_is_begun_anew_forgets_what_it_had() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let mut file = file(&path, false, 1);
    file.set_key(key(7), SOUGHT);
    file.append(&[Bytes::from_static(b"old")])?;
    assert!(file.restart());
    assert!(names(folder.path())?.is_empty());
    file.finish(&[Bytes::from_static(b"new")])?;
    assert_eq!(fs::read(&path)?, b"new");

    let mut file = self::file(&folder.path().join("b"), false, 1);
    file.set_key(key(7), SOUGHT);
    file.append(&[Bytes::from_static(b"old")])?;
    assert!(file.restart());
    file.append(&[Bytes::from_static(b"new")])?;
    assert!(!file.leave(), "it has no key any more");
    assert_eq!(names(folder.path())?, ["a"]);
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_went_to_a_device_cannot_be_taken_back() -> Result {
    let device = || {
        let file = file(Path::new("a"), false, 1);
        PartialFile::new(Target::Device("/dev/null".into()), file.shared.clone())
    };
    assert!(device().restart(), "nothing went there");
    let mut begun = device();
    begun.append(&[Bytes::from_static(b"some")])?;
    assert!(!begun.restart());
    // Nor is there anything that a later run would find.
    let mut begun = device();
    begun.set_key(key(7), SOUGHT);
    begun.append(&[Bytes::from_static(b"some")])?;
    assert!(!begun.leave());
    Ok(())
}

#[test]
fn a_name_taken_meanwhile_is_not_overwritten_without_force() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let mut late = file(&path, false, 1);
    late.append(&[Bytes::from_static(b"mine")])?;
    fs::write(&path, b"theirs")?;
    let failure = late.finish(&[]).err().ok_or("it was overwritten")?;
    assert_eq!(failure.exit, crate::exit::Exit::Exists);
    assert_eq!(fs::read(&path)?, b"theirs");
    // The complete file is not lost, and the message says where it is.
    let (_, kept) = failure
        .message
        .split_once(" is kept as ")
        .ok_or(failure.message.clone())?;
    assert_eq!(fs::read(kept)?, b"mine");
    fs::remove_file(kept)?;
    file(&path, true, 1).finish(&[Bytes::from_static(b"mine")])?;
    assert_eq!(fs::read(&path)?, b"mine");
    assert_eq!(names(folder.path())?, ["a"]);
    Ok(())
}

#[test]
fn an_empty_body_is_an_empty_file() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    file(&path, false, 1).finish(&[])?;
    assert_eq!(fs::read(&path)?, b"");
    Ok(())
}

#[test]
fn more_chunks_than_one_gathered_write_takes_are_all_written() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let chunks: Vec<Bytes> = (0..5_000_u32)
        .map(|n| Bytes::copy_from_slice(&n.to_be_bytes()))
        .collect();
    file(&path, false, 1).finish(&chunks)?;
    assert_eq!(fs::read(&path)?, chunks.concat());
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_complete_file_has_the_permissions_of_any_new_file() -> Result {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    file(&path, false, 1).finish(&[])?;
    let other = folder.path().join("b");
    fs::write(&other, b"")?;
    assert_eq!(
        fs::metadata(&path)?.permissions().mode(),
        fs::metadata(&other)?.permissions().mode()
    );
    Ok(())
}

/// A file that a later run looks for, with the state of a user in `state`, in one start of the machine.
fn sought(path: &Path, state: &Path, boot: &str) -> PartialFile {
    let mut file = file(path, false, 1);
    let mut parts = Parts::of_user();
    (parts.boot, parts.state) = (boot.to_owned(), Some(state.to_owned()));
    file.shared.parts = Arc::new(parts);
    file.set_key(key(7), SOUGHT);
    file
}

#[cfg(unix)]
#[test]
fn a_complete_file_that_lost_its_name_is_found_by_a_run_that_may_replace_it() -> Result {
    let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let path = folder.path().join("a");
    let mut late = sought(&path, state.path(), "1");
    late.append(&[Bytes::from_static(b"mine")])?;
    fs::write(&path, b"theirs")?;
    assert!(late.finish(&[]).is_err());
    let mut again = sought(&path, state.path(), "2");
    again.target = Target::File {
        path: path.clone(),
        force: true,
    };
    assert_eq!(again.find(key(7), true), Some(4));
    again.finish(&[])?;
    assert_eq!(fs::read(&path)?, b"mine");
    assert_eq!(names(folder.path())?, ["a"]);
    Ok(())
}

#[cfg(unix)]
#[test]
fn after_a_restart_of_the_machine_only_what_was_left_is_found() -> Result {
    for is_left in [true, false] {
        let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let path = folder.path().join("a");
        let mut first = sought(&path, state.path(), "1");
        first.append(&[Bytes::from_static(b"half")])?;
        match is_left {
            true => assert!(first.leave()),
            false => kill(first)?,
        }
        assert_eq!(names(folder.path())?, ["a.part", "a.part.json"]);
        let found = sought(&path, state.path(), "2").find(key(7), true);
        assert_eq!(found, is_left.then_some(4));
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_was_left_and_is_written_again_is_not_found_after_a_restart() -> Result {
    let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let path = folder.path().join("a");
    let mut first = sought(&path, state.path(), "1");
    first.append(&[Bytes::from_static(b"half")])?;
    assert!(first.leave());
    let mut second = sought(&path, state.path(), "1");
    assert_eq!(second.find(key(7), true), Some(4));
    kill(second)?;
    assert_eq!(sought(&path, state.path(), "2").find(key(7), true), None);
    assert_eq!(sought(&path, state.path(), "1").find(key(7), true), Some(4));
    Ok(())
}

/// A file system without locks.
fn without_locks(file: &mut PartialFile, state: Option<&Path>) {
    let mut parts = Parts::of_user();
    parts.lock = |_, _| private::Lock::Unsupported;
    parts.state = state.map(Path::to_owned);
    file.shared.parts = Arc::new(parts);
}

#[cfg(unix)]
#[test]
fn where_a_file_system_has_no_locks_the_state_folder_has_one() -> Result {
    let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let path = folder.path().join("a");
    let new = || {
        let mut file = sought(&path, state.path(), "1");
        without_locks(&mut file, Some(state.path()));
        file
    };
    let mut first = new();
    first.append(&[Bytes::from_static(b"half ")])?;
    assert_eq!(new().find(key(7), true), None, "it is being written");
    assert!(first.leave());
    let mut second = new();
    assert_eq!(second.find(key(7), true), Some(5));
    second.append(&[Bytes::from_static(b"and ")])?;
    assert_eq!(new().find(key(7), true), None, "it is being written again");
    second.finish(&[Bytes::from_static(b"half")])?;
    assert_eq!(fs::read(&path)?, b"half and half");
    assert_eq!(names(folder.path())?, ["a"]);
    assert!(names(state.path())?.is_empty(), "a lock is left");
    Ok(())
}

#[cfg(unix)]
#[test]
fn where_there_are_no_locks_at_all_no_part_is_left() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    for end in ["leave", "finish"] {
        let mut file = file(&path, false, 1);
        without_locks(&mut file, None);
        file.set_key(key(7), SOUGHT);
        file.append(&[Bytes::from_static(b"half")])?;
        match end {
            "leave" => assert!(!file.leave()),
            _ => file.finish(&[])?,
        }
    }
    assert_eq!(names(folder.path())?, ["a"]);
    Ok(())
}

/// What is in the folder but records.
fn parts(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = names(folder)?;
    names.retain(|name| !name.ends_with(".json"));
    Ok(names)
}

/// Leaves a part for this file.
fn leave(path: &Path, key: PartKey) -> Result {
    let mut file = file(path, false, 1);
    file.set_key(key, SOUGHT);
    file.append(&[Bytes::from_static(b"old")])?;
    assert!(file.leave());
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_part_of_an_older_version_is_removed_by_a_newer_one_and_no_other() -> Result {
    // A version that a later run looks for, one that is too small for that, and one behind a redirect.
    for (is_sought, supersedes) in [(true, true), (false, true), (true, false), (false, false)] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let url = "http://h/b".to_owned();
        leave(&path, key(7))?;
        leave(&folder.path().join("b"), key(7))?;
        leave(&path, PartKey { url, ..key(7) })?;
        let mut written = file(&path, false, 1);
        written.set_key(key(8), SOUGHT);
        written.append(&[Bytes::from_static(b"being written")])?;
        // Its own, and those of another URL and name.
        assert_eq!(parts(folder.path())?, ["a.2.part", "a.part", "b.part"]);

        leave(&path, key(7))?;
        let mut newer = file(&path, false, 1);
        newer.set_key(
            key(9),
            Role {
                is_sought,
                supersedes,
            },
        );
        newer.finish(&[Bytes::from_static(b"new")])?;
        assert_eq!(fs::read(&path)?, b"new");
        let older: &[&str] = if supersedes { &[] } else { &["a.3.part"] };
        let expected = [&["a", "a.2.part"], older, &["a.part", "b.part"]].concat();
        assert_eq!(parts(folder.path())?, expected, "{is_sought} {supersedes}");
        assert_eq!(names(folder.path())?.len(), 2 * expected.len() - 1, "records");
        assert!(written.leave(), "what another run writes is not removed");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn files_of_other_programs_that_have_the_names_of_a_part_stay_as_they_are() -> Result {
    for name in ["a.part", "a.part.json"] {
        // Another program's, and what took the place of a part whose record a run that was killed has left.
        for is_killed in [false, true] {
            let folder = tempfile::tempdir()?;
            let (path, foreign) = (folder.path().join("a"), folder.path().join(name));
            if is_killed {
                let mut killed = file(&path, false, 1);
                killed.set_key(key(7), SOUGHT);
                killed.append(&[Bytes::from_static(b"half")])?;
                kill(killed)?;
                fs::remove_file(&foreign)?;
            }
            fs::write(&foreign, b"of mine")?;
            if foreign.metadata()?.created().is_err() {
                eprintln!(
                    "skipped: {} does not know when a file was created",
                    folder.path().display()
                );
                return Ok(());
            }
            let mut file = file(&path, false, 1);
            assert_eq!(file.find(key(7), true), None, "{name}");
            file.append(&[Bytes::from_static(b"half ")])?;
            assert!(file.leave());
            let mut again = self::file(&path, false, 1);
            assert_eq!(again.find(key(7), true), Some(5), "under another name");
            again.finish(&[Bytes::from_static(b"and half")])?;
            assert_eq!(fs::read(&path)?, b"half and half");
            assert_eq!(fs::read(&foreign)?, b"of mine", "{name}");
        }
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_a_kill_or_a_power_failure_left_without_a_record_is_replaced() -> Result {
    // The record has a name and no bytes yet; or the part had no record.
    for (part, record) in [("", Some("")), ("", None)] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        fs::write(folder.path().join("a.part"), part)?;
        if let Some(record) = record {
            fs::write(folder.path().join("a.part.json"), record)?;
        }
        let mut file = file(&path, false, 1);
        assert_eq!(file.find(key(7), false), None);
        file.append(&[Bytes::from_static(b"new")])?;
        assert_eq!(names(folder.path())?, ["a.part", "a.part.json"]);
        file.finish(&[])?;
        assert_eq!(fs::read(&path)?, b"new");
        assert_eq!(names(folder.path())?, ["a"]);
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_part_with_bytes_whose_record_says_nothing_stays_and_so_does_the_record() -> Result {
    // After a power failure, or of another program.
    for record in ["", "\0\0\0", "{}"] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        fs::write(folder.path().join("a.part"), "half")?;
        fs::write(folder.path().join("a.part.json"), record)?;
        fs::write(folder.path().join("b.part.json"), record)?;
        let mut file = file(&path, false, 1);
        assert_eq!(file.find(key(7), false), None);
        file.append(&[Bytes::from_static(b"new")])?;
        file.finish(&[])?;
        assert_eq!(fs::read(folder.path().join("a.part"))?, b"half", "{record:?}");
        assert_eq!(
            names(folder.path())?,
            ["a", "a.part", "a.part.json", "b.part.json"]
        );
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_another_program_has_appended_to_a_part_is_cut_off() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let mut first = file(&path, false, 1);
    first.set_key(key(7), SOUGHT);
    first.append(&[Bytes::from_static(b"half")])?;
    assert!(first.leave());
    let part = folder.path().join("a.part");
    fs::OpenOptions::new()
        .append(true)
        .open(&part)?
        .write_all(b"of something else")?;
    let mut second = file(&path, false, 1);
    assert_eq!(second.find(key(7), false), Some(4));
    second.append(&[Bytes::from_static(b" more")])?;
    assert!(second.leave());
    fs::OpenOptions::new().write(true).open(&part)?.set_len(2)?;
    assert_eq!(
        file(&path, false, 1).find(key(7), false),
        None,
        "bytes are missing"
    );
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_part_that_has_become_another_ones_is_not_removed() -> Result {
    for ends in [true, false] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut first = file(&path, false, 1);
        first.set_key(key(7), SOUGHT);
        first.append(&[Bytes::from_static(b"half")])?;
        for name in names(folder.path())? {
            fs::remove_file(folder.path().join(name))?;
        }
        let mut second = file(&path, false, 1);
        second.set_key(key(7), SOUGHT);
        second.append(&[Bytes::from_static(b"whole")])?;
        match ends {
            true => assert!(first.finish(&[]).is_err()),
            false => drop(first),
        }
        assert_eq!(names(folder.path())?, ["a.part", "a.part.json"]);
        second.finish(&[])?;
        assert_eq!(fs::read(&path)?, b"whole");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn hidden_parts_of_version_0_1_are_removed_and_nothing_like_them() -> Result {
    let folder = tempfile::tempdir()?;
    let digits = "0123456789abcdef".repeat(3);
    let hidden = format!(".a.{digits}.part");
    let mut others = [
        format!(".b.{digits}.part"),
        format!(".a.{}.part", &digits[1..]),
        format!(".a.x{}.part", &digits[1..]),
        format!(".a.{digits}.Part"),
        format!("a.{digits}.part"),
    ];
    others.sort();
    for name in others.iter().chain([&hidden]) {
        fs::write(folder.path().join(name), "some")?;
    }
    let mut file = file(&folder.path().join("a"), false, 1);
    file.set_key(key(7), SOUGHT);
    file.append(&[Bytes::from_static(b"new")])?;
    drop(file);
    assert_eq!(names(folder.path())?, others);
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_record_that_a_kill_has_left_behind_its_part_is_removed_when_another_part_is_begun() -> Result {
    let folder = tempfile::tempdir()?;
    leave(&folder.path().join("a"), key(7))?;
    fs::rename(folder.path().join("a.part"), folder.path().join("a"))?;
    fs::write(folder.path().join("c.part.json"), "{}")?;
    leave(&folder.path().join("b"), key(7))?;
    assert_eq!(
        names(folder.path())?,
        ["a", "b.part", "b.part.json", "c.part.json"],
        "what is no record stays"
    );
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_part_of_the_longest_name_is_found() -> Result {
    let folder = tempfile::tempdir()?;
    // Two bytes each, from an odd place on.
    let path = folder.path().join(format!("a{}", "é".repeat(127)));
    leave(&path, key(7))?;
    let mut file = file(&path, false, 1);
    assert_eq!(file.find(key(7), true), Some(3));
    file.finish(&[])?;
    assert_eq!(fs::read(&path)?, b"old");
    assert_eq!(names(folder.path())?.len(), 1);
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_record_is_private_and_has_no_query() -> Result {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    let url = "http://h/a?token=secret#here".to_owned();
    leave(&folder.path().join("a"), PartKey { url, ..key(7) })?;
    let path = folder.path().join("a.part.json");
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o7777, 0o600);
    let record: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    assert_eq!(record["url"], "http://h/a");
    assert_eq!(record["written_in"], serde_json::Value::Null);
    assert!(!record.to_string().contains("secret"), "{record}");
    Ok(())
}
