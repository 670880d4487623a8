//! A balancer for each CPU, on real threads: several threads of evenly move threads of the program. How
//! such balancing ends is tested beside the cycle's (`harmless_end.rs`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;

#[test]
fn threads_are_swapped_and_what_was_read_is_told() {
    let Some(whole) = whole() else { return };
    let threads = 2 * whole.len() + 1;
    let (state, mut program) = (State::new(), Running::computing(threads as u32));
    let pid = program.pid();
    let mut evenly = state.attach("secretary", threads as u32, pid);
    wait_until_narrowed(pid, &whole, threads);
    let released = || wait_for("the journal", || evenly.journal()).header.released;
    let (mut before, mut looks) = (released(), 0);
    wait_until("twenty looks", || {
        evenly.wait_until_moving();
        let seen = masks(pid);
        assert_eq!(seen.len(), threads + 1);
        // The guardian gives all masks back where evenly itself had no CPU for too long, and counts that before
        // it does.
        let now = released();
        if now != before {
            before = now;
            wait_until_narrowed(pid, &whole, threads);
            return false;
        }
        for (tid, mask) in seen {
            if tid == pid.0 {
                assert_eq!(mask, whole, "the main thread, which sleeps");
            } else {
                assert!(mask.len() == 1 && mask.is_subset(&whole), "thread {tid}: {mask}");
            }
        }
        looks += 1;
        looks == 20
    });
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
    assert!(
        count("most") <= threads as u64 && count("observations") <= count("threads"),
        "{search:#}"
    );
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|n| n.as_str().unwrap().contains("searches read")), "{notes:?}");
}
