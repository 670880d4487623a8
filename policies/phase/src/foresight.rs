//! When a helper is needed next, by when it was needed before.
//!
//! To be woken by the opening of a barrier, only to sleep until the moment of the move, costs as much as the move.
//! Phases repeat, and so do the CPUs that have too much to do: with three equal threads on two CPUs each in every
//! second phase. A helper that was needed at regular intervals sleeps until it is needed again, and the program wakes
//! no one.
//!
//! Invariant: where what was foreseen did not come, more regular intervals are asked for before the next attempt.

use crate::Opening;
use evenly_model::Nanos;

/// Phases from one that needs the helper to the next, at most: short ones may lie between.
const PATTERN: u32 = 8;
/// Where a phase takes longer, a wake-up costs nothing that can be measured.
const LONGEST: Nanos = Nanos::from_millis(2);
/// By how much two intervals may differ that are alike.
const ALIKE: f64 = 0.15;
/// Regular intervals that are asked for at most.
const MOST: u32 = 64;

/// What one helper knows of when it was needed.
#[derive(Debug, Default)]
pub struct Foresight {
    /// The last phase in which it moved a thread.
    last: Option<Opening>,
    /// From the one before to that.
    interval: Option<Nanos>,
    /// Regular intervals in a row.
    regular: u32,
    /// How many more than one are asked for.
    doubts: u32,
}

impl Foresight {
    /// The helper has moved a thread in the phase that began at `opening`, which was to be done at `due`. When it will
    /// be needed again; None where that cannot be said. By when it was due, not when it was done, so that one late
    /// move does not delay all later ones.
    pub fn moved(&mut self, opening: Opening, due: Nanos) -> Option<Nanos> {
        let before = self.last.replace(opening)?;
        let phases = opening.phase.wrapping_sub(before.phase);
        let took = opening.at - before.at;
        // Short phases between them are not always as many: where a region ends there may be one barrier less.
        let alike = |last: Nanos| (took.0 as f64 - last.0 as f64).abs() <= ALIKE * took.0 as f64;
        let last = self.interval.replace(took);
        if !(1..=PATTERN).contains(&phases)
            || took.0 > LONGEST.0 * u64::from(phases)
            || !last.is_some_and(alike)
        {
            self.regular = 0;
            return None;
        }
        self.regular += 1;
        if self.regular <= self.doubts {
            return None;
        }
        Some(due + took)
    }

    /// It was needed when that was foreseen, or was not.
    pub fn was_right(&mut self, right: bool) {
        if right {
            self.doubts /= 2;
        } else {
            self.doubts = (self.doubts * 2 + 1).min(MOST);
            self.regular = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(phase: u32, at_us: u64) -> Opening {
        Opening { phase, at: Nanos::from_micros(at_us) }
    }

    /// Would catch: a moment that is not the same in the phase; one that is foreseen from one interval.
    #[test]
    fn what_is_regular_is_foreseen() {
        let mut foresight = Foresight::default();
        let mut at = |phase, at_us| {
            foresight
                .moved(opening(phase, at_us), Nanos::from_micros(at_us + 70))
                .map(|n| n.0 / 1000)
        };
        assert_eq!(at(10, 1000), None);
        assert_eq!(at(12, 1600), None);
        assert_eq!(at(14, 2200), Some(2870));
        assert_eq!(at(16, 2790), Some(2790 + 70 + 590));
        // Another pattern, and longer phases.
        assert_eq!(at(19, 3700), None);
        assert_eq!(at(21, 4300), None);
        assert_eq!(at(23, 5400), None);
    }

    /// Would catch: a region with one barrier more, or one less, that ends what is regular.
    #[test]
    fn short_phases_in_between_need_not_be_as_many() {
        let mut foresight = Foresight::default();
        let mut at = |phase, at_us| {
            foresight.moved(opening(phase, at_us), Nanos::from_micros(at_us)).map(|n| n.0 / 1000)
        };
        assert_eq!((at(10, 1000), at(14, 1600)), (None, None));
        assert_eq!((at(17, 2200), at(21, 2800)), (Some(2800), Some(3400)));
    }

    #[test]
    fn numbers_of_phases_wrap_around() {
        let mut foresight = Foresight::default();
        let phases = [u32::MAX - 1, u32::MAX, 0, 1].into_iter().zip(1..);
        let seen: Vec<bool> = phases
            .map(|(phase, i)| {
                foresight.moved(opening(phase, i * 100), Nanos::from_micros(i * 100)).is_some()
            })
            .collect();
        assert_eq!(seen, [false, false, true, true]);
    }

    /// Would catch: a helper that sleeps in vain again and again; one that forgives nothing.
    #[test]
    fn errors_ask_for_more_regular_intervals() {
        let mut foresight = Foresight::default();
        let mut phase = 0;
        let mut until_foreseen = |foresight: &mut Foresight| {
            let mut intervals = 0;
            loop {
                (phase, intervals) = (phase + 1, intervals + 1);
                let at = u64::from(phase) * 100;
                if foresight.moved(opening(phase, at), Nanos::from_micros(at)).is_some() {
                    return intervals;
                }
            }
        };
        assert_eq!(until_foreseen(&mut foresight), 3);
        foresight.was_right(false);
        assert_eq!(until_foreseen(&mut foresight), 2);
        foresight.was_right(false);
        assert_eq!(until_foreseen(&mut foresight), 4);
        for _ in 0..4 {
            foresight.was_right(true);
        }
        assert!((0..1000).all(|_| until_foreseen(&mut foresight) == 1));
    }

    #[test]
    fn long_phases_are_waited_for() {
        let mut foresight = Foresight::default();
        for phase in 0..10 {
            let at = u64::from(phase) * 2100;
            assert_eq!(foresight.moved(opening(phase, at), Nanos::from_micros(at)), None);
        }
    }
}
