//! Equal and steady CPUs: each virtual CPU's thread in a control group of its
//! own with a CPU quota, in cgroup v1 (`cpu.cfs_*`) or v2 (`cpu.max`).
//!
//! Invariant: the groups are named after the process that made them,
//! `evenly-lab-PID-STARTTIME-N`; they go with the [`CpuCaps`], and what a killed
//! owner left behind is swept by the next lab.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::error::{LabError, Result};

const PREFIX: &str = "evenly-lab-";
/// The kernel takes no shorter quota.
const SHORTEST_QUOTA_US: f64 = 1000.0;
/// The kernel takes no longer period.
const LONGEST_PERIOD_US: f64 = 1_000_000.0;
/// What the kernel gives a group if nobody says otherwise, in `cpu.shares` and in `cpu.weight`.
const USUAL_WEIGHT: [u32; 2] = [1024, 100];
/// A quota is a promise too: what else runs on the host takes what quotas leave, and so CPUs stay equal beside it.
const TIMES_THE_USUAL: u32 = 100;
/// As short as the shares allow: the shorter, the steadier.
const PERIOD_US: f64 = 5000.0;

/// CPU time per period, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// CPU time that may be used in one period.
    pub quota_us: u32,
    /// Length of the period.
    pub period_us: u32,
}

impl Quota {
    /// The quota that gives a share (0 to 1) of one host CPU, with the shortest
    /// period that the kernel's minimum quota of 1 ms permits, 5 ms at least.
    pub fn of_share(share: f64) -> Quota {
        let period = (SHORTEST_QUOTA_US / share).clamp(PERIOD_US, LONGEST_PERIOD_US);
        Quota { quota_us: (period * share).round() as u32, period_us: period.round() as u32 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Where groups can be made: mounts that this process sees, and its own place
/// in them.
struct Hierarchy {
    version: Version,
    mount: PathBuf,
    /// This process's own group, as a directory.
    own: PathBuf,
}

/// A control group for each of several threads of one process, with a quota
/// each; removed when dropped.
#[derive(Debug)]
pub struct CpuCaps {
    version: Version,
    directory: PathBuf,
    groups: Vec<PathBuf>,
}

impl CpuCaps {
    /// Puts each of the `threads` of process `pid` into a group of its own,
    /// without a limit as yet.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when groups with a CPU quota cannot be made here.
    pub fn new(pid: Pid, threads: &[Pid]) -> Result<CpuCaps> {
        let hierarchy = Hierarchy::find()?;
        hierarchy.sweep();
        let directory = hierarchy.make_directory()?;
        let mut caps = CpuCaps { version: hierarchy.version, directory, groups: Vec::new() };
        caps.fill(pid, threads).map_err(|(path, error)| {
            LabError::Unavailable(format!(
                "no CPU quota for the virtual CPUs: {}: {error}; needed: the right to make \
                 control groups with the cpu controller (root, or a delegated subtree)",
                path.display()
            ))
        })?;
        Ok(caps)
    }

    fn fill(&mut self, pid: Pid, threads: &[Pid]) -> std::result::Result<(), (PathBuf, io::Error)> {
        let raw = |pid: Pid| pid.as_raw_nonzero().to_string();
        if self.version == Version::V2 {
            // The process has to be inside before its threads can be spread.
            write(&self.directory.join("cgroup.procs"), &raw(pid))?;
        }
        let (weight, usual) = match self.version {
            Version::V1 => ("cpu.shares", USUAL_WEIGHT[0]),
            Version::V2 => ("cpu.weight", USUAL_WEIGHT[1]),
        };
        write(&self.directory.join(weight), &(usual * TIMES_THE_USUAL).to_string())?;
        for (number, thread) in threads.iter().enumerate() {
            let group = self.directory.join(format!("vcpu{number}"));
            fs::create_dir(&group).map_err(|error| (group.clone(), error))?;
            self.groups.push(group.clone());
            match self.version {
                Version::V1 => write(&group.join("tasks"), &raw(*thread))?,
                Version::V2 => {
                    write(&group.join("cgroup.type"), "threaded")?;
                    if number == 0 {
                        write(&self.directory.join("cgroup.subtree_control"), "+cpu")?;
                    }
                    write(&group.join("cgroup.threads"), &raw(*thread))?;
                }
            }
        }
        Ok(())
    }

    /// Sets the same quota for all, or lifts it. Time that a thread could not use
    /// because its host CPU was taken is kept for one period, where the kernel
    /// can do that (5.14 and later).
    ///
    /// # Errors
    /// When the kernel refuses the value.
    pub fn set(&self, quota: Option<Quota>) -> Result<()> {
        for group in &self.groups {
            self.set_one(group, quota).map_err(|(path, source)| LabError::File { path, source })?;
        }
        Ok(())
    }

    fn set_one(
        &self,
        group: &Path,
        quota: Option<Quota>,
    ) -> std::result::Result<(), (PathBuf, io::Error)> {
        let (limit, burst) = match self.version {
            Version::V1 => ("cpu.cfs_quota_us", "cpu.cfs_burst_us"),
            Version::V2 => ("cpu.max", "cpu.max.burst"),
        };
        let (limit, burst) = (group.join(limit), group.join(burst));
        let has_burst = burst.exists();
        // The kernel refuses a burst above the quota that is in force.
        if has_burst {
            write(&burst, "0")?;
        }
        match (self.version, quota) {
            (Version::V1, None) => write(&limit, "-1"),
            (Version::V1, Some(Quota { quota_us, period_us })) => {
                write(&limit, "-1")?;
                write(&group.join("cpu.cfs_period_us"), &period_us.to_string())?;
                write(&limit, &quota_us.to_string())
            }
            (Version::V2, None) => write(&limit, "max"),
            (Version::V2, Some(Quota { quota_us, period_us })) => {
                write(&limit, &format!("{quota_us} {period_us}"))
            }
        }?;
        match quota {
            Some(quota) if has_burst => write(&burst, &quota.quota_us.to_string()),
            _ => Ok(()),
        }
    }
}

impl Drop for CpuCaps {
    fn drop(&mut self) {
        // A thread that has just ended may still count for a moment.
        let deadline = Instant::now() + Duration::from_secs(2);
        while !remove(&self.directory) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Hierarchy {
    fn find() -> Result<Hierarchy> {
        let read = |path: &str| fs::read_to_string(path).map_err(LabError::file(path));
        Hierarchy::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?).ok_or_else(
            || {
                LabError::Unavailable(
                    "no control group file system with the cpu controller is mounted; without \
                     it the virtual CPUs cannot be held to an equal speed (--share none goes \
                     without)"
                        .into(),
                )
            },
        )
    }

    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`. The cpu controller
    /// is in one hierarchy only: v1 if it is mounted there, else v2.
    fn parse(mountinfo: &str, cgroup: &str) -> Option<Hierarchy> {
        let mounts = || {
            mountinfo.lines().filter_map(|line| {
                let (fields, tail) = line.split_once(" - ")?;
                let mut fields = fields.split(' ').skip(3);
                let (root, mount) = (fields.next()?, fields.next()?);
                let mut tail = tail.split(' ');
                let kind = tail.next()?;
                Some((kind, root, mount, tail.nth(1).unwrap_or("")))
            })
        };
        let v1 = mounts()
            .find(|(kind, .., options)| *kind == "cgroup" && options.split(',').any(|o| o == "cpu"))
            .map(|found| (Version::V1, found));
        let v2 =
            || mounts().find(|(kind, ..)| *kind == "cgroup2").map(|found| (Version::V2, found));
        let (version, (_, root, mount, _)) = v1.or_else(v2)?;
        let own = cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let ours = match version {
                Version::V1 => controllers.split(',').any(|c| c == "cpu"),
                Version::V2 => id == "0",
            };
            ours.then_some(path)
        });
        let mount = PathBuf::from(mount);
        let own = own
            .and_then(|own| Path::new(own).strip_prefix(root).ok())
            .map_or_else(|| mount.clone(), |own| mount.join(own));
        Some(Hierarchy { version, mount, own })
    }

    /// This process's group and those above it, as far as they are visible.
    fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.own.ancestors().take_while(|path| path.starts_with(&self.mount))
    }

    fn make_directory(&self) -> Result<PathBuf> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{pid}-{}-{number}", start_time(pid).unwrap_or(0));
        let mut failure = String::from("it does not exist");
        for parent in self.ancestors() {
            if let Err(error) = self.prepare(parent) {
                failure = error.to_string();
                continue;
            }
            let directory = parent.join(&name);
            match fs::create_dir(&directory) {
                Ok(()) => return Ok(directory),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(LabError::Unavailable(format!(
            "no control group with a CPU quota could be made below {}: {failure}; needed: root, \
             or a delegated subtree (systemd-run --user --scope -p Delegate=yes); --share none \
             goes without",
            self.mount.display()
        )))
    }

    /// Makes the cpu controller available to children of `parent`.
    fn prepare(&self, parent: &Path) -> io::Result<()> {
        if self.version == Version::V1 {
            return Ok(());
        }
        let has_cpu = |file: &str| -> io::Result<bool> {
            Ok(fs::read_to_string(parent.join(file))?.split_whitespace().any(|name| name == "cpu"))
        };
        if !has_cpu("cgroup.controllers")? {
            return Err(io::Error::other("the cpu controller is not available there"));
        }
        // A group with processes of its own cannot have domain groups with
        // controllers beside them, only the root can.
        let is_root = !parent.join("cgroup.type").exists();
        if !is_root && !fs::read_to_string(parent.join("cgroup.procs"))?.is_empty() {
            return Err(io::Error::other("the group has processes of its own"));
        }
        if has_cpu("cgroup.subtree_control")? {
            return Ok(());
        }
        fs::write(parent.join("cgroup.subtree_control"), "+cpu")
    }

    /// Removes groups whose owner is no more.
    fn sweep(&self) {
        for parent in self.ancestors() {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner = name.to_str().and_then(parse_name);
                if owner.is_some_and(|(pid, started)| start_time(pid) != Some(started)) {
                    remove(&entry.path());
                }
            }
        }
    }
}

/// Whether there is a hierarchy in a text that is read as mounts and as groups.
pub(crate) fn is_hierarchy(text: &str) -> bool {
    Hierarchy::parse(text, text).is_some_and(|h| h.ancestors().count() > 0)
}

/// The owner's process id and start time.
fn parse_name(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// When a process started, in clock ticks since boot: with the id it names the
/// process beyond the reuse of ids.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name, field 2, may itself hold spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes a group and those in it; returns whether it is gone.
fn remove(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            // What stays makes the removal of the parent fail below.
            let _ = fs::remove_dir(entry.path());
        }
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn write(path: &Path, value: &str) -> std::result::Result<(), (PathBuf, io::Error)> {
    fs::write(path, value).map_err(|error| (path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS_V1: &str = "\
        30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n\
        33 30 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MOUNTS_V2: &str = "\
        35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn finds_the_cpu_controller() {
        let v1 = Hierarchy::parse(MOUNTS_V1, "4:cpu,cpuacct:/a/b\n3:cpuset:/c\n0::/d\n").unwrap();
        assert_eq!(v1.version, Version::V1);
        assert_eq!(v1.own, Path::new("/sys/fs/cgroup/cpu,cpuacct/a/b"));
        let v2 = Hierarchy::parse(MOUNTS_V2, "0::/user.slice/x.scope\n").unwrap();
        assert_eq!(v2.version, Version::V2);
        let seen: Vec<_> = v2.ancestors().map(|path| path.to_str().unwrap()).collect();
        let expected =
            ["/sys/fs/cgroup/user.slice/x.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"];
        assert_eq!(seen, expected);
        assert!(Hierarchy::parse("", "0::/\n").is_none());
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "35 25 0:30 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let inside = Hierarchy::parse(mounts, "0::/docker/ab/sub\n").unwrap();
        assert_eq!(inside.own, Path::new("/sys/fs/cgroup/sub"));
        let outside = Hierarchy::parse(mounts, "0::/other\n").unwrap();
        assert_eq!(outside.own, Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn quotas_keep_the_kernels_minimum() {
        assert_eq!(Quota::of_share(0.2), Quota { quota_us: 1000, period_us: 5000 });
        assert_eq!(Quota::of_share(0.4), Quota { quota_us: 2000, period_us: 5000 });
        assert_eq!(Quota::of_share(0.1), Quota { quota_us: 1000, period_us: 10_000 });
    }

    #[test]
    fn owners_are_known_by_name() {
        assert_eq!(parse_name("evenly-lab-123-456-0"), Some((123, 456)));
        assert_eq!(parse_name("evenly-lab-x"), None);
        assert_eq!(parse_name("docker"), None);
        let pid = std::process::id();
        assert!(start_time(pid).is_some());
    }
}
