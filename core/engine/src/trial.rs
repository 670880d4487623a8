//! Whether moves within phases pay, by what counts: how often the threads meet.
//!
//! Epochs per second (barriers per second) are compared with balancing and without, in short stretches that
//! take turns: on, off, off, on, so that the program changes as little as possible between the two of a pair. Epochs
//! differ in length, so each counts for what it is worth ([`Epochs::worth`]). Where
//! it is clear which is better that one is kept, and looked at again: first soon, then after twice as long each
//! time the answer is the same. So a program that gains nothing is left alone after two pairs of stretches, which are
//! some tens of milliseconds where barriers are frequent.
//!
//! While it is measured, points come more often where the epochs are short, so that the answer is there in a tenth of a
//! second.
//!
//! Where others use the machine in bursts, a single pair can be off by any amount. So pairs give an answer only where they
//! differ by more than those of earlier looks deviate; where they do not after some pairs, the median of all decides.
//!
//! A stretch begins at the first opening that is seen in it and ends at the last one: what counts is the time between
//! openings, not where points of the balancer lie between them. The first period after each change counts for neither, as
//! threads are moved in it, and it takes some phases to learn what they compute.
//!
//! Known gap: phases that get longer and shorter in step with the stretches mislead it until it looks again.

use crate::agents::{Epochs, Work};
use crate::guard::Verdict;
use evenly_model::Nanos;
use evenly_model::stats::{RunningMean, median};

/// Epochs in a stretch, at least; fewer will do where phases are long, so that what costs does not go on for seconds.
const LEAST_EPOCHS: u32 = 24;
const FEW_EPOCHS: u32 = 6;
/// How long a stretch takes at least; when few epochs will do; and at most: then the threads do not meet often enough.
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONG: Nanos = Nanos::from_millis(150);
const LONGEST: Nanos = Nanos::from_millis(2_000);
/// The same of what has to learn first; for how many epochs after the first time, off and on.
const LONGEST_OF_LEARNERS: Nanos = Nanos::from_millis(12_000);
const LEAST_OF_LEARNERS: u32 = 3;
const AGAIN: [u32; 2] = [3, 1];
/// By what factor the mean epochs of both stretches of a pair may differ. Else they are not of the same mixture, which short
/// stretches say little of.
const UNLIKE: f64 = 1.25;
/// While something is measured points are so much closer, where a stretch takes no longer than this.
const CLOSER: f64 = 1.0 / 3.0;
const SHORT: Nanos = Nanos::from_millis(30);
/// Pairs of stretches at least until moves are given up, or kept; and at most.
const LEAST_TO_REST: usize = 2;
const LEAST_TO_MOVE: usize = 3;
/// The same where the answer is clear, and costs little if wrong: moves lose much, or gain as much as before.
const LEAST_IF_CLEAR: usize = 1;
const MOST_PAIRS: usize = 6;
/// Where the pairs of a look do not agree, so many of earlier ones count, too. From how many it is known by how much pairs
/// deviate; and how many deviations are no chance.
const KEPT: usize = 12;
const LEAST_PAST: usize = 3;
const DEVIATIONS: f64 = 2.0;
/// What has to be gained: below it moves only cost.
const GAIN: f64 = 0.005;
/// A difference that will not be gone soon: the answer holds for longer.
const CLEAR: f64 = 0.1;
/// So often is begun anew, because threads come and go, until they are left alone.
const MOST_DISTURBANCES: u32 = 20;
/// For how long the first answer holds, and any.
const FIRST: Nanos = Nanos::from_millis(500);
const LAST: Nanos = Nanos::from_millis(16_000);
const FIRST_OF_LEARNERS: Nanos = Nanos::from_millis(8_000);

/// A stretch that is measured.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: Nanos,
    /// The first opening in it.
    first: Option<Epochs>,
}

#[derive(Debug, Clone, Copy)]
enum TrialState {
    /// Threads are moved, or not, as in the next stretch, since then.
    Changing(bool, Nanos),
    Measuring(bool, Stretch),
    /// One of both is kept until then.
    Decided(bool, Nanos),
}

/// What was done in a stretch.
#[derive(Debug, Clone, Copy)]
struct Rate {
    epochs: f64,
    /// Zero where it is not known.
    worth: f64,
}

impl Rate {
    fn of(first: Epochs, last: Epochs) -> Self {
        let took = (last.at - first.at).0 as f64;
        let rate = |now: u32, then: u32| f64::from(now.wrapping_sub(then)) / took;
        Self { epochs: rate(last.count, first.count), worth: rate(last.worth, first.worth) }
    }

    /// Whether the mean epochs are worth about the same, as far as is known.
    fn is_like(self, other: Self) -> bool {
        let each = |r: Self| r.worth / r.epochs;
        let ratio = each(self) / each(other);
        !ratio.is_normal() || (1.0 / UNLIKE..=UNLIKE).contains(&ratio)
    }

    /// How many times as much as in the other.
    fn over(self, other: Self) -> f64 {
        if self.worth > 0.0 && other.worth > 0.0 {
            self.worth / other.worth
        } else {
            self.epochs / other.epochs
        }
    }
}

/// The comparison of a domain.
#[derive(Debug)]
pub(crate) struct Trial {
    state: TrialState,
    /// The stretch that waits for the other of its pair, and whether threads were moved in it.
    waiting: Option<(bool, Rate)>,
    /// Logarithms of the ratios, on to off, since the last decision.
    pairs: Vec<f64>,
    /// Those before, the last ones at the end.
    past: Vec<f64>,
    /// The last answer, and for how long the next one like it holds.
    last: Option<bool>,
    hold: Nanos,
    /// Epochs are not all alike.
    mixed: bool,
    disturbances: u32,
    /// What was seen last, and whether stretches of such epochs are short.
    seen: Epochs,
    short: bool,
    all: RunningMean,
    pace: Pace,
    /// Epochs that pass after a change, to what is off or on, until a stretch begins; and as these began.
    learns: [u32; 2],
    /// How long that takes at least, the first time.
    learning: Nanos,
    from: Option<u32>,
}

/// How a comparison goes on.
#[derive(Debug, Clone, Copy)]
struct Pace {
    few_epochs: u32,
    longest: Nanos,
    /// That it pays is expected, so that less is needed to believe it.
    expected: bool,
}

impl Trial {
    /// Of moves that are as good as ever from the first period on.
    pub(crate) fn new() -> Self {
        Self {
            state: TrialState::Changing(true, Nanos::ZERO),
            waiting: None,
            pairs: Vec::new(),
            past: Vec::new(),
            last: None,
            hold: FIRST,
            mixed: false,
            disturbances: 0,
            seen: Epochs::default(),
            short: false,
            all: RunningMean::default(),
            pace: Pace { few_epochs: FEW_EPOCHS, longest: LONGEST, expected: false },
            learns: [0, 0],
            learning: Nanos::ZERO,
            from: None,
        }
    }

    /// Of something that begins now, and is expected to pay; both sides need so many epochs, and so long, until they know the
    /// program. `off` are the first and the last opening of a stretch without it, with which it is compared first: so
    /// what pays clearly need not be left to see that.
    pub(crate) fn of_learner(learns: (u32, Nanos), off: [Epochs; 2], now: Nanos) -> Self {
        let [first, last] = off;
        Self {
            waiting: (last.at > first.at).then(|| (false, Rate::of(first, last))),
            state: TrialState::Changing(true, now),
            pace: Pace {
                few_epochs: LEAST_OF_LEARNERS,
                longest: LONGEST_OF_LEARNERS,
                expected: true,
            },
            learns: [learns.0; 2],
            learning: learns.1,
            seen: last,
            ..Self::new()
        }
    }

    /// Whether nothing is being measured.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.state, TrialState::Decided(..))
    }

    /// What is to be done now.
    pub(crate) fn work(&self) -> Work {
        match self.state {
            TrialState::Changing(true, _)
            | TrialState::Measuring(true, _)
            | TrialState::Decided(true, _) => Work::Move,
            TrialState::Changing(false, _) | TrialState::Measuring(false, _) => Work::Count,
            TrialState::Decided(false, _) => Work::Rest,
        }
    }

    /// The time to the next point; see [`crate::Balancer::until_next_point`].
    pub(crate) fn period(&self, usual: Nanos) -> Nanos {
        match self.state {
            TrialState::Changing(..) | TrialState::Measuring(..) if self.short && !self.mixed => {
                usual.scale(CLOSER)
            }
            _ => usual,
        }
    }

    /// The last answer: whether moves pay.
    pub(crate) fn answer(&self) -> Option<bool> {
        self.last
    }

    /// A balancing point. Threads or CPUs have changed if `disturbed`: then what is being measured does not compare.
    pub(crate) fn point(&mut self, now: Nanos, epochs: Epochs, disturbed: bool) {
        let before = std::mem::replace(&mut self.seen, epochs);
        self.short = Rate::of(before, epochs).epochs * SHORT.0 as f64 > f64::from(LEAST_EPOCHS);
        // Counts that go back are of others.
        let goes_back = (epochs.count.wrapping_sub(before.count) as i32) < 0;
        if before.of != epochs.of || disturbed || goes_back {
            self.disturb(now);
            return;
        }
        match self.state {
            TrialState::Changing(on, since) => {
                let from = *self.from.get_or_insert(epochs.count);
                let (learns, again) = (&mut self.learns[usize::from(on)], AGAIN[usize::from(on)]);
                let passed = epochs.count.wrapping_sub(from);
                let time = if *learns > again { self.learning } else { Nanos::ZERO };
                let is_new = passed < *learns || now - since < time;
                if is_new && now - since <= self.pace.longest {
                    return;
                }
                *learns = again.min(*learns);
                let first = Some(epochs).filter(|e| e.at > since);
                self.state = TrialState::Measuring(on, Stretch { since: now, first });
            }
            TrialState::Measuring(on, stretch) => self.measure(on, stretch, now, epochs),
            TrialState::Decided(on, until) if now >= until => {
                self.past.append(&mut self.pairs);
                self.past.drain(..self.past.len().saturating_sub(KEPT));
                self.waiting = None;
                self.change(on, now);
            }
            TrialState::Decided(..) => {}
        }
    }

    fn disturb(&mut self, now: Nanos) {
        (self.hold, self.mixed) = (FIRST, false);
        self.waiting = None;
        self.pairs.clear();
        self.past.clear();
        match &mut self.state {
            // The answer is looked at again soon.
            TrialState::Decided(_, until) if !self.pace.expected => {
                *until = (*until).min(now + FIRST);
            }
            TrialState::Decided(..) => {}
            // What never lasts long enough to be measured is left alone.
            _ if self.disturbances >= MOST_DISTURBANCES => {
                self.decide(false, now);
                // Until a look is not disturbed.
                self.disturbances = MOST_DISTURBANCES;
            }
            _ => {
                self.disturbances += 1;
                // To try something else is not what is to be done meanwhile.
                self.change(!self.pace.expected || self.last == Some(true), now);
            }
        }
    }

    /// Others acted since the last point: what was being measured does not go on, and what is known still holds.
    pub(crate) fn interrupt(&mut self, now: Nanos) {
        if let TrialState::Changing(on, _) | TrialState::Measuring(on, _) = self.state {
            self.waiting = None;
            self.change(on, now);
        }
    }

    fn change(&mut self, on: bool, now: Nanos) {
        self.from = None;
        self.state = TrialState::Changing(on, now);
    }

    fn measure(&mut self, on: bool, stretch: Stretch, now: Nanos, epochs: Epochs) {
        let Some(first) = stretch.first else {
            // An opening of before says nothing of this stretch.
            if epochs.at > stretch.since {
                let first = Some(epochs);
                self.state = TrialState::Measuring(on, Stretch { first, ..stretch });
            } else if now - stretch.since > self.pace.longest {
                self.decide(false, now);
            }
            return;
        };
        let count = epochs.count.wrapping_sub(first.count);
        let took = epochs.at - first.at;
        let enough = if took < LONG { LEAST_EPOCHS } else { self.pace.few_epochs };
        if count < enough || took < SHORTEST {
            if now - stretch.since > self.pace.longest {
                self.decide(false, now);
            }
            return;
        }
        let rate = Rate::of(first, epochs);
        let Some((before, other)) = self.waiting.filter(|(before, _)| *before != on) else {
            self.waiting = Some((on, rate));
            self.change(!on, now);
            return;
        };
        self.waiting = None;
        if self.mixed || rate.is_like(other) {
            let ratio = if before { other.over(rate) } else { rate.over(other) };
            self.pairs.push(ratio.ln());
            self.all.add(ratio.ln());
        } else {
            self.mixed = true;
            self.pairs.clear();
            self.past.clear();
        }
        match self.verdict_of_pairs() {
            Some(pays) => self.decide(pays, now),
            // The next pair begins as this one has ended.
            None => {
                self.state = TrialState::Measuring(on, Stretch { since: now, first: Some(epochs) })
            }
        }
    }

    /// Of the pairs. How far they lie apart says how far their mean may be off.
    fn mean_and_spread(&self) -> (f64, f64) {
        let mean = self.pairs.iter().sum::<f64>() / self.pairs.len().max(1) as f64;
        (mean, self.pairs.iter().fold(0.0f64, |most, p| most.max((p - mean).abs())))
    }

    /// By how much the mean of the pairs may be off by chance, as far as those before show it.
    fn chance(&self) -> f64 {
        let Some(middle) = median(&self.past).filter(|_| self.past.len() >= LEAST_PAST) else {
            return 0.0;
        };
        let deviations: Vec<f64> = self.past.iter().map(|p| (p - middle).abs()).collect();
        let deviation = median(&deviations).unwrap_or_default();
        DEVIATIONS * deviation / (self.pairs.len() as f64).sqrt()
    }

    /// Whether moves pay, once that is clear or it has been looked at for long enough.
    fn verdict_of_pairs(&self) -> Option<bool> {
        let n = self.pairs.len();
        let (mean, spread) = self.mean_and_spread();
        if n >= MOST_PAIRS {
            let all: Vec<f64> = self.past.iter().chain(&self.pairs).copied().collect();
            return Some(median(&all).is_some_and(|middle| middle > GAIN));
        }
        let pays = mean > GAIN;
        // There was a reason to try it, which it has not shown to be one.
        if self.pace.expected && !pays && n > 0 {
            return Some(false);
        }
        let foreseen = self.last.is_none() && self.pace.expected;
        let as_before = self.last == Some(pays) || (!pays && self.past.is_empty()) || foreseen;
        let clear = (mean - GAIN).abs() > CLEAR && as_before;
        let least = match pays {
            _ if clear => LEAST_IF_CLEAR,
            true => LEAST_TO_MOVE,
            false => LEAST_TO_REST,
        };
        (n >= least && (mean - GAIN).abs() > spread.max(self.chance())).then_some(pays)
    }

    fn decide(&mut self, pays: bool, now: Nanos) {
        let (mean, spread) = self.mean_and_spread();
        let again = self.last == Some(pays);
        let longer = if mean.abs() > CLEAR { 4.0 } else { 2.0 };
        // One pair may have been disturbed.
        let enough = self.pairs.len() > LEAST_IF_CLEAR || (self.pace.expected && pays);
        let sure = enough && mean.abs() > CLEAR.max(spread);
        self.hold = match again {
            true => self.hold.scale(longer).min(LAST),
            // To look again would cost as much as it did, and what was expected did not come.
            false if self.pace.expected => {
                if pays {
                    FIRST.scale(2.0 * longer)
                } else {
                    FIRST_OF_LEARNERS
                }
            }
            false if sure => FIRST.scale(longer),
            false => FIRST,
        };
        self.last = Some(pays);
        self.waiting = None;
        self.disturbances = 0;
        self.state = TrialState::Decided(pays, now + self.hold);
    }

    /// What all comparisons have shown; None where there were none.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        Verdict::of(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Random;

    const PERIOD: Nanos = Nanos::from_millis(14);

    /// A program whose epochs take so long with moves and without, give or take `noise` of it, for some seconds.
    struct Run {
        trial: Trial,
        /// Time in which each was done: moving, counting, resting.
        moved: Nanos,
        counted: Nanos,
        rested: Nanos,
        /// When the first answer came.
        first: Option<Nanos>,
        /// Epochs, and how many there would have been with the better one all the time.
        epochs: f64,
    }

    fn run(on: Nanos, off: Nanos, noise: f64, seed: u64, seconds: f64) -> Run {
        run_mixed(|_| (on, off, 0), noise, seed, seconds)
    }

    /// Epochs that differ: how long each takes with moves and without, and what it is worth.
    fn run_mixed(
        epoch: impl Fn(u32) -> (Nanos, Nanos, u32),
        noise: f64,
        seed: u64,
        seconds: f64,
    ) -> Run {
        run_beside(|_| 1.0, epoch, noise, seed, seconds)
    }

    /// On a machine that is slower by this factor at times.
    fn run_beside(
        mut slower: impl FnMut(f64) -> f64,
        epoch: impl Fn(u32) -> (Nanos, Nanos, u32),
        noise: f64,
        seed: u64,
        seconds: f64,
    ) -> Run {
        let mut random = Random::new(seed);
        let mut r = Run {
            trial: Trial::new(),
            moved: Nanos::ZERO,
            counted: Nanos::ZERO,
            rested: Nanos::ZERO,
            first: None,
            epochs: 0.0,
        };
        let (mut now, mut next, mut seen) = (Nanos::ZERO, 0.0, Epochs::default());
        let mut number = 0;
        let end = Nanos((seconds * 1e9) as u64);
        while now < end {
            let work = r.trial.work();
            let spent = match work {
                Work::Move => &mut r.moved,
                Work::Count => &mut r.counted,
                Work::Rest => &mut r.rested,
            };
            let period = r.trial.period(PERIOD);
            *spent += period;
            now += period;
            while next <= now.0 as f64 {
                r.epochs += 1.0;
                let (on, off, worth) = epoch(number);
                number += 1;
                let length = if work == Work::Move { on } else { off };
                // At rest nobody counts.
                if work != Work::Rest {
                    let count = seen.count.wrapping_add(1);
                    let worth = seen.worth.wrapping_add(worth);
                    seen = Epochs { count, at: Nanos(next as u64), of: 0, worth };
                }
                let noise = 1.0 + noise * (2.0 * random.unit() - 1.0);
                next += length.0 as f64 * noise * slower(next);
            }
            r.trial.point(now, seen, false);
            if r.first.is_none() && r.trial.answer().is_some() {
                r.first = Some(now);
            }
        }
        r
    }

    const fn us(n: u64) -> Nanos {
        Nanos::from_micros(n)
    }

    /// A program that solves equations in steps of 0.2 s: its epochs take from 0.13 to 26 ms, and only long ones gain.
    fn steps(pays: bool) -> impl Fn(u32) -> (Nanos, Nanos, u32) {
        move |number| {
            let (work, times) = match number % 280 {
                0..60 | 90..150 | 180..240 => (170_000, 1.0),
                60..64 => (4_000_000, 1.3),
                150..154 => (14_000_000, 1.3),
                _ => (400_000, 1.1),
            };
            let off = work * 2;
            let on = if pays { off as f64 / times } else { off as f64 * 1.03 };
            (Nanos(on as u64), Nanos(off), work as u32 / 256)
        }
    }

    /// Would catch: an answer by which epochs happened to be in a stretch.
    #[test]
    fn programs_whose_phases_differ_are_judged_by_all_of_them() {
        for pays in [true, false] {
            let better = (0..50).map(|seed| {
                let r = run_mixed(steps(pays), 0.1, seed, 30.0);
                (if pays { r.moved } else { r.rested + r.counted }).0 as f64 / 30e9
            });
            let share = better.sum::<f64>() / 50.0;
            assert!(share > 0.75, "pays: {pays}, done what is better for {share:.2} of the time");
        }
    }

    /// Would catch: moves that cost 5 % at barriers every 50 us and are kept; measuring that goes on afterwards.
    #[test]
    fn what_does_not_pay_is_left_soon_and_for_most_of_the_time() {
        for seed in 0..20 {
            let r = run(us(53), us(50), 0.3, seed, 10.0);
            assert_eq!(r.trial.answer(), Some(false), "seed {seed}");
            assert!(r.moved < Nanos::from_millis(450), "seed {seed}: {}", r.moved);
            assert!(r.rested > Nanos::from_millis(9_000), "seed {seed}: {}", r.rested);
            let first = run(us(53), us(50), 0.3, seed, 0.4).first.unwrap();
            assert!(first <= Nanos::from_millis(100), "seed {seed}: {first}");
        }
    }

    #[test]
    fn what_pays_is_kept() {
        for (on, off) in [(1_100, 1_300), (3_300, 4_300), (50, 700), (35_000, 43_000)] {
            let (on, off) = (us(on), us(off));
            for seed in 0..20 {
                let r = run(on, off, 0.2, seed, 10.0);
                assert_eq!(r.trial.answer(), Some(true), "{on} {off} seed {seed}");
                let lost = 1.0 - r.epochs / (10e9 / on.0 as f64);
                assert!(lost < 0.04, "{on} {off} seed {seed}: {lost}");
            }
        }
    }

    /// Would catch: stretches of seconds where threads meet rarely, during which moves cost a quarter.
    #[test]
    fn what_costs_much_is_left_soon_in_long_phases_too() {
        for seed in 0..20 {
            let r = run(us(50_000), us(40_000), 0.2, seed, 10.0);
            assert_eq!(r.trial.answer(), Some(false), "seed {seed}");
            let lost = 1.0 - r.epochs / (10e9 / 40e6);
            assert!(lost < 0.05, "seed {seed}: {lost}");
        }
    }

    /// Would catch: a program that runs as fast either way and is moved for long; a loss by looking.
    #[test]
    fn what_makes_no_difference_is_mostly_left_alone() {
        let rested: f64 = (0..20)
            .map(|seed| {
                let r = run(us(400), us(400), 0.3, seed, 20.0);
                r.rested.0 as f64 / 20e9
            })
            .sum();
        assert!(rested / 20.0 > 0.6, "{}", rested / 20.0);
    }

    /// A machine that others use in bursts: for tens of milliseconds everything takes up to twice as long.
    fn bursts(seed: u64) -> impl FnMut(f64) -> f64 {
        let mut random = Random::new(seed ^ 0x5eed);
        let (mut until, mut factor) = (0.0, 1.0);
        move |time| {
            while until <= time {
                let busy = random.unit() < 0.5;
                factor = if busy { 1.0 + 2.5 * random.unit() } else { 1.0 };
                until += 10e6 + 90e6 * random.unit();
            }
            factor
        }
    }

    /// Would catch: an answer by the one stretch in which somebody else had the CPUs.
    #[test]
    fn bursts_of_others_are_not_taken_for_what_moves_do() {
        // How long epochs take with moves and without, and for which part of the time threads are to be moved.
        let cases = [
            (1_150, 1_300, 0.7..1.0),
            (400, 480, 0.9..1.0),
            (53, 50, 0.0..0.1),
            (1_350, 1_300, 0.0..0.3),
        ];
        for (on, off, share) in cases {
            let moved = (0..50).map(|seed| {
                let r = run_beside(bursts(seed), |_| (us(on), us(off), 0), 0.2, seed, 10.0);
                r.moved.0 as f64 / 10e9
            });
            let moved = moved.sum::<f64>() / 50.0;
            assert!(
                share.contains(&moved),
                "{on} us with moves, {off} without: moved for {moved:.2}"
            );
        }
    }

    #[test]
    fn threads_that_stop_to_meet_are_left_alone() {
        let mut trial = Trial::new();
        let mut now = Nanos::ZERO;
        for _ in 0..200 {
            now += PERIOD;
            trial.point(now, Epochs::default(), false);
        }
        assert_eq!(trial.answer(), Some(false));
        assert!(trial.verdict().is_none());
    }

    /// Would catch: an answer for threads that are gone and that holds for long.
    #[test]
    fn a_change_of_threads_is_looked_at_soon() {
        let mut r = run(us(53), us(50), 0.1, 1, 5.0);
        let now = Nanos::from_millis(5_100);
        assert_eq!(r.trial.work(), Work::Rest);
        r.trial.point(now, Epochs::default(), true);
        r.trial.point(now + FIRST, Epochs::default(), false);
        assert_eq!(r.trial.work(), Work::Count);
    }

    /// Would catch: threads that are moved for ever because they come and go too fast to be measured.
    #[test]
    fn what_cannot_be_measured_is_left_alone() {
        let mut trial = Trial::new();
        for i in 0..50 {
            trial.point(Nanos(PERIOD.0 * i), Epochs::default(), i % 2 == 0);
        }
        assert_eq!(trial.work(), Work::Rest);
    }

    #[test]
    fn numbers_of_epochs_wrap_around() {
        let mut trial = Trial::new();
        let (mut now, mut count) = (Nanos::ZERO, u32::MAX - 30);
        for _ in 0..200 {
            now += PERIOD;
            let faster = if trial.work() == Work::Move { 28 } else { 14 };
            count = count.wrapping_add(faster);
            trial.point(now, Epochs { count, at: now, of: 0, worth: 0 }, false);
        }
        assert_eq!(trial.answer(), Some(true));
        assert!((trial.verdict().unwrap().ratio - 2.0).abs() < 0.01, "{:?}", trial.verdict());
    }

    /// Points of a program whose epochs take so long, from `now` on.
    fn points(
        trial: &mut Trial,
        now: &mut Nanos,
        count: &mut f64,
        seconds: f64,
        epoch: impl Fn(Work) -> Nanos,
    ) {
        let end = now.0 as f64 + seconds * 1e9;
        while (now.0 as f64) < end {
            *count += PERIOD.0 as f64 / epoch(trial.work()).0 as f64;
            *now += PERIOD;
            trial.point(*now, Epochs { count: *count as u32, at: *now, of: 0, worth: 0 }, false);
        }
    }

    /// Would catch: a stretch that is measured across ten seconds in which somebody else moved threads, or nobody counted.
    #[test]
    fn who_was_interrupted_measures_anew() {
        for epochs_meanwhile in [0.0, 30_000.0] {
            for after in 0..30 {
                let (mut trial, mut now, mut count) = (Trial::new(), Nanos::ZERO, 0.0);
                let epoch = |work| us(if work == Work::Move { 1_200 } else { 1_000 });
                points(&mut trial, &mut now, &mut count, 0.014 * f64::from(after), epoch);
                now += Nanos::from_millis(10_000);
                count += epochs_meanwhile;
                trial.interrupt(now);
                points(&mut trial, &mut now, &mut count, 5.0, epoch);
                let ratio = trial.verdict().unwrap().ratio;
                assert!((0.8..0.87).contains(&ratio), "after {after} points: {ratio}");
            }
        }
    }

    /// Of something that begins after 100 epochs of a millisecond.
    fn learner() -> Trial {
        let off = [0, 100].map(|count| Epochs {
            count,
            at: us(u64::from(count) * 1_000),
            of: 0,
            worth: 0,
        });
        Trial::of_learner((6, Nanos::ZERO), off, us(100_000))
    }

    /// Would catch: threads that are replaced by others between two points, taken for four billion epochs.
    #[test]
    fn counts_that_go_back_are_of_others() {
        let mut trial = learner();
        let (mut now, mut count) = (us(100_000), 100.0);
        points(&mut trial, &mut now, &mut count, 0.02, |_| us(1_000));
        count = 0.0;
        points(&mut trial, &mut now, &mut count, 3.0, |work| {
            us(if work == Work::Move { 800 } else { 1_000 })
        });
        let ratio = trial.verdict().unwrap().ratio;
        assert!((1.2..1.3).contains(&ratio), "{ratio}");
    }

    /// Would catch: something new that is done nearly all the time because it can never be measured.
    #[test]
    fn what_is_disturbed_all_the_time_is_not_tried_meanwhile() {
        let mut trial = learner();
        let (mut now, mut count, mut tried) = (us(100_000), 100.0, 0);
        for point in 0..6_000 {
            now += PERIOD;
            count += 14.0;
            tried += u32::from(trial.work() == Work::Move);
            let epochs = Epochs { count: count as u32, at: now, of: 0, worth: 0 };
            trial.point(now, epochs, point % 3 == 2);
        }
        assert!(tried < 600, "{tried} of 6000 points");
    }
}
