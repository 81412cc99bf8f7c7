//! Has the processor fetch memory before it is needed, and keeps lists where it has fetched.
//!
//! A server of a thousand connections finds little of what a request touches in its caches. If each line is fetched
//! when it is first read, the processor waits for most of them one after the other, 60 to 100 ns each. Asked for
//! together, before a system call, they are there when it returns.

use std::collections::VecDeque;

use prefetch_index::prefetch_index;

/// The length of a cache line. Where lines are longer, some are asked for twice; where they are shorter, some are not.
const LINE: usize = 64;

/// The most that is fetched of one value, in bytes. More would push out what was fetched before.
const MOST: usize = 4 << 10;

/// No list has memory below this address. A list without memory has an address all the same, which is a small number.
const LOWEST: usize = 4 << 10;

/// Has the processor fetch the lines of `value`, up to 4 KiB. It does not wait for them, and changes nothing. The owner
/// of many connections may use it for a [`Connection`](crate::Connection), and for what it keeps beside each.
///
/// ```
/// let beside = Box::new([0_u8; 300]);
/// fullbore_proto::prefetch(&*beside);
/// ```
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    fetch_all(core::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Has the processor fetch the first `length` bytes of the memory of a list, also if it is empty.
#[inline]
pub(crate) fn prefetch_start<T>(list: &[T], length: usize) {
    fetch_all(list.as_ptr().cast(), length);
}

/// Has a list that is empty begin where its memory does. That is in the processor's cache if the last entry was there.
#[inline]
pub(crate) fn rewind<T>(list: &mut VecDeque<T>) {
    if list.is_empty() {
        list.clear();
    }
}

#[inline]
fn fetch_all(start: *const u8, length: usize) {
    let (start, length) = (start.addr(), at_most(length));
    // With nothing between them and the loop, its length is that of the type, and it becomes an instruction for each line.
    if length == 0 || !has_memory(start) {
        return;
    }
    for line in 0..length.div_ceil(LINE) {
        fetch(start.wrapping_add(line * LINE));
    }
    // What does not begin with a line may end in one more.
    fetch(start.wrapping_add(length - 1));
}

#[inline]
fn has_memory(address: usize) -> bool {
    address >= LOWEST
}

#[inline]
fn at_most(length: usize) -> usize {
    length.min(MOST)
}

#[inline]
fn fetch(address: usize) {
    // The crate takes an index, of which the processor sees an address.
    const NOWHERE: &[u8] = &[];
    if !cfg!(miri) {
        prefetch_index(NOWHERE, address.wrapping_sub(NOWHERE.as_ptr().addr()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_value_is_fetched_but_at_most_4_kib() {
        assert_eq!((at_most(100), at_most(1 << 20)), (100, MOST));
    }

    #[test]
    fn a_list_without_memory_is_not_fetched() {
        assert!(!has_memory(Vec::<u64>::new().as_ptr().addr()));
        assert!(has_memory(Vec::<u64>::with_capacity(1).as_ptr().addr()));
    }

    #[test]
    fn what_is_fetched_stays_as_it_is() {
        let value = [7_u8; 10_000];
        prefetch(&value);
        prefetch(&());
        prefetch_start(&value, usize::MAX);
        assert_eq!(value, [7; 10_000]);
    }
}
