//! How the iterations of one region are handed out, instance after instance.
//!
//! ```text
//!   begin --> Plan --> (the runtime, or the simulator, carries it out) --> end --> new powers, owners
//! ```

use crate::Processor;
use crate::auto::Auto;
use crate::bounds::Bounds;
use crate::chunks::Chunks;
use crate::common::Common;
use crate::division::{Owners, divide, redivide};
use crate::memory::Memory;
use crate::partitions::Partitions;
use crate::plan::{HandsOut, Outcome, Plan};
use crate::policy::Policy;
use crate::powers::Measured;
use crate::region::{ArrayId, Region, Section};
use crate::tasks::{Tasks, lead, smallest_task};
use evenly_model::Nanos;

/// Where tasks need not be of whole units of coherence: where they would make a share larger by more than this part of it.
const ROUNDED: u64 = 128;

/// Where data are does not matter to a region that computes for so many times as long as they take to move (section 2.4: "unless
/// the amount of computation per data unit is high relative to the communication cost").
const COMPUTES: u64 = 32;

/// Bytes of a cache line, the unit of coherence within a node.
const LINE_BYTES: u64 = 64;

/// What is planned for instances with these bounds.
#[derive(Debug, PartialEq)]
struct Known {
    bounds: Bounds,
    plan: Plan,
    /// The node on which alone it is carried out, if it is.
    node: Option<usize>,
}

/// How iterations are divided already.
struct Found {
    /// As is said of this array.
    array: Option<ArrayId>,
    tasks: Tasks,
    owners: Owners,
    /// How often powers had changed by then.
    changes: u64,
}

/// Hands out the iterations of a region.
#[derive(Debug)]
pub struct Scheduler {
    region: Region,
    /// Among those of its program, once it has ended an instance.
    number: Option<u32>,
    memory: Memory,
    policy: Policy,
    auto: Option<Auto>,
    known: Option<Known>,
    /// What all loops had in common when that was planned.
    version: (u64, u64),
    /// Its owners have changed since it was given out.
    due: bool,
    /// In this instance data move to their new owners; in the one before they did.
    settles: bool,
    settled: bool,
    /// It computes so much that it does not matter where its data are.
    computes: bool,
    /// It is not carried out on the node that has its data, as that takes longer than to move them.
    moves_instead: bool,
    tried: bool,
    /// How often iterations were divided anew because powers had changed.
    divisions: u64,
}

impl Scheduler {
    /// For the processors of this memory.
    #[must_use]
    pub fn new(region: Region, policy: Policy, memory: Memory) -> Self {
        let auto = (policy == Policy::Auto).then(|| Auto::new(memory.is_one_node()));
        let policy = auto.as_ref().map_or(policy, Auto::policy);
        Self {
            region,
            number: None,
            memory,
            policy,
            auto,
            known: None,
            version: (0, 0),
            due: false,
            settles: false,
            settled: false,
            computes: false,
            moves_instead: false,
            tried: false,
            divisions: 0,
        }
    }

    /// The plan for an instance with these bounds, whose first array that is written begins at this address; and whether it is
    /// another than that of the one before. Where the stride is 0 there is nothing to do.
    pub fn begin(&mut self, common: &mut Common, bounds: Bounds, address: u64) -> (&Plan, bool) {
        // Between nodes it follows powers from the begin.
        if let Some(auto) = &mut self.auto
            && self.memory.is_one_node()
            && common.powers.are_unequal()
        {
            auto.hear();
            if self.policy != auto.policy() {
                (self.policy, self.known) = (auto.policy(), None);
            }
        }
        let version = self.version_of(common);
        let is_same = |known: &Known| known.bounds == bounds && version == self.version;
        let mut changed = std::mem::take(&mut self.due);
        if !self.known.as_ref().is_some_and(is_same) {
            let (known, anew) = self.plan(common, bounds, address);
            // Where data move each time, every second instance is measured all the same.
            self.settles = !self.computes && !self.settled && self.moves_data(&known, anew);
            changed |= self.known.as_ref() != Some(&known);
            self.version = self.version_of(common);
            self.known = Some(known);
        }
        let empty = || Known {
            bounds,
            plan: Plan {
                tasks: Tasks::new(0, 1, 0, 1),
                hands_out: HandsOut::Owned { owners: Owners::new(), steals: false },
            },
            node: None,
        };
        (&self.known.get_or_insert_with(empty).plan, changed)
    }

    /// What a plan follows: how often powers have changed, and when one of its arrays was divided last.
    fn version_of(&self, common: &Common) -> (u64, u64) {
        if !self.policy.has_powers() {
            return (0, 0);
        }
        let last = |s: &Section| common.partitions.last(s.array).0;
        let last = self.region.sections.iter().map(last).max();
        (common.powers.changes(), last.unwrap_or(0))
    }

    /// Whether another node has some of the data from now on.
    fn moves_data(&self, after: &Known, anew: bool) -> bool {
        let node = |&p: &Processor| self.memory.nodes[p];
        let same_tasks = |k: &&Known| k.bounds == after.bounds && k.plan.tasks == after.plan.tasks;
        !self.memory.is_one_node()
            && match self.known.as_ref().filter(same_tasks) {
                // Bounds that change move none.
                None => anew,
                Some(before) => {
                    let [before, after] = [before, after].map(|k| k.plan.owners().iter().map(node));
                    !before.eq(after)
                }
            }
    }

    /// What is planned, and whether it was divided anew.
    fn plan(&mut self, common: &mut Common, bounds: Bounds, address: u64) -> (Known, bool) {
        let section = self.region.main().map(|section| bounds.section(section));
        let iterations = bounds.count().unwrap_or(0);
        let tasks = self.tasks(iterations, section, address);
        if let Some(sizes) = self.policy.sizes() {
            let (units, processors) = (tasks.count() as u32, self.memory.processors());
            let hands_out = HandsOut::Next(Chunks { sizes, units, processors });
            return (Known { bounds, plan: Plan { tasks, hands_out }, node: None }, false);
        }
        let steals = self.policy.steals();
        let known = |tasks, owners, node| {
            let plan = Plan { tasks, hands_out: HandsOut::Owned { owners, steals } };
            Known { bounds, plan, node }
        };
        if self.policy == Policy::Static {
            return (known(tasks, (0..tasks.count()).collect(), None), false);
        }
        if !self.policy.has_powers() {
            let equal = vec![1.0; self.memory.processors()];
            return (known(tasks, divide(&self.region, tasks.count(), &equal), None), false);
        }
        let powers = common.powers.get();
        let found = self.found(&common.partitions, bounds, tasks);
        if found.is_none()
            && let Some(node) = section.and_then(|s| self.node(&common.partitions, &s, iterations))
        {
            // Within the node, so that cache lines count.
            let smallest = smallest_task(&self.region, LINE_BYTES);
            let tasks = self.divided(iterations, smallest, 0);
            let owners = divide(&self.region, tasks.count(), &self.powers_of(powers, node));
            return (known(tasks, owners, Some(node)), false);
        }
        let changes = common.powers.changes();
        // Where arrays say nothing it is found as it was left.
        let by_itself = section.is_none() || self.computes;
        let before = self.known.as_ref().filter(|k| by_itself && k.bounds == bounds);
        let is_owned = |k: &&Known| matches!(k.plan.hands_out, HandsOut::Owned { .. });
        let before = before.filter(|k| k.plan.tasks == tasks).filter(is_owned).map(|k| Found {
            array: None,
            tasks,
            owners: k.plan.owners().to_vec(),
            changes: self.version.0,
        });
        let (array, tasks, owners) = match found.or(before) {
            Some(found) if found.changes == changes => (found.array, found.tasks, found.owners),
            Some(found) => {
                self.divisions += 1;
                (None, found.tasks, redivide(&self.region, &found.owners, powers))
            }
            None => (None, tasks, divide(&self.region, tasks.count(), powers)),
        };
        let known = known(tasks, owners, None);
        if !self.computes {
            self.publish(common, &known, array);
        }
        (known, array.is_none())
    }

    /// How one of its arrays is divided already: the one of which that was said last.
    fn found(&self, partitions: &Partitions, bounds: Bounds, tasks: Tasks) -> Option<Found> {
        if self.computes {
            return None;
        }
        let iterations = 0..bounds.count().unwrap_or(0);
        let in_turn = self.region.is_cyclic();
        let find = |section: &Section| {
            let tasks = Some(section)
                .filter(|_| in_turn)
                .and_then(|s| partitions.tasks(s, iterations.end))
                .unwrap_or(tasks);
            let owners = partitions.find(section, tasks, &iterations, in_turn)?;
            let changes = partitions.last(section.array).1;
            Some(Found { array: Some(section.array), tasks, owners, changes })
        };
        let mut placed: Vec<Section> = self.region.placed().map(|s| bounds.section(s)).collect();
        placed.sort_by_key(|s| std::cmp::Reverse(partitions.last(s.array).0));
        placed.iter().find_map(find)
    }

    /// The iterations in tasks.
    fn tasks(&self, iterations: u64, section: Option<Section>, address: u64) -> Tasks {
        let (processors, unit_bytes) =
            (self.memory.processors().max(1) as u64, self.memory.unit_bytes);
        let mut smallest = smallest_task(&self.region, unit_bytes);
        let is_coarse = smallest.saturating_mul(ROUNDED) > iterations / processors;
        if self.policy == Policy::Static && is_coarse || self.computes {
            smallest = 1;
        }
        let each = section.map_or(0, |s| s.bytes_per_iteration());
        let first = section.map_or(0, |s| s.bytes(&(0..1)).start);
        let first = u64::try_from(i128::from(address).saturating_add(first)).unwrap_or(0);
        // Backwards, tasks meet where an iteration's data end.
        let backwards = section.is_some_and(|s| s.coefficient < 0);
        let begin = if backwards {
            unit_bytes - first.wrapping_add(each) % unit_bytes.max(1)
        } else {
            first
        };
        let lead = lead(begin, each, smallest, unit_bytes);
        match self.policy {
            Policy::Static => Tasks::at_most(iterations, smallest, lead, processors),
            _ if self.policy.sizes().is_some() => {
                Tasks::at_most(iterations, smallest, lead, u64::from(u32::MAX) / 2)
            }
            _ => self.divided(iterations, smallest, lead),
        }
    }

    /// In tasks to be divided among all processors.
    fn divided(&self, iterations: u64, smallest: u64, lead: u64) -> Tasks {
        let tasks = Tasks::new(iterations, smallest, lead, self.memory.processors());
        tasks.in_turn(self.region.is_cyclic())
    }

    /// The powers of those on one node.
    fn powers_of(&self, powers: &[f64], node: usize) -> Vec<f64> {
        let power = |p: usize| if self.memory.nodes[p] == node { powers[p] } else { 0.0 };
        (0..self.memory.processors()).map(power).collect()
    }

    /// The node on which all that it writes is, if it is best carried out there: the time is less than that of moving the data
    /// (section 2.4). While that is not known it is tried.
    fn node(&self, partitions: &Partitions, section: &Section, iterations: u64) -> Option<usize> {
        if self.moves_instead || self.computes || self.memory.is_one_node() {
            return None;
        }
        self.memory.node(partitions.holders(section, &(0..iterations))?)
    }

    /// How long moving the data takes that these iterations use.
    fn moving(&self, bounds: Bounds) -> Nanos {
        let iterations = bounds.count().unwrap_or(0);
        let bytes = |s: &Section| s.bytes_per_iteration().saturating_mul(iterations);
        let moving = |s| self.memory.moving(bytes(s));
        self.region.sections.iter().map(moving).fold(Nanos::ZERO, |sum, time| sum + time)
    }

    /// Says how the arrays of the region are divided from now on: all but the one where that was found. Those that are divided
    /// so already stay as they are, so that loops with other bounds do not follow each other for ever.
    fn publish(&mut self, common: &mut Common, known: &Known, found: Option<ArrayId>) {
        let owners = known.plan.owners();
        if owners.is_empty() {
            return;
        }
        let iterations = 0..known.bounds.count().unwrap_or(0);
        let changes = common.powers.changes();
        let (tasks, in_turn) = (known.plan.tasks, self.region.is_cyclic());
        for section in self.region.placed().filter(|s| Some(s.array) != found) {
            let section = known.bounds.section(section);
            let partitions = &mut common.partitions;
            // A loop over a border says nothing of the whole.
            if !in_turn && partitions.has_more_than(&section, &iterations) {
                continue;
            }
            let there = partitions.find(&section, tasks, &iterations, in_turn);
            let is_there = there.is_some_and(|there| {
                let moved = there.iter().zip(owners).filter(|(a, b)| a != b).count();
                let boundaries = owners.windows(2).filter(|pair| pair[0] != pair[1]).count();
                // Rows that are used one further on, say, would drift if each loop had its own way with them.
                let is_near = moved <= boundaries && found.is_some();
                (is_near || moved == 0) && partitions.last(section.array).1 == changes
            });
            if !is_there {
                partitions.set(&section, tasks, &iterations, owners, changes);
            }
        }
    }

    /// Whether the instance has shown that from now on it does not matter where its data are, or less than was thought.
    fn ignores_data(&mut self, known: &Known, measured: &[Measured]) -> bool {
        if self.memory.is_one_node() || self.computes {
            return false;
        }
        let moving = self.moving(known.bounds);
        let time = measured.iter().fold(Nanos::ZERO, |sum, m| sum + m.time);
        self.computes = time > Nanos(moving.0.saturating_mul(COMPUTES));
        if known.node.is_some() {
            // A processor that somebody else uses takes longer, wherever the loop is carried out. The first time includes what
            // has to be fetched there once.
            let times = measured.iter().filter(|m| m.iterations > 0).map(|m| m.time);
            let is_long = times.min().is_some_and(|time| time >= moving);
            self.moves_instead = is_long && self.tried;
            self.tried = true;
        }
        self.computes || self.moves_instead
    }

    /// Learns from an instance that has ended.
    pub fn end(&mut self, common: &mut Common, outcome: Outcome<'_>) {
        let Some(mut known) = self.known.take() else { return };
        self.settled = std::mem::take(&mut self.settles);
        if !self.settled {
            let number = *self.number.get_or_insert_with(|| common.number());
            common.powers.add(number, outcome.measured);
            let before = self.policy;
            if let Some(auto) = &mut self.auto {
                auto.add(&outcome);
                self.policy = auto.policy();
            }
            // Where it is another policy, or data no longer count, the next instance begins by a plan of its own.
            if self.policy != before || self.ignores_data(&known, outcome.measured) {
                return;
            }
        }
        if let HandsOut::Owned { owners, .. } = &mut known.plan.hands_out
            && self.policy.has_powers()
            && let Some(carried_out) = outcome.carried_out
        {
            owners.copy_from_slice(carried_out);
            self.due = true;
            // The data of a loop that is carried out where they are stay there. Where powers have changed, the next begin says
            // how they are divided.
            let is_theirs = known.node.is_none() && !self.computes;
            if is_theirs && self.version_of(common) == self.version {
                self.publish(common, &known, None);
                self.version = self.version_of(common);
            }
        }
        self.known = Some(known);
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
    fn runs(scheduler: &mut Scheduler, common: &mut Common, speeds: &[f64]) -> Vec<u64> {
        let done = owned(scheduler.begin(common, ROWS, 0).0, speeds.len());
        let time = |(n, speed): (&u64, &f64)| Nanos((*n as f64 * 1e6 / speed) as u64);
        let measured = done.iter().zip(speeds);
        let measured: Vec<Measured> =
            measured.map(|pair| Measured { time: time(pair), iterations: *pair.0 }).collect();
        let makespan = measured.iter().map(|m| m.time).max().unwrap();
        scheduler.end(common, Outcome { measured: &measured, makespan, carried_out: None });
        done
    }

    #[test]
    fn shares_follow_powers_and_what_uses_the_same_array_is_divided_in_the_same_way() {
        let mut common = Common::new(2);
        let scheduler =
            |policy| Scheduler::new(region(Access::Stencil, 0), policy, Memory::of_one_node(2, 64));
        let mut first = scheduler(Policy::Rp);
        assert_eq!(runs(&mut first, &mut common, &[1.0, 0.5]), [32, 32]);
        (0..8).for_each(|_| _ = runs(&mut first, &mut common, &[1.0, 0.5]));
        let shares = runs(&mut first, &mut common, &[1.0, 0.5]);
        assert!(shares[0].abs_diff(43) <= 1, "{shares:?}");
        assert_eq!(first.divisions(), 1);
        // It has measured nothing yet, and finds the data where they are.
        let mut second = scheduler(Policy::Rp);
        assert_eq!(owned(second.begin(&mut common, ROWS, 0).0, 2), shares);
        assert!(!second.begin(&mut common, ROWS, 0).1);
        // What is not divided by powers neither follows nor says so.
        assert_eq!(owned(scheduler(Policy::Static).begin(&mut common, ROWS, 0).0, 2), [32, 32]);
        assert!(!second.begin(&mut common, ROWS, 0).1);
        // When one divides anew the other follows.
        (0..16).for_each(|_| _ = runs(&mut first, &mut common, &[1.0, 1.0]));
        let (plan, changed) = second.begin(&mut common, ROWS, 0);
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
            let mut common = Common::new(2);
            for (policy, stays) in [(Policy::RpSteal, true), (Policy::StaticSteal, false)] {
                let mut scheduler =
                    Scheduler::new(region.clone(), policy, Memory::of_one_node(2, 64));
                let (plan, _) = scheduler.begin(&mut common, ROWS, 0);
                let HandsOut::Owned { owners, steals: true } = &plan.hands_out else {
                    panic!("{plan:?}")
                };
                let mut carried_out = owners.clone();
                *carried_out.last_mut().unwrap() = 0;
                let measured = [Measured { time: Nanos(1_000), iterations: 32 }; 2];
                let carried_out = Some(&carried_out[..]);
                scheduler.end(
                    &mut common,
                    Outcome { measured: &measured, makespan: Nanos(1_000), carried_out },
                );
                let (plan, changed) = scheduler.begin(&mut common, ROWS, 0);
                let shares = if stays { [34, 30] } else { [32, 32] };
                assert_eq!((owned(plan, 2), changed), (shares.to_vec(), stays), "{policy}");
                assert!(!scheduler.begin(&mut common, ROWS, 0).1);
            }
        }
    }

    /// Would catch: shares that drift as two loops over one array follow each other; a loop whose bounds alternate.
    #[test]
    fn loops_over_one_array_do_not_follow_each_other_for_ever() {
        let mut common = Common::new(4);
        let [mut even, mut odd] = [0, 1].map(|_| {
            Scheduler::new(region(Access::Stencil, 0), Policy::Rp, Memory::of_one_node(4, 64))
        });
        let rows = |lower| Bounds { lower, upper: 1_009, stride: 1 };
        let shares = owned(even.begin(&mut common, rows(0), 0).0, 4);
        for _ in 0..50 {
            odd.begin(&mut common, rows(1), 0);
            assert_eq!(owned(even.begin(&mut common, rows(0), 0).0, 4), shares);
        }
        assert_eq!(common.partitions.stamp(), 1);
        assert!(!even.begin(&mut common, rows(0), 0).1 && !odd.begin(&mut common, rows(1), 0).1);
    }

    /// Would catch: a second loop that finds out by itself, over four instances, what the first one has shown.
    #[test]
    fn auto_follows_what_other_loops_have_shown() {
        let mut common = Common::new(2);
        let new =
            |policy| Scheduler::new(region(Access::Stencil, 0), policy, Memory::of_one_node(2, 64));
        let mut first = new(Policy::Rp);
        (0..8).for_each(|_| _ = runs(&mut first, &mut common, &[1.0, 0.5]));
        let (mut second, mut before) = (new(Policy::Auto), Common::new(2));
        assert_eq!(second.policy(), Policy::StaticSteal);
        // Short ones, for whose threads nobody waits.
        (0..8).for_each(|_| _ = runs(&mut second, &mut before, &[1e4, 1e4]));
        second.begin(&mut before, ROWS, 0);
        assert_eq!(second.policy(), Policy::Static);
        second.begin(&mut common, ROWS, 0);
        assert_eq!(second.policy(), Policy::StaticSteal);
    }

    /// As in Jacobi, where one loop computes a grid from another, and one copies it back. Would catch: rows that go to and fro
    /// because each loop follows its own array.
    #[test]
    fn loops_that_share_an_array_are_divided_in_the_same_way() {
        let of = |written, read| {
            let section = |array, used, constant| Section {
                array: ArrayId(array),
                used,
                element_bytes: 8,
                coefficient: 512,
                constant,
            };
            let reads = [-512, 0, 512].map(|constant| section(read, Use::Reads, constant));
            let sections = [vec![section(written, Use::Writes, 0)], reads.to_vec()].concat();
            let region = Region { access: Access::Stencil, sections, ..Region::default() };
            Scheduler::new(region, Policy::Rp, Memory::of_one_node(4, 64))
        };
        let (mut mean, mut copy, mut common) = (of(1, 0), of(0, 1), Common::new(4));
        for speeds in [[1.0, 1.0, 1.0, 0.5], [0.5, 1.0, 0.3, 1.0], [1.0; 4]] {
            for _ in 0..20 {
                runs(&mut mean, &mut common, &speeds);
                runs(&mut copy, &mut common, &speeds);
            }
            let shares = runs(&mut mean, &mut common, &speeds);
            assert_eq!(runs(&mut copy, &mut common, &speeds), shares);
            let expected = |p: usize| 64.0 * speeds[p] / speeds.iter().sum::<f64>();
            assert!((0..4).all(|p| (shares[p] as f64 - expected(p)).abs() < 2.0), "{shares:?}");
            // Nothing is said any longer.
            let stamp = common.partitions.stamp();
            runs(&mut mean, &mut common, &speeds);
            assert_eq!(common.partitions.stamp(), stamp);
        }
        assert!(mean.divisions() + copy.divisions() <= 8);
    }

    /// As in Shallow, where arrays lie a row apart. Would catch: rows that drift to one processor, as each loop says of the other's
    /// array what it has found of its own.
    #[test]
    fn arrays_that_lie_a_row_apart_do_not_drift() {
        for rows in [64, 128, 200] {
            let of = |written, read, apart: i64| {
                let section = |array, used, row: i64| Section {
                    array: ArrayId(array),
                    used,
                    element_bytes: 8,
                    coefficient: 64,
                    constant: 64 * row,
                };
                let sections =
                    vec![section(written, Use::Writes, 0), section(read, Use::Reads, apart)];
                let region = Region { access: Access::Stencil, sections, ..Region::default() };
                Scheduler::new(region, Policy::Rp, Memory::of_one_node(4, 64))
            };
            let (mut one, mut other, mut common) = (of(1, 0, 1), of(0, 1, 0), Common::new(4));
            let bounds = Bounds { lower: 0, upper: rows, stride: 1 };
            let shares = owned(one.begin(&mut common, bounds, 0).0, 4);
            for _ in 0..100 {
                other.begin(&mut common, bounds, 0);
                assert_eq!(owned(one.begin(&mut common, bounds, 0).0, 4), shares, "{rows}");
            }
            let near = owned(other.begin(&mut common, bounds, 0).0, 4);
            assert!((0..4).all(|p| near[p].abs_diff(shares[p]) <= 4), "{near:?} {shares:?}");
        }
    }

    /// Would catch: a loop over a border, or over nothing, after which nobody knows how the array is divided.
    #[test]
    fn the_whole_array_stays_divided_as_it_is() {
        let mut common = Common::new(2);
        let new = |region| Scheduler::new(region, Policy::Rp, Memory::of_one_node(2, 64));
        let mut all = new(region(Access::Stencil, 0));
        (0..8).for_each(|_| _ = runs(&mut all, &mut common, &[1.0, 0.5]));
        let shares = runs(&mut all, &mut common, &[1.0, 0.5]);
        let sections = vec![Section { coefficient: 1, ..all.region.sections[0] }];
        let mut border = new(Region { sections, ..Region::default() });
        let stamp = common.partitions.stamp();
        border.begin(&mut common, Bounds { lower: 0, upper: 512, stride: 1 }, 0);
        all.begin(&mut common, Bounds { lower: 0, upper: 0, stride: 1 }, 0);
        assert_eq!(common.partitions.stamp(), stamp);
        assert_eq!(owned(all.begin(&mut common, ROWS, 0).0, 2), shares);
    }

    /// As in Shallow, where a border of one row is set.
    #[test]
    fn a_short_loop_is_carried_out_where_its_data_are() {
        let fetch = Nanos::from_micros(220);
        let memory = Memory { unit_bytes: 4_096, nodes: vec![0, 0, 1, 1], fetch };
        let grid = |policy| Scheduler::new(region(Access::Stencil, 0), policy, memory.clone());
        let along = |policy| {
            let Region { sections, .. } = region(Access::Stencil, 0);
            let sections = vec![Section { coefficient: 1, constant: 63 * 512, ..sections[0] }];
            Scheduler::new(Region { sections, ..Region::default() }, policy, memory.clone())
        };
        let border = Bounds { lower: 0, upper: 512, stride: 1 };
        for (us, alone, divided) in
            [(219, true, Policy::Rp), (220, false, Policy::Rp), (1, false, Policy::Static)]
        {
            let mut common = Common::new(4);
            let (mut all, mut row) = (grid(divided), along(divided));
            all.begin(&mut common, ROWS, 0);
            let version = common.partitions.stamp();
            // The first time it is tried.
            let shares = owned(row.begin(&mut common, border, 0).0, 4);
            let is_alone = divided == Policy::Rp;
            let expected = if is_alone { [0, 0, 256, 256] } else { [128; 4] };
            assert_eq!(shares, expected, "{divided}");
            let of = |iterations: u64| Measured {
                time: Nanos::from_micros(us * iterations.min(1)),
                iterations,
            };
            let measured: Vec<Measured> = shares.into_iter().map(of).collect();
            let makespan = Nanos::from_micros(us);
            for _ in 0..2 {
                row.begin(&mut common, border, 0);
                row.end(&mut common, Outcome { measured: &measured, makespan, carried_out: None });
            }
            // What the others know of the array stays as it was.
            assert_eq!(common.partitions.stamp(), version);
            let shares = owned(row.begin(&mut common, border, 0).0, 4);
            assert_eq!(shares[0] == 0, alone, "{divided}: {us} us");
            assert_eq!(shares.iter().sum::<u64>(), 512);
        }
    }

    /// Would catch: `auto` that judges `rp` by how iterations were divided when another CPU was loaded.
    #[test]
    fn powers_that_changed_meanwhile_count() {
        let mut common = Common::new(2);
        let mut first =
            Scheduler::new(region(Access::Stencil, 0), Policy::Rp, Memory::of_one_node(2, 64));
        (0..8).for_each(|_| _ = runs(&mut first, &mut common, &[1.0, 0.5]));
        // Another loop sees that it is the other one now, while it does not follow.
        let mut other =
            Scheduler::new(region(Access::Stencil, 0), Policy::Static, Memory::of_one_node(2, 64));
        (0..16).for_each(|_| _ = runs(&mut other, &mut common, &[0.5, 1.0]));
        other.policy = Policy::Rp;
        other.known = None;
        let shares = runs(&mut other, &mut common, &[0.5, 1.0]);
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
            let mut scheduler = Scheduler::new(region, Policy::Rp, Memory::of_one_node(2, 64));
            let tasks = scheduler.begin(&mut Common::new(2), bounds, address).0.tasks;
            let section = bounds.section(&section);
            for task in 1..tasks.count() {
                let own = section.bytes(&tasks.bounds(task));
                let meets = if coefficient < 0 { own.end } else { own.start };
                assert_eq!((i128::from(address) + meets) % 64, 0, "{coefficient}, {address}");
            }
        }
    }

    /// Would catch: a size that goes past all numbers, and so is 0, where its tasks are counted.
    #[test]
    fn the_longest_loop_is_handed_out() {
        for (policy, processors) in Policy::ALL.into_iter().flat_map(|p| [(p, 1), (p, 3)]) {
            let bounds = Bounds { lower: i64::MIN, upper: i64::MAX, stride: 1 };
            let (used, array) = (Use::Writes, ArrayId(0));
            let section = Section { array, used, element_bytes: 8, coefficient: 1, constant: 0 };
            let region = Region { sections: vec![section], ..Region::default() };
            let mut scheduler =
                Scheduler::new(region, policy, Memory::of_one_node(processors, LINE_BYTES));
            let mut common = Common::new(processors);
            for address in [0, 8, 4_096, u64::MAX] {
                let tasks = scheduler.begin(&mut common, bounds, address).0.tasks;
                assert_eq!(tasks.iterations(), u64::MAX);
                let last = tasks.bounds(tasks.count() - 1);
                assert!(last.end == u64::MAX && !last.is_empty(), "{policy}: {tasks:?}");
                let measured =
                    vec![Measured { time: Nanos(1_000_000), iterations: 1 << 56 }; processors];
                let outcome =
                    Outcome { measured: &measured, makespan: Nanos(1_000_000), carried_out: None };
                scheduler.end(&mut common, outcome);
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
            let mut scheduler = Scheduler::new(
                Region { load, ..region(access, 0) }, policy, Memory::of_one_node(processors, 64));
            let mut common = Common::new(processors);
            for (lower, length, stride, time) in instances {
                let bounds = Bounds { lower, upper: lower + length, stride };
                let (plan, _) = scheduler.begin(&mut common, bounds, 4_096);
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
                scheduler.end(&mut common, Outcome { measured: &measured, makespan: Nanos(time), carried_out });
            }
        }
    }
}
