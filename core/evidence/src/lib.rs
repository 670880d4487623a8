//! What was observed of a program.
//!
//! Invariant: everything here was measured or read; anything else is None, empty, or listed in
//! [`Evidence::gaps`].

#![forbid(unsafe_code)]

use evenly_model::efficiency::Stay;
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Pid, Tid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The shortest observation that allows a diagnosis, in seconds.
pub const MIN_SECONDS: f64 = 0.3;

/// Name and version of the JSON form of evidence.
pub const EVIDENCE_SCHEMA: &str = "evenly.evidence/1";

/// Upper limit of times, counts and sizes that are read; sums of these stay exact.
const MOST: f64 = 1e15;

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// A program that the doctor observed while it ran, now or when it was recorded.
    #[default]
    Live,
    /// The recording of a balancer, which contains less.
    Recording,
}

/// Libraries that decide how threads or ranks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// libgomp, the OpenMP runtime of GCC.
    Gomp,
    /// OpenMP of LLVM and Intel.
    Omp,
    /// Open MPI, of any version.
    OpenMpi,
    /// MPICH and its descendants.
    Mpich,
}

impl Runtime {
    /// The runtime to which a library belongs, by its file name.
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

/// One thread, during the observation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadUse {
    /// The id of the thread.
    pub tid: i32,
    /// The id of its process.
    pub pid: i32,
    /// The name of the thread, as the program has set it.
    pub name: String,
    /// The rank of its process, if a probe reported it.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Times on a CPU, waiting for one, asleep and present; and spinning, if a probe reported that.
    #[serde(flatten)]
    pub stay: Stay,
    /// CPU time in the kernel, in seconds.
    pub system_s: f64,
    /// Time in uninterruptible sleep, usually waiting for a disk, in seconds.
    pub disk_s: f64,
    /// The file for which it waited most in that time, if it is one.
    pub file: Option<String>,
    /// How often it lost its CPU without going to sleep: its time slice ended, or it yielded.
    pub preempted: u64,
    /// How often it went to sleep.
    pub slept: u64,
    /// Whether it is by samples of where it was that `spun_s` is known.
    #[serde(default)]
    pub sampled: bool,
    /// Its affinity mask; empty where it is unknown.
    pub mask: CpuSet,
    /// The CPU on which it ran most.
    pub cpu: Option<CpuId>,
}

impl ThreadUse {
    /// The time in which it ran or waited for a CPU, in seconds.
    pub fn wanted_s(&self) -> f64 {
        self.stay.ran_s + self.stay.waited_s
    }

    /// The time in which it ran and did not spin, as far as that is known, in seconds.
    pub fn computed_s(&self) -> f64 {
        (self.stay.ran_s - self.stay.spun_s.unwrap_or(0.0)).max(0.0)
    }

    /// How often it lost its CPU without going to sleep, per second of its CPU time.
    pub fn losses(&self) -> f64 {
        self.preempted as f64 / self.stay.ran_s.max(1e-3)
    }

    /// Whether it yields in a loop.
    pub fn yields(&self) -> bool {
        self.losses() >= YIELDS
    }

    /// Its name in sentences.
    pub fn label(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} ({}, {})", self.name, self.tid),
            None => format!("{} ({})", self.name, self.tid),
        }
    }

    /// The same, with its CPU where that is known.
    pub fn placed(&self) -> String {
        self.cpu.map_or_else(|| self.label(), |cpu| format!("{} on CPU {cpu}", self.label()))
    }
}

/// One CPU, during the observation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// The CPU, by its number on the system.
    pub id: CpuId,
    /// CPU time of the program on it, as far as samples show, in seconds.
    pub program_s: f64,
    /// CPU time of all processes on it, in seconds.
    pub busy_s: f64,
    /// Time that the host of the virtual machine gave to others, in seconds.
    pub stolen_s: f64,
    /// Time in which it was not idle and that was not counted for any process, in seconds: a virtual CPU that
    /// its host stops without reporting it misses the clock ticks by which busy time is counted.
    #[serde(default)]
    pub uncounted_s: f64,
    /// Its capacity, of [`FULL_CAPACITY`], as the kernel reports it.
    pub capacity: u32,
    /// The mean time of the same short work on it, in ns, and the standard error of the mean.
    pub work_ns: Option<(f64, f64)>,
}

impl CpuUse {
    /// A CPU that was not used.
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
    /// The quota, in CPUs.
    pub cpus: f64,
    /// How often the group ran out of it.
    pub times: u64,
    /// CPU time that throttling withheld, in seconds.
    pub held_s: f64,
    /// Shell command that removes the quota, where the group's file is known.
    pub lift: Option<String>,
}

/// Another process that used the program's CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// The id of the process.
    pub pid: i32,
    /// The name of the process.
    pub name: String,
    /// CPU time in seconds.
    pub cpu_s: f64,
    /// The CPU on which it was seen most.
    pub cpu: CpuId,
    /// The user that it belongs to, where whoever watched may not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// A loop in which threads wait by spinning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpinUse {
    /// Its function, with the line where the file of its code says; else that file.
    pub place: String,
    /// The ids of the threads that were seen there.
    pub threads: Vec<i32>,
    /// CPU time of these threads in it, in seconds.
    pub cpu_s: f64,
    /// The same as a share of all their CPU time, from 0 to 1.
    pub share: f64,
}

/// What a NUMA node has, and how full it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Its number on the system.
    pub node: u32,
    /// The CPUs that are on it.
    pub cpus: CpuSet,
    /// Pages of the program's own memory on it.
    pub pages: u64,
}

/// All that was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Where it comes from.
    #[serde(skip)]
    pub source: Source,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The process, if it still runs and can be acted on.
    #[serde(skip)]
    pub pid: Option<i32>,
    /// The length of the observation, in seconds.
    pub seconds: f64,
    /// CPUs that are online and that the program's cpuset allows.
    pub cpuset: CpuSet,
    /// What each thread did while it was watched.
    pub threads: Vec<ThreadUse>,
    /// The CPUs; empty where their use is not known.
    pub cpus: Vec<CpuUse>,
    /// The quota, if there is one.
    pub quota: Option<QuotaUse>,
    /// Environment variables that runtimes read.
    pub environment: BTreeMap<String, String>,
    /// Libraries that are loaded.
    pub runtimes: BTreeSet<Runtime>,
    /// Loops in which threads spin, those that took most first; empty where that is not known.
    pub spins: Vec<SpinUse>,
    /// Other processes, those that used most first.
    pub others: Vec<Other>,
    /// NUMA nodes, where there are several and pages were counted.
    pub nodes: Vec<NodeUse>,
    /// CPU time of a thread in one phase, in seconds, and the number of phases, where phases are visible: to a
    /// probe, or in the samples of a recording.
    pub phase: Option<(f64, u64)>,
    /// Which rank or thread waited mostly for which, in words, if a probe reported it.
    pub for_whom: Option<String>,
    /// What could not be read, and what would make it readable.
    pub gaps: Vec<String>,
}

/// Threads that compute lose their CPU at most once a tick, a thousand times per second of CPU time; a thread
/// that yields in a loop does so tens of thousands of times.
const YIELDS: f64 = 3_000.0;
/// Threads that run or wait for a CPU for less than this share of the busiest thread's time are helpers.
const HELPER: f64 = 0.1;
/// Threads that existed for less than this share of the longest presence are short-lived.
const LONG_ENOUGH: f64 = 0.4;

impl Evidence {
    /// The threads that the program consists of: those that compute.
    pub fn compute(&self) -> Vec<&ThreadUse> {
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

    /// Marks the evidence as observed while a balancer with this policy ran. The masks of threads were its own,
    /// except for those that it left alone; `cpus` are the CPUs that it could use.
    pub fn beside(&mut self, policy: &str, cpus: &CpuSet, left_alone: impl Fn(i32) -> bool) {
        for t in self.threads.iter_mut().filter(|t| !left_alone(t.tid)) {
            t.mask = cpus.clone();
        }
        self.gaps.push(format!(
            "how it runs without evenly: it was balanced by {policy} meanwhile; --policy observe only watches"
        ));
    }

    /// Adds the report of a probe: the rank of each process, and which waited mostly for which.
    pub fn add_probe(&mut self, ranks: &BTreeMap<i32, u32>, for_whom: Option<String>) {
        for t in &mut self.threads {
            t.rank = ranks.get(&t.pid).copied();
        }
        self.for_whom = for_whom;
    }

    /// Removes what a probe reported of waiting, because it covers too little; `why` goes into the gaps.
    pub fn forget_spinning(&mut self, why: &str) {
        for t in &mut self.threads {
            t.stay.spun_s = None;
        }
        self.for_whom = None;
        self.spins.clear();
        self.gaps.push(format!("which threads spin while waiting: {why}"));
    }

    /// The evidence as a JSON document, without the process that could be acted on.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = json.as_object_mut() {
            fields.insert(String::from("schema"), EVIDENCE_SCHEMA.into());
        }
        json
    }

    /// Reads a document of [`Self::json`]. None if it is of another kind; an error names what is wrong with it.
    #[must_use]
    pub fn of_json(json: &Value) -> Option<Result<Self, String>> {
        (json["schema"] == EVIDENCE_SCHEMA).then_some(())?;
        let read = Self::deserialize(json).map_err(|e| e.to_string());
        Some(read.and_then(|e| match e.absurd() {
            Some(what) => Err(format!("{what} is not from 0 to {MOST:e}")),
            None => Ok(e),
        }))
    }

    /// The first number that is out of range, by what it describes.
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
        let spins = self.spins.iter().flat_map(|s| {
            [s.cpu_s, s.share].map(|n| ("a number of a loop in which threads spin", n))
        });
        let nodes = self.nodes.iter().map(|n| ("the pages of a NUMA node", n.pages as f64));
        let phase = self.phase.iter().map(|p| ("the length of a phase", p.0));
        [("seconds", self.seconds)]
            .into_iter()
            .chain(threads)
            .chain(cpus)
            .chain(quota)
            .chain(spins)
            .chain(others)
            .chain(nodes)
            .chain(phase)
            .find(|(_, n)| !(0.0..=MOST).contains(n))
            .map(|(what, _)| what)
    }

    /// Reads an `evenly.run/1` document, the report at the end of a recording. None if it is of another kind.
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

/// A thread of which only the ids are known.
impl From<(Pid, Tid)> for ThreadUse {
    fn from((pid, tid): (Pid, Tid)) -> Self {
        Self { pid: pid.0, tid: tid.0, ..Self::default() }
    }
}
