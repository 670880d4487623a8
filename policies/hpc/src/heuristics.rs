//! The paper's two heuristics: from utilisation to a step of priority.
//!
//! The paper gives the limits and what utilisation is held against them, not how a step follows. Two
//! things are our reading, as its figures show them:
//!
//! - **A step is one level.** Adaptive always needs two iterations when the load of MetBenchVar is
//!   reversed: from 4 and 6 over 5 and 5 to 6 and 4.
//! - **Uniform also goes by which threads are above the mean of all.** It alone decides where the limits
//!   distinguish none; else one between the limits is lowered only if below the mean, and one above `HIGH_UTIL`
//!   raised only if not. After fifteen balanced iterations all of MetBenchVar have a global utilisation above
//!   `HIGH_UTIL`, and would have for two or three more after a reversal, and then be between the limits for ten;
//!   but the paper's scheduler has detected and corrected it after two, and after three the next time.
//!
//! The paper lists `HIGH_UTIL`, `MAX_PRIO` and `MIN_PRIO` as what adaptive is tuned by: it has one
//! limit.

use super::detector::{Round, View, mean};
use super::{Parameter, Parameters, Priority};
use std::collections::BTreeMap;

/// Nearer to the mean than this is on neither side of it.
const LEVEL: f64 = 0.005;

/// The priority that each is to have.
pub(super) type Targets<T> = BTreeMap<T, Priority>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Low,
    Medium,
    High,
}

fn classed(utilisation: f64, p: &Parameters) -> Class {
    if utilisation >= p.high() {
        Class::High
    } else if utilisation < p.low() {
        Class::Low
    } else {
        Class::Medium
    }
}

/// A priority some levels higher or lower, in range.
pub(super) fn moved(from: Priority, levels: i32, p: &Parameters) -> Priority {
    let to = i32::from(from.0) + levels;
    Priority(to.clamp(i32::from(p.least().0), i32::from(p.most().0)) as u8)
}

/// By global utilisation, this iteration included.
pub(super) fn uniform<T: Copy + Ord>(round: &Round<T>, p: &Parameters) -> Targets<T> {
    let known = || round.values().filter_map(|v| v.global);
    let Some(middle) = mean(known()) else { return kept(round) };
    let mut classes = known().map(|u| classed(u, p));
    let first = classes.next();
    let alike = classes.all(|c| Some(c) == first);
    let step = |v: &View| {
        let Some(u) = v.global else { return 0 };
        match classed(u, p) {
            _ if alike && u > middle + LEVEL => 1,
            _ if alike && u < middle - LEVEL => -1,
            _ if alike => 0,
            Class::High if u >= middle => 1,
            Class::Medium if u < middle - LEVEL => -1,
            Class::Low => -1,
            Class::High | Class::Medium => 0,
        }
    };
    round.iter().map(|(e, v)| (*e, moved(v.priority, step(v), p))).collect()
}

/// By G times the utilisation up to the iteration before, plus L times that of the last.
pub(super) fn adaptive<T: Copy + Ord>(round: &Round<T>, p: &Parameters) -> Targets<T> {
    let step = |v: &View| match recent(v, p) {
        None => 0,
        Some(u) if u >= p.high() => 1,
        Some(_) => -1,
    };
    round.iter().map(|(e, v)| (*e, moved(v.priority, step(v), p))).collect()
}

/// U = G U_g(i - 1) + L U_l(i).
pub(super) fn recent(v: &View, p: &Parameters) -> Option<f64> {
    let g = p.get(Parameter::GlobalWeight);
    match (v.before, v.local) {
        (Some(before), Some(local)) => Some(g * before + (1.0 - g) * local),
        (_, local) => local,
    }
}

fn kept<T: Copy + Ord>(round: &Round<T>) -> Targets<T> {
    round.iter().map(|(e, v)| (*e, v.priority)).collect()
}
