//! Where a policy loses in virtual time, the guard notices as it does live: on CPUs of unequal speed of which nothing but CPU
//! time is known, and on equal ones, with threads of uneven work in phases far shorter than the period.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_policies::by_name;
use evenly_sim::{Report, parse, run};

const UNEQUAL: &str = "0.5, 0.8, 0.8, 0.5, 1.0";
const EQUAL: &str = "1.0, 1.0, 1.0, 1.0, 1.0";

struct Case {
    speeds: &'static str,
    threads: u32,
    policy: &'static str,
    period: &'static str,
    seed: u64,
}

/// Unless `guard` is said, it is as where a file says nothing of it.
fn five_cpus(case: &Case, guard: &str) -> Report {
    let Case { speeds, threads, policy, period, seed } = case;
    let text = format!(
        "seed = {seed}\n[machine]\nspeeds = [{speeds}]\ncounters = \"nothing\"\n\
         [[program]]\nthreads = {threads}\nphase = \"5ms\"\nphases = 6000\nimbalance = 0.5\n\
         [balancing]\nperiod = \"{period}\"\n{guard}"
    );
    let d = parse(&text).unwrap();
    run(&d.scenario, by_name(policy).unwrap(), &d.options, d.expected).unwrap()
}

/// Without the guard it is slower than `static` by a lot; with it by no more than `most`.
fn holds(case: &Case, most: f64) {
    let [alone, guarded] = ["guard = false", ""].map(|g| 1.0 / five_cpus(case, g).relative_speedup);
    let Case { threads, policy, period, .. } = case;
    let what = format!("{threads} threads, {policy}, {period}: {alone} and {guarded}");
    assert!(alone > 1.18, "no longer a case to test with: {what}");
    assert!(guarded < most, "{what}");
}

/// The worst that were found: over `static` 1.28, 1.28 and 1.38 without the guard.
#[test]
fn issue_35_the_guard_ends_what_loses_on_cpus_of_unknown_speed() {
    for (threads, policy, period, seed) in
        [(6, "juggle", "20ms", 2), (7, "juggle", "100ms", 2), (6, "secretary", "20ms", 1)]
    {
        holds(&Case { speeds: UNEQUAL, threads, policy, period, seed }, 1.0);
    }
}

/// The same on equal CPUs: 1.56, 1.55 and 1.45. With a long period the guard takes half of the run to see it.
#[test]
fn issue_35_the_guard_ends_what_loses_on_equal_cpus() {
    for (threads, policy, period, most) in
        [(6, "juggle", "100ms", 1.0), (6, "secretary", "20ms", 1.0), (7, "secretary", "100ms", 1.2)]
    {
        holds(&Case { speeds: EQUAL, threads, policy, period, seed: 2 }, most);
    }
}
