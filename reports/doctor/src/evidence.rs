//! What was seen of a program.
//!
//! Invariant: everything here was measured or read; what was not is None, empty, or in
//! [`Evidence::gaps`].

use crate::settings::endless_spinning;
use evenly_model::efficiency::{Efficiency, Stay};
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Pid, Tid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A program that was seen for a shorter time shows too little.
pub const MIN_SECONDS: f64 = 0.3;

/// Name and version of the JSON form of evidence.
pub const EVIDENCE_SCHEMA: &str = "evenly.evidence/1";

/// No time, count or size that was read is beyond this; sums of those stay exact.
const MOST: f64 = 1e15;

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// A program that the doctor watched while it ran, now or when it was recorded.
    #[default]
    Live,
    /// The recording of a balancer, which has less in it.
    Recording,
}

/// Libraries whose threads or ranks wait in a way of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// OpenMP of GCC.
    Gomp,
    /// OpenMP of LLVM and Intel.
    Omp,
    /// Open MPI.
    OpenMpi,
    /// MPICH and its descendants.
    Mpich,
}

impl Runtime {
    /// Which one a library is, by its file name.
    #[must_use]
    pub fn of_library(file: &str) -> Option<Self> {
        let is = |prefix: &str| file.starts_with(prefix);
        if is("libgomp.so") {
            Some(Self::Gomp)
        } else if is("libomp.so") || is("libomp5") || is("libiomp5.so") {
            Some(Self::Omp)
        } else if is("libmpich.so") || is("libmpi_intel") || is("libmpi.so.12") {
            Some(Self::Mpich)
        } else if is("libopen-rte.so") || is("libopen-pal.so") || is("libmpi.so") {
            Some(Self::OpenMpi)
        } else {
            None
        }
    }
}

/// One thread, over the time for which it was watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Thread id.
    pub tid: i32,
    /// Process.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// The rank of its process, where a probe told.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Times: on a CPU, waiting for one, asleep, there; and spinning, where a probe told.
    #[serde(flatten)]
    pub stay: Stay,
    /// Of the CPU time, that in the kernel.
    pub system_s: f64,
    /// Of the sleep, that in uninterruptible waits: for a disk, as a rule.
    pub disk_s: f64,
    /// What it waited for there most, if that is a file.
    pub file: Option<String>,
    /// How often it lost its CPU without going to sleep: its turn was over, or it yielded.
    pub preempted: u64,
    /// How often it went to sleep.
    pub slept: u64,
    /// Its affinity mask; empty where it is not known.
    pub mask: CpuSet,
    /// The CPU on which it ran most.
    pub cpu: Option<CpuId>,
}

impl ThreadUse {
    /// The time in which it wanted a CPU.
    pub(crate) fn wanted_s(&self) -> f64 {
        self.stay.ran_s + self.stay.waited_s
    }

    /// The time in which it computed, as far as that is known.
    pub(crate) fn computed_s(&self) -> f64 {
        (self.stay.ran_s - self.stay.spun_s.unwrap_or(0.0)).max(0.0)
    }

    /// How often it lost its CPU without going to sleep, for a second of its CPU time.
    pub(crate) fn losses(&self) -> f64 {
        self.preempted as f64 / self.stay.ran_s.max(1e-3)
    }

    /// Whether it yields in a loop.
    pub(crate) fn yields(&self) -> bool {
        self.losses() >= YIELDS
    }

    /// How it is called in sentences.
    pub(crate) fn label(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} ({}, {})", self.name, self.tid),
            None => format!("{} ({})", self.name, self.tid),
        }
    }

    /// The same, with its CPU where that is known.
    pub(crate) fn placed(&self) -> String {
        self.cpu.map_or_else(|| self.label(), |cpu| format!("{} on CPU {cpu}", self.label()))
    }
}

/// One CPU, over the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Which.
    pub id: CpuId,
    /// CPU time of the program on it, as far as places were seen.
    pub program_s: f64,
    /// CPU time of everybody on it.
    pub busy_s: f64,
    /// Time that the host of a virtual machine gave to others.
    pub stolen_s: f64,
    /// Time in which it was not idle, and for which nobody is known: a virtual CPU that its host stops without a
    /// word misses the clock ticks by which busy time is counted.
    #[serde(default)]
    pub uncounted_s: f64,
    /// How fast it is, of [`FULL_CAPACITY`], by the kernel.
    pub capacity: u32,
    /// What the same short work takes on it in ns, measured meanwhile, and the standard error of that.
    pub work_ns: Option<(f64, f64)>,
}

impl CpuUse {
    /// One that was not used.
    #[must_use]
    pub fn new(id: CpuId) -> Self {
        let (program_s, busy_s, stolen_s, uncounted_s) = (0.0, 0.0, 0.0, 0.0);
        let capacity = FULL_CAPACITY;
        Self { id, program_s, busy_s, stolen_s, uncounted_s, capacity, work_ns: None }
    }
}

/// The CPU quota of the program's control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// CPU time a second, in CPUs.
    pub cpus: f64,
    /// How often the group ran out of it.
    pub times: u64,
    /// CPU time for which its CPUs were held back.
    pub held_s: f64,
    /// Line of shell that takes the quota away, where the group's file is known.
    pub lift: Option<String>,
}

/// Another process that used the program's CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// CPU time.
    pub cpu_s: f64,
    /// Where it was seen most.
    pub cpu: CpuId,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Its number.
    pub node: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Pages of the program's own memory on it.
    pub pages: u64,
}

/// All that was seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Where it comes from.
    #[serde(skip)]
    pub source: Source,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The process, where it runs on and can be acted on.
    #[serde(skip)]
    pub pid: Option<i32>,
    /// For how long it was watched, in seconds.
    pub seconds: f64,
    /// CPUs that are online and that the program's cpuset allows.
    pub cpuset: CpuSet,
    /// All threads.
    pub threads: Vec<ThreadUse>,
    /// The CPUs; empty where their use is not known.
    pub cpus: Vec<CpuUse>,
    /// The quota, if there is one.
    pub quota: Option<QuotaUse>,
    /// Environment variables that runtimes heed.
    pub environment: BTreeMap<String, String>,
    /// Libraries that are loaded.
    pub runtimes: BTreeSet<Runtime>,
    /// Other processes, those that used most first.
    pub others: Vec<Other>,
    /// NUMA nodes, where there are several and pages were counted.
    pub nodes: Vec<NodeUse>,
    /// CPU time of a thread for one phase, and how many phases there were, where phases can be seen.
    pub phase: Option<(f64, u64)>,
    /// Who waited mostly for whom, in words, where a probe told.
    pub for_whom: Option<String>,
    /// What could not be read, and what would mend that.
    pub gaps: Vec<String>,
}

/// Threads that compute lose their CPU at most once a tick, a thousand times for a second of CPU time;
/// a thread that yields in a loop does so tens of thousands of times.
const YIELDS: f64 = 3_000.0;
/// Threads that want a CPU for less than this part of what the busiest wants are helpers.
const HELPER: f64 = 0.1;
/// Threads that were there for less than this part of the longest stay come and go.
const LONG_ENOUGH: f64 = 0.4;

impl Evidence {
    /// The threads that the program consists of: those that compute.
    pub(crate) fn compute(&self) -> Vec<&ThreadUse> {
        let most = self.threads.iter().map(ThreadUse::wanted_s).fold(0.0, f64::max);
        let long = self
            .threads
            .iter()
            .filter(|t| t.wanted_s() >= HELPER * most)
            .map(|t| t.stay.present_s)
            .fold(0.0, f64::max);
        self.threads
            .iter()
            .filter(|t| {
                most > 0.0
                    && t.wanted_s() >= HELPER * most
                    && t.stay.present_s >= LONG_ENOUGH * long
            })
            .collect()
    }

    /// Whether some are known to spin while they wait, even if they sleep now and then: at the start of an
    /// MPI program, or when they have spun for long enough. Their CPU time is then not their work.
    pub(crate) fn spins(&self, threads: &[&ThreadUse]) -> bool {
        [Runtime::OpenMpi, Runtime::Mpich].iter().any(|r| self.runtimes.contains(r))
            || !endless_spinning(&self.environment).is_empty()
            || threads.iter().any(|t| t.yields())
    }

    /// Where the time of the threads that compute went.
    #[must_use]
    pub fn efficiency(&self) -> Option<Efficiency> {
        let threads = self.compute();
        let told = threads.iter().all(|t| t.stay.spun_s.is_some());
        let spin = self.spins(&threads);
        Efficiency::of(threads.iter().map(|t| t.stay))
            .map(|e| if spin && !told { Efficiency { factors: None, ..e } } else { e })
    }

    /// The same seen beside a balancer of this name, which had put threads on CPUs: their masks are its own,
    /// but for threads that it left alone. `cpus` are those that it could use.
    pub fn beside(&mut self, policy: &str, cpus: &CpuSet, left_alone: impl Fn(i32) -> bool) {
        for t in self.threads.iter_mut().filter(|t| !left_alone(t.tid)) {
            t.mask = cpus.clone();
        }
        self.gaps.push(format!(
            "how it runs without evenly: it was balanced by {policy} meanwhile; --policy observe only watches"
        ));
    }

    /// What a probe told: which process is which rank, and who waited mostly for whom.
    pub fn told_by_probe(&mut self, ranks: &BTreeMap<i32, u32>, for_whom: Option<String>) {
        for t in &mut self.threads {
            t.rank = ranks.get(&t.pid).copied();
        }
        self.for_whom = for_whom;
    }

    /// What threads told of their waiting says too little, for this reason: it is left out.
    pub fn forget_spinning(&mut self, why: &str) {
        for t in &mut self.threads {
            t.stay.spun_s = None;
        }
        self.for_whom = None;
        self.gaps.push(format!("who spins while waiting: {why}"));
    }

    /// As a JSON document, with everything but the process that it could be acted on.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = json.as_object_mut() {
            fields.insert(String::from("schema"), EVIDENCE_SCHEMA.into());
        }
        json
    }

    /// What [`Self::json`] wrote. None where this is no such document; else perhaps what is wrong with it.
    #[must_use]
    pub fn of_json(json: &Value) -> Option<Result<Self, String>> {
        (json["schema"] == EVIDENCE_SCHEMA).then_some(())?;
        let read = Self::deserialize(json).map_err(|e| e.to_string());
        Some(read.and_then(|e| match e.absurd() {
            Some(what) => Err(format!("{what} is not from 0 to {MOST:e}")),
            None => Ok(e),
        }))
    }

    /// A number that nobody can have measured.
    fn absurd(&self) -> Option<&'static str> {
        let threads = self.threads.iter().flat_map(|t| {
            let s = t.stay;
            let spun_s = s.spun_s.unwrap_or(0.0);
            [s.ran_s, spun_s, s.waited_s, s.blocked_s, s.present_s, t.system_s, t.disk_s]
                .into_iter()
                .chain([t.preempted as f64, t.slept as f64])
                .map(|n| ("a number of a thread", n))
        });
        let cpus = self.cpus.iter().flat_map(|u| {
            let (took, error) = u.work_ns.unwrap_or_default();
            [u.program_s, u.busy_s, u.stolen_s, u.uncounted_s, took, error]
                .map(|n| ("a number of a CPU", n))
        });
        let quota = self
            .quota
            .iter()
            .flat_map(|q| [q.cpus, q.times as f64, q.held_s].map(|n| ("a number of the quota", n)));
        let others = self.others.iter().map(|o| ("the CPU time of another process", o.cpu_s));
        let nodes = self.nodes.iter().map(|n| ("the pages of a NUMA node", n.pages as f64));
        let phase = self.phase.iter().map(|p| ("the length of a phase", p.0));
        [("seconds", self.seconds)]
            .into_iter()
            .chain(threads)
            .chain(cpus)
            .chain(quota)
            .chain(others)
            .chain(nodes)
            .chain(phase)
            .find(|(_, n)| !(0.0..=MOST).contains(n))
            .map(|(what, _)| what)
    }

    /// What an `evenly.run/1` document says: the account at the end of a recording. None where this is
    /// no such document.
    #[must_use]
    pub fn of_run(run: &Value) -> Option<Self> {
        (run["schema"] == "evenly.run/1").then_some(())?;
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let seconds = |v: &Value| v.as_f64().filter(|s| *s >= 0.0).unwrap_or(0.0);
        let id = |v: &Value| v.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
        let cpuset: CpuSet = text(&run["cpus"]).parse().unwrap_or_default();
        let watched = seconds(&run["balanced_s"]);
        let threads = list(&run["threads"]).into_iter().map(|t| {
            let (ran_s, waited_s) = (seconds(&t["ran_s"]), seconds(&t["waited_s"]));
            let spun_s = t["spun_s"].as_f64().filter(|s| *s >= 0.0);
            let (blocked_s, present_s) = (seconds(&t["blocked_s"]), seconds(&t["present_s"]));
            ThreadUse {
                tid: id(&t["id"]["tid"]),
                pid: id(&t["pid"]),
                name: text(&t["name"]),
                stay: Stay { ran_s, spun_s, waited_s, blocked_s, present_s },
                ..ThreadUse::default()
            }
        });
        let quota = run["quota_cpus"].as_f64().map(|cpus| QuotaUse {
            cpus,
            times: 0,
            held_s: 0.0,
            lift: None,
        });
        Some(Self {
            source: Source::Recording,
            command: list(&run["command"]).iter().map(text).collect(),
            seconds: watched,
            threads: threads.collect(),
            cpuset,
            quota,
            gaps: vec![String::from(
                "this recording has threads and CPUs only, as they were too many or it is of an earlier \
                 evenly: settings, other programs, throttling and disks need evenly doctor --record FILE \
                 -- PROGRAM",
            )],
            ..Self::default()
        })
    }
}

/// A process and a thread, as ids.
impl From<(Pid, Tid)> for ThreadUse {
    fn from((pid, tid): (Pid, Tid)) -> Self {
        Self { pid: pid.0, tid: tid.0, ..Self::default() }
    }
}
