use super::*;

const MS: Duration = Duration::from_millis(1);
const ROUND: Duration = Duration::from_millis(100);
const BODY: u64 = 10_000;

/// One connection, and what came over it.
struct Seen {
    planner: Planner,
    now: Instant,
    begun: Instant,
    received: u64,
    out_of_order: u64,
    round_trip: Option<Duration>,
    /// What TCP knows, if anything.
    tcp_round_trip: Option<Duration>,
    shortest: Duration,
    /// Whether exchanges end once their bodies have come.
    completes: bool,
}

impl Seen {
    fn new() -> Self {
        let now = Instant::now();
        Seen {
            planner: Planner::new(8, now),
            now,
            begun: now,
            received: 0,
            out_of_order: 0,
            round_trip: Some(ROUND),
            tcp_round_trip: Some(ROUND),
            shortest: ROUND,
            completes: true,
        }
    }

    /// What is planned after 25 ms in which so many bytes came.
    fn step(&mut self, bytes: u64) -> Plan {
        self.now += 25 * MS;
        self.received += bytes;
        let tcp = self.tcp_round_trip.map(|trip| {
            let mut tcp = TcpInfo::default();
            (tcp.min_round_trip, tcp.receive_round_trip) = (trip, trip);
            tcp.out_of_order_segments = Some(self.out_of_order);
            tcp
        });
        let reading = Reading {
            id: 1,
            begun: self.begun,
            takes_requests: true,
            answered: true,
            carried: self.received,
            waited_for_readers: Duration::ZERO,
            round_trip: self.round_trip,
            tcp,
        };
        let requests = Requests {
            waiting: 10_000,
            completed: if self.completes { self.received / BODY } else { 0 },
            shortest: Some(self.shortest),
            opening: 0,
            refused: false,
        };
        self.planner.plan(&[reading], requests, self.now)
    }
}

/// How many requests the connection has ahead, and how many are opened.
fn kept(plan: &Plan) -> (u32, usize) {
    match plan {
        Plan::Keep { ahead, open, .. } => (ahead[0].1, *open),
        Plan::Lift => panic!("requests are held back"),
    }
}

#[test]
fn a_connection_has_four_round_trips_of_its_rate_ahead_and_100_requests_at_least() {
    let mut seen = Seen::new();
    assert_eq!(kept(&seen.step(0)), (100, 0));
    // 500 KB in each round trip.
    let plans: Vec<Plan> = (0..8).map(|_| seen.step(125_000)).collect();
    let ahead = kept(plans.last().expect("some")).0;
    assert!((195..=205).contains(&ahead), "{ahead}");
}

#[test]
fn nothing_is_held_back_on_a_short_path_behind_a_relay_or_by_a_slow_server() {
    let lifted = |mut seen: Seen| {
        seen.step(0);
        (0..8).any(|_| seen.step(40_000) == Plan::Lift)
    };
    assert!(!lifted(Seen::new()));
    let round_trip = Some(LONG_PATH - MS);
    assert!(lifted(Seen {
        round_trip,
        tcp_round_trip: round_trip,
        ..Seen::new()
    }));
    assert!(lifted(Seen {
        tcp_round_trip: Some(MS),
        ..Seen::new()
    }));
    assert!(lifted(Seen {
        shortest: 4 * ROUND,
        ..Seen::new()
    }));
    // Without TCP's word: no first flight is as large as this.
    let mut unknown = Seen {
        tcp_round_trip: None,
        ..Seen::new()
    };
    unknown.step(0);
    assert_eq!(unknown.step(300_000), Plan::Lift);
}

#[test]
fn losses_that_hold_a_connection_back_open_all_the_others_and_leave_it_less() {
    let mut seen = Seen::new();
    seen.step(0);
    let mut opened = (0..20).map(|_| kept(&seen.step(200_000)).1).collect::<Vec<_>>();
    assert_eq!(opened.iter().sum::<usize>(), 0, "the rate is the highest so far");
    seen.out_of_order = 20;
    opened = (0..40).map(|_| kept(&seen.step(20_000)).1).collect();
    assert_eq!(opened.iter().sum::<usize>(), 7, "{opened:?}");
    // 80 KB in a round trip, and 512 KiB at least.
    let ahead = (0..40).map(|_| kept(&seen.step(20_000)).0).last();
    assert_eq!(ahead, Some(FURTHER_REQUESTS));
}

#[test]
fn a_connection_that_loses_nothing_gets_twice_as_much_ahead_before_another_one_is_tried() {
    let mut seen = Seen::new();
    seen.step(0);
    let mut most = 0;
    for _ in 0..200 {
        let (ahead, open) = kept(&seen.step(12_500));
        most = most.max(ahead);
        if open > 0 {
            assert!(most >= 200, "{most}");
            return;
        }
    }
    panic!("no other one was tried");
}

#[test]
fn requests_are_not_held_back_behind_streams_that_stay_open() {
    let is_lifted = |completes, bytes, steps| {
        let mut seen = Seen {
            completes,
            ..Seen::new()
        };
        seen.step(0);
        (0..steps).any(|_| seen.step(bytes) == Plan::Lift)
    };
    // 25 ms each: five seconds without an end, and with as good as no bytes.
    assert!(is_lifted(false, 10, 201));
    assert!(!is_lifted(false, 10, 198));
    // Long bodies that come are waited for.
    assert!(!is_lifted(false, 20_000, 400));
    assert!(!is_lifted(true, 20_000, 400));
}
