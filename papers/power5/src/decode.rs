//! What priorities do on a POWER5: decode cycles (Table I), and what they are in speed.

use evenly_model::hpc::Priority;
use serde::Serialize;

/// Decode cycles of a slice of R that two tasks get (Table I): R = 2^(|a - b| + 1), of which the one with the
/// lower priority gets one and the other the rest.
///
/// Holds for priorities 2 to 6, as 0, 1 and 7 do not follow the table; see [`Speeds::of`].
#[must_use]
pub fn decode_cycles(a: u8, b: u8) -> (u32, u32) {
    let r = 1 << (u32::from(a.abs_diff(b)) + 1);
    if a >= b { (r - 1, 1) } else { (1, r - 1) }
}

/// The priority that a context is given for a weight relative to the normal one (1.0): the one whose decode cycles
/// beside a context with the normal priority are nearest to it, as a ratio (Table I).
#[must_use]
pub fn priority_for(weight: f64) -> u8 {
    let normal = Priority::NORMAL.0;
    let off = |p: u8| {
        let (own, other) = decode_cycles(p, normal);
        (weight * f64::from(other) / f64::from(own)).ln().abs()
    };
    // 1 is the lowest, and 6 the highest, that an operating system gives (Table II).
    let given = 1..=Priority::MOST.0;
    given.min_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap_or(normal)
}

/// How fast a program's tasks are, relative to two tasks on a core that have equal priorities.
///
/// That decode cycles are not speed is why there is a table: a task that gets more of them is held up
/// by other things soon, one that gets fewer lacks them. The paper gives no speeds; these follow from its
/// rows without priorities and with fixed ones (the cases say how).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

    /// The speeds that follow from decode shares alone, by one function for all programs ([`ByShare`]).
    #[must_use]
    pub fn by_share(by: ByShare) -> Self {
        let cycles = |difference| {
            let (high, low) = decode_cycles(difference, 0);
            [high, low].map(|own| by.speed(f64::from(own) / f64::from(high + low)))
        };
        let [one, two] = [1, 2].map(cycles);
        Self { alone: by.speed(by.alone_share), high: [one[0], two[0]], low: [one[1], two[1]] }
    }

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

/// Speed as one function of the decode share, the same for all programs and ranks: (2 s)^exponent, which is 1 at
/// a share of a half.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ByShare {
    /// 1 where speed is in proportion to decode cycles; below that both more and less of them count less.
    pub exponent: f64,
    /// The share of one whose neighbour waits: Linux's idle loop, on the other context, decodes the rest.
    pub alone_share: f64,
}

impl ByShare {
    /// Fitted on the rows baseline and static of Tables III to V together, times and parts of computing, and on
    /// no row of a heuristic: the squares of relative deviations of times and of deviations of parts are least,
    /// to two digits. A test has that.
    pub const FITTED: Self = Self { exponent: 0.87, alone_share: 0.81 };

    /// The speed at a decode share from 0 to 1.
    #[must_use]
    pub fn speed(self, share: f64) -> f64 {
        (2.0 * share).powf(self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::hpc::{Parameters, Parts};

    #[test]
    fn table_i() {
        let rows: Vec<_> = (0..=5).map(|d| decode_cycles(d, 0)).collect();
        assert_eq!(rows, [(1, 1), (3, 1), (7, 1), (15, 1), (31, 1), (63, 1)]);
        // The paper's example: 6 and 2.
        assert_eq!(decode_cycles(6, 2), (31, 1));
        assert_eq!(decode_cycles(2, 6), (1, 31));
    }

    #[test]
    fn priorities_are_the_nearest_to_a_weight() {
        let (parts, parameters) = (Parts::POWER, Parameters::default());
        for p in 1..=6 {
            assert_eq!(priority_for(parts.weight(Priority(p), &parameters)), p);
        }
        assert_eq!([0.9, 1.0, 2.5, 3.0, 5.0, 1e9].map(priority_for), [4, 4, 5, 5, 6, 6]);
        assert_eq!([1e-9, 0.34].map(priority_for), [1, 3]);
    }

    #[test]
    fn one_function_of_the_share() {
        let s = Speeds::by_share(ByShare { exponent: 1.0, alone_share: 0.8 });
        assert_eq!(s, Speeds { alone: 1.6, high: [1.5, 1.75], low: [0.5, 0.25] });
        let s = Speeds::by_share(ByShare { exponent: 0.5, alone_share: 1.0 });
        assert_eq!((s.alone, s.low[1]), (2f64.sqrt(), 0.5));
        assert_eq!(ByShare::FITTED.speed(0.5), 1.0);
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
