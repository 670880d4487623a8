//! What helpers take of a CPU, in virtual time.
#![allow(missing_docs)]

use evenly_model::Nanos;
use evenly_phase::Allowance;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// What a helper may take of a CPU where it gains nothing.
const RATE: f64 = 0.01;
/// The budget of evenly, as it is by default.
const BUDGET: f64 = 0.01;
/// What it may take beside that, at once.
const BURST: u64 = 2_000_000;

/// What came of it.
#[derive(Debug)]
struct Taken {
    cpu: u64,
    served: u64,
    openings: u64,
}

/// A barrier opens each `every` ns for ten seconds; to serve an opening takes what `cost` says, and gains so much.
fn serve(every: u64, gain: u64, cost: impl FnMut(u64) -> u64) -> Taken {
    serve_with(BUDGET, every, gain, cost)
}

fn serve_with(budget: f64, every: u64, gain: u64, mut cost: impl FnMut(u64) -> u64) -> Taken {
    let mut allowance = Allowance::new(RATE, budget, Nanos::ZERO);
    let mut taken = Taken { cpu: 0, served: 0, openings: 0 };
    let (mut rests_until, mut time) = (Nanos::ZERO, 0);
    while time < 10 * SECOND {
        (time, taken.openings) = (time + every, taken.openings + 1);
        if Nanos(time) < rests_until {
            continue;
        }
        let cost = cost(taken.openings);
        (taken.cpu, taken.served) = (taken.cpu + cost, taken.served + 1);
        // What comes while it is at work is missed.
        time += cost / every * every;
        if let Some(until) = allowance.spend(Nanos(time), Nanos(cost), Nanos(gain)) {
            rests_until = until;
        }
    }
    taken
}

/// Would catch: a rate of openings at which helpers take a CPU.
#[test]
fn what_gains_nothing_stays_within_the_budget_at_any_rate() {
    for every in [1_000, 20_000, 100_000, 1_000_000] {
        let taken = serve(every, 0, |n| 10_000 + n * 7_919 % 20_000);
        assert!(taken.cpu <= SECOND / 10 + BURST + 30_000, "each {every} ns: {taken:?}");
        // And it is not given up.
        assert!(taken.served >= 1_000, "each {every} ns: {taken:?}");
    }
}

/// Would catch: moves that are not made although they gain more than they cost. Three threads on two CPUs: each helper
/// is needed in every second phase.
#[test]
fn what_gains_more_than_it_costs_is_always_served() {
    for (work, cost) in [(170_000, 35_000), (330_000, 35_000), (1_000_000, 40_000)] {
        let taken = serve(3 * work, work / 2, |_| cost);
        assert_eq!(taken.served, taken.openings, "{work} ns of work");
        assert!(taken.cpu > SECOND / 10, "the budget is enough: {taken:?}");
    }
}

/// Would catch: a program that says of each phase that it gains an hour, and so gives helpers a CPU; helpers that take no
/// less where the user allows less.
#[test]
fn gains_that_cannot_be_are_not_paid() {
    for (budget, most) in [(BUDGET, SECOND), (1.0, SECOND), (0.001, SECOND / 10)] {
        let taken = serve_with(budget, 20_000, 3_600 * SECOND, |_| 15_000);
        assert!(taken.cpu <= SECOND / 10 + most + BURST + 15_000, "budget {budget}: {taken:?}");
    }
}

/// Would catch: a helper that gains less than it costs and never ends.
#[test]
fn what_costs_more_than_it_gains_is_held_by_the_budget() {
    let taken = serve(1_000_000, 15_000, |_| 40_000);
    let paid = taken.served * 15_000;
    assert!(taken.cpu <= SECOND / 10 + BURST + paid + 40_000, "{taken:?}");
    assert!(taken.served < taken.openings / 2, "{taken:?}");
}

proptest! {
    #[test]
    fn no_helper_takes_more_than_its_limit(
        rate in 0.0001..1.0f64,
        budget in 0.0001..1.0f64,
        turns in prop::collection::vec((0u64..5_000_000, 0u64..100_000, any::<u64>()), 1..500),
    ) {
        let mut allowance = Allowance::new(rate, budget, Nanos::ZERO);
        let (mut now, mut cpu) = (0, 0);
        for (wait, cost, gain) in turns {
            now += wait + cost;
            cpu += cost;
            if let Some(until) = allowance.spend(Nanos(now), Nanos(cost), Nanos(gain)) {
                prop_assert!(until.0 > now);
                now = until.0;
            }
            let most = (rate + (10.0 * budget).min(0.1)) * now as f64 + BURST as f64 + cost as f64;
            prop_assert!(cpu as f64 <= most + 1.0, "{cpu} of {most}");
        }
    }
}
