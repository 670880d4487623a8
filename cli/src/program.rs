//! What commands that start or watch a program share.

use crate::flags::Cli;
use anyhow::Context;
use clap::CommandFactory;
use evenly_linux::affinity;
use evenly_linux::proc::Proc;
use evenly_linux::supervise::Hooks;
use evenly_model::{CpuSet, Pid, Tid, or_meant};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

/// A program named like an option is a mistyped option.
pub(crate) fn check_command(name: &str, command: &[OsString]) -> anyhow::Result<()> {
    match command.first().map(|c| c.to_string_lossy()) {
        Some(word) if word.starts_with('-') => anyhow::bail!(
            "there is no option {word}{} (see evenly {name} --help); a program of that name is \
             given as ./{word}",
            meant_option(name, &word)
        ),
        _ => Ok(()),
    }
}

/// The option of this command that was probably meant, in words.
pub(crate) fn meant_option(name: &str, word: &str) -> String {
    let all = Cli::command();
    let options = all.find_subcommand(name).into_iter().flat_map(|c| c.get_arguments());
    let longs: Vec<String> = options.filter_map(|o| Some(format!("--{}", o.get_long()?))).collect();
    let word = word.split('=').next().unwrap_or_default();
    or_meant(word, longs.iter().map(String::as_str))
}

/// What a running program may use, or one that this process would start.
pub(crate) fn allowed(program: Option<Pid>) -> anyhow::Result<CpuSet> {
    match program {
        Some(pid) => affinity::of_program(&Proc::default(), pid)
            .with_context(|| format!("cannot read the affinity mask of process {pid}")),
        None => affinity::get(Tid(0)).context("cannot read this process's affinity mask"),
    }
}

/// While the program runs there is nothing to do here but to look after balancing.
pub(crate) struct Wait;

impl Hooks for Wait {
    fn on_stop(&mut self) {
        // Stopped threads are not moved (they are not behind, they wait), and the guardian gives
        // back pinned masks if the stop lasts.
    }

    fn on_continue(&mut self) {}

    fn on_wake(&mut self) -> ControlFlow<()> {
        // Only the balancer wakes the supervisor, as its last act: the program has no threads left,
        // or it failed. Whether its thread has ended yet must not be asked: it may not have.
        ControlFlow::Break(())
    }
}

/// What a recording says of the machine.
pub(crate) fn host() -> BTreeMap<String, String> {
    let fact =
        |file: &str| std::fs::read_to_string(file).map(|t| t.trim().to_owned()).unwrap_or_default();
    BTreeMap::from([
        (String::from("hostname"), fact("/proc/sys/kernel/hostname")),
        (String::from("kernel"), fact("/proc/sys/kernel/osrelease")),
        (String::from("cpus"), fact("/sys/devices/system/cpu/online")),
    ])
}

/// A moment as recordings say it; 0 where the clock is before 1970.
pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
}
