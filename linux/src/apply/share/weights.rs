//! Giving a rank or a thread more or less of the machine: what any mechanism for it must be able to
//! do, and which weights come nearest to those that are wanted.
//!
//! Invariant: pure. A mechanism knows the system; nothing here does.
//!
//! # Weights
//! A weight of 1 is what a target had when it was admitted, 2 is twice as much against others, and so on.
//! Only ratios matter, so where nothing may be raised the others are lowered: [`fit`] multiplies all
//! weights with one factor, the one with which they come out best.

use evenly_model::{Nanos, Pid, ThreadId};

/// Weights of the kernel's 40 nice values, from -20 to 19 (`sched_prio_to_weight`).
const NICE_WEIGHTS: [f64; 40] = [
    88761., 71755., 56483., 46273., 36291., 29154., 23254., 18705., 14949., 11916., 9548., 7620.,
    6100., 4904., 3906., 3121., 2501., 1991., 1586., 1277., 1024., 820., 655., 526., 423., 335.,
    272., 215., 172., 137., 110., 87., 70., 56., 45., 36., 29., 23., 18., 15.,
];
/// Weights further apart than this are cut: no mechanism reaches them.
const FARTHEST: f64 = 1e6;
/// Settings whose ratios are this close to the best count as equally good: then the one that changes
/// least is taken. 5 %, where a nice value is 25 %; less where there are whole numbers.
const AS_GOOD: f64 = 0.05;
const AS_GOOD_WHOLE: f64 = 0.002;
/// How many targets are tried as the one that fits exactly.
const EXACT: usize = 64;
/// How many other factors are tried.
const TRIALS: u32 = 400;

/// The weight of a nice value.
#[must_use]
pub fn weight_of_nice(nice: i32) -> f64 {
    NICE_WEIGHTS[(nice.clamp(-20, 19) + 20) as usize]
}

/// The nice value of a weight: that with the nearest.
#[must_use]
pub fn nice_of_weight(weight: f64) -> i32 {
    let far = |nice: &i32| (weight_of_nice(*nice) / weight.max(f64::MIN_POSITIVE)).ln().abs();
    (-20..20).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(0)
}

/// What is given more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// One thread of a process.
    Thread {
        /// The process that the thread belongs to.
        process: Pid,
        /// The id of the thread, with its start time.
        id: ThreadId,
    },
    /// All threads of a process.
    Process {
        /// The id of the process, which another may have later.
        process: Pid,
        /// Its start time, in clock ticks since boot.
        start: u64,
    },
}

/// Which weights a mechanism can give at all, in its own units.
#[derive(Debug, Clone, PartialEq)]
pub enum Steps {
    /// These weights and no others, the least first.
    Table(Vec<f64>),
    /// Whole numbers from the first to the second.
    Whole(f64, f64),
}

impl Steps {
    /// The 40 weights of nice values.
    #[must_use]
    pub fn nice() -> Self {
        Self::Table(NICE_WEIGHTS.iter().rev().copied().collect())
    }

    /// The nearest, by ratio, that is no less than `least` and no more than `most`; where there is none
    /// between them, `least`.
    #[must_use]
    pub fn nearest(&self, weight: f64, least: f64, most: f64) -> f64 {
        let wanted = weight.clamp(least.min(most), most.max(least));
        match self {
            Self::Table(levels) => {
                let far = |l: &f64| (l / wanted).ln().abs();
                let inside = levels.iter().copied().filter(|l| *l >= least && *l <= most);
                inside.min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(least)
            }
            Self::Whole(first, last) => {
                wanted.round().clamp(first.max(least), last.min(most).max(least))
            }
        }
    }

    /// The least and the most.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        match self {
            Self::Table(levels) => {
                (levels.first().copied().unwrap_or(1.0), levels.last().copied().unwrap_or(1.0))
            }
            Self::Whole(first, last) => (*first, *last),
        }
    }
}

/// What a target can be given, in a mechanism's units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// What it had when it was admitted: a weight of 1.
    pub original: f64,
    /// The least that it can be given, so that it can be undone.
    pub least: f64,
    /// The most; `original` where nothing may be raised.
    pub most: f64,
}

/// What is asked for a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// The weight, relative to what it had when it was admitted.
    pub weight: f64,
    /// What can be given to it.
    pub bounds: Bounds,
}

impl Request {
    fn wanted(&self) -> f64 {
        // Nothing that comes from a calculation gone wrong may push the others aside.
        let weight = if self.weight.is_finite() && self.weight > 0.0 { self.weight } else { 1.0 };
        weight.clamp(1.0 / FARTHEST, FARTHEST) * self.bounds.original
    }
}

/// What to give to each, in the mechanism's units, so that the ratios are as near as possible to those
/// that are wanted. All weights are multiplied with one factor: 1, unless ratios come out clearly
/// better with another.
#[must_use]
pub fn fit(requests: &[Request], steps: &Steps) -> Vec<f64> {
    let given = |factor: f64| -> Vec<f64> {
        requests
            .iter()
            .map(|w| steps.nearest(w.wanted() * factor, w.bounds.least, w.bounds.most))
            .collect()
    };
    // By how much the ratio of two of them is off at worst, as a logarithm.
    let off = |given: &[f64]| -> f64 {
        let (least, most) = requests
            .iter()
            .zip(given)
            .map(|(w, g)| (g / w.wanted()).ln())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), e| (a.min(e), b.max(e)));
        if least > most { 0.0 } else { most - least }
    };
    let mut factors = vec![1.0];
    // Those with which one of them has exactly the most, or the least, that it can have.
    for w in requests.iter().take(EXACT) {
        factors.extend([w.bounds.most / w.wanted(), w.bounds.least / w.wanted()]);
    }
    let highest = requests.iter().map(|w| w.bounds.most / w.wanted()).fold(f64::INFINITY, f64::min);
    factors.push(highest);
    let (low, high) = requests.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), w| {
        (low.min(w.bounds.least / w.wanted()), high.max(w.bounds.most / w.wanted()))
    });
    if low < high {
        let ratio = (high / low).ln();
        let step = |i: u32| low * (ratio * f64::from(i) / f64::from(TRIALS)).exp();
        factors.extend((0..=TRIALS).map(step));
    }
    factors.retain(|f| f.is_finite() && *f > 0.0);
    let tried: Vec<(f64, f64, Vec<f64>)> = factors
        .into_iter()
        .map(|factor| {
            let given = given(factor);
            (off(&given), factor.ln().abs(), given)
        })
        .collect();
    let best = tried.iter().map(|t| t.0).fold(f64::INFINITY, f64::min);
    let as_good = match steps {
        Steps::Table(_) => AS_GOOD,
        Steps::Whole(..) => AS_GOOD_WHOLE,
    };
    tried
        .into_iter()
        .filter(|t| t.0 <= best + as_good)
        .min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0)))
        .map(|t| t.2)
        .unwrap_or_default()
}

/// Why a target could not be given what it should have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// It has ended: no error to the user.
    #[error("it has ended")]
    Gone,
    /// The program has chosen a value of its own; it is left alone.
    #[error("the program has set its own {what}: {found}")]
    Foreign {
        /// What it has set.
        what: &'static str,
        /// The value that the program has set, in words.
        found: String,
    },
    /// It cannot be done, or could not be undone; why, and what would mend it.
    #[error("{0}")]
    Refused(String),
}

/// A way to give more or less of the machine. Whatever an implementation changes is in the journal
/// before (promise P4), and is undone only where it is still its own.
pub trait ShareMechanism {
    /// The name of the mechanism, for messages.
    fn name(&self) -> &'static str;

    /// Which weights there are, in its own units.
    fn steps(&self) -> Steps;

    /// What a target can be given, in the same units. Nothing is changed.
    ///
    /// # Errors
    /// [`ShareError`], also where a change could not be undone.
    fn bounds(&mut self, target: Target) -> Result<Bounds, ShareError>;

    /// Gives a target a weight in those units, or the nearest that there is; which is returned.
    ///
    /// # Errors
    /// [`ShareError`]; nothing was changed then, but for threads of a process that come before one
    /// that failed.
    fn give(&mut self, target: Target, units: f64) -> Result<f64, ShareError>;

    /// Undoes what was changed, where it is still ours.
    ///
    /// # Errors
    /// [`ShareError`]; where a target has ended or was never changed there is nothing to undo.
    fn restore(&mut self, target: Target) -> Result<(), ShareError>;

    /// To be called about once a period: undoes what is given for a time only, once that is over.
    fn tick(&mut self, _now: Nanos) {}

    /// Gives one target a weight relative to what it had when it was admitted; returns that which it has
    /// now.
    ///
    /// # Errors
    /// As [`ShareMechanism::give`].
    fn set(&mut self, target: Target, weight: f64) -> Result<f64, ShareError> {
        self.set_all(&[(target, weight)]).pop().unwrap_or(Err(ShareError::Gone))
    }

    /// The same for several that share CPUs: where nothing may be raised, the others are lowered.
    /// One result for each, in order.
    fn set_all(&mut self, wanted: &[(Target, f64)]) -> Vec<Result<f64, ShareError>> {
        let bounds: Vec<Result<Bounds, ShareError>> =
            wanted.iter().map(|&(target, _)| self.bounds(target)).collect();
        let requests: Vec<Request> = wanted
            .iter()
            .zip(&bounds)
            .filter_map(|(&(_, weight), b)| {
                b.as_ref().ok().map(|&bounds| Request { weight, bounds })
            })
            .collect();
        let mut given = fit(&requests, &self.steps()).into_iter();
        wanted
            .iter()
            .zip(bounds)
            .map(|(&(target, _), bounds)| {
                let bounds = bounds?;
                let units = given.next().unwrap_or(bounds.original);
                Ok(self.give(target, units)? / bounds.original)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(weight: f64, original_nice: i32, may_raise: bool) -> Request {
        let original = weight_of_nice(original_nice);
        Request {
            weight,
            bounds: Bounds {
                original,
                least: 15.0,
                most: if may_raise { 88761.0 } else { original },
            },
        }
    }

    fn nices(weights: &[f64], may_raise: bool) -> Vec<i32> {
        let requests: Vec<Request> = weights.iter().map(|w| request(*w, 0, may_raise)).collect();
        fit(&requests, &Steps::nice()).into_iter().map(nice_of_weight).collect()
    }

    #[test]
    fn the_table_is_the_kernels() {
        assert_eq!(
            (weight_of_nice(-20), weight_of_nice(0), weight_of_nice(19)),
            (88761., 1024., 15.)
        );
        for nice in -20..20 {
            assert_eq!(nice_of_weight(weight_of_nice(nice)), nice);
        }
        assert!(NICE_WEIGHTS.windows(2).all(|w| w[0] > w[1]));
    }

    #[test]
    fn with_privileges_the_wish_itself_without_them_the_others_are_lowered() {
        assert_eq!(nices(&[1.0, 1.0], true), [0, 0]);
        assert_eq!(nices(&[3.0, 1.0], true), [-5, 0]);
        assert_eq!(nices(&[3.0, 1.0], false), [0, 5]);
        assert_eq!(nices(&[1.0, 1.0, 4.0], false), [6, 6, 0]);
        assert_eq!(nices(&[1.0, 0.25], false), [0, 6]);
        // The original values differ: weights are relative to them.
        let requests = [request(3.0, 5, false), request(1.0, 0, false)];
        let given: Vec<i32> =
            fit(&requests, &Steps::nice()).into_iter().map(nice_of_weight).collect();
        assert_eq!(given, [5, 5]);
    }

    #[test]
    fn ratios_out_of_reach_end_at_the_edges() {
        assert_eq!(nices(&[1e9, 1.0], false), [0, 19]);
        assert_eq!(nices(&[1e9, 1.0], true), [-20, 19]);
        assert_eq!(nices(&[f64::NAN, 1.0, -1.0, f64::INFINITY], true), [0, 0, 0, 0]);
        assert!(fit(&[], &Steps::nice()).is_empty());
    }

    #[test]
    fn whole_numbers_are_hit_nearly_exactly() {
        let bounds = Bounds { original: 1024.0, least: 2.0, most: 262_144.0 };
        let requests = [1.0, 3.0, 0.7].map(|weight| Request { weight, bounds });
        assert_eq!(fit(&requests, &Steps::Whole(2.0, 262_144.0)), [1024.0, 3072.0, 717.0]);
    }

    /// Least worst error of any choice of nice values.
    fn best_of_all(requests: &[Request]) -> f64 {
        fn go(requests: &[Request], errors: &mut Vec<f64>) -> f64 {
            let Some(w) = requests.get(errors.len()) else {
                let most = errors.iter().copied().fold(f64::MIN, f64::max);
                let least = errors.iter().copied().fold(f64::MAX, f64::min);
                return most - least;
            };
            let mut best = f64::INFINITY;
            for level in NICE_WEIGHTS {
                if level < w.bounds.least || level > w.bounds.most {
                    continue;
                }
                errors.push((level / w.wanted()).ln());
                best = best.min(go(requests, errors));
                errors.pop();
            }
            best
        }
        go(requests, &mut Vec::new())
    }

    proptest! {
        #[test]
        fn nothing_leaves_its_bounds_and_order_is_kept(
            weights in proptest::collection::vec(0.01f64..100.0, 1..12),
            nice in -20i32..20,
            may_raise: bool,
        ) {
            let requests: Vec<Request> = weights.iter().map(|w| request(*w, nice, may_raise)).collect();
            let given = fit(&requests, &Steps::nice());
            for (i, w) in requests.iter().enumerate() {
                prop_assert!(given[i] >= w.bounds.least && given[i] <= w.bounds.most);
                prop_assert!(NICE_WEIGHTS.contains(&given[i]));
                for (j, other) in requests.iter().enumerate() {
                    prop_assert!(w.weight < other.weight || given[i] >= given[j]);
                }
            }
        }

        #[test]
        fn equal_weights_leave_nice_values_as_they_were(
            nices in proptest::collection::vec(-20i32..20, 1..8),
            raise: bool,
        ) {
            let requests: Vec<Request> = nices.iter().map(|n| request(1.0, *n, raise)).collect();
            let given: Vec<i32> =
                fit(&requests, &Steps::nice()).into_iter().map(nice_of_weight).collect();
            prop_assert_eq!(given, nices);
        }

        #[test]
        fn ratios_within_the_range_are_off_by_less_than_a_step(
            weights in proptest::collection::vec(0.3f64..3.0, 2..10), may_raise: bool,
        ) {
            let requests: Vec<Request> = weights.iter().map(|w| request(*w, 0, may_raise)).collect();
            let given = fit(&requests, &Steps::nice());
            for i in 0..weights.len() {
                for j in 0..weights.len() {
                    let off = (given[i] / given[j]) / (weights[i] / weights[j]);
                    prop_assert!(off < 1.29, "{weights:?} {given:?}");
                }
            }
        }

        #[test]
        fn no_other_choice_is_clearly_better(
            weights in proptest::collection::vec(0.05f64..20.0, 2..4),
            nices in proptest::collection::vec(-3i32..8, 4),
            may_raise: bool,
        ) {
            let requests: Vec<Request> =
                weights.iter().zip(&nices).map(|(w, n)| request(*w, *n, may_raise)).collect();
            let given = fit(&requests, &Steps::nice());
            let errors: Vec<f64> =
                requests.iter().zip(&given).map(|(w, g)| (g / w.wanted()).ln()).collect();
            let off = errors.iter().copied().fold(f64::MIN, f64::max)
                - errors.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(off <= best_of_all(&requests) + AS_GOOD + 0.03, "{requests:?} {given:?}");
        }
    }
}
