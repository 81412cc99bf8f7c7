//! Where there are no network namespaces, there is no path. The same names as in `path.rs`.

use std::convert::Infallible;
use std::fmt;
use std::net::Ipv4Addr;

use crate::emulator::Report;
use crate::settings::Settings;

/// The address of the server's end of every path.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// The address of the client's end.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);

/// Why there is no path.
#[derive(Debug)]
pub struct Unavailable;

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no path of packets can be had here: it takes Linux")
    }
}

impl std::error::Error for Unavailable {}

/// A path; there is none.
#[derive(Debug)]
pub struct Path(Infallible);

/// One end of a path; there is none.
#[derive(Debug)]
pub struct Side(Infallible);

impl Path {
    /// Says that there can be none.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Settings) -> Result<Self, Unavailable> {
        Err(Unavailable)
    }

    /// The server's end.
    pub fn server(&self) -> &Side {
        match self.0 {}
    }

    /// The client's end.
    pub fn client(&self) -> &Side {
        match self.0 {}
    }

    /// What the packets met until now.
    pub fn report(&self) -> Report {
        match self.0 {}
    }
}

impl Side {
    /// The address of this end.
    pub fn address(&self) -> Ipv4Addr {
        match self.0 {}
    }

    /// Does something at this end.
    pub fn enter<T>(&self, _: impl FnOnce() -> T) -> T {
        match self.0 {}
    }

    /// The file of the namespace while this process runs.
    pub fn file(&self) -> String {
        match self.0 {}
    }
}
