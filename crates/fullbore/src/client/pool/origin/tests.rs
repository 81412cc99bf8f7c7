//! Slots of requests that are given up in the moment in which they get one.

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
