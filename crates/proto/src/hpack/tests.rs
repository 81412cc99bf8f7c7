//! Tests of HPACK as a whole: what the decoder makes of octets, and of what the encoder writes.

mod errors;
mod examples;
mod round_trip;

use super::*;

const NO_LIMITS: FieldLimits = FieldLimits {
    max_bytes: usize::MAX,
    max_fields: usize::MAX,
};

type Line = (Vec<u8>, Vec<u8>);

fn lines(fields: &[Field]) -> Vec<Line> {
    fields
        .iter()
        .map(|field| (field.name.as_bytes().to_vec(), field.value.as_bytes().to_vec()))
        .collect()
}

fn text_lines(fields: &[(&str, &str)]) -> Vec<Line> {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<FieldSection, DecodeError> {
    let mut section = FieldSection::new();
    decoder.decode(block, &NO_LIMITS, &mut section)?;
    Ok(section)
}

fn encode(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in fields {
        let name = FieldName::parse(name.as_bytes());
        encoder.field(&name, value.as_bytes(), false, &mut out);
    }
    out
}
