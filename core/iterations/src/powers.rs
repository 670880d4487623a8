//! How fast each processor gets on, relative to the others (section 2.3, Figure 3).

use crate::tasks::TASKS_PER_PROCESSOR;
use evenly_model::Nanos;

/// A new division is due where powers have changed by more than this part.
const HYSTERESIS: f64 = 0.1;
/// It is due at once where one has changed by more than this part of an equal share, in two windows in succession.
const LARGE: f64 = 0.25;
/// Over so many instances, and so long, times are summed up: what happens once does not count, and a processor whose CPU is
/// shared has had several slices of the kernel.
const INSTANCES: u32 = 4;
const LEAST: Nanos = Nanos::from_millis(100);
/// Of long instances fewer will do, which together take so long.
const LONG: Nanos = Nanos::from_millis(400);
/// A window in which no region comes again is over then.
const LONGEST: Nanos = Nanos::from_millis(2_000);
/// A program that makes a region for each loop that it runs has none that comes again: so many say enough.
const REGIONS: usize = 64;
/// After each division the next one that is not large needs twice as many windows, and at most so many.
const PATIENCE: u32 = 32;

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

/// Work and time of each processor.
#[derive(Debug, Clone, PartialEq)]
struct Sums {
    /// In seconds of a processor of mean power.
    work: Vec<f64>,
    seconds: Vec<f64>,
    /// Half of an iteration of the last region.
    least: f64,
}

impl Sums {
    fn new(processors: usize) -> Self {
        Self { work: vec![0.0; processors], seconds: vec![0.0; processors], least: 0.0 }
    }

    /// `powers` are those of now: by them a region in which few take part says nothing of how fast these are beside the others.
    fn add(&mut self, measured: &[Measured], powers: &[f64]) {
        let of = |m: &Measured, power: &f64| power * m.time.as_secs_f64();
        let worked: f64 = measured.iter().zip(powers).map(|(m, power)| of(m, power)).sum();
        let took = measured.iter().filter(|m| m.time > Nanos::ZERO);
        let iterations: u64 = took.map(|m| m.iterations).sum();
        if iterations == 0 {
            return;
        }
        let each = powers.len() as f64 * worked / iterations as f64;
        for (p, m) in measured.iter().enumerate().filter(|(_, m)| m.time > Nanos::ZERO) {
            self.work[p] += m.iterations as f64 * each;
            self.seconds[p] += m.time.as_secs_f64();
        }
        self.least = 0.5 * each;
    }

    fn merge(&mut self, other: &Self) {
        self.work.iter_mut().zip(&other.work).for_each(|(sum, more)| *sum += more);
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(sum, more)| *sum += more);
        self.least = other.least;
    }

    /// Powers where they were `before`.
    fn powers(&self, before: &[f64]) -> Vec<f64> {
        let done = self.work.iter().zip(&self.seconds);
        // Whoever was kept from all that it had to do is slower than if it had done half of an iteration.
        let rates = done.map(|(work, s)| (*s > 0.0).then(|| work.max(self.least) / s));
        let rates: Vec<Option<f64>> = rates.collect();
        let known = || rates.iter().zip(before).filter_map(|(rate, p)| Some(((*rate)?, p)));
        let (rate, power) = known().fold((0.0, 0.0), |(r, p), (rate, power)| (r + rate, p + power));
        if power <= 0.0 {
            return before.to_vec();
        }
        // Whoever had nothing to do is as fast as before, relative to the others. It may have become faster, and so is given a
        // task at least, by which that is seen.
        let a_task = a_task(before.len());
        let tried = |p: f64| p.max(a_task) * rate / power;
        let new = rates.iter().zip(before).map(|(rate, &p)| rate.unwrap_or_else(|| tried(p)));
        let powers = normalized(new.collect());
        if powers.iter().all(|p| p.is_finite()) { powers } else { before.to_vec() }
    }
}

/// The relative power of each processor: the part of all work that it does in the same time as the others theirs. They add up
/// to 1.
///
/// The paper's `RP[i] = (RP[i] / TaskTime[i]) / sum` is right where each processor has carried out its share, `RP[i]` of all
/// iterations. Where tasks are stolen it has carried out others, and all finish at the same time, which would say nothing.
/// So what it carried out stands in place of `RP[i]`: without stealing that is the same, but for whole tasks. Iterations are a
/// measure of work where all have the same load, or are dealt out in turn.
///
/// As in the paper there is one power for all regions of a program, and times are summed up over several of them: regions
/// that use the same arrays would move them to and fro if each had its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Powers {
    powers: Vec<f64>,
    /// How often they have changed.
    changes: u64,
    /// In this window, in the one before it, and in all since they were last looked at.
    window: Sums,
    last: Sums,
    all: Sums,
    instances: u32,
    time: Nanos,
    /// Regions of this window, until one has come twice.
    regions: Vec<u32>,
    /// That one: after it all of them have been counted about equally often.
    anchor: Option<u32>,
    windows: u32,
    patience: u32,
}

impl Powers {
    /// All are the same.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        Self {
            powers: vec![1.0 / processors.max(1) as f64; processors],
            changes: 0,
            window: Sums::new(processors),
            last: Sums::new(processors),
            all: Sums::new(processors),
            instances: 0,
            time: Nanos::ZERO,
            regions: Vec::new(),
            anchor: None,
            windows: 0,
            patience: 1,
        }
    }

    /// By processor, as iterations are to be divided.
    #[must_use]
    pub fn get(&self) -> &[f64] {
        &self.powers
    }

    /// Whether a division by them would differ from one into equal shares.
    #[must_use]
    pub fn are_unequal(&self) -> bool {
        let equal = 1.0 / self.powers.len().max(1) as f64;
        self.powers.iter().any(|power| (power - equal).abs() > HYSTERESIS * equal)
    }

    /// How often they have changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes in what each processor did in one more instance of this region. Whether powers have changed.
    ///
    /// # Panics
    /// If that is not as many processors as there are.
    pub fn add(&mut self, region: u32, measured: &[Measured]) -> bool {
        assert_eq!(measured.len(), self.powers.len(), "one for each processor");
        self.window.add(measured, &self.powers);
        self.instances += 1;
        let time = measured.iter().map(|m| m.time).max().unwrap_or_default();
        self.time += time;
        let comes_again = self.regions.len() >= REGIONS || self.regions.contains(&region);
        if self.anchor.is_none() && comes_again {
            self.anchor = Some(region);
        } else if self.anchor.is_none() {
            self.regions.push(region);
        }
        // What is most of the window says enough by itself, too.
        let is_most = Nanos(2 * time.0) > self.time;
        let is_whole = self.anchor == Some(region) && self.instances >= INSTANCES;
        let is_enough =
            is_whole && self.time >= LEAST || is_most && self.time >= LONG || self.time >= LONGEST;
        is_enough && self.update()
    }

    /// At the end of a window.
    fn update(&mut self) -> bool {
        let window = std::mem::replace(&mut self.window, Sums::new(self.powers.len()));
        (self.instances, self.time, self.anchor) = (0, Nanos::ZERO, None);
        self.regions.clear();
        self.windows += 1;
        self.all.merge(&window);
        let before = std::mem::replace(&mut self.last, window);
        // What was measured before the change says nothing of the time after it.
        let is_large = self.windows > 1 && self.has_changed_twice(&before);
        let (powers, patience) = if is_large {
            (self.last.powers(&self.powers), 1)
        } else if self.windows >= self.patience {
            (self.all.powers(&self.powers), (2 * self.patience).min(PATIENCE))
        } else {
            return false;
        };
        (self.all, self.windows) = (Sums::new(self.powers.len()), 0);
        let changed = self.differ(&powers);
        if changed {
            (self.powers, self.patience) = (powers, patience);
            self.changes += 1;
        }
        changed
    }

    /// Whether a processor is much faster or much slower in both of the last two windows: in one it may have had its CPU for a
    /// slice more or less.
    fn has_changed_twice(&self, before: &Sums) -> bool {
        let by = |sums: &Sums| {
            let now = sums.powers(&self.powers).into_iter();
            let by = now.zip(&self.powers).map(|(now, power)| now - power);
            by.map(|by| by * self.powers.len() as f64).collect::<Vec<f64>>()
        };
        let both = by(before).into_iter().zip(by(&self.last));
        both.into_iter().any(|(a, b)| a.min(b) > LARGE || a.max(b) < -LARGE)
    }

    /// By how much one of them has changed at most, in parts of an equal share.
    fn furthest(&self, powers: &[f64]) -> f64 {
        let by = powers.iter().zip(&self.powers).map(|(now, before)| (now - before).abs());
        by.fold(0.0, f64::max) * self.powers.len() as f64
    }

    /// The paper's test is that the largest and the smallest power differ by a tenth more or less than before. It does not see a
    /// load that goes from one processor to another, so that each power counts as well, by a tenth of an equal share. Whoever is
    /// given a task again counts in any case.
    fn differ(&self, powers: &[f64]) -> bool {
        let spread = |of: &[f64]| {
            let (low, high) =
                of.iter().fold((f64::MAX, 0.0_f64), |(l, h), &p| (l.min(p), h.max(p)));
            (high - low).max(0.0)
        };
        let equal = 1.0 / self.powers.len().max(1) as f64;
        let [now, before] = [spread(powers), spread(&self.powers)];
        let has_one = |power: f64| power > 0.9 * a_task(self.powers.len());
        let comes_back = |(now, before): (&f64, &f64)| has_one(*now) && !has_one(*before);
        (now - before).abs() > HYSTERESIS * before.max(equal)
            || self.furthest(powers) > HYSTERESIS
            || powers.iter().zip(&self.powers).any(comes_back)
    }
}

/// The power of whoever is given one task.
fn a_task(processors: usize) -> f64 {
    1.1 / (processors as f64 * TASKS_PER_PROCESSOR as f64)
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
            let measured: Vec<Measured> = (powers.get().iter().zip(speeds))
                .map(|(share, speed)| Measured {
                    time: Nanos((share * WORK * 200.0 / speed) as u64),
                    iterations: (share * WORK) as u64,
                })
                .collect();
            divided += u32::from(powers.add(0, &measured));
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

    /// Section 2.3: `RP[i] = (RP[i] / TaskTime[i]) / sum_j (RP[j] / TaskTime[j])`, by hand.
    #[test]
    fn powers_follow_the_formula_of_the_paper() {
        let mut powers = Powers::new(3);
        let mut learn = |iterations: [u64; 3], times_ms: [u64; 3]| {
            let one = |(&iterations, &ms)| Measured { time: Nanos::from_millis(ms), iterations };
            let measured: Vec<Measured> = iterations.iter().zip(&times_ms).map(one).collect();
            assert!((0..200).any(|_| powers.add(0, &measured)));
            powers.get().to_vec()
        };
        let near = |powers: &[f64], expected: [f64; 3]| {
            powers.iter().zip(expected).all(|(p, e)| (p - e).abs() < 1e-9)
        };
        // (1/3)/10 : (1/3)/20 : (1/3)/40.
        let first = learn([700; 3], [10, 20, 40]);
        assert!(near(&first, [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]), "{first:?}");
        // (4/7)/20 : (2/7)/10 : (1/7)/40.
        let second = learn([400, 200, 100], [20, 10, 40]);
        assert!(near(&second, [8.0 / 17.0, 8.0 / 17.0, 1.0 / 17.0]), "{second:?}");
    }

    /// Would catch: the paper's test alone, for which nothing has changed.
    #[test]
    fn a_load_that_goes_to_another_processor_is_seen() {
        let mut powers = Powers::new(2);
        runs(&mut powers, &[1.0, 0.5], 8);
        assert!(about(&powers, &[2.0 / 3.0, 1.0 / 3.0]));
        // In the first window and the second, or a little later if the first has both in it.
        assert!((1..=2).contains(&runs(&mut powers, &[0.5, 1.0], 12)));
        assert!(about(&powers, &[1.0 / 3.0, 2.0 / 3.0]), "{powers:?}");
    }

    /// Would catch: powers by time alone, which say that all are the same where tasks are stolen.
    #[test]
    fn what_was_stolen_counts_for_the_thief() {
        let mut powers = Powers::new(2);
        let of = |iterations| Measured { time: Nanos::from_millis(30), iterations };
        let divided = (0..INSTANCES).any(|_| powers.add(0, &[of(2_000), of(1_000)]));
        assert!(divided && about(&powers, &[2.0 / 3.0, 1.0 / 3.0]), "{powers:?}");
    }

    #[test]
    fn whoever_has_nothing_to_do_keeps_its_power_relative_to_the_others() {
        let mut powers = Powers::new(3);
        let of = |ms, iterations| Measured { time: Nanos::from_millis(ms), iterations };
        for _ in 0..INSTANCES {
            powers.add(0, &[of(100, 100), of(200, 100), Measured::default()]);
        }
        let [fast, slow, unknown] = powers.get() else { panic!("three") };
        assert!((fast / slow - 2.0).abs() < 1e-9 && unknown < fast && unknown > slow, "{powers:?}");
        // One of little power that has nothing to do is given a task, and so comes back.
        let mut powers = Powers::new(2);
        for _ in 0..4 {
            runs(&mut powers, &[1.0, 0.01], INSTANCES);
        }
        assert!(powers.get()[1] < 0.011);
        (0..6 * INSTANCES).for_each(|_| _ = powers.add(0, &[of(100, 100), Measured::default()]));
        let tasks = powers.get()[1] * 2.0 * TASKS_PER_PROCESSOR as f64;
        assert!((0.9..1.2).contains(&tasks), "{powers:?}");
        (0..4 * INSTANCES).for_each(|_| _ = powers.add(0, &[of(100, 31), of(3, 1)]));
        assert!(powers.get()[1] > 0.4, "{powers:?}");
        // Would catch: a processor whose CPU is taken, and whose tasks are all stolen, that keeps its share.
        let mut powers = Powers::new(2);
        assert!((0..INSTANCES).any(|_| powers.add(0, &[of(100, 100), of(100, 0)])));
        assert!(powers.get()[1] < 0.01 && powers.get()[1] > 0.0, "{powers:?}");
        // Nobody had anything to do.
        assert!(!powers.clone().add(0, &[Measured::default(); 2]));
    }

    /// Would catch: a processor that seems fast because it alone has something to do in some loops.
    #[test]
    fn loops_for_few_say_nothing_of_the_others() {
        for (speeds, expected) in [
            ([1.0; 4], [0.25; 4]),
            ([1.0, 0.5, 0.5, 1.0], [1.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 3.0]),
        ] {
            let mut powers = Powers::new(4);
            for _ in 0..400 {
                runs(&mut powers, &speeds, 1);
                let mut alone = [Measured::default(); 4];
                alone[0] = Measured { time: Nanos::from_millis(10), iterations: 1 };
                powers.add(1, &alone);
            }
            let near = |(p, e): (&f64, &f64)| (p - e).abs() < 0.02;
            assert!(powers.get().iter().zip(&expected).all(near), "{powers:?}");
            assert_eq!(powers.are_unequal(), expected[0] != expected[1]);
        }
    }

    /// Would catch: powers by the loops that happen to be in a window, of which some wait for memory.
    #[test]
    fn a_window_has_all_regions_of_a_program() {
        let mut powers = Powers::new(2);
        let ms = Nanos::from_millis;
        let of = |times: [u64; 2]| times.map(|t| Measured { time: ms(t), iterations: 100 });
        for _ in 0..200 {
            // The first computes, with equal powers; five wait for memory, which is nearer to one of both.
            powers.add(1, &of([300, 300]));
            (2..7).for_each(|region| _ = powers.add(region, &of([2, 4])));
        }
        assert!(about(&powers, &[0.5, 0.5]), "{powers:?}");
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
            divided += u32::from(powers.add(0, &[of(1_000), of(slow)]));
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
                powers.add(0, &measured);
                prop_assert!((powers.get().iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(powers.get().iter().all(|&p| p > 0.0));
            }
        }
    }
}
