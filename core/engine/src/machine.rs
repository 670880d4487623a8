//! The machine as the cycle sees it.

use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Nanos, Pid, ThreadId, Turns};

/// Cumulative times of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// CPU time since the thread started.
    pub ran: Nanos,
    /// Time runnable but not running since the thread started.
    pub waited: Nanos,
    /// How often it was given a CPU since it started. A thread that yields again and again is
    /// given one far more often than one that computes.
    pub slices: u64,
}

/// What a thread reports of its own waiting, since its first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// For how long it has waited for others: at barriers, in messages and collectives, at ends of
    /// parallel regions, whether it slept or spun.
    pub waited: Nanos,
    /// For how long it was outside of parallel regions, of a thread that is there for them.
    pub outside: Nanos,
    /// Barriers, collectives and ends of regions that it has reached.
    pub phases: u32,
    /// Waits of all kinds that it has begun.
    pub waits: u32,
    /// Since when it computes; None while it waits, or is outside of parallel regions.
    pub computes_since: Option<Nanos>,
}

impl Waiting {
    /// For how long it had nothing to compute.
    #[must_use]
    pub fn idle(&self) -> Nanos {
        self.waited + self.outside
    }
}

/// Outcome of reading one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// The times of the thread, as of now.
    Times(Times),
    /// It has ended. This is data, not an error.
    #[default]
    Gone,
    /// It could not be read this time. What it did is counted when it is read next.
    Unknown,
}

/// Whether a thread wants the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Running or waiting for a CPU.
    Runnable,
    /// It waits for something other than a CPU.
    Blocked,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Ended, or about to.
    Dead,
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The CPU that it last ran on.
    pub cpu: CpuId,
    /// Whether it wants it.
    pub state: RunState,
    /// Page faults since it started that needed no input or output.
    pub minor_faults: u64,
    /// Page faults since it started that did.
    pub major_faults: u64,
}

/// Why an affinity mask could not be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The thread has ended: no error to the user.
    #[error("the thread has ended")]
    Gone,
    /// The program has set a mask of its own, which is left alone.
    #[error("the program has set its own affinity mask, {found}")]
    Foreign {
        /// The mask that the program has set.
        found: CpuSet,
    },
    /// No CPU of the mask can be used now (cpuset, hotplug): look again at the next point.
    #[error("none of the CPUs {wanted} can be used now")]
    Unusable {
        /// The mask that was to be set.
        wanted: CpuSet,
    },
    /// The system refused, for a reason that will not go away.
    #[error("{0}")]
    Refused(String),
}

/// Something that could not be done to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The thread that could not be changed.
    pub thread: ThreadId,
    /// Why the machine did not change it.
    pub error: ApplyError,
}

impl Failure {
    /// Whether it is of no use to try again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.error, ApplyError::Foreign { .. } | ApplyError::Refused(_))
    }

    /// That a thread was not given a part of a CPU, in words.
    pub(crate) fn keeps_its_share(&self) -> String {
        format!("thread {} keeps its share of a CPU: {}", self.thread, self.error)
    }
}

/// Another balancer at work on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The process that the other balancer is.
    pub pid: Pid,
    /// How many threads it places on each CPU, where that is not 0.
    pub threads: Vec<(CpuId, u16)>,
    /// Whether it was there before this one, which then makes way for it. Of two only one does, so
    /// that they do not dodge each other for ever.
    pub was_first: bool,
}

/// What a thread is to have of the CPU that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// The process of the thread.
    pub process: Pid,
    /// The thread that is to have it.
    pub thread: ThreadId,
    /// Relative to what it had when it was admitted.
    pub weight: f64,
    /// Its report of its turns, if it makes one.
    pub turns: Option<Turns>,
}

/// What became of memory that was to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMoved {
    /// The process whose memory it is.
    pub pid: Pid,
    /// From this NUMA node, by its number on the system.
    pub from: u32,
    /// The NUMA node that it was to go to.
    pub to: u32,
    /// How many bytes have been moved.
    pub bytes: u64,
    /// Bytes that were on the first node and stayed: the kernel did not move these pages.
    pub stayed: u64,
    /// Why it came to an early end, if it did.
    pub error: Option<String>,
}

/// Why it is not known where the memory of a process is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryUnknown {
    /// The process has ended: no error to the user.
    #[error("the process has ended")]
    Gone,
    /// It cannot be read, for a reason that will not go away.
    #[error("{0}")]
    Unreadable(String),
}

/// What went between a rank of an MPI program and another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The other, by its rank.
    pub with: u64,
    /// How many messages there were.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What the thread of a rank of an MPI program has reported of itself, since it was started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankActivity {
    /// The number of the rank, from 0.
    pub rank: u64,
    /// Of how many ranks: those of programs of different sizes do not mean each other.
    pub ranks: u64,
    /// CPU time that it has used outside of MPI: of all that it had when it was read last.
    pub computed: Nanos,
    /// What it has sent, to each.
    pub sent: Vec<Tally>,
    /// What it has fetched by itself, from each.
    pub fetched: Vec<Tally>,
}

/// What is read of threads and CPUs: all that an agent sees between balancing points ([`crate::Agent`]).
pub trait Reader {
    /// The time now, by a clock that never goes back.
    fn now(&self) -> Nanos;

    /// CPU time that the calling balancer has used so far.
    fn own_cpu_time(&self) -> Nanos;

    /// Reads the times of all these threads, one result for each, in order.
    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>);

    /// Reads the times of one thread, on its own.
    fn read_one(&mut self, id: ThreadId) -> Reading {
        let mut out = Vec::with_capacity(1);
        self.read(&[id], &mut out);
        out.first().copied().unwrap_or_default()
    }

    /// Finds where one thread is. None where it has ended.
    fn locate(&mut self, id: ThreadId) -> Option<Located>;

    /// For how long each of these CPUs has run nothing so far, in order, counted from any moment. Nothing at all where
    /// that is not known.
    fn idle(&mut self, _cpus: &[CpuId]) -> Vec<Nanos> {
        Vec::new()
    }

    /// For how long each of these CPUs has run something so far, in order, counted from any moment: time that the host of a
    /// virtual machine has taken is neither idle nor busy. Nothing at all where that is not known.
    fn busy(&mut self, _cpus: &[CpuId]) -> Vec<Nanos> {
        Vec::new()
    }

    /// How coarse a reading is: the tick.
    fn resolution(&self) -> Nanos;
}

/// What of a machine is read at a balancing point. Linux is one; the simulator is another.
pub trait Sensors: Reader {
    /// The CPUs of `within` that can be used now: online and in the cpuset.
    fn usable(&mut self, within: &CpuSet) -> CpuSet;

    /// The mask that the thread had when it was first seen. None where it has ended.
    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet>;

    /// Other balancers. Asked about once a second.
    fn neighbours(&mut self) -> Vec<Neighbour> {
        Vec::new()
    }

    /// How many instructions each of these threads has retired so far, in order, counted from any
    /// moment; None for a thread of which that is not known. Nothing at all where instructions are
    /// not counted: then progress is CPU time, weighted by the capacity of CPUs. Asked right after
    /// [`Reader::read`] with the same threads.
    fn retired(&mut self, _ids: &[ThreadId], out: &mut Vec<Option<u64>>) {
        out.clear();
    }

    /// What each of these threads reports of its own waiting until now, in order, on the clock of
    /// [`Reader::now`]; None for a thread that says nothing, because it has never waited or cannot
    /// report. Nothing at all where no thread can: then CPU time is taken for computing. Asked right
    /// after [`Reader::read`] with the same threads. Figures never go back, but for `waited`, a
    /// little.
    fn waiting(&mut self, _ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        out.clear();
    }

    /// What [`Actuator::weigh`] does it by, in words.
    fn weighs_by(&self) -> Option<&'static str> {
        None
    }

    /// For how long what is given lasts, where that is not until something else is given: then it is given
    /// again in time.
    fn weighs_for(&self) -> Option<Nanos> {
        None
    }

    /// Bytes that a process has in memory. None where that is not known.
    fn memory_of(&mut self, _pid: Pid) -> Option<u64> {
        None
    }

    /// Bytes of its own that a process has on each NUMA node, by the nodes' numbers on the system;
    /// nodes with nothing may be left out. That may take long: the more memory, the longer.
    ///
    /// # Errors
    /// [`MemoryUnknown`].
    fn memory_on_nodes(&mut self, _pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
        Err(MemoryUnknown::Unreadable(String::from("this machine does not report it")))
    }

    /// What those of these threads that are of ranks report of themselves, in order; beside each the CPU time
    /// that it had when it was read last. False where none could report.
    fn ranks(
        &mut self,
        _threads: &[(ThreadId, Nanos)],
        _out: &mut Vec<Option<RankActivity>>,
    ) -> bool {
        false
    }

    /// How fast a CPU is, of [`FULL_CAPACITY`]; at least 1.
    fn capacity(&self, _cpu: CpuId) -> u32 {
        FULL_CAPACITY
    }
}

/// What of a machine is changed. Only the module `actuate` calls it.
pub trait Actuator {
    /// Pins the thread to `cpu`. With `release` its mask becomes `release` right after: it starts
    /// on `cpu` but is not held there. A mask is only ever set inside the original one.
    ///
    /// # Errors
    /// [`ApplyError`]; nothing was changed then, or what was changed is undone.
    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError>;

    /// Sets the thread's mask to `mask`: to a domain, or, for a thread that was pinned, to what it may use
    /// when it is not. It stays where it is if that is in it.
    ///
    /// # Errors
    /// [`ApplyError`] as for [`Actuator::place`].
    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError>;

    /// Gives the thread its original mask back, if the mask is still ours.
    fn restore(&mut self, id: ThreadId);

    /// Gives the thread its original mask back and forgets it, because another balancer of the same
    /// program takes it over. False where that cannot be: then the thread stays here.
    fn release(&mut self, id: ThreadId) -> bool {
        self.restore(id);
        true
    }

    /// Gives threads that share CPUs other parts of them: where nothing may be raised, others are
    /// lowered instead, as only ratios matter. What each has then, in order, relative to what it had
    /// when it was admitted.
    ///
    /// # Errors
    /// [`ApplyError`] for each whose part stays as it is.
    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let why = "this machine cannot set shares of a CPU";
        wanted.iter().map(|_| Err(ApplyError::Refused(String::from(why)))).collect()
    }

    /// Gives a thread back the part of a CPU that it had when it was admitted, if that is still ours. Of one that has
    /// ended nothing is left behind.
    fn unweigh(&mut self, _process: Pid, _thread: ThreadId) {}

    /// From now on the scheduler looks often who is to run on these CPUs, and on no others any more.
    fn beat(&mut self, _cpus: &CpuSet) {}

    /// Memory of a process is to go from one NUMA node to another, by their numbers on the system.
    /// It goes piece by piece, with [`Actuator::go_on_moving`]. False where there is no such thing.
    fn move_memory(&mut self, _pid: Pid, _from: u32, _to: u32) -> bool {
        false
    }

    /// Goes on with memory that is to be moved, for a short while. What is done with, if anything is.
    fn go_on_moving(&mut self) -> Option<MemoryMoved> {
        None
    }
}

/// A machine: it is read and changed.
pub trait Machine: Sensors + Actuator {}

impl<M: Sensors + Actuator + ?Sized> Machine for M {}
