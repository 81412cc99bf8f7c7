//! The laws of flow control, as exact figures over a simulated path.

mod accounted;
mod adapt;
mod causes;
mod credit;
mod enough;
mod few;
mod first_windows;
mod grow;
mod leases;
mod records;
mod reports;
mod shares;
mod silly;
mod stalled;
mod truth;
