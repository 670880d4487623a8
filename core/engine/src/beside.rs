//! Threads beside those of others: where these compute, and whether they and the program's divide evenly among the CPUs
//! ([`crate::others`]).

use crate::Sensors;
use crate::actuate::Action;
use crate::balancer::Balancer;
use evenly_model::{CpuSet, Nanos};
use evenly_policy::Mechanism;

impl Balancer {
    /// Looks where programs without evenly compute, and whether threads are to be held because of them.
    pub(crate) fn look_for_others(&mut self, machine: &mut dyn Sensors, now: Nanos) {
        let (n, cpus) = (self.membership.threads.len(), &self.snapshot.cpus);
        let m = cpus.len();
        let applies = self.mechanism() == Mechanism::Nudge
            && (2..=n).contains(&m)
            && !self.surroundings.has_neighbours();
        if applies {
            let pinned = self.placement.pinning && !self.pauses.paused();
            let threads = (&self.membership.threads[..], pinned);
            self.others.look(machine, cpus, threads, now);
        }
        let on = self.others.on();
        let may_hold = applies && self.others.may_share_cpus();
        let beside = may_hold && !on.is_empty() && (n + on.len()).is_multiple_of(m);
        let before = std::mem::replace(&mut self.beside, beside);
        if before != beside {
            self.pauses.guard.begins_anew(now);
        }
        if before || beside {
            let others = beside.then_some(on);
            let changed = self.surroundings.make_way(others, &mut self.snapshot);
            self.placement.placed &= !(changed && beside);
        }
    }

    /// Where threads give their CPUs up to others, and want them back, more often than the clock of the scheduler ticks, it
    /// is to look more often.
    pub(crate) fn beat(&mut self, paused: bool) {
        let p = &self.placement;
        let is_needed = self.beside && p.pinning && p.gives_up_often() && !paused;
        let on = if is_needed { self.others.on() } else { &[] };
        let beats: CpuSet = on.iter().copied().collect();
        if beats != self.beats {
            self.actions.push(Action::Beat { cpus: beats.clone() });
            self.beats = beats;
        }
    }
}
