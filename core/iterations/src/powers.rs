//! How fast each processor gets on, relative to the others (section 2.3, Figure 3).

use crate::tasks::TASKS_PER_PROCESSOR;
use evenly_model::Nanos;

/// A new division is due where powers have changed by more than this part.
const HYSTERESIS: f64 = 0.1;
/// Over so many instances of a region, and so long, times are summed up: what happens once does not count, and a processor whose
/// CPU is shared has had several slices of the kernel.
const INSTANCES: u32 = 4;
const LEAST: Nanos = Nanos::from_millis(100);
/// Of long instances fewer will do, which together take so long.
const LONG: Nanos = Nanos::from_millis(400);

/// What a processor did in one instance of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// From the release of all processors to when it had finished its last task: not from its own start, which comes late
    /// where its CPU is taken.
    pub time: Nanos,
    /// Iterations that it carried out, its own and stolen ones. Whoever had some to do and did none has a time and no iterations;
    /// whoever had none has neither.
    pub iterations: u64,
}

/// The relative power of each processor: the part of all iterations that it carries out in the same time as the others theirs.
/// They add up to 1.
///
/// The paper's `RP[i] = (RP[i] / TaskTime[i]) / sum` is right where each processor has carried out its share, `RP[i]` of all
/// iterations. Where tasks are stolen it has carried out others, and all finish at the same time, which would say nothing.
/// So what it carried out stands in place of `RP[i]`: without stealing that is the same, but for whole tasks. Iterations are a
/// measure of work where all have the same load, or are dealt out in turn.
///
/// The paper has one power for all regions, and sums up times over several of them. Here each region has its own, as loops that
/// wait for memory and loops that compute do not slow down alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Powers {
    powers: Vec<f64>,
    /// The powers by which iterations are divided at present.
    divided: Vec<f64>,
    /// What each has done in these instances.
    iterations: Vec<f64>,
    seconds: Vec<f64>,
    instances: u32,
    time: Nanos,
}

impl Powers {
    /// All are the same.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        let equal = vec![1.0 / processors.max(1) as f64; processors];
        Self {
            powers: equal.clone(),
            divided: equal,
            iterations: vec![0.0; processors],
            seconds: vec![0.0; processors],
            instances: 0,
            time: Nanos::ZERO,
        }
    }

    /// By processor.
    #[must_use]
    pub fn get(&self) -> &[f64] {
        &self.powers
    }

    /// Takes in what each processor did in one more instance. Whether iterations are to be divided anew, by what is then said by
    /// [`Powers::get`].
    ///
    /// # Panics
    /// If that is not as many processors as there are.
    pub fn add(&mut self, measured: &[Measured]) -> bool {
        assert_eq!(measured.len(), self.powers.len(), "one for each processor");
        for (p, m) in measured.iter().enumerate().filter(|(_, m)| m.time > Nanos::ZERO) {
            self.iterations[p] += m.iterations as f64;
            self.seconds[p] += m.time.as_secs_f64();
        }
        self.instances += 1;
        self.time += measured.iter().map(|m| m.time).max().unwrap_or_default();
        let is_enough = self.instances >= INSTANCES && self.time >= LEAST || self.time >= LONG;
        is_enough && self.update()
    }

    /// New powers from what was done so far, which is forgotten. Whether they have changed.
    fn update(&mut self) -> bool {
        let done = self.iterations.iter().zip(&self.seconds);
        // Whoever was kept from all that it had to do is slower than if it had done half of an iteration.
        let rates = done.map(|(n, s)| (*s > 0.0).then(|| n.max(0.5) / s));
        let rates: Vec<Option<f64>> = rates.collect();
        let known = || rates.iter().zip(&self.powers).filter_map(|(rate, p)| Some(((*rate)?, p)));
        let (rate, power) = known().fold((0.0, 0.0), |(r, p), (rate, power)| (r + rate, p + power));
        if power > 0.0 {
            // Whoever had nothing to do is as fast as before, relative to the others. It may have become faster, and so is given a
            // task at least, by which that is seen.
            let a_task = 1.1 / (self.powers.len() as f64 * TASKS_PER_PROCESSOR as f64);
            let tried = |p: f64| p.max(a_task) * rate / power;
            let new =
                rates.iter().zip(&self.powers).map(|(rate, &p)| rate.unwrap_or_else(|| tried(p)));
            let powers = normalized(new.collect());
            if powers.iter().all(|p| p.is_finite()) {
                self.powers = powers;
            }
        }
        self.iterations.fill(0.0);
        self.seconds.fill(0.0);
        (self.instances, self.time) = (0, Nanos::ZERO);
        let changed = self.have_changed();
        if changed {
            self.divided.clone_from(&self.powers);
        }
        changed
    }

    /// The paper's test is that the largest and the smallest power differ by a tenth more or less than before. It does not see a
    /// load that goes from one processor to another, so that each power counts as well, by a tenth of an equal share.
    fn have_changed(&self) -> bool {
        let spread = |of: &[f64]| {
            let (low, high) =
                of.iter().fold((f64::MAX, 0.0_f64), |(l, h), &p| (l.min(p), h.max(p)));
            (high - low).max(0.0)
        };
        let equal = 1.0 / self.powers.len().max(1) as f64;
        let [now, before] = [spread(&self.powers), spread(&self.divided)];
        let is_wider = (now - before).abs() > HYSTERESIS * before.max(equal);
        let pairs = self.powers.iter().zip(&self.divided);
        is_wider || pairs.map(|(p, d)| (p - d).abs()).any(|by| by > HYSTERESIS * equal)
    }
}

/// These numbers, as parts of their sum.
pub(crate) fn normalized(mut numbers: Vec<f64>) -> Vec<f64> {
    let sum: f64 = numbers.iter().sum();
    numbers.iter_mut().for_each(|n| *n /= sum);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WORK: f64 = 1e6;

    /// Instances on processors of these speeds, each with its share and no stealing.
    fn runs(powers: &mut Powers, speeds: &[f64], instances: u32) -> u32 {
        let mut divided = 0;
        for _ in 0..instances {
            let measured: Vec<Measured> = (powers.divided.iter().zip(speeds))
                .map(|(share, speed)| Measured {
                    time: Nanos((share * WORK * 200.0 / speed) as u64),
                    iterations: (share * WORK) as u64,
                })
                .collect();
            divided += u32::from(powers.add(&measured));
        }
        divided
    }

    fn about(powers: &Powers, expected: &[f64]) -> bool {
        powers.get().iter().zip(expected).all(|(p, e)| (p - e).abs() < 1e-3)
    }

    #[test]
    fn powers_are_as_the_speeds() {
        let mut powers = Powers::new(4);
        assert_eq!(runs(&mut powers, &[1.0; 4], 40), 0);
        assert_eq!(runs(&mut powers, &[1.0, 1.0, 1.0, 0.5], INSTANCES), 1);
        assert!(about(&powers, &[2.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]), "{powers:?}");
        // It stays so, and nothing moves.
        assert_eq!(runs(&mut powers, &[1.0, 1.0, 1.0, 0.5], 40), 0);
        assert!(about(&powers, &[2.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]), "{powers:?}");
    }

    /// Would catch: the paper's test alone, for which nothing has changed.
    #[test]
    fn a_load_that_goes_to_another_processor_is_seen() {
        let mut powers = Powers::new(2);
        runs(&mut powers, &[1.0, 0.5], 8);
        assert!(about(&powers, &[2.0 / 3.0, 1.0 / 3.0]));
        // The first of two may be of a time that has both in it.
        assert!((1..=2).contains(&runs(&mut powers, &[0.5, 1.0], 8)));
        assert!(about(&powers, &[1.0 / 3.0, 2.0 / 3.0]), "{powers:?}");
    }

    /// Would catch: powers by time alone, which say that all are the same where tasks are stolen.
    #[test]
    fn what_was_stolen_counts_for_the_thief() {
        let mut powers = Powers::new(2);
        let of = |iterations| Measured { time: Nanos::from_millis(30), iterations };
        let divided = (0..INSTANCES).any(|_| powers.add(&[of(2_000), of(1_000)]));
        assert!(divided && about(&powers, &[2.0 / 3.0, 1.0 / 3.0]), "{powers:?}");
    }

    #[test]
    fn whoever_has_nothing_to_do_keeps_its_power_relative_to_the_others() {
        let mut powers = Powers::new(3);
        let of = |ms, iterations| Measured { time: Nanos::from_millis(ms), iterations };
        for _ in 0..INSTANCES {
            powers.add(&[of(100, 100), of(200, 100), Measured::default()]);
        }
        let [fast, slow, unknown] = powers.get() else { panic!("three") };
        assert!((fast / slow - 2.0).abs() < 1e-9 && unknown < fast && unknown > slow, "{powers:?}");
        // One of little power that has nothing to do is given a task, and so comes back.
        let mut powers = Powers::new(2);
        for _ in 0..4 {
            runs(&mut powers, &[1.0, 0.01], INSTANCES);
        }
        assert!(powers.get()[1] < 0.011);
        for _ in 0..INSTANCES {
            powers.add(&[of(100, 100), Measured::default()]);
        }
        let tasks = powers.get()[1] * 2.0 * TASKS_PER_PROCESSOR as f64;
        assert!((0.9..1.2).contains(&tasks), "{powers:?}");
        (0..INSTANCES).for_each(|_| _ = powers.add(&[of(100, 31), of(3, 1)]));
        assert!(powers.get()[1] > 0.4, "{powers:?}");
        // Would catch: a processor whose CPU is taken, and whose tasks are all stolen, that keeps its share.
        let mut powers = Powers::new(2);
        assert!((0..INSTANCES).any(|_| powers.add(&[of(100, 100), of(100, 0)])));
        assert!(powers.get()[1] < 0.01 && powers.get()[1] > 0.0, "{powers:?}");
        // Nobody had anything to do.
        assert!(!powers.clone().add(&[Measured::default(); 2]));
    }

    /// Would catch: tasks that go to and fro as a shared CPU changes hands.
    #[test]
    fn short_regions_are_measured_over_several_slices() {
        let mut powers = Powers::new(2);
        let mut divided = 0;
        for instance in 0..1_000 {
            // 1 ms each; one of both stands still for 3 ms of 6.
            let slow = if instance % 6 < 3 { 1_000 } else { 3_000 };
            let of = |us| Measured { time: Nanos::from_micros(us), iterations: 500 };
            divided += u32::from(powers.add(&[of(1_000), of(slow)]));
        }
        assert_eq!(divided, 1);
        assert!((powers.get()[0] - 2.0 / 3.0).abs() < 0.01, "{powers:?}");
    }

    #[test]
    fn what_happens_once_counts_little() {
        let mut powers = Powers::new(2);
        runs(&mut powers, &[1.0, 1.0], INSTANCES - 1);
        // One instance of four in which one takes a tenth longer.
        assert_eq!(runs(&mut powers, &[1.0, 0.9], 1), 0);
    }

    proptest! {
        #[test]
        fn powers_add_up_to_one(
            instances in prop::collection::vec(
                prop::collection::vec((0..10_000_000_u64, 0..10_000_u64), 5), 1..40),
        ) {
            let mut powers = Powers::new(5);
            for instance in instances {
                let measured: Vec<Measured> = instance
                    .into_iter()
                    .map(|(ns, iterations)| Measured { time: Nanos(ns), iterations })
                    .collect();
                powers.add(&measured);
                prop_assert!((powers.get().iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(powers.get().iter().all(|&p| p > 0.0));
            }
        }
    }
}
