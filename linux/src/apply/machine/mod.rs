//! Linux as the [`Machine`](evenly_engine::Machine) of the balancing cycle.
//!
//! One instance serves one domain, in one thread. What all domains of a program must agree on
//! (which masks evenly has set, and what the threads had before) is in [`Masks`], which they share.
//!
//! Invariants:
//! - A mask is set only inside the one that the thread had when it was registered (P1), and only after it
//!   is in the journal (P4).
//! - Before a mask is changed it is compared with the one that we left. Where it differs, and
//!   neither the cpuset nor the guardian explains it, the program has set it: its mask stays, and
//!   the thread is not touched again.
//! - Before a mask is changed the thread is looked at through a descriptor that was opened on it, so
//!   that a thread which has the same id by now is not taken for it.
//!
//! # Whose mask is it?
//! A thread that could use its whole cpuset when it was registered is taken to want every CPU that there
//! is: it follows the cpuset when that grows, as it would have without evenly. A cpuset or a CPU
//! that goes offline trims masks, and the kernel gives them back when it grows again; so what we
//! set is remembered as it was set, and what is found is compared with what the kernel leaves of
//! it. Cpusets change while masks are read: one that cannot be explained is taken for the
//! program's own when it is found a second time, and until then the thread is not touched.
//!
//! A program that sets the very mask which the thread has from us at that moment leaves no trace:
//! that change is not seen until it is set again. Where threads are released after a move, as for
//! programs that block, there is no such moment.
//!
//! A thread that was created after one of its process (or of an ancestor of it) was given a mask,
//! and that has this very mask, is taken to have inherited it. That the program itself chose the
//! same mask for a new thread cannot be distinguished from this.
//!
//! A program that a thread becomes by exec keeps its mask, ours if it had one. So each process of
//! which a thread has a mask of ours is looked at again and again ([`Masks::look_for_exec`]), and
//! its first thread, the only one after exec, gets its original mask back.

mod change;
mod managed;
mod masks;
mod registration;
#[cfg(test)]
pub(crate) mod tests;

pub use self::masks::Masks;

use self::managed::Managed;
use crate::beats::Beats;
use crate::clock::now;
use crate::counters::Counters;
use crate::journal::{Process, others};
use crate::memory::{Mover, bytes_of, on_nodes};
use crate::proc::Proc;
use crate::program_cpus::ProgramCpus;
use crate::share::Shares;
use crate::threads::ThreadReader;
use crate::wait_reports::{ReadWaitReports, WaitReports};
use evenly_engine::{
    Located, MemoryUnknown, Neighbour, RankActivity, Reader, Reading, Sensors, Waiting,
};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads what the threads of ranks have counted, as [`Sensors::ranks`].
pub type RankCounts =
    Box<dyn FnMut(&[(ThreadId, Nanos)], &mut Vec<Option<RankActivity>>) -> bool + Send>;

/// Linux, for one domain.
pub struct LinuxMachine {
    proc: Proc,
    threads: ThreadReader,
    /// What the threads do, where that is counted.
    counters: Option<Counters>,
    /// What they report of their waiting, where they do.
    wait_reports: Option<WaitReports>,
    /// What ranks count, where they do.
    ranks: Option<RankCounts>,
    cpus: ProgramCpus,
    masks: Arc<Masks>,
    managed: HashMap<ThreadId, Managed>,
    /// For how long a thread is taken to be no real-time thread, after it was seen to be none.
    looks_again: Nanos,
    /// What gives threads parts of CPUs, where they may be given any.
    shares: Option<Shares>,
    mover: Mover,
    /// Where the scheduler looks often who is to run.
    beats: Option<Beats>,
    may_beat: bool,
}

impl LinuxMachine {
    /// For the program whose first process is `root`.
    #[must_use]
    pub fn new(root: Pid, masks: Arc<Masks>, threads: ThreadReader) -> Self {
        let proc = Proc::default();
        Self {
            threads,
            counters: None,
            wait_reports: None,
            ranks: None,
            cpus: ProgramCpus::new(root, &proc),
            proc,
            masks,
            managed: HashMap::new(),
            looks_again: Nanos::ZERO,
            shares: None,
            mover: Mover::default(),
            beats: None,
            may_beat: false,
        }
    }

    /// For threads that are moved a thousand times a second: whether one has become a real-time thread is looked at ten times
    /// a second.
    #[must_use]
    pub fn moving_often(mut self, often: bool) -> Self {
        self.looks_again = if often { Nanos::from_millis(100) } else { Nanos::ZERO };
        self
    }

    /// With these counters, by which progress is measured from now on.
    #[must_use]
    pub fn counting(mut self, counters: Option<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// With what gives threads parts of the CPUs that they share.
    #[must_use]
    pub fn sharing(mut self, shares: Option<Shares>) -> Self {
        self.shares = shares;
        self
    }

    /// With beats on CPUs, where they may take CPU time.
    #[must_use]
    pub fn beating(mut self, may_beat: bool) -> Self {
        self.may_beat = may_beat;
        self
    }

    /// With what threads report of their own waiting.
    #[must_use]
    pub fn with_wait_reports(mut self, read: Option<ReadWaitReports>) -> Self {
        self.wait_reports = read.map(WaitReports::new);
        self
    }

    /// With what ranks count of their computing and their messages.
    #[must_use]
    pub fn counted_by(mut self, ranks: Option<RankCounts>) -> Self {
        self.ranks = ranks;
        self
    }

    /// Takes note of a cpuset that has changed. To be called before threads are registered:
    /// whether a thread could use its whole cpuset is judged by the one that is known.
    pub fn look_at_cpuset(&mut self) {
        self.cpus.look(&self.proc);
    }
}

impl Reader for LinuxMachine {
    fn now(&self) -> Nanos {
        self.threads.now()
    }

    fn own_cpu_time(&self) -> Nanos {
        self.threads.own_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        if let Some(shares) = &mut self.shares {
            shares.tick(now());
        }
        self.threads.read(ids, out);
        for (&id, _) in ids.iter().zip(out.iter()).filter(|(_, r)| **r == Reading::Gone) {
            self.unregister(id);
        }
        // The end of threads that are no longer asked for is not seen above. Rarely, so that it costs nothing to speak of.
        if self.managed.len() > 2 * ids.len() + 64 {
            let ended: Vec<ThreadId> = (self.managed.keys().copied())
                .filter(|id| self.proc.thread_stat(id.tid).is_none_or(|s| s.start != id.start))
                .collect();
            for id in ended {
                self.unregister(id);
            }
        }
    }

    fn read_one(&mut self, id: ThreadId) -> Reading {
        let reading = self.threads.read_one(id);
        if reading == Reading::Gone {
            self.unregister(id);
        }
        reading
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        self.threads.locate(id)
    }

    fn idle(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        self.threads.idle(cpus)
    }

    fn busy(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        self.threads.busy(cpus)
    }

    fn resolution(&self) -> Nanos {
        self.threads.resolution()
    }
}

impl Sensors for LinuxMachine {
    fn retired(&mut self, ids: &[ThreadId], out: &mut Vec<Option<u64>>) {
        out.clear();
        let Some(counters) = &mut self.counters else { return };
        let proc = &self.proc;
        let is_it = |id: ThreadId| proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start);
        out.extend(ids.iter().enumerate().map(|(i, &id)| counters.read(id, i, || is_it(id))));
        counters.keep(ids.len());
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        out.clear();
        if let Some(wait_reports) = &mut self.wait_reports {
            wait_reports.refresh();
            out.extend(ids.iter().map(|&id| wait_reports.of(id)));
        }
    }

    fn ranks(
        &mut self,
        threads: &[(ThreadId, Nanos)],
        out: &mut Vec<Option<RankActivity>>,
    ) -> bool {
        self.ranks.as_mut().is_some_and(|read| read(threads, out))
    }

    fn weighs_by(&self) -> Option<&'static str> {
        self.shares.as_ref().and_then(Shares::name)
    }

    fn weighs_for(&self) -> Option<Nanos> {
        self.shares.as_ref().and_then(Shares::lasts)
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.look_at_cpuset();
        within.and(self.cpus.cpuset())
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.register(id).ok().map(|m| m.original.clone())
    }

    fn neighbours(&mut self) -> Vec<Neighbour> {
        // A directory that cannot be read shows no neighbours.
        let all = others(&self.masks.journal.dir(), &self.proc).unwrap_or_default();
        let own = Process::own();
        all.into_iter()
            .map(|o| Neighbour {
                pid: o.evenly.pid,
                was_first: (o.evenly.start, o.evenly.pid.0) < (own.start, own.pid.0),
                threads: o.counts,
            })
            .collect()
    }

    fn memory_of(&mut self, pid: Pid) -> Option<u64> {
        bytes_of(&self.proc, pid)
    }

    fn memory_on_nodes(&mut self, pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
        on_nodes(&self.proc, pid)
    }

    fn capacity(&self, cpu: CpuId) -> u32 {
        self.cpus.capacity(cpu)
    }
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        for (_, m) in self.managed.drain() {
            self.masks.journal.forget(m.slot);
        }
    }
}
