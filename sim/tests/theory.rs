//! The simulated machine, with the real engine and policies, against the paper's equations.
#![allow(missing_docs, clippy::unwrap_used)]

mod fixed;

use evenly_engine::Actuator;
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Driver, DriverOptions, Kernel, Placement, Scenario, Sharing, Sim, Stranger,
};
use evenly_theory::{self as theory, ExactTime, Shape};
use fixed::{ms, run};
use proptest::prelude::*;

#[test]
fn static_distribution_is_equation_1() {
    for (n, m) in [(3, 2), (5, 2), (8, 7), (9, 8), (16, 12), (16, 8), (1, 4), (64, 7)] {
        let out = run(&Scenario::new(n, m, ms(1_000)), "static", ms(20));
        assert_eq!(out.makespan, Some(ms(1_000 * n.div_ceil(m) as u64)), "n={n} m={m}");
        assert_eq!(out.migrations, 0, "n={n} m={m}");
    }
}

#[test]
fn juggle_and_hybrid_reach_equation_14() {
    for policy in ["juggle", "hybrid"] {
        for (n, m) in [(3u64, 2u64), (5, 2), (8, 7), (9, 8), (16, 12)] {
            // lambda / e = 0.001.
            let e = ms(20_000);
            let out = run(&Scenario::new(n as usize, m as usize, e), policy, ms(20));
            let ideal = e.0 * n / m;
            let makespan = out.makespan.unwrap().0;
            assert!(makespan >= ideal, "{policy} n={n} m={m}: {makespan} < {ideal}");
            let over = makespan as f64 / ideal as f64 - 1.0;
            assert!(over < 0.001, "{policy} n={n} m={m}: {over:.5} above the bound");
        }
    }
}

/// The same on a machine that shares by slices and books at ticks, with the figure for live runs.
#[test]
fn slices_and_ticks_cost_less_than_two_percent() {
    for (n, m) in [(3u64, 2u64), (5, 2), (8, 7), (9, 8), (16, 12), (65, 8)] {
        let e = ms(4_000);
        let scenario = Scenario {
            sharing: Sharing::Slices(ms(4)),
            tick: ms(4),
            ..Scenario::new(n as usize, m as usize, e)
        };
        let out = run(&scenario, "juggle", ms(20));
        let over = out.makespan.unwrap().0 as f64 / (e.0 * n / m) as f64 - 1.0;
        assert!((0.0..0.02).contains(&over), "n={n} m={m}: {over:.4} above the bound");
    }
}

/// Moves made while all threads are there: once the first has ended, slots are unequal again.
fn moves_until_the_first_end(scenario: Scenario, policy: &str, seed: u64) -> u64 {
    let options = DriverOptions::fixed(ms(20), seed);
    let mut driver = Driver::new(Sim::new(scenario), by_name(policy).unwrap(), &options);
    let mut moves = 0;
    while driver.step(&mut []) {
        if driver.sim.phases().iter().any(|&p| p > 0) {
            break;
        }
        moves = driver.migrations();
    }
    moves
}

#[test]
fn where_nothing_can_be_won_nothing_is_moved() {
    for policy in ["juggle", "hybrid"] {
        for (n, m) in [(2, 2), (4, 2), (6, 2), (8, 4), (16, 2), (24, 8), (7, 7), (3, 5)] {
            for seed in 0..10 {
                for coarse in [false, true] {
                    let mut s = Scenario { seed, ..Scenario::new(n, m, ms(2_000)) };
                    if coarse {
                        (s.sharing, s.tick) = (Sharing::Slices(ms(4)), ms(4));
                    }
                    let moves = moves_until_the_first_end(s, policy, seed);
                    assert_eq!(moves, 0, "{policy} n={n} m={m} seed={seed} coarse={coarse}");
                }
            }
        }
    }
}

/// Threads that did not start together are not equal, and slices are out of step from CPU to CPU;
/// and yet slots are equal: there is nothing to be won by swapping.
#[test]
fn unequal_starts_on_equal_slots_move_nothing() {
    for policy in ["juggle", "hybrid"] {
        for (n, m) in [(4, 2), (6, 2), (8, 4), (16, 2), (24, 8), (32, 2), (7, 7)] {
            for seed in 0..10 {
                let mut s = Scenario {
                    seed,
                    sharing: Sharing::Slices(ms(4)),
                    tick: ms(4),
                    ..Scenario::new(n, m, ms(2_000))
                };
                let mut random = Random::new(seed);
                for t in &mut s.threads {
                    t.start = Nanos(random.below(30_000_000) as u64);
                }
                let moves = moves_until_the_first_end(s, policy, seed);
                assert_eq!(moves, 0, "{policy} n={n} m={m} seed={seed}");
            }
        }
    }
}

#[test]
fn uneven_starts_are_evened_out_once() {
    for policy in ["juggle", "hybrid", "static"] {
        for seed in 0..20 {
            let placement = Placement::Random;
            let s = Scenario { seed, placement, ..Scenario::new(12, 4, ms(2_000)) };
            let moves = moves_until_the_first_end(s, policy, seed);
            // As many as can be misplaced.
            assert!(moves <= 9, "{policy} seed={seed}: {moves}");
        }
    }
}

/// Capacity bound: the stranger takes half of what a thread leaves it, so that of two CPUs one and
/// a half are there for two threads.
#[test]
fn a_stranger_on_one_of_two_cpus() {
    for policy in ["juggle", "hybrid"] {
        for coarse in [false, true] {
            let e = ms(6_000);
            let mut s =
                Scenario { strangers: vec![Stranger::always(CpuId(1))], ..Scenario::new(2, 2, e) };
            if coarse {
                (s.sharing, s.tick) = (Sharing::Slices(ms(4)), ms(4));
            }
            let out = run(&s, policy, ms(20));
            let bound = e.0 as f64 * 2.0 / 1.5;
            let over = out.makespan.unwrap().0 as f64 / bound - 1.0;
            // Under slices the bound is out of reach: a thread that comes to the stranger waits for
            // the stranger's slice to end, and may have to leave in the middle of its own.
            assert!(
                (-1e-9..if coarse { 0.03 } else { 0.01 }).contains(&over),
                "{policy} coarse={coarse}: {over:.4}"
            );
        }
    }
}

#[test]
fn the_papers_random_neighbours_are_shared_fairly() {
    for seed in 0..4 {
        let e = ms(40_000);
        let s = Scenario {
            seed,
            strangers: vec![Stranger::random(CpuId(0)), Stranger::random(CpuId(1))],
            ..Scenario::new(3, 2, e)
        };
        let fixed = run(&s, "static", ms(20)).makespan.unwrap();
        let balanced = run(&s, "juggle", ms(20)).makespan.unwrap();
        assert!(
            balanced.0 as f64 * 1.1 < fixed.0 as f64,
            "seed {seed}: static {fixed}, juggle {balanced}"
        );
    }
}

/// CPUs of unequal speed: CPU time stays even. (Progress by work comes with another metric.)
#[test]
fn a_slow_scheduler_neighbourhood_among_many_cpus() {
    // 16 CPUs, strangers on two of them, 16 threads: 14 fast slots and 2 slow ones.
    let e = ms(10_000);
    let s = Scenario {
        strangers: vec![Stranger::always(CpuId(3)), Stranger::always(CpuId(11))],
        ..Scenario::new(16, 16, e)
    };
    let out = run(&s, "juggle", ms(20));
    let over = out.makespan.unwrap().0 as f64 / (e.0 as f64 * 16.0 / 15.0) - 1.0;
    assert!((-1e-9..0.005).contains(&over), "{over:.4}");
    // And the other way round: one CPU free of strangers among many.
    let s = Scenario {
        strangers: (1..16).map(|c| Stranger::always(CpuId(c))).collect(),
        ..Scenario::new(16, 16, e)
    };
    let out = run(&s, "juggle", ms(20));
    let over = out.makespan.unwrap().0 as f64 / (e.0 as f64 * 16.0 / 8.5) - 1.0;
    assert!((-1e-9..0.005).contains(&over), "{over:.4}");
}

/// Fewer threads than CPUs, some with strangers: the threads find the free CPUs, and stay there.
#[test]
fn free_cpus_are_found_and_kept() {
    for coarse in [false, true] {
        for (n, m, taken) in [(2, 4, 2), (2, 3, 1), (3, 8, 5), (4, 16, 12)] {
            let e = ms(6_000);
            let mut s = Scenario {
                strangers: (0..taken).map(|c| Stranger::always(CpuId(c))).collect(),
                ..Scenario::new(n, m, e)
            };
            // The kernel starts them on the CPUs with the strangers.
            for (i, t) in s.threads.iter_mut().enumerate() {
                t.start = ms(i as u64);
            }
            s.strangers.iter_mut().for_each(|x| x.from = ms(50));
            if coarse {
                (s.sharing, s.tick) = (Sharing::Slices(ms(4)), ms(4));
            }
            let out = run(&s, "juggle", ms(20));
            let over = out.makespan.unwrap().0 as f64 / e.0 as f64 - 1.0;
            assert!(over < 0.06, "n={n} m={m} coarse={coarse}: {over:.4}");
            let most = u64::from(taken) * n as u64;
            assert!(out.migrations <= most, "n={n} m={m} coarse={coarse}: {}", out.migrations);
        }
    }
}

/// The hybrid leaves to the kernel what it does well: pulling threads to a CPU that falls idle at
/// a barrier.
#[test]
fn hybrid_is_not_slower_than_the_kernel_alone() {
    for (n, m) in [(3, 2), (5, 2), (8, 7), (9, 8)] {
        for work in [5, 20, 100, 1_000] {
            for sharing in [Sharing::Fluid, Sharing::Slices(ms(4))] {
                let s = Scenario {
                    sharing,
                    tick: if sharing == Sharing::Fluid { Nanos::ZERO } else { ms(4) },
                    phases: (6_000 / work) as u32,
                    barrier: Barrier::Block,
                    kernel: Kernel { reactive: true, rotate: None },
                    ..Scenario::new(n, m, ms(work))
                };
                let kernel = run(&s, "observe", ms(20)).makespan.unwrap();
                let hybrid = run(&s, "hybrid", ms(20)).makespan.unwrap();
                let ratio = hybrid.0 as f64 / kernel.0 as f64;
                // For these n and m pulling at the barrier is optimal in the fluid model, and a
                // swap in the middle of a phase that is no longer than the period can only cost.
                // It does so while phases are about as long as the period, and not by more than
                // this.
                let most = if work <= 20 { 1.05 } else { 1.01 };
                assert!(
                    ratio < most,
                    "n={n} m={m} e={work} ms {sharing:?}: hybrid {hybrid}, kernel {kernel}"
                );
            }
        }
    }
}

/// A thread that waits at a barrier leaves its CPU free; a pinned one must make room for those
/// that are still behind.
#[test]
fn a_cpu_whose_threads_all_wait_is_a_fast_one() {
    let s = Scenario { phases: 4, barrier: Barrier::Block, ..Scenario::new(3, 2, ms(2_000)) };
    let out = run(&s, "juggle", ms(20));
    let bound = 4.0 * 1.5 * 2e9;
    let over = out.makespan.unwrap().0 as f64 / bound - 1.0;
    assert!((0.0..0.02).contains(&over), "{over:.4}");

    let mut s = s;
    // One thread has less to do in each phase, and waits for the others.
    s.threads[2].work = ms(1_000);
    let out = run(&s, "juggle", ms(20));
    let bound = 4.0 * 2.5e9;
    let over = out.makespan.unwrap().0 as f64 / bound - 1.0;
    assert!((0.0..0.02).contains(&over), "{over:.4}");
}

#[test]
fn equal_scenarios_give_equal_runs() {
    let s = Scenario {
        strangers: vec![Stranger::random(CpuId(0))],
        kernel: Kernel { reactive: true, rotate: Some(ms(7)) },
        placement: Placement::Random,
        ..Scenario::new(7, 3, ms(3_000))
    };
    assert_eq!(run(&s, "hybrid", ms(20)), run(&s, "hybrid", ms(20)));
}

/// The last thread of a program is not left beside a stranger while another CPU is free.
#[test]
fn the_last_thread_finds_the_free_cpu() {
    let mut s =
        Scenario { strangers: vec![Stranger::always(CpuId(1))], ..Scenario::new(2, 2, ms(4_000)) };
    s.threads[0].work = ms(500);
    s.threads[0].mask = CpuSet::single(CpuId(0));
    let out = run(&s, "juggle", ms(20));
    // Half speed until the other has ended, full speed after it.
    let makespan = out.makespan.unwrap();
    assert!(makespan < ms(4_350), "{makespan}");
}

/// Many CPUs at once; lambda / e is 0.03, so the bound is reached less closely than above.
#[test]
fn a_large_machine_is_balanced() {
    let s = Scenario::new(1_024, 750, ms(3_000));
    let out = run(&s, "juggle", ms(100));
    let over = out.makespan.unwrap().0 as f64 / (3e9 * 1_024.0 / 750.0) - 1.0;
    assert!((0.0..0.05).contains(&over), "{over:.4}");
}

/// The ideal algorithm of section 3 on the simulated machine: sorts the threads by progress, fills
/// the fast slots in turn, then the slow ones.
fn place_ideally(sim: &mut Sim, m: usize) {
    let progress = sim.progress();
    let mut alive: Vec<usize> = (0..progress.len()).filter(|&t| sim.phases()[t] == 0).collect();
    alive.sort_by_key(|&t| progress[t]);
    let ids: Vec<_> = sim.candidates().iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), alive.len());
    let mut in_order = alive.clone();
    in_order.sort_unstable();
    let (slow, fast) = (alive.len() % m, m - alive.len() % m);
    let fast_slots = alive.len() / m * fast;
    for (i, t) in alive.into_iter().enumerate() {
        let cpu = if i < fast_slots { i % fast } else { fast + (i - fast_slots) % slow };
        let id = ids[in_order.binary_search(&t).unwrap()];
        sim.place(id, CpuId(cpu as u32), None).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Lemma 1: at balancing points threads are equal or lambda / (floor * ceil) apart. And what
    /// follows from it: Eq. 2, Eq. 14 and the upper limit of the ideal algorithm.
    #[test]
    fn lemma_1_holds_on_the_simulated_machine(
        (n, m) in (2_usize..40).prop_flat_map(|m| (m + 1..5 * m + 2, Just(m))),
        unit in 1_000_u64..5_000_000,
        periods in 1_u64..60,
    ) {
        prop_assume!(n % m != 0);
        let shape = Shape::new(n as u32, m as u32).unwrap();
        // A period that can be divided, so that whole nanoseconds are exact until one ends.
        let lambda = Nanos(unit * (n / m * n.div_ceil(m)) as u64);
        let e = Nanos(lambda.0 * periods / 7 + 1);
        let mut sim = Sim::new(Scenario::new(n, m, e));
        let mut point = 0;
        while sim.makespan().is_none() {
            // They begin evenly, as the kernel places them.
            if point > 0 {
                place_ideally(&mut sim, m);
            }
            point += 1;
            sim.run_until(Nanos(point * lambda.0));
            if sim.phases().iter().any(|&p| p > 0) {
                continue;
            }
            let progress = sim.progress();
            let least = progress.iter().min().unwrap();
            for p in &progress {
                let apart = p.0 - least.0;
                prop_assert!(apart == 0 || apart == unit, "{apart} of {unit} at point {point}");
            }
        }
        let time = sim.makespan().unwrap();
        // Whatever is rounded to whole nanoseconds when a thread ends.
        let (less, more) = (Nanos(time.0 - 1_000), Nanos(time.0 + 1_000));
        prop_assert!(ExactTime::from(more) >= theory::lower_bound(shape, e, lambda));
        prop_assert!(ExactTime::from(less) <= theory::proactive_limit(shape, e, lambda));
    }
}
