use super::*;

const MS: Duration = Duration::from_millis(1);
const STEP: Duration = Duration::from_millis(50);
const MB: f64 = 1e6;

/// A path, by the rates in bytes a second that its parts allow.
#[derive(Clone, Copy)]
struct Path {
    link: f64,
    /// What limits each connection by itself.
    each: f64,
    /// How many connections of others are on the link.
    others: usize,
    round_trip: Duration,
    facts: Option<Facts>,
}

fn facts(loses: bool, is_queueing: bool) -> Facts {
    Facts {
        loses,
        is_queueing,
        may_queue: is_queueing,
    }
}

/// Connections that have all answered, for a reader that is fast enough.
fn view(connections: usize, round_trip: Duration, facts: Option<Facts>) -> View {
    View {
        connections,
        answered: true,
        rest: 1_000_000_000,
        round_trip: Some(round_trip),
        reader_is_slow: false,
        facts,
        is_shared: false,
    }
}

/// What came of a download.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    most: usize,
    last: usize,
    /// How many were opened in all.
    opened: usize,
}

impl Path {
    /// The rates of connections that were opened so long ago: slow start, then the limits.
    fn rates(self, ages: &[Duration]) -> Vec<f64> {
        let own = |age: &Duration| {
            let rounds = age.as_secs_f64() / self.round_trip.as_secs_f64() - 3.0;
            match rounds < 0.0 {
                true => 0.0,
                false => (14_480.0 * 2_f64.powf(rounds) / self.round_trip.as_secs_f64()).min(self.each),
            }
        };
        let mut rates: Vec<f64> = ages.iter().map(own).collect();
        // Others have what is fair, as long as there is less than all of it.
        let room = |rates: &[f64]| {
            let active = rates.iter().filter(|&&rate| rate > 0.1 * self.link / 8.0).count();
            self.link * active.max(1) as f64 / (active.max(1) + self.others) as f64
        };
        let sum: f64 = rates.iter().sum();
        let most = room(&rates);
        if sum > most {
            for rate in &mut rates {
                *rate *= most / sum;
            }
        }
        rates
    }

    fn download(self, bytes: f64, most: usize) -> Ended {
        let start = Instant::now();
        let mut judge = Judge::new(most, start);
        let (mut meter, mut tried, mut tried_from) = (Meter::default(), Meter::default(), 1);
        // The first one was opened three round trips ago.
        let mut opened = vec![
            start
                .checked_sub(3 * self.round_trip)
                .expect("a clock that has run for a while"),
        ];
        let mut came = vec![0.0];
        let mut ended = Ended {
            most: 1,
            last: 1,
            opened: 1,
        };
        let mut rest = bytes;
        let mut now = start;
        while rest > 0.0 {
            now += STEP;
            assert!(now < start + Duration::from_secs(3_600), "it takes for ever");
            let ages: Vec<Duration> = opened.iter().map(|&at| now - at).collect();
            for (index, rate) in self.rates(&ages).into_iter().enumerate() {
                let bytes = rate * STEP.as_secs_f64();
                came[index] += bytes;
                rest -= bytes;
                meter.count(bytes as u64);
                if index >= tried_from {
                    tried.count(bytes as u64);
                }
            }
            meter.read(now);
            tried.read(now);
            let view = View {
                answered: came.iter().skip(1).all(|&bytes| bytes > 0.0),
                rest: rest.max(0.0) as u64,
                ..view(opened.len(), self.round_trip, self.facts)
            };
            match judge.advise(&meter, &tried, view, now) {
                Advice::Stay => {}
                Advice::Open(more) => {
                    (tried, tried_from) = (Meter::default(), opened.len());
                    opened.extend((0..more).map(|_| now));
                    came.extend((0..more).map(|_| 0.0));
                    ended.opened += more;
                }
                Advice::Close(fewer) => {
                    opened.truncate(opened.len() - fewer);
                    came.truncate(opened.len());
                }
            }
            ended.most = ended.most.max(opened.len());
            ended.last = opened.len();
        }
        ended
    }
}

fn path(link: f64, each: f64) -> Path {
    Path {
        link: link * MB,
        each: each * MB,
        others: 0,
        round_trip: 100 * MS,
        facts: None,
    }
}

#[test]
fn where_each_connection_has_a_limit_as_many_are_kept_as_the_link_carries() {
    for (link, each, last) in [(100.0, 1.0, 8), (12.5, 1.0, 8), (12.5, 5.0, 3), (50.0, 24.0, 3)] {
        let ended = path(link, each).download(300.0 * MB, 8);
        assert_eq!(
            (ended.most, ended.last),
            (8, last),
            "{each} of {link} MB/s: {ended:?}"
        );
    }
    for round_trip in [5, 20, 230] {
        let ended = Path {
            round_trip: round_trip * MS,
            ..path(50.0, 2.0)
        };
        assert_eq!(ended.download(200.0 * MB, 8).last, 8, "{round_trip} ms");
    }
    assert_eq!(
        path(100.0, 1.0).download(300.0 * MB, 4).last,
        4,
        "as many as allowed"
    );
}

#[test]
fn where_one_connection_fills_the_link_a_second_one_is_given_back() {
    for (round_trip, link) in [(20, 12.5), (100, 12.5), (230, 12.5), (100, 125.0)] {
        let path = Path {
            round_trip: round_trip * MS,
            ..path(link, 1_000.0)
        };
        let ended = path.download(20.0 * link * MB, 8);
        assert_eq!(
            ended,
            Ended {
                most: 2,
                last: 1,
                opened: 2
            },
            "{round_trip} ms, {link} MB/s"
        );
    }
}

#[test]
fn beside_a_flow_of_somebody_else_a_second_one_is_given_back() {
    for others in [1, 2] {
        let path = Path {
            others,
            ..path(12.5, 1_000.0)
        };
        let ended = path.download(200.0 * MB, 8);
        assert_eq!((ended.most, ended.last), (2, 1), "{others} others: {ended:?}");
    }
}

#[test]
fn while_packets_wait_in_a_queue_nothing_is_tried() {
    let facts = Some(facts(true, true));
    let path = Path {
        facts,
        ..path(100.0, 1.0)
    };
    assert_eq!(path.download(100.0 * MB, 8).most, 1);
}

#[test]
fn a_download_that_is_over_soon_tries_nothing() {
    assert_eq!(path(12.5, 1_000.0).download(10.0 * MB, 8).most, 1);
    assert_eq!(path(100.0, 1.0).download(1.2 * MB, 8).most, 1);
}

#[test]
fn after_a_refusal_nothing_more_is_tried() {
    let now = Instant::now();
    let mut judge = Judge::new(8, now);
    assert!(judge.is_looking());
    judge.refused();
    assert!(!judge.is_looking());
    assert!(!Judge::new(1, now).is_looking(), "one is all that is allowed");
}

#[test]
fn losses_that_hold_a_connection_back_have_all_tried_at_once() {
    let start = Instant::now();
    for (facts, advice) in [
        (Some(facts(true, false)), Advice::Open(7)),
        (Some(facts(false, false)), Advice::Open(1)),
        (Some(facts(true, true)), Advice::Stay),
        (None, Advice::Open(1)),
    ] {
        let mut judge = Judge::new(8, start);
        let mut meter = Meter::default();
        let mut first = Advice::Stay;
        for step in 0..60 {
            // Slow start, until packets are lost.
            meter.count(if step < 12 { 20_000 << (step / 2) } else { 50_000 });
            let now = start + step * STEP;
            meter.read(now);
            if first == Advice::Stay {
                first = judge.advise(&meter, &Meter::default(), view(1, 100 * MS, facts), now);
            }
        }
        assert_eq!(first, advice, "{facts:?}");
    }
}

#[test]
fn so_many_are_needed_as_carry_the_rate() {
    let needed = |rate| Judge::needed(2, 5.0, rate, 8);
    assert_eq!([5.0, 5.5, 7.4, 12.5, 19.0, 40.0].map(needed), [2, 2, 3, 5, 8, 8]);
}

#[test]
fn the_pause_after_experiments_that_did_not_pay_has_an_end() {
    let now = Instant::now();
    let mut judge = Judge::new(8, now);
    for _ in 0..1_000 {
        judge.settle(MB, now);
    }
    assert_eq!(judge.pause, LONGEST_PAUSE);
}

/// What is advised while one connection has these rates in MB/s, in steps of 50 ms, over 30 ms and with losses.
fn advised(rates: &[f64]) -> Vec<Advice> {
    let start = Instant::now();
    let mut judge = Judge::new(8, start);
    let (mut meter, tried) = (Meter::default(), Meter::default());
    let advise = |(step, rate): (u32, &f64)| {
        let now = start + step * STEP;
        meter.count((rate * MB * STEP.as_secs_f64()) as u64);
        meter.read(now);
        judge.advise(&meter, &tried, view(1, 30 * MS, Some(facts(true, false))), now)
    };
    (0..).zip(rates).map(advise).collect()
}

#[test]
fn a_rate_that_has_just_fallen_is_none_to_compare_others_with() {
    // Beside a flow of somebody else, a late one starts, is thrown back, and gets its share.
    let mut rates = vec![0.5, 1.0, 2.0, 4.0, 4.0, 4.0];
    rates.extend([1.2; 5]);
    let advice = advised(&rates);
    assert!(advice.iter().all(|&advice| advice == Advice::Stay), "{advice:?}");
    // Losses hold it back for long.
    rates.extend([1.2; 12]);
    let advice = advised(&rates);
    assert_eq!(
        advice.iter().find(|&&advice| advice != Advice::Stay),
        Some(&Advice::Open(7))
    );
}

/// What is advised, other than to stay. Each phase has its steps of 50 ms, the MB/s of all connections together, and whether
/// packets wait in a queue. Packets are lost in all of them, and further connections answer at once.
fn advised_over(phases: &[(u32, f64, bool)]) -> Vec<Advice> {
    let start = Instant::now();
    let mut judge = Judge::new(8, start);
    let (mut meter, mut tried) = (Meter::default(), Meter::default());
    let mut connections = 1;
    let mut all = Vec::new();
    let steps = phases
        .iter()
        .flat_map(|&(steps, rate, is_queueing)| (0..steps).map(move |_| (rate, is_queueing)));
    for (step, (rate, is_queueing)) in (0..).zip(steps) {
        let now = start + step * STEP;
        let bytes = (rate * MB * STEP.as_secs_f64()) as u64;
        meter.count(bytes);
        tried.count(bytes * (connections as u64 - 1) / connections as u64);
        meter.read(now);
        tried.read(now);
        let view = view(connections, 30 * MS, Some(facts(true, is_queueing)));
        match judge.advise(&meter, &tried, view, now) {
            Advice::Stay => continue,
            Advice::Open(more) => {
                (tried, connections) = (Meter::default(), connections + more);
                all.push(Advice::Open(more));
            }
            Advice::Close(fewer) => {
                connections -= fewer;
                all.push(Advice::Close(fewer));
            }
        }
    }
    all
}

#[test]
fn losses_during_an_experiment_have_all_tried_at_once() {
    // The rate before was that of a start which met no losses yet.
    let advice = advised_over(&[(9, 10.0, false), (20, 6.0, false)]);
    assert_eq!(advice, [Advice::Open(1), Advice::Open(6)]);
    let advice = advised_over(&[(9, 10.0, false), (10, 8.0, false)]);
    assert_eq!(advice, [Advice::Open(1)], "a little less is no loss of the rate");
}

#[test]
fn what_was_tried_at_once_is_counted_by_whether_the_link_became_full() {
    let held_back = [(5, 10.0, false), (20, 5.0, false)];
    let after = |is_queueing| {
        let mut phases = held_back.to_vec();
        phases.push((60, 9.0, is_queueing));
        advised_over(&phases)
    };
    // 1.8 times the rate of one: twice as many are kept where the link had room, and one where it may be somebody else's.
    assert_eq!(after(false), [Advice::Open(7), Advice::Close(4)]);
    assert_eq!(after(true), [Advice::Open(7), Advice::Close(7)]);
}
