//! The CPUs that a program may use, as they were read last.
//!
//! Invariant: of a program that has ended the last known CPUs hold.

use crate::limits::{Limits, Watch};
use crate::proc::Proc;
use evenly_model::{CpuId, CpuSet, Pid};

/// The CPUs that a program may use.
pub(crate) struct ProgramCpus {
    limits: Limits,
    watch: Watch,
    root: Pid,
    cpuset: CpuSet,
    changes: u64,
    possible: CpuSet,
}

impl ProgramCpus {
    /// Of the program whose first process is `root`.
    pub(crate) fn new(root: Pid, proc: &Proc) -> Self {
        let limits = Limits::default();
        let mut cpus = Self {
            watch: limits.watch(root),
            possible: limits.possible().unwrap_or_default(),
            limits,
            root,
            cpuset: CpuSet::new(),
            changes: 0,
        };
        cpus.read(proc);
        cpus
    }

    /// The first process of the program.
    pub(crate) fn root(&self) -> Pid {
        self.root
    }

    /// Its cpuset, without CPUs that are offline.
    pub(crate) fn cpuset(&self) -> &CpuSet {
        &self.cpuset
    }

    /// How often the cpuset has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Every CPU that this machine can ever have.
    pub(crate) fn possible(&self) -> &CpuSet {
        &self.possible
    }

    /// The cpuset of one of its processes, read anew; that of the program where it cannot be read.
    pub(crate) fn of_process(&self, pid: Pid) -> CpuSet {
        self.limits.cpuset(pid).unwrap_or_else(|_| self.cpuset.clone())
    }

    /// How fast a CPU is.
    pub(crate) fn capacity(&self, cpu: CpuId) -> u32 {
        self.limits.capacity(cpu)
    }

    /// Takes note of a cpuset that has changed.
    pub(crate) fn look(&mut self, proc: &Proc) {
        if self.watch.changed() {
            self.read(proc);
        }
    }

    fn read(&mut self, proc: &Proc) {
        // Of a process that has ended nothing can be read, and the kernel refuses what is really not allowed.
        if !self.cpuset.is_empty() && proc.process_stat(self.root).is_none() {
            return;
        }
        if let Ok(cpus) = self.limits.cpuset(self.root).or_else(|_| self.limits.online())
            && cpus != self.cpuset
        {
            self.cpuset = cpus;
            self.changes += 1;
        }
    }
}
