//! The Huffman code of RFC 7541 Appendix B: strings to bits and back.
//!
//! The code is canonical (codes of one length count upward, in the order of their symbols), so the lengths alone
//! define it; every table here is made from them at compile time. Used by the decoder and the encoder for string
//! literals.

/// The length in bits of each symbol's code; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The 256 octets and EOS.
const SYMBOLS: usize = 257;

/// The symbol that no string may hold (RFC 7541 section 5.2).
#[cfg(test)]
const EOS: u16 = 256;

/// The longest code, in bits.
const MAX_BITS: usize = 30;

/// How many bits one look into [`FAST`] takes. Ten cover every code that ordinary text uses; the table is 2 KiB.
const FAST_BITS: u32 = 10;

/// Why a string is not a Huffman-coded string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HuffmanError {
    /// It holds the EOS symbol.
    EndOfString,
    /// It ends in more than seven bits that are no symbol, or in bits that are not all ones.
    Padding,
}

/// The most octets that `octets` of coded string can decode to: the shortest code has five bits.
#[inline]
pub(super) const fn decoded_bound(octets: usize) -> usize {
    octets / 5 * 8 + octets % 5 * 8 / 5
}

/// Decodes `input` into `output`, and returns how many octets that made.
///
/// `output` holds at least [`decoded_bound`] octets.
pub(super) fn decode(input: &[u8], output: &mut [u8]) -> Result<usize, HuffmanError> {
    let room = output.len();
    let mut output = output.iter_mut();
    // The bits not yet decoded, from the top of the word down.
    let mut window: u64 = 0;
    let mut bits: u32 = 0;
    let mut words = input.chunks_exact(4);
    for word in words.by_ref() {
        let word = word.iter().fold(0, |word, &octet| (word << 8) | u64::from(octet));
        window |= word << (32 - bits);
        bits += 32;
        // With as many bits at hand as the longest code has, no symbol can be cut short.
        while bits >= MAX_BITS as u32 {
            let (symbol, length) = next_symbol(window)?;
            put(&mut output, symbol);
            window <<= length;
            bits -= length;
        }
    }
    for &octet in words.remainder() {
        window |= u64::from(octet) << (56 - bits);
        bits += 8;
    }
    window |= u64::MAX >> bits;
    // Up to seven bits that are all ones are padding: no code is made of so few.
    while bits > 7 || window.leading_ones() < bits {
        let (symbol, length) = match next_symbol(window) {
            // The ones that follow the last bit are ours, and make no symbol.
            Err(_) if bits < MAX_BITS as u32 => return Err(HuffmanError::Padding),
            symbol => symbol?,
        };
        if length > bits {
            return Err(HuffmanError::Padding);
        }
        put(&mut output, symbol);
        window <<= length;
        bits -= length;
    }
    Ok(room - output.len())
}

#[inline]
fn put(output: &mut std::slice::IterMut<'_, u8>, symbol: u8) {
    if let Some(slot) = output.next() {
        *slot = symbol;
    }
}

/// The symbol at the top of `window`, and the length of its code; an error if that is EOS.
#[inline]
fn next_symbol(window: u64) -> Result<(u8, u32), HuffmanError> {
    let entry = FAST[(window >> (64 - FAST_BITS)) as usize];
    if entry != 0 {
        return Ok(((entry >> 8) as u8, u32::from(entry & 0xff)));
    }
    next_long_symbol((window >> 32) as u32)
}

/// The same for a code longer than [`FAST_BITS`]: the first length whose codes reach past these bits.
#[cold]
fn next_long_symbol(top: u32) -> Result<(u8, u32), HuffmanError> {
    let mut length = FAST_BITS as usize + 1;
    while length < MAX_BITS && u64::from(top) >= CANONICAL.limit[length] {
        length += 1;
    }
    let rank = (top - CANONICAL.first[length]) >> (32 - length);
    let symbol = CANONICAL.symbols[usize::from(CANONICAL.offset[length]) + rank as usize];
    // Of all symbols EOS alone is no octet.
    let symbol = u8::try_from(symbol).map_err(|_| HuffmanError::EndOfString)?;
    Ok((symbol, length as u32))
}

/// How many octets `input` takes when coded.
#[inline]
pub(super) fn encoded_length(input: &[u8]) -> usize {
    let bits: usize = input
        .iter()
        .map(|&octet| usize::from(LENGTHS[usize::from(octet)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends `input`, coded and padded with ones to a whole octet.
pub(super) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let mut window: u64 = 0;
    let mut bits: u32 = 0;
    for &octet in input {
        let length = u32::from(LENGTHS[usize::from(octet)]);
        window = window << length | u64::from(CODES[usize::from(octet)]);
        bits += length;
        if bits >= 32 {
            bits -= 32;
            out.extend_from_slice(&((window >> bits) as u32).to_be_bytes());
        }
    }
    if bits > 0 {
        let padding = bits.next_multiple_of(8) - bits;
        let last = (window << padding | ((1 << padding) - 1)) as u32;
        let octets = ((bits + padding) / 8) as usize;
        out.extend_from_slice(&(last << (32 - bits - padding)).to_be_bytes()[..octets]);
    }
}

/// What decoding a canonical code needs for each length: codes are taken as the top bits of a 32-bit word.
struct Canonical {
    /// The symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// The first code of each length.
    first: [u32; MAX_BITS + 1],
    /// What is past the last code of each length.
    limit: [u64; MAX_BITS + 1],
    /// Where the symbols of each length start in `symbols`.
    offset: [u16; MAX_BITS + 1],
}

static CANONICAL: Canonical = canonical();
static CODES: [u32; SYMBOLS] = codes();
static FAST: [u16; 1 << FAST_BITS] = fast();

const fn canonical() -> Canonical {
    let mut table = Canonical {
        symbols: [0; SYMBOLS],
        first: [0; MAX_BITS + 1],
        limit: [0; MAX_BITS + 1],
        offset: [0; MAX_BITS + 1],
    };
    let mut next: u64 = 0;
    let mut count = 0;
    let mut length = 1;
    while length <= MAX_BITS {
        table.first[length] = next as u32;
        table.offset[length] = count as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                table.symbols[count] = symbol as u16;
                count += 1;
                next += 1 << (32 - length);
            }
            symbol += 1;
        }
        table.limit[length] = next;
        length += 1;
    }
    table
}

const fn codes() -> [u32; SYMBOLS] {
    let table = canonical();
    let mut codes = [0; SYMBOLS];
    let mut rank = 0;
    while rank < SYMBOLS {
        let symbol = table.symbols[rank] as usize;
        let length = LENGTHS[symbol] as usize;
        codes[symbol] = (table.first[length] >> (32 - length)) + rank as u32 - table.offset[length] as u32;
        rank += 1;
    }
    codes
}

/// For each value of the next bits: the symbol in the high octet and its length in the low one, or 0 if the code is
/// longer.
const fn fast() -> [u16; 1 << FAST_BITS] {
    let codes = codes();
    let mut table = [0; 1 << FAST_BITS];
    let mut symbol = 0;
    while symbol < SYMBOLS {
        let length = LENGTHS[symbol] as u32;
        if length <= FAST_BITS {
            let spare = FAST_BITS - length;
            let mut slot = (codes[symbol] << spare) as usize;
            let end = slot + (1 << spare);
            while slot < end {
                table[slot] = (symbol as u16) << 8 | length as u16;
                slot += 1;
            }
        }
        symbol += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let mut output = vec![0; decoded_bound(input.len())];
        let length = decode(input, &mut output)?;
        output.truncate(length);
        Ok(output)
    }

    fn encoded(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(input, &mut out);
        assert_eq!(out.len(), encoded_length(input));
        out
    }

    #[test]
    fn the_code_is_complete_and_ends_with_eos() {
        assert_eq!(CANONICAL.limit[MAX_BITS], 1 << 32);
        assert_eq!(CANONICAL.symbols[SYMBOLS - 1], EOS);
        assert_eq!(CODES[usize::from(EOS)], 0x3fff_ffff);
    }

    #[test]
    fn codes_are_those_of_appendix_b() {
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'u', 0x2d, 6),
            (b':', 0x5c, 7),
            (b'z', 0x7b, 7),
            (b'&', 0xf8, 8),
            (b'Z', 0xfd, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (b'#', 0xffa, 12),
            (b'~', 0x1ffd, 13),
            (b'^', 0x3ffc, 14),
            (b'{', 0x7ffe, 15),
            (b'\\', 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (127, 0xffffffc, 28),
            (249, 0xffffffe, 28),
            (10, 0x3ffffffc, 30),
            (22, 0x3ffffffe, 30),
        ] {
            assert_eq!(
                (CODES[usize::from(symbol)], LENGTHS[usize::from(symbol)]),
                (code, length)
            );
        }
    }

    #[test]
    fn strings_of_the_rfc_examples() {
        for (text, octets) in [
            (
                "www.example.com",
                &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..],
            ),
            ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            ("302", b"\x64\x02"),
            ("", b""),
        ] {
            assert_eq!(encoded(text.as_bytes()), octets);
            assert_eq!(decoded(octets).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn every_octet_survives_a_round_trip() {
        for octet in 0..=255 {
            for count in 1..9 {
                let text = vec![octet; count];
                assert_eq!(decoded(&encoded(&text)), Ok(text));
            }
        }
    }

    #[test]
    fn the_eos_symbol_is_an_error_wherever_it_stands() {
        assert_eq!(decoded(&[0xff; 4]), Err(HuffmanError::EndOfString));
        assert_eq!(decoded(&[0xff; 40]), Err(HuffmanError::EndOfString));
        // "0", then EOS.
        assert_eq!(
            decoded(&[0x07, 0xff, 0xff, 0xff, 0xff]),
            Err(HuffmanError::EndOfString)
        );
    }

    #[test]
    fn padding_of_eight_bits_or_more_is_an_error() {
        assert_eq!(decoded(&[0xff]), Err(HuffmanError::Padding));
        assert_eq!(decoded(&[0xff, 0xff, 0xff]), Err(HuffmanError::Padding));
        // "o" (00111), then three bits of padding; then a whole octet more.
        assert_eq!(decoded(&[0x3f]), Ok(b"o".to_vec()));
        assert_eq!(decoded(&[0x3f, 0xff]), Err(HuffmanError::Padding));
    }

    #[test]
    fn padding_that_is_not_all_ones_is_an_error() {
        assert_eq!(decoded(&[0x38]), Err(HuffmanError::Padding));
        assert_eq!(decoded(&[0x3e]), Err(HuffmanError::Padding));
        // The padding of "www.example.com", with a bit cleared.
        assert_eq!(
            decoded(b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xfe"),
            Err(HuffmanError::Padding)
        );
    }

    proptest! {
        #[test]
        fn any_string_survives_a_round_trip(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decoded(&encoded(&text)), Ok(text));
        }

        #[test]
        fn what_decodes_encodes_to_the_same_octets(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&octets) {
                prop_assert_eq!(encoded(&text), octets);
            }
        }

        #[test]
        fn text_never_decodes_past_the_bound(text in "[012aceiost]{0,100}") {
            let octets = encoded(text.as_bytes());
            prop_assert!(text.len() <= decoded_bound(octets.len()));
            prop_assert_eq!(decoded(&octets).unwrap(), text.as_bytes());
        }
    }
}
