//! What samples of threads add up to.

use evenly_model::Nanos;

/// How often threads were seen in some time, and how often in a loop that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Anywhere.
    pub all: u64,
    /// In a loop that waits.
    pub waiting: u64,
    /// For how long samples were taken.
    pub time: Nanos,
}

impl Seen {
    /// How often threads were seen computing.
    #[must_use]
    pub fn computing(&self) -> u64 {
        self.all - self.waiting.min(self.all)
    }

    /// The same for each second; None where no time has passed.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.time > Nanos::ZERO).then(|| self.computing() as f64 / self.time.as_secs_f64())
    }

    /// The part of their CPU time for which they computed; None where they were not seen.
    #[must_use]
    pub fn part(&self) -> Option<f64> {
        (self.all > 0).then(|| self.computing() as f64 / self.all as f64)
    }

    /// Whether threads compute for more than this many times as long as in the other time, by more than what samples err
    /// (two standard deviations).
    pub(crate) fn exceeds(&self, other: &Self, factor: f64) -> bool {
        let (own, others) = (self.computing() as f64, other.computing() as f64);
        let scale = factor * self.time.as_secs_f64() / other.time.as_secs_f64().max(1e-9);
        own - scale * others > 2.0 * (own + scale * scale * others).sqrt()
    }

    /// Counts for less, beside what is new.
    pub(crate) fn fade(&mut self) {
        (self.all, self.waiting) = (self.all * 3 / 4, self.waiting * 3 / 4);
        self.time = Nanos(self.time.0 / 4 * 3);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.waiting += other.waiting;
        self.time += other.time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(computing: u64, ms: u64) -> Seen {
        Seen { all: computing + 7, waiting: 7, time: Nanos::from_millis(ms) }
    }

    #[test]
    fn samples_err_by_the_root_of_their_number() {
        let half = seen(100, 1_000);
        assert!(!seen(120, 1_000).exceeds(&half, 1.0) && seen(140, 1_000).exceeds(&half, 1.0));
        assert!(!seen(140, 1_000).exceeds(&half, 1.2));
        // In twice the time there are twice as many.
        assert!(!seen(230, 2_000).exceeds(&half, 1.0) && seen(60, 300).exceeds(&half, 1.0));
        // Nothing is no more than nothing.
        assert!(!seen(0, 1_000).exceeds(&seen(0, 1_000), 1.0));
        assert!(!seen(3, 1_000).exceeds(&seen(0, 1_000), 1.0));
        assert!(seen(9, 1_000).exceeds(&seen(0, 1_000), 1.0));
        assert_eq!((seen(9, 500).rate(), seen(9, 0).rate()), (Some(18.0), None));
        assert_eq!((seen(7, 1).part(), Seen::default().part()), (Some(0.5), None));
    }
}
