//! Optional system calls, which old kernels lack or sandboxes deny.
//!
//! An [`Optional`] beside each call remembers a denial, so the call fails once in a process and not for every request.
//! Called by `disk`, `open` and `store`.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Whether a system call is available.
#[derive(Debug)]
pub(crate) struct Optional {
    denied: AtomicBool,
}

impl Optional {
    /// A call that has not been tried.
    pub(crate) const fn new() -> Optional {
        Optional {
            denied: AtomicBool::new(false),
        }
    }

    /// Whether the call has been denied.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Whether `error` means that the call is not available. Remembers it.
    pub(crate) fn denies(&self, error: Errno) -> bool {
        // seccomp filters return the first two; kernels that do not know a flag return the other two.
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
