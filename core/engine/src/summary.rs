//! What a run of the cycle amounted to, in numbers.
//!
//! Invariant: everything here was measured in the run; nothing is taken from a formula that
//! assumes what the machine did.

use crate::Verdict;
use evenly_model::Effort;
use evenly_model::efficiency::{Efficiency, Stay};
use evenly_model::metrics::Spread;
use evenly_model::{CpuSet, DomainId, Nanos, Pid, ThreadId};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Where the time of the balancing points went (wall time, summed over points).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CostBreakdown {
    /// Reading thread times and places.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
    /// CPU time that classifying threads and planning moves took.
    #[serde(rename = "decide_ns")]
    pub decide: Nanos,
    /// CPU time that setting masks took.
    #[serde(rename = "apply_ns")]
    pub apply: Nanos,
    /// CPU time that informing observers took.
    #[serde(rename = "record_ns")]
    pub record: Nanos,
}

impl CostBreakdown {
    /// The sums of both, part by part.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            read: self.read + other.read,
            decide: self.decide + other.decide,
            apply: self.apply + other.apply,
            record: self.record + other.record,
        }
    }
}

/// What searches for a thread to swap with have cost, where a policy reads threads one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SearchSummary {
    /// Searches: decisions of a fast CPU's balancer.
    pub searches: u64,
    /// Threads of other CPUs that were read in them, all together.
    pub observations: u64,
    /// The most in one search.
    pub most: u64,
    /// Threads that there were, summed over the searches: what reading all would have been.
    pub threads: u64,
}

impl SearchSummary {
    /// The sums of both searches.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            searches: self.searches + other.searches,
            observations: self.observations + other.observations,
            most: self.most.max(other.most),
            threads: self.threads + other.threads,
        }
    }
}

impl From<Effort> for SearchSummary {
    fn from(e: Effort) -> Self {
        Self { searches: e.searches, observations: e.readings, most: e.most, threads: e.threads }
    }
}

/// What became of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// What its tasks are: rank or thread.
    pub what: &'static str,
    /// How many it names.
    pub named: usize,
    /// How many of these were put where it says.
    pub placed: usize,
}

/// One thread over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadSummary {
    /// The thread that this is about.
    pub id: ThreadId,
    /// The process that it belongs to.
    pub pid: Pid,
    /// Its name, as the program has set it.
    pub name: String,
    /// CPU time while it was balanced, in seconds.
    pub ran_s: f64,
    /// Of that, spinning: waiting for others, by its own report. None where it reported nothing.
    pub spun_s: Option<f64>,
    /// Waiting for a CPU, in seconds.
    pub waited_s: f64,
    /// For how long it was blocked, in seconds.
    pub blocked_s: f64,
    /// Moves made by evenly.
    pub migrations: u64,
    /// Minor page faults since the thread started.
    pub minor_faults: u64,
    /// Major page faults since the thread started.
    pub major_faults: u64,
    /// For how long it was balanced, in seconds.
    pub present_s: f64,
    /// Whether it had an affinity mask of its own: one that allowed it less than the threads of its
    /// domain together, or that the program set while it was balanced. It is never moved out of that. Of one that
    /// was bound and is no longer, this is false.
    pub own_mask: bool,
    /// When it was first balanced, and until when: one that slept for long was let go in between.
    #[serde(skip)]
    pub span: (Nanos, Nanos),
}

impl ThreadSummary {
    /// CPU time in which it computed, as far as that is known.
    #[must_use]
    pub fn computed_s(&self) -> f64 {
        (self.ran_s - self.spun_s.unwrap_or(0.0)).max(0.0)
    }

    /// Adds another stay of the same thread.
    fn add(&mut self, other: &Self) {
        self.ran_s += other.ran_s;
        // Where one stay is not known, the sum is not.
        self.spun_s = self.spun_s.zip(other.spun_s).map(|(a, b)| a + b);
        self.waited_s += other.waited_s;
        self.blocked_s += other.blocked_s;
        self.present_s += other.present_s;
        // Open MPI binds each rank to one CPU after the other while it starts: what holds is how the last stay was. Stays are
        // added domain by domain.
        if other.span.1 >= self.span.1 {
            self.own_mask = other.own_mask;
        }
        self.span = (self.span.0.min(other.span.0), self.span.1.max(other.span.1));
        self.migrations += other.migrations;
        // These are counted from the thread's start.
        self.minor_faults = self.minor_faults.max(other.minor_faults);
        self.major_faults = self.major_faults.max(other.major_faults);
    }
}

/// One domain over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DomainSummary {
    /// The domain that this is about.
    pub id: DomainId,
    /// Its CPUs at the end.
    pub cpus: CpuSet,
    /// Those of its CPUs that the masks of its threads, as they were registered, allowed to any of them.
    #[serde(skip)]
    pub allowed: CpuSet,
    /// How many balancing points there were.
    pub points: u64,
    /// How many threads were moved.
    pub migrations: u64,
    /// How often threads were given parts of the CPUs that they share.
    pub weighings: u64,
    /// Moves that could not be carried out, vanished threads not counted.
    pub failed: u64,
    /// CPU time of its balancer, in seconds.
    pub cpu_s: f64,
    /// Mean length of a period, in seconds.
    pub period_s: f64,
    /// Where the time went.
    pub cost: CostBreakdown,
    /// What searches have cost; all 0 where the policy does not search.
    pub search: SearchSummary,
    /// Greatest number of threads that were balanced at one time.
    pub threads: u32,
    /// Progress of the slowest thread over that of one left in the slowest slot throughout, both
    /// measured; None where nothing was measured.
    pub estimated_gain: Option<f64>,
    /// What pausing has shown.
    #[serde(skip)]
    pub verdict: Verdict,
    /// The arm that was found to be better than the policy; None where none was.
    #[serde(skip)]
    pub choice: Option<Choice>,
    /// The arm that might have been better and could not be tried; None where none was refused.
    #[serde(skip)]
    pub untried: Option<Untried>,
    /// Whether balancing stood down.
    pub stood_down: bool,
    /// For how long it had stood down, in seconds.
    pub rested_s: f64,
    /// Part of the threads' time that was waiting for a CPU.
    pub wait_share: f64,
    /// CPU time, in seconds, in which CPUs had none of the threads to run while threads waited for
    /// others, outside pauses; what others used of it is in it. None where each CPU has a balancer of
    /// its own: what it reads are not the threads of one period.
    pub idle_s: Option<f64>,
    /// Part of the threads' time that was blocked.
    pub blocked_share: f64,
}

/// A policy that took the place of another, as the program was measured to be faster with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Its name.
    pub policy: &'static str,
    /// What it was compared with, in words; None for the kernel alone, where the other gained nothing over that.
    pub over: Option<&'static str>,
    /// By how much it is faster.
    pub verdict: Verdict,
}

/// An arm that could not be tried, as something that it does is not permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untried {
    /// Its name.
    pub policy: &'static str,
    /// What is not permitted, and what would permit it.
    pub why: String,
}

/// What a whole run amounted to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// What each domain amounted to.
    pub domains: Vec<DomainSummary>,
    /// The threads, each once; domain by domain, and there first those that have left.
    pub threads: Vec<ThreadSummary>,
    /// Notes in the order in which they were made.
    pub notes: Vec<String>,
}

impl Summary {
    /// Adds the account of one domain. A thread that has been in several domains, or in one several
    /// times, is one thread: its times and moves are added up.
    pub fn add(
        &mut self,
        (domain, threads, notes): (DomainSummary, Vec<ThreadSummary>, Vec<String>),
    ) {
        self.domains.push(domain);
        self.notes.extend(notes);
        let mut known: HashMap<ThreadId, usize> =
            self.threads.iter().enumerate().map(|(i, t)| (t.id, i)).collect();
        for t in threads {
            match known.entry(t.id) {
                Entry::Occupied(at) => self.threads[*at.get()].add(&t),
                Entry::Vacant(free) => {
                    free.insert(self.threads.len());
                    self.threads.push(t);
                }
            }
        }
    }

    /// Progress (CPU time per second present, without spinning where that is known) of the threads that were
    /// there for most of the run.
    #[must_use]
    pub fn progress_spread(&self) -> Option<Spread> {
        spread_of_stays(self.threads.iter().map(|t| (t.computed_s(), t.present_s)))
    }

    /// Where the time of the threads went that were there for most of the run.
    #[must_use]
    pub fn efficiency(&self) -> Option<Efficiency> {
        Efficiency::of(self.threads.iter().map(|t| {
            // A thread that was let go in between slept.
            let present_s = (t.span.1 - t.span.0).as_secs_f64();
            let (ran_s, waited_s) = (t.ran_s, t.waited_s);
            let blocked_s = (present_s - ran_s - waited_s).max(0.0);
            Stay { ran_s, spun_s: t.spun_s, waited_s, blocked_s, present_s }
        }))
    }
}

/// Threads that were there for less than this part of the longest stay do not count for the imbalance of
/// the program.
const LONG_ENOUGH: f64 = 0.5;

/// The spread of threads, each with its CPU time and for how long it was there, both in seconds: of the
/// parts of a CPU that they received, of those that were there for long enough. None where none was.
pub fn spread_of_stays(stays: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Spread> {
    let longest = stays.clone().map(|(_, present)| present).fold(0.0, f64::max);
    let counts = |present: f64| present > LONG_ENOUGH * longest && present > 0.0;
    Spread::of(stays.filter(|s| counts(s.1)).map(|(ran, present)| ran / present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Tid;

    fn stay(tid: i32, ran_s: f64, migrations: u64, minor_faults: u64) -> ThreadSummary {
        ThreadSummary {
            id: ThreadId { tid: Tid(tid), start: 1 },
            pid: Pid(1),
            name: format!("t{tid}"),
            ran_s,
            spun_s: Some(0.5 * ran_s),
            waited_s: 2.0 * ran_s,
            blocked_s: 3.0 * ran_s,
            migrations,
            minor_faults,
            major_faults: minor_faults,
            present_s: 6.0 * ran_s,
            own_mask: false,
            span: (Nanos(1_000), Nanos(1_000 + (6e9 * ran_s) as u64)),
        }
    }

    fn domain(id: u32) -> DomainSummary {
        DomainSummary {
            id: DomainId(id),
            cpus: CpuSet::new(),
            allowed: CpuSet::new(),
            points: 1,
            migrations: 0,
            weighings: 0,
            failed: 0,
            cpu_s: 0.0,
            period_s: 0.0,
            cost: CostBreakdown::default(),
            search: SearchSummary::default(),
            threads: 1,
            estimated_gain: None,
            verdict: Verdict::default(),
            choice: None,
            untried: None,
            stood_down: false,
            rested_s: 0.0,
            wait_share: 0.0,
            idle_s: None,
            blocked_share: 0.0,
        }
    }

    #[test]
    fn only_threads_that_were_there_for_long_count_for_the_imbalance() {
        let spread = |stays: &[(f64, f64)]| spread_of_stays(stays.iter().copied());
        let known = spread(&[(5.0, 10.0), (8.0, 10.0), (4.0, 5.0), (0.1, 4.9)]).unwrap();
        // The third was there for half of the time, which is not long enough.
        assert_eq!((known.min, known.max), (0.5, 0.8));
        assert!((known.mean - 0.65).abs() < 1e-12);
        assert_eq!((spread(&[]), spread(&[(0.0, 0.0)])), (None, None));
    }

    #[test]
    fn a_thread_with_several_stays_is_one_thread() {
        let mut all = Summary::default();
        all.add((domain(0), vec![stay(2, 1.0, 3, 10), stay(1, 4.0, 0, 0)], Vec::new()));
        // Back after a while, and then in another domain.
        all.add((domain(1), vec![stay(2, 2.0, 1, 30), stay(3, 1.0, 0, 0)], Vec::new()));
        all.add((domain(2), vec![stay(2, 0.5, 0, 20), stay(2, 0.5, 0, 25)], Vec::new()));
        let tids: Vec<i32> = all.threads.iter().map(|t| t.id.tid.0).collect();
        assert_eq!(tids, [2, 1, 3]);
        assert!(!all.threads[0].own_mask);
        let bound = ThreadSummary { own_mask: true, ..stay(3, 1.0, 0, 0) };
        let mut with = all.clone();
        with.add((domain(3), vec![bound], Vec::new()));
        assert!(with.threads[2].own_mask);
        // Bound no more when it came back, whichever is added first.
        let later =
            ThreadSummary { span: (Nanos(u64::MAX), Nanos(u64::MAX)), ..stay(3, 1.0, 0, 0) };
        with.add((domain(4), vec![later], Vec::new()));
        assert!(!with.threads[2].own_mask);
        let earlier = ThreadSummary { own_mask: true, ..stay(3, 1.0, 0, 0) };
        with.add((domain(5), vec![earlier], Vec::new()));
        assert!(!with.threads[2].own_mask);
        let merged = ThreadSummary { span: stay(2, 2.0, 4, 30).span, ..stay(2, 4.0, 4, 30) };
        assert_eq!(all.threads[0], merged);
        assert_eq!((all.threads[1].clone(), all.domains.len()), (stay(1, 4.0, 0, 0), 3));
    }
}
