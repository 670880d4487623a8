//! What is simulated: a description, all of it plain data.

use evenly_model::{CpuId, CpuSet, Nanos};

/// How the tasks on a CPU share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All run at once, each at an equal part of the speed: the paper's section 3.
    Fluid,
    /// One after the other, each for this long, as a real scheduler does.
    Slices(Nanos),
}

/// A CPU, with what makes it faster or slower than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Speed in thousandths of a CPU of speed 1, while its sibling is busy; at least 1.
    pub speed_permille: u32,
    /// The other hardware thread of its core.
    pub sibling: Option<CpuId>,
    /// By how many thousandths it is faster while the sibling is idle (paper, section 4.3: 350).
    pub alone_permille: u32,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { speed_permille: 1000, sibling: None, alone_permille: 0 }
    }
}

/// What threads do that wait at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// There is none: each thread goes on to its next phase.
    None,
    /// They block and leave the CPU to others.
    Block,
    /// They spin, and use CPU time without progressing.
    Spin,
    /// They spin, and let every other task that has work run before them.
    Yield,
}

/// One thread of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Which program it belongs to: 0 is the one that [`Scenario::phases`] and
    /// [`Scenario::barrier`] describe, the others stand in [`Scenario::others`].
    pub program: usize,
    /// CPU time that each of its phases needs on a CPU of speed 1.
    pub work: Nanos,
    /// Where they differ: what they need one after the other, and from the first on again. Empty: `work`
    /// each.
    pub works: Vec<Nanos>,
    /// By how many thousandths a phase needs more or less than that, at most; at random.
    pub noise_permille: u32,
    /// Which threads it waits for after a phase, until each of them has finished as many; by their place
    /// among the threads of the scenario. Empty: all of its program, as at a barrier.
    pub partners: Vec<usize>,
    /// When the thread starts.
    pub start: Nanos,
    /// When it ends whatever it is doing; None to let it finish.
    pub end: Option<Nanos>,
    /// Where it may run, from its start.
    pub mask: CpuSet,
    /// Whether the program has set this mask itself, so that others must leave it alone.
    pub own_mask: bool,
}

/// The course of a program beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// How many phases each of its threads has; at least 1.
    pub phases: u32,
    /// What is between them.
    pub barrier: Barrier,
}

/// What is wrong with readings, beside the tick. The balancer does not know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readings {
    /// The CPU time read lags by up to this, at random.
    pub noise: Nanos,
    /// How many of a thousand readings only repeat the one before.
    pub stale_permille: u32,
}

/// What is known of CPUs of unequal speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counters {
    /// The kernel reports the capacity of each CPU (cpu_capacity).
    #[default]
    Capacity,
    /// The kernel reports nothing, and nothing is counted.
    Nothing,
    /// The kernel reports nothing; retired instructions are counted, a million for each millisecond on
    /// a CPU of speed 1.
    Instructions,
}

/// A task that is not of the program, pinned to a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// The CPU that it uses.
    pub cpu: CpuId,
    /// When it comes for the first time.
    pub from: Nanos,
    /// When it goes for good.
    pub until: Option<Nanos>,
    /// Least and greatest length of a stretch of computing; None to compute all the time.
    pub busy: Option<(Nanos, Nanos)>,
    /// Least and greatest length of the sleep between stretches.
    pub sleep: (Nanos, Nanos),
}

impl Stranger {
    /// One that computes all the time.
    #[must_use]
    pub fn always(cpu: CpuId) -> Self {
        Self { cpu, from: Nanos::ZERO, until: None, busy: None, sleep: (Nanos::ZERO, Nanos::ZERO) }
    }

    /// The paper's neighbour (section 4.4): sleeps a random 0 to 5 s, computes a random 5 to 10 s.
    #[must_use]
    pub fn random(cpu: CpuId) -> Self {
        let s = |seconds: u64| Nanos::from_millis(1_000 * seconds);
        Self { busy: Some((s(5), s(10))), sleep: (s(0), s(5)), ..Self::always(cpu) }
    }
}

/// What the kernel does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernel {
    /// A CPU that falls idle pulls a waiting thread from the most loaded one; a thread that wakes
    /// on a busy CPU goes to an idle one.
    pub reactive: bool,
    /// At this interval, a random thread moves to a random CPU that holds fewer.
    pub rotate: Option<Nanos>,
}

/// How long things take that balancing does, or causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Time for which all CPUs stand still at each balancing point, as if each had a balancer that
    /// works for so long (paper, section 4.5).
    pub point: Nanos,
    /// Time to read or locate one thread, during which the machine runs on.
    pub read: Nanos,
    /// Time to set one mask, during which the machine runs on.
    pub place: Nanos,
    /// Work that a thread must do again because its caches are cold after it was moved, by anyone.
    pub refill: Nanos,
    /// Work of the first thread of a program at a barrier for each of the others, which goes on only then; the
    /// last of them first, as in libomp. Zero: the barrier opens for all at once. Not where threads have partners.
    pub wake: Nanos,
    /// How late an agent of a CPU is woken at most; it is any time up to that.
    pub late: Nanos,
}

/// A CPU that goes offline or comes online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hotplug {
    /// The virtual time at which the CPU comes or goes.
    pub at: Nanos,
    /// The CPU that comes or goes.
    pub cpu: CpuId,
    /// Whether it comes online; else it goes offline.
    pub online: bool,
}

/// On which CPU threads start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// On the CPU of the mask that holds fewest.
    Even,
    /// On a random CPU of the mask.
    Random,
}

/// A machine, a program and everything else that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The CPUs; the first is CPU 0.
    pub cpus: Vec<Cpu>,
    /// How tasks share a CPU.
    pub sharing: Sharing,
    /// How often the kernel books the time of a running thread; zero for exact readings.
    pub tick: Nanos,
    /// The kernel's own balancing.
    pub kernel: Kernel,
    /// How long things take.
    pub costs: Costs,
    /// By how much readings are wrong.
    pub readings: Readings,
    /// What shows unequal speeds.
    pub counters: Counters,
    /// Whether threads report when they wait at barriers, as with the probe.
    pub probe: bool,
    /// Whether each thread is a process of its own, as the ranks of MPI are.
    pub ranks: bool,
    /// CPUs that come and go.
    pub hotplug: Vec<Hotplug>,
    /// Tasks of others, each on one CPU.
    pub strangers: Vec<Stranger>,
    /// On which CPU threads start.
    pub placement: Placement,
    /// The threads of all programs.
    pub threads: Vec<Thread>,
    /// How many phases each thread of the first program has; at least 1.
    pub phases: u32,
    /// What is between them.
    pub barrier: Barrier,
    /// Programs beside the first.
    pub others: Vec<Program>,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Thread {
    /// What its phase of this number needs; the first is 0.
    #[must_use]
    pub fn work_of(&self, phase: u32) -> Nanos {
        match self.works.len() {
            0 => self.work,
            n => self.works[phase as usize % n],
        }
    }
}

impl Scenario {
    /// n equal threads that each compute for `work` once, on m equal CPUs, with nothing else.
    #[must_use]
    pub fn new(n: usize, m: usize, work: Nanos) -> Self {
        let all: CpuSet = (0..m as u32).map(CpuId).collect();
        Self {
            cpus: vec![Cpu::default(); m],
            sharing: Sharing::Fluid,
            tick: Nanos::ZERO,
            kernel: Kernel::default(),
            costs: Costs::default(),
            readings: Readings::default(),
            counters: Counters::default(),
            probe: false,
            ranks: false,
            hotplug: Vec::new(),
            strangers: Vec::new(),
            placement: Placement::Even,
            threads: vec![
                Thread {
                    program: 0,
                    work,
                    works: Vec::new(),
                    noise_permille: 0,
                    partners: Vec::new(),
                    start: Nanos::ZERO,
                    end: None,
                    mask: all,
                    own_mask: false
                };
                n
            ],
            others: Vec::new(),
            phases: 1,
            barrier: Barrier::None,
            seed: 1,
        }
    }
}
