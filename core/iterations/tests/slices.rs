//! Processors whose CPU is shared have it for one slice, and then not for one: a model of how often shares change, and how long
//! the loops take. `-- --nocapture` prints it.
#![allow(missing_docs)]

use evenly_iterations::{Measured, Powers};
use evenly_model::Nanos;

const PROCESSORS: usize = 4;
const SECONDS: f64 = 3.0;

/// When a processor has done so much, in ms, that begins at `at` and has its CPU for every second slice, or all the time.
fn finish(mut at: f64, mut work: f64, slice: f64, offset: f64, is_shared: bool) -> f64 {
    if !is_shared {
        return at + work;
    }
    loop {
        let within = (at - offset).rem_euclid(2.0 * slice);
        let left = if within < slice { slice - within } else { 0.0 };
        if work <= left {
            return at + work;
        }
        work -= left;
        // Not by less than a number can tell.
        at += (2.0 * slice - within).max(1e-6);
    }
}

/// Regions of which each processor has so many ms to do, if shares are equal: how often shares change, and the time over that
/// which the mean speeds allow. Powers are told times that are so much longer.
fn runs(region: f64, slice: f64, shared: usize, longer: f64) -> (u32, f64) {
    let mut powers = Powers::new(PROCESSORS);
    let mut shares = powers.get().to_vec();
    let (mut at, mut changes) = (0.0, 0);
    let (instances, work) = ((SECONDS * 1e3 / region) as u32, region * PROCESSORS as f64);
    for _ in 0..instances {
        let offset = |p: usize| p as f64 * slice * 0.37;
        let ends: Vec<f64> = (0..PROCESSORS)
            .map(|p| finish(at, shares[p] * work, slice, offset(p), p < shared))
            .collect();
        let measured: Vec<Measured> = (ends.iter().zip(&shares))
            .map(|(end, share)| Measured {
                time: Nanos(((end - at) * longer * 1e6) as u64),
                iterations: (share * 1e9) as u64,
            })
            .collect();
        at = ends.into_iter().fold(0.0, f64::max);
        if powers.add(0, &measured) {
            changes += 1;
            shares = powers.get().to_vec();
        }
    }
    let speed = PROCESSORS as f64 - 0.5 * shared as f64;
    (changes, at / (f64::from(instances) * work / speed))
}

/// Would catch: tasks that go to and fro as CPUs change hands.
#[test]
fn shares_do_not_follow_single_slices() {
    println!("slice  shared  region  changes  time  changes, four instances are enough  time");
    for slice in [3.0, 10.0] {
        for shared in [1, 2] {
            for region in [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0] {
                let (changes, time) = runs(region, slice, shared, 1.0);
                let (without, time_without) = runs(region, slice, shared, 1e4);
                println!(
                    "{slice:>5}  {shared:>6}  {region:>6}  {changes:>7}  {time:.2}  {without:>34}  {time_without:.2}"
                );
                if region <= 1.0 {
                    assert!(without > 5 * changes, "{changes} {without}");
                }
                // Of regions that are several slices each processor does its part.
                assert!(time < 1.12 || region < 3.0 * slice, "{time}");
            }
        }
    }
}
