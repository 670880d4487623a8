//! What of a thread's CPU time was spinning.
//!
//! A thread reports for how long it has waited for others, W of a period of length E, whether it slept, spun
//! or stood in a run queue in order to spin. The kernel reports for how long it ran, r, stood in the queue, q,
//! and slept, b = E - r - q. Of its waiting it slept for b: a thread that sleeps waits (one that slept for a disk
//! waited for that, and what it spun besides is taken for less than it was). The rest, W - b, is of the
//! time r + q = E - b in which it wanted a CPU. Which of that it ran is the kernel's choice, and the kernel
//! does not know what the thread wants the CPU for; so it ran for the same part of it as of all the time in
//! which it wanted a CPU, r / (r + q), and of its CPU time
//!
//! ```text
//! spun = r (W - b) / (E - b)
//! ```
//!
//! was spinning. One that spins without a break (W = E, b = 0) spun for all of r, one that sleeps at its
//! barriers (W = b) for nothing. One that yields while it waits runs less then than the formula says: what
//! it computed is taken for less than it was, by no more than q allows. Where one computes beside others and
//! waits alone it is the reverse. Ranks of MPI programs whose messages are counted say what they computed, by
//! readings of their CPU time: that replaces the estimate whenever it is read
//! ([`crate::account`]).
//!
//! Invariants: what was spun is from 0 to r, whatever is reported; and of the waiting that is reported none is
//! counted twice, though it is read at another moment than the times, and may become less again
//! (`probe/c/waiting.h`: waiting at a barrier turns out to be none where tasks are made).

use crate::Waiting;
use evenly_model::{Nanos, Turns};

/// What a thread reports of its waiting, and what of that is booked.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitReport {
    /// When the thread was admitted.
    since: Nanos,
    /// What programs that the thread was before had reported, and where this one began.
    before: Turns,
    first: Option<Waiting>,
    /// It has been asked before.
    asked: bool,
    last: Option<Waiting>,
    /// Waiting that is booked, or was before it was asked first.
    booked: Nanos,
}

impl WaitReport {
    /// Of a thread that is admitted at this moment.
    pub(crate) fn new(since: Nanos) -> Self {
        Self { since, ..Self::default() }
    }

    /// Takes in what the thread says now, or that it says nothing. What it says first is where counting
    /// begins; one that said nothing at first had not waited.
    pub fn update(&mut self, said: Option<Waiting>) {
        // Counters that went back are those of another program, which the thread has become by exec.
        let anew = said.zip(self.last).is_some_and(|(now, before)| now.waits < before.waits);
        if anew {
            self.before = self.said();
            self.first = None;
        }
        if self.asked {
            // One that said nothing at first had not waited.
            self.first = self.first.or(said.map(|_| Waiting::default()));
        } else {
            self.first = said;
        }
        if !self.asked {
            self.booked = said.map_or(Nanos::ZERO, |w| w.idle());
        } else if anew {
            self.booked = Nanos::ZERO;
        }
        self.asked = true;
        self.last = said.or(self.last);
    }

    /// What it said last.
    #[must_use]
    pub fn last(&self) -> Option<Waiting> {
        self.last
    }

    /// Its turns since it was admitted; how long it was runnable is not among them.
    fn said(&self) -> Turns {
        let (first, last) = (self.first.unwrap_or_default(), self.last.unwrap_or_default());
        let more = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
        Turns {
            phases: self.before.phases + more(last.phases, first.phases),
            waits: self.before.waits + more(last.waits, first.waits),
            waited: self.before.waited + (last.idle() - first.idle()),
            ..Turns::default()
        }
    }

    /// Its turns since it was admitted, if it reports them.
    pub(crate) fn turns(&self, now: Nanos) -> Option<Turns> {
        self.last?;
        let said = self.said();
        Some(Turns { runnable: now - self.since - said.waited, ..said })
    }

    /// Barriers, collectives and ends of regions that it has reached since it was first asked, if it reports them.
    #[must_use]
    pub fn phases(&self) -> Option<u64> {
        self.last.map(|_| self.said().phases)
    }

    /// Whether the thread has ever reported anything.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// Books a stretch of time. Returns which part of the time in which the thread wanted a CPU it only
    /// waited for others, from 0 to 1.
    pub fn book(&mut self, elapsed: Nanos, blocked: Nanos) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        // What was read later than the times belongs to the next stretch.
        let waited = (last.idle() - self.booked).min(elapsed);
        self.booked += waited;
        let wanted = elapsed - blocked;
        if wanted == Nanos::ZERO {
            return 0.0;
        }
        ((waited - blocked).0 as f64 / wanted.0 as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: Nanos = Nanos::from_millis(100);

    fn said(waited_ms: u64, waits: u32) -> Option<Waiting> {
        Some(Waiting {
            waited: Nanos::from_millis(waited_ms),
            outside: Nanos::ZERO,
            phases: waits,
            waits,
            computes_since: None,
        })
    }

    /// What is said at the beginning and at the end of a period, and for how long of it it slept.
    fn share(first: Option<Waiting>, last: Option<Waiting>, blocked_ms: u64) -> f64 {
        let mut report = WaitReport::default();
        report.update(first);
        report.update(last);
        report.book(E, Nanos::from_millis(blocked_ms))
    }

    #[test]
    fn of_the_time_in_which_it_wanted_a_cpu_it_spun_for_the_rest_of_its_waiting() {
        assert_eq!(share(said(7, 1), said(107, 2), 0), 1.0);
        assert_eq!(share(said(7, 1), said(57, 2), 0), 0.5);
        // It slept all the time that it waited, or half of it.
        assert_eq!(share(said(7, 1), said(57, 2), 50), 0.0);
        assert_eq!(share(said(7, 1), said(57, 2), 20), 30.0 / 80.0);
        // It slept for something else as well, or all the time.
        assert_eq!(share(said(7, 1), said(57, 2), 90), 0.0);
        assert_eq!(share(said(7, 1), said(107, 2), 100), 0.0);
        // Outside of parallel regions is waiting, too.
        let outside = Waiting { outside: E, ..said(7, 1).unwrap() };
        assert_eq!(share(said(7, 1), Some(outside), 0), 1.0);
    }

    #[test]
    fn one_that_says_nothing_computes_as_far_as_is_known() {
        assert_eq!(share(None, None, 0), 0.0);
        assert!(!WaitReport::default().is_known());
        // It waits for the first time now.
        assert_eq!(share(None, said(50, 1), 0), 0.5);
        // It could not be read this time.
        let mut report = WaitReport::default();
        for says in [said(0, 1), None] {
            report.update(says);
        }
        assert_eq!(report.book(E, Nanos::ZERO), 0.0);
        report.update(said(50, 1));
        assert_eq!(report.book(E, Nanos::ZERO), 0.5);
    }

    #[test]
    fn no_waiting_is_booked_twice_or_before_its_time() {
        let mut report = WaitReport::default();
        let mut book = |says| {
            report.update(says);
            report.book(E, Nanos::ZERO)
        };
        assert_eq!(book(said(1_000, 5)), 0.0);
        // Read 10 ms late.
        assert_eq!(book(said(1_110, 5)), 1.0);
        assert_eq!(book(said(1_200, 5)), 1.0);
        // It becomes less: the next waiting makes that up.
        assert_eq!(book(said(1_150, 5)), 0.0);
        assert_eq!(book(said(1_250, 6)), 0.5);
        // Another program with this thread.
        assert_eq!(book(said(50, 1)), 0.5);
    }
}
