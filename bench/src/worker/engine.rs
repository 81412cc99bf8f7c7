//! Requests through the engine alone, for the case `engine`, directly or under callgrind.

use std::time::Instant;

use clap::Args;

use super::{Failure, print_line};
use crate::engine::{Pair, SHAPES, Spent};
use crate::heap::Heap;

#[derive(Args, Clone)]
pub(crate) struct Engine {
    /// The shape of the requests, by its name
    shape: String,
    /// How many are not counted
    #[arg(long)]
    warm_up: u64,
    /// How many are
    #[arg(long)]
    requests: u64,
}

impl Engine {
    /// Prints the seconds, the client's allocations and their bytes, and the server's.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let shape = SHAPES.iter().find(|shape| shape.name == self.shape);
        let mut pair = Pair::new(*shape.ok_or("no such shape")?);
        pair.carry(self.warm_up)?;
        let before = pair.spent;
        let begun = Instant::now();
        pair.carry(self.requests)?;
        let seconds = begun.elapsed().as_secs_f64();
        let Spent { client, server } = Spent {
            client: pair.spent.client - before.client,
            server: pair.spent.server - before.server,
        };
        let text = |heap: Heap| format!("{} {}", heap.allocations, heap.bytes);
        print_line(&format!("{seconds} {} {}", text(client), text(server)))
    }
}
