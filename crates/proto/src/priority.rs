//! Extensible priorities (RFC 9218): what a `priority` field or a PRIORITY_UPDATE frame asks for.
//!
//! Pure parsing and writing. The scheduler acts on a [`Priority`]; the connection reads it off a request's fields or off
//! the frame.

#[cfg(test)]
mod tests;

use sfparse::{Parser, Value};

/// How urgent a response is, and whether it is of use in parts (RFC 9218 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    urgency: u8,
    incremental: bool,
}

impl Priority {
    /// The least urgent there is.
    pub const LEAST_URGENT: u8 = 7;
    /// The urgency of a request that says nothing (RFC 9218 section 4.1).
    pub const DEFAULT_URGENCY: u8 = 3;

    /// A priority, if `urgency` is from 0, the most urgent, to 7.
    ///
    /// ```
    /// use fullbore_proto::Priority;
    ///
    /// let priority = Priority::new(1, true).ok_or("urgency is 0 to 7")?;
    /// assert_eq!(priority.to_field_value(), "u=1, i");
    /// assert_eq!(Priority::new(8, false), None);
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub const fn new(urgency: u8, incremental: bool) -> Option<Self> {
        if urgency > Self::LEAST_URGENT {
            return None;
        }
        Some(Self { urgency, incremental })
    }

    /// From 0, the most urgent, to 7; 3 unless the peer says otherwise (RFC 9218 section 4.1).
    #[must_use]
    pub const fn urgency(self) -> u8 {
        self.urgency
    }

    /// Whether the response is of use in parts, and so shares with others of its urgency (RFC 9218 section 4.2).
    #[must_use]
    pub const fn incremental(self) -> bool {
        self.incremental
    }

    /// Parses a Priority field value: a dictionary of structured fields (RFC 9218 section 5). Several field lines are
    /// to be joined by commas first.
    ///
    /// It never fails, since a priority is a hint: what is unknown is ignored, a parameter of the wrong type or out of
    /// range has its default (section 4), and what is no dictionary is all defaults.
    ///
    /// ```
    /// use fullbore_proto::Priority;
    ///
    /// let priority = Priority::parse(b"u=5, i");
    /// assert_eq!((priority.urgency(), priority.incremental()), (5, true));
    /// assert_eq!(Priority::parse(b"nonsense="), Priority::default());
    /// ```
    #[must_use]
    pub fn parse(field_value: &[u8]) -> Self {
        Self::default().changed_by(field_value)
    }

    /// What the `priority` field of a response makes of the client's priority (RFC 9218 section 8): a parameter that it does
    /// not have stays as the client said. As [`Self::parse`], it never fails.
    ///
    /// ```
    /// use fullbore_proto::Priority;
    ///
    /// let asked = Priority::parse(b"u=5, i");
    /// assert_eq!(asked.changed_by(b"u=1"), Priority::parse(b"u=1, i"));
    /// assert_eq!(asked.changed_by(b"i=?0"), Priority::parse(b"u=5"));
    /// ```
    #[must_use]
    pub fn changed_by(self, field_value: &[u8]) -> Self {
        let mut priority = self;
        let mut members = Parser::new(field_value);
        loop {
            // Of a key that is there twice, the last counts (RFC 9651 section 4.2.2).
            match members.parse_dict() {
                Ok(None) => return priority,
                Ok(Some(("u", Value::Integer(urgency)))) => {
                    priority.urgency = u8::try_from(urgency)
                        .ok()
                        .filter(|&urgency| urgency <= Self::LEAST_URGENT)
                        .unwrap_or(self.urgency);
                }
                Ok(Some(("u", _))) => priority.urgency = self.urgency,
                Ok(Some(("i", Value::Bool(incremental)))) => priority.incremental = incremental,
                Ok(Some(("i", _))) => priority.incremental = self.incremental,
                Ok(Some(_)) => {}
                Err(_) => return self,
            }
        }
    }

    /// The Priority field value that says this, for a field or for a PRIORITY_UPDATE frame.
    #[must_use]
    pub const fn to_field_value(self) -> &'static str {
        match (self.urgency, self.incremental) {
            (0, false) => "u=0",
            (1, false) => "u=1",
            (2, false) => "u=2",
            (3, false) => "u=3",
            (4, false) => "u=4",
            (5, false) => "u=5",
            (6, false) => "u=6",
            (_, false) => "u=7",
            (0, true) => "u=0, i",
            (1, true) => "u=1, i",
            (2, true) => "u=2, i",
            (3, true) => "u=3, i",
            (4, true) => "u=4, i",
            (5, true) => "u=5, i",
            (6, true) => "u=6, i",
            (_, true) => "u=7, i",
        }
    }
}

impl Default for Priority {
    /// Urgency 3, not incremental.
    fn default() -> Self {
        Self {
            urgency: Self::DEFAULT_URGENCY,
            incremental: false,
        }
    }
}
