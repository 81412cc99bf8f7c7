//! A text under construction whose memory counts against the budget of all lists. Called by `listing`, `sublists` and `json_list`.

use crate::budget::Share;

/// A text under construction. Its memory is part of the budget.
pub(crate) struct Output {
    pub(crate) text: String,
    /// The memory of the entries.
    pub(crate) beside: usize,
    pub(crate) share: Share,
}

/// The memory of listings is used up.
pub(crate) struct Exhausted;

impl Output {
    /// # Errors
    /// The memory of listings is used up.
    pub(crate) fn check(&mut self) -> Result<(), Exhausted> {
        let bytes = self.text.capacity().saturating_add(self.beside);
        self.share.reach(bytes).then_some(()).ok_or(Exhausted)
    }
}
