//! The wake protocol between handles and driver, in every order of threads and memory accesses (loom).
//!
//! The mailbox and the cells are those of the library, compiled here over loom's types (`wakes/sync.rs`). The driver is
//! reduced to how it takes from the mailbox and falls asleep (`Driver::poll_open`). Loom reports a lost wake as a deadlock.

#![allow(dead_code, unreachable_pub, reason = "the models use a part of each file")]

#[path = "../src/cell.rs"]
mod cell;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/informational.rs"]
mod informational;
#[path = "../src/mailbox.rs"]
mod mailbox;
#[path = "../src/observer.rs"]
mod observer;
#[path = "wakes/sync.rs"]
mod sync;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use loom::thread;

use cell::{Cell, CellState, Mailbox, StreamCommand};
use error::Error;
use mailbox::ConnectionCommand;

/// The count of consumed bytes that wakes the driver.
const DUE: u64 = 2;

/// The driver, as far as it uses the mailbox.
struct Driver {
    mailbox: Arc<Mailbox>,
    /// Commands that it found in cells.
    stream_commands: usize,
    commands: usize,
    released: u64,
}

impl Driver {
    fn new(mailbox: &Arc<Mailbox>) -> Self {
        Driver {
            mailbox: Arc::clone(mailbox),
            stream_commands: 0,
            commands: 0,
            released: 0,
        }
    }

    /// Runs turns until `enough`, and sleeps in between.
    fn run(mut self, enough: impl Fn(&Driver) -> bool) -> Self {
        loom::future::block_on(poll_fn(|cx| self.poll(cx, &enough)));
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>, enough: &impl Fn(&Driver) -> bool) -> Poll<()> {
        self.mailbox.begin_turn(cx.waker());
        loop {
            let progress = self.take();
            if enough(self) {
                return Poll::Ready(());
            }
            if !progress {
                if self.mailbox.end_turn()
                    && (self.released >= DUE || self.mailbox.wake_at(DUE - self.released))
                {
                    return Poll::Pending;
                }
                self.mailbox.begin_turn(cx.waker());
            }
        }
    }

    fn look(&mut self, cell: &Cell) {
        cell.unlist();
        let mut state = cell.lock();
        while state.outbound.commands.pop_front().is_some() {
            self.stream_commands += 1;
        }
    }

    /// Whether there was anything.
    fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(cell) = self.mailbox.take() {
            any = true;
            self.look(&cell);
        }
        let commands = self.mailbox.take_commands().len();
        self.commands += commands;
        let consumed = self.mailbox.take_consumed();
        self.released += consumed;
        any || commands > 0 || consumed > 0
    }
}

impl Drop for Driver {
    /// As in the library: a stream that is posted later must not stay on the list, where it would leak. Loom reports leaks.
    fn drop(&mut self) {
        self.mailbox.close(&Error::connection_gone());
    }
}

/// All orders with at most so many preemptions. Loom's documentation recommends 2 or 3.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn cell(mailbox: &Arc<Mailbox>) -> Arc<Cell> {
    Cell::new(Arc::clone(mailbox), CellState::default())
}

fn send(cell: &Arc<Cell>) {
    let data = StreamCommand::Data(Bytes::new().into(), false);
    cell.lock().outbound.commands.push_back(data);
    cell.post();
}

#[test]
fn a_driver_that_falls_asleep_hears_of_every_command() {
    model(4, || {
        let mailbox = Mailbox::new();
        let cell = cell(&mailbox);
        let handle = thread::spawn(move || {
            send(&cell);
            send(&cell);
        });
        Driver::new(&mailbox).run(|driver| driver.stream_commands == 2);
        handle.join().unwrap();
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_of_two_streams() {
    model(2, || {
        let mailbox = Mailbox::new();
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let cell = cell(&mailbox);
                thread::spawn(move || send(&cell))
            })
            .collect();
        Driver::new(&mailbox).run(|driver| driver.stream_commands == 2);
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn a_stream_that_two_handles_post_stands_on_the_list_once() {
    model(3, || {
        let mailbox = Mailbox::new();
        let cell = cell(&mailbox);
        let other = Arc::clone(&cell);
        let handle = thread::spawn(move || other.post());
        cell.post();
        handle.join().unwrap();
        assert!(mailbox.take().is_some());
        assert!(mailbox.take().is_none());
    });
}

#[test]
fn what_is_left_in_a_held_stream_is_found_by_the_look_that_follows_or_listed() {
    model(3, || {
        let mailbox = Mailbox::new();
        let cell = cell(&mailbox);
        cell.hold();
        let other = Arc::clone(&cell);
        let handle = thread::spawn(move || send(&other));
        let mut driver = Driver::new(&mailbox);
        driver.look(&cell);
        driver.run(|driver| driver.stream_commands == 1);
        handle.join().unwrap();
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_when_credit_falls_due() {
    model(4, || {
        let mailbox = Mailbox::new();
        let reader = Arc::clone(&mailbox);
        let handle = thread::spawn(move || {
            for _ in 0..DUE {
                reader.consume(1);
            }
        });
        Driver::new(&mailbox).run(|driver| driver.released == DUE);
        handle.join().unwrap();
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_when_two_readers_bring_credit_due_together() {
    model(2, || {
        let mailbox = Mailbox::new();
        let handles: Vec<_> = (0..DUE)
            .map(|_| {
                let reader = Arc::clone(&mailbox);
                thread::spawn(move || reader.consume(1))
            })
            .collect();
        Driver::new(&mailbox).run(|driver| driver.released == DUE);
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_that_the_last_opener_has_gone() {
    model(4, || {
        let mailbox = Mailbox::new();
        mailbox.add_opener();
        let opener = Arc::clone(&mailbox);
        let handle = thread::spawn(move || opener.remove_opener());
        Driver::new(&mailbox).run(|driver| driver.mailbox.is_abandoned());
        handle.join().unwrap();
    });
}

#[test]
fn the_last_of_two_openers_wakes_whichever_it_is() {
    model(2, || {
        let mailbox = Mailbox::new();
        let handles: Vec<_> = (0..2)
            .map(|_| {
                mailbox.add_opener();
                let opener = Arc::clone(&mailbox);
                thread::spawn(move || opener.remove_opener())
            })
            .collect();
        Driver::new(&mailbox).run(|driver| driver.mailbox.is_abandoned());
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn no_mailbox_is_abandoned_before_the_last_openers_command_is_taken() {
    model(4, || {
        let mailbox = Mailbox::new();
        mailbox.add_opener();
        let opener = Arc::clone(&mailbox);
        let cell = cell(&mailbox);
        let handle = thread::spawn(move || {
            send(&cell);
            opener.remove_opener();
        });
        let driver = Driver::new(&mailbox).run(|driver| driver.mailbox.is_abandoned());
        assert_eq!(driver.stream_commands, 1);
        handle.join().unwrap();
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_of_a_shutdown() {
    model(4, || {
        let mailbox = Mailbox::new();
        let owner = Arc::clone(&mailbox);
        let handle = thread::spawn(move || owner.shut_down());
        Driver::new(&mailbox).run(|driver| driver.mailbox.wants_shutdown());
        handle.join().unwrap();
        assert!(!mailbox.takes_new_streams());
    });
}

#[test]
fn a_driver_that_falls_asleep_hears_of_a_command() {
    model(4, || {
        let mailbox = Mailbox::new();
        let owner = Arc::clone(&mailbox);
        let handle = thread::spawn(move || {
            let (answer, _) = tokio::sync::oneshot::channel();
            owner.command(ConnectionCommand::Report(answer));
        });
        Driver::new(&mailbox).run(|driver| driver.commands == 1);
        handle.join().unwrap();
    });
}

#[test]
fn a_stream_that_is_posted_while_the_driver_ends_is_told_why() {
    model(4, || {
        let mailbox = Mailbox::new();
        let cell = cell(&mailbox);
        let posted = Arc::clone(&cell);
        let handle = thread::spawn(move || send(&posted));
        mailbox.close(&Error::connection_gone());
        handle.join().unwrap();
        assert!(cell.lock().error.is_some());
    });
}

#[test]
fn a_command_that_is_given_while_the_driver_ends_is_answered_by_nobody() {
    model(4, || {
        let mailbox = Mailbox::new();
        let (answer, mut answered) = tokio::sync::oneshot::channel();
        let owner = Arc::clone(&mailbox);
        let handle = thread::spawn(move || owner.command(ConnectionCommand::Report(answer)));
        mailbox.close(&Error::connection_gone());
        handle.join().unwrap();
        let nobody = tokio::sync::oneshot::error::TryRecvError::Closed;
        assert_eq!(answered.try_recv().err(), Some(nobody));
    });
}
