use super::*;

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

    fn wait_until(&mut self, held: usize) {
        let left = self.held.saturating_sub(held);
        self.now += left as u64 * 1_000_000_000 / self.rate;
        self.held -= left;
    }

    /// Writes so many bytes as the driver does, with nothing but the path in the way.
    fn write(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let (mark, list) = match self.pace.limit {
                Some(limit) => (limit / 2, limit / 2),
                // The buffer of the socket, which wakes at two thirds.
                None => (4 << 20, 512 << 10),
            };
            let full = self.held >= mark;
            self.pace.judge(Time::from_nanos(self.now), full);
            if full {
                self.wait_until(match self.pace.limit {
                    Some(_) => mark - 1,
                    None => (8 << 20) / 3,
                });
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
        path.wait_until(0);
        path.now += 10_000_000;
        path.pace.rest();
    }
    assert_eq!(path.pace.limit, Some(FIRST));
}

#[test]
fn short_responses_one_after_the_other_end_the_limit_of_a_fast_path_and_not_of_a_slow_one() {
    for (rate, ends) in [(1_000_000_000, true), (2_500_000, false)] {
        let mut path = Path::new(rate);
        for _ in 0..200 {
            path.write(64 << 10);
            path.wait_until(0);
            path.pace.rest();
        }
        assert_eq!(path.pace.limit.is_none(), ends, "{rate}");
        assert!(ends || path.pace.limit <= Some(FIRST));
    }
}
