//! What others are held against: threads that stay where they were put, and threads that are only
//! watched.
//!
//! Invariant: no thread is moved for the sake of its progress.

use evenly_model::{Plan, Snapshot};
use evenly_policy::{Acts, Needs, Policy, PolicyInfo, Spreader};

/// `static`: the policy that others are compared with.
pub const STATIC: PolicyInfo = PolicyInfo {
    name: "static",
    about: "pin the threads evenly once",
    needs: Needs::Progress,
    acts: Acts::Once,
    make: || Box::new(Static::default()),
    arms: &[],
};

/// `observe`: the policy that only watches.
pub const OBSERVE: PolicyInfo = PolicyInfo {
    name: "observe",
    about: "watch, change nothing",
    needs: Needs::Progress,
    acts: Acts::Never,
    make: || Box::new(Observe),
    arms: &[],
};

/// The policy `observe`: its plans are empty.
#[derive(Debug, Clone, Copy, Default)]
struct Observe;

impl Policy for Observe {
    fn decide(&mut self, _: &Snapshot, _: &mut Plan) {}
}

/// Spreads the threads evenly when balancing begins, and again only where threads or CPUs were
/// added or a CPU vanished. A thread that ends leaves its place empty: filling it would be
/// balancing, and this is what balancing is compared with (Eq. 1).
#[derive(Debug, Clone, Default)]
struct Static(Spreader);

impl Policy for Static {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        let lost = |t: &evenly_model::ThreadView| t.cpu >= snapshot.cpus.len();
        if snapshot.point == 0 || snapshot.threads.iter().any(lost) {
            self.0.spread(snapshot, plan);
        }
    }
}
