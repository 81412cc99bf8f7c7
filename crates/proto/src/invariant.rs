//! Lookups that cannot fail.

/// A lookup that `reason` makes infallible. A debug build panics when it fails. A release build continues as if the value were
/// gone, because no input of a peer may cause a panic.
#[inline]
pub(crate) fn infallible<T>(found: Option<T>, reason: &str) -> Option<T> {
    debug_assert!(found.is_some(), "{reason}");
    found
}
