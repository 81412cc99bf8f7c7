//! What users of the interface rely on and no signature says, one test or more for each.

mod capacity;
mod ending;
mod order;
mod receiving;
