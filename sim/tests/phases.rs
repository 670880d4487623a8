//! `phase` in virtual time: one planned move in each phase, with what moves cost, late wake-ups and work that varies.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failure here is the test's own")]

use evenly_model::{CpuId, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Costs, DriverOptions, Outcome, Scenario, Sharing, Sim, Stranger, simulate,
};
use evenly_theory::{Shape, locked_time};

const PHASES: u32 = 300;
const PERIOD: Nanos = Nanos::from_millis(14);

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// n equal threads on m CPUs of a kernel with slices of 3 ms, on which all costs about what it does on a real one.
fn usual(n: usize, m: usize, phase: Nanos) -> Scenario {
    let mut scenario = Scenario {
        sharing: Sharing::Slices(Nanos::from_millis(3)),
        costs: Costs {
            point: us(3),
            read: us(1),
            place: us(8),
            refill: us(5),
            late: us(5),
            ..Costs::default()
        },
        phases: PHASES,
        barrier: Barrier::Block,
        ..Scenario::new(n, m, phase)
    };
    scenario.threads.iter_mut().for_each(|t| t.noise_permille = 20);
    scenario
}

fn run(scenario: &Scenario, policy: &str) -> Outcome {
    let options = DriverOptions::as_analysed(PERIOD, 1);
    let info = by_name(policy).unwrap();
    simulate(Sim::new(scenario.clone()), info, &options, Nanos::from_millis(3_600_000))
}

fn makespan(outcome: &Outcome) -> f64 {
    outcome.makespan.unwrap().as_secs_f64()
}

/// How long it takes, of the time in which all CPUs together do the work.
fn of_limit(scenario: &Scenario, policy: &str) -> f64 {
    let phases = 0..scenario.phases;
    let work =
        |t: &evenly_sim::Thread| phases.clone().map(|p| t.work_of(p).as_secs_f64()).sum::<f64>();
    let all: f64 = scenario.threads.iter().map(work).sum();
    makespan(&run(scenario, policy)) / (all / scenario.cpus.len() as f64)
}

/// Would catch: a helper that plans with what threads had to do when the phase began, when a thread has come to its CPU
/// later. Then only the first move of a chain comes in time: 5 threads on 4 CPUs need three of them.
#[test]
fn many_cpus_hand_one_thread_on_from_each_to_the_next() {
    for (n, m, phase_us, most) in [
        (3, 2, 200, 1.12),
        (3, 2, 1_000, 1.04),
        (5, 4, 1_000, 1.06),
        (5, 4, 5_000, 1.03),
        (9, 8, 1_000, 1.10),
        (9, 8, 5_000, 1.04),
        (7, 3, 1_000, 1.03),
        (17, 16, 5_000, 1.05),
    ] {
        let found = of_limit(&usual(n, m, us(phase_us)), "phase");
        assert!((0.98..most).contains(&found), "{n} on {m}, {phase_us} us: {found}");
    }
}

/// Eq. of `theory/src/locked.rs`, which `predict` shows.
#[test]
fn theory_and_simulation_agree() {
    for (n, m, phase_us) in
        [(3, 2, 500), (3, 2, 2_000), (5, 4, 2_000), (7, 3, 2_000), (9, 8, 4_000)]
    {
        let scenario = usual(n, m, us(phase_us));
        let shape = Shape::new(n as u32, m as u32).unwrap();
        let planned = locked_time(shape, None, us(phase_us), us(50)).seconds() * f64::from(PHASES);
        let found = makespan(&run(&scenario, "phase")) / planned;
        assert!((0.95..1.05).contains(&found), "{n} on {m}, {phase_us} us: {found}");
    }
}

/// Would catch: moves that cannot gain anything.
#[test]
fn threads_that_divide_evenly_stay_where_they_are() {
    for phase in [us(100), us(1_000), us(20_000)] {
        let scenario = usual(4, 4, phase);
        let (phase, fixed) = (run(&scenario, "phase"), run(&scenario, "static"));
        assert_eq!(phase.migrations, 0);
        assert!(makespan(&phase) < 1.005 * makespan(&fixed));
    }
}

/// Would catch: moves that come at the wrong moment because work is not as expected, or a helper wakes late, and that cost
/// more than they gain.
#[test]
fn noise_and_late_wake_ups_cost_no_more_than_they_take_away() {
    for (phase, noise, late, most) in [
        (us(1_000), 300, us(5), 0.97),
        (us(1_000), 900, us(5), 1.01),
        (us(300), 20, us(200), 1.01),
        (us(150), 20, us(100), 1.02),
        (us(40), 20, us(5), 1.02),
    ] {
        let mut scenario = usual(3, 2, phase);
        scenario.threads.iter_mut().for_each(|t| t.noise_permille = noise);
        scenario.costs.late = late;
        let found = makespan(&run(&scenario, "phase")) / makespan(&run(&scenario, "static"));
        assert!(found < most, "{phase}, {noise}, {late}: {found}");
    }
}

/// Would catch: a timetable that takes threads for equal.
#[test]
fn unequal_work_is_divided() {
    let mut scenario = usual(4, 2, us(1_000));
    for (t, factor) in scenario.threads.iter_mut().zip([0.25, 0.75, 1.25, 1.75]) {
        t.work = t.work.scale(factor);
    }
    assert!(of_limit(&scenario, "phase") < 1.06);
    // Three barriers of a loop, with another one slow at each.
    let mut scenario = usual(3, 2, us(1_000));
    for (i, t) in scenario.threads.iter_mut().enumerate() {
        t.works = (0..3).map(|b| us(if b == i { 2_000 } else { 500 })).collect();
    }
    assert!(of_limit(&scenario, "phase") < of_limit(&scenario, "static"));
}

/// Would catch: a CPU that others use and that is taken for a whole one.
#[test]
fn a_stranger_on_a_cpu_is_reckoned_with() {
    let mut scenario = usual(3, 2, us(2_000));
    scenario.phases = 2_000;
    scenario.strangers = vec![Stranger::always(CpuId(1))];
    let found = makespan(&run(&scenario, "phase")) / makespan(&run(&scenario, "static"));
    assert!(found < 1.02, "{found}");
}

/// Would catch: helpers that work where there is time to balance by progress.
#[test]
fn in_long_phases_it_is_hybrid() {
    let scenario = Scenario { phases: 20, ..usual(3, 2, us(300_000)) };
    let (phase, hybrid) = (run(&scenario, "phase"), run(&scenario, "hybrid"));
    assert_eq!((phase.makespan, phase.migrations), (hybrid.makespan, hybrid.migrations));
}

/// Would catch: what a phase needs depending on who is where, and a run that is not repeated.
#[test]
fn work_that_varies_is_the_same_in_every_run() {
    let scenario = usual(3, 2, us(1_000));
    let (once, again) = (run(&scenario, "phase"), run(&scenario, "phase"));
    assert_eq!((once.makespan, once.migrations), (again.makespan, again.migrations));
    // Spinning adds nothing, and neither does a refill where nobody moves.
    let mut scenario = usual(2, 2, us(1_000));
    scenario.threads.iter_mut().for_each(|t| t.noise_permille = 500);
    let work = |policy| run(&scenario, policy).progress;
    assert_eq!(work("phase"), work("observe"));
    let total: u64 = work("observe").iter().map(|n| n.0).sum();
    let even = 2 * 1_000_000 * u64::from(PHASES);
    assert!(total != even && total.abs_diff(even) < even / 20, "{total}");
}
