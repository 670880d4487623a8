//! Which policy a region has where none is asked for: found by trying.
//!
//! ```text
//!   Rests --some wait for the others--> static-steal --slower, it has changed, or a while--> Tries all --> Keeps the best --> ...
//!     ^----------------------------------------------- nobody waits any longer --------------------+
//! ```
//!
//! At rest it is `static-steal` as well: where nobody is late that is `static`, and where somebody is nothing has to be found out
//! first. Loops that are so short that to look for tasks of others would show are `static` while nobody waits.
//!
//! Beside a load two windows of one policy differ by a third: the kernel's slices do. So what is kept goes on until another policy
//! was faster over three rounds of windows in turn, and whoever is slower after a round is in no further one.

use crate::plan::Outcome;
use crate::policy::Policy;
use evenly_model::Nanos;

/// A window is of so many instances, and so long: the shares of a CPU that is shared follow several slices of the kernel. Of long
/// instances fewer will do, which together take LONG.
const INSTANCES: u32 = 4;
const LEAST: Nanos = Nanos::from_millis(60);
const LONG: Nanos = Nanos::from_millis(240);
/// No other policy is tried while processors wait for each other for less than this part of the time.
const WAITED: f64 = 0.03;
/// At rest a window is over when it is half as long, if they wait for more than this part.
const MUCH: f64 = 0.1;
/// Shorter ones are `static` at rest, on average: to take tasks one by one, and to look for those of others, is some hundred ns.
const SHORT: Nanos = Nanos::from_micros(100);
/// What is tried where they do, in order; the first is that of short loops at rest.
const ARMS: [Policy; 5] =
    [Policy::Static, Policy::StaticSteal, Policy::RpSteal, Policy::Rp, Policy::Guided];
/// The same where data move from node to node: neither what whoever comes next takes, whose data would go with it each time, nor
/// `static`, which knows of no data. Equal powers are as good as that.
const BETWEEN_NODES: [Policy; 2] = [Policy::Rp, Policy::RpSteal];
/// What is kept where they do, before anything is tried: of a benchmark's kernels it is the best, or near it, for all.
const GUESS: usize = 1;
/// All are tried at once if the guess takes so much longer than what it had at rest, in so many windows together.
const WORSE: f64 = 1.1;
const JUDGED: u32 = 3;
/// Another one than the one before has to be better by this part, over so many rounds: single windows say less.
const BETTER: f64 = 0.05;
const ROUNDS: u32 = 3;
/// All are tried again after so many windows, the first time and at most.
const AGAIN: [u32; 2] = [32, 512];
/// They are tried at once where an iteration takes so much longer than it did, in so many windows in succession.
const CHANGED: f64 = 1.3;
const SLOWER: u32 = 3;

/// Since the best was found.
#[derive(Debug, Clone, Copy)]
struct Kept {
    windows: u32,
    /// The time of an iteration, on average; None before the first window.
    each: Option<f64>,
    /// So many of the last windows took longer than that.
    slower: u32,
}

/// What is compared.
#[derive(Debug, Clone)]
struct Trial {
    /// Of each that is left, the time of an iteration in ns, summed up over rounds.
    left: Vec<(usize, f64)>,
    /// Its place in this round.
    place: usize,
    /// Rounds that have ended.
    rounds: u32,
}

/// Chooses by measurement.
#[derive(Debug, Clone)]
pub struct Auto {
    arms: &'static [Policy],
    arm: usize,
    trial: Option<Trial>,
    kept: Option<Kept>,
    again: u32,
    /// What an iteration took by another policy at rest, and what it took in each window of the guess, summed up.
    to_beat: Option<(f64, f64)>,
    /// The best of the time before; None where nothing was tried.
    before: Option<usize>,
    instances: u32,
    time: Nanos,
    iterations: u64,
    /// Of all processors, the time from their own finish to the end of all.
    waited: f64,
    whole: f64,
}

impl Auto {
    /// Nothing is known of the region.
    #[must_use]
    pub fn new(of_one_node: bool) -> Self {
        let (arms, arm): (&[Policy], _) =
            if of_one_node { (&ARMS, GUESS) } else { (&BETWEEN_NODES, 0) };
        Self {
            arms,
            arm,
            trial: None,
            kept: None,
            again: AGAIN[0],
            to_beat: None,
            before: None,
            instances: 0,
            time: Nanos::ZERO,
            iterations: 0,
            waited: 0.0,
            whole: 0.0,
        }
    }

    /// What the next instance is handed out by.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.arms[self.arm]
    }

    /// Other loops of the program have shown that its processors are not equally fast, which holds for this one as well: it need
    /// not find that out.
    pub fn hear(&mut self) {
        if self.kept.is_none() && self.trial.is_none() && self.before.is_none() {
            self.keep(GUESS, None);
            self.begin_window();
        }
    }

    /// Learns from an instance that was handed out so.
    pub fn add(&mut self, outcome: &Outcome<'_>) {
        self.instances += 1;
        self.time += outcome.makespan;
        for measured in outcome.measured {
            self.iterations += measured.iterations;
            self.waited += (outcome.makespan - measured.time).as_secs_f64();
            self.whole += outcome.makespan.as_secs_f64();
        }
        let rests = self.kept.is_none() && self.trial.is_none();
        if rests && self.instances >= INSTANCES && self.changes_at_rest() {
            return;
        }
        let waits_much = rests && self.waits(MUCH);
        let parts = if waits_much { 2 } else { 1 };
        let time = Nanos(self.time.0.saturating_mul(parts));
        if self.instances >= INSTANCES && time >= LEAST || time >= LONG {
            self.window();
        }
    }

    /// Whether instances have become so short, or so long, that another policy is right while nobody waits.
    fn changes_at_rest(&mut self) -> bool {
        if self.arms[0] != Policy::Static {
            return false;
        }
        let each = Nanos(self.time.0 / u64::from(self.instances));
        let is_other = if self.arm == 0 { each > Nanos(2 * SHORT.0) } else { each < SHORT };
        if is_other {
            self.arm = if self.arm == 0 { GUESS } else { 0 };
            self.begin_window();
        }
        is_other
    }

    /// Whether processors have waited for more than this part of the window.
    fn waits(&self, part: f64) -> bool {
        self.waited > part * self.whole
    }

    fn window(&mut self) {
        let each = self.time.0 as f64 / self.iterations.max(1) as f64;
        let waits = self.waits(WAITED);
        self.begin_window();
        if let Some(kept) = self.kept {
            self.goes_on(kept, each);
        } else if let Some(mut trial) = self.trial.take() {
            // While nobody waits nothing is tried.
            if waits || trial.rounds > 0 || self.arm > 0 {
                trial.left[trial.place].1 += each;
                trial.place += 1;
                self.next_of(trial);
            } else {
                self.before = None;
            }
        } else if waits {
            let is_other = self.arm != GUESS;
            self.keep(GUESS, None);
            self.to_beat = is_other.then_some((each, 0.0));
        }
    }

    /// After a window of what is kept.
    fn goes_on(&mut self, kept: Kept, each: f64) {
        let windows = kept.windows + 1;
        if let Some((_, sum)) = &mut self.to_beat {
            *sum += each;
        }
        let judged = self.to_beat.take_if(|_| windows >= JUDGED);
        let is_wrong = |(beat, sum): (f64, f64)| sum > WORSE * beat * f64::from(windows);
        let is_slower = kept.each.is_some_and(|then| each > CHANGED * then);
        let slower = if is_slower { kept.slower + 1 } else { 0 };
        if judged.is_some_and(is_wrong) || windows >= self.again || slower >= SLOWER {
            let left = (0..self.arms.len()).map(|arm| (arm, 0.0)).collect();
            (self.kept, self.to_beat) = (None, None);
            self.next_of(Trial { left, place: 0, rounds: 0 });
        } else {
            // What takes a little longer each time is no change.
            let mean = kept.each.map_or(each, |then| 0.75 * then + 0.25 * each);
            let each = if is_slower { kept.each } else { Some(mean) };
            self.kept = Some(Kept { windows, each, slower });
        }
    }

    /// Goes on with the next policy of a trial, or ends it.
    fn next_of(&mut self, mut trial: Trial) {
        if trial.place == trial.left.len() {
            (trial.place, trial.rounds) = (0, trial.rounds + 1);
            let before = self.before.unwrap_or(GUESS);
            let own = trial.left.iter().find(|(arm, _)| *arm == before).map_or(f64::MAX, |a| a.1);
            trial.left.retain(|(arm, sum)| *arm == before || *sum < own);
            if trial.left.len() == 1 || trial.rounds == ROUNDS {
                let time = |(arm, sum): (usize, f64)| {
                    if arm == before { sum * (1.0 - BETTER) } else { sum }
                };
                let best = trial.left.iter().min_by(|a, b| time(**a).total_cmp(&time(**b)));
                let (best, sum) = best.copied().unwrap_or((before, own));
                let is_new = self.before != Some(best);
                self.again = if is_new { AGAIN[0] } else { (2 * self.again).min(AGAIN[1]) };
                self.keep(best, Some(sum / f64::from(trial.rounds)));
                return;
            }
        }
        self.arm = trial.left[trial.place].0;
        self.trial = Some(trial);
    }

    fn begin_window(&mut self) {
        (self.instances, self.time, self.iterations) = (0, Nanos::ZERO, 0);
        (self.waited, self.whole) = (0.0, 0.0);
    }

    fn keep(&mut self, arm: usize, each: Option<f64>) {
        (self.arm, self.before) = (arm, Some(arm));
        self.kept = Some(Kept { windows: 0, each, slower: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powers::Measured;

    /// Windows on two processors, of which one waits for this part of the time at rest; each policy takes so long.
    fn passes(
        auto: &mut Auto,
        windows: u32,
        waits: f64,
        us: impl Fn(Policy) -> u64,
    ) -> Vec<Policy> {
        let mut had = Vec::new();
        for _ in 0..windows {
            let mut left = (LEAST.0 / 1_000).max(u64::from(INSTANCES) * us(auto.policy()));
            while left > 0 {
                let policy = auto.policy();
                let makespan = Nanos::from_micros(us(policy));
                let at_rest = matches!(policy, Policy::Static | Policy::StaticSteal);
                let waits = if at_rest { waits } else { 0.0 };
                let of = |time| Measured { time, iterations: 500 };
                let measured = [of(makespan), of(makespan.scale(1.0 - 2.0 * waits))];
                auto.add(&Outcome { measured: &measured, makespan, carried_out: None });
                if had.last() != Some(&policy) {
                    had.push(policy);
                }
                left = left.saturating_sub(makespan.0 / 1_000);
            }
        }
        had
    }

    const TRIED: [Policy; 5] =
        [Policy::Static, Policy::StaticSteal, Policy::RpSteal, Policy::Rp, Policy::Guided];

    /// Would catch: a program that runs for a second beside a load, half of which it takes to find out that somebody waits.
    #[test]
    fn at_rest_nobody_waits_for_whoever_is_late() {
        let mut auto = Auto::new(true);
        assert_eq!(auto.policy(), Policy::StaticSteal);
        assert_eq!(passes(&mut auto, 1_000, 0.02, |_| 20_000), [Policy::StaticSteal]);
        assert_eq!(Auto::new(false).policy(), Policy::Rp);
    }

    /// Would catch: loops of a few us in which each thread looks for tasks of the others; a policy that changes with each loop where
    /// lengths are about the limit.
    #[test]
    fn short_loops_are_static_while_nobody_waits() {
        let mut auto = Auto::new(true);
        passes(&mut auto, 1, 0.0, |_| 2);
        assert_eq!(auto.policy(), Policy::Static);
        assert_eq!(passes(&mut auto, 100, 0.02, |_| 190), [Policy::Static]);
        assert_eq!(passes(&mut auto, 1, 0.02, |_| 210), [Policy::Static, Policy::StaticSteal]);
        assert_eq!(passes(&mut auto, 100, 0.02, |_| 110), [Policy::StaticSteal]);
        assert_eq!(passes(&mut auto, 1, 0.02, |_| 90), [Policy::StaticSteal, Policy::Static]);
        assert_eq!(passes(&mut auto, 8, 0.3, |_| 90), [Policy::Static, Policy::StaticSteal]);
    }

    #[test]
    fn the_fastest_is_kept_and_the_others_are_tried_ever_more_seldom() {
        let mut auto = Auto::new(true);
        let us = |policy| match policy {
            Policy::Static => 40_000,
            Policy::Rp => 25_000,
            _ => 30_000,
        };
        assert_eq!(passes(&mut auto, 30, 0.3, us), [Policy::StaticSteal]);
        let had = passes(&mut auto, 17, 0.3, us);
        // Only what is faster than before is in further rounds.
        let rounds = [[Policy::StaticSteal, Policy::Rp]; 2].concat();
        assert_eq!((&had[1..6], &had[6..]), (&TRIED[..], &rounds[..]));
        assert_eq!(auto.policy(), Policy::Rp);
        // In a thousand windows each of the others is tried a few times.
        let others =
            passes(&mut auto, 1_000, 0.3, us).iter().filter(|p| **p == Policy::Static).count();
        assert!((1..=6).contains(&others), "{others}");
    }

    /// Would catch: a program of many loops and few steps, each of whose loops waits for four instances of its own.
    #[test]
    fn what_others_have_found_out_counts() {
        let mut auto = Auto::new(true);
        passes(&mut auto, 1, 0.0, |_| 90);
        assert_eq!(auto.policy(), Policy::Static);
        auto.hear();
        assert_eq!(auto.policy(), Policy::StaticSteal);
        // What was tried here counts more.
        let mut auto = Auto::new(true);
        let us = |policy| if policy == Policy::Rp { 25_000 } else { 40_000 };
        passes(&mut auto, 60, 0.3, us);
        auto.hear();
        assert_eq!(auto.policy(), Policy::Rp);
    }

    /// Would catch: short loops in which stealing costs more than it gains, kept for two seconds.
    #[test]
    fn a_guess_that_is_no_faster_is_not_kept() {
        let mut auto = Auto::new(true);
        let us = |policy| if policy == Policy::StaticSteal { 90 } else { 70 };
        let had = passes(&mut auto, 28, 0.3, us);
        assert_eq!((&had[3..8], had.last()), (&TRIED[..], Some(&Policy::Static)));
        assert_eq!(passes(&mut auto, 20, 0.3, us), [Policy::Static]);
    }

    /// Would catch: a program of few long loops that is over when it is known how they are to be handed out.
    #[test]
    fn of_long_loops_one_says_enough() {
        let mut auto = Auto::new(true);
        let measured = [Nanos::from_millis(500), Nanos::from_millis(300)];
        let measured = measured.map(|time| Measured { time, iterations: 500 });
        auto.add(&Outcome { measured: &measured, makespan: measured[0].time, carried_out: None });
        assert!(auto.kept.is_some());
    }

    /// Windows differ by a third to each side, as beside a load. Would catch: a policy of which one window was the best by chance,
    /// and which is kept for two seconds.
    #[test]
    fn a_window_that_is_slow_by_chance_changes_little() {
        let (mut windows, mut guessed) = (0, 0);
        for seed in 0..200_u64 {
            let (mut auto, mut random) = (Auto::new(true), seed);
            for _ in 0..16 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
                let factor = 0.67 + 0.66 * ((random >> 40) as f64 / (1 << 24) as f64);
                let us = |policy| if policy == Policy::StaticSteal { 40e3 } else { 50e3 } * factor;
                guessed += u32::from(auto.policy() == Policy::StaticSteal);
                windows += 1;
                passes(&mut auto, 1, 0.2, |policy| us(policy) as u64);
            }
        }
        let part = f64::from(guessed) / f64::from(windows);
        assert!(part > 0.85, "{part}");
    }

    /// Would catch: a second instance, of a quarter of a second each, that waits as the first did.
    #[test]
    fn who_waits_much_says_so_sooner() {
        let add = |auto: &mut Auto, ms, other| {
            let measured =
                [ms, other].map(|ms| Measured { time: Nanos::from_millis(ms), iterations: 500 });
            auto.add(&Outcome {
                measured: &measured,
                makespan: measured[0].time,
                carried_out: None,
            });
            auto.kept.is_some()
        };
        assert!(add(&mut Auto::new(true), 130, 80));
        assert!(!add(&mut Auto::new(true), 130, 120));
        let mut auto = Auto::new(true);
        let known: Vec<_> = (0..4).map(|_| add(&mut auto, 8, 5)).collect();
        assert_eq!(known, [false, false, false, true]);
    }

    #[test]
    fn a_load_that_comes_or_goes_is_seen() {
        let mut auto = Auto::new(true);
        let us = |policy| if policy == Policy::StaticSteal { 30_000 } else { 40_000 };
        passes(&mut auto, 10, 0.3, us);
        assert!(auto.kept.is_some());
        // The load is gone: nothing says so at once, as all are faster, and nobody waits.
        passes(&mut auto, AGAIN[0] + 8, 0.0, |_| 20_000);
        assert!(auto.kept.is_none() && auto.policy() == Policy::StaticSteal);
        assert_eq!(passes(&mut auto, 100, 0.0, |_| 20_000), [Policy::StaticSteal]);
        // And it is back, on the other one.
        passes(&mut auto, 8, 0.3, us);
        assert!(auto.kept.is_some());
        // It becomes slower: so all are tried at once.
        passes(&mut auto, 20, 0.3, |policy| if policy == Policy::Rp { 45_000 } else { 60_000 });
        assert_eq!(auto.policy(), Policy::Rp);
    }
}
