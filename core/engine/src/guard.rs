//! The regression guard (promise P7): evenly measures its own effect, rests where it gains nothing, and stands down
//! where it harms.
//!
//! From time to time balancing is paused for a short stretch, and how fast the program progressed
//! in it is compared with a stretch of equal length right before. What counts as progress of the
//! program depends on what it does: threads that wait for each other by blocking progress together,
//! and the CPU time that all of them receive measures it; threads that do not block progress each
//! for itself, and the slowest decides, as it will at the next barrier.
//!
//! ```text
//!                  no gain to be seen, for a while
//!            +---------------------------------------> rests
//!   balances |  <--- that is over, or threads fare differently
//!            +---------------------------------------> stands down
//!                  a loss that is no chance, for good
//! ```
//!
//! Threads that block are placed well by the kernel in most cases, and each balancing point takes its time from all that
//! wait at the next barrier. So there it is looked early, and balancing has to show that it is of use. It rests twice as
//! long each time.
//!
//! Invariant: what pauses cost is at most [`GuardOptions::share`] of the run, as far as that is known, and none comes
//! before balancing has had time to show an effect.
//!
//! The guard looks at its result after every comparison. So the interval by which it stands down is a confidence sequence
//! ([`RunningMean`]), which holds its level over all looks together: where balancing makes no
//! difference, at most one run in twenty stands down, however long it is. Noise that lasts longer than
//! a stretch is in both stretches of a comparison and cancels. To rest is no such claim: that asks which gain is to be
//! expected, and whether it is more than what balancing takes.
//!
//! Known gaps:
//! - A thread that spins at a barrier receives CPU time without progressing. Where threads spin, and do not
//!   report it, the comparison says how fairly they ran, not how fast the program went. Where they report it,
//!   spinning is no progress, and threads that spin wait for each other.
//! - CPU time in which caches are filled again after a move counts as progress. Where threads do not block, moves
//!   that cost more than they gain are not found. Where they block at barriers they are, as far as others wait
//!   meanwhile.

use evenly_model::Nanos;
use evenly_model::stats::RunningMean;

/// Settings of the guard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardOptions {
    /// Whether it works at all.
    pub enabled: bool,
    /// The greatest part of the run that pauses may cost.
    pub share: f64,
    /// No pause before balancing has run this long.
    pub warm_up: Nanos,
    /// The same where threads block, and so while balancing has more to prove.
    pub early: Nanos,
    /// Length of a stretch in periods; never shorter than `shortest`.
    pub periods: f64,
    /// Least length of a stretch.
    pub shortest: Nanos,
    /// Whether arms of the policy are compared. Not where the threads of a program are of several domains: they meet across these,
    /// so that what is measured in one would be what is done in all.
    pub arms: bool,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            share: 0.02,
            warm_up: Nanos::from_millis(3_000),
            early: Nanos::from_millis(1_000),
            periods: 8.0,
            shortest: Nanos::from_millis(150),
            arms: true,
        }
    }
}

/// What the comparisons have shown so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Verdict {
    /// How many stretches with balancing were compared with one without.
    pub pairs: u32,
    /// Mean ratio of the rate of progress, balanced over paused; over 1 balancing pays.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio, which holds after all comparisons together.
    pub low: f64,
    /// Upper end of the 95 % interval of the ratio.
    pub high: f64,
}

impl Verdict {
    /// Of the logarithms of ratios; None where there are none.
    pub(crate) fn of(logs: &RunningMean) -> Option<Self> {
        let (mean, half) = (logs.mean(), logs.half_width());
        (logs.count() > 0).then(|| Self {
            pairs: logs.count(),
            ratio: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
        })
    }
}

/// Rates of progress in one stretch, accumulated point by point.
#[derive(Debug, Clone, Default)]
struct Stretch {
    began: Nanos,
    wall: f64,
    ran: Vec<f64>,
    blocked: f64,
}

impl Stretch {
    /// One that begins now.
    fn from(now: Nanos) -> Self {
        Self { began: now, ..Self::default() }
    }

    fn add(&mut self, elapsed: Nanos, ran: impl Iterator<Item = (Nanos, Nanos)>) {
        self.wall += elapsed.0 as f64;
        let mut n = 0;
        for (i, (r, b)) in ran.enumerate() {
            if i >= self.ran.len() {
                self.ran.push(0.0);
            }
            self.ran[i] += r.0 as f64;
            self.blocked += b.0 as f64;
            n = i + 1;
        }
        self.ran.truncate(n);
    }

    fn blocked_share(&self) -> f64 {
        self.blocked / (self.wall * self.ran.len().max(1) as f64).max(1.0)
    }

    fn mean_rate(&self) -> f64 {
        self.ran.iter().sum::<f64>() / self.ran.len().max(1) as f64 / self.wall.max(1.0)
    }

    fn least_rate(&self) -> f64 {
        self.ran.iter().copied().fold(f64::INFINITY, f64::min) / self.wall.max(1.0)
    }

    /// Whether threads fare differently: what all, or the slowest of them, receive, or for how much of the time they are
    /// blocked.
    fn is_unlike(&self, other: &Self) -> bool {
        let rates = [Self::mean_rate, Self::least_rate].map(|rate| (rate(self), rate(other)));
        let blocked = (self.blocked_share() - other.blocked_share()).abs();
        let is_unlike = |(a, b): &(f64, f64)| (a - b).abs() > LITTLE.max(DIFFERENT * b);
        blocked > DIFFERENT || rates.iter().any(is_unlike)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardState {
    /// Balancing, not yet measuring.
    Balancing,
    /// Balancing, and measuring how fast.
    Reference,
    /// Paused, and measuring how fast.
    Paused,
    /// Resting, and measuring how threads fare.
    Resting { since: Nanos, until: Nanos },
    /// Stood down for good.
    Down,
}

/// How threads fared when a rest began, and in how many stretches in succession they fared differently.
#[derive(Debug, Clone, Default)]
struct Fared {
    first: Option<Stretch>,
    differently: u32,
}

/// A share of blocked time above which threads are taken to wait for each other.
const BLOCKING: f64 = 0.02;
/// Comparisons before a verdict can end balancing.
const LEAST_PAIRS: u32 = 5;
/// A loss smaller than this is not worth standing down for: it is what a verdict may be wrong by.
const TOLERATED: f64 = 0.005;
/// Comparisons before it rests. It does where the gain that is to be expected is less than this, as the one of programs of
/// which nothing is known deviates by that.
const LEAST_TO_REST: u32 = 4;
const WORTH: f64 = 0.01;
const USUAL: f64 = 0.06;
/// The first rest, and the longest: each is twice as long as the one before, until balancing is of use.
const RESTS: [Nanos; 2] = [Nanos::from_millis(8_000), Nanos::from_millis(256_000)];
/// Balancing begins again where threads receive more or less of CPUs than when the rest began by this part of it, and more than a
/// little, or are blocked for so much more or less of the time, in so many stretches in succession.
const DIFFERENT: f64 = 0.2;
const LITTLE: f64 = 0.05;
const DIFFERENTLY: u32 = 2;
/// Such a change ends a rest after this part of it, and after so long at the latest: there are programs that change all the
/// time.
const LEAST_REST: f64 = 0.25;
const SOON: Nanos = Nanos::from_millis(4_000);
/// How long these stretches are at least.
const LOOKS: Nanos = Nanos::from_millis(500);
/// While it is not clear what balancing is worth, each comparison is so many stretches later than the one before it was.
const LATER: f64 = 0.5;

/// The guard of one domain.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    options: GuardOptions,
    state: GuardState,
    began: Nanos,
    next: Nanos,
    paused_total: Nanos,
    length: Nanos,
    /// Since balancing began, or began again, until something is compared.
    so_far: Option<Stretch>,
    reference: Stretch,
    pause: Stretch,
    /// Logarithms of the ratios, and of those since threads, or CPUs, changed last.
    logs: RunningMean,
    recent: RunningMean,
    /// For how long it rests the next time, and how threads fared when it began to.
    rest: Nanos,
    fared: Fared,
}

impl Guard {
    /// A guard that begins its warm-up at `now`.
    pub(crate) fn new(options: GuardOptions, now: Nanos) -> Self {
        Self {
            options,
            state: GuardState::Balancing,
            began: now,
            next: now + options.warm_up,
            paused_total: Nanos::ZERO,
            length: Nanos::ZERO,
            so_far: Some(Stretch::from(now)),
            reference: Stretch::default(),
            pause: Stretch::default(),
            logs: RunningMean::default(),
            recent: RunningMean::default(),
            rest: RESTS[0],
            fared: Fared::default(),
        }
    }

    /// Whether balancing is paused now.
    pub(crate) fn paused(&self) -> bool {
        self.state == GuardState::Paused
    }

    /// Whether balancing does nothing: it harms, or gains nothing that could be seen.
    pub(crate) fn rests(&self) -> bool {
        matches!(self.state, GuardState::Resting { .. } | GuardState::Down)
    }

    /// Whether balancing has ended, because it harms.
    pub(crate) fn stood_down(&self) -> bool {
        self.state == GuardState::Down
    }

    /// The set of threads or CPUs has changed: what was being measured no longer compares.
    pub(crate) fn disturbed(&mut self, now: Nanos) {
        match &mut self.state {
            GuardState::Reference | GuardState::Paused => {
                self.state = GuardState::Balancing;
                self.next = self.next.max(now + self.options.warm_up);
            }
            GuardState::Resting { .. } => self.end_rest_soon(),
            GuardState::Balancing => {
                if let Some(so_far) = &mut self.so_far {
                    *so_far = Stretch::from(now);
                }
            }
            GuardState::Down => {}
        }
    }

    /// Balancing is done in another way from now on: what was seen so far does not say whether it is to rest.
    pub(crate) fn begins_anew(&mut self, now: Nanos) {
        self.disturbed(now);
        self.recent = RunningMean::default();
        if self.state == GuardState::Balancing {
            self.so_far = Some(Stretch::from(now));
        }
    }

    /// What was found of a program that is no longer the same does not hold for long.
    fn end_rest_soon(&mut self) {
        if let GuardState::Resting { since, until } = &mut self.state {
            *until = (*until).min(*since + self.rest.scale(LEAST_REST).min(SOON));
            self.recent = RunningMean::default();
        }
    }

    /// Balancing begins again, and is given time to show an effect.
    fn begin(&mut self, now: Nanos) {
        self.state = GuardState::Balancing;
        self.next = now + self.options.warm_up;
        self.so_far = Some(Stretch::from(now));
        self.rest = Nanos(2 * self.rest.0).min(RESTS[1]);
    }

    /// One balancing point: the period that ended, and what each thread ran and was blocked in it.
    pub(crate) fn point(
        &mut self,
        now: Nanos,
        elapsed: Nanos,
        period: Nanos,
        threads: impl Iterator<Item = (Nanos, Nanos)>,
    ) {
        if !self.options.enabled {
            return;
        }
        match self.state {
            GuardState::Down => {}
            GuardState::Balancing => {
                if let Some(so_far) = &mut self.so_far {
                    so_far.add(elapsed, threads);
                }
                if now >= self.next || self.is_early_enough(now) {
                    self.length = period.scale(self.options.periods).max(self.options.shortest);
                    self.reference = Stretch::from(now);
                    self.state = GuardState::Reference;
                }
            }
            GuardState::Reference => {
                self.reference.add(elapsed, threads);
                if now - self.reference.began >= self.length {
                    self.pause = Stretch::from(now);
                    self.state = GuardState::Paused;
                }
            }
            GuardState::Paused => {
                self.pause.add(elapsed, threads);
                self.paused_total += elapsed;
                if now - self.pause.began >= self.length {
                    self.compare(now);
                }
            }
            GuardState::Resting { .. } => {
                self.pause.add(elapsed, threads);
                if now - self.pause.began >= self.length.max(LOOKS) {
                    self.look_at_rest(now);
                }
            }
        }
    }

    /// Whether threads block, and it is looked for the first time, also since a rest.
    fn is_early_enough(&self, now: Nanos) -> bool {
        self.so_far.as_ref().is_some_and(|so_far| {
            now - so_far.began >= self.options.early && so_far.blocked_share() > BLOCKING
        })
    }

    /// A stretch of a rest is over.
    fn look_at_rest(&mut self, now: Nanos) {
        let last = std::mem::replace(&mut self.pause, Stretch::from(now));
        let first = self.fared.first.get_or_insert_with(|| last.clone());
        let is_different = last.is_unlike(first);
        self.fared.differently = if is_different { self.fared.differently + 1 } else { 0 };
        if self.fared.differently >= DIFFERENTLY {
            self.end_rest_soon();
        }
        if matches!(self.state, GuardState::Resting { until, .. } if now >= until) {
            self.begin(now);
        }
    }

    fn compare(&mut self, now: Nanos) {
        self.state = GuardState::Balancing;
        self.so_far = None;
        let mut blocking = false;
        if self.reference.ran.len() == self.pause.ran.len() && !self.pause.ran.is_empty() {
            blocking =
                self.reference.blocked_share() > BLOCKING || self.pause.blocked_share() > BLOCKING;
            let rate = if blocking { Stretch::mean_rate } else { Stretch::least_rate };
            let (on, off) = (rate(&self.reference), rate(&self.pause));
            if on > 0.0 && off > 0.0 {
                self.logs.add((on / off).ln());
                self.recent.add((on / off).ln());
            }
        }
        let verdict = self.verdict();
        if verdict.pairs >= LEAST_PAIRS && verdict.high < 1.0 - TOLERATED {
            self.state = GuardState::Down;
            return;
        }
        if self.recent.count() >= LEAST_TO_REST {
            if self.expected() < WORTH {
                self.pause = Stretch::from(now);
                self.state = GuardState::Resting { since: now, until: now + self.rest };
                self.fared = Fared::default();
                return;
            }
            self.rest = RESTS[0];
        }
        self.next = now + self.wait(now, verdict, blocking).max(self.length);
    }

    /// The gain that is to be expected, by what has been seen: the less sure that is, the nearer to none.
    fn expected(&self) -> f64 {
        let [usual, error] = [USUAL, self.recent.standard_error()].map(|x| x * x);
        self.recent.mean() * usual / (usual + error)
    }

    /// How long it takes until the next comparison: pauses cost no more than the share, which is all of their time where
    /// it is not clear yet that balancing matters less. Once it is clear that balancing pays, it is looked ever less often.
    fn wait(&self, now: Nanos, verdict: Verdict, blocking: bool) -> Nanos {
        let ran = (now - self.began).0 as f64;
        let lost = if blocking { (1.0 - 1.0 / verdict.ratio).max(0.0) } else { 1.0 };
        let affordable = lost * self.paused_total.0 as f64 / self.options.share;
        let settled = verdict.pairs >= 3 && verdict.low > 1.0;
        let later = self.length.scale(LATER * f64::from(verdict.pairs));
        Nanos((affordable - ran).max(if settled { ran } else { 0.0 }) as u64).max(later)
    }

    /// What has been found.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(&self.logs).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Random;

    /// Runs the guard over a program whose threads progress at one rate when balanced and at
    /// another when paused.
    fn run(on: [f64; 2], off: [f64; 2], blocked: f64, noise: f64, seconds: u64) -> (Guard, f64) {
        let period = Nanos::from_millis(20);
        let mut random = Random::new(5);
        let mut guard = Guard::new(GuardOptions::default(), Nanos::ZERO);
        let (mut now, mut paused) = (Nanos::ZERO, 0u64);
        while now < Nanos::from_millis(seconds * 1000) {
            now += period;
            paused += u64::from(guard.paused());
            let rates = if guard.paused() || guard.stood_down() { off } else { on };
            let threads: Vec<(Nanos, Nanos)> = rates
                .iter()
                .map(|r| {
                    let r = r * (1.0 + noise * (2.0 * random.unit() - 1.0));
                    (period.scale(r), period.scale(blocked))
                })
                .collect();
            guard.point(now, period, period, threads.into_iter());
        }
        (guard, paused as f64 * 0.02 / seconds as f64)
    }

    #[test]
    fn stands_down_where_balancing_harms() {
        let (guard, _) = run([0.60, 0.60], [0.66, 0.66], 0.1, 0.1, 120);
        let verdict = guard.verdict();
        assert!(guard.stood_down());
        assert!(verdict.pairs >= LEAST_PAIRS && verdict.high < 1.0 - TOLERATED, "{verdict:?}");
    }

    #[test]
    fn goes_on_where_it_pays_and_pauses_little() {
        let (guard, share) = run([0.66, 0.66], [0.5, 0.75], 0.0, 0.1, 120);
        assert!(!guard.stood_down());
        assert!(guard.verdict().low > 1.0 && (guard.verdict().ratio - 1.33).abs() < 0.05);
        assert!(share < 0.021, "{share}");
    }

    #[test]
    fn noise_alone_does_not_end_it() {
        let (guard, _) = run([0.66, 0.66], [0.66, 0.66], 0.1, 0.3, 600);
        assert!(
            !guard.stood_down() && guard.verdict().pairs >= LEAST_PAIRS,
            "{:?}",
            guard.verdict()
        );
    }

    /// A guard of threads that are blocked for a tenth of the time and progress at a rate of 0.6, times what balancing
    /// gains; stretches deviate by this part. When it began to rest and when that was over.
    fn rests(gain: f64, deviation: f64, seconds: u64, seed: u64) -> Vec<(f64, bool)> {
        let period = Nanos::from_millis(20);
        let mut random = Random::new(seed);
        let mut guard = Guard::new(GuardOptions::default(), Nanos::ZERO);
        let (mut changes, mut noise, mut before) = (Vec::new(), 1.0, None);
        for point in 1..=seconds * 50 {
            let now = Nanos(period.0 * point);
            // Each stretch is different.
            if before != Some(guard.state) {
                before = Some(guard.state);
                noise = (deviation * normal(&mut random)).exp();
            }
            let balanced = if guard.paused() || guard.rests() { 1.0 } else { gain };
            let ran = period.scale(0.6 * noise * balanced);
            let (rested, threads) = (guard.rests(), [(ran, period.scale(0.1)); 4]);
            guard.point(now, period, period, threads.into_iter());
            if rested != guard.rests() {
                changes.push((now.as_secs_f64(), guard.rests()));
            }
        }
        changes
    }

    /// Would catch: a program that is disturbed for ever although nothing comes of it, or that is never looked at again.
    #[test]
    fn what_gains_nothing_rests_and_is_looked_at_again() {
        let changes = rests(1.0, 0.0, 60, 1);
        let ends: Vec<f64> = changes.iter().filter(|c| !c.1).map(|c| c.0).collect();
        let begins: Vec<f64> = changes.iter().filter(|c| c.1).map(|c| c.0).collect();
        assert!((2.0..4.0).contains(&begins[0]), "{changes:?}");
        // 8 s later, and 16 s after the next.
        assert!(
            (ends[0] - begins[0] - 8.0).abs() < 0.3 && begins[1] - ends[0] < 2.0,
            "{changes:?}"
        );
        assert!((ends[1] - begins[1] - 16.0).abs() < 0.3, "{changes:?}");
    }

    #[test]
    fn it_rests_where_a_gain_is_unlikely_and_not_where_it_is_likely() {
        let part = |gain, deviation| {
            let rest = |seed: &u64| !rests(gain, deviation, 10, *seed).is_empty();
            (0..300).filter(rest).count() as f64 / 300.0
        };
        assert!(part(1.0, 0.02) > 0.9 && part(0.98, 0.03) > 0.9);
        assert!(part(1.08, 0.02) < 0.02 && part(1.08, 0.04) < 0.1);
        // On a machine on which others compute as well.
        assert!(part(1.0, 0.3) > 0.6 && part(1.3, 0.15) < 0.1);
    }

    /// Would catch: threads that are left alone with somebody who has come meanwhile.
    #[test]
    fn threads_that_fare_differently_end_a_rest() {
        let period = Nanos::from_millis(200);
        let options = GuardOptions { periods: 1.0, ..GuardOptions::default() };
        let mut guard = Guard::new(options, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut passes = |guard: &mut Guard, ran: f64, points: usize| {
            for _ in 0..points {
                now += period;
                let threads = [(period.scale(ran), period.scale(0.1)); 2];
                guard.point(now, period, period, threads.into_iter());
            }
        };
        while !guard.rests() {
            passes(&mut guard, 0.9, 1);
        }
        passes(&mut guard, 0.8, 12);
        assert!(guard.rests(), "for a difference that is none");
        passes(&mut guard, 0.5, 3);
        passes(&mut guard, 0.8, 3);
        assert!(guard.rests(), "for a moment");
        // Not before a quarter of it is over.
        passes(&mut guard, 0.5, 7);
        assert!(!guard.rests());
        // What was seen before was another program, and of this one.
        assert_eq!((guard.recent.count(), guard.verdict().pairs > 0), (0, true));
    }

    #[test]
    fn short_runs_are_never_paused() {
        assert_eq!(run([1.0, 1.0], [1.0, 1.0], 0.0, 0.0, 3).1, 0.0);
    }

    #[test]
    fn a_change_of_threads_discards_the_stretch() {
        let mut guard = Guard::new(GuardOptions::default(), Nanos::ZERO);
        let p = Nanos::from_millis(20);
        let mut now = Nanos::ZERO;
        while !guard.paused() {
            now += p;
            guard.point(now, p, p, [(p, Nanos::ZERO)].into_iter());
        }
        guard.disturbed(now);
        assert!(!guard.paused());
        assert_eq!(guard.verdict().pairs, 0);
    }

    /// How the noise of one stretch comes about, in units of its deviation.
    #[derive(Debug, Clone, Copy)]
    enum Noise {
        Normal,
        /// Student's distribution with 2 degrees of freedom: its variance is infinite.
        HeavyTailed,
        /// Each stretch is like the one before, with a correlation of 0.9.
        Slow,
    }

    fn normal(random: &mut Random) -> f64 {
        (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// The number of comparisons after which the guard stands down, in at most `points` points. A
    /// stretch is one point. `loss` is what balancing costs, `deviation` that of a stretch's rate.
    fn stands_down_after(
        loss: f64,
        deviation: f64,
        noise: Noise,
        points: u32,
        random: &mut Random,
    ) -> Option<u32> {
        let period = Nanos::from_millis(10);
        let options = GuardOptions {
            share: 0.5,
            warm_up: Nanos::ZERO,
            periods: 1.0,
            shortest: period,
            ..GuardOptions::default()
        };
        let mut guard = Guard::new(options, Nanos::ZERO);
        let (mut now, mut slow) = (Nanos::ZERO, normal(random));
        for _ in 0..points {
            now += period;
            let x = match noise {
                Noise::Normal => normal(random),
                Noise::HeavyTailed => {
                    let u = 2.0 * random.unit() - 1.0;
                    u * (2.0 / (1.0 - u * u).max(1e-12)).sqrt()
                }
                Noise::Slow => {
                    slow = 0.9 * slow + (1.0_f64 - 0.81).sqrt() * normal(random);
                    slow
                }
            };
            let balanced = if guard.paused() { 1.0 } else { 1.0 - loss };
            // Kept from what no rate can be.
            let rate = 0.5 * balanced * (x * deviation).clamp(-5.0, 5.0).exp();
            guard.point(now, period, period, [(period.scale(rate), Nanos::ZERO)].into_iter());
            if guard.stood_down() {
                return Some(guard.verdict().pairs);
            }
            if guard.rests() {
                guard.begin(now);
            }
        }
        None
    }

    #[test]
    fn the_level_holds_however_often_it_is_looked_at() {
        for noise in [Noise::Normal, Noise::HeavyTailed, Noise::Slow] {
            let mut random = Random::new(11);
            let runs = 3_000;
            // The greatest loss that is tolerated: the worst case of "not worth standing down for".
            let down = (0..runs)
                .filter(|_| stands_down_after(TOLERATED, 0.02, noise, 1_200, &mut random).is_some())
                .count();
            assert!(down * 20 <= runs, "{noise:?}: {down} of {runs}");
        }
    }

    #[test]
    fn a_loss_is_found_in_as_few_comparisons_as_its_size_allows() {
        // A ratio of two stretches deviates by the root of 2 more: by 2 % here.
        for (loss, half, most) in [(0.10, 5, 6), (0.05, 6, 8), (0.02, 22, 45)] {
            for noise in [Noise::Normal, Noise::Slow] {
                let mut random = Random::new(3);
                let mut after: Vec<u32> = (0..1_000)
                    .map(|_| {
                        stands_down_after(loss, 0.02 / 2_f64.sqrt(), noise, 2_000, &mut random)
                            .unwrap_or(u32::MAX)
                    })
                    .collect();
                after.sort_unstable();
                let found = (after[0], after[500], after[900]);
                assert!(
                    found.0 >= LEAST_PAIRS && found.1 <= half && found.2 <= most,
                    "{loss} {noise:?}: {found:?}"
                );
            }
        }
    }
}
