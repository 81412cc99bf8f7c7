//! Adaptive windows and their leases, as exact figures: how wide they open, what slow readers add, when they grow and shrink.

use fullbore_proto::FrameType;
use fullbore_proto::{Config, Connection, FirstWindows, MemoryBudget, Time, WindowSize};

use crate::support::peer::{Faced, id};
use crate::support::{config, fixed, frames};

const MIB: u32 = 1 << 20;

/// A window of 1 MiB for the connection, and so of three quarters of that for a stream; frames as large as that.
fn small(change: impl FnOnce(&mut Config)) -> Config {
    config(|config| {
        config.set_max_frame_size(MIB);
        config.set_connection_window(WindowSize::from_mebibytes(1));
        config.set_largest_window(WindowSize::from_mebibytes(4));
        change(config);
    })
}

/// A server to which a client uploads on stream 1.
fn uploading(config: Config) -> Faced {
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    faced.events();
    faced
}

/// A connection that holds so many bytes of the budget.
fn holding(budget: &MemoryBudget, bytes: u32) -> Connection {
    let config = fixed(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_connection_window(WindowSize::new(bytes).unwrap());
    });
    Connection::server(config, Time::ZERO)
}

impl Faced {
    fn uploads(&mut self, octets: u32) {
        self.says(&frames::data(1, 0, &vec![7; octets as usize]));
    }

    /// The stream and the increment of each WINDOW_UPDATE since the last call.
    fn updates(&mut self) -> Vec<(u32, u32)> {
        let updates = self.heard_of(FrameType::WINDOW_UPDATE);
        updates
            .iter()
            .map(|frame| (frame.stream(), frame.word(0)))
            .collect()
    }
}

#[test]
fn each_connection_opens_with_a_quarter_of_what_is_left_of_the_first_half_of_the_budget() {
    let budget = MemoryBudget::new(64 << 20);
    let config = config(|config| config.set_budget(Some(budget.clone())));
    let connections: Vec<_> = (0..3)
        .map(|_| Connection::server(config.clone(), Time::ZERO))
        .collect();
    for (connection, window) in connections.iter().zip([8 * MIB, 6 * MIB, 4 * MIB + MIB / 2]) {
        let report = connection.report(Time::ZERO);
        assert_eq!(report.receive_window, window);
        assert_eq!(report.stream_receive_window, window / 4 * 3);
        assert_eq!(report.largest_stream_receive_window, window / 4 * 3);
        assert_eq!(connection.leased(), u64::from(window));
    }
    assert_eq!(budget.leased(), 37 << 19);
}

#[test]
fn what_a_reader_leaves_beyond_an_eighth_is_leased_as_well_once_a_quarter_is_used() {
    for (octets, leased) in [(262_144, MIB), (262_145, MIB + 131_073), (700_000, MIB + 568_928)] {
        let budget = MemoryBudget::new(64 << 20);
        for budget in [None, Some(budget)] {
            let mut faced = uploading(small(|config| config.set_budget(budget)));
            faced.uploads(octets);
            assert_eq!(faced.connection.leased(), u64::from(leased), "{octets}");
            let update = (leased - MIB >= MIB / 4).then_some((0, leased - MIB));
            assert_eq!(faced.updates(), Vec::from_iter(update));
        }
    }
}

#[test]
fn what_a_reader_leaves_is_leased_beside_windows_that_begin_as_they_are_set() {
    let budget = MemoryBudget::new(64 << 20);
    let _other = holding(&budget, 40 * MIB);
    let mut faced = uploading(small(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_first_windows(Some(FirstWindows {
            stream: WindowSize::from_mebibytes(1),
            connection: WindowSize::from_mebibytes(1),
        }));
    }));
    faced.updates();
    assert_eq!(faced.connection.leased(), 0, "what is set costs nothing");
    faced.uploads(MIB);
    let lagging = MIB / 8 * 7;
    assert_eq!(faced.connection.leased(), u64::from(lagging));
    assert_eq!(faced.updates(), [(0, lagging)], "credit for other streams");
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    faced.connection.release_credit(id(1), u64::from(MIB));
    assert_eq!(faced.connection.leased(), 0);
}

#[test]
fn without_a_budget_readers_add_no_more_than_the_largest_window() {
    let largest = MIB + 100_000;
    let leased = |budget, largest_window| {
        let mut faced = uploading(small(|config| {
            config.set_budget(budget);
            config.set_largest_window(WindowSize::new(largest_window).unwrap());
        }));
        faced.uploads(700_000);
        faced.connection.leased()
    };
    assert_eq!(leased(None, largest), u64::from(largest));
    assert_eq!(leased(None, MIB / 2), u64::from(MIB));
    let budget = MemoryBudget::new(64 << 20);
    assert_eq!(leased(Some(budget), largest), u64::from(MIB + 568_928));
}

#[test]
fn what_readers_have_taken_is_given_back_an_eighth_of_the_window_at_a_time() {
    let mut faced = uploading(small(|_| {}));
    faced.uploads(700_000);
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    let mut after = |bytes| {
        faced.connection.release_credit(id(1), bytes);
        faced.connection.leased()
    };
    let most = u64::from(MIB) + 568_928;
    assert_eq!(after(131_072), most);
    assert_eq!(after(1), most - 131_073);
    assert_eq!(after(131_072), most - 131_073);
    assert_eq!(after(1), most - 262_146);
    assert_eq!(after(700_000), u64::from(MIB));
}

#[test]
fn a_window_that_was_set_lower_is_the_least_that_a_scarce_budget_leaves() {
    let budget = MemoryBudget::new(8 << 20);
    let mut faced = uploading(small(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_first_windows(Some(FirstWindows {
            stream: WindowSize::from_mebibytes(1),
            connection: WindowSize::from_mebibytes(1),
        }));
    }));
    let least = WindowSize::new(MIB / 2).unwrap();
    faced.connection.shrink_receive_window(least);
    let size = |faced: &Faced| faced.connection.receive_window_size().bytes();
    // The reader keeps up, so it has what is configured. Less than three quarters of that do not double it.
    for octets in [393_216, 380_000] {
        let mut chunks = Default::default();
        let frame = frames::data(1, 0, &vec![7; octets]);
        faced.connection.receive(frame.into(), faced.now).unwrap();
        faced.connection.read(id(1), &mut chunks).unwrap();
        faced.connection.release_credit(id(1), octets as u64);
        faced.listen();
    }
    assert_eq!(size(&faced), MIB);
    let _other = holding(&budget, 7_600_000);
    assert!(budget.is_scarce());
    for _ in 0..20 {
        faced.uploads(200_000);
        faced.reads(1);
    }
    assert_eq!(size(&faced), least.bytes());
}

#[test]
fn a_window_of_which_three_quarters_are_used_at_once_is_doubled_and_one_octet_less_is_not_enough() {
    // The stream's window has whole grains of 256 octets.
    let whole = (786_432, 2 * MIB, [(0, 1_835_008), (1, 1_572_864)]);
    let less = (786_431, MIB, [(0, 786_431), (1, 786_176)]);
    for (octets, window, updates) in [whole, less] {
        let mut faced = uploading(small(|_| {}));
        let mut chunks = Default::default();
        let frame = frames::data(1, 0, &vec![7; octets as usize]);
        faced.connection.receive(frame.into(), faced.now).unwrap();
        faced.connection.read(id(1), &mut chunks).unwrap();
        faced.connection.release_credit(id(1), octets);
        assert_eq!(faced.updates(), updates);
        let report = faced.connection.report(faced.now);
        assert_eq!(report.receive_window, window);
        assert_eq!(report.largest_stream_receive_window, window / 4 * 3);
        assert_eq!(faced.connection.leased(), u64::from(window));
    }
}

#[test]
fn a_scarce_budget_takes_a_quarter_of_the_window_at_each_refill_down_to_256_kib() {
    let budget = MemoryBudget::new(8 << 20);
    let mut faced = uploading(small(|config| config.set_budget(Some(budget.clone()))));
    assert_eq!(faced.connection.leased(), u64::from(MIB));
    let _other = holding(&budget, 7_200_000);
    let mut size = MIB;
    for smaller in [786_432, 589_824, 442_368, 331_776, 262_144] {
        faced.uploads(size / 4);
        faced.reads(1);
        let updates = faced.updates();
        assert!(updates.iter().all(|&(_, gain)| gain <= size), "{updates:?}");
        size = smaller;
        assert_eq!(faced.connection.receive_window_size().bytes(), size);
        assert_eq!(faced.connection.leased(), u64::from(size));
        assert!(budget.is_scarce());
    }
}

#[test]
fn a_connection_that_was_idle_promises_no_more_than_it_leases_again() {
    let small = fullbore_proto::DEFAULT_WINDOW;
    let budget = MemoryBudget::new(2 * 65_535);
    let mut faced = uploading(config(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_largest_window(small);
    }));
    faced.uploads(16_000);
    faced.uploads(4_000);
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    // What the reader leaves beyond an eighth is leased as well, and less than an eighth is not given back.
    for released in [10_000, 10_000] {
        faced.connection.release_credit(id(1), released);
        assert_eq!(faced.connection.leased(), 65_535 + 1_809);
    }
    faced.says(&frames::data(1, frames::END_STREAM, b""));
    faced.answers(1);
    assert_eq!(budget.leased(), 0);
    // Another connection takes what this one does not need.
    let other = fixed(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_connection_window(small);
    });
    let _other = Connection::server(other, Time::ZERO);
    faced.says(&frames::post(3));
    for length in [16_000, 16_000, 16_000, 16_000] {
        faced.says(&frames::data(3, 0, &vec![7; length]));
    }
    faced.connection.read(id(3), &mut chunks).unwrap();
    faced.connection.release_credit(id(3), 20_000);
    faced.heard();
    assert_eq!((faced.connection.leased(), budget.free()), (65_535, 0));
    assert!(faced.connection.promise().total() <= 65_535);
}

#[test]
fn a_window_grows_by_what_the_budget_can_spare_if_that_is_more_than_an_eighth() {
    for (spare, more) in [(131_072, 0), (131_073, 131_073), (140_000, 140_000)] {
        let budget = MemoryBudget::new(8 << 20);
        let mut faced = uploading(small(|config| config.set_budget(Some(budget.clone()))));
        // An eighth of the budget is to stay free.
        let other = fixed(|config| {
            config.set_budget(Some(budget.clone()));
            config.set_connection_window(WindowSize::new(6 * MIB - spare).unwrap());
        });
        let _other = Connection::server(other, Time::ZERO);
        let frame = frames::data(1, 0, &vec![7; 786_432]);
        faced.connection.receive(frame.into(), faced.now).unwrap();
        faced.reads(1);
        faced.heard();
        assert_eq!(
            faced.connection.receive_window_size().bytes(),
            MIB + more,
            "{spare}"
        );
        assert_eq!(faced.connection.leased(), u64::from(MIB + more));
    }
}

#[test]
fn what_readers_have_given_back_is_promised_no_more() {
    let mut faced = uploading(small(|_| {}));
    faced.uploads(700_000);
    faced.reads(1);
    faced.heard();
    assert_eq!(faced.connection.leased(), u64::from(MIB));
    let promised = |faced: &Faced| faced.connection.promise().total();
    assert_eq!(promised(&faced), u64::from(MIB));
    // The reader leaves an eighth, for which nothing more is leased.
    let frame = frames::data(1, 0, &vec![7; 400_000]);
    faced.connection.receive(frame.into(), faced.now).unwrap();
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    faced.connection.release_credit(id(1), 400_000 - 131_072);
    faced.heard();
    assert_eq!(faced.connection.leased(), u64::from(MIB));
    assert_eq!(promised(&faced), u64::from(MIB));
}

#[test]
fn a_connection_whose_last_stream_has_gone_is_idle_once_what_was_read_is_released() {
    let budget = MemoryBudget::new(2 * 65_535);
    let mut faced = uploading(config(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_largest_window(fullbore_proto::DEFAULT_WINDOW);
    }));
    faced.uploads(5_000);
    faced.connection.read(id(1), &mut Default::default()).unwrap();
    faced.says(&frames::data(1, frames::END_STREAM, b""));
    faced.answers(1);
    assert_eq!((faced.connection.stream_count(), budget.leased()), (0, 65_535));
    faced.connection.release_credit(id(1), 4_999);
    assert_eq!(budget.leased(), 65_535);
    faced.connection.release_credit(id(1), 1);
    assert_eq!(budget.leased(), 0);
}
