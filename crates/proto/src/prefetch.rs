//! Has the processor fetch memory before it is needed.
//!
//! A server of a thousand connections finds little of what a request touches in its caches. If each line is fetched
//! when it is first read, the processor waits for most of them one after the other, 60 to 100 ns each. Asked for
//! together, before a system call, they are there when it returns.

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

#[inline]
fn fetch_all(start: *const u8, length: usize) {
    let (start, length) = (start.addr(), length.min(MOST));
    if length == 0 || start < LOWEST {
        return;
    }
    for offset in (0..length).step_by(LINE) {
        fetch(start.wrapping_add(offset));
    }
    // What does not begin with a line may end in one more.
    fetch(start.wrapping_add(length - 1));
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
    fn nothing_is_read_whatever_is_asked_for() {
        prefetch(&());
        prefetch(&[0_u8; 10_000]);
        prefetch("a line and a half");
        prefetch_start::<u64>(&[], 0);
        // An empty list has no memory, and a short one less than this.
        prefetch_start::<u64>(&[], 4_096);
        prefetch_start(&[1_u64], usize::MAX);
    }
}
