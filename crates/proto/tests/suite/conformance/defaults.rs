//! The default of every setting is the one that its documentation states.

use std::time::Duration;

use fullbore_proto::{Config, KeepAlive, Limit, PeerLimit, Refill, Scheduling, WindowSize};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn windows_and_budgets_have_the_documented_defaults() {
    let config = Config::default();
    assert_eq!(config.stream_window(), WindowSize::from_mebibytes(48));
    assert_eq!(config.connection_window(), WindowSize::from_mebibytes(64));
    assert!(config.adaptive());
    assert_eq!(config.largest_window(), WindowSize::from_mebibytes(256));
    assert_eq!(config.stream_refill(), Refill::Fraction { divisor: 4 });
    assert_eq!(config.connection_refill(), Refill::Fraction { divisor: 4 });
    assert!(config.budget().is_none() && config.stream_budget().is_none() && config.share().is_none());
}

#[test]
fn limits_on_sizes_have_the_documented_defaults() {
    let config = Config::default();
    assert_eq!(config.max_concurrent_streams(), 10_000);
    assert_eq!(config.max_frame_size(), 16_384);
    assert_eq!(config.max_header_list_size(), 65_536);
    assert_eq!(config.max_header_fields(), 1_000);
    assert_eq!(config.header_table_size(), 4_096);
    assert!(!config.enable_connect_protocol());
    assert_eq!(config.scheduling(), Scheduling::InOrder);
    assert_eq!(config.record_size(), 0);
    assert_eq!(config.write_size(), 524_288);
    assert_eq!(config.send_buffer(), 393_216);
    assert_eq!(config.max_header_memory(), 4_194_304);
}

#[test]
fn limits_on_time_have_the_documented_defaults() {
    let config = Config::default();
    assert_eq!(config.shutdown_grace(), seconds(1));
    assert_eq!(config.preface_timeout(), seconds(10));
    assert_eq!(config.header_timeout(), seconds(30));
    assert_eq!(config.idle_timeout(), Some(seconds(180)));
    assert_eq!(config.keep_alive(), KeepAlive::ByRole);
    assert_eq!(config.keep_alive_timeout(), seconds(60));
    assert_eq!(config.body_timeout(), None);
    assert_eq!(config.body_rate(), 0);
    assert_eq!(config.response_timeout(), None);
    assert_eq!(config.stream_wait_timeout(), Some(seconds(30)));
    assert_eq!(config.send_timeout(), Some(seconds(300)));
    assert_eq!(config.half_close_timeout(), seconds(30));
}

#[test]
fn limits_on_events_have_the_documented_defaults() {
    let config = Config::default();
    let cheap = Limit::new(10_000, 1_000);
    assert_eq!(config.limit(PeerLimit::PeerResets), cheap);
    assert_eq!(config.limit(PeerLimit::RefusedStreams), cheap);
    assert_eq!(config.limit(PeerLimit::WindowUpdates), cheap);
    assert_eq!(config.limit(PeerLimit::Priorities), cheap);
    let dear = Limit::new(1_000, 100);
    assert_eq!(config.limit(PeerLimit::ProvokedResets), dear);
    assert_eq!(config.limit(PeerLimit::EmptyData), dear);
    assert_eq!(config.limit(PeerLimit::Pings), dear);
    assert_eq!(config.limit(PeerLimit::Settings), dear);
    assert_eq!(config.limit(PeerLimit::Informational), dear);
}
