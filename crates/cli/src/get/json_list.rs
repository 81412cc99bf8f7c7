//! Lists of folders in JSON: `{"entries": […]}` of this project, and the arrays of nginx (`autoindex_format json`) and Caddy.
//!
//! A list of this project may have the lists of folders below beside it (`"sublists": [{"href": …, "entries": […]}, …]`).
//!
//! Entries are handed over one by one, and what is not needed is skipped: a document of 16 MiB would take hundreds when it is
//! read whole.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::entries::{Collector, Facts};

/// Reads a list; `None` if it is none. `sublists`: it may have those of folders below.
pub(super) fn read(text: &str, sublists: bool, found: &mut Collector<'_>) -> Option<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    Document { found, sublists }.deserialize(&mut json).ok()?;
    json.end().ok()
}

/// The document: an object with entries, or their array.
struct Document<'a, 'b> {
    found: &'a mut Collector<'b>,
    sublists: bool,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a list of a folder")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Entry>()? {
            entry
                .add_to(self.found)
                .ok_or_else(|| A::Error::custom("no name"))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut has_entries = false;
        while let Some(key) = fields.next_key::<String>()? {
            match key.as_str() {
                "entries" => {
                    has_entries = true;
                    fields.next_value_seed(Document {
                        found: &mut *self.found,
                        sublists: false,
                    })?;
                }
                "sublists" if self.sublists => fields.next_value_seed(Sublists(&mut *self.found))?,
                "truncated" => self.found.index.is_partial = fields.next_value::<Scalar>()?.is_true(),
                "next" => self.found.index.next = fields.next_value::<Scalar>()?.into_text(),
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        has_entries
            .then_some(())
            .ok_or_else(|| A::Error::custom("no entries"))
    }
}

/// The lists of folders below.
struct Sublists<'a, 'b>(&'a mut Collector<'b>);

impl<'de> DeserializeSeed<'de> for Sublists<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Sublists<'_, '_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("lists of folders")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut lists: A) -> Result<(), A::Error> {
        while lists.next_element_seed(Sublist(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// The list of a folder below: its reference, and then its entries.
struct Sublist<'a, 'b>(&'a mut Collector<'b>);

impl<'de> DeserializeSeed<'de> for Sublist<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Sublist<'_, '_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a list of a folder below")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut reference = None;
        while let Some(key) = fields.next_key::<String>()? {
            match (key.as_str(), &reference) {
                ("href", _) => reference = fields.next_value::<Scalar>()?.into_text(),
                ("entries", Some(reference)) => self.0.add_sublist(reference, |found| {
                    let entries = Document {
                        found,
                        sublists: false,
                    };
                    fields.next_value_seed(entries)
                })?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// An entry, of whichever server.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry {
    name: Scalar,
    r#type: Scalar,
    is_dir: Scalar,
    size: Scalar,
    modified: Scalar,
    mod_time: Scalar,
    mtime: Scalar,
    href: Scalar,
    url: Scalar,
}

impl Entry {
    /// `None` if it has no name.
    fn add_to(self, found: &mut Collector<'_>) -> Option<()> {
        let name = self.name.text()?;
        let is_folder = matches!(self.r#type.text(), Some("folder" | "directory")) || self.is_dir.is_true();
        let size = match self.size {
            Scalar::Number(size) => Some(size),
            _ => None,
        };
        let time = [&self.modified, &self.mod_time, &self.mtime];
        let time = time.into_iter().find_map(Scalar::text);
        let facts = Facts::new(is_folder, size, time);
        match (&self.href, self.href.text().or(self.url.text())) {
            (_, Some(link)) => found.add_link(link, facts),
            // A name that no URL can have.
            (Scalar::Null, None) => found.refuse(name),
            _ => found.add_name(name, facts),
        }
        Some(())
    }
}

/// A value that is no structure. Of others nothing is kept.
#[derive(Default)]
enum Scalar {
    #[default]
    Missing,
    Null,
    True,
    Number(u64),
    Text(String),
    Other,
}

impl Scalar {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn is_true(&self) -> bool {
        matches!(self, Self::True)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(if value { Scalar::True } else { Scalar::Other })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Scalar, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Scalar, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::super::entries::{Index, MOST_ENTRIES};
    use super::*;

    fn names(text: &str) -> Option<Vec<String>> {
        let folder = Url::parse("http://h/").ok()?;
        let mut found = Collector::new(&folder);
        read(text, true, &mut found)?;
        let names = found.index.entries.into_iter();
        Some(names.filter_map(|entry| entry.name.into_string().ok()).collect())
    }

    #[test]
    fn values_of_other_types_are_skipped() {
        let text = r#"{"more":[[{}]],"entries":[{"name":"a","size":-1,"mtime":[1,{"x":2}],"type":{},"href":"a"},
            {"name":"b","size":1.5,"is_dir":false,"extra":"x","url":"b"}],"truncated":0,"next":null}"#;
        assert_eq!(names(text), Some(vec!["a".to_owned(), "b".to_owned()]));
        for other in [
            "",
            "{",
            "1",
            "[1]",
            "[{}]",
            "[{\"name\":1}]",
            "{\"entries\":1}",
            "[] x",
            "[[],[]]",
        ] {
            assert_eq!(names(other), None, "{other}");
        }
        assert_eq!(names(&"[".repeat(100_000)), None);
    }

    #[test]
    fn lists_of_folders_below_count_as_entries_and_are_whole_or_not_there() {
        let folder = Url::parse("http://h/").unwrap();
        let lists = |count: usize, entries: &str| {
            let list = |number| format!("{{\"href\":\"{number:x}/\",\"entries\":[{entries}]}}");
            let lists: Vec<String> = (0..count).map(list).collect();
            format!(
                "{{\"entries\":[{{\"name\":\"a\"}}],\"sublists\":[{}]}}",
                lists.join(",")
            )
        };
        let kept = |text: &str| {
            let mut found = Collector::new(&folder);
            read(text, true, &mut found).unwrap();
            assert!(!found.index.is_cut);
            let entries = |index: &Index| index.entries.len();
            let below = found.index.sublists.values().map(entries).sum::<usize>();
            (found.index.sublists.len(), below)
        };
        assert_eq!(kept(&lists(2, "{\"name\":\"a\"},{\"name\":\"b\"}")), (2, 4));
        let names: Vec<String> = (0..10_000)
            .map(|number| format!("{{\"name\":\"{number}\"}}"))
            .collect();
        // A list that does not fit is left out.
        assert_eq!(kept(&lists(16, &names.join(","))), (14, 140_000));
        assert_eq!(kept(&lists(MOST_ENTRIES + 10, "")), (MOST_ENTRIES - 2, 0));
        for wrong in ["1", "[1]", "[{\"href\":\"a/\",\"entries\":1}]"] {
            let text = format!("{{\"entries\":[],\"sublists\":{wrong}}}");
            assert!(
                read(&text, true, &mut Collector::new(&folder)).is_none(),
                "{wrong}"
            );
            assert!(
                read(&text, false, &mut Collector::new(&folder)).is_some(),
                "{wrong}"
            );
        }
    }
}
