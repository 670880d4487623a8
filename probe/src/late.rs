//! Who is not there yet where others wait for all: the ranks that are not in the collective call, the threads
//! that are not at the barrier.
//!
//! Invariant: a rank is named only where that is known. Where two programs have ranks of the same number
//! nothing is said of ranks, and a thread that was at no barrier yet may be none that goes to them.

use crate::waiting::{Activity, Observed, Peer};
use evenly_model::{Pid, Tid};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Those that others wait for, at one moment.
#[derive(Debug, Default)]
pub struct Late {
    ranks: Vec<u32>,
    threads: HashMap<Pid, Vec<Tid>>,
}

impl Late {
    /// Of all that was seen in one look.
    #[must_use]
    pub fn of(seen: &[Observed]) -> Self {
        let mut late = Self::default();
        let mut processes: BTreeMap<u32, Pid> = BTreeMap::new();
        let mut there: BTreeSet<u32> = BTreeSet::new();
        let mut several = false;
        for o in seen {
            if let Some(rank) = o.rank {
                several |= *processes.entry(rank).or_insert(o.pid) != o.pid;
                if o.activity == Activity::Collective {
                    there.insert(rank);
                }
            }
            if o.activity == Activity::Computing && o.phases > 0 {
                late.threads.entry(o.pid).or_default().push(o.tid);
            }
        }
        if !several {
            late.ranks = processes.into_keys().filter(|rank| !there.contains(rank)).collect();
        }
        late
    }

    /// The ranks that this one waits for, where it waits for all.
    #[must_use]
    pub fn ranks(&self, o: &Observed) -> &[u32] {
        if o.peer == Some(Peer::All) { &self.ranks } else { &[] }
    }

    /// The threads of its process that this one waits for, where it waits at a barrier or at the end of a region.
    #[must_use]
    pub fn threads(&self, o: &Observed) -> &[Tid] {
        let waits = matches!(o.activity, Activity::Barrier | Activity::RegionEnd);
        let late = waits.then(|| self.threads.get(&o.pid)).flatten();
        late.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Nanos;

    fn thread(pid: i32, tid: i32, activity: Activity) -> Observed {
        Observed {
            tid: Tid(tid),
            pid: Pid(pid),
            registered: Nanos(1),
            activity,
            since: Nanos(1),
            waited: Nanos(0),
            outside: Nanos(0),
            phases: 1,
            waits: 1,
            object: 0,
            peer: None,
            rank: None,
        }
    }

    fn rank(rank: u32, activity: Activity) -> Observed {
        let pid = 100 + rank.cast_signed();
        let peer = (activity == Activity::Collective).then_some(Peer::All);
        Observed { rank: Some(rank), peer, ..thread(pid, pid, activity) }
    }

    #[test]
    fn ranks_that_are_not_in_the_call() {
        use Activity::{Collective, Computing, Lock, Mpi};
        let mut seen =
            vec![rank(0, Collective), rank(1, Computing), rank(2, Mpi), rank(3, Collective)];
        // A thread of MPI's own, and one that is no rank's.
        seen.push(Observed { tid: Tid(900), ..rank(3, Lock) });
        seen.push(thread(7, 7, Computing));
        let late = Late::of(&seen);
        assert_eq!(late.ranks(&seen[0]), [1, 2]);
        assert_eq!(late.ranks(&seen[3]), [1, 2]);
        for o in [&seen[1], &seen[2], &seen[4], &seen[5]] {
            assert!(late.ranks(o).is_empty() && late.threads(o).is_empty(), "{o:?}");
        }
        // In a call of which it is not known whether all take part in it.
        let part = Observed { peer: None, ..seen[0] };
        assert!(late.ranks(&part).is_empty());
        // Two programs.
        seen.push(Observed { pid: Pid(55), ..rank(3, Computing) });
        assert!(Late::of(&seen).ranks(&seen[0]).is_empty());
    }

    #[test]
    fn threads_that_are_not_at_the_barrier() {
        use Activity::{Barrier, Computing, Lock, Outside, RegionEnd};
        let helper = Observed { phases: 0, ..thread(1, 15, Computing) };
        let seen = [
            thread(1, 11, Barrier),
            thread(1, 12, RegionEnd),
            thread(1, 13, Computing),
            thread(1, 14, Outside),
            helper,
            thread(2, 21, Computing),
            thread(1, 16, Lock),
        ];
        let late = Late::of(&seen);
        let of: Vec<&[Tid]> = seen.iter().map(|o| late.threads(o)).collect();
        let only = [Tid(13)];
        assert_eq!(of, [&only[..], &only, &[], &[], &[], &[], &[]]);
    }
}
