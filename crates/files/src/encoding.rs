//! Content codings (RFC 9110 section 8.4.1): which of them a request accepts, and which a file has as siblings. Called by
//! `cache`, `files` and `representation`.

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

use crate::accept::{elements, weighted};

/// A coding in which a file may lie beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Brotli,
    Zstd,
    Gzip,
}

/// The codings that a request accepts and prefers to none, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted([Option<Encoding>; 3]);

/// The codings in which a file has a sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Siblings(u8);

impl Encoding {
    /// All of them. Of those with the same weight the first is taken: the shortest, as a rule.
    pub(crate) const ALL: [Encoding; 3] = [Encoding::Brotli, Encoding::Zstd, Encoding::Gzip];

    /// As `content-encoding` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Brotli => "br",
            Encoding::Zstd => "zstd",
            Encoding::Gzip => "gzip",
        }
    }

    /// The value of `content-encoding`.
    pub(crate) fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// What the name of a sibling ends with.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Encoding::Brotli => ".br",
            Encoding::Zstd => ".zst",
            Encoding::Gzip => ".gz",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Whether a file of this name is itself encoded, and so has no siblings.
pub(crate) fn is_encoded(name: &str) -> bool {
    Encoding::ALL
        .iter()
        .any(|encoding| name.ends_with(encoding.suffix()))
}

impl Siblings {
    pub(crate) fn add(&mut self, encoding: Encoding) {
        self.0 |= encoding.bit();
    }

    pub(crate) fn has(self, encoding: Encoding) -> bool {
        self.0 & encoding.bit() != 0
    }
}

impl Accepted {
    /// RFC 9110 section 12.5.3. A coding that is preferred less than `identity` is left out.
    pub(crate) fn of(headers: &HeaderMap) -> Accepted {
        let mut weights = [None; 3];
        let (mut others, mut identity) = (None, None);
        for (name, weight) in elements(headers, ACCEPT_ENCODING).map(weighted) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            let known = Encoding::ALL.iter().position(|coding| is(coding.name()));
            match known.and_then(|at| weights.get_mut(at)) {
                Some(slot) => *slot = Some(weight),
                // RFC 9110 section 8.4.1.3.
                None if is("x-gzip") => weights[2] = weights[2].or(Some(weight)),
                None if is("identity") => identity = Some(weight),
                None if name == "*" => others = Some(weight),
                None => {}
            }
        }
        let mut codings =
            Encoding::ALL.map(|coding| (weights[coding as usize].or(others).unwrap_or(0), coding));
        codings.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let least = identity.unwrap_or(0).max(1);
        Accepted(codings.map(|(weight, coding)| (weight >= least).then_some(coding)))
    }

    /// The best coding for which `has` holds.
    pub(crate) fn best(self, has: impl Fn(Encoding) -> bool) -> Option<Encoding> {
        self.0.into_iter().flatten().find(|encoding| has(*encoding))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_ordered_by_weight_and_compared_with_none() {
        for (field, expected) in [
            ("", ""),
            ("gzip, deflate, br, zstd", "br zstd gzip"),
            ("gzip;q=0.9, br;q=0.8", "gzip br"),
            ("br;q=0, gzip", "gzip"),
            ("*", "br zstd gzip"),
            ("*;q=0", ""),
            ("gzip, *;q=0", "gzip"),
            ("br;q=0, *", "zstd gzip"),
            ("identity", ""),
            ("identity;q=0", ""),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.6", "br"),
            ("identity;q=0, gzip;q=0.1", "gzip"),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            ("gzip;q=0.001", "gzip"),
            ("x-gzip", "gzip"),
            ("GZIP ; q=0.5", "gzip"),
            ("gzip;q=nonsense", ""),
            ("deflate, compress", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, field.parse().unwrap());
            let accepted = Accepted::of(&headers);
            let names: Vec<&str> = accepted.0.iter().flatten().map(|coding| coding.name()).collect();
            assert_eq!(names.join(" "), expected, "{field}");
            assert_eq!(accepted.is_empty(), expected.is_empty());
        }
        assert!(Accepted::of(&HeaderMap::new()).is_empty());
    }

    #[test]
    fn siblings_are_a_set() {
        let mut siblings = Siblings::default();
        siblings.add(Encoding::Zstd);
        assert_eq!(
            Encoding::ALL.map(|coding| siblings.has(coding)),
            [false, true, false]
        );
        assert!(is_encoded("a.js.br") && is_encoded("a.gz") && !is_encoded("a.js"));
    }
}
