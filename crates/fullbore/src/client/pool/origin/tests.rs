//! What must happen in a moment that only the state shows: a slot whose request is given up as it gets it, a connection that
//! ends when it has left already.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::client::pool::Client;
use crate::client::pool::tests::{MS, Site, all, begin, plan, stats};

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_request_that_is_given_up_as_it_gets_it_goes_to_the_next() {
    let (_, client) = Site::start(plan(MS, 1), Client::builder());
    all(begin(&client, 1).await).await;
    let uri = "http://one.example/".parse().expect("a URL");
    let pool = client.pool(&uri).expect("an origin");
    let give_up = || {
        let mut effects = Effects::default();
        let lease = pool.lock().take(Instant::now()).expect("the slot is free");
        let (answer, _) = oneshot::channel();
        let until = Duration::MAX;
        effects.assigned.push((Waiter { answer, until }, lease));
        effects
    };
    let effects = give_up();
    let waiting = begin(&client, 1).await;
    assert_eq!((stats(&client).waiting, stats(&client).in_flight), (1, 1));
    pool.apply(effects);
    assert!(!pool.has_waiting());
    let answered = timeout(Duration::from_secs(10), all(waiting)).await;
    answered.expect("it got the slot");

    // Nobody waits.
    let effects = give_up();
    assert_eq!(stats(&client).in_flight, 1);
    pool.apply(effects);
    assert_eq!(stats(&client).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_pauses_growth_once_and_only_beside_others() {
    let builder = Client::builder().max_connections(3);
    let (_, client) = Site::start(plan(MS * 50, 2), builder);
    let uri = "http://one.example/".parse().expect("a URL");
    while client.stats().pop().is_none_or(|stats| stats.connections < 3) {
        all(begin(&client, 20).await).await;
    }
    let pool = client.pool(&uri).expect("an origin");
    let connections: Vec<_> = pool
        .lock()
        .members
        .iter()
        .map(|member| Arc::clone(&member.connection))
        .collect();
    // The connections that are left, and until when no further one is opened.
    let left = || {
        let state = pool.lock();
        (state.members.len(), state.pause.map(|(until, _)| until))
    };
    connections[2].closing();
    assert_eq!(left(), (2, None), "nothing was refused");
    let error = Error::new(ErrorKind::Closed, "no more requests");
    pool.refused(&error, &connections[0], None);
    connections[2].closing();
    assert_eq!(left(), (2, None), "it has left before");
    connections[1].closing();
    let until = Instant::now() + FIRST_PAUSE;
    assert_eq!(left(), (1, Some(until)));
    tokio::time::advance(MS * 100).await;
    connections[1].closing();
    assert_eq!(left(), (1, Some(until)));
    connections[0].closing();
    assert_eq!(left(), (0, Some(until)), "it was the only one");
}

#[tokio::test(start_paused = true)]
async fn pauses_end_when_a_connection_that_was_opened_since_the_failure_serves() {
    let (_, client) = Site::start(plan(MS, 2), Client::builder());
    all(begin(&client, 1).await).await;
    let uri = "http://one.example/".parse().expect("a URL");
    let pool = client.pool(&uri).expect("an origin");
    let connection = || PooledConnection {
        pool: Arc::downgrade(&pool),
        state: ConnectionState::further(),
    };
    let pause = || pool.lock().pause.map(|(_, pause)| pause);
    let earlier = connection();
    tokio::time::advance(MS).await;
    pool.lock().pause_growth(Instant::now());
    tokio::time::advance(FIRST_PAUSE).await;
    pool.lock().pause_growth(Instant::now());
    earlier.answered();
    assert_eq!(pause(), Some(FIRST_PAUSE * 2), "it began before the failure");
    let later = connection();
    later.settings_received(2);
    assert_eq!(pause(), Some(FIRST_PAUSE * 2), "SETTINGS serve nobody");
    later.answered();
    assert_eq!(pause(), None);
    pool.lock().pause_growth(Instant::now());
    later.answered();
    assert_eq!(pause(), Some(FIRST_PAUSE), "that is no first response");
}

#[test]
fn a_request_that_comes_again_keeps_its_place() {
    let mut state = PoolState::default();
    let mut places: [Place; 3] = Default::default();
    let mut number = |request: usize| state.number(&mut places[request]);
    assert_eq!([0, 1, 0, 2, 1].map(&mut number), [1, 2, 1, 3, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_request_too_many_that_would_wait_fails_at_once() {
    let builder = Client::builder().max_connections(1).max_waiting_requests(Some(3));
    let (_, client) = Site::start(plan(MS * 50, 2), builder);
    all(begin(&client, 1).await).await;
    // Two have streams.
    let waiting = begin(&client, 5).await;
    assert_eq!(stats(&client).waiting, 3);
    let error = client
        .get("http://one.example/")
        .await
        .expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::Busy);
    all(waiting).await;
    all(begin(&client, 3).await).await;
}
