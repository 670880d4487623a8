//! Progress in retired instructions, on CPUs of unequal speed of which the kernel says nothing: the
//! bounds are those of `evenly_theory::Speeds`, with the sum of speeds in the place of m.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::{CpuId, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Counters, DriverOptions, Outcome, Scenario, Sharing, Sim, Stranger, simulate,
};
use evenly_theory::Speeds;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn scenario(n: usize, speeds: &Speeds, e: Nanos, counters: Counters) -> Scenario {
    let mut s = Scenario { counters, ..Scenario::new(n, speeds.cpus() as usize, e) };
    for (cpu, speed) in s.cpus.iter_mut().zip(speeds.iter()) {
        cpu.speed_permille = (1000.0 * speed).round() as u32;
    }
    s
}

fn run(s: &Scenario, policy: &str) -> Outcome {
    let options = DriverOptions::fixed(ms(20), 3);
    simulate(Sim::new(s.clone()), by_name(policy).unwrap(), &options, ms(600_000))
}

const MACHINES: [(&str, usize); 5] =
    [("1,0.5", 2), ("2x1,2x0.5", 4), ("4x1,4x0.6", 12), ("4x1,4x0.6", 8), ("1,0.7,0.4", 3)];

#[test]
fn instructions_reach_the_bound_where_cpu_time_cannot() {
    let e = ms(10_000);
    for (text, n) in MACHINES {
        let speeds: Speeds = text.parse().unwrap();
        let bound = speeds.continuous_time(n as u32, e).seconds();
        let over = |policy, counters| {
            let out = run(&scenario(n, &speeds, e, counters), policy);
            out.makespan.unwrap().as_secs_f64() / bound - 1.0
        };
        for policy in ["juggle", "hybrid"] {
            let counted = over(policy, Counters::Instructions);
            assert!((-1e-9..0.015).contains(&counted), "{policy} {n} on {text}: {counted:.4}");
            // With as many threads as CPUs all have the same CPU time, and one is slow for good.
            if n == speeds.cpus() as usize {
                let blind = over(policy, Counters::Nothing);
                assert!(blind > counted + 0.1, "{policy} {n} on {text}: {blind:.4}");
            }
        }
    }
}

#[test]
fn also_with_slices_ticks_and_a_stranger() {
    let speeds: Speeds = "2x1,2x0.5".parse().unwrap();
    let e = ms(6_000);
    let coarse = |s| Scenario { sharing: Sharing::Slices(ms(4)), tick: ms(4), ..s };
    let s = coarse(scenario(4, &speeds, e, Counters::Instructions));
    let bound = speeds.continuous_time(4, e).seconds();
    let over = run(&s, "juggle").makespan.unwrap().as_secs_f64() / bound - 1.0;
    assert!((-1e-9..0.03).contains(&over), "{over:.4}");
    // It takes half of a fast CPU: 2.5 of 3 are left.
    let s = Scenario { strangers: vec![Stranger::always(CpuId(0))], ..s };
    let over = run(&s, "juggle").makespan.unwrap().as_secs_f64() / (e.as_secs_f64() * 4.0 / 2.5);
    assert!((1.0 - 1e-9..1.05).contains(&over), "{over:.4}");
}

/// Counting changes nothing where it has nothing to show.
#[test]
fn on_equal_cpus_nothing_is_moved_for_it() {
    for (n, m) in [(2, 2), (8, 4), (7, 7), (16, 2)] {
        for coarse in [false, true] {
            let mut s =
                Scenario { counters: Counters::Instructions, ..Scenario::new(n, m, ms(2_000)) };
            if coarse {
                (s.sharing, s.tick) = (Sharing::Slices(ms(4)), ms(4));
            }
            let out = run(&s, "juggle");
            assert_eq!(out.migrations, 0, "n={n} m={m} coarse={coarse}");
        }
    }
    for barrier in [Barrier::None, Barrier::Block] {
        let s =
            |counters| Scenario { counters, barrier, phases: 4, ..Scenario::new(8, 7, ms(800)) };
        let [with, without] = [Counters::Instructions, Counters::Capacity]
            .map(|c| run(&s(c), "juggle").makespan.unwrap().as_secs_f64());
        assert!((with / without - 1.0).abs() < 0.005, "{with} {without}");
    }
}

#[test]
fn fast_ones_are_found_by_a_program_that_waits_at_barriers() {
    let speeds: Speeds = "2x1,2x0.5".parse().unwrap();
    let s = |counters| Scenario {
        phases: 10,
        barrier: Barrier::Block,
        ..scenario(4, &speeds, ms(800), counters)
    };
    let time = |counters, policy| run(&s(counters), policy).makespan.unwrap().as_secs_f64();
    let bound = 10.0 * 0.8 * 4.0 / 3.0;
    let counted = time(Counters::Instructions, "juggle");
    let fixed = time(Counters::Nothing, "static");
    assert!(counted < 1.05 * bound && counted < 0.8 * fixed, "{counted} {fixed}, bound {bound}");
}
