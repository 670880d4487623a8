//! Reactive balancing: nothing is moved until threads block; then threads that share a CPU take the
//! places of those (Juggle, section 3.3, Eq. 19 to 21). It is what the kernel's own balancing comes
//! to where threads sleep at barriers, and what proactive balancing is compared with.
//!
//! At each balancing point:
//!
//! 1. A CPU is *idle* if none of its threads computes: each has ended, or was blocked for more than
//!    half of the last period.
//! 2. Each idle CPU takes one thread from the CPU on which most compute, if those are at least two.
//! 3. Where the idle CPU holds as many threads as the other, one that is blocked goes the other way.
//!
//! Invariant: as of `juggle`; a thread goes only to a CPU that holds fewer, or in exchange.
//!
//! What the equations idealise: they balance at the very moment when a thread blocks. This polls.
//! An ended thread is seen at the next balancing point, up to one period late; a blocked one when it
//! has been blocked for half a period at a point, up to one and a half periods late. For so long its
//! CPU stands idle, at each of the k balancing points of Eq. 19.

use evenly_model::{CpuIndex, Plan, Reason, Snapshot, ThreadIndex, ThreadView};
use evenly_policy::{Acts, Mechanism, Needs, Policy, PolicyInfo, Spreader};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// `reactive`: fills CPUs whose threads have ended or block.
pub const REACTIVE: PolicyInfo = PolicyInfo {
    name: "reactive",
    about: "fill CPUs whose threads end or block, up to 1.5 periods late; else stay",
    needs: Needs::Progress,
    acts: Acts::WhenOneBlocks(Mechanism::Pin),
    make: || Box::new(Reactive::default()),
    arms: &[],
};

/// The policy. It keeps its work space from point to point.
#[derive(Debug, Clone, Default)]
pub struct Reactive {
    spreader: Spreader,
    /// Threads that compute, by CPU; the one furthest behind is last.
    computing: Vec<Vec<ThreadIndex>>,
    /// Threads that are blocked and may be moved, by CPU.
    blocked: Vec<Vec<ThreadIndex>>,
    counts: Vec<usize>,
    crowded: BinaryHeap<(usize, Reverse<CpuIndex>)>,
    passed: Vec<(usize, Reverse<CpuIndex>)>,
}

/// Whether it was blocked for most of the last period.
fn has_blocked(t: &ThreadView) -> bool {
    t.blocked > t.demand()
}

impl Reactive {
    fn classify(&mut self, snapshot: &Snapshot) {
        let m = snapshot.cpus.len();
        for list in self.computing.iter_mut().chain(&mut self.blocked) {
            list.clear();
        }
        self.computing.resize_with(m, Vec::new);
        self.blocked.resize_with(m, Vec::new);
        self.counts.clear();
        self.counts.resize(m, 0);
        for (i, t) in snapshot.threads.iter().enumerate() {
            let Some(count) = self.counts.get_mut(t.cpu) else { continue };
            *count += 1;
            if !has_blocked(t) {
                self.computing[t.cpu].push(i);
            } else if t.movable {
                self.blocked[t.cpu].push(i);
            }
        }
        for list in &mut self.computing {
            list.sort_unstable_by_key(|&t| (Reverse(snapshot.threads[t].progress), t));
        }
        self.crowded.clear();
        let crowded = self.computing.iter().enumerate().filter(|(_, list)| list.len() >= 2);
        self.crowded.extend(crowded.map(|(c, list)| (list.len(), Reverse(c))));
    }

    /// One thread of `from` takes the place of those that have blocked on `idle`, if it may.
    fn take(
        &mut self,
        snapshot: &Snapshot,
        from: CpuIndex,
        idle: CpuIndex,
        plan: &mut Plan,
    ) -> bool {
        let fits = |&t: &ThreadIndex| snapshot.threads[t].movable && snapshot.allows(t, idle);
        let Some(comes) = self.computing[from].iter().rposition(fits) else { return false };
        if self.counts[from] > self.counts[idle] {
            self.counts[from] -= 1;
            self.counts[idle] += 1;
        } else {
            let leaves = self.blocked[idle].iter().position(|&t| snapshot.allows(t, from));
            let Some(leaves) = leaves else { return false };
            plan.push(self.blocked[idle].swap_remove(leaves), from, Reason::Ahead);
        }
        plan.push(self.computing[from].remove(comes), idle, Reason::Behind);
        true
    }
}

impl Policy for Reactive {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        // Where threads have ended, this fills the CPUs that they left.
        if self.spreader.spread(snapshot, plan) {
            return;
        }
        self.classify(snapshot);
        for idle in 0..self.computing.len() {
            if !self.computing[idle].is_empty() {
                continue;
            }
            self.passed.clear();
            while let Some((computing, Reverse(from))) = self.crowded.pop() {
                if self.take(snapshot, from, idle, plan) {
                    if computing > 2 {
                        self.crowded.push((computing - 1, Reverse(from)));
                    }
                    break;
                }
                self.passed.push((computing, Reverse(from)));
            }
            self.crowded.extend(self.passed.drain(..));
        }
    }
}
