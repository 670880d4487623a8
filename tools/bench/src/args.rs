//! Arguments that several commands have.

use crate::suite::is_asked;
use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
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

/// Which cases are run, how often, and where.
#[derive(Debug, Args)]
pub(crate) struct Cases {
    #[command(flatten)]
    pub(crate) programs: Programs,
    /// Only cases whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) only: Vec<String>,
    /// Name the cases, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Runs of each arm
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) runs: u32,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub(crate) cpus: Option<CpuSet>,
    /// Seed of the order of runs where that is random, and of intervals
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Cases {
    /// Those of `all` that are asked for by their names.
    ///
    /// # Errors
    /// Where none is, with all names.
    pub(crate) fn of<'a, T>(
        &self,
        all: &'a [T],
        name: impl Fn(&T) -> String,
    ) -> anyhow::Result<Vec<&'a T>> {
        let chosen: Vec<&T> = all.iter().filter(|case| is_asked(&name(case), &self.only)).collect();
        anyhow::ensure!(
            !chosen.is_empty(),
            "--only {}: no case has that in its name; there are {}",
            self.only.join(", "),
            all.iter().map(name).collect::<Vec<_>>().join(", ")
        );
        Ok(chosen)
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
