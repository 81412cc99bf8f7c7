//! Cells of streams that are over, for new streams. The connections of a thread share them: the cell that was used last is in
//! the processor's cache; a cell of a connection that has waited behind a thousand others is not.

use std::cell::RefCell;
use std::sync::Arc;

use crate::cell::{Cell, CellState, Mailbox};

/// How many a thread keeps: the number of streams that a client usually has open at once.
const MOST: usize = 100;

thread_local! {
    static SPARE: RefCell<Vec<Arc<Cell>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a cell that no handle holds any more, up to a limit. It keeps the mailbox of its last connection until it serves again.
pub(super) fn keep(mut cell: Arc<Cell>) {
    if !cell.clear() {
        return;
    }
    // A thread that is ending keeps none.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MOST {
            spare.push(cell);
        }
    });
}

/// A cell that was cleared.
fn take() -> Option<Arc<Cell>> {
    SPARE.try_with(|spare| spare.borrow_mut().pop()).ok()?
}

/// A cell for a stream that the peer has opened.
pub(super) fn cell(mailbox: &Arc<Mailbox>, set: impl FnOnce(&mut CellState)) -> Arc<Cell> {
    if let Some(mut cell) = take() {
        if let Some(state) = cell.reuse(mailbox) {
            set(state);
            return cell;
        }
    }
    let mut state = CellState::default();
    set(&mut state);
    Cell::new(Arc::clone(mailbox), state)
}

#[cfg(test)]
pub(super) fn count() -> usize {
    SPARE.with_borrow(Vec::len)
}
