//! What the coordinator and the domains hand to each other.
//!
//! Invariant: each list is emptied by the one that it is for, and a lock on it is held for no longer than
//! it takes to add or take its items.

use evenly_engine::{Selection, Times};
use evenly_model::{CpuId, CpuSet, DomainId, ThreadId};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads on their way to a domain or from it. Each list is emptied by its receiver:
/// the domain's balancer, or the coordinator.
#[derive(Default)]
pub(super) struct Mailbox {
    /// For the balancer: threads that join its domain.
    pub(super) joining: Mutex<Vec<Joining>>,
    /// For the balancer: CPUs that were not there when its domain was made.
    pub(super) adopted: Mutex<Vec<CpuId>>,
    /// For the balancer, which hands them on.
    pub(super) departing: Mutex<Vec<Departing>>,
    /// For the balancer, which lets them go: they have become another program.
    pub(super) replaced: Mutex<Vec<ThreadId>>,
    /// For the coordinator: threads that no longer compute.
    pub(super) leaving: Mutex<Vec<(ThreadId, Times)>>,
    /// For the coordinator: what became of threads that were to come from or go to another domain,
    /// and whether they changed.
    pub(super) changed: Mutex<Vec<(ThreadId, bool)>>,
}

impl Mailbox {
    /// Whether there is something that cannot wait.
    pub(super) fn is_urgent(&self) -> bool {
        fn any<T>(list: &Mutex<Vec<T>>) -> bool {
            !list.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        }
        any(&self.joining) || any(&self.replaced)
    }
}

/// A thread that is to join a domain.
pub(super) struct Joining {
    pub(super) selection: Selection,
    pub(super) original: CpuSet,
    pub(super) from_another: bool,
    /// Which task it is, where that matters.
    pub(super) number: Option<u64>,
}

/// A thread that is to leave for another domain.
pub(super) struct Departing {
    pub(super) id: ThreadId,
    pub(super) original: CpuSet,
    pub(super) to: DomainId,
    pub(super) mailbox: Arc<Mailbox>,
}

pub(super) fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn put<T>(list: &Mutex<Vec<T>>, items: impl IntoIterator<Item = T>) {
    list.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
}

/// What the coordinator knows of all domains together.
#[derive(Default)]
pub(super) struct Together {
    /// Domains that have threads.
    pub(super) at_work: AtomicUsize,
    /// Whether threads that are confined to their domains leave CPUs unused that they could use:
    /// those of a domain without threads, or with such only that may not use them.
    pub(super) vacant: AtomicBool,
}
