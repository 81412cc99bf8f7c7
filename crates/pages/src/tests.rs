//! How much fits onto one list.

use super::*;

fn file(length: u64) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.expect("a file system with O_TMPFILE"));
    file.set_len(length).unwrap();
    file
}

#[test]
fn a_list_for_the_pipe_has_64_pieces_32_mappings_and_as_many_pages_as_the_pipe_has_slots() {
    let mut pipe = Pipe::open().unwrap();
    let (file, record) = (file(2 << 20), Record::default());
    let source = Source {
        file: &file,
        record: &record,
    };

    let mut gather = Gather::new(&mut pipe).unwrap();
    let copies = (0..100).take_while(|_| gather.copy(b"x")).count();
    assert_eq!((copies, gather.octets(), gather.has_files()), (64, 64, false));
    assert_eq!(gather.refer(source, 0, 1).unwrap(), 0);
    drop(gather);

    let mut gather = Gather::new(&mut pipe).unwrap();
    let ranges = (0..100).take_while(|&at| gather.refer(source, at, 1).unwrap() == 1);
    assert_eq!(
        (ranges.count(), gather.octets(), gather.has_files()),
        (64, 64, true)
    );
    assert!(!gather.copy(b"x"));
    drop(gather);

    let mut gather = Gather::new(&mut pipe).unwrap();
    let apart = (0..100).take_while(|&at| gather.refer(source, 2 * at, 1).unwrap() == 1);
    assert_eq!((apart.count(), gather.octets()), (32, 32));
    drop(gather);

    let mut gather = Gather::new(&mut pipe).unwrap();
    assert_eq!(gather.refer(source, 1, 2 << 20).unwrap(), LONGEST - 1);
    assert_eq!(gather.octets(), LONGEST - 1);
    assert!(!gather.copy(b"x"), "no slot is left");
    assert_eq!(gather.refer(source, 0, 1).unwrap(), 0);
    drop(gather);

    // The memory for copies is smaller than the pipe.
    let mut gather = Gather::new(&mut pipe).unwrap();
    let copies = (0..100).take_while(|_| gather.copy(&[0; 4 << 10]));
    assert!((4..=16).contains(&copies.count()));
}
