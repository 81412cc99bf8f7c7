//! Which limit ends a connection of HTTP/1.1, and when.

use std::future::poll_fn;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Limits that differ from each other.
fn config() -> Config {
    let mut config = Config::default();
    config.set_preface_timeout(SECOND * 2);
    config.set_header_timeout(SECOND * 3);
    config.set_idle_timeout(Some(SECOND * 5));
    config.set_body_timeout(Some(SECOND * 7));
    config.set_send_timeout(Some(SECOND * 11));
    config.set_half_close_timeout(SECOND * 13);
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
        config.set_body_timeout(Some(seconds(body)));
        config.set_send_timeout(Some(seconds(send)));
        config.set_half_close_timeout(seconds(half_close));
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
        config.set_body_rate(rate);
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

/// Answers the request with this number, and says whether that took no look at the clock.
async fn answer(limits: &mut Limits, requests: u64) -> bool {
    poll_fn(|cx| {
        if limits.note_answered(requests, requests, cx) {
            return Poll::Ready(true);
        }
        let request = Exchange {
            requests,
            ..Exchange::default()
        };
        let traffic = Traffic {
            received: requests,
            ..Traffic::default()
        };
        assert!(limits.poll(request, traffic, cx).is_pending());
        Poll::Ready(false)
    })
    .await
}

/// Answers so many requests more, in a task of their own. Whether any of them took no look at the clock.
#[cfg(target_os = "linux")]
async fn answer_many(mut limits: Limits, count: u64) -> (Limits, bool) {
    let task = tokio::spawn(async move {
        let mut any = false;
        for requests in limits.requests..limits.requests + count {
            any |= answer(&mut limits, requests + 1).await;
        }
        (limits, any)
    });
    task.await.expect("no panic")
}

/// Waits until the timer has fired.
#[cfg(target_os = "linux")]
async fn fires(alarms: &Alarms) {
    let mut alarm = Alarm::after(Duration::from_millis(20), Some(alarms));
    let before = alarm.fired();
    poll_fn(|cx| alarm.poll(cx)).await;
    while alarm.fired() == before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn between_two_fires_of_the_timer_the_clock_is_not_looked_at() {
    let alarms = Alarms::start().expect("a runtime");
    let limits = Limits::new(Arc::new(Config::default()), Some(alarms.clone()));
    // The first one sets the timer, and the second one finds it set.
    let (limits, any) = answer_many(limits, 2).await;
    assert!(!any);
    let (mut limits, any) = answer_many(limits, 100).await;
    assert!(any, "the timer may fire between two of them, but not between all");
    assert_eq!(limits.answered, Some(102));

    // A task that the timer does not wake.
    let next = limits.requests + 1;
    assert!(!answer(&mut limits, next).await);
    fires(&alarms).await;
    let (mut limits, any) = answer_many(limits, 1).await;
    assert!(!any);
    // A request in progress is measured by the clock.
    limits.waits = true;
    let next = limits.requests + 1;
    assert!(!answer(&mut limits, next).await);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_short_limit_on_idle_connections_is_exact() {
    let alarms = Alarms::start().expect("a runtime");
    for (limit, exact) in [(EXACT_IDLE - SECOND, true), (EXACT_IDLE, false)] {
        let mut config = config();
        config.set_idle_timeout(Some(limit));
        let limits = Limits::new(Arc::new(config), Some(alarms.clone()));
        assert_eq!(answer_many(limits, 100).await.1, !exact, "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_alarms_the_clock_is_looked_at_for_each_answer() {
    let mut limits = Limits::new(Arc::new(Config::default()), None);
    for requests in 1..10 {
        assert!(!answer(&mut limits, requests).await);
        assert_eq!(limits.last_looked(), Instant::now());
        tokio::time::advance(SECOND).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_is_idle_since_the_latest_time_at_which_it_may_have_answered() {
    let alarms = Alarms::start().expect("a runtime");
    let alarm = || Alarm::after(SECOND * 3_600, Some(&alarms));
    let rest = alarm().longest_rest();
    assert_eq!(rest, SECOND * 2);
    for (is_exact, fired, later, idle) in [
        (true, 8, SECOND * 9, Duration::ZERO),
        // The timer has not fired since.
        (false, 7, SECOND * 9, SECOND * 9),
        (false, 8, SECOND, SECOND),
        (false, 8, SECOND * 9, rest),
    ] {
        let mut limits = Limits::new(Arc::new(config()), Some(alarms.clone()));
        limits.timer = Some(alarm());
        (limits.fired, limits.answered, limits.is_looked_exact) = (Some(7), Some(1), is_exact);
        limits.settle(Some(fired), limits.looked + later);
        assert_eq!(limits.idle, limits.looked + idle);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_thread_that_was_blocked_ends_no_connection_too_early() {
    let alarms = Alarms::start().expect("a runtime");
    let mut limits = Limits::new(Arc::new(Config::default()), Some(alarms.clone()));
    let blocked = async move {
        // Until the timer is known to be set.
        let mut requests = 1;
        while !answer(&mut limits, requests).await {
            requests += 1;
        }
        // The task of the alarms cannot run.
        std::thread::sleep(SECOND * 3);
        assert!(answer(&mut limits, requests + 1).await);
        (limits, Instant::now())
    };
    let (mut limits, answered) = tokio::spawn(blocked).await.expect("no panic");
    fires(&alarms).await;
    limits.settle(limits.fired(), answered + SECOND * 60);
    assert!(limits.idle >= answered, "{:?} before", answered - limits.idle);
}
