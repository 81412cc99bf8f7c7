//! Numbers drawn by seed, purpose and packet: the n-th packet has the same luck in every run, whatever came before it.

/// What is drawn. Each purpose has numbers of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    Jitter = 2,
    Reordering = 3,
}

/// The numbers of one direction.
#[derive(Debug, Clone)]
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A number from 0 to 1, 1 excluded.
    pub(crate) fn unit(&self, purpose: Purpose, number: u64) -> f64 {
        let drawn = mix(self.0 ^ mix(number ^ ((purpose as u64) << 56)));
        (drawn >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One step of splitmix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
