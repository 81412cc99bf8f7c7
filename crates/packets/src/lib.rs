//! A path of IP packets for tests and benchmarks: two network namespaces of Linux, joined by two TUN devices, and a thread
//! in between that delays, rates, queues, loses, reorders and polices. Both ends are the kernel's own TCP, so congestion
//! control, socket buffers and retransmissions are real.
//!
//! [`Path::open`] makes a path, and says in a sentence why there can be none (not Linux, not root, no `/dev/net/tun`).
//! Programs and sockets come to an end of it inside [`Side::enter`]. [`Path::report`] has what the packets met, and the
//! connections that they belong to. The namespaces have no name and are held by descriptors alone, so the kernel removes
//! them and their devices with the last process that uses them, however it ends.
//!
//! `settings` says what a path does, `direction` decides each packet's fate, `flows` knows the connections, and `emulator`
//! puts them together on a clock that the caller moves: no system call, and with the same seed the same fates. `relay`
//! moves the packets of two devices through an emulator, `namespace` has the namespaces, and `path` is all of it.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod direction;
mod draws;
mod emulator;
mod flows;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod path;
#[cfg(not(target_os = "linux"))]
#[path = "path_elsewhere.rs"]
mod path;
#[cfg(target_os = "linux")]
mod relay;
mod settings;

pub use direction::Counts;
pub use emulator::{Due, Emulator, Report};
pub use flows::Flow;
pub use path::{CLIENT, Path, SERVER, Side, Unavailable};
pub use settings::{Direction, Policer, STOCK_RECEIVE_BUFFER, STOCK_SEND_BUFFER, Settings, Tcp, Way};
