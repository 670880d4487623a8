//! The regression guard (promise P7): evenly measures its own effect and stands down where it does
//! not pay.
//!
//! From time to time balancing is paused for a short stretch, and how fast the program progressed
//! in it is compared with a stretch of equal length right before. What counts as progress of the
//! program depends on what it does: threads that wait for each other by blocking progress together,
//! and the CPU time that all of them receive measures it; threads that do not block progress each
//! for itself, and the slowest decides, as it will at the next barrier.
//!
//! Invariant: stretches of pause are at most [`GuardOptions::share`] of the run, and none comes
//! before balancing has had time to show an effect.
//!
//! The guard looks at its result after every comparison. So its interval is a confidence sequence
//! ([`RunningMean`]), which holds its level over all looks together: where balancing makes no
//! difference, at most one run in twenty stands down, however long it is. Noise that lasts longer than
//! a stretch is in both stretches of a comparison and cancels.
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
    /// The greatest part of the run that may be spent pausing.
    pub share: f64,
    /// No pause before balancing has run this long.
    pub warm_up: Nanos,
    /// Length of a stretch in periods; never shorter than `shortest`.
    pub periods: f64,
    /// Least length of a stretch.
    pub shortest: Nanos,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            share: 0.02,
            warm_up: Nanos::from_millis(3_000),
            periods: 8.0,
            shortest: Nanos::from_millis(150),
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardState {
    /// Balancing, not yet measuring.
    Balancing,
    /// Balancing, and measuring how fast.
    Reference,
    /// Paused, and measuring how fast.
    Paused,
    /// Stood down for good.
    Down,
}

/// A share of blocked time above which threads are taken to wait for each other.
const BLOCKING: f64 = 0.02;
/// Comparisons before a verdict can end balancing.
const LEAST_PAIRS: u32 = 5;
/// A loss smaller than this is not worth standing down for: it is what a verdict may be wrong by.
const TOLERATED: f64 = 0.005;

/// The guard of one domain.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    options: GuardOptions,
    state: GuardState,
    began: Nanos,
    next: Nanos,
    paused_total: Nanos,
    length: Nanos,
    reference: Stretch,
    pause: Stretch,
    /// Logarithms of the ratios.
    logs: RunningMean,
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
            reference: Stretch::default(),
            pause: Stretch::default(),
            logs: RunningMean::default(),
        }
    }

    /// Whether balancing is paused now.
    pub(crate) fn paused(&self) -> bool {
        self.state == GuardState::Paused
    }

    /// Whether balancing has stood down.
    pub(crate) fn stood_down(&self) -> bool {
        self.state == GuardState::Down
    }

    /// The set of threads or CPUs has changed: what was being measured no longer compares.
    pub(crate) fn disturbed(&mut self, now: Nanos) {
        if matches!(self.state, GuardState::Reference | GuardState::Paused) {
            self.state = GuardState::Balancing;
            self.next = now + self.options.warm_up;
        }
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
                if now >= self.next {
                    self.length = period.scale(self.options.periods).max(self.options.shortest);
                    self.reference = Stretch { began: now, ..Stretch::default() };
                    self.state = GuardState::Reference;
                }
            }
            GuardState::Reference => {
                self.reference.add(elapsed, threads);
                if now - self.reference.began >= self.length {
                    self.pause = Stretch { began: now, ..Stretch::default() };
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
        }
    }

    fn compare(&mut self, now: Nanos) {
        self.state = GuardState::Balancing;
        if self.reference.ran.len() == self.pause.ran.len() && !self.pause.ran.is_empty() {
            let blocking =
                self.reference.blocked_share() > BLOCKING || self.pause.blocked_share() > BLOCKING;
            let rate = if blocking { Stretch::mean_rate } else { Stretch::least_rate };
            let (on, off) = (rate(&self.reference), rate(&self.pause));
            if on > 0.0 && off > 0.0 {
                self.logs.add((on / off).ln());
            }
        }
        let verdict = self.verdict();
        if verdict.pairs >= LEAST_PAIRS && verdict.high < 1.0 - TOLERATED {
            self.state = GuardState::Down;
            return;
        }
        // Spend at most the share on pausing; once it is clear that balancing pays, look ever
        // less often.
        let ran = (now - self.began).0 as f64;
        let affordable = self.paused_total.0 as f64 / self.options.share;
        let settled = verdict.pairs >= 3 && verdict.low > 1.0;
        let wait = (affordable - ran).max(0.0).max(if settled { ran } else { 0.0 });
        self.next = now + Nanos(wait as u64).max(self.length);
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
        let (guard, share) = run([0.66, 0.66], [0.66, 0.66], 0.1, 0.3, 600);
        assert!(
            !guard.stood_down() && guard.verdict().pairs >= LEAST_PAIRS,
            "{:?}",
            guard.verdict()
        );
        assert!(share > 0.0 && share < 0.021, "{share}");
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
