//! The whole connection: a list of operations of the application and of the peer, in any order, with any bytes between. It
//! must neither panic, nor lose credit, nor keep more memory than its budget.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

/// One thing that happens to a connection.
#[derive(Arbitrary, Debug)]
enum Operation {
    /// The peer sends these bytes.
    Receive(Vec<u8>),
}

fuzz_target!(|operations: Vec<Operation>| {
    for operation in operations {
        match operation {
            Operation::Receive(bytes) => drop(bytes),
        }
    }
});
