//! How a plan is carried out so that no CPU is left unused on the way (promise P2).
//!
//! Pinned threads are moved one at a time. Where two of them swap CPUs, and each has its CPU to itself,
//! the CPU that the first one leaves would belong to none of the program's threads until the second is
//! there. So before a thread leaves a CPU that it alone holds,
//!
//! - the one that is to take its place goes first, if others stay where that one comes from;
//! - else that one is *freed*: it may run on all of its CPUs for the moment, so it holds the CPU that it
//!   is to go to as well. It stays where it is until it is moved. In a ring of threads that each have a
//!   CPU to themselves that is needed for one of them.
//!
//! It is freed to its whole mask, and not to the two CPUs in question: masks that a thread has from us can
//! be inherited, and all that were ever set are remembered for that; of pairs there are as many as
//! swaps.
//!
//! Invariant: a CPU that is held before and after a plan is held after each step of it, where no step
//! fails; and where one fails the CPU that it was to fill is not left.

use evenly_model::{CpuIndex, Plan, Snapshot};

/// What is to be done next: with the thread of the plan's move of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// The thread of the move with this index goes where it is to go.
    Move(usize),
    /// It may run on all of its CPUs, and is moved later.
    Free(usize),
    /// It is pinned where it is: the thread that was to take its place could not be moved.
    Stay(usize),
}

impl Act {
    /// The number of the move.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Move(i) | Self::Free(i) | Self::Stay(i) => i,
        }
    }
}

/// A move, and how far it is.
#[derive(Debug, Clone, Copy)]
struct Half {
    /// A number that no CPU has where the thread is on none of them.
    from: CpuIndex,
    to: CpuIndex,
    freed: bool,
    done: bool,
}

/// Hands out what is to be done of a plan, in the order in which it is to be done. Kept from plan to plan
/// for its work space.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    moves: Vec<Half>,
    /// The first that may not be done.
    next: usize,
    /// How many threads hold each CPU. Nothing where threads are not pinned: they hold more CPUs than
    /// the one that they are on.
    holders: Vec<u32>,
    /// CPUs to which a thread was to come that could not be moved.
    missed: Vec<bool>,
}

impl Handover {
    /// Begins a plan for threads that are where the snapshot has them, pinned or not.
    pub(crate) fn begin(&mut self, snapshot: &Snapshot, plan: &Plan, pinned: bool) {
        self.next = 0;
        self.moves.clear();
        self.moves.extend(plan.moves.iter().map(|m| Half {
            from: snapshot.threads.get(m.thread).map_or(usize::MAX, |t| t.cpu),
            to: m.to,
            freed: false,
            done: false,
        }));
        self.holders.clear();
        self.missed.clear();
        if pinned {
            self.holders.resize(snapshot.cpus.len(), 0);
            self.missed.resize(snapshot.cpus.len(), false);
            for t in &snapshot.threads {
                self.hold(t.cpu, 1);
            }
        }
    }

    /// What is to be done next, and is taken to succeed until [`Handover::failed`] says otherwise. None
    /// where all is done. In the order of the plan, as far as that goes.
    pub(crate) fn next(&mut self) -> Option<Act> {
        while self.moves.get(self.next).is_some_and(|m| m.done) {
            self.next += 1;
        }
        let first = self.next;
        let from = self.moves.get(first)?.from;
        if self.may_leave(from) {
            return Some(self.go(first));
        }
        let comes = |m: &Half| !m.done && m.to == from;
        let Some(k) = (first + 1..self.moves.len()).find(|&k| comes(&self.moves[k])) else {
            if self.missed.get(from) != Some(&true) {
                // The plan wants it so.
                return Some(self.go(first));
            }
            let m = &mut self.moves[first];
            m.done = true;
            let Half { to, freed, .. } = *m;
            if freed {
                self.hold(to, -1);
            }
            return Some(Act::Stay(first));
        };
        if self.may_leave(self.moves[k].from) {
            return Some(self.go(k));
        }
        self.moves[k].freed = true;
        self.hold(from, 1);
        Some(Act::Free(k))
    }

    /// It could not be done. Where the thread has ended it holds nothing any more, else what it held
    /// before. Returns whether the thread was freed and is left so.
    pub(crate) fn failed(&mut self, act: Act, ended: bool) -> bool {
        let Some(m) = self.moves.get_mut(act.number()) else { return false };
        let Half { from, to, freed, .. } = *m;
        m.done = true;
        let is_free = match act {
            // It was counted as moved.
            Act::Move(_) if !ended => {
                self.hold(from, 1);
                freed
            }
            Act::Move(_) => false,
            Act::Free(_) => {
                self.hold(from, if ended { -1 } else { 0 });
                false
            }
            Act::Stay(_) => {
                self.hold(from, if ended { -1 } else { 0 });
                return freed && !ended;
            }
        };
        if !is_free {
            self.hold(to, -1);
        }
        if let Some(missed) = self.missed.get_mut(to) {
            *missed = true;
        }
        is_free
    }

    fn go(&mut self, i: usize) -> Act {
        let m = &mut self.moves[i];
        m.done = true;
        let Half { from, to, freed, .. } = *m;
        self.hold(from, -1);
        if !freed {
            self.hold(to, 1);
        }
        Act::Move(i)
    }

    /// Whether another thread holds the CPU, or it is none of ours.
    fn may_leave(&self, cpu: CpuIndex) -> bool {
        self.holders.get(cpu) != Some(&1)
    }

    fn hold(&mut self, cpu: CpuIndex, threads: i32) {
        if let Some(holders) = self.holders.get_mut(cpu) {
            *holders = holders.saturating_add_signed(threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{Nanos, Reason, ThreadView};

    /// Threads on these CPUs, of which each goes where `moves` says, in that order.
    fn begin(at: &[usize], moves: &[(usize, usize)], pinned: bool) -> Handover {
        let named = at.iter().chain(moves.iter().map(|(_, to)| to));
        let cpus = 1 + named.filter(|c| **c != usize::MAX).max().unwrap();
        let mut snapshot = Snapshot::default();
        snapshot.cpus.resize_with(cpus, || evenly_model::CpuView {
            id: evenly_model::CpuId(0),
            capacity: evenly_model::FULL_CAPACITY,
            threads: 0,
            speed: None,
        });
        snapshot.threads.extend(at.iter().map(|&cpu| ThreadView {
            id: evenly_model::ThreadId::default(),
            cpu,
            progress: 0,
            ran: evenly_model::Nanos::ZERO,
            waited: evenly_model::Nanos::ZERO,
            blocked: evenly_model::Nanos::ZERO,
            spinning: Nanos::ZERO,
            turns: None,
            movable: true,
            mask: 0,
        }));
        let mut plan = Plan::default();
        moves.iter().for_each(|&(thread, to)| plan.push(thread, to, Reason::Behind));
        let mut handover = Handover::default();
        handover.begin(&snapshot, &plan, pinned);
        handover
    }

    fn all(mut handover: Handover) -> Vec<Act> {
        std::iter::from_fn(|| handover.next()).collect()
    }

    use Act::{Free, Move, Stay};

    #[test]
    fn the_order_of_the_plan_is_kept_where_no_thread_is_alone() {
        // Two and one: the one of the two goes first, as Juggle has it.
        assert_eq!(all(begin(&[0, 0, 1], &[(0, 1), (2, 0)], true)), [Move(0), Move(1)]);
        // No thread is pinned.
        assert_eq!(all(begin(&[0, 1], &[(0, 1), (1, 0)], false)), [Move(0), Move(1)]);
        // From no CPU of the domain.
        assert_eq!(all(begin(&[usize::MAX, 0], &[(0, 1)], true)), [Move(0)]);
    }

    #[test]
    fn who_leaves_others_behind_goes_first() {
        assert_eq!(all(begin(&[0, 1, 1], &[(0, 1), (1, 0)], true)), [Move(1), Move(0)]);
    }

    #[test]
    fn of_two_that_are_alone_the_second_is_freed() {
        let swap = begin(&[0, 1], &[(0, 1), (1, 0)], true);
        assert_eq!(all(swap), [Free(1), Move(0), Move(1)]);
        // In a ring, one of them.
        let ring = begin(&[0, 1, 2], &[(0, 1), (1, 2), (2, 0)], true);
        assert_eq!(all(ring), [Free(2), Move(0), Move(1), Move(2)]);
        // Two swaps.
        let two = begin(&[0, 1, 2, 3], &[(0, 1), (1, 0), (2, 3), (3, 2)], true);
        assert_eq!(all(two), [Free(1), Move(0), Move(1), Free(3), Move(2), Move(3)]);
    }

    #[test]
    fn a_cpu_that_the_plan_empties_is_emptied() {
        assert_eq!(all(begin(&[0, 1], &[(0, 1)], true)), [Move(0)]);
    }

    #[test]
    fn who_cannot_be_followed_stays() {
        // The first cannot be moved: the other keeps its CPU.
        let mut h = begin(&[0, 1], &[(0, 1), (1, 0)], true);
        assert_eq!([h.next(), h.next()], [Some(Free(1)), Some(Move(0))]);
        assert!(!h.failed(Move(0), false));
        assert_eq!([h.next(), h.next()], [Some(Stay(1)), None]);
        assert_eq!(h.holders, [1, 1]);
        // The other cannot be freed.
        let mut h = begin(&[0, 1], &[(0, 1), (1, 0)], true);
        assert_eq!(h.next(), Some(Free(1)));
        assert!(!h.failed(Free(1), false));
        assert_eq!([h.next(), h.next()], [Some(Stay(0)), None]);
        // It is freed, and then cannot be moved: it holds both CPUs.
        let mut h = begin(&[0, 1], &[(0, 1), (1, 0)], true);
        assert_eq!([h.next(), h.next(), h.next()], [Some(Free(1)), Some(Move(0)), Some(Move(1))]);
        assert!(h.failed(Move(1), false));
        assert_eq!(h.holders, [1, 2]);
        // It has ended.
        let mut h = begin(&[0, 1], &[(0, 1), (1, 0)], true);
        assert_eq!(h.next(), Some(Free(1)));
        assert!(!h.failed(Free(1), true));
        assert_eq!(h.holders, [1, 0]);
        assert_eq!([h.next(), h.next()], [Some(Stay(0)), None]);
    }
}
