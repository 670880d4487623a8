//! How long is spun before the CPU is given away (section 2.5.3).

use evenly_model::Nanos;

/// Spin, then yield: at least twice as long as a message takes there and back, so that nobody yields whose answer is on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    least: Nanos,
    most: Nanos,
    length: Nanos,
}

impl Spin {
    /// For messages that take so long there and back, and a quantum, which is the longest spin.
    #[must_use]
    pub fn new(round_trip: Nanos, quantum: Nanos) -> Self {
        let least = Nanos(round_trip.0.saturating_mul(2)).min(quantum);
        Self { least, most: quantum, length: least }
    }

    /// How long is spun now.
    #[must_use]
    pub const fn length(&self) -> Nanos {
        self.length
    }

    /// A yield was in vain: there was nobody to yield to, or the process runs again and what it waits for is not there.
    pub fn in_vain(&mut self) {
        // Where messages take no time it would stay 0.
        self.length = Nanos(self.length.0.saturating_mul(2).max(1)).min(self.most);
    }

    /// A yield was none in vain.
    pub fn succeeded(&mut self) {
        self.length = self.least;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_doubles_up_to_a_quantum_and_begins_anew() {
        let us = Nanos::from_micros;
        let mut spin = Spin::new(us(220), us(2_000));
        let lengths = [440, 880, 1_760, 2_000, 2_000].map(|length| {
            let found = spin.length();
            spin.in_vain();
            (found, us(length))
        });
        lengths.iter().for_each(|(found, expected)| assert_eq!(found, expected));
        spin.succeeded();
        assert_eq!(spin.length(), us(440));
        assert_eq!(Spin::new(us(220), us(100)).length(), us(100));
    }

    proptest! {
        #[test]
        fn it_is_between_two_round_trips_and_a_quantum(
            round_trip: u64,
            quantum: u64,
            in_vain in prop::collection::vec(any::<bool>(), 0..100),
        ) {
            let mut spin = Spin::new(Nanos(round_trip), Nanos(quantum));
            for in_vain in in_vain {
                let before = spin.length();
                if in_vain { spin.in_vain() } else { spin.succeeded() }
                prop_assert!(spin.length() <= Nanos(quantum));
                prop_assert!(spin.length().0 >= round_trip.saturating_mul(2).min(quantum));
                prop_assert!(!in_vain || spin.length() > before || spin.length() == Nanos(quantum));
            }
        }
    }
}
