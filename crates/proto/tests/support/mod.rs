//! What the tests of the engine share: two connections on a virtual clock with a simulated path between them, owners
//! that answer, read and send, and a peer whose frames are made by hand.
//!
//! Each test program uses a part of it.
#![allow(dead_code)]

pub(crate) mod app;
pub(crate) mod frames;
pub(crate) mod pair;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod peer;
pub(crate) mod tap;

use fullbore_proto::{Config, KeepAlive};
pub(crate) use fullbore_testing::random;

/// Default settings but for what `change` makes of them.
pub(crate) fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

/// The same without limits on time that recur as long as a connection stands: those have tests of their own, and here a
/// connection at rest has no deadline.
pub(crate) fn patient(mut config: Config) -> Config {
    config.set_idle_timeout(None);
    config.set_keep_alive(KeepAlive::Never);
    config.set_send_timeout(None);
    config
}

/// The same, with windows that stay as they were set.
pub(crate) fn fixed(change: impl FnOnce(&mut Config)) -> Config {
    config(|config| {
        config.set_adaptive(false);
        change(config);
    })
}
