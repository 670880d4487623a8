//! Arguments that several commands have.

use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};
use std::path::PathBuf;

/// Where the programs are.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// The program evenly [default: beside this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) evenly: Option<PathBuf>,
    /// Where the workloads were built to
    #[arg(
        long,
        value_name = "DIR",
        default_value = "target/workloads",
        overrides_with = "workloads"
    )]
    pub(crate) workloads: PathBuf,
}

impl Programs {
    /// Finds those that are needed.
    pub(crate) fn find(&self, needed: &[&str]) -> anyhow::Result<Tools> {
        Tools::find(self.evenly.as_deref(), &self.workloads, needed)
    }
}

pub(crate) fn cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse::<CpuSet>().map_err(|e| e.to_string())
}

/// Confines this process, and so all that it starts, to two CPUs.
pub(crate) fn take_two_cpus(asked: Option<&CpuSet>) -> anyhow::Result<CpuSet> {
    let allowed = affinity::get(Tid(0)).context("cannot read the affinity mask")?;
    anyhow::ensure!(
        allowed.len() >= 2,
        "two CPUs are needed, and there is only one here that may be used, CPU {allowed}; where there \
         are more, taskset, a cpuset or a container keeps them back"
    );
    let cpus: CpuSet = match asked {
        Some(asked) => asked.and(&allowed),
        None => allowed.iter().take(2).collect(),
    };
    if cpus.len() != 2 {
        let asked = asked.map_or_else(String::new, |a| format!(" ({a} was asked for)"));
        anyhow::bail!(
            "two CPUs are needed, and of the CPUs allowed, {allowed}, there are {}{asked}; name two \
             of them with --cpus",
            cpus.len()
        );
    }
    affinity::set(Tid(0), &cpus)
        .with_context(|| format!("cannot confine itself to CPUs {cpus}"))?;
    Ok(cpus)
}
