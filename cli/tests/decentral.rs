//! A balancer for each CPU, on real threads: several threads of evenly move threads of the program. How
//! such balancing ends is tested beside the cycle's (`harmless_end.rs`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;

#[test]
fn threads_are_swapped_and_what_was_read_is_told() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), Running::computing(5));
    let mut evenly = state.attach("secretary", 5, program.pid());
    wait_until_narrowed(program.pid(), &whole, 5);
    for _ in 0..20 {
        evenly.wait_until_moving();
        // A mask is one CPU of ours, or has been given back.
        for (tid, mask) in masks(program.pid()) {
            let ours = mask.len() == 1 && mask.is_subset(&whole);
            assert!(ours || mask == whole, "thread {tid}: {mask}");
        }
    }
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
    assert!(program.is_alive() && state.journals().is_empty());
    let report = evenly.report_of_moves();
    let domains = report["domains"].as_array().unwrap();
    assert_eq!(domains.len(), 1, "{report:#}");
    let search = &domains[0]["search"];
    let count = |what: &str| search[what].as_u64().unwrap();
    assert!(count("searches") > 0 && count("observations") > 0, "{search:#}");
    assert!(count("most") <= 5 && count("observations") <= count("threads"), "{search:#}");
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|n| n.as_str().unwrap().contains("searches read")), "{notes:?}");
}
