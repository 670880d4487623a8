//! A cpuset that shrinks and grows while its threads are balanced, and after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_model::{CpuSet, Pid};
use std::fs;
use std::path::{Path, PathBuf};

/// A cpuset of this test's own, removed at the end.
struct Cpuset(PathBuf);

impl Cpuset {
    /// None, a skip, where none can be made.
    fn new(name: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup/cpuset");
        let dir = root.join(format!("evenly-test-{name}-{}", std::process::id()));
        let make = || -> std::io::Result<()> {
            fs::create_dir(&dir)?;
            fs::write(dir.join("cpuset.mems"), fs::read(root.join("cpuset.mems"))?)
        };
        match make() {
            Ok(()) => Some(Self(dir)),
            Err(e) => {
                let _ = fs::remove_dir(&dir);
                let why = format!("cannot make a cpuset below {}: {e}", root.display());
                evenly_testing::skip("cgroup-v1", why);
                None
            }
        }
    }

    fn set(&self, cpus: &CpuSet) {
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string()).unwrap();
    }

    fn take(&self, pid: Pid) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for _ in 0..1_000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
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
    let Some(cpuset) = Cpuset::new(policy) else { return };
    cpuset.set(&whole);
    let (state, program) = (State::new(), program());
    cpuset.take(program.pid());
    let mut evenly = state.attach(policy, 3, program.pid());
    for _ in 0..3 {
        wait_until_spread(program.pid(), &whole);
        cpuset.set(&one);
        wait_until_restored(program.pid(), &one);
        cpuset.set(&whole);
    }
    wait_until_spread(program.pid(), &whole);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0));
    let said = evenly.stderr();
    assert!(!said.contains("left alone"), "{said}");
    wait_until_restored(program.pid(), &whole);
    // They follow it as threads that were never touched.
    cpuset.set(&one);
    wait_until_restored(program.pid(), &one);
    cpuset.set(&whole);
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
#[test]
fn a_cpuset_that_grows_beyond_what_it_was_is_used() {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.first().unwrap());
    let Some(cpuset) = Cpuset::new("grows") else { return };
    for end in [Signal::TERM, Signal::KILL] {
        cpuset.set(&one);
        let (state, program) = (State::new(), program());
        cpuset.take(program.pid());
        let mut evenly = state.attach("juggle", 3, program.pid());
        wait_until("threads to be met", || evenly.journal().is_some_and(|j| j.records.len() >= 3));
        cpuset.set(&whole);
        wait_until_spread(program.pid(), &whole);
        evenly.kill(end);
        evenly.wait();
        wait_until_restored(program.pid(), &whole);
    }
}

/// The pinned threads' CPU is taken away at the very moment at which evenly ends.
#[test]
fn a_cpuset_that_changes_while_evenly_ends() {
    let Some(whole) = whole() else { return };
    let one = CpuSet::single(whole.iter().last().unwrap());
    let Some(cpuset) = Cpuset::new("ends") else { return };
    cpuset.set(&whole);
    let (state, program) = (State::new(), program());
    cpuset.take(program.pid());
    for end in [Signal::TERM, Signal::KILL] {
        let mut evenly = state.attach("juggle", 3, program.pid());
        wait_until_spread(program.pid(), &whole);
        evenly.kill(end);
        cpuset.set(&one);
        evenly.wait();
        cpuset.set(&whole);
        wait_until_restored(program.pid(), &whole);
    }
}
