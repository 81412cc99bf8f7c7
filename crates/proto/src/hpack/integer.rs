//! Integers with a prefix (RFC 7541 section 5.1), bounded.
//!
//! Used by the decoder and the encoder for indexes, string lengths and table sizes.

use super::error::DecodeError;

/// The most octets an integer may take after its prefix: five carry 35 bits, more than any length that fits a frame.
const MAX_CONTINUATION: u32 = 5;

/// Reads an integer whose prefix is the low `prefix_bits` (1 to 8) of `first`, and the rest from `input`.
#[inline]
pub(super) fn decode(first: u8, prefix_bits: u32, input: &mut &[u8]) -> Result<usize, DecodeError> {
    let mask = (1usize << prefix_bits) - 1;
    let value = usize::from(first) & mask;
    if value < mask {
        return Ok(value);
    }
    decode_continuation(mask, input)
}

fn decode_continuation(prefix: usize, input: &mut &[u8]) -> Result<usize, DecodeError> {
    let mut value = prefix as u64;
    for position in 0..MAX_CONTINUATION {
        let (&octet, rest) = input.split_first().ok_or(DecodeError::Truncated)?;
        *input = rest;
        value += u64::from(octet & 0x7f) << (7 * position);
        if octet & 0x80 == 0 {
            // Bounded by 32 bits, so that it means the same on every machine.
            let value = u32::try_from(value).map_err(|_| DecodeError::IntegerOverflow)?;
            return usize::try_from(value).map_err(|_| DecodeError::IntegerOverflow);
        }
    }
    Err(DecodeError::IntegerOverflow)
}

/// Writes `value` with a prefix of `prefix_bits` (1 to 8); `flags` are the bits above the prefix.
#[inline]
pub(super) fn encode(value: usize, prefix_bits: u32, flags: u8, out: &mut Vec<u8>) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(prefix_bits: u32, octets: &[u8]) -> Result<usize, DecodeError> {
        let (&first, mut rest) = octets.split_first().unwrap();
        let value = decode(first, prefix_bits, &mut rest)?;
        assert!(rest.is_empty());
        Ok(value)
    }

    #[test]
    fn rfc_7541_c_1_1_ten_fits_a_five_bit_prefix() {
        let mut out = Vec::new();
        encode(10, 5, 0, &mut out);
        assert_eq!(out, [0b01010]);
        assert_eq!(decode_all(5, &out), Ok(10));
    }

    #[test]
    fn rfc_7541_c_1_2_1337_takes_two_more_octets() {
        let mut out = Vec::new();
        encode(1337, 5, 0, &mut out);
        assert_eq!(out, [0b11111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(decode_all(5, &out), Ok(1337));
    }

    #[test]
    fn rfc_7541_c_1_3_forty_two_at_an_octet_boundary() {
        let mut out = Vec::new();
        encode(42, 8, 0, &mut out);
        assert_eq!(out, [0b0010_1010]);
        assert_eq!(decode_all(8, &out), Ok(42));
    }

    #[test]
    fn no_octet_follows_that_says_nothing() {
        for (rest, octets) in [(0, &[0x1f, 0][..]), (127, &[0x1f, 127]), (128, &[0x1f, 0x80, 1])] {
            let mut out = Vec::new();
            encode(31 + rest, 5, 0, &mut out);
            assert_eq!(out, octets);
        }
    }

    #[test]
    fn every_boundary_survives_a_round_trip() {
        for prefix_bits in 1..=8 {
            for exponent in 0..32 {
                for value in [
                    (1u32 << exponent) - 1,
                    1 << exponent,
                    (1 << exponent) + 1,
                    u32::MAX,
                ] {
                    let mut out = Vec::new();
                    encode(value as usize, prefix_bits, 0, &mut out);
                    assert_eq!(decode_all(prefix_bits, &out), Ok(value as usize));
                }
            }
        }
    }

    #[test]
    fn an_integer_past_32_bits_is_an_overflow() {
        assert_eq!(
            decode_all(7, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            Err(DecodeError::IntegerOverflow)
        );
        assert_eq!(
            decode_all(7, &[0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f]),
            Ok(u32::MAX as usize)
        );
    }

    #[test]
    fn an_integer_of_many_empty_octets_is_an_overflow() {
        let mut rest: &[u8] = &[0x80; 1000];
        assert_eq!(decode(0x7f, 7, &mut rest), Err(DecodeError::IntegerOverflow));
        assert_eq!(rest.len(), 995);
    }

    #[test]
    fn an_integer_that_breaks_off_is_truncated() {
        let mut rest: &[u8] = &[0x80];
        assert_eq!(decode(0x1f, 5, &mut rest), Err(DecodeError::Truncated));
        assert_eq!(decode(0x1f, 5, &mut rest), Err(DecodeError::Truncated));
    }
}
