//! No thread runs where it might not, and no program loses a CPU (promises P1 and P2).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};

/// How many times masks are read, each after another move or balancing point.
const LOOKS: usize = 20;

#[test]
fn a_program_stays_inside_the_mask_that_it_was_started_with() {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.first().unwrap());
    let state = State::new();
    // What the test's own thread may use is what it hands down.
    affinity::set(Tid(0), &one).unwrap();
    let command = [&workload("churn"), "--workers", "3", "--duration-s", "300"];
    let evenly = state.run("juggle", 3, &command);
    let program = evenly.program();
    wait_until("balancing to begin", || evenly.journal().is_some_and(|j| j.records.len() >= 3));
    for _ in 0..LOOKS {
        evenly.wait_until_point();
        let masks = masks(program);
        assert_eq!(masks.len(), 4, "{masks:?}");
        for (tid, mask) in masks {
            assert_eq!(mask, one, "thread {tid}");
        }
    }
    affinity::set(Tid(0), &whole).unwrap();
}

/// The CPUs of a program are those of all its threads: as with `OMP_PROC_BIND`, or a launcher that
/// is bound elsewhere than what it has started.
#[test]
fn cpus_are_asked_for_that_only_other_threads_than_the_first_may_use() {
    let Some(whole) = whole() else { return };
    let first = CpuSet::single(whole.first().unwrap());
    let last = CpuSet::single(whole.iter().last().unwrap());
    let churn = [&workload("churn"), "--workers", "3", "--duration-s", "300"];
    let launcher = [&["sh", "-c", "\"$@\" & wait", "sh"], &churn[..]].concat();
    for command in [&churn[..], &launcher] {
        let program = Running::start(command);
        let root = program.pid();
        // The only child of the launcher, once it is what it will be; or else the program itself.
        let computing = wait_for("the threads", || {
            let all = descendants(root).into_iter().chain([root]);
            all.into_iter().find(|p| masks(*p).len() == 4)
        });
        affinity::set(Tid(root.0), &first).unwrap();
        for &tid in masks(computing).keys().filter(|t| **t != root.0) {
            affinity::set(Tid(tid), &last).unwrap();
        }
        let state = State::new();
        let (asked, pid) = (last.to_string(), root.to_string());
        let options = ["attach", "--threads", "3", "--period", "10ms", "--budget", "50"];
        let mut evenly = state.start(&[&options[..], &["--cpus", &asked, &pid]].concat());
        wait_until("balancing", || evenly.decisions(" joins domain") >= 3 || !evenly.is_alive());
        evenly.kill(Signal::TERM);
        assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
        assert!(!evenly.stderr().contains("cannot be used"), "{}", evenly.stderr());
        assert_eq!(evenly.report()["started"], true);
    }
}

#[test]
fn threads_with_masks_of_their_own_keep_them() {
    let Some(whole) = whole() else { return };
    let last = whole.iter().last().unwrap();
    let one = CpuSet::single(last);
    let state = State::new();
    // Its third worker pins itself after 300 ms.
    let program = Running::start(&[
        &workload("odd"),
        "self-pin",
        &last.to_string(),
        "--duration-ms",
        "300000",
    ]);
    wait_until("the program to pin its thread", || narrowed(program.pid(), &whole) == 1);
    let (&own, _) =
        masks(program.pid()).iter().find(|(_, m)| **m == one).map(|(t, m)| (t, m.clone())).unwrap();
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    for _ in 0..LOOKS {
        evenly.wait_until_point();
        let masks = masks(program.pid());
        assert_eq!(masks.len(), 4, "{masks:?}");
        for (tid, mask) in masks {
            assert!(mask.is_subset(&whole));
            assert!(tid != own || mask == one, "{mask}");
        }
    }
    evenly.kill(Signal::TERM);
    evenly.wait();
    for (tid, mask) in masks(program.pid()) {
        assert_eq!(mask, if tid == own { one.clone() } else { whole.clone() });
    }
}

/// `next` waits for something after which masks may be others.
fn is_on_all_cpus(policy: &str, next: impl Fn(&Evenly)) {
    let Some(whole) = whole() else { return };
    let threads = whole.len() + 1;
    let state = State::new();
    // The first thread works too: no idle one is left to make up for the pinned ones.
    let (n, iters) = (threads.to_string(), "1000000000000");
    let command = [&workload("spmd"), "--threads", &n, "--main-works", "1", "--iters", iters];
    let evenly = state.run(policy, threads as u32, &command);
    let program = evenly.program();
    wait_until_narrowed(program, &whole, 1);
    for _ in 0..LOOKS {
        next(&evenly);
        let masks = wait_for("steady masks", || steady_masks(program));
        assert_eq!(masks.len(), threads, "{masks:?}");
        let union = masks.values().fold(CpuSet::new(), |all, m| all.or(m));
        assert_eq!(union, whole, "{masks:?}");
    }
}

#[test]
fn the_union_of_all_masks_does_not_shrink_under_juggle() {
    is_on_all_cpus("juggle", Evenly::wait_until_moving);
}

#[test]
fn the_union_of_all_masks_does_not_shrink_under_hybrid() {
    is_on_all_cpus("hybrid", Evenly::wait_until_moving);
}

#[test]
fn the_union_of_all_masks_does_not_shrink_under_secretary() {
    is_on_all_cpus("secretary", Evenly::wait_until_moving);
}

/// Nothing moves once all are placed.
#[test]
fn the_union_of_all_masks_does_not_shrink_under_static() {
    is_on_all_cpus("static", Evenly::wait_until_point);
}

/// One CPU, and a list for `--cpus` that names CPUs beside it that are not there.
fn partly_invalid(whole: &CpuSet) -> (CpuSet, String) {
    let one = CpuSet::single(whole.iter().last().unwrap());
    let list = format!("{one},1000-1010");
    (one, list)
}

#[test]
fn only_the_cpus_that_were_asked_for_are_used() {
    let Some(whole) = whole() else { return };
    let (one, list) = partly_invalid(&whole);
    let (state, churn) = (State::new(), workload("churn"));
    let command = [churn.as_str(), "--workers", "3", "--duration-s", "300"];
    let evenly = state.run_with("juggle", 3, &["--cpus", &list], &command);
    let program = evenly.program();
    wait_until("balancing to begin", || evenly.decisions(" joins domain") >= 3);
    for _ in 0..LOOKS {
        evenly.wait_until_point();
        let masks = masks(program);
        assert_eq!(masks.len(), 4, "{masks:?}");
        assert!(masks.values().all(|m| *m == one), "{masks:?} of {whole}");
    }
}

/// Also where nothing is balanced.
fn sees_only_the_cpus_that_were_asked_for(policy: &str) {
    let Some(whole) = whole() else { return };
    let (_, list) = partly_invalid(&whole);
    let state = State::new();
    let options = ["run", "--policy", policy, "--cpus", &list, "--"];
    let command = ["sh", "-c", "nproc >&2"];
    let (status, said) = state.output(&[&options[..], &command].concat());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.lines().any(|l| l == "1"), "{said}");
}

#[test]
fn a_program_that_is_observed_sees_only_the_cpus_that_were_asked_for() {
    sees_only_the_cpus_that_were_asked_for("observe");
}

#[test]
fn a_program_that_is_balanced_sees_only_the_cpus_that_were_asked_for() {
    sees_only_the_cpus_that_were_asked_for("hybrid");
}

/// One line, and nothing is started.
#[test]
fn a_list_without_a_cpu_that_can_be_used_is_refused() {
    let state = State::new();
    for bad in ["1000-1010", "", "3-1", "x"] {
        let (status, said) =
            state.output(&["run", "--cpus", bad, "--", "sh", "-c", "echo started >&2"]);
        assert_eq!(status, Some(125), "{bad}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("started") && said.contains("--cpus"), "{said}");
    }
}

/// Of a program whose threads block at barriers: whoever is moved is released at once, and what is
/// seen at rest is the original mask.
#[test]
fn hybrid_leaves_no_thread_of_a_blocking_program_pinned() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let threads = (whole.len() + 1).to_string();
    let command = [
        &workload("spmd"),
        "--threads",
        &threads,
        "--phases",
        "1000000",
        "--iters",
        "1000000",
        "--barrier",
        "block",
    ];
    let mut evenly = state.run("hybrid", threads.parse().unwrap(), &command);
    let program = evenly.program();
    for _ in 0..LOOKS {
        evenly.wait_until_moving();
        wait_until_restored(program, &whole);
    }
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until_restored(program, &whole);
    signal(program, Signal::KILL);
}
