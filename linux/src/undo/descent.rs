//! Which processes descend from those that a journal names, and which of its threads live.
//!
//! Invariant: a process or thread id that is used anew is a stranger.

use crate::proc::Proc;
use evenly_engine::RunState;
use evenly_model::{Pid, ThreadId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Recorded processes that are alive and their descendants, each with those recorded processes
/// from which its threads can have inherited: itself and its ancestors.
pub(crate) type Tree = BTreeMap<Pid, Vec<Pid>>;

/// The processes of these, each with the earliest start of a thread recorded for it, that are alive, and
/// their descendants.
pub(crate) fn tree(proc: &Proc, recorded: &BTreeMap<Pid, u64>) -> Tree {
    let mut parents = HashMap::new();
    let mut starts = HashMap::new();
    for pid in proc.processes() {
        if let Some(stat) = proc.process_stat(pid) {
            parents.insert(pid, stat.ppid);
            starts.insert(pid, stat.start);
        }
    }
    // A process id that is used anew belongs to a process that started after the threads
    // recorded for the old one.
    let roots: HashSet<Pid> = recorded
        .iter()
        .filter(|(pid, first)| starts.get(pid).is_some_and(|s| *s <= **first))
        .map(|(&pid, _)| pid)
        .collect();
    let mut tree = BTreeMap::new();
    for &pid in parents.keys() {
        let mut chain = Vec::new();
        // Read at different moments, parents could form a ring: the length is bounded.
        let mut at = Some(pid);
        for _ in 0..parents.len() {
            let Some(p) = at else { break };
            if roots.contains(&p) {
                chain.push(p);
            }
            at = parents.get(&p).copied();
        }
        if !chain.is_empty() {
            tree.insert(pid, chain);
        }
    }
    tree
}

pub(crate) fn is_alive(proc: &Proc, id: ThreadId) -> bool {
    proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start && s.run_state() != RunState::Dead)
}
