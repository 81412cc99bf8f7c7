//! Responses that repeat the one before them: of one file, or of a handler that says the same each time. As long as the dynamic
//! table does not change, their header block is the same, and they are not checked and encoded again.

use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::prefetch::prefetch;

/// The longest block that is remembered, in octets. What repeats takes a few octets for each field.
const LONGEST: usize = 128;

/// The last header block of a response.
#[derive(Debug)]
pub(super) struct LastResponse {
    block: [u8; LONGEST],
    length: usize,
    /// How often the dynamic table had changed.
    changes: u32,
    /// The response. Kept once its block has come twice, so that responses which differ cost no copy.
    response: Option<Head>,
}

#[derive(Debug)]
struct Head {
    status: StatusCode,
    fields: Vec<(HeaderName, HeaderValue)>,
    date: Option<HeaderValue>,
}

impl LastResponse {
    pub(super) fn new() -> Self {
        LastResponse {
            block: [0; LONGEST],
            length: 0,
            changes: 0,
            response: None,
        }
    }

    /// Has the processor fetch the fields of the response.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(head) = &self.response {
            prefetch(head.fields.as_slice());
        }
    }

    /// Whether a response has the header block of the last one, now that the dynamic table has changed `changes` times.
    pub(super) fn matches(&self, response: &Response<()>, date: Option<&HeaderValue>, changes: u32) -> bool {
        self.changes == changes
            && self
                .response
                .as_ref()
                .is_some_and(|head| head.is_of(response, date))
    }

    pub(super) fn block(&self) -> &[u8] {
        self.block.get(..self.length).unwrap_or_default()
    }

    /// A response was encoded, and is in order. The dynamic table had changed so often before and after it.
    pub(super) fn encoded(
        &mut self,
        block: &[u8],
        (before, after): (u32, u32),
        response: &Response<()>,
        date: Option<&HeaderValue>,
    ) {
        self.response = None;
        let is_again = self.length > 0 && self.block() == block && self.changes == after;
        if is_again {
            self.response = Some(Head::of(response, date));
            return;
        }
        self.length = 0;
        if let (Some(room), true) = (self.block.get_mut(..block.len()), before == after) {
            room.copy_from_slice(block);
            self.length = block.len();
            self.changes = after;
        }
    }
}

impl Head {
    fn of(response: &Response<()>, date: Option<&HeaderValue>) -> Self {
        let fields = response.headers().iter();
        Head {
            status: response.status(),
            fields: fields
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            date: date.cloned(),
        }
    }

    fn is_of(&self, response: &Response<()>, date: Option<&HeaderValue>) -> bool {
        let mut fields = self.fields.iter();
        self.status == response.status()
            && self.fields.len() == response.headers().len()
            && match (&self.date, date) {
                (Some(known), Some(date)) => is_same(known, date),
                (None, None) => true,
                _ => false,
            }
            && response.headers().iter().all(|(name, value)| {
                fields
                    .next()
                    .is_some_and(|(known, before)| is_same(before, value) && known == name)
            })
    }
}

/// Values are mostly the very same memory, which does not change while both refer to it.
#[inline]
fn is_same(known: &HeaderValue, value: &HeaderValue) -> bool {
    let (before, octets) = (known.as_bytes(), value.as_bytes());
    before.len() == octets.len()
        && (before.as_ptr() == octets.as_ptr() || before == octets)
        && known.is_sensitive() == value.is_sensitive()
}
