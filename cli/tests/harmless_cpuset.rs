//! A cpuset that shrinks and grows while its threads are balanced, and after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_model::{CpuSet, Pid};
use evenly_testing::groups::{Group, KEY};

/// A cpuset of this test's own, removed at the end. None, a skip, where none can be made.
fn make(name: &str) -> Option<Group> {
    match Group::new("cpuset", name) {
        Ok(group) => Some(group),
        Err(e) => {
            evenly_testing::skip(KEY, format!("cannot make a cpuset: {e}"));
            None
        }
    }
}

fn program() -> Running {
    Running::computing(3)
}

/// Waits until the three workers are pinned, and to all of these CPUs.
fn wait_until_spread(pid: Pid, cpus: &CpuSet) {
    wait_until("workers to be spread", || {
        let Some(masks) = steady_masks(pid) else { return false };
        let pinned: Vec<_> = masks.values().filter(|m| m.len() == 1).collect();
        let union = pinned.iter().fold(CpuSet::new(), |all, m| all.or(m));
        pinned.len() == 3 && union == *cpus
    });
}

fn shrink_and_grow(policy: &str) {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.first().unwrap());
    let Some(cpuset) = make(policy) else { return };
    cpuset.set_cpus(&whole).unwrap();
    let (state, program) = (State::new(), program());
    cpuset.take(program.pid()).unwrap();
    let mut evenly = state.attach(policy, 3, program.pid());
    for _ in 0..3 {
        wait_until_spread(program.pid(), &whole);
        cpuset.set_cpus(&one).unwrap();
        wait_until_restored(program.pid(), &one);
        cpuset.set_cpus(&whole).unwrap();
    }
    wait_until_spread(program.pid(), &whole);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0));
    let said = evenly.stderr();
    assert!(!said.contains("left alone"), "{said}");
    wait_until_restored(program.pid(), &whole);
    // They follow it as threads that were never touched.
    cpuset.set_cpus(&one).unwrap();
    wait_until_restored(program.pid(), &one);
    cpuset.set_cpus(&whole).unwrap();
    wait_until_restored(program.pid(), &whole);
}

#[test]
fn a_cpuset_that_shrinks_and_grows_is_followed_by_juggle() {
    shrink_and_grow("juggle");
}

#[test]
fn a_cpuset_that_shrinks_and_grows_is_followed_by_hybrid() {
    shrink_and_grow("hybrid");
}

/// Met when the cpuset was small: the threads use what it has become, with evenly and after it,
/// however evenly ended.
fn a_cpuset_that_grows_beyond_what_it_was_is_used(name: &str, end: Signal) {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.first().unwrap());
    let Some(cpuset) = make(name) else { return };
    cpuset.set_cpus(&one).unwrap();
    let (state, program) = (State::new(), program());
    cpuset.take(program.pid()).unwrap();
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until("threads to be met", || evenly.journal().is_some_and(|j| j.records.len() >= 3));
    cpuset.set_cpus(&whole).unwrap();
    wait_until_spread(program.pid(), &whole);
    evenly.kill(end);
    evenly.wait();
    wait_until_restored(program.pid(), &whole);
}

#[test]
fn a_cpuset_that_grows_beyond_what_it_was_is_used_also_after_evenly_was_ended() {
    a_cpuset_that_grows_beyond_what_it_was_is_used("grows-term", Signal::TERM);
}

#[test]
fn a_cpuset_that_grows_beyond_what_it_was_is_used_also_after_evenly_was_killed() {
    a_cpuset_that_grows_beyond_what_it_was_is_used("grows-kill", Signal::KILL);
}

/// The pinned threads' CPU is taken away when evenly is about to end, and comes back when it has ended: before,
/// between or after the masks that are given back. Each of these is a unit test of its own
/// (`core/engine/src/surroundings.rs`); here it is not known which it is, and all have their masks in the end.
fn masks_are_whole_after_a_cpuset_that_changed(name: &str, end: Signal) {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.iter().last().unwrap());
    let Some(cpuset) = make(name) else { return };
    cpuset.set_cpus(&whole).unwrap();
    let (state, program) = (State::new(), program());
    cpuset.take(program.pid()).unwrap();
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_spread(program.pid(), &whole);
    evenly.kill(end);
    cpuset.set_cpus(&one).unwrap();
    evenly.wait();
    cpuset.set_cpus(&whole).unwrap();
    wait_until_restored(program.pid(), &whole);
}

#[test]
fn masks_are_whole_after_a_cpuset_that_changed_when_evenly_was_ended() {
    masks_are_whole_after_a_cpuset_that_changed("ended", Signal::TERM);
}

#[test]
fn masks_are_whole_after_a_cpuset_that_changed_when_evenly_was_killed() {
    masks_are_whole_after_a_cpuset_that_changed("killed", Signal::KILL);
}
