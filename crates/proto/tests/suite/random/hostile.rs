//! Peers that keep to the letter of RFC 9113 and make it as hard as they can: windows refilled late, by little, or pulled
//! below zero, streams reset at every point, limits that come and go, acknowledgements that take their time. The peer is
//! no connection of ours: it speaks frames, and holds ours to its windows.

mod laws;
mod peer;
mod run;
