//! Runtime settings that are known to be wrong before the program runs.
//!
//! Invariant: a setting of the user is only replaced where it contradicts the machine; proposed settings have
//! no effect on programs without the runtime.

use serde::Serialize;
use std::collections::BTreeMap;

/// A variable to set before the program starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The name of the environment variable.
    pub name: &'static str,
    /// The value that it is to have.
    pub value: String,
    /// Why it is to have that value.
    pub why: String,
}

impl Setting {
    /// As an assignment of the shell.
    #[must_use]
    pub fn assignment(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// The number of threads that OMP_NUM_THREADS sets, at the outermost level.
pub(crate) fn threads_wanted(environment: &BTreeMap<String, String>) -> Option<usize> {
    let value = environment.get("OMP_NUM_THREADS")?;
    value.split(',').next()?.trim().parse().ok().filter(|n| *n > 0)
}

/// A variable that makes OpenMP threads spin without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spinning {
    /// The name of the environment variable.
    pub(crate) name: &'static str,
    /// The value that it has.
    value: String,
    /// The value with which threads sleep instead.
    sleeping: &'static str,
}

impl Spinning {
    /// The assignment as it is set.
    pub(crate) fn assignment(&self) -> String {
        format!("{}={}", self.name, self.value)
    }

    /// The assignment with which threads sleep instead.
    pub(crate) fn sleeping(&self) -> String {
        format!("{}={}", self.name, self.sleeping)
    }
}

/// The variables that make OpenMP threads spin without end; usually none.
pub(crate) fn endless_spinning(environment: &BTreeMap<String, String>) -> Vec<Spinning> {
    type Test = fn(&str) -> bool;
    // Longer than any phase: 1e9 iterations take seconds, and KMP_BLOCKTIME is in milliseconds.
    let known: [(&'static str, Test, &'static str); 4] = [
        ("GOMP_SPINCOUNT", |v| v.starts_with("inf") || at_least(v, 1e9), "1000"),
        ("KMP_BLOCKTIME", |v| v.starts_with("inf") || at_least(v, 1e5), "0"),
        ("KMP_LIBRARY", |v| v == "turnaround", "throughput"),
        ("OMP_WAIT_POLICY", |v| v == "active", "passive"),
    ];
    let set = known.into_iter().filter_map(|(name, test, sleeping)| {
        let value = environment.get(name)?.trim().to_ascii_lowercase();
        test(&value).then_some(Spinning { name, value, sleeping })
    });
    set.collect()
}

fn at_least(value: &str, least: f64) -> bool {
    value.parse::<f64>().is_ok_and(|turns| turns >= least)
}

/// Variables that decide whether ranks of Open MPI yield while they wait, the stronger first. The launcher sets
/// the second one if it starts more ranks than there are slots.
pub(crate) const OPEN_MPI_YIELDS: [&str; 2] =
    ["OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mpi_oversubscribe"];

/// Whether the environment makes ranks of Open MPI yield while they wait.
pub(crate) fn open_mpi_yields(environment: &BTreeMap<String, String>) -> bool {
    let set = OPEN_MPI_YIELDS.iter().find_map(|name| environment.get(*name));
    set.is_some_and(|v| ["1", "true", "yes", "t"].contains(&v.trim().to_ascii_lowercase().as_str()))
}

/// The setting that binds threads to CPUs, if there is one.
pub(crate) fn binding(environment: &BTreeMap<String, String>) -> Option<String> {
    ["GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES"].iter().find_map(|name| {
        let value = environment.get(*name)?.trim();
        let off = ["", "false", "none", "disabled"].contains(&value.to_ascii_lowercase().as_str());
        (!off).then(|| format!("{name}={value}"))
    })
}

/// The settings to change for a program with this environment, which may use `cpus` CPUs, and by its quota the
/// time of `quota` CPUs.
#[must_use]
pub fn settings(
    environment: &BTreeMap<String, String>,
    cpus: usize,
    quota: Option<f64>,
) -> Vec<Setting> {
    let mut all = Vec::new();
    let mut set = |name, value: String, why: String| all.push(Setting { name, value, why });
    let room = quota.map_or(cpus, |q| cpus.min((q.floor() as usize).max(1))).max(1);
    let limit = match quota {
        Some(q) if room < cpus => format!("the CPU quota is {q:.2} CPUs"),
        _ => format!("the program may use {cpus} CPUs"),
    };
    let wanted = threads_wanted(environment);
    let threads = match wanted {
        Some(n) if n > room => {
            set("OMP_NUM_THREADS", room.to_string(), format!("it was {n}, and {limit}"));
            room
        }
        Some(n) => n,
        // OpenMP runtimes see masks and cpusets, but no quotas.
        None if room < cpus => {
            let why = format!("OpenMP would start {cpus} threads, and {limit}");
            set("OMP_NUM_THREADS", room.to_string(), why);
            room
        }
        None => cpus,
    };
    // Where the user sets more threads than CPUs, threads share CPUs whatever is set here.
    let shared = wanted.is_some_and(|n| n > cpus) || threads > room;
    for found in endless_spinning(environment).into_iter().filter(|_| shared || room < cpus) {
        let is = found.assignment();
        let why = format!("{is} lets threads spin on CPUs that others of the program need");
        set(found.name, found.sleeping.to_owned(), why);
    }
    all
}
