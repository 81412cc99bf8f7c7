//! HPACK: any header blocks decode within the limits or are an error; what was decoded, encoded again by our encoder,
//! decodes to the same; and the encoder's table and the decoder's stay the same size.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use fullbore_proto::hpack::{Decoder, Encoder, FieldLimits, FieldSection};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A block as it came off the wire.
    Block(Vec<u8>),
    /// A section of fields of our own.
    Fields(Vec<(Vec<u8>, Vec<u8>, bool)>),
    /// The size of the table that the peer allows to the encoder.
    TableSize(u16),
    Limits(u16, u8),
}

const NO_LIMITS: FieldLimits = FieldLimits {
    max_bytes: usize::MAX,
    max_fields: usize::MAX,
};

type Line = (Vec<u8>, Vec<u8>, bool);

fn lines(section: &FieldSection) -> Vec<Line> {
    let fields = section.fields().iter();
    fields
        .map(|field| {
            let name = field.name.as_bytes().to_vec();
            (name, field.value.as_bytes().to_vec(), field.never_indexed)
        })
        .collect()
}

/// Two ends of a connection: what one encodes the other decodes.
struct Ends {
    encoder: Encoder,
    decoder: Decoder,
    allowed: usize,
}

impl Ends {
    fn carry(&mut self, section: &FieldSection) {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for field in section.fields() {
            self.encoder.field(
                &field.name,
                field.value.as_bytes(),
                field.never_indexed,
                &mut block,
            );
        }
        let mut again = FieldSection::new();
        self.decoder.set_max_table_size(self.allowed);
        self.decoder
            .decode(&block, &NO_LIMITS, &mut again)
            .expect("our own block");
        let pairs = |lines: Vec<Line>| {
            lines
                .into_iter()
                .map(|(name, value, _)| (name, value))
                .collect::<Vec<_>>()
        };
        for (before, after) in lines(section).iter().zip(lines(&again)) {
            assert!(!before.2 || after.2, "a secret became public");
        }
        assert_eq!(pairs(lines(section)), pairs(lines(&again)));
        assert_eq!(self.encoder.table_size(), self.decoder.table_size());
        assert!(self.decoder.table_size() <= self.allowed.max(4_096));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let mut limits = NO_LIMITS;
    let mut received = Some(Decoder::new(4_096));
    let mut ends = Ends {
        encoder: Encoder::new(1 << 16),
        decoder: Decoder::new(4_096),
        allowed: 4_096,
    };
    while !input.is_empty() {
        let Ok(step) = Step::arbitrary(&mut input) else {
            return;
        };
        match step {
            Step::Block(block) => {
                let Some(decoder) = &mut received else { continue };
                let mut section = FieldSection::new();
                if decoder.decode(&block, &limits, &mut section).is_err() {
                    received = None;
                    continue;
                }
                assert!(decoder.table_size() <= 4_096);
                assert!(section.fields().len() <= limits.max_fields || section.over_limit());
                if !section.over_limit() {
                    assert!(section.size() <= limits.max_bytes);
                    ends.carry(&section);
                }
            }
            Step::Fields(fields) => {
                let mut section = FieldSection::new();
                for (name, value, never_indexed) in fields {
                    let mut field = fullbore_proto::hpack::Field::parse(&name, &value);
                    field.never_indexed = never_indexed;
                    section.push(field);
                }
                ends.carry(&section);
            }
            Step::TableSize(size) => {
                ends.allowed = usize::from(size);
                ends.encoder.set_max_table_size(ends.allowed);
                ends.decoder.set_max_table_size(ends.allowed);
            }
            Step::Limits(max_bytes, max_fields) => {
                limits = FieldLimits {
                    max_bytes: usize::from(max_bytes),
                    max_fields: usize::from(max_fields),
                };
            }
        }
    }
});
