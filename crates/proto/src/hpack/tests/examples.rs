//! The examples of RFC 7541 Appendix C, octet for octet. Those of C.1, on integers, are beside the integers.

use super::*;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(u8::is_ascii_hexdigit)
        .map(|digit| (digit as char).to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[track_caller]
fn assert_decodes(decoder: &mut Decoder, hex: &str, fields: &[(&str, &str)]) {
    let section = decode(decoder, &octets(hex)).unwrap();
    assert_eq!(lines(section.fields()), text_lines(fields));
    let size = fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum();
    assert_eq!(section.size(), size);
}

/// The table's entries from the newest to the oldest, and its size in bytes.
#[track_caller]
fn assert_table(decoder: &Decoder, size: usize, entries: &[(&str, &str)]) {
    let table: Vec<Field> = (62..)
        .map_while(|index| decoder.table_entry(index).cloned())
        .collect();
    assert_eq!(lines(&table), text_lines(entries));
    assert_eq!(decoder.table_len(), entries.len());
    assert_eq!(decoder.table_size(), size);
}

#[test]
fn c_2_1_literal_field_with_indexing() {
    let mut decoder = Decoder::new(4096);
    let fields = [("custom-key", "custom-header")];
    let block = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    assert_decodes(&mut decoder, block, &fields);
    assert_table(&decoder, 55, &fields);
}

#[test]
fn c_2_2_literal_field_without_indexing() {
    let mut decoder = Decoder::new(4096);
    let block = "040c 2f73 616d 706c 652f 7061 7468";
    assert_decodes(&mut decoder, block, &[(":path", "/sample/path")]);
    assert_table(&decoder, 0, &[]);
}

#[test]
fn c_2_3_literal_field_never_indexed() {
    let mut decoder = Decoder::new(4096);
    let block = octets("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let section = decode(&mut decoder, &block).unwrap();
    assert_eq!(lines(section.fields()), text_lines(&[("password", "secret")]));
    assert!(section.fields()[0].never_indexed);
    assert_table(&decoder, 0, &[]);

    let mut encoder = Encoder::new(4096);
    let mut out = Vec::new();
    encoder.field(&FieldName::parse(b"password"), b"secret", true, &mut out);
    let section = decode(&mut decoder, &out).unwrap();
    assert_eq!(lines(section.fields()), text_lines(&[("password", "secret")]));
    assert!(section.fields()[0].never_indexed);
}

#[test]
fn c_2_4_indexed_field() {
    let mut decoder = Decoder::new(4096);
    assert_decodes(&mut decoder, "82", &[(":method", "GET")]);
    assert_table(&decoder, 0, &[]);
}

const FIRST_REQUEST: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
];

const SECOND_REQUEST: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
    ("cache-control", "no-cache"),
];

const THIRD_REQUEST: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];

#[track_caller]
fn assert_requests(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(4096);
    let authority = (":authority", "www.example.com");
    let cache_control = ("cache-control", "no-cache");
    let custom = ("custom-key", "custom-value");
    assert_decodes(&mut decoder, blocks[0], &FIRST_REQUEST);
    assert_table(&decoder, 57, &[authority]);
    assert_decodes(&mut decoder, blocks[1], &SECOND_REQUEST);
    assert_table(&decoder, 110, &[cache_control, authority]);
    assert_decodes(&mut decoder, blocks[2], &THIRD_REQUEST);
    assert_table(&decoder, 164, &[custom, cache_control, authority]);
}

#[test]
fn c_3_requests_without_huffman_coding() {
    assert_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

const HUFFMAN_REQUESTS: [&str; 3] = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
];

#[test]
fn c_4_requests_with_huffman_coding() {
    assert_requests(HUFFMAN_REQUESTS);
}

#[test]
fn c_4_is_what_the_encoder_writes() {
    let mut encoder = Encoder::new(4096);
    let requests: [&[(&str, &str)]; 3] = [&FIRST_REQUEST, &SECOND_REQUEST, &THIRD_REQUEST];
    for ((fields, block), size) in requests.iter().zip(HUFFMAN_REQUESTS).zip([57, 110, 164]) {
        assert_eq!(encode(&mut encoder, fields), octets(block));
        assert_eq!(encoder.table_size(), size);
    }
}

#[track_caller]
fn assert_responses(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(256);
    let private = ("cache-control", "private");
    let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let later = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = ("location", "https://www.example.com");
    let gzip = ("content-encoding", "gzip");
    let cookie = (
        "set-cookie",
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    );
    let found = (":status", "302");
    let redirect = (":status", "307");

    assert_decodes(&mut decoder, blocks[0], &[found, private, date, location]);
    assert_table(&decoder, 222, &[location, date, private, found]);
    assert_decodes(&mut decoder, blocks[1], &[redirect, private, date, location]);
    assert_table(&decoder, 222, &[redirect, location, date, private]);
    let fields = [(":status", "200"), private, later, location, gzip, cookie];
    assert_decodes(&mut decoder, blocks[2], &fields);
    assert_table(&decoder, 215, &[cookie, gzip, later]);
}

#[test]
fn c_5_responses_without_huffman_coding_in_a_table_of_256() {
    assert_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn c_6_responses_with_huffman_coding_in_a_table_of_256() {
    assert_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ]);
}
