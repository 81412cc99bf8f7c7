//! What the decoder refuses, what it bounds, and what it forgives.

use super::*;

fn error(block: &[u8]) -> DecodeError {
    decode(&mut Decoder::new(4096), block).unwrap_err()
}

#[test]
fn index_zero_is_an_error() {
    assert_eq!(error(&[0x80]), DecodeError::InvalidIndex);
}

#[test]
fn an_index_past_the_table_is_an_error_in_every_representation() {
    // Indexed, literal with indexing, without, never indexed: each with index 62 of an empty table.
    assert_eq!(error(&[0xbe]), DecodeError::InvalidIndex);
    assert_eq!(error(&[0x7e, 0x01, b'a']), DecodeError::InvalidIndex);
    assert_eq!(error(&[0x0f, 47, 0x01, b'a']), DecodeError::InvalidIndex);
    assert_eq!(error(&[0x1f, 47, 0x01, b'a']), DecodeError::InvalidIndex);
    assert_eq!(
        error(&[0xff, 0x80, 0xff, 0xff, 0xff, 0x0f]),
        DecodeError::InvalidIndex
    );
}

#[test]
fn an_index_of_an_evicted_entry_is_an_error() {
    let mut decoder = Decoder::new(40);
    decode(&mut decoder, &[0x40, 0x01, b'a', 0x01, b'1', 0xbe]).unwrap();
    decode(&mut decoder, &[0x40, 0x01, b'b', 0x01, b'2', 0xbe]).unwrap();
    let error = decode(&mut decoder, &[0xbf]).unwrap_err();
    assert_eq!(error, DecodeError::InvalidIndex);
}

#[test]
fn a_literal_may_name_the_entry_that_it_evicts() {
    let mut decoder = Decoder::new(40);
    let section = decode(
        &mut decoder,
        &[0x40, 0x01, b'a', 0x01, b'1', 0x7e, 0x01, b'2', 0xbe],
    )
    .unwrap();
    assert_eq!(
        lines(section.fields()),
        text_lines(&[("a", "1"), ("a", "2"), ("a", "2")])
    );
    assert_eq!(decoder.table_len(), 1);
}

#[test]
fn a_block_that_breaks_off_anywhere_in_a_literal_is_truncated() {
    let block = b"\x40\x0acustom-key\x8cus-huffman-so-long";
    for length in 1..14 {
        assert_eq!(error(&block[..length]), DecodeError::Truncated, "{length}");
    }
    assert_eq!(error(&[0x00]), DecodeError::Truncated);
    assert_eq!(error(&[0xff]), DecodeError::Truncated);
    assert_eq!(error(&[0x3f]), DecodeError::Truncated);
    assert_eq!(
        error(&[0x00, 0x7f, 0xff, 0xff, 0x03, b'a']),
        DecodeError::Truncated
    );
}

#[test]
fn an_integer_past_32_bits_is_an_error() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x7f];
    for first in [0xff, 0x7f, 0x3f, 0x1f, 0x0f] {
        let mut block = vec![first];
        block.extend(huge);
        assert_eq!(error(&block), DecodeError::IntegerOverflow, "{first:#x}");
    }
}

#[test]
fn huffman_errors_reach_the_caller() {
    assert_eq!(
        error(&[0x00, 0x84, 0xff, 0xff, 0xff, 0xff]),
        DecodeError::HuffmanEndOfString
    );
    assert_eq!(error(&[0x00, 0x81, 0xff]), DecodeError::HuffmanPadding);
    assert_eq!(
        error(&[0x00, 0x01, b'a', 0x81, 0x38]),
        DecodeError::HuffmanPadding
    );
}

#[test]
fn a_size_update_after_a_field_is_an_error() {
    assert_eq!(error(&[0x82, 0x20]), DecodeError::MisplacedSizeUpdate);
    assert_eq!(error(&[0x20, 0x82, 0x20]), DecodeError::MisplacedSizeUpdate);
}

#[test]
fn size_updates_at_the_beginning_change_the_table() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &[0x40, 0x01, b'a', 0x01, b'1']).unwrap();
    assert_eq!(decoder.table_len(), 1);
    let section = decode(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x82]).unwrap();
    assert_eq!(section.fields().len(), 1);
    assert_eq!(decoder.table_len(), 0);
}

#[test]
fn a_size_update_past_the_setting_is_an_error() {
    // 4,097 = 31 + 0x0fe2.
    assert_eq!(error(&[0x3f, 0xe2, 0x1f]), DecodeError::SizeUpdateTooLarge);
}

#[test]
fn a_reduction_must_be_signalled_at_the_next_block() {
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(100);
    assert_eq!(
        decode(&mut decoder, &[0x82]).unwrap_err(),
        DecodeError::MissingSizeUpdate
    );

    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(100);
    // 100 = 31 + 69.
    decode(&mut decoder, &[0x3f, 69, 0x82]).unwrap();
    decode(&mut decoder, &[0x82]).unwrap();
}

#[test]
fn a_reduction_that_was_raised_again_is_still_signalled_first() {
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(0);
    decoder.set_max_table_size(4096);
    assert_eq!(
        decode(&mut decoder, &[0x3f, 0xe1, 0x1f]).unwrap_err(),
        DecodeError::MissingSizeUpdate
    );

    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(0);
    decoder.set_max_table_size(4096);
    decode(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x82]).unwrap();
}

#[test]
fn a_reduction_that_leaves_the_table_as_large_as_it_is_asks_for_nothing() {
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(65_536);
    decoder.set_max_table_size(8192);
    decode(&mut decoder, &[0x82]).unwrap();
}

#[test]
fn an_update_after_a_larger_setting_may_use_it() {
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(8192);
    // 8,192 = 31 + 0x1fe1.
    decode(&mut decoder, &[0x3f, 0xe1, 0x3f, 0x82]).unwrap();
}

#[test]
fn past_the_limit_fields_are_dropped_and_the_table_stays_right() {
    let mut encoder = Encoder::new(4096);
    let mut decoder = Decoder::new(4096);
    let fields = [("a", "first"), ("b", "second"), ("c", "third")];
    let block = encode(&mut encoder, &fields);
    for limits in [
        FieldLimits {
            max_bytes: 80,
            max_fields: usize::MAX,
        },
        FieldLimits {
            max_bytes: usize::MAX,
            max_fields: 2,
        },
    ] {
        let mut section = FieldSection::new();
        let mut decoder = Decoder::new(4096);
        decoder.decode(&block, &limits, &mut section).unwrap();
        assert!(section.over_limit());
        assert_eq!(lines(section.fields()), text_lines(&fields[..2]));
        assert_eq!((section.size(), section.lines()), (38 + 39 + 38, 3));
        assert_eq!(decoder.table_len(), 3);
    }
    let limits = FieldLimits {
        max_bytes: 115,
        max_fields: 3,
    };
    let mut section = FieldSection::new();
    decoder.decode(&block, &limits, &mut section).unwrap();
    assert!(!section.over_limit());
    decoder
        .decode(&encode(&mut encoder, &fields), &limits, &mut section)
        .unwrap();
    assert!(!section.over_limit());
    assert_eq!(lines(section.fields()), text_lines(&fields));
}

#[test]
fn a_small_field_after_one_that_passed_the_limit_is_dropped_too() {
    let limits = FieldLimits {
        max_bytes: 100,
        max_fields: 10,
    };
    let mut encoder = Encoder::new(0);
    let long = "x".repeat(200);
    let block = encode(&mut encoder, &[("a", "1"), ("b", &long), ("c", "3")]);
    let mut section = FieldSection::new();
    Decoder::new(4096).decode(&block, &limits, &mut section).unwrap();
    assert_eq!(lines(section.fields()), text_lines(&[("a", "1")]));
    assert!(section.over_limit());
}

#[test]
fn a_repeated_index_of_a_large_entry_is_bounded_by_the_limit() {
    let mut decoder = Decoder::new(4096);
    let mut block = vec![0x40, 0x01, b'a', 0x7f, 0x81, 0x1e];
    block.extend(vec![b'x'; 127 + 0x01 + (0x1e << 7)]);
    block.extend(vec![0xbe; 60_000]);
    let limits = FieldLimits {
        max_bytes: 65_536,
        max_fields: 100,
    };
    let mut section = FieldSection::new();
    decoder.decode(&block, &limits, &mut section).unwrap();
    assert!(section.over_limit());
    assert_eq!(section.lines(), 60_001);
    assert_eq!(section.fields().len(), 16);
}

#[test]
fn references_past_the_limit_are_still_held_to_the_tables() {
    // An entry, as many references as pass the limit, and then what is to be looked at again: `last` is the table's only one.
    let begin = [&[0x40, 0x01, b'a', 0x01, b'1'][..], &[0xbe; 100]].concat();
    let limits = FieldLimits {
        max_bytes: 65_536,
        max_fields: 10,
    };
    let decode = |rest: &[u8]| {
        let mut decoder = Decoder::new(4096);
        let mut section = FieldSection::new();
        let block = [&begin, rest].concat();
        let decoded = decoder.decode(&block, &limits, &mut section);
        decoded.map(|()| (section.lines(), section.fields().len(), decoder.table_len()))
    };
    assert_eq!(decode(&[0xbe, 0x81, 0xbd]), Ok((104, 10, 1)));
    for (rest, error) in [
        (&[0xbf][..], DecodeError::InvalidIndex),
        (&[0x80], DecodeError::InvalidIndex),
        (&[0xff, 0x00], DecodeError::InvalidIndex),
        (&[0xff], DecodeError::Truncated),
        (&[0x20], DecodeError::MisplacedSizeUpdate),
    ] {
        assert_eq!(decode(rest), Err(error), "{rest:x?}");
    }
    // Wherever it stands among the others.
    for before in 0..200 {
        let rest = [&vec![0xbe; before][..], &[0xbf], &[0xbe; 70]].concat();
        assert_eq!(decode(&rest), Err(DecodeError::InvalidIndex), "{before}");
    }
    // What enters the table behind them can be referred to.
    assert_eq!(decode(&[0x40, 0x01, b'b', 0x01, b'2', 0xbf]), Ok((103, 10, 2)));
}

#[test]
fn references_past_the_limit_to_a_large_table_are_read_by_their_integers() {
    // More entries than an index of one octet reaches, and more than an octet counts.
    for entries in [60usize, 64, 65, 66, 130, 193, 194, 195, 300] {
        let mut decoder = Decoder::new(32_768);
        let mut section = FieldSection::new();
        let limits = FieldLimits {
            max_bytes: 65_536,
            max_fields: 1,
        };
        let begin: Vec<u8> = (0..entries)
            .flat_map(|_| [0x40, 0x01, b'a', 0x01, b'1'])
            .collect();
        let last = 61 + entries;
        // The greatest index of one octet, the least of two, and the table's last.
        let mut indexes = vec![126, 127, 128, 126, last];
        indexes.retain(|&index| index <= last);
        let mut rest = Vec::new();
        for &index in &indexes {
            match index.checked_sub(127) {
                None => rest.push(0x80 | index as u8),
                Some(over) if over < 128 => rest.extend([0xff, over as u8]),
                Some(over) => rest.extend([0xff, over as u8 | 0x80, (over >> 7) as u8]),
            }
        }
        for repeats in [1, 40, 200] {
            let block = [&begin, &[0x82][..], &rest.repeat(repeats)].concat();
            let decoded = decoder.decode(&block, &limits, &mut section);
            assert_eq!(decoded, Ok(()), "{entries} entries");
            assert_eq!(
                section.lines(),
                entries + 1 + repeats * indexes.len(),
                "{entries} entries"
            );
            // A reference of one octet, which is only stepped over, counts as the average of the fields before it.
            assert_eq!(
                section.size(),
                34 * (entries + repeats * indexes.len()) + 42,
                "{entries} entries"
            );
            decoder = Decoder::new(32_768);
        }
        // One more than the table has.
        let beyond = match (last + 1).checked_sub(127) {
            None => vec![0x80 | (last + 1) as u8],
            Some(over) if over < 128 => vec![0xff, over as u8],
            Some(over) => vec![0xff, over as u8 | 0x80, (over >> 7) as u8],
        };
        let block = [&begin, &[0x82][..], &rest, &beyond].concat();
        let decoded = decoder.decode(&block, &limits, &mut section);
        assert_eq!(decoded, Err(DecodeError::InvalidIndex), "{entries} entries");
    }
}

#[test]
fn malformed_names_and_values_pass_through_the_table() {
    let mut decoder = Decoder::new(4096);
    let section = decode(&mut decoder, b"\x40\x04Host\x03a\0b\xbe").unwrap();
    for field in section.fields() {
        assert_eq!(field.name.as_bytes(), b"Host");
        assert_eq!(field.value.as_bytes(), b"a\0b");
    }
    assert_eq!(decoder.table_size(), 39);
}

#[test]
fn strings_that_do_not_enter_the_table_share_a_buffer_and_stay_apart() {
    let mut decoder = Decoder::new(4096);
    let fields: Vec<(String, String)> = (0..50)
        .map(|n| (format!("name-{n}"), format!("value {n} ").repeat(n + 1) + "."))
        .collect();
    let mut block = Vec::new();
    for (name, value) in &fields {
        block.push(0x00);
        for string in [name, value] {
            integer::encode(string.len(), 7, 0, &mut block);
            block.extend(string.bytes());
        }
    }
    let section = decode(&mut decoder, &block).unwrap();
    let expected: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(lines(section.fields()), text_lines(&expected));
    assert_eq!(decoder.table_len(), 0);
}

#[test]
fn every_error_says_what_is_wrong() {
    for error in [
        DecodeError::Truncated,
        DecodeError::IntegerOverflow,
        DecodeError::InvalidIndex,
        DecodeError::HuffmanEndOfString,
        DecodeError::HuffmanPadding,
        DecodeError::MisplacedSizeUpdate,
        DecodeError::SizeUpdateTooLarge,
        DecodeError::MissingSizeUpdate,
    ] {
        assert!(error.to_string().len() > 20);
    }
}
