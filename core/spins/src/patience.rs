//! For how long something is left alone that does not help.

use evenly_model::Nanos;

/// The first time and at most.
const RESTS: [Nanos; 2] = [Nanos::from_millis(10_000), Nanos::from_millis(320_000)];

/// Twice as long each time, until it helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience(Nanos);

impl Patience {
    /// The longest rest.
    #[cfg(test)]
    pub(crate) const LONGEST: Nanos = RESTS[1];

    /// Until when it is left alone from now on.
    pub(crate) fn rest(&mut self, now: Nanos) -> Nanos {
        let until = now + self.0;
        self.0 = Nanos(2 * self.0.0).min(RESTS[1]);
        until
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self(RESTS[0])
    }
}
