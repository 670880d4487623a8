//! The automatic period against fixed ones (the whole table: docs/simulate.md and the example
//! `period`).
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Case, cases};
use evenly_engine::Period;
use evenly_model::{CpuId, Nanos};
use evenly_policies::by_name;
use evenly_sim::{Barrier, DriverOptions, Scenario, Sharing, Sim, Stranger, simulate};

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

/// Where each thread has a CPU to itself there are half as many points; and a thread that comes is registered as soon
/// as ever, so that little is lost: two threads of 8 s, with a neighbour on one of the CPUs from the fourth second
/// on, of whom the best placement leaves each thread the same.
#[test]
fn it_is_longer_while_nothing_is_to_be_done() {
    let run = |policy: &str, period: Period, from: Option<Nanos>| {
        let scenario = Scenario {
            sharing: Sharing::Slices(ms(4)),
            tick: ms(4),
            strangers: from
                .map(|from| Stranger { from, ..Stranger::always(CpuId(0)) })
                .into_iter()
                .collect(),
            ..Scenario::new(2, 2, ms(8_000))
        };
        let mut options = DriverOptions::fixed(ms(14), 1);
        options.period.period = period;
        simulate(Sim::new(scenario), by_name(policy).unwrap(), &options, ms(60_000))
    };
    for policy in ["juggle", "hybrid", "hpc-auto"] {
        let of =
            |from| [Period::Auto, Period::Fixed(ms(14))].map(|period| run(policy, period, from));
        let [calm, fixed] = of(None);
        assert!(
            calm.points * 10 < fixed.points * 6,
            "{policy}: {} of {}",
            calm.points,
            fixed.points
        );
        assert_eq!(calm.makespan, fixed.makespan, "{policy}");
        let [calm, fixed] = of(Some(ms(4_000)));
        let over = calm.makespan.unwrap().as_secs_f64() / fixed.makespan.unwrap().as_secs_f64();
        assert!(over < 1.01, "{policy}: {over}");
    }
    // A policy that only watches is to see as much as ever.
    let [auto, fixed] =
        [Period::Auto, Period::Fixed(ms(14))].map(|period| run("observe", period, None));
    assert!(auto.points * 10 > fixed.points * 9, "{} of {}", auto.points, fixed.points);
}
