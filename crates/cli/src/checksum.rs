//! A checksum that the user expects, and the digest of what is written.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::str::FromStr;

use ring::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};

use crate::exit::{Exit, Failure};

/// The known algorithms. SHA-1 protects from accidents only, but old lists have nothing else.
static ALGORITHMS: [(&str, &Algorithm); 4] = [
    ("sha256", &SHA256),
    ("sha384", &SHA384),
    ("sha512", &SHA512),
    ("sha1", &SHA1_FOR_LEGACY_USE_ONLY),
];

/// What is read at once to compute the digest of an existing part.
const PIECE: usize = 1 << 20;

/// A checksum as the user gives it: `sha256:HEX`, or `sha-256=HEX` as in lists of aria2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    name: &'static str,
    algorithm: &'static Algorithm,
    octets: Vec<u8>,
}

impl FromStr for Checksum {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let Some((kind, digits)) = text.split_once([':', '=']) else {
            return Err(Failure::usage("expected TYPE:HEX, such as sha256:9f86d081…"));
        };
        let kind = kind.trim().to_ascii_lowercase().replace('-', "");
        let Some(&(name, algorithm)) = ALGORITHMS.iter().find(|row| row.0 == kind) else {
            return Err(Failure::usage(match kind.as_str() {
                "md5" => "md5 is not supported, since collisions are easy to make; use sha256".to_owned(),
                _ => format!("unknown type {kind:?}; use sha256, sha384, sha512 or sha1"),
            }));
        };
        let digits = digits.trim();
        let count = 2 * algorithm.output_len();
        let octets = hex(digits).filter(|_| digits.len() == count);
        let octets = octets.ok_or_else(|| {
            let found = digits.chars().count();
            Failure::usage(format!(
                "expected the {count} hexadecimal digits of a {name}, found {found} characters"
            ))
        })?;
        Ok(Self {
            name,
            algorithm,
            octets,
        })
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, digits(&self.octets))
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => {
                let value = |digit: u8| char::from(digit).to_digit(16);
                u8::try_from(value(*high)? * 16 + value(*low)?).ok()
            }
            _ => None,
        })
        .collect()
}

/// Hexadecimal.
pub(crate) fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The SHA-256 of these octets.
pub(crate) fn sha256(octets: &[u8]) -> Vec<u8> {
    ring::digest::digest(&SHA256, octets).as_ref().to_vec()
}

/// The SHA-256 of a file from its beginning to its end. Blocks.
///
/// # Errors
/// It cannot be read.
pub(crate) fn sha256_of(file: &File) -> io::Result<Vec<u8>> {
    let mut context = Context::new(&SHA256);
    read_into(&mut context, file)?;
    Ok(context.finish().as_ref().to_vec())
}

/// Reads a file from its beginning to its end.
fn read_into(context: &mut Context, mut file: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => context.update(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest of a body that is being written, and the checksum that it should have. Computed on blocking threads.
pub(crate) struct Digest {
    context: Context,
    expected: Checksum,
}

impl Digest {
    pub(crate) fn new(expected: Checksum) -> Self {
        Self {
            context: Context::new(expected.algorithm),
            expected,
        }
    }

    /// The body begins again.
    pub(crate) fn restart(&mut self) {
        self.context = Context::new(self.expected.algorithm);
    }

    pub(crate) fn update(&mut self, octets: &[u8]) {
        self.context.update(octets);
    }

    /// Reads what a file has so far, to its end.
    pub(crate) fn read(&mut self, file: &File) -> io::Result<()> {
        self.restart();
        read_into(&mut self.context, file)
    }

    /// Compares the digest of everything with the checksum.
    pub(crate) fn verify(&self, place: &Path) -> Result<(), Failure> {
        let found = self.context.clone().finish();
        if found.as_ref() == self.expected.octets {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Checksum,
            format!(
                "{}: the {} of the body is {} instead of {}; the server has another version, or the data was changed",
                place.display(),
                self.expected.name,
                digits(found.as_ref()),
                digits(&self.expected.octets)
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of nothing (FIPS 180-4).
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_checksum_is_written_as_type_and_hexadecimal_digits() {
        let same = [
            format!("sha256:{EMPTY}"),
            format!("SHA-256={}", EMPTY.to_uppercase()),
            format!("sha-256={EMPTY}"),
        ];
        for text in same {
            let parsed = text.parse::<Checksum>().map(|sum| sum.to_string());
            assert_eq!(parsed.ok(), Some(format!("sha256:{EMPTY}")), "{text}");
        }
        for (wrong, why) in [
            (EMPTY, "sha256:"),
            ("md5:d41d8cd98f00b204e9800998ecf8427e", "use sha256"),
            ("crc32:00000000", "unknown type \"crc32\""),
            ("sha256:abcd", "64 hexadecimal digits of a sha256, found 4"),
            (
                "sha1:zz39a3ee5e6b4b0d3255bfef95601890afd80709",
                "40 hexadecimal digits",
            ),
            ("sha256:", "found 0"),
        ] {
            let failure = wrong.parse::<Checksum>().err().map(|failure| failure.message);
            assert!(
                failure.as_ref().is_some_and(|text| text.contains(why)),
                "{wrong}: {failure:?}"
            );
        }
    }

    #[test]
    fn a_digest_is_that_of_all_octets_since_the_last_start() -> Result<(), Failure> {
        let mut digest = Digest::new(format!("sha256:{EMPTY}").parse()?);
        let place = Path::new("a");
        digest.verify(place)?;
        digest.update(b"some");
        let failure = digest
            .verify(place)
            .err()
            .ok_or(Failure::usage("it was accepted"))?;
        assert_eq!(failure.exit, Exit::Checksum);
        assert!(
            failure.message.starts_with("a: the sha256 of the body is "),
            "{failure:?}"
        );
        digest.restart();
        digest.verify(place)
    }
}
