//! What is between a server and its client: a path of packets where there can be one, `fullbore link` elsewhere. Servers
//! listen on 127.0.0.1 and clients name 127.0.0.1 in both cases.

use std::sync::OnceLock;
use std::time::Duration;

use fullbore_packets::{Direction, Path, Settings, Tcp};

use crate::context::Context;
use crate::error::Error;
use crate::program::{self, LinkOptions, Narrow, Served};

/// The largest socket buffers: more than twice what a path of 1 Gbit/s and 230 ms carries, so that they limit nobody.
const RECEIVE_BUFFER: [u32; 3] = [4096, 131_072, 128 << 20];
const SEND_BUFFER: [u32; 3] = [4096, 16_384, 128 << 20];

/// The kernel's congestion control of most servers, and the one that does not fill a queue.
pub(crate) const CUBIC: &str = "cubic";
pub(crate) const BBR: &str = "bbr";

/// A route to servers that are far away.
pub(crate) struct Route<'a> {
    cx: &'a Context,
    far: Far,
}

enum Far {
    Packets(Path),
    Link(LinkOptions),
    Narrow(Narrow),
}

/// Where a client finds a server.
pub(crate) struct Hop<'a> {
    pub(crate) port: u16,
    _link: Option<Served<'a>>,
}

/// Whether there can be paths of packets; why not, otherwise.
pub(crate) fn has_packets() -> Result<(), &'static str> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match Path::open(&Settings::default()) {
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    });
    match found {
        Ok(()) => Ok(()),
        Err(why) => Err(why),
    }
}

/// What is said of the paths of a case.
pub(crate) fn described(congestion_control: &str) -> String {
    match has_packets() {
        Ok(()) => format!(
            "The paths are emulated from IP packet to IP packet, with the kernel's TCP at both ends: {congestion_control}, \
             buffers of up to 128 MiB, and a queue of one bandwidth-delay product (at least 64 KiB) in front of the link"
        ),
        Err(why) => format!("The paths are those of `fullbore link`, which ends TCP on both sides ({why})"),
    }
}

impl<'a> Route<'a> {
    /// A path of this round trip at 1 Gbit/s.
    pub(crate) fn gigabit(cx: &'a Context, rtt_ms: u32, congestion_control: &str) -> Result<Self, Error> {
        let options = LinkOptions {
            rtt_ms,
            gigabit: true,
        };
        Self::open(cx, [rtt_ms, 1_000], congestion_control, 0.0, Far::Link(options))
    }

    /// The same, where packets are lost on their way in both directions. A link loses none.
    pub(crate) fn lossy_gigabit(
        cx: &'a Context,
        rtt_ms: u32,
        congestion_control: &str,
        loss: f64,
    ) -> Result<Self, Error> {
        let options = LinkOptions {
            rtt_ms,
            gigabit: true,
        };
        Self::open(cx, [rtt_ms, 1_000], congestion_control, loss, Far::Link(options))
    }

    /// A path on which what is ahead of an urgent response matters.
    pub(crate) fn narrow(cx: &'a Context, path: Narrow, congestion_control: &str) -> Result<Self, Error> {
        Self::open(
            cx,
            [path.rtt_ms, path.megabits],
            congestion_control,
            0.0,
            Far::Narrow(path),
        )
    }

    fn open(
        cx: &'a Context,
        [rtt_ms, megabits]: [u32; 2],
        congestion_control: &str,
        loss: f64,
        relay: Far,
    ) -> Result<Self, Error> {
        if has_packets().is_err() {
            return Ok(Self { cx, far: relay });
        }
        let mut settings = settings(rtt_ms, megabits, congestion_control);
        settings.to_client.loss = loss;
        settings.to_server.loss = loss;
        let far = Far::Packets(Path::open(&settings).map_err(Error::NoPath)?);
        Ok(Self { cx, far })
    }

    /// Does something where the servers are: what it starts is there.
    pub(crate) fn serve<T>(&self, start: impl FnOnce() -> T) -> T {
        match &self.far {
            Far::Packets(path) => path.server().enter(start),
            Far::Link(_) | Far::Narrow(_) => start(),
        }
    }

    /// Where clients find the server that listens on this port.
    pub(crate) fn to(&self, port: u16) -> Result<Hop<'a>, Error> {
        let link = match &self.far {
            Far::Packets(_) => None,
            Far::Link(options) => Some(program::link(self.cx, port, *options)?),
            Far::Narrow(path) => Some(program::narrow_link(self.cx, port, *path)?),
        };
        Ok(Hop {
            port: link.as_ref().map_or(port, |link| link.port),
            _link: link,
        })
    }

    /// Does something where the clients are.
    pub(crate) fn ask<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.far {
            Far::Packets(path) => path.client().enter(work),
            Far::Link(_) | Far::Narrow(_) => work(),
        }
    }
}

/// The bytes that a narrow path itself holds at the most.
pub(crate) fn queue(path: Narrow) -> f64 {
    match has_packets() {
        Ok(()) => {
            let settings = settings(path.rtt_ms, path.megabits, BBR);
            settings.queue(&settings.to_client) as f64
        }
        Err(_) => path.queue(),
    }
}

fn settings(rtt_ms: u32, megabits: u32, congestion_control: &str) -> Settings {
    let direction = Direction {
        delay: Duration::from_millis(rtt_ms.into()) / 2,
        rate: Some(u64::from(megabits) * 1_000_000),
        ..Direction::default()
    };
    let tcp = Tcp {
        congestion_control: congestion_control.to_owned(),
        receive_buffer: RECEIVE_BUFFER,
        send_buffer: SEND_BUFFER,
    };
    let mut settings = Settings::new(direction, tcp);
    settings.loopback = true;
    settings
}
