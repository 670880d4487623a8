//! Efficiencies of simulated programs whose values follow from theory.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_model::efficiency::Efficiency;
use evenly_policies::by_name;
use evenly_sim::{Barrier, DriverOptions, Kernel, Scenario, Sim, simulate};

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// What is measured of a scenario under a policy that moves nothing: `static` leaves each thread on its
/// CPU.
fn efficiency(scenario: Scenario) -> Efficiency {
    // Readings are taken at balancing points: what a thread does from the last of them to its end, one
    // period in thousands, is not in them.
    let options = DriverOptions::as_analysed(ms(1), 1);
    let out = simulate(Sim::new(scenario), by_name("static").unwrap(), &options, ms(1_000_000));
    assert!(out.makespan.is_some());
    out.summary.efficiency().unwrap()
}

#[track_caller]
fn assert_near(found: f64, known: f64) {
    assert!((found - known).abs() < 2e-3, "{found} is not {known}");
}

fn phases(n: usize, m: usize) -> Scenario {
    Scenario {
        phases: 100,
        barrier: Barrier::Block,
        kernel: Kernel { reactive: false, rotate: None },
        ..Scenario::new(n, m, ms(200))
    }
}

/// Eq. 1: n threads on m CPUs take ceil(n/m) e, of which each computes e.
#[test]
fn what_static_distribution_loses_is_lost_in_the_run_queue() {
    for (n, m) in [(3u32, 2u32), (5, 2), (8, 7), (9, 4)] {
        let (c, f) = (n.div_ceil(m), n / m);
        let e = efficiency(phases(n as usize, m as usize));
        let found = e.factors.unwrap();
        assert_near(found.load_balance, 1.0);
        assert_near(found.run_queue, 1.0 / f64::from(c));
        assert_near(found.synchronisation, 1.0);
        assert_near(found.communication, 1.0 / f64::from(c));
        assert_near(found.parallel, 1.0 / f64::from(c));
        // m (c) threads on n mod m CPUs wait for c - 1, the others for f - 1, of c.
        let full = f64::from(n % m * c) * f64::from(c - 1);
        let rest = f64::from((m - n % m) * f) * f64::from(f - 1);
        assert_near(e.run_queue_share, (full + rest) / f64::from(n * c));
    }
}

#[test]
fn uneven_work_is_load_balance() {
    let mut s = phases(4, 4);
    for (thread, factor) in s.threads.iter_mut().zip([1, 2, 3, 4]) {
        thread.work = Nanos(factor * ms(200).0);
    }
    let e = efficiency(s);
    let f = e.factors.unwrap();
    assert_near(f.parallel, 10.0 / 16.0);
    assert_near(f.load_balance, 10.0 / 16.0);
    assert_near(f.communication, 1.0);
    assert_near(e.run_queue_share, 0.0);
}

#[test]
fn of_threads_that_spin_only_the_run_queue_is_known() {
    for barrier in [Barrier::Spin, Barrier::Yield] {
        let e = efficiency(Scenario { barrier, ..phases(3, 2) });
        assert_eq!(e.factors, None, "{barrier:?}");
        assert!(e.run_queue_share > 0.1, "{barrier:?} {}", e.run_queue_share);
    }
}
