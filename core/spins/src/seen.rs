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

    pub(crate) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.waiting += other.waiting;
        self.time += other.time;
    }
}
