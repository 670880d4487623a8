//! What takes CPUs from a program of the museum.
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
pub(super) const QUOTA: f64 = 1.5;
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
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Nobody => "",
            Self::Hog => ", beside a hog",
            Self::Copy => ", two programs",
            Self::Quota => ", quota of 1.5 CPUs",
        }
    }

    /// Whoever else runs, if anybody does: `noise` is the program that computes, and `argv` that which is measured, with its
    /// variables.
    pub(super) fn start(
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

/// A control group with the quota.
pub(super) struct Group(PathBuf);

impl Group {
    /// In either version of control groups.
    pub(super) fn new() -> anyhow::Result<Self> {
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
    pub(super) fn prefix(&self) -> [OsString; 4] {
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
