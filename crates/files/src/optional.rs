//! Optional system calls: those that old kernels lack, and that sandboxes deny one by one.
//!
//! Each has an [`Optional`] beside it that remembers a denial, so that the call is made in vain once in a process and not for
//! every request. Called by `disk` and `open`.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Whether a system call can be had.
#[derive(Debug)]
pub(crate) struct Optional {
    denied: AtomicBool,
}

impl Optional {
    /// One that has not been tried.
    pub(crate) const fn new() -> Optional {
        Optional {
            denied: AtomicBool::new(false),
        }
    }

    /// Whether it has been denied.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Whether `error` says that the call itself cannot be had; remembers that.
    pub(crate) fn denies(&self, error: Errno) -> bool {
        // seccomp filters answer with the first two, kernels that do not know a flag with the other two.
        let denies = matches!(
            error,
            Errno::PERM | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP
        );
        if denies {
            self.denied.store(true, Ordering::Relaxed);
        }
        denies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_remembered_and_another_failure_is_not() {
        for error in [Errno::PERM, Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP] {
            let call = Optional::new();
            for other in [Errno::AGAIN, Errno::NOENT, Errno::MFILE, Errno::ACCESS, Errno::IO] {
                assert!(!call.denies(other), "{other}");
                assert!(!call.is_denied(), "{other}");
            }
            assert!(call.denies(error), "{error}");
            assert!(call.is_denied(), "{error}");
        }
    }
}
