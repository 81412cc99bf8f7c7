//! The most memory that a server takes: the sum of its limits.
//!
//! The figures of a connection and of a stream are those of `docs/design/limits.md`, where they are measured.

use fullbore_proto::Config;

use super::admission::ConnectionLimits;
use crate::settings::DEFAULT_MEMORY_BUDGET;

/// What a stream takes: 6.6 KiB, measured, and 2 KiB of field section that need no lease.
const STREAM: u64 = 9 << 10;

/// What a connection takes: 128 KiB that TLS has sealed and the socket has not taken, 16 KiB of frames and 16 KiB of an
/// arriving frame that need no lease, and 32 KiB for everything else.
const CONNECTION: u64 = 192 << 10;

/// Pieces of files that connections of HTTP/1.1 hold.
const HTTP1_FILES: u64 = 64 << 20;

pub(super) fn most_memory(config: &Config, limits: &ConnectionLimits) -> u64 {
    let budget = config
        .budget()
        .map_or(DEFAULT_MEMORY_BUDGET, |budget| budget.limit());
    let connections = (limits.max_connections() as u64).saturating_add(limits.max_closing() as u64);
    // The only stream of a connection needs no lease.
    let streams = limits.streams().limit().saturating_add(connections);
    let of_one = CONNECTION + config.send_buffer() as u64;
    budget
        .saturating_add(HTTP1_FILES)
        .saturating_add(streams.saturating_mul(STREAM))
        .saturating_add(connections.saturating_mul(of_one))
}

#[cfg(test)]
mod tests {
    use fullbore_proto::MemoryBudget;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_sum_has_the_budget_the_streams_and_the_connections() {
        let mut config = Config::default();
        config.set_budget(Some(MemoryBudget::new(32 * MIB)));
        config.set_send_buffer(64 << 10);
        let limits = ConnectionLimits::new(1_000, 2_000);
        // 125 more may be closing.
        let expected = 96 * MIB + (2_000 + 1_125) * (9 << 10) + 1_125 * (256 << 10);
        assert_eq!(most_memory(&config, &limits), expected);
        let boundless = ConnectionLimits::new(usize::MAX, u64::MAX);
        assert_eq!(most_memory(&config, &boundless), u64::MAX);
    }
}
