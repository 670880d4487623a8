//! What balancing did and cost, in sums over all points.

use crate::managed::ManagedThread;
use crate::{CostBreakdown, MoveRecord};
use evenly_model::{Effort, Nanos, Snapshot};

/// The sums over all points.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) points: u64,
    pub(crate) migrations: u64,
    pub(crate) failed: u64,
    pub(crate) cost: CostBreakdown,
    pub(crate) cpu_time: Nanos,
    /// CPU time of the period that the last point ended.
    pub(crate) period_cost: Nanos,
    /// What the agents had cost up to the last point.
    paid: Nanos,
    /// What the policy's searches have cost.
    pub(crate) effort: Effort,
    balanced_for: Nanos,
    slowest_slot: f64,
    /// CPU time in which CPUs had no thread to run while threads waited for others.
    pub(crate) idle: Nanos,
    /// Time in which balancing rested, as it gained nothing.
    pub(crate) rested: Nanos,
}

impl Ledger {
    /// Moves that were carried out or tried.
    pub(crate) fn moved(&mut self, moves: &[MoveRecord]) {
        let failed = moves.iter().filter(|m| m.error.is_some()).count() as u64;
        self.failed += failed;
        self.migrations += moves.len() as u64 - failed;
    }

    /// Adds to the estimates of what a thread in the slowest slot would have received, and of how long
    /// CPUs were idle although threads waited.
    pub(crate) fn estimate(&mut self, s: &Snapshot, threads: &[ManagedThread]) {
        if self.points == 0 {
            return;
        }
        let ran: u64 = s.threads.iter().map(|t| t.ran.0).sum();
        let waited: u64 = s.threads.iter().map(|t| t.waited.0).sum();
        let all = s.elapsed.0.saturating_mul(s.cpus.len() as u64);
        self.idle += Nanos(all.saturating_sub(ran).min(waited));
        let slowest = s.cpus.iter().filter_map(|c| c.speed).fold(f64::INFINITY, f64::min);
        if slowest.is_finite() {
            let blocked =
                threads.iter().map(|t| t.account.period.blocked + t.account.period.spinning);
            let least_blocked = blocked.min().unwrap_or_default();
            self.slowest_slot += slowest * (s.elapsed - least_blocked).0 as f64;
            self.balanced_for += s.elapsed;
        }
    }

    /// The part of a CPU that a thread in the slowest slot would have received.
    pub(crate) fn slowest_slot(&self) -> f64 {
        self.slowest_slot / (self.balanced_for.0 as f64).max(1.0)
    }

    /// A point is over: what it cost, and what all agents have cost so far. A period costs what both did
    /// since the last point, over so many `periods`.
    pub(crate) fn took(&mut self, cost: Nanos, agents: Nanos, periods: f64) {
        self.points += 1;
        self.cpu_time += cost;
        let others = agents - std::mem::replace(&mut self.paid, agents);
        self.period_cost = (cost + others).scale(1.0 / periods);
    }
}
