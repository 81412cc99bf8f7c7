//! `--compressed` and `--max-filesize`: what a small response may make of the memory and the disk.

use crate::support::{Ended, TestResult, http1, names, run};

/// A zstd frame (RFC 8878) with a window of so many bits, and blocks of 128 KiB that repeat one octet.
fn zstd(window_log: u8, blocks: u32) -> Vec<u8> {
    let mut octets = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    for block in 1..=blocks {
        let header = (128 << 10) << 3 | 1 << 1 | u32::from(block == blocks);
        octets.extend(&header.to_le_bytes()[..3]);
        octets.push(b'x');
    }
    octets
}

/// Gets one body with this coding into the file `out`.
fn get(coding: &'static str, body: Vec<u8>, options: &[&str]) -> TestResult<(Ended, Vec<String>)> {
    let fields = match coding {
        "" => String::new(),
        coding => format!("content-encoding: {coding}\r\n"),
    };
    let origin = http1::serve(move |_, _| http1::ok(&fields, &body))?;
    let folder = tempfile::tempdir()?;
    let args = ["get", "--http1.1", "--compressed", "-o", "out", &origin];
    let ended = run(folder.path(), [&args[..], options].concat())?;
    if ended.code == Some(0) {
        let stored = std::fs::read(folder.path().join("out"))?;
        assert!(stored.iter().all(|octet| *octet == b'x'), "wrong bytes");
    }
    Ok((ended, names(folder.path())?))
}

#[test]
fn a_window_beyond_its_rfc_is_refused_before_it_takes_memory() -> TestResult {
    let (ended, files) = get("zstd", zstd(23, 80), &[])?;
    ended.succeeded();
    assert_eq!(files, ["out"]);
    for (coding, body, limit) in [
        (
            "zstd",
            zstd(24, 1),
            "its window is larger than the 8 MiB of RFC 9659",
        ),
        (
            "zstd",
            zstd(27, 1),
            "its window is larger than the 8 MiB of RFC 9659",
        ),
        // The first octets of a stream of `brotli --large_window=30`.
        (
            "br",
            vec![0x91, 30, 0, 0],
            "its window is larger than the 16 MiB of RFC 7932",
        ),
    ] {
        let (ended, files) = get(coding, body, &[])?;
        ended.failed_with(9);
        assert!(ended.stderr.contains(limit), "{ended:?}");
        assert!(files.is_empty(), "{files:?}");
    }
    Ok(())
}

#[test]
fn bodies_that_together_need_more_memory_than_decoders_may_have_take_turns() -> TestResult {
    let origin = http1::serve(|_, _| http1::ok("content-encoding: zstd\r\n", &zstd(23, 2)))?;
    let folder = tempfile::tempdir()?;
    let urls: Vec<String> = (0..50).map(|number| format!("{origin}/{number}")).collect();
    let mut args = vec![
        "get",
        "--http1.1",
        "--compressed",
        "--dir",
        ".",
        "--connections",
        "50",
    ];
    args.extend(urls.iter().map(String::as_str));
    run(folder.path(), args)?.succeeded();
    let files = names(folder.path())?;
    assert_eq!(files.len(), 50);
    for file in files {
        assert_eq!(std::fs::metadata(folder.path().join(file))?.len(), 256 << 10);
    }
    Ok(())
}

#[test]
fn a_body_beyond_max_filesize_is_refused_and_decoded_bytes_count() -> TestResult {
    let of_two_blocks = 256 << 10;
    for (coding, body, most, code) in [
        ("", vec![b'x'; 1_000], 1_000, 0),
        ("", vec![b'x'; 1_001], 1_000, 23),
        ("zstd", zstd(17, 2), of_two_blocks, 0),
        ("zstd", zstd(17, 2), of_two_blocks - 1, 23),
        ("zstd", zstd(17, 200_000), 1 << 20, 23),
    ] {
        let most = most.to_string();
        let (ended, files) = get(coding, body, &["--max-filesize", &most])?;
        match code {
            0 => ended.succeeded(),
            code => {
                ended.failed_with(code);
                let text = format!("larger than the {most} bytes of --max-filesize");
                assert!(ended.stderr.contains(&text), "{ended:?}");
                assert!(files.is_empty(), "{files:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_body_that_decodes_to_gigabytes_ends_at_max_filesize_when_it_is_discarded() -> TestResult {
    // 25 GiB in 800 KB.
    let body = zstd(17, 200_000);
    let origin = http1::serve(move |_, _| http1::ok("content-encoding: zstd\r\n", &body))?;
    let folder = tempfile::tempdir()?;
    let args = [
        "get",
        "--http1.1",
        "--compressed",
        "--discard",
        "--max-filesize",
        "10MiB",
        &origin,
    ];
    run(folder.path(), args)?.failed_with(23);
    Ok(())
}

#[test]
fn gzip_may_have_members_and_padding_and_deflate_no_header_as_other_clients_take_them() -> TestResult {
    // One stored block (RFC 1951 section 3.2.4), in gzip and zlib.
    let raw = b"\x01\x03\x00\xfc\xffxxx";
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let gzip = [
        &header[..],
        raw,
        &0x1c9bea0a_u32.to_le_bytes(),
        &3_u32.to_le_bytes(),
    ]
    .concat();
    let zlib = [&[0x78, 1][..], raw, &0x02d30169_u32.to_be_bytes()].concat();
    let body = |parts: &[&[u8]]| parts.concat();
    for (coding, body, length) in [
        ("gzip", body(&[&gzip]), Some(3)),
        ("gzip", body(&[&gzip, &gzip]), Some(6)),
        ("gzip", body(&[&gzip, &gzip, &[0; 10_000]]), Some(6)),
        ("gzip", body(&[&gzip, &[0]]), Some(3)),
        ("gzip", body(&[&gzip, &[0; 9], &gzip]), None),
        ("gzip", body(&[&gzip, b"other"]), None),
        ("gzip", body(&[&gzip, &gzip[..20]]), None),
        ("gzip", gzip[..22].to_vec(), None),
        ("deflate", zlib.clone(), Some(3)),
        ("deflate", zlib[..12].to_vec(), None),
        ("deflate", raw.to_vec(), Some(3)),
        ("deflate", raw[..7].to_vec(), None),
    ] {
        let case = format!("{coding} {body:?}");
        let origin = http1::serve(move |_, _| http1::ok(&format!("content-encoding: {coding}\r\n"), &body))?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--http1.1", "--compressed", &origin])?;
        match length {
            Some(length) => {
                assert_eq!(ended.code, Some(0), "{case}: {ended:?}");
                assert_eq!(ended.stdout, vec![b'x'; length], "{case}");
            }
            None => assert_eq!(ended.code, Some(9), "{case}: {ended:?}"),
        }
    }
    Ok(())
}
