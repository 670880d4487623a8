//! What takes CPUs from a program that is measured, and what that leaves it.
//!
//! Invariant: whatever was begun ends with the value that stands for it.

use crate::measure::Running;
use anyhow::Context;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// CPUs of a program under a quota.
pub(crate) const QUOTA: f64 = 1.5;
/// In which time a quota holds, in us.
const PERIOD_US: u64 = 100_000;
/// Puts itself into the control group of the first word, and executes the rest.
const INTO_GROUP: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// Who or what does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Beside {
    #[value(skip)]
    Nobody,
    /// A program of one thread that computes all the time
    Hog,
    /// The same program once more, in the same way
    Copy,
    /// A quota of 1.5 CPUs (needs root)
    Quota,
}

impl Beside {
    /// Behind the name of a program.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Nobody => "",
            Self::Hog => ", beside a hog",
            Self::Copy => ", two programs",
            Self::Quota => ", quota of 1.5 CPUs",
        }
    }

    /// Whoever else runs, if anybody does: `noise` is the program that computes, and `argv` that which is measured, with its
    /// variables.
    pub(crate) fn start(
        self,
        noise: &Path,
        argv: &[OsString],
        env: &[(OsString, OsString)],
    ) -> anyhow::Result<Option<Running>> {
        let mut command = match self {
            Self::Nobody | Self::Quota => return Ok(None),
            Self::Hog => {
                let mut command = Command::new(noise);
                command.arg("--always");
                command
            }
            Self::Copy => {
                let mut command = Command::new(&argv[0]);
                command.args(&argv[1..]).envs(env.iter().map(|(n, v)| (n, v)));
                command
            }
        };
        Running::quiet(&mut command).map(Some)
    }
}

/// How much n threads have to do, as times of what two have: the bound without moves within phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A part for each thread in each phase: the CPU with most threads decides.
    Phases,
    /// A part for each thread, in any order.
    Work,
    /// The same for any number of threads.
    Fixed,
}

impl Bound {
    pub(crate) fn of(self, threads: u32, beside: Beside) -> f64 {
        let n = f64::from(threads);
        let (alone, work) = match self {
            Self::Phases => (f64::from(threads.div_ceil(2)), n),
            Self::Work => (n / 2.0, n),
            Self::Fixed => (1.0, 2.0),
        };
        // In a fair share of two CPUs.
        let share = match beside {
            Beside::Nobody => 2.0,
            Beside::Hog => 2.0 * n / (n + 1.0),
            Beside::Copy => 1.0,
            Beside::Quota => QUOTA,
        };
        alone.max(work / share)
    }
}

/// A control group with the quota.
pub(crate) struct Group(PathBuf);

impl Group {
    /// In either version of control groups.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (v1, name) = (root.join("cpu"), format!("evenly-bench-{}", std::process::id()));
        let quota_us = (QUOTA * PERIOD_US as f64) as u64;
        let needs = "a quota needs root, and the controller cpu of control groups";
        let group = Self(if v1.is_dir() { v1 } else { root.to_owned() }.join(name));
        fs::create_dir(&group.0).context(needs)?;
        let set = |file: &str, text: String| fs::write(group.0.join(file), text);
        let done = set("cpu.max", format!("{quota_us} {PERIOD_US}")).or_else(|_| {
            set("cpu.cfs_period_us", PERIOD_US.to_string())?;
            set("cpu.cfs_quota_us", quota_us.to_string())
        });
        done.context(needs)?;
        Ok(group)
    }

    /// Words before those of a command that is to run in it.
    pub(crate) fn prefix(&self) -> [OsString; 4] {
        let procs = self.0.join("cgroup.procs");
        ["sh".into(), "-c".into(), INTO_GROUP.into(), procs.into()]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // While its last process ends it cannot be removed.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three threads that meet have one CPU with two of them; three that do not share two CPUs; beside a hog, three of four
    /// computing threads have two CPUs.
    #[test]
    fn the_bound_is_what_has_to_be_done_after_two_threads() {
        let of = |bound: Bound, beside| [2, 3, 4].map(|n| bound.of(n, beside));
        assert_eq!(of(Bound::Phases, Beside::Nobody), [1.0, 2.0, 2.0]);
        assert_eq!(of(Bound::Work, Beside::Nobody), [1.0, 1.5, 2.0]);
        assert_eq!(of(Bound::Fixed, Beside::Nobody), [1.0, 1.0, 1.0]);
        assert_eq!(of(Bound::Phases, Beside::Hog), [1.5, 2.0, 2.5]);
        assert_eq!(of(Bound::Phases, Beside::Copy), [2.0, 3.0, 4.0]);
        assert_eq!(of(Bound::Phases, Beside::Quota), [4.0 / 3.0, 2.0, 4.0 / 1.5]);
    }
}
