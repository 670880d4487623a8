//! The load imbalance detector's account: what each thread computed and waited, gathered in rounds.
//!
//! A *round* is over when all have finished an iteration. None waits for one that sleeps all the time, as
//! helper threads do. Where one has finished [`LEAD`] and another none, it is over, too: one that never
//! waits must not keep the others from being balanced.
//!
//! Invariants: an account never goes back, whatever counters do; a part that is not known (nothing
//! computed, nothing waited) is no number and not 0.

use super::Priority;
use evenly_model::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// An iteration that a thread has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration<T> {
    /// The thread that has finished it.
    pub thread: T,
    /// t_R: how long it was runnable.
    pub computed: Nanos,
    /// t_W: how long it then waited.
    pub waited: Nanos,
}

/// What has been counted of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters<T> {
    /// The thread whose counters these are.
    pub thread: T,
    /// Iterations that are over.
    pub iterations: u64,
    /// How long it was runnable.
    pub computed: Nanos,
    /// How long it has waited.
    pub waited: Nanos,
}

/// Iterations of one in a round in which another finishes none, at most.
const LEAD: u64 = 16;

/// A thread that computes for a smaller part of the time is there for something else: the master of a program,
/// which waits for its workers, or a helper thread. It is not balanced, and does not count where it
/// is asked whether the others are.
pub(super) const NEGLIGIBLE: f64 = 0.02;

/// A sum of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) iterations: u64,
    pub(super) computed: Nanos,
    pub(super) waited: Nanos,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.iterations = self.iterations.saturating_add(other.iterations);
        // What does not fit any more is left out of both: one that stays at the end of its range would make
        // another utilisation of the same rounds.
        let sum = |a: Nanos, b: Nanos| a.0.checked_add(b.0).map(Nanos);
        if let (Some(computed), Some(waited)) =
            (sum(self.computed, other.computed), sum(self.waited, other.waited))
        {
            (self.computed, self.waited) = (computed, waited);
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_sub(before.iterations),
            computed: self.computed - before.computed,
            waited: self.waited - before.waited,
        }
    }

    /// t of the paper, computing and waiting, in seconds.
    pub(super) fn total_s(self) -> f64 {
        self.computed.as_secs_f64() + self.waited.as_secs_f64()
    }

    /// U = t_R / t.
    pub(super) fn utilisation(self) -> Option<f64> {
        let total = self.total_s();
        (total > 0.0).then(|| self.computed.as_secs_f64() / total)
    }

    /// Whether it is known that hardly anything was computed.
    pub(super) fn is_idle(self) -> bool {
        self.utilisation().is_some_and(|u| u < NEGLIGIBLE)
    }
}

/// What is known of one thread.
#[derive(Debug, Clone, Default)]
struct Account {
    /// Since the round began.
    round: Sum,
    /// What it did before this round.
    history: Sum,
    /// What its counters were when they were last read.
    counters: Option<Sum>,
}

/// What a finished round says of one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct View {
    pub(super) priority: Priority,
    /// What it did in this round.
    pub(super) sum: Sum,
    /// U_l(i), of this round.
    pub(super) local: Option<f64>,
    /// U_g(i - 1), of all before this round.
    pub(super) before: Option<f64>,
    /// U of all, this round included.
    pub(super) global: Option<f64>,
}

impl View {
    /// Whether it is one of those that are balanced: it computes, if not now then at other times.
    pub(super) fn takes_part(&self) -> bool {
        let is_more = |u: Option<f64>| u.is_some_and(|u| u >= NEGLIGIBLE);
        self.local.is_some() && (is_more(self.local) || is_more(self.global))
    }
}

/// A round that all threads have finished, by thread.
pub(super) type Round<T> = BTreeMap<T, View>;

/// The accounts of all.
#[derive(Debug, Clone)]
pub(super) struct Accounts<T> {
    of: BTreeMap<T, Account>,
}

impl<T: Copy + Ord> Accounts<T> {
    pub(super) fn new() -> Self {
        Self { of: BTreeMap::new() }
    }

    /// One joins; false where it is there already.
    pub(super) fn join(&mut self, thread: T) -> bool {
        let new = !self.of.contains_key(&thread);
        self.of.entry(thread).or_default();
        new
    }

    /// One leaves; false where it was not there.
    pub(super) fn leave(&mut self, thread: T) -> bool {
        self.of.remove(&thread).is_some()
    }

    /// Those that are not among these leave.
    pub(super) fn keep(&mut self, those: &[Counters<T>]) -> Vec<T> {
        // As it is nearly always: at such a point nothing is allocated.
        let is_known = |c: &Counters<T>| self.of.contains_key(&c.thread);
        if those.len() == self.of.len() && those.iter().all(is_known) {
            return Vec::new();
        }
        let those: BTreeSet<T> = those.iter().map(|c| c.thread).collect();
        let gone: Vec<T> = self.of.keys().copied().filter(|e| !those.contains(e)).collect();
        for e in &gone {
            self.leave(*e);
        }
        gone
    }

    /// An iteration has been finished.
    pub(super) fn finished(&mut self, i: &Iteration<T>) {
        let sum = Sum { iterations: 1, computed: i.computed, waited: i.waited };
        self.of.entry(i.thread).or_default().round.add(sum);
    }

    /// Counters were read. What they gained since they were last read belongs to this round.
    pub(super) fn read(&mut self, c: &Counters<T>) {
        let now = Sum { iterations: c.iterations, computed: c.computed, waited: c.waited };
        let account = self.of.entry(c.thread).or_default();
        // One that counts anew has begun anew: what it had is not taken away from it.
        let before = account.counters.filter(|b| b.iterations <= now.iterations);
        if let Some(before) = before {
            account.round.add(now.since(before));
        }
        account.counters = Some(now);
    }

    /// The round, if it is over; another one begins then.
    pub(super) fn close(&mut self, priority: impl Fn(&T) -> Priority) -> Option<Round<T>> {
        let most = self.of.values().map(|a| a.round.iterations).max()?;
        let holds_up = |a: &Account| a.round.iterations == 0 && !a.round.is_idle();
        if most == 0 || most < LEAD && self.of.values().any(holds_up) {
            return None;
        }
        let mut round = BTreeMap::new();
        for (thread, a) in &mut self.of {
            let sum = std::mem::take(&mut a.round);
            let before = a.history.utilisation();
            a.history.add(sum);
            let view = View {
                priority: priority(thread),
                sum,
                local: sum.utilisation(),
                before,
                global: a.history.utilisation(),
            };
            round.insert(*thread, view);
        }
        Some(round)
    }
}

/// The mean, the same in whatever order they come.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
