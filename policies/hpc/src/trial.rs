//! Whether parts of CPUs do what they should, by trying: `hpc-auto` keeps those with which most is computed.
//!
//! In theory no parts are better than those in proportion to work, as none waits then. That leaves out what is
//! done between iterations. At many barriers one thread is woken when all are there and wakes the others: where it
//! is one of little work, and so has little of its CPU, all others wait until it has its turn. (Seen with libomp:
//! 0.8 to 1.0 times the kernel's speed with such parts, and 1.1 to 1.2 with even ones.) How much that is no
//! counter shows before; so where CPUs do not compute as much as they could, other parts are tried for some
//! rounds, and kept where more is computed then.
//!
//! What is compared is how long it takes until so much has been computed, not how long iterations take:
//! balancing points come somewhere in iterations, and work may change a little. What is tried is compared with
//! the rounds before and with some after it, so that others on the machine do not decide.
//!
//! Invariants: nothing is tried where there is less than [`LOSS`] to gain, nor before work has been the same for
//! as many rounds as its mean is taken over, nor even parts where they take longer in theory than what is seen;
//! what is clearly worse is left after one round; what was tried in vain is tried again after twice as long.

/// How weights are made of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    /// Parts in proportion to what threads compute.
    Work,
    /// The same, but none has more than twice another's, which is what HPCSched's priorities come to.
    Damped,
    /// The same part for every thread.
    Even,
}

impl Arm {
    /// What is tried instead, in turn.
    fn others(self) -> [Self; 2] {
        match self {
            Self::Work => [Self::Damped, Self::Even],
            Self::Damped => [Self::Work, Self::Even],
            Self::Even => [Self::Damped, Self::Work],
        }
    }
}

/// What the fullest CPU must leave for something to be tried.
const LOSS: f64 = 0.04;
/// What must be gained to keep what is tried, and what is clearly worse.
const GAIN: f64 = 0.02;
const WORSE: f64 = 1.15;
/// Rounds of which what is tried is judged, and seconds.
const JUDGED: u32 = 4;
const JUDGED_S: f64 = 0.05;
/// Rounds until something is tried first, and at most.
const FIRST: u32 = 16;
const LAST: u32 = 1 << 12;

/// A round that is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Done {
    pub(super) elapsed_s: f64,
    /// CPU time in which all threads computed, and those on the CPU on which that was most.
    pub(super) computed_s: f64,
    pub(super) fullest_s: f64,
}

/// Rounds with the same parts.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    rounds: u32,
    elapsed_s: f64,
    computed_s: f64,
    fullest_s: f64,
}

impl Block {
    fn add(&mut self, done: Done) {
        self.rounds += 1;
        self.elapsed_s += done.elapsed_s;
        self.computed_s += done.computed_s;
        self.fullest_s += done.fullest_s;
    }

    /// Seconds for one that is computed.
    fn cost(&self) -> f64 {
        self.elapsed_s / self.computed_s.max(f64::MIN_POSITIVE)
    }

    fn is_enough(&self) -> bool {
        self.rounds >= JUDGED && self.elapsed_s >= JUDGED_S
    }

    fn loses(&self) -> bool {
        self.fullest_s < (1.0 - LOSS) * self.elapsed_s
    }
}

/// Something is tried, or what was had before is looked at once more.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    arm: Arm,
    /// Costs of what was had before, and of what is tried, once known.
    before: f64,
    tried: Option<f64>,
    /// Since the round in which parts were changed, which counts for nothing.
    block: Option<Block>,
}

/// What is had, and what is tried.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    /// As was found by trying; none where nothing was found that way.
    kept: Option<Arm>,
    attempt: Option<Attempt>,
    /// Since something was tried last, or work changed.
    rest: Block,
    patience: u32,
    /// Which of the others is the next.
    next: usize,
}

impl Trial {
    pub(super) fn new() -> Self {
        Self { kept: None, attempt: None, rest: Block::default(), patience: FIRST, next: 0 }
    }

    /// What is to be had now. `usual` where nothing is known of this program.
    pub(super) fn arm(&self, usual: Arm) -> Arm {
        match self.attempt {
            Some(a) if a.tried.is_none() => a.arm,
            _ => self.kept.unwrap_or(usual),
        }
    }

    /// Work or places have changed: what is tried now cannot be compared. What was kept stays, as it is a matter
    /// of how threads wait.
    pub(super) fn interrupt(&mut self) {
        self.attempt = None;
        self.rest = Block::default();
    }

    /// Threads wait in another way: nothing is known of that.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }

    /// A round is over, of the same work as before. `may_gain` says of an arm whether it makes other parts than
    /// threads have, with which a round may be shorter than so many seconds.
    pub(super) fn round(&mut self, done: Done, usual: Arm, may_gain: impl Fn(Arm, f64) -> bool) {
        let Some(attempt) = &mut self.attempt else {
            self.rest.add(done);
            if self.rest.rounds >= self.patience && self.rest.loses() {
                self.begin(usual, may_gain);
            }
            return;
        };
        let Some(block) = &mut attempt.block else {
            attempt.block = Some(Block::default());
            return;
        };
        block.add(done);
        let cost = block.cost();
        let Some(tried) = attempt.tried else {
            let is_worse = cost > WORSE * attempt.before;
            if !is_worse && !block.is_enough() {
                return;
            }
            if cost > attempt.before * (1.0 - GAIN) {
                self.reject();
            } else {
                (attempt.tried, attempt.block) = (Some(cost), None);
            }
            return;
        };
        if block.is_enough() {
            let arm = attempt.arm;
            if tried > cost * (1.0 - GAIN) {
                self.reject();
            } else {
                (self.kept, self.patience, self.next) = (Some(arm), FIRST, 0);
                self.interrupt();
            }
        }
    }

    fn begin(&mut self, usual: Arm, may_gain: impl Fn(Arm, f64) -> bool) {
        let round_s = self.rest.elapsed_s / f64::from(self.rest.rounds.max(1));
        let others = self.kept.unwrap_or(usual).others();
        let turns = (0..others.len()).map(|i| others[(self.next + i) % others.len()]);
        let Some(arm) = turns.into_iter().find(|arm| may_gain(*arm, round_s)) else {
            self.rest = Block::default();
            return;
        };
        let before = self.rest.cost();
        self.attempt = Some(Attempt { arm, before, tried: None, block: None });
    }

    fn reject(&mut self) {
        self.interrupt();
        self.next += 1;
        self.patience = (self.patience * 2).min(LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Random;

    /// Rounds of 30 ms on two CPUs, of which this part is computed with each way; each is off by that at most.
    struct Program {
        full: [f64; 3],
        noise: f64,
        random: Random,
        arms: Vec<Arm>,
        /// What theory says is worse.
        never: Vec<Arm>,
    }

    impl Program {
        fn new(full: [f64; 3], noise: f64) -> Self {
            Self { full, noise, random: Random::new(5), arms: Vec::new(), never: Vec::new() }
        }

        fn run(&mut self, trial: &mut Trial, rounds: u32) {
            for _ in 0..rounds {
                let arm = trial.arm(Arm::Work);
                self.arms.push(arm);
                let off = 1.0 + self.noise * (2.0 * self.random.unit() - 1.0);
                let computed_s = 0.06 * self.full[arm as usize];
                let elapsed_s = 0.03 * off;
                let done = Done { elapsed_s, computed_s, fullest_s: computed_s / 2.0 };
                trial.round(done, Arm::Work, |other, _| {
                    other != arm && !self.never.contains(&other)
                });
            }
        }

        fn count(&self, arm: Arm) -> usize {
            self.arms.iter().filter(|a| **a == arm).count()
        }
    }

    #[test]
    fn what_computes_most_is_found_and_kept() {
        let fulls = [
            ([0.70, 0.90, 0.80], Arm::Damped),
            ([0.70, 0.72, 0.92], Arm::Even),
            ([0.90, 0.80, 0.60], Arm::Work),
        ];
        for (full, best) in fulls {
            for noise in [0.0, 0.05] {
                let (mut trial, mut program) = (Trial::new(), Program::new(full, noise));
                program.run(&mut trial, 400);
                assert_eq!(trial.arm(Arm::Work), best, "{noise}");
                let had = program.arms[100..].iter().filter(|a| **a == best).count();
                assert!(had >= 285, "{best:?}, {noise}: {had} of 300");
            }
        }
    }

    #[test]
    fn where_there_is_little_to_gain_nothing_is_tried() {
        let (mut trial, mut program) = (Trial::new(), Program::new([0.97; 3], 0.01));
        program.run(&mut trial, 1_000);
        assert_eq!(program.count(Arm::Work), 1_000);
    }

    #[test]
    fn what_theory_says_is_worse_is_not_tried() {
        let (mut trial, mut program) = (Trial::new(), Program::new([0.70, 0.72, 0.92], 0.0));
        program.never = vec![Arm::Even];
        program.run(&mut trial, 1_000);
        assert_eq!(program.count(Arm::Even), 0);
        assert!(program.count(Arm::Damped) > 0);
    }

    /// What costs 20 % is left after the round that changes and one more.
    #[test]
    fn what_is_worse_costs_little() {
        let (mut trial, mut program) = (Trial::new(), Program::new([0.9, 0.7, 0.7], 0.0));
        program.run(&mut trial, 1_000);
        let tried = 1_000 - program.count(Arm::Work);
        assert!((4..=12).contains(&tried), "{tried}");
        assert!(program.arms[..FIRST as usize].iter().all(|a| *a == Arm::Work));
    }

    /// Another process begins to compute just as something is tried, or ends then.
    #[test]
    fn what_others_do_is_not_taken_for_a_gain() {
        let (mut trial, mut slow, mut fast) =
            (Trial::new(), Program::new([0.6; 3], 0.0), Program::new([0.9; 3], 0.0));
        slow.run(&mut trial, FIRST);
        assert_eq!(trial.arm(Arm::Work), Arm::Damped);
        fast.run(&mut trial, 30);
        assert_eq!((trial.arm(Arm::Work), trial.kept), (Arm::Work, None));
    }

    #[test]
    fn other_work_ends_a_trial_and_keeps_what_was_found() {
        let (mut trial, mut program) = (Trial::new(), Program::new([0.70, 0.90, 0.80], 0.0));
        program.run(&mut trial, FIRST + 1);
        assert_eq!(trial.arm(Arm::Work), Arm::Damped);
        trial.interrupt();
        assert_eq!(trial.arm(Arm::Work), Arm::Work);
        program.run(&mut trial, 40);
        trial.interrupt();
        assert_eq!(trial.arm(Arm::Work), Arm::Damped);
        trial.forget();
        assert_eq!(trial.arm(Arm::Work), Arm::Work);
    }
}
