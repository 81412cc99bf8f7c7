//! What the encoder writes, the decoder reads: for any fields, any change of table size, and any damage.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Encode these fields as one block.
    Block(Vec<(Vec<u8>, Vec<u8>, bool)>),
    /// The decoder's side changes its setting, in these steps, before the next block.
    TableSize(Vec<usize>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(vec![
            ":authority", ":method", ":path", ":status", "date", "cookie", "set-cookie", "x-a", "x-b",
            "content-length", "authorization", "accept-encoding", "x-request-id", "traceparent",
        ]).prop_map(|name| name.as_bytes().to_vec()),
        2 => "[a-z-]{1,30}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..20),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(vec!["", "GET", "/", "200", "gzip, deflate", "1", "text/html"])
            .prop_map(|value| value.as_bytes().to_vec()),
        3 => "[ -~]{0,60}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..200),
        1 => (0..6000usize).prop_map(|length| vec![b'v'; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => vec((name(), value(), any::<bool>()), 0..12).prop_map(Step::Block),
        1 => vec(prop_oneof![0..200usize, 0..10_000usize], 1..4).prop_map(Step::TableSize),
    ]
}

#[test]
fn a_field_that_seldom_repeats_enters_the_table_when_it_comes_again() {
    let mut encoder = Encoder::new(4096);
    let fields = [("etag", "a")];
    let first = encode(&mut encoder, &fields);
    assert_eq!(
        first[0] & 0xf0,
        0x00,
        "a literal without indexing (RFC 7541 section 6.2.2)"
    );
    let second = encode(&mut encoder, &fields);
    assert_eq!(
        second[0] & 0xc0,
        0x40,
        "a literal with incremental indexing (section 6.2.1)"
    );
    assert_eq!(encode(&mut encoder, &fields), [0xbe]);
}

#[test]
fn an_index_of_127_or_more_takes_another_octet_wherever_the_field_stands() {
    let mut encoder = Encoder::new(4096);
    let first = ("x-first", "1");
    encode(&mut encoder, &[first]);
    let names: Vec<String> = (0..80).map(|number| format!("x-{number}")).collect();
    let mut fields = vec![first];
    fields.extend(names.iter().map(|name| (name.as_str(), "1")));
    encode(&mut encoder, &fields);
    // The newest entry has the index 62, and 80 are newer than this one.
    assert_eq!(encode(&mut encoder, &[first]), [0xff, 62 + 80 - 127]);
    assert_eq!(
        encode(&mut encoder, &[("x-79", "1"), first]),
        [0xbe, 0xff, 62 + 80 - 127]
    );
}

#[test]
fn an_encoder_that_is_trimmed_after_each_block_compresses_as_well() {
    let (mut trimmed, mut other) = (Encoder::new(4096), Encoder::new(4096));
    for round in 0..40 {
        let (old, new) = (format!("{}", round / 4), format!("{round}"));
        let fields = [
            ("server", "fullbore"),
            ("etag", "a"),
            ("last-modified", &old),
            ("x-new", &new),
        ];
        let block = encode(&mut trimmed, &fields);
        trimmed.trim();
        assert_eq!(block, encode(&mut other, &fields), "round {round}");
        assert_eq!(round >= 2, block[..2].iter().all(|octet| octet & 0x80 != 0));
    }
}

#[test]
fn a_field_that_stands_where_it_stood_is_found_though_many_others_came_in_between() {
    let mut encoder = Encoder::new(4096);
    let fields = [("server", "fullbore"), ("etag", "a")];
    encode(&mut encoder, &fields);
    encode(&mut encoder, &fields);
    let tags: Vec<String> = (0..1_000).map(|tag| tag.to_string()).collect();
    let others: Vec<_> = tags.iter().map(|tag| ("etag", tag.as_str())).collect();
    encode(&mut encoder, &[&fields, others.as_slice()].concat());
    assert_eq!(encode(&mut encoder, &fields), [0xbf, 0xbe]);
}

#[test]
fn a_field_is_found_where_it_stood_before_until_it_is_a_secret_or_gone() {
    let mut encoder = Encoder::new(4096);
    let fields = [("server", "fullbore"), ("x-a", "1"), ("x-b", "2")];
    encode(&mut encoder, &fields);
    // By their indexes, wherever they stand.
    assert_eq!(encode(&mut encoder, &fields), [0xc0, 0xbf, 0xbe]);
    assert_eq!(encode(&mut encoder, &fields[1..]), [0xbf, 0xbe]);
    assert_eq!(encode(&mut encoder, &fields), [0xc0, 0xbf, 0xbe]);

    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.field(&FieldName::parse(b"server"), b"fullbore", true, &mut block);
    assert_eq!(block[0], 0x1f, "a literal that is never indexed");

    // An update to a table of no size empties it.
    encoder.set_max_table_size(0);
    encoder.set_max_table_size(4096);
    let mut decoder = Decoder::new(4096);
    let block = encode(&mut encoder, &fields);
    assert_eq!(
        lines(decode(&mut decoder, &block).unwrap().fields()),
        text_lines(&fields)
    );
}

proptest! {
    #[test]
    fn any_fields_survive_any_change_of_table_size(
        own_cap in prop_oneof![Just(0), Just(4096), 0..20_000usize],
        steps in vec(step(), 1..30),
    ) {
        let mut encoder = Encoder::new(own_cap);
        let mut decoder = Decoder::new(DEFAULT_TABLE_SIZE);
        let mut allowed = DEFAULT_TABLE_SIZE;
        let mut section = FieldSection::new();
        for step in steps {
            match step {
                Step::TableSize(sizes) => for size in sizes {
                    decoder.set_max_table_size(size);
                    encoder.set_max_table_size(size);
                    allowed = size;
                },
                Step::Block(fields) => {
                    let mut block = Vec::new();
                    encoder.begin(&mut block);
                    for (name, value, never_indexed) in &fields {
                        encoder.field(&FieldName::parse(name), value, *never_indexed, &mut block);
                    }
                    decoder.decode(&block, &NO_LIMITS, &mut section).unwrap();
                    let expected: Vec<Line> =
                        fields.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect();
                    prop_assert_eq!(lines(section.fields()), expected);
                    for (field, (_, _, never_indexed)) in section.fields().iter().zip(&fields) {
                        prop_assert!(field.never_indexed || !never_indexed);
                    }
                    prop_assert!(encoder.table_size() <= encoder.max_table_size());
                    prop_assert!(encoder.max_table_size() <= allowed.min(own_cap));
                    prop_assert_eq!(decoder.table_size(), encoder.table_size());
                }
            }
        }
    }

    #[test]
    fn random_octets_never_panic_and_never_pass_the_table(
        blocks in vec(vec(any::<u8>(), 0..200), 1..8),
        setting in 0..5000usize,
    ) {
        let mut decoder = Decoder::new(setting);
        let limits = FieldLimits { max_bytes: 2000, max_fields: 20 };
        let mut section = FieldSection::new();
        for block in blocks {
            let _ = decoder.decode(&block, &limits, &mut section);
            prop_assert!(decoder.table_size() <= setting);
            prop_assert!(section.fields().len() <= 20);
            prop_assert!(section.fields().iter().map(Field::size).sum::<usize>() <= 2000);
            let entries = (62..).map_while(|index| decoder.table_entry(index)).map(Field::size);
            prop_assert_eq!(entries.sum::<usize>(), decoder.table_size());
        }
    }

    #[test]
    fn a_damaged_block_never_panics(
        fields in vec((name(), value()), 0..10),
        at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut encoder = Encoder::new(4096);
        let mut block = vec![0x20];
        for (name, value) in &fields {
            encoder.field(&FieldName::parse(name), value, false, &mut block);
        }
        let at = at.index(block.len());
        block[at] = octet;
        block.truncate(cut.index(block.len()) + 1);
        let mut decoder = Decoder::new(4096);
        let _ = decode(&mut decoder, &block);
        prop_assert!(decoder.table_size() <= 4096);
    }
}

#[test]
fn a_second_block_of_the_same_fields_is_one_octet_a_field() {
    let mut encoder = Encoder::new(4096);
    let fields = [
        (":status", "200"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("content-type", "text/plain; charset=utf-8"),
        ("x-custom", "something"),
    ];
    encode(&mut encoder, &fields);
    assert_eq!(encode(&mut encoder, &fields).len(), fields.len());
}

#[test]
fn secrets_and_short_cookies_enter_no_table() {
    let mut encoder = Encoder::new(4096);
    let mut decoder = Decoder::new(4096);
    let fields = [
        ("authorization", "Basic Zm9vOmJhcg=="),
        ("proxy-authorization", "x"),
        ("cookie", "a=1234567890123456"),
    ];
    let section = decode(&mut decoder, &encode(&mut encoder, &fields)).unwrap();
    assert!(section.fields().iter().all(|field| field.never_indexed));
    assert_eq!((encoder.table_size(), decoder.table_len()), (0, 0));

    encode(&mut encoder, &[("cookie", "a=123456789012345678")]);
    assert_eq!(encoder.table_size(), 6 + 20 + 32);
}

#[test]
fn singular_values_enter_no_table_and_use_the_name_of_the_static_one() {
    let mut encoder = Encoder::new(4096);
    for (name, value) in [
        (":path", "/a"),
        ("content-length", "7"),
        ("etag", "\"x\""),
        ("location", "/b"),
        ("age", "1"),
    ] {
        let block = encode(&mut encoder, &[(name, value)]);
        assert!(
            block[0] < 0x10 && block.len() <= 3 + value.len(),
            "{name}: {block:x?}"
        );
    }
    assert_eq!(encoder.table_size(), 0);
}

#[test]
fn an_entry_over_three_quarters_of_the_table_is_not_indexed() {
    let mut encoder = Encoder::new(4096);
    encode(&mut encoder, &[("x", &"y".repeat(3072 - 32 - 1))]);
    assert_eq!(encoder.table_size(), 3072);
    encode(&mut encoder, &[("z", &"y".repeat(3072 - 32))]);
    assert_eq!(encoder.table_size(), 3072);
}

#[test]
fn a_smaller_setting_is_signalled_once_with_its_minimum_first() {
    let mut encoder = Encoder::new(4096);
    encoder.set_max_table_size(100);
    encoder.set_max_table_size(0);
    encoder.set_max_table_size(2000);
    // 0, then 2,000 = 31 + 0x07b1.
    assert_eq!(encode(&mut encoder, &[]), [0x20, 0x3f, 0xb1, 0x0f]);
    assert_eq!(encode(&mut encoder, &[]), []);
}

#[test]
fn a_larger_setting_than_the_encoder_wants_is_not_signalled() {
    let mut encoder = Encoder::new(4096);
    encoder.set_max_table_size(1 << 20);
    assert_eq!(encode(&mut encoder, &[]), []);
    assert_eq!(encoder.max_table_size(), 4096);

    let mut encoder = Encoder::new(65_536);
    encoder.set_max_table_size(8192);
    // 8,192 = 31 + 0x1fe1.
    assert_eq!(encode(&mut encoder, &[]), [0x3f, 0xe1, 0x3f]);
}

#[test]
fn an_encoder_without_a_table_says_so_and_indexes_nothing() {
    let mut encoder = Encoder::new(0);
    assert_eq!(
        encode(&mut encoder, &[("x", "y")]),
        [0x20, 0x00, 0x01, b'x', 0x01, b'y']
    );
    assert_eq!(
        encode(&mut encoder, &[("x", "y")]),
        [0x00, 0x01, b'x', 0x01, b'y']
    );
}

#[test]
fn strings_as_long_with_huffman_coding_as_without_it_are_not_coded() {
    // RFC 7541 appendix B: `a` is 00011, `b` is 100011, and `!` has ten bits.
    let field = [("a", "b"), ("a", "!")];
    let plain = [0x40, 1, b'a', 1, b'b', 0x7e, 1, b'!'];
    assert_eq!(encode(&mut Encoder::new(4096), &field), plain);
}

#[test]
fn a_secret_is_named_by_the_index_of_an_entry_that_has_its_name() {
    let mut encoder = Encoder::new(4096);
    encode(&mut encoder, &[("x-a", "1")]);
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.field(&FieldName::parse(b"x-a"), b"~", true, &mut block);
    // Index 62, and a string of an octet.
    assert_eq!(block, [0x1f, 62 - 15, 0x01, b'~']);
}
