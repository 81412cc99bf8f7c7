//! The thread that moves packets from one device through the emulator to the other.
//!
//! Between two looks at the devices and at what is due it sleeps for 0.2 ms, or for a twentieth of a shorter delay, as a
//! network card does that gathers interrupts. At 100 Mbit/s a wake-up for each packet would take three times the processor
//! time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ScheduleParams, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tun_rs::SyncDevice;

use crate::emulator::{Emulator, Report};
use crate::settings::Way;

/// The least and the most time between two looks.
const TICKS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(200)];
/// Packets that are read from one device before what is due is sent.
const BATCH: usize = 64;

/// The thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ended: AtomicBool,
    /// Wakes the thread when it has ended.
    wake: OwnedFd,
}

#[derive(Debug)]
struct State {
    emulator: Emulator,
    /// Packets that the device at their other end did not take.
    refused: u64,
    processor: Duration,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Starts it between the devices of the client's end and of the server's, which do not block. `delay` is the shorter one
    /// of both directions.
    pub(crate) fn start(
        emulator: Emulator,
        delay: Duration,
        client: SyncDevice,
        server: SyncDevice,
    ) -> io::Result<Self> {
        let [least, most] = TICKS;
        let tick = (delay / 20).clamp(least, most);
        let state = Mutex::new(State {
            emulator,
            refused: 0,
            processor: Duration::ZERO,
        });
        let shared = Arc::new(Shared {
            state,
            ended: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
        });
        let thread = thread::Builder::new().name("packets".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                prefer_this_thread();
                if let Err(why) = run(&shared, tick, &[client, server]) {
                    eprintln!("the path of packets has ended: {why}");
                }
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.shared.state();
        let mut report = state.emulator.report();
        report.overrun = state.refused;
        report.processor = state.processor;
        report
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Cannot fail: the counter is far from its end.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Real-time priority, where it can be had: the thread needs little processor time, but at once.
fn prefer_this_thread() {
    let _ = set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::from_posix(ScheduleParams { sched_priority: 1 }),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin),
    );
}

fn run(shared: &Shared, tick: Duration, devices: &[SyncDevice; 2]) -> io::Result<()> {
    let origin = Instant::now();
    while !shared.ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (busy, next) = {
            let mut state = shared.state();
            let used = clock_gettime(ClockId::ThreadCPUTime);
            state.processor = Duration::try_from(used).unwrap_or_default();
            let busy = deliver(&mut state, devices, origin) | receive(&mut state, devices, origin)?;
            (busy, state.emulator.next())
        };
        if busy {
            thread::sleep(tick.saturating_sub(began.elapsed()));
        } else {
            let left = next.map(|next| Duration::from_nanos(next.saturating_sub(nanoseconds(origin))));
            wait(devices, &shared.wake, left)?;
        }
    }
    Ok(())
}

fn nanoseconds(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends what is due; whether there was anything.
fn deliver(state: &mut State, devices: &[SyncDevice; 2], origin: Instant) -> bool {
    let now = nanoseconds(origin);
    let mut busy = false;
    while let Some(due) = state.emulator.deliver(now) {
        busy = true;
        // The device of the other end: the client's is the first.
        let device = match due.way {
            Way::ToServer => &devices[1],
            Way::ToClient => &devices[0],
        };
        if device.send(&due.packet).is_err() {
            state.refused += 1;
        }
        state.emulator.recycle(due.packet);
    }
    busy
}

/// Takes in what the devices have; whether there was anything.
fn receive(state: &mut State, devices: &[SyncDevice; 2], origin: Instant) -> io::Result<bool> {
    let mut busy = false;
    for (way, device) in Way::BOTH.into_iter().zip(devices) {
        for _ in 0..BATCH {
            let mut packet = state.emulator.buffer();
            match device.recv(&mut packet) {
                Ok(length) => {
                    busy = true;
                    packet.truncate(length);
                    state.emulator.receive(nanoseconds(origin), way, packet);
                }
                Err(error) => {
                    state.emulator.recycle(packet);
                    match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => break,
                        _ => return Err(error),
                    }
                }
            }
        }
    }
    Ok(busy)
}

/// Waits for a packet, or until the time is over.
fn wait(devices: &[SyncDevice; 2], wake: &OwnedFd, time: Option<Duration>) -> io::Result<()> {
    let time = time.map(Timespec::try_from).transpose();
    let time = time.map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut watched = [
        PollFd::new(wake, PollFlags::IN),
        PollFd::new(&devices[0], PollFlags::IN),
        PollFd::new(&devices[1], PollFlags::IN),
    ];
    match poll(&mut watched, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
