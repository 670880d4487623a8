//! What short instances have shown, until the scheduler is told: to tell it of each one takes longer than they do, as what it knows
//! goes from CPU to CPU.

use evenly_iterations::{Common, Measured, Outcome, Scheduler};
use evenly_model::Nanos;

/// So many instances are told together.
const TOGETHER: usize = 16;
/// Of longer ones each is told, and none is set up before it begins.
pub(crate) const SHORT: Nanos = Nanos::from_micros(20);

/// Instances that have ended, in order.
#[derive(Debug)]
pub(crate) struct Pending {
    threads: usize,
    /// By thread, for each of them.
    measured: Vec<Measured>,
    makespans: Vec<Nanos>,
    /// All so far, told or not.
    pub(crate) instances: u64,
}

impl Pending {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            measured: Vec::with_capacity(threads * TOGETHER),
            makespans: Vec::with_capacity(TOGETHER),
            instances: 0,
        }
    }

    /// One more. Whether the scheduler need not be told now.
    pub(crate) fn add(
        &mut self,
        measured: impl Iterator<Item = Measured>,
        makespan: Nanos,
    ) -> bool {
        self.measured.extend(measured);
        self.makespans.push(makespan);
        self.instances += 1;
        makespan < SHORT && self.makespans.len() < TOGETHER
    }

    /// Those of the last one.
    pub(crate) fn last(&self) -> &[Measured] {
        &self.measured[self.measured.len().saturating_sub(self.threads)..]
    }

    /// Tells of all of them; of the last one, who carried out its tasks, if some were stolen.
    pub(crate) fn tell(
        &mut self,
        scheduler: &mut Scheduler,
        common: &mut Common,
        carried_out: Option<&[usize]>,
    ) {
        let last = self.makespans.len().saturating_sub(1);
        let each = self.measured.chunks(self.threads.max(1)).zip(&self.makespans);
        for (i, (measured, makespan)) in each.enumerate() {
            let carried_out = carried_out.filter(|_| i == last);
            scheduler.end(common, Outcome { measured, makespan: *makespan, carried_out });
        }
        self.measured.clear();
        self.makespans.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ns: u64) -> [Measured; 2] {
        [ns, 2 * ns].map(|ns| Measured { time: Nanos(ns), iterations: 4 })
    }

    /// Would catch: an instance in which a thread was late, of which the scheduler hears 15 instances later.
    #[test]
    fn short_instances_are_told_together_and_a_long_one_at_once() {
        let mut pending = Pending::new(2);
        for _ in 1..TOGETHER {
            assert!(pending.add(measured(500).into_iter(), Nanos(1_000)));
        }
        assert!(!pending.add(measured(500).into_iter(), Nanos(1_000)));
        let mut pending = Pending::new(2);
        assert!(pending.add(measured(500).into_iter(), Nanos(1_000)));
        assert!(!pending.add(measured(50_000).into_iter(), Nanos(100_000)));
        assert_eq!((pending.last(), pending.instances), (&measured(50_000)[..], 2));
    }

    /// Would catch: powers of what is told together that differ from those of what is told at once.
    #[test]
    fn told_together_they_show_the_same() {
        use evenly_iterations::{Bounds, Memory, Policy, Region};
        let powers = |together: u32| {
            let mut scheduler =
                Scheduler::new(Region::default(), Policy::Rp, Memory::of_one_node(2, 64));
            let (mut common, mut pending) = (Common::new(2), Pending::new(2));
            let bounds = Bounds { lower: 0, upper: 64, stride: 1 };
            for i in 1..=80_u32 {
                scheduler.begin(&mut common, bounds, 0);
                pending.add(measured(5_000_000).into_iter(), Nanos(10_000_000));
                if i % together == 0 {
                    pending.tell(&mut scheduler, &mut common, None);
                }
            }
            common.powers.get().to_vec()
        };
        assert_eq!(powers(1), powers(16));
        assert!(powers(16)[0] > 0.6);
    }
}
