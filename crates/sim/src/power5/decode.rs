//! What priorities do on a POWER5: decode cycles (Table I), and what they are in speed.

/// Decode cycles of a slice of R that two tasks get (Table I): R = 2^(|a - b| + 1), of which the one with the
/// lower priority gets one and the other the rest.
///
/// Holds for priorities 2 to 6, as 0, 1 and 7 do not follow the table; see [`Speeds::of`].
#[must_use]
pub fn decode_cycles(a: u8, b: u8) -> (u32, u32) {
    let r = 1 << (u32::from(a.abs_diff(b)) + 1);
    if a >= b { (r - 1, 1) } else { (1, r - 1) }
}

/// How fast a program's tasks are, relative to two tasks on a core that have equal priorities.
///
/// That decode cycles are not speed is why there is a table: a task that gets more of them is held up
/// by other things soon, one that gets fewer lacks them. The paper gives no speeds; these follow from its
/// rows without priorities and with fixed ones (the cases say how).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// While the task on the other context waits, that is, sleeps, and the core is left to this one.
    pub alone: f64,
    /// With a priority higher by 1 and by 2 than that of the other one, which computes.
    pub high: [f64; 2],
    /// With one lower by 1 and by 2.
    pub low: [f64; 2],
}

impl Speeds {
    /// Of tasks that priorities and neighbours do not matter to.
    pub const INDIFFERENT: Self = Self { alone: 1.0, high: [1.0; 2], low: [1.0; 2] };

    /// The speed of a task beside another one (none: it waits), by their priorities:
    ///
    /// - 2 to 6 follow the table. Greater differences than 2 gain nothing for the one, and cost the other
    ///   in proportion to its decode cycles.
    /// - 0: the context is off, and the other one has the core (single-thread mode).
    /// - 7: single-thread mode, the other one is off.
    /// - 1 beside another: a background task, which gets what is left over, taken to be as little as
    ///   with the greatest difference of the table; the other one is as good as alone.
    #[must_use]
    pub fn of(&self, own: u8, other: Option<u8>) -> f64 {
        match (own, other) {
            (0, _) | (1..=6, Some(7)) => 0.0,
            (7, _) | (_, Some(0)) => self.single(),
            (_, None) => self.alone,
            (1, Some(2..)) => self.behind(5),
            (2.., Some(1)) => self.alone,
            (own, Some(other)) => match own.cmp(&other) {
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => self.ahead(own - other),
                std::cmp::Ordering::Less => self.behind(other - own),
            },
        }
    }

    /// Nothing shares the core: never slower than anything else.
    fn single(&self) -> f64 {
        self.high.iter().copied().fold(self.alone.max(1.0), f64::max)
    }

    fn ahead(&self, by: u8) -> f64 {
        self.high[usize::from(by.clamp(1, 2)) - 1]
    }

    fn behind(&self, by: u8) -> f64 {
        let at_two = f64::from(decode_cycles(2, 0).0 + 1);
        match by {
            0..=2 => self.low[usize::from(by.clamp(1, 2)) - 1],
            _ => {
                let (high, low) = decode_cycles(by, 0);
                self.low[1] * at_two / f64::from(high + low)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_i() {
        let rows: Vec<_> = (0..=5).map(|d| decode_cycles(d, 0)).collect();
        assert_eq!(rows, [(1, 1), (3, 1), (7, 1), (15, 1), (31, 1), (63, 1)]);
        // The paper's example: 6 and 2.
        assert_eq!(decode_cycles(6, 2), (31, 1));
        assert_eq!(decode_cycles(2, 6), (1, 31));
    }

    const S: Speeds = Speeds { alone: 1.6, high: [1.4, 1.7], low: [0.6, 0.3] };

    #[test]
    fn more_is_never_slower() {
        for other in [None, Some(0), Some(1), Some(2), Some(4), Some(6)] {
            let all: Vec<f64> = (1..=6).map(|own| S.of(own, other)).collect();
            assert!(all.is_sorted(), "beside {other:?}: {all:?}");
        }
        for own in 1..=6 {
            let all: Vec<f64> = (2..=7).map(|other| S.of(own, Some(other))).collect();
            assert!(all.is_sorted_by(|a, b| a >= b), "{own}: {all:?}");
        }
    }

    #[test]
    fn priorities_outside_of_the_table() {
        assert_eq!((S.of(0, None), S.of(0, Some(4)), S.of(4, Some(7))), (0.0, 0.0, 0.0));
        assert_eq!((S.of(7, Some(4)), S.of(4, Some(0)), S.of(4, None)), (1.7, 1.7, 1.6));
        assert_eq!((S.of(4, Some(1)), S.of(1, Some(1))), (1.6, 1.0));
        assert!((S.of(1, Some(4)) - 0.3 / 8.0).abs() < 1e-12);
        // [4]: to give one more can cost the other ten times as much.
        assert!(S.of(2, Some(6)) < 0.1 && S.of(6, Some(2)) == 1.7);
    }
}
