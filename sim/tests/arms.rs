//! `auto` in virtual time: how near it comes to the best of its arms, and that it is never far behind its usual one.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failure here is the test's own")]

use evenly_engine::GuardOptions;
use evenly_model::Nanos;
use evenly_model::stats::Random;
use evenly_policies::by_name;
use evenly_sim::{Barrier, Costs, DriverOptions, Outcome, Scenario, Sharing, Sim, simulate};

const PERIOD: Nanos = Nanos::from_millis(14);

/// Threads with so many thousandths of a phase of work each.
fn scenario(cpus: usize, phase: Nanos, loads: &[u64], barrier: Barrier, seconds: f64) -> Scenario {
    let all: u64 = loads.iter().sum();
    let phase_s = phase.as_secs_f64() * all as f64 / 1_000.0 / cpus as f64;
    let mut s = Scenario {
        sharing: Sharing::Slices(Nanos::from_millis(3)),
        costs: Costs {
            point: Nanos::from_micros(30),
            read: Nanos::from_micros(1),
            place: Nanos::from_micros(8),
            ..Costs::default()
        },
        phases: (seconds / phase_s) as u32,
        barrier,
        probe: true,
        ..Scenario::new(loads.len(), cpus, phase)
    };
    for (thread, load) in s.threads.iter_mut().zip(loads) {
        thread.work = phase.scale(*load as f64 / 1_000.0);
        thread.noise_permille = 20;
    }
    s
}

fn run(scenario: &Scenario, policy: &str) -> Outcome {
    run_on(Sim::new(scenario.clone()), scenario.seed, policy)
}

fn run_on(sim: Sim, seed: u64, policy: &str) -> Outcome {
    let options = DriverOptions::as_analysed(PERIOD, seed);
    let options = DriverOptions { guard: GuardOptions::default(), ..options };
    simulate(sim, by_name(policy).unwrap(), &options, Nanos::from_millis(3_600_000))
}

fn makespan(scenario: &Scenario, policy: &str) -> f64 {
    run(scenario, policy).makespan.unwrap().as_secs_f64()
}

/// How long each takes: the kernel alone, `phase`, `hpc-auto`; and `auto`.
fn arms(s: &Scenario) -> ([f64; 3], f64) {
    (["observe", "phase", "hpc-auto"].map(|policy| makespan(s, policy)), makespan(s, "auto"))
}

/// Would catch: an arm that is not tried, or not kept; one that is tried for so long that it costs what it gains.
#[test]
fn unequal_work_is_given_unequal_parts_of_cpus() {
    let ms = Nanos::from_millis;
    let four = [1_000, 4_000, 1_000, 4_000];
    for (phase, loads, barrier, most) in [
        (ms(10), &four[..], Barrier::Spin, 1.05),
        (ms(10), &four, Barrier::Yield, 1.04),
        (ms(10), &four, Barrier::Block, 1.03),
        (ms(100), &[1_000, 3_000, 5_000, 7_000], Barrier::Spin, 1.01),
        (ms(40), &[1_000, 3_000, 5_000, 7_000], Barrier::Block, 1.02),
    ] {
        let (fixed, auto) = arms(&scenario(2, phase, loads, barrier, 10.0));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        assert!(auto < most * best, "{phase} {loads:?} {barrier:?}: {fixed:.2?}, auto {auto:.2}");
    }
}

/// Would catch: an arm that is tried again and again though it is not permitted, or of which nobody hears.
#[test]
fn an_arm_that_is_not_permitted_is_left_and_told() {
    let loads = [1_000, 4_000, 1_000, 4_000];
    for phase in [10, 100] {
        let s = scenario(2, Nanos::from_millis(phase), &loads, Barrier::Spin, 10.0);
        let of = |policy| run_on(Sim::new(s.clone()).without_weights(), s.seed, policy);
        let (usual, auto) = (of("phase"), of("auto"));
        let domain = &auto.summary.domains[0];
        let untried = domain.untried.as_ref().unwrap();
        assert_eq!((untried.policy, untried.why.as_str()), ("hpc-auto", "no privileges"));
        assert!(domain.choice.is_none() && usual.summary.domains[0].untried.is_none());
        assert!(!auto.summary.notes.join(" ").contains("keeps its share"), "{:?}", auto.summary);
        let [usual, auto] = [usual, auto].map(|o| o.makespan.unwrap().as_secs_f64());
        assert!(auto < 1.05 * usual, "{phase}: {usual:.2} {auto:.2}");
    }
    let equal = scenario(2, Nanos::from_millis(10), &[1_000; 3], Barrier::Spin, 3.0);
    let auto = run_on(Sim::new(equal.clone()).without_weights(), equal.seed, "auto");
    assert!(auto.summary.domains[0].untried.is_none());
}

/// Would catch: an arm that is tried although threads have the same to do, which only costs.
#[test]
fn equal_work_is_left_to_the_usual_policy() {
    let us = Nanos::from_micros;
    for barrier in [Barrier::Spin, Barrier::Block] {
        for (n, phase) in [(3, 300), (3, 1_000), (3, 10_000), (4, 10_000), (5, 40_000)] {
            let s = scenario(2, us(phase), &vec![1_000; n], barrier, 5.0);
            let (usual, auto) = (makespan(&s, "phase"), makespan(&s, "auto"));
            assert!(auto < 1.005 * usual, "{n} {phase} us {barrier:?}: {usual} {auto}");
        }
    }
}

/// Programs of all kinds, runs of ten seconds. Would catch: regret that grows with the kinds of programs.
#[test]
fn whatever_the_program_is_little_is_lost() {
    let mut random = Random::new(34);
    let (mut lost, mut gained) = (Vec::new(), Vec::new());
    for _ in 0..24 {
        let cpus = 2 + 2 * random.below(2);
        let n = cpus + random.below(cpus + 1);
        let loads: Vec<u64> = (0..n).map(|_| 1_000 + random.below(4_000) as u64).collect();
        let barrier = [Barrier::Spin, Barrier::Yield, Barrier::Block][random.below(3)];
        let phase = Nanos((1e6 * 50f64.powf(random.unit())) as u64);
        let s = scenario(cpus, phase, &loads, barrier, 10.0);
        let (fixed, auto) = arms(&s);
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        let name =
            format!("{n} on {cpus}, {phase} {loads:?} {barrier:?}: {fixed:.2?}, auto {auto:.2}");
        assert!(auto < 1.06 * fixed[0].min(fixed[1]), "{name}");
        lost.push(auto / best - 1.0);
        gained.push(fixed[0] / auto);
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    assert!(mean(&lost) < 0.03 && mean(&gained) > 1.25, "{lost:.3?} {gained:.3?}");
}

/// Would catch: ranks without barriers, of which it is never known what they gain.
#[test]
fn ranks_that_wait_for_their_neighbours_are_measured_by_their_waits() {
    let loads = [1_000, 4_000, 1_000, 4_000];
    let mut s = scenario(2, Nanos::from_millis(20), &loads, Barrier::Spin, 10.0);
    let partners: [&[usize]; 4] = [&[1, 3], &[0, 2], &[1, 3], &[0, 2]];
    s.ranks = true;
    for (thread, partners) in s.threads.iter_mut().zip(partners) {
        thread.partners = partners.to_vec();
    }
    let ([kernel, _, hpc], auto) = arms(&s);
    assert!(auto < 1.12 * hpc && auto < 0.85 * kernel, "{kernel:.2} {hpc:.2}, auto {auto:.2}");
}
