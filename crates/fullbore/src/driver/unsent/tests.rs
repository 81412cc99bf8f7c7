use super::*;
use crate::tcp::OverTcp;

/// A path of so many bytes a second in front of a kernel that holds what it may.
struct Path {
    pace: Pace,
    /// In nanoseconds.
    now: u64,
    rate: u64,
    held: usize,
}

impl Path {
    fn new(rate: u64) -> Self {
        Path {
            pace: Pace::new(Duration::from_millis(10)),
            now: 1,
            rate,
            held: 0,
        }
    }

    /// Nothing is left to be written.
    fn rest(&mut self) {
        self.pace.rest(Time::from_nanos(self.now));
    }

    fn wait_until(&mut self, held: usize) {
        let left = self.held.saturating_sub(held);
        self.now += left as u64 * 1_000_000_000 / self.rate;
        self.held -= left;
    }

    /// Writes so many bytes as the driver does, with nothing but the path in the way.
    fn write(&mut self, bytes: usize) {
        self.pace.resume(Time::from_nanos(self.now));
        let mut left = bytes;
        while left > 0 {
            let (mark, list) = match self.pace.limit {
                Some(limit) => (limit / 2, limit / 2),
                // The buffer of the socket, which wakes at two thirds.
                None => (4 << 20, 512 << 10),
            };
            let full = self.held >= mark;
            // Without a limit nobody asks: writes are tried until one fails.
            if full || self.pace.limit.is_some() {
                self.pace.judge(Time::from_nanos(self.now), full);
            }
            if full {
                self.wait_until(match self.pace.limit {
                    Some(_) => mark - 1,
                    None => (8 << 20) / 3,
                });
                if self.pace.limit.is_some() {
                    self.pace.judge(Time::from_nanos(self.now), false);
                }
            }
            let list = list.min(left);
            self.pace.taken += list;
            self.held += list;
            left -= list;
        }
    }
}

#[test]
fn the_limit_is_what_the_path_takes_within_the_time_and_at_least_two_records() {
    for (megabits, least, most) in [
        (2, LEAST, LEAST),
        (5, LEAST, LEAST),
        (20, LEAST, LEAST),
        (100, 64 << 10, 192 << 10),
        (400, 256 << 10, 864 << 10),
        (1_000, 640 << 10, MOST - 1),
    ] {
        let mut path = Path::new(megabits * 125_000);
        path.write(16 << 20);
        let limit = path.pace.limit.unwrap();
        assert!((least..=most).contains(&limit), "{megabits} Mbit/s: {limit}");
    }
}

#[test]
fn a_path_as_fast_as_loopback_has_no_limit_after_a_few_megabytes() {
    let mut path = Path::new(1_000_000_000);
    path.write(6 << 20);
    assert_eq!(path.pace.limit, None);
    path.write(1 << 30);
    assert_eq!(path.pace.limit, None);
}

#[test]
fn the_limit_follows_a_path_that_becomes_slower_and_faster() {
    let mut path = Path::new(1_000_000_000);
    path.write(64 << 20);
    path.rate = 2_500_000;
    // What the kernel holds without a limit, and a little more.
    path.write(6 << 20);
    assert_eq!(path.pace.limit, Some(LEAST));
    path.rate = 12_500_000;
    path.write(1 << 20);
    assert!(path.pace.limit.unwrap() >= 64 << 10);
    path.rate = 250_000;
    path.write(1 << 20);
    assert_eq!(path.pace.limit, Some(LEAST));
}

#[test]
fn a_path_that_is_given_little_keeps_its_limit() {
    let mut path = Path::new(1_000_000_000);
    for _ in 0..1_000 {
        path.write(40 << 10);
        path.rest();
        path.wait_until(0);
        path.now += 10_000_000;
    }
    assert_eq!(path.pace.limit, Some(FIRST));
}

#[test]
fn short_responses_one_after_the_other_end_the_limit_of_a_fast_path_and_not_of_a_slow_one() {
    for (rate, ends) in [(1_000_000_000, true), (2_500_000, false)] {
        let mut path = Path::new(rate);
        for _ in 0..200 {
            path.write(64 << 10);
            path.rest();
            path.wait_until(0);
        }
        assert_eq!(path.pace.limit.is_none(), ends, "{rate}");
        assert!(ends || path.pace.limit <= Some(FIRST));
    }
}

/// Writes as one stream of a file does, which at the end of each list has nothing to write for a moment.
fn write_with_rests(path: &mut Path, bytes: usize, rest: Duration) {
    for _ in 0..bytes / (256 << 10) {
        path.write(256 << 10);
        path.rest();
        let until = path.now + rest.as_nanos() as u64;
        let sent = rest.as_nanos() * u128::from(path.rate) / 1_000_000_000;
        path.wait_until(path.held.saturating_sub(sent as usize));
        path.now = until;
    }
}

#[test]
fn a_limit_that_ended_with_the_first_bytes_comes_back_at_a_gigabit() {
    for rest in [Duration::ZERO, Duration::from_micros(20)] {
        // The queues of the path take the first bytes at the pace of the memory.
        let mut path = Path::new(2_000_000_000);
        path.write(8 << 20);
        assert_eq!(path.pace.limit, None);
        path.rate = 125_000_000;
        write_with_rests(&mut path, 32 << 20, rest);
        let limit = path.pace.limit.expect("a limit");
        assert!((1 << 20..=1_440 << 10).contains(&limit), "{rest:?}: {limit}");
    }
}

/// A pace without a limit that has been counted since `at(0)`, when the transport was full.
fn unlimited() -> Pace {
    let mut pace = Pace::new(Duration::from_millis(10));
    pace.limit = None;
    pace.judge(at(0), true);
    pace
}

fn at(milliseconds: u64) -> Time {
    Time::from_nanos((1 + milliseconds) * 1_000_000)
}

#[test]
fn pauses_are_not_counted_when_a_limit_is_lowered() {
    for (pause, limited) in [(0, true), (10, true), (60, false)] {
        let mut unsent = Unsent::new(|_: &u8| None, Duration::from_millis(10));
        unsent.pace = unlimited();
        unsent.rest(at(10));
        unsent.rest(at(10 + pause / 2));
        unsent.resume(at(10 + pause));
        unsent.take(4 * MOST);
        unsent.fill(&0, at(100));
        assert_eq!(unsent.pace.limit.is_some(), limited, "{pause} ms of 100");
    }
}

#[test]
fn a_span_of_pauses_ends_so_that_what_follows_is_judged_by_itself() {
    let mut pace = Pace::new(Duration::from_millis(10));
    pace.judge(at(0), false);
    pace.rest(at(0));
    pace.resume(at(10_000));
    pace.judge(at(10_000), false);
    pace.taken = LIMITS * FIRST;
    pace.judge(at(10_001), false);
    assert_eq!(pace.limit, Some(STEP * FIRST));
}

#[test]
fn what_leaves_while_the_kernel_holds_more_than_a_lowered_limit_is_not_counted() {
    let mut pace = unlimited();
    pace.taken = 4 * MOST;
    pace.judge(at(100), true);
    let lowered = pace.limit.unwrap();
    // Nothing is taken meanwhile.
    for time in [101, 250, 400] {
        pace.judge(at(time), true);
        assert_eq!(pace.limit, Some(lowered));
    }
    pace.judge(at(401), false);
    pace.taken = LIMITS_IF_FULL * lowered;
    pace.judge(at(441), true);
    assert_eq!(pace.limit, Some(lowered));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn the_kernel_is_told_the_limit_when_the_transport_is_full_and_that_there_is_none() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("its address");
    let io = TcpStream::connect(address).await.expect("a connection");
    let told = || {
        socket2::SockRef::from(&io)
            .tcp_notsent_lowat()
            .expect("an option")
    };
    let mut unsent = Unsent::new(TcpStream::tcp, Duration::from_millis(10));
    assert_ne!(told() as usize, FIRST);
    unsent.fill(&io, Time::from_nanos(1));
    assert_eq!(told() as usize, FIRST);
    assert_eq!(
        unsent.pace.since,
        Some(Time::from_nanos(1)),
        "it is counted from here"
    );
    assert!(unsent.pace.began_full);
    unsent.pace.limit = None;
    unsent.fill(&io, Time::from_nanos(2));
    assert_eq!(told(), 0);
}

#[test]
fn a_transport_without_tcp_below_has_no_limit() {
    let mut unsent = Unsent::new(|_: &u8| None, Duration::from_millis(10));
    unsent.take(FIRST);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(unsent.poll_room(&0, &mut cx, Time::from_nanos(1)).is_ready());
    assert!(!unsent.asks());
    assert_eq!(unsent.longest_list(), usize::MAX);
}

#[test]
fn the_first_lists_are_as_long_as_what_may_be_written_unasked() {
    let mut unsent = Unsent::new(|_: &u8| None, Duration::from_millis(10));
    if cfg!(not(target_os = "linux")) {
        return;
    }
    assert_eq!((unsent.longest_list(), unsent.asks()), (FIRST, false));
    unsent.take(FIRST - 2 * LEAST_LIST);
    assert_eq!((unsent.longest_list(), unsent.asks()), (2 * LEAST_LIST, false));
    unsent.take(1);
    assert_eq!((unsent.longest_list(), unsent.asks()), (LEAST_LIST, false));
    unsent.take(LEAST_LIST);
    assert!(unsent.asks());
}
