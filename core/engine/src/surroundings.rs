//! What is around the threads: the CPUs that can be used now, and other balancers on them.

use crate::notes::Notes;
use crate::{Event, Observer, Sensors};
use evenly_model::{CpuId, CpuSet, CpuView, DomainId, Nanos, Pid, Snapshot};

/// How often usable CPUs are asked for.
const LOOK_AT_CPUS: Nanos = Nanos::from_millis(200);
/// How often other balancers are looked for.
const LOOK_AT_NEIGHBOURS: Nanos = Nanos::from_millis(1_000);

/// What was seen when it was looked last.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    usable: CpuSet,
    looked_at_cpus: Option<Nanos>,
    looked_at_neighbours: Option<Nanos>,
    neighbours_known: Vec<Pid>,
    /// Whether one of them was there at the last look.
    has_neighbours: bool,
    /// How many threads balancers that were there first place on each CPU; nothing where there is none.
    taken: Vec<u32>,
}

impl Surroundings {
    /// The CPUs that could be used when they were asked for last.
    pub(crate) fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// The next point asks for CPUs, whenever that was done last.
    pub(crate) fn ask_for_cpus(&mut self) {
        self.looked_at_cpus = None;
    }

    /// Asks which CPUs can be used, if it is time. `at` is the time since balancing began. Returns whether
    /// they are other ones than before; the snapshot has them then.
    pub(crate) fn look_at_cpus(
        &mut self,
        machine: &mut dyn Sensors,
        (domain, cpus): (DomainId, &CpuSet),
        (now, at): (Nanos, Nanos),
        snapshot: &mut Snapshot,
        observers: &mut [Box<dyn Observer>],
    ) -> bool {
        if self.looked_at_cpus.is_some_and(|t| now - t < LOOK_AT_CPUS) {
            return false;
        }
        self.looked_at_cpus = Some(now);
        let usable = machine.usable(cpus);
        if usable == self.usable {
            return false;
        }
        self.usable = usable;
        snapshot.cpus.clear();
        snapshot.cpus.extend(self.usable.iter().map(|id| CpuView {
            id,
            capacity: machine.capacity(id),
            threads: 0,
            speed: None,
        }));
        for o in observers {
            o.event(&Event::Domain { at, domain, cpus: self.usable.clone() });
        }
        true
    }

    /// Looks for others that balance on the same CPUs, if it is time: that they are there is said once, and
    /// threads are placed where those have fewer that were there first. Returns whether the snapshot has
    /// others of these than before.
    pub(crate) fn look_at_neighbours(
        &mut self,
        machine: &mut dyn Sensors,
        now: Nanos,
        snapshot: &mut Snapshot,
        notes: &mut Notes,
        observers: &mut [Box<dyn Observer>],
    ) -> bool {
        if self.looked_at_neighbours.is_some_and(|t| now - t < LOOK_AT_NEIGHBOURS) {
            return false;
        }
        self.looked_at_neighbours = Some(now);
        let neighbours = machine.neighbours();
        self.has_neighbours = false;
        for n in &neighbours {
            let here = n.threads.iter().any(|(c, _)| self.usable.contains(*c));
            self.has_neighbours |= here;
            if here && !self.neighbours_known.contains(&n.pid) {
                self.neighbours_known.push(n.pid);
                let text = format!("another evenly (process {}) balances on the same CPUs", n.pid);
                notes.note(now, text, observers);
            }
        }
        let on = |cpu: CpuId| -> u32 {
            let first = neighbours.iter().filter(|n| n.was_first);
            let there = first.flat_map(|n| &n.threads).filter(|(c, _)| *c == cpu);
            there.map(|(_, k)| u32::from(*k)).sum()
        };
        let mut taken: Vec<u32> = snapshot.cpus.iter().map(|c| on(c.id)).collect();
        if taken.iter().all(|&k| k == 0) {
            taken.clear();
        }
        if taken == self.taken {
            return false;
        }
        snapshot.taken.clone_from(&taken);
        self.taken = taken;
        true
    }

    /// Whether others balance on the same CPUs.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.has_neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, balancer, cpus, join};
    use crate::{Balancer, Neighbour};

    const PERIOD: Nanos = Nanos::from_millis(10);

    /// Three threads that may use both CPUs, and may be told at any moment that one of these is gone.
    fn three(machine: &mut Scripted) -> Balancer {
        let mut b = balancer("juggle");
        (0..3).for_each(|tid| join(&mut b, machine, tid, "0-1"));
        b
    }

    /// A point, a period later; what was asked of the machine at it.
    fn point(b: &mut Balancer, machine: &mut Scripted) -> Vec<String> {
        machine.now += PERIOD;
        machine.calls.clear();
        b.point(machine, PERIOD, &mut []);
        machine.calls.clone()
    }

    fn on(calls: &[String], cpu: &str) -> usize {
        calls.iter().filter(|c| c.ends_with(&format!(" on {cpu}"))).count()
    }

    /// The cpuset shrinks between the look at it and the masks that are set by it.
    #[test]
    fn a_cpu_that_goes_while_threads_are_placed_leaves_none_alone() {
        let mut machine = Scripted { then: Some(cpus("0")), ..Scripted::default() };
        let mut b = three(&mut machine);
        let calls = point(&mut b, &mut machine);
        assert_eq!(b.surroundings.usable(), &cpus("0-1"));
        assert!(on(&calls, "1") > 0, "{calls:?}");
        // At the next point it is looked at again, soon as that is, and all are pinned to what is left.
        let calls = point(&mut b, &mut machine);
        assert_eq!(b.surroundings.usable(), &cpus("0"));
        assert_eq!((on(&calls, "0"), on(&calls, "1")), (3, 0), "{calls:?}");
        assert!(b.membership.threads.iter().all(|t| t.place.movable));
        assert!(b.notes.kept().is_empty(), "{:?}", b.notes.kept());
    }

    #[test]
    fn a_cpu_that_comes_back_is_used_again() {
        let mut machine = Scripted { then: Some(cpus("0")), ..Scripted::default() };
        let mut b = three(&mut machine);
        (0..2).for_each(|_| drop(point(&mut b, &mut machine)));
        machine.cpuset = None;
        machine.now += LOOK_AT_CPUS;
        let calls = point(&mut b, &mut machine);
        assert_eq!(b.surroundings.usable(), &cpus("0-1"));
        let counts = (on(&calls, "0"), on(&calls, "1"));
        assert!(counts == (1, 2) || counts == (2, 1), "{calls:?}");
    }

    /// Balancing ends right after a point at which the cpuset was as wide as it is known to be, or had shrunk
    /// meanwhile.
    fn all_masks_are_given_back(then: Option<CpuSet>) {
        let mut machine = Scripted { then, ..Scripted::default() };
        let mut b = three(&mut machine);
        point(&mut b, &mut machine);
        machine.cpuset = Some(cpus("0"));
        machine.calls.clear();
        b.finish(&mut machine);
        assert_eq!(machine.calls, ["0 restored", "1 restored", "2 restored"]);
        assert!(b.notes.kept().is_empty(), "{:?}", b.notes.kept());
    }

    #[test]
    fn a_cpu_that_goes_when_balancing_ends_keeps_no_mask_from_being_given_back() {
        all_masks_are_given_back(None);
    }

    #[test]
    fn a_cpu_that_went_at_the_last_point_keeps_no_mask_from_being_given_back() {
        all_masks_are_given_back(Some(cpus("0")));
    }

    /// Threads that may use both CPUs and block now and then, under `hybrid`, beside one of others that has half of CPU 0, for
    /// four seconds; another balancer is there as well until so many points have been. What was asked for.
    fn beside_one(threads: usize, neighbour_leaves_after: usize) -> Vec<String> {
        let busy = vec![Nanos::ZERO; 2];
        let runs = 0.9 / threads as f64;
        let mut machine = Scripted { busy, spends: [runs, 0.3], ..Scripted::default() };
        let mut b = balancer("hybrid");
        (0..threads).for_each(|tid| join(&mut b, &mut machine, tid, "0-1"));
        let on_cpu = vec![(CpuId(0), 1)];
        machine.neighbours = vec![Neighbour { pid: Pid(9), threads: on_cpu, was_first: false }];
        for point in 0..400 {
            if point == neighbour_leaves_after {
                machine.neighbours.clear();
            }
            machine.busy[0] += PERIOD;
            machine.busy[1] += PERIOD.scale(0.4);
            machine.now += PERIOD;
            b.point(&mut machine, PERIOD, &mut []);
        }
        machine.calls
    }

    /// Would catch: two threads that share a CPU with one of others, while a third has the other CPU for itself.
    #[test]
    fn threads_that_divide_evenly_with_those_of_others_are_held_apart_from_them() {
        let last = |calls: &[String], tid: usize| {
            calls.iter().rfind(|c| c.starts_with(&format!("{tid} "))).cloned().unwrap_or_default()
        };
        let calls = beside_one(3, 0);
        let at: Vec<String> = (0..3).map(|tid| last(&calls, tid)[2..].to_owned()).collect();
        let on = |cpu: &str| at.iter().filter(|at| *at == cpu).count();
        assert_eq!((on("on 0"), on("on 1")), (1, 2), "{calls:?}");
        // Those of another balancer make way themselves. It is gone after a while.
        let is_held =
            |calls: &[String]| (0..3).all(|tid| ["on 0", "on 1"].contains(&&last(calls, tid)[2..]));
        let (stays, leaves) = (beside_one(3, 400), beside_one(3, 150));
        assert!(!is_held(&stays) && is_held(&leaves), "{stays:?} {leaves:?}");
        // With four they do not, and are left to the kernel.
        let calls = beside_one(4, 0);
        assert!((0..4).all(|tid| last(&calls, tid).ends_with("0-1")), "{calls:?}");
    }
}
