//! How streams are named: by the identifier of the protocol, and by their slot in the store.

mod key;
mod map;
mod stream_id;

pub(crate) use self::key::Key;
#[cfg(test)]
pub(crate) use self::key::keys;
pub use self::map::{IdHasher, IdHashing, StreamMap};
pub use self::stream_id::StreamId;
