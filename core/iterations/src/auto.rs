//! Which policy a region has where none is asked for: found by trying.
//!
//! ```text
//!   Static --some wait for the others--> rp-steal --no faster, it has changed, or a while--> Tries all --> Keeps the best --> ...
//!     ^--------------------------------------------- nobody waits any longer ------------------+
//! ```

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
/// What is tried where they do, in order; the first is what they had.
const ARMS: [Policy; 4] = [Policy::Static, Policy::RpSteal, Policy::Rp, Policy::Guided];
/// The same where data move from node to node: neither what whoever comes next takes, whose data would go with it each time, nor
/// `static`, which knows of no data. Equal powers are as good as that.
const BETWEEN_NODES: [Policy; 2] = [Policy::Rp, Policy::RpSteal];
/// What is kept where they do, before anything is tried: of a benchmark's kernels it is the best, or near it, for all.
const GUESS: usize = 1;
/// Another one than the one before has to be better by this part: a window says no more.
const BETTER: f64 = 0.05;
/// All are tried again after so many windows, the first time and at most.
const AGAIN: [u32; 2] = [32, 512];
/// They are tried at once where an iteration takes so much longer than it did, in two windows in succession.
const CHANGED: f64 = 1.3;

/// Since the best was found.
#[derive(Debug, Clone, Copy)]
struct Kept {
    windows: u32,
    /// The time of an iteration, on average; None before the first window.
    each: Option<f64>,
    /// The last window took longer than that.
    slower: bool,
}

/// Chooses by measurement.
#[derive(Debug, Clone)]
pub struct Auto {
    arms: &'static [Policy],
    arm: usize,
    /// For each that was tried, the time of an iteration in ns.
    tried: Vec<f64>,
    kept: Option<Kept>,
    again: u32,
    /// What an iteration took under `static`, which the guess has to be faster than in its first window.
    to_beat: Option<f64>,
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
        Self {
            arms: if of_one_node { &ARMS } else { &BETWEEN_NODES },
            arm: 0,
            tried: Vec::new(),
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
        if self.kept.is_none() && self.tried.is_empty() && self.before.is_none() {
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
        if self.instances >= INSTANCES && self.time >= LEAST || self.time >= LONG {
            self.window();
        }
    }

    fn window(&mut self) {
        let each = self.time.0 as f64 / self.iterations.max(1) as f64;
        let waits = self.waited > WAITED * self.whole;
        self.begin_window();
        match self.kept {
            // While nobody waits nothing is tried.
            None if self.tried.is_empty() && !waits => self.before = None,
            None if self.before.is_none() => {
                self.keep(GUESS, None);
                self.to_beat = Some(each);
            }
            None => {
                self.tried.push(each);
                self.arm = self.tried.len();
                if self.arm == self.arms.len() {
                    let best = self.best();
                    let is_new = self.before != Some(best);
                    self.again = if is_new { AGAIN[0] } else { (2 * self.again).min(AGAIN[1]) };
                    self.keep(best, Some(self.tried[best]));
                    self.tried.clear();
                }
            }
            Some(Kept { windows, each: then, slower }) => {
                let is_slower = then.is_some_and(|then| each > CHANGED * then);
                let is_wrong = |beat: f64| each > beat * (1.0 - BETTER);
                if self.to_beat.take().is_some_and(is_wrong)
                    || windows + 1 >= self.again
                    || is_slower && slower
                {
                    (self.kept, self.arm) = (None, 0);
                } else {
                    // What takes a little longer each time is no change.
                    let mean = then.map_or(each, |then| 0.75 * then + 0.25 * each);
                    let each = if is_slower { then } else { Some(mean) };
                    self.kept = Some(Kept { windows: windows + 1, each, slower: is_slower });
                }
            }
        }
    }

    fn begin_window(&mut self) {
        (self.instances, self.time, self.iterations) = (0, Nanos::ZERO, 0);
        (self.waited, self.whole) = (0.0, 0.0);
    }

    fn keep(&mut self, arm: usize, each: Option<f64>) {
        (self.arm, self.before) = (arm, Some(arm));
        self.kept = Some(Kept { windows: 0, each, slower: false });
    }

    fn best(&self) -> usize {
        let before = self.before.unwrap_or(GUESS);
        let time = |arm: usize| self.tried[arm] * if arm == before { 1.0 - BETTER } else { 1.0 };
        (0..self.tried.len()).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powers::Measured;

    /// Windows on two processors, of which one waits for this part of the time under `static`; each policy takes so long.
    fn passes(
        auto: &mut Auto,
        windows: u32,
        waits: f64,
        ms: impl Fn(Policy) -> u64,
    ) -> Vec<Policy> {
        let mut had = Vec::new();
        for _ in 0..windows * INSTANCES {
            let policy = auto.policy();
            let makespan = Nanos::from_millis(ms(policy));
            let waits = if policy == Policy::Static { waits } else { 0.0 };
            let of = |time| Measured { time, iterations: 500 };
            let measured = [of(makespan), of(makespan.scale(1.0 - 2.0 * waits))];
            auto.add(&Outcome { measured: &measured, makespan, carried_out: None });
            if had.last() != Some(&policy) {
                had.push(policy);
            }
        }
        had
    }

    #[test]
    fn it_is_static_while_nobody_waits() {
        let mut auto = Auto::new(true);
        assert_eq!(passes(&mut auto, 1_000, 0.02, |_| 20), [Policy::Static]);
    }

    #[test]
    fn the_fastest_is_kept_and_the_others_are_tried_ever_more_seldom() {
        let mut auto = Auto::new(true);
        let ms = |policy| match policy {
            Policy::Static => 40,
            Policy::Rp => 25,
            _ => 30,
        };
        assert_eq!(passes(&mut auto, 30, 0.3, ms), [Policy::Static, Policy::RpSteal]);
        let had = passes(&mut auto, 10, 0.3, ms);
        let tried = [Policy::RpSteal, Policy::Static, Policy::RpSteal, Policy::Rp, Policy::Guided];
        assert_eq!((&had[..5], had.last()), (&tried[..], Some(&Policy::Rp)));
        // In a thousand windows each of the others is tried a few times.
        let others =
            passes(&mut auto, 1_000, 0.3, ms).iter().filter(|p| **p == Policy::Static).count();
        assert!((1..=6).contains(&others), "{others}");
    }

    /// Would catch: a program of many loops and few steps, each of whose loops waits for four instances of its own.
    #[test]
    fn what_others_have_found_out_counts() {
        let mut auto = Auto::new(true);
        auto.hear();
        assert_eq!(auto.policy(), Policy::RpSteal);
        // What was tried here counts more.
        let mut auto = Auto::new(true);
        let ms = |policy| if policy == Policy::Rp { 25 } else { 40 };
        passes(&mut auto, 60, 0.3, ms);
        auto.hear();
        assert_eq!(auto.policy(), Policy::Rp);
    }

    /// Would catch: short loops in which stealing costs more than it gains, kept for two seconds.
    #[test]
    fn a_guess_that_is_no_faster_is_not_kept() {
        let mut auto = Auto::new(true);
        let ms = |policy| if policy == Policy::RpSteal { 26 } else { 20 };
        let had = passes(&mut auto, 12, 0.3, ms);
        let tried = [Policy::RpSteal, Policy::Static, Policy::RpSteal, Policy::Rp, Policy::Guided];
        assert_eq!((&had[1..6], had.last()), (&tried[..], Some(&Policy::Static)));
        assert_eq!(passes(&mut auto, 20, 0.3, ms), [Policy::Static]);
    }

    /// Would catch: a program of few long loops that is over when it is known how they are to be handed out.
    #[test]
    fn of_long_loops_one_says_enough() {
        let mut auto = Auto::new(true);
        let measured = [Nanos::from_millis(500), Nanos::from_millis(300)];
        let measured = measured.map(|time| Measured { time, iterations: 500 });
        auto.add(&Outcome { measured: &measured, makespan: measured[0].time, carried_out: None });
        assert_eq!(auto.policy(), Policy::RpSteal);
    }

    #[test]
    fn a_load_that_comes_or_goes_is_seen() {
        let mut auto = Auto::new(true);
        let ms = |policy| if policy == Policy::RpSteal { 30 } else { 40 };
        passes(&mut auto, 10, 0.3, ms);
        assert_eq!(auto.policy(), Policy::RpSteal);
        // The load is gone: nothing says so at once, as all are faster, and nobody waits.
        passes(&mut auto, AGAIN[0] + 8, 0.0, |_| 20);
        assert_eq!(auto.policy(), Policy::Static);
        assert_eq!(passes(&mut auto, 100, 0.0, |_| 20), [Policy::Static]);
        // And it is back, on the other one.
        assert_eq!(passes(&mut auto, 8, 0.3, ms), [Policy::Static, Policy::RpSteal]);
        // It becomes slower: so all are tried at once.
        passes(&mut auto, 6, 0.3, |policy| if policy == Policy::Rp { 45 } else { 60 });
        assert_eq!(auto.policy(), Policy::Rp);
    }
}
