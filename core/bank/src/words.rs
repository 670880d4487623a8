//! What a process shares with its peers and with whoever schedules it (section 2.5.2).
//!
//! The paper clears both words when a process is scheduled. Two stores are not one: a peer that has seen `status`, and is late,
//! sets `signaled` for a descheduling that is over, and then nobody wakes the process up from the next one. Here deschedulings are
//! numbered, and `signaled` is the number of that for which a request was sent: one store clears both.
//!
//! Memory ordering: whoever deschedules the process stores `status` and looks then whether something has come; a peer brings what
//! it has and looks then at `status`. The fence between the two, on both sides, lets one of them see the other.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, fence};

/// An exchange fails where a peer that was late has set the number of an earlier descheduling. More than a few are none: somebody
/// writes what he likes, and is not waited for.
const TRIES: u32 = 8;

/// The two words, in memory that all may write to.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Words {
    /// How often the process was descheduled and scheduled again: odd while it is descheduled.
    status: AtomicU32,
    /// What `status` was when the last wake request was sent.
    signaled: AtomicU32,
}

impl Words {
    /// The process is descheduled from now on. Only whoever schedules it says so; what has come meanwhile has to be looked for
    /// after this.
    pub fn deschedule(&self) {
        let status = self.status.load(Relaxed);
        self.status.store(status | 1, Release);
        fence(SeqCst);
    }

    /// The process is scheduled: it is not descheduled, and no request is pending. Only whoever schedules it says so.
    pub fn schedule(&self) {
        let status = self.status.load(Relaxed);
        self.status.store(status.wrapping_add(status & 1), Release);
    }

    /// Whether the process is descheduled.
    #[must_use]
    pub fn is_descheduled(&self) -> bool {
        self.status.load(Acquire) & 1 == 1
    }

    /// Whether a peer that has brought something has to send a wake request: true for one of them in each descheduling. Where the
    /// process is scheduled, one word is read.
    ///
    /// A peer that is late may send its request when the process runs already, or is descheduled for the next time.
    #[must_use]
    pub fn wants_wake(&self) -> bool {
        fence(SeqCst);
        let status = self.status.load(Acquire);
        if status & 1 == 0 {
            return false;
        }
        let mut signaled = self.signaled.load(Relaxed);
        for _ in 0..TRIES {
            // Numbers begin anew after 2^31 deschedulings.
            if (signaled.wrapping_sub(status) as i32) >= 0 {
                return false;
            }
            match self.signaled.compare_exchange(signaled, status, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => signaled = now,
            }
        }
        // A request too many does no harm, one too few does.
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_request_for_each_descheduling() {
        let words = Words::default();
        assert!(!words.wants_wake());
        // It ends as it began: there is nothing to be cleared.
        words.schedule();
        for _ in 0..3 {
            words.deschedule();
            words.deschedule();
            assert!(words.is_descheduled());
            assert_eq!([words.wants_wake(), words.wants_wake()], [true, false]);
            words.schedule();
            assert_eq!((words.is_descheduled(), words.wants_wake()), (false, false));
        }
        // Nobody came while it was descheduled.
        words.deschedule();
        words.schedule();
        words.deschedule();
        assert!(words.wants_wake());
    }

    #[test]
    fn numbers_begin_anew() {
        let words =
            Words { status: AtomicU32::new(u32::MAX - 1), signaled: AtomicU32::new(u32::MAX - 2) };
        for _ in 0..3 {
            words.deschedule();
            assert_eq!([words.wants_wake(), words.wants_wake()], [true, false]);
            words.schedule();
        }
        assert_eq!(words.status.load(Relaxed), 4);
    }

    #[test]
    fn they_are_two_words() {
        assert_eq!((size_of::<Words>(), align_of::<Words>()), (8, 4));
    }
}
