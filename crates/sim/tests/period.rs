//! The automatic period against fixed ones (the whole table: docs/simulate.md and the example
//! `period`).
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Case, cases};
use evenly_model::Nanos;
use evenly_sim::Barrier;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn check(chosen: impl Fn(&Case) -> bool, most: f64) {
    let mut checked = 0;
    for c in cases(ms(6_000), ms(4_000)).into_iter().filter(chosen) {
        let f = c.find("juggle", 3);
        assert!(f.over_best < most, "{c:?}: {f:?}");
        checked += 1;
    }
    assert!(checked > 2);
}

/// Figures 8, 9 and 17: one phase.
#[test]
fn with_one_phase_it_is_near_the_best() {
    check(|c| c.phases == 1, 0.015);
}

/// Figure 11, whatever threads do at barriers.
#[test]
fn with_phases_it_is_near_the_best() {
    check(|c| c.figure == "11" && c.phase >= ms(50), 0.02);
}

/// Where a phase is no longer than one or two periods it depends on chance what a period wins.
#[test]
fn with_phases_as_short_as_the_period_it_is_near_the_best() {
    let short = |c: &Case| c.figure == "11" && c.phase < ms(50);
    check(|c| short(c) && c.barrier != Barrier::Spin, 0.06);
    check(|c| short(c) && c.barrier == Barrier::Spin, 0.08);
}
