//! How the iterations of one region are handed out, instance after instance.
//!
//! ```text
//!   begin --> Plan --> (the runtime, or the simulator, carries it out) --> end --> new powers, owners
//! ```

use crate::auto::Auto;
use crate::bounds::Bounds;
use crate::chunks::Chunks;
use crate::division::{Owners, divide, redivide};
use crate::partitions::Partitions;
use crate::plan::{HandsOut, Outcome, Plan};
use crate::policy::Policy;
use crate::powers::Powers;
use crate::region::{Region, Section};
use crate::tasks::{Tasks, lead, smallest_task};

/// Where tasks need not be of whole units of coherence: where they would make a share larger by more than this part of it.
const ROUNDED: u64 = 128;

/// Hands out the iterations of a region.
#[derive(Debug)]
pub struct Scheduler {
    region: Region,
    processors: usize,
    unit_bytes: u64,
    policy: Policy,
    auto: Option<Auto>,
    powers: Powers,
    plan: Option<(Bounds, Plan)>,
    /// The version of the array's partition that it is by.
    version: u64,
    /// Its owners have changed since it was given out.
    due: bool,
    /// Powers have changed while iterations did not follow them.
    missed: bool,
    /// How often iterations were divided anew because powers had changed.
    divisions: u64,
}

impl Scheduler {
    /// For so many processors, which keep data in units of so many bytes.
    #[must_use]
    pub fn new(region: Region, policy: Policy, processors: usize, unit_bytes: u64) -> Self {
        let auto = (policy == Policy::Auto).then(Auto::default);
        let policy = auto.as_ref().map_or(policy, Auto::policy);
        let powers = Powers::new(processors);
        Self {
            region,
            processors,
            unit_bytes,
            policy,
            auto,
            powers,
            plan: None,
            version: 0,
            due: false,
            missed: false,
            divisions: 0,
        }
    }

    /// The plan for an instance with these bounds, whose first array that is written begins at this address; and whether it is
    /// another than that of the one before. Where the stride is 0 there is nothing to do.
    pub fn begin(
        &mut self,
        partitions: &mut Partitions,
        bounds: Bounds,
        address: u64,
    ) -> (&Plan, bool) {
        let section = self.region.main().map(|section| bounds.section(section));
        let followed = section.filter(|_| self.policy.has_powers());
        let version = followed.map_or(0, |section| partitions.version(section.array));
        let is_same = |(known, _): &(Bounds, Plan)| *known == bounds && version == self.version;
        let is_same = self.plan.as_ref().is_some_and(is_same);
        let changed = std::mem::take(&mut self.due) || !is_same;
        if !is_same {
            let (plan, is_found) = self.plan_for(partitions, bounds, section, address);
            // What was found stays as it is, so that loops with other bounds do not follow each other for ever.
            self.version = version;
            if !is_found {
                self.publish(partitions, bounds, &plan);
            }
            self.missed &= !self.policy.has_powers();
            self.plan = Some((bounds, plan));
        }
        let empty = || Plan {
            tasks: Tasks::of_size(0, 1, 0),
            hands_out: HandsOut::Owned { owners: Owners::new(), steals: false },
        };
        (&self.plan.get_or_insert_with(|| (bounds, empty())).1, changed)
    }

    /// The plan, and whether it is how the array is divided already.
    fn plan_for(
        &self,
        partitions: &Partitions,
        bounds: Bounds,
        section: Option<Section>,
        address: u64,
    ) -> (Plan, bool) {
        let iterations = bounds.count().unwrap_or(0);
        let share = iterations / self.processors.max(1) as u64;
        let mut smallest = smallest_task(&self.region, self.unit_bytes);
        if self.policy == Policy::Static && smallest.saturating_mul(ROUNDED) > share {
            smallest = 1;
        }
        let each = section.map_or(0, |s| s.bytes_per_iteration());
        let first = section.map_or(0, |s| s.bytes(&(0..1)).start);
        let first = u64::try_from(i128::from(address).saturating_add(first)).unwrap_or(0);
        // Backwards, tasks meet where an iteration's data end.
        let backwards = section.is_some_and(|s| s.coefficient < 0);
        let begin = if backwards {
            self.unit_bytes - first.wrapping_add(each) % self.unit_bytes.max(1)
        } else {
            first
        };
        let lead = lead(begin, each, smallest, self.unit_bytes);
        if let Some(sizes) = self.policy.sizes() {
            let size =
                iterations.div_ceil(u64::from(u32::MAX) / 2).max(1).div_ceil(smallest) * smallest;
            let tasks = Tasks::of_size(iterations, size, lead);
            let (units, processors) = (tasks.count() as u32, self.processors);
            return (
                Plan { tasks, hands_out: HandsOut::Next(Chunks { sizes, units, processors }) },
                false,
            );
        }
        let steals = self.policy.steals();
        if self.policy == Policy::Static {
            let size = iterations.div_ceil(self.processors.max(1) as u64).max(1);
            let tasks = Tasks::of_size(iterations, size.div_ceil(smallest) * smallest, lead);
            let owners = (0..tasks.count()).map(|task| task.min(self.processors - 1)).collect();
            return (Plan { tasks, hands_out: HandsOut::Owned { owners, steals } }, false);
        }
        let tasks = Tasks::new(iterations, smallest, lead, self.processors);
        let known = section.filter(|_| self.policy.has_powers());
        let in_turn = self.region.is_cyclic();
        let known = known.and_then(|s| partitions.find(&s, tasks, &(0..iterations), in_turn));
        let is_found = known.is_some() && !self.missed;
        let equal = vec![1.0; self.processors];
        let powers = if self.policy.has_powers() { self.powers.get() } else { &equal };
        let owners = match known {
            Some(owners) if self.missed => redivide(&self.region, &owners, powers),
            Some(owners) => owners,
            None => divide(&self.region, tasks.count(), powers),
        };
        (Plan { tasks, hands_out: HandsOut::Owned { owners, steals } }, is_found)
    }

    /// Says how the arrays of the region are divided from now on.
    fn publish(&mut self, partitions: &mut Partitions, bounds: Bounds, plan: &Plan) {
        let HandsOut::Owned { owners, .. } = &plan.hands_out else { return };
        let Some(main) = self.region.main().filter(|_| self.policy.has_powers()) else { return };
        let iterations = 0..bounds.count().unwrap_or(0);
        let array = main.array;
        partitions.set(&bounds.section(main), plan.tasks, &iterations, owners);
        self.version = partitions.version(array);
    }

    /// Learns from an instance that has ended.
    pub fn end(&mut self, partitions: &mut Partitions, outcome: Outcome<'_>) {
        let Some((bounds, mut plan)) = self.plan.take() else { return };
        let divided = self.powers.add(outcome.measured);
        self.missed |= divided;
        let before = self.policy;
        if let Some(auto) = &mut self.auto {
            auto.add(&outcome);
            self.policy = auto.policy();
        }
        // Where it is another policy, the next instance begins by a plan of its own.
        if self.policy != before {
            return;
        }
        if let HandsOut::Owned { owners, .. } = &mut plan.hands_out
            && self.policy.has_powers()
        {
            if let Some(carried_out) = outcome.carried_out {
                owners.copy_from_slice(carried_out);
            }
            if divided {
                *owners = redivide(&self.region, owners, self.powers.get());
                self.divisions += 1;
                self.missed = false;
            }
            if divided || outcome.carried_out.is_some() {
                self.publish(partitions, bounds, &plan);
                self.due = true;
            }
        }
        self.plan = Some((bounds, plan));
    }

    /// The power of each processor.
    #[must_use]
    pub fn powers(&self) -> &[f64] {
        self.powers.get()
    }

    /// What it is at present: what was asked for, or what `auto` has chosen.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How often iterations were divided anew because powers had changed.
    #[must_use]
    pub fn divisions(&self) -> u64 {
        self.divisions
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::powers::Measured;
    use crate::region::{Access, ArrayId, Load, Use};
    use evenly_model::Nanos;
    use proptest::prelude::*;

    const ROWS: Bounds = Bounds { lower: 0, upper: 64, stride: 1 };

    fn region(access: Access, array: u32) -> Region {
        let (used, array) = (Use::Writes, ArrayId(array));
        let section = Section { array, used, element_bytes: 8, coefficient: 512, constant: 0 };
        Region { load: Load::Fixed, access, sections: vec![section] }
    }

    fn owned(plan: &Plan, processors: usize) -> Vec<u64> {
        let HandsOut::Owned { owners, .. } = &plan.hands_out else { panic!("{plan:?}") };
        let mut all = vec![0; processors];
        for (task, &p) in owners.iter().enumerate() {
            let bounds = plan.tasks.bounds(task);
            all[p] += bounds.end - bounds.start;
        }
        all
    }

    /// An instance on processors of these speeds, without stealing.
    fn runs(scheduler: &mut Scheduler, partitions: &mut Partitions, speeds: &[f64]) -> Vec<u64> {
        let done = owned(scheduler.begin(partitions, ROWS, 0).0, speeds.len());
        let time = |(n, speed): (&u64, &f64)| Nanos((*n as f64 * 1e6 / speed) as u64);
        let measured = done.iter().zip(speeds);
        let measured: Vec<Measured> =
            measured.map(|pair| Measured { time: time(pair), iterations: *pair.0 }).collect();
        let makespan = measured.iter().map(|m| m.time).max().unwrap();
        scheduler.end(partitions, Outcome { measured: &measured, makespan, carried_out: None });
        done
    }

    #[test]
    fn shares_follow_powers_and_what_uses_the_same_array_is_divided_in_the_same_way() {
        let mut partitions = Partitions::default();
        let scheduler = |policy| Scheduler::new(region(Access::Stencil, 0), policy, 2, 64);
        let mut first = scheduler(Policy::Rp);
        assert_eq!(runs(&mut first, &mut partitions, &[1.0, 0.5]), [32, 32]);
        (0..8).for_each(|_| _ = runs(&mut first, &mut partitions, &[1.0, 0.5]));
        let shares = runs(&mut first, &mut partitions, &[1.0, 0.5]);
        assert!(shares[0].abs_diff(43) <= 1, "{shares:?}");
        assert_eq!(first.divisions(), 1);
        // It has measured nothing yet, and finds the data where they are.
        let mut second = scheduler(Policy::Rp);
        assert_eq!(owned(second.begin(&mut partitions, ROWS, 0).0, 2), shares);
        assert!(!second.begin(&mut partitions, ROWS, 0).1);
        // What is not divided by powers neither follows nor says so.
        assert_eq!(owned(scheduler(Policy::Static).begin(&mut partitions, ROWS, 0).0, 2), [32, 32]);
        assert!(!second.begin(&mut partitions, ROWS, 0).1);
        // When one divides anew the other follows.
        (0..8).for_each(|_| _ = runs(&mut first, &mut partitions, &[1.0, 1.0]));
        let (plan, changed) = second.begin(&mut partitions, ROWS, 0);
        assert!(changed && owned(plan, 2)[0].abs_diff(32) <= 1, "{plan:?}");
    }

    /// Would catch: tasks that go back to their first owner, and are stolen again in each instance; a region without arrays for
    /// which new owners are never told.
    #[test]
    fn stolen_tasks_stay_with_the_thief() {
        for region in [
            region(Access::Independent, 0),
            Region { access: Access::Independent, ..Region::default() },
        ] {
            let mut partitions = Partitions::default();
            for (policy, stays) in [(Policy::RpSteal, true), (Policy::StaticSteal, false)] {
                let mut scheduler = Scheduler::new(region.clone(), policy, 2, 64);
                let (plan, _) = scheduler.begin(&mut partitions, ROWS, 0);
                let HandsOut::Owned { owners, steals: true } = &plan.hands_out else {
                    panic!("{plan:?}")
                };
                let mut carried_out = owners.clone();
                *carried_out.last_mut().unwrap() = 0;
                let measured = [Measured { time: Nanos(1_000), iterations: 32 }; 2];
                let carried_out = Some(&carried_out[..]);
                scheduler.end(
                    &mut partitions,
                    Outcome { measured: &measured, makespan: Nanos(1_000), carried_out },
                );
                let (plan, changed) = scheduler.begin(&mut partitions, ROWS, 0);
                let shares = if stays { [34, 30] } else { [32, 32] };
                assert_eq!((owned(plan, 2), changed), (shares.to_vec(), stays), "{policy}");
                assert!(!scheduler.begin(&mut partitions, ROWS, 0).1);
            }
        }
    }

    /// Would catch: shares that drift as two loops over one array follow each other; a loop whose bounds alternate.
    #[test]
    fn loops_over_one_array_do_not_follow_each_other_for_ever() {
        let mut partitions = Partitions::default();
        let [mut even, mut odd] =
            [0, 1].map(|_| Scheduler::new(region(Access::Stencil, 0), Policy::Rp, 4, 64));
        let rows = |lower| Bounds { lower, upper: 1_009, stride: 1 };
        let shares = owned(even.begin(&mut partitions, rows(0), 0).0, 4);
        for _ in 0..50 {
            odd.begin(&mut partitions, rows(1), 0);
            assert_eq!(owned(even.begin(&mut partitions, rows(0), 0).0, 4), shares);
        }
        assert_eq!(partitions.version(ArrayId(0)), 1);
        assert!(
            !even.begin(&mut partitions, rows(0), 0).1 && !odd.begin(&mut partitions, rows(1), 0).1
        );
    }

    /// Would catch: `auto` that judges `rp` by how iterations were divided when another CPU was loaded.
    #[test]
    fn powers_that_changed_meanwhile_count() {
        let mut partitions = Partitions::default();
        let mut first = Scheduler::new(region(Access::Stencil, 0), Policy::Rp, 2, 64);
        (0..8).for_each(|_| _ = runs(&mut first, &mut partitions, &[1.0, 0.5]));
        // Another loop sees that it is the other one now, while it does not follow.
        let mut other = Scheduler::new(region(Access::Stencil, 0), Policy::Static, 2, 64);
        (0..8).for_each(|_| _ = runs(&mut other, &mut partitions, &[0.5, 1.0]));
        other.policy = Policy::Rp;
        other.plan = None;
        let shares = runs(&mut other, &mut partitions, &[0.5, 1.0]);
        assert!(shares[1] > 40, "{shares:?}");
    }

    /// Would catch: tasks of a loop that goes backwards which begin within a cache line.
    #[test]
    fn tasks_meet_where_units_do() {
        for (coefficient, address) in [(1, 24), (-1, 24), (-1, 56), (1, 0), (-1, 0)] {
            let used = Use::Writes;
            let section =
                Section { array: ArrayId(0), used, element_bytes: 8, coefficient, constant: 5_000 };
            let region = Region { sections: vec![section], ..Region::default() };
            let bounds = Bounds { lower: 3, upper: 4_000, stride: 1 };
            let mut scheduler = Scheduler::new(region, Policy::Rp, 2, 64);
            let tasks = scheduler.begin(&mut Partitions::default(), bounds, address).0.tasks;
            let section = bounds.section(&section);
            for task in 1..tasks.count() {
                let own = section.bytes(&tasks.bounds(task));
                let meets = if coefficient < 0 { own.end } else { own.start };
                assert_eq!((i128::from(address) + meets) % 64, 0, "{coefficient}, {address}");
            }
        }
    }

    proptest! {
        /// Each iteration is in one task, and each task has one owner, whatever becomes of the instances.
        #[test]
        fn all_iterations_are_handed_out(
            policy in prop::sample::select(Policy::ALL.to_vec()),
            processors in 1..10_usize,
            access in prop::sample::select(vec![Access::Independent, Access::Stencil, Access::Unknown]),
            variable: bool,
            instances in prop::collection::vec((-50..50_i64, -10..300_i64, -4..5_i64, 0..60_000_000_u64), 1..30),
        ) {
            let load = if variable { Load::Variable } else { Load::Fixed };
            let mut scheduler = Scheduler::new(Region { load, ..region(access, 0) }, policy, processors, 64);
            let mut partitions = Partitions::default();
            for (lower, length, stride, time) in instances {
                let bounds = Bounds { lower, upper: lower + length, stride };
                let (plan, _) = scheduler.begin(&mut partitions, bounds, 4_096);
                let tasks = plan.tasks;
                prop_assert_eq!(tasks.iterations(), bounds.count().unwrap_or(0));
                let mut next = 0;
                for task in 0..tasks.count() {
                    prop_assert_eq!(tasks.bounds(task).start, next);
                    next = tasks.bounds(task).end;
                }
                prop_assert_eq!(next, tasks.iterations());
                match &plan.hands_out {
                    HandsOut::Owned { owners, .. } => {
                        prop_assert_eq!(owners.len(), tasks.count());
                        prop_assert!(owners.iter().all(|&p| p < processors));
                    }
                    HandsOut::Next(chunks) => prop_assert_eq!(chunks.units as usize, tasks.count()),
                }
                let of = |p: usize| Measured { time: Nanos(time / (p as u64 + 1)), iterations: p as u64 * 3 };
                let measured: Vec<Measured> = (0..processors).map(of).collect();
                let stolen = vec![processors - 1; tasks.count()];
                let carried_out = Some(&stolen[..]).filter(|_| policy == Policy::RpSteal && time % 2 == 0);
                scheduler.end(&mut partitions, Outcome { measured: &measured, makespan: Nanos(time), carried_out });
            }
        }
    }
}
