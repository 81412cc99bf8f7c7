//! Which limit ends a connection of HTTP/1.1, and when.

use std::future::poll_fn;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Limits that differ from each other.
fn config() -> Config {
    let mut config = Config::default();
    config.preface_timeout = SECOND * 2;
    config.header_timeout = SECOND * 3;
    config.idle_timeout = Some(SECOND * 5);
    config.body_timeout = Some(SECOND * 7);
    config.send_timeout = Some(SECOND * 11);
    config.half_close_timeout = SECOND * 13;
    config
}

/// What ends a connection on which nothing changes, and after how many milliseconds.
async fn expired(config: Config, request: Exchange, traffic: Traffic) -> (Expired, u128) {
    let mut limits = Limits::new(Arc::new(config), None);
    let begun = Instant::now();
    let expired = poll_fn(|cx| limits.poll(request, traffic, cx));
    let expired = tokio::time::timeout(SECOND * 1_000, expired).await;
    (expired.expect("a limit"), begun.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn each_state_of_a_connection_has_its_limit() {
    let first = Exchange::default();
    let nothing = Traffic::default();
    let one = Traffic {
        received: 1,
        ..nothing
    };
    let answered = Exchange { requests: 1, ..first };
    assert_eq!(expired(config(), first, nothing).await, (Expired::Silence, 2_000));
    assert_eq!(expired(config(), first, one).await, (Expired::Head, 3_000));
    assert_eq!(expired(config(), answered, one).await, (Expired::Idle, 5_000));

    let answers = Exchange {
        answers: true,
        ..answered
    };
    let receives = Exchange {
        receives: true,
        ..answers
    };
    let awaits_read = Traffic {
        awaits_read: true,
        ..one
    };
    let awaits_write = Traffic {
        awaits_write: true,
        ..one
    };
    let ended = Traffic { ended: true, ..one };
    let at = async |request, traffic| expired(config(), request, traffic).await;
    assert_eq!(at(receives, awaits_read).await, (Expired::Body, 7_000));
    assert_eq!(at(answers, awaits_write).await, (Expired::Send, 11_000));
    assert_eq!(at(answers, ended).await, (Expired::HalfClose, 13_000));
    // What is still to be sent of the last response is no idle connection.
    assert_eq!(at(answered, awaits_write).await, (Expired::Send, 11_000));
}

#[tokio::test(start_paused = true)]
async fn of_several_limits_the_first_that_is_over_counts() {
    let request = Exchange {
        requests: 1,
        answers: true,
        receives: true,
        ..Exchange::default()
    };
    let traffic = Traffic {
        awaits_read: true,
        awaits_write: true,
        ended: true,
        ..Traffic::default()
    };
    let seconds = |seconds: u64| SECOND * u32::try_from(seconds).expect("few");
    for (body, send, half_close, first) in [
        (1, 2, 3, Expired::Body),
        (2, 1, 3, Expired::Send),
        (3, 2, 1, Expired::HalfClose),
        // Of equal ones the one that says most.
        (1, 1, 1, Expired::Body),
        (2, 1, 1, Expired::Send),
    ] {
        let mut config = config();
        config.body_timeout = Some(seconds(body));
        config.send_timeout = Some(seconds(send));
        config.half_close_timeout = seconds(half_close);
        assert_eq!(expired(config, request, traffic).await, (first, 1_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_is_looked_at_four_times_in_the_time_that_a_write_may_take() {
    let request = Exchange {
        requests: 1,
        tunnel: true,
        ..Exchange::default()
    };
    let mut limits = Limits::new(Arc::new(config()), None);
    let mut polls = 0;
    let looks = poll_fn(|cx| {
        polls += 1;
        limits.poll(request, Traffic::default(), cx)
    });
    let ended = tokio::time::timeout(SECOND * 110 + SECOND / 10, looks).await;
    assert!(ended.is_err(), "a tunnel may rest: {ended:?}");
    // The first look, and that of the end.
    assert_eq!(polls, 1 + 40 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_has_to_arrive_at_its_least_rate_and_by_an_octet_at_least() {
    for (rate, least) in [(0, 1), (1, 7), (1_000, 7_000)] {
        let mut config = config();
        config.body_rate = rate;
        assert_eq!(Limits::new(Arc::new(config), None).least_body_bytes(), least);
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_has_all_of_the_time_for_its_body() {
    let mut limits = Limits::new(Arc::new(config()), None);
    let traffic = Traffic {
        received: 1,
        awaits_read: true,
        ..Traffic::default()
    };
    for requests in 1..4 {
        let receives = Exchange {
            requests,
            receives: true,
            answers: true,
            ..Exchange::default()
        };
        let waits = poll_fn(|cx| limits.poll(receives, traffic, cx));
        let ended = tokio::time::timeout(SECOND * 6, waits).await;
        assert!(ended.is_err(), "{ended:?} for request {requests}");
    }
}
