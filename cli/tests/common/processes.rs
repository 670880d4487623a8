//! Processes that a test has started, and how it gets rid of them.
//!
//! Invariant: a test that has ended leaves nobody behind. What it leaves would compute beside all tests after
//! it: a program outlives an evenly that is killed, as it has to.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]

use evenly_linux::proc::Proc;
use evenly_model::Pid;
use rustix::process::{Pid as Id, Signal, kill_process};
use std::process::Child;

/// Processes that descend from this one, without itself.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let proc = Proc::default();
    let parents: Vec<(Pid, Pid)> = (proc.processes().into_iter())
        .filter_map(|p| Some((p, proc.process_stat(p)?.ppid)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let children = parents.iter().filter(|(_, parent)| *parent == found[at]).map(|(p, _)| *p);
        found.extend(children.collect::<Vec<_>>());
        at += 1;
    }
    found.remove(0);
    found
}

/// Kills a process that was started here, with all that descends from it.
pub fn end(child: &mut Child) {
    // Its id is another's once its end was told.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let send = |to: Pid, signal| Id::from_raw(to.0).map(|id| kill_process(id, signal));
    let pid = Pid(child.id().cast_signed());
    // So that it starts nobody while they are looked for.
    let _ = send(pid, Signal::STOP);
    for of_it in descendants(pid) {
        let _ = send(of_it, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
