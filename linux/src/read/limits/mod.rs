//! What the machine and the system's manager allow: CPUs that are online, the cpuset and the CPU
//! quota of a process, the domains that CPUs form, and the length of the scheduler's slices.
//!
//! Invariant: nothing here changes anything, and every file is read below one root that is given,
//! so that trees captured on other machines can be read. Parsing is pure and total: any bytes give
//! a value, an error or nothing, never a panic.
//!
//! A cpuset or quota is found in three steps, each of which has its pitfall:
//! `/proc/<pid>/cgroup` names the group in each hierarchy (relative to the cgroup namespace of the
//! reader, possibly with `..` in front); `/proc/self/mountinfo` says where the hierarchies are
//! mounted (possibly only a part of one: the mount's root, in the same coordinates as the group's
//! name); and the files in the group's directory and above it hold the values. Version 1, version 2
//! and hybrids of both are read: a controller is where `/proc/<pid>/cgroup` says that it is.

mod parse;
mod slice;
mod watch;

use crate::proc::read_all;
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Pid};
use parse::list;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use parse::{
    Cache, CgroupLine, CgroupMount, Throttling, last_cache, parse_cfs_quota, parse_cgroup,
    parse_cpu_max, parse_cpu_stat, parse_memory, parse_mountinfo, parse_stat_cpus, partition,
};
pub use slice::{Slice, slice, slice_of};
pub use watch::Watch;

/// Which sets of CPUs are balanced on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// All CPUs together, in one domain.
    Machine,
    /// The CPUs of one NUMA node.
    Numa,
    /// The CPUs that share their last cache.
    Llc,
}

/// Why something about the machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; it is needed for {needed}", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// What it is needed for, and what helps.
        needed: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else than expected.
    #[error("{} holds '{found}', which is not {needed}", path.display())]
    Form {
        /// The file that holds something else.
        path: PathBuf,
        /// What it holds (the beginning of it).
        found: String,
        /// What it should hold, in words.
        needed: &'static str,
    },
}

impl LimitsError {
    fn form(path: &Path, found: &[u8], needed: &'static str) -> Self {
        let shown = &found[..found.len().min(80)];
        let found = String::from_utf8_lossy(shown).trim_end().to_owned();
        Self::Form { path: path.to_owned(), found, needed }
    }
}

/// The CPU time that the groups of a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quota {
    /// Least quota over period of all groups from the process's own to the topmost that is
    /// visible, in CPUs. None where nothing limits.
    pub cpus: Option<f64>,
    /// Throttling so far, summed over those groups that have a quota. Where groups within groups
    /// were held back at the same moment it counts for each, so the time is an upper limit.
    pub throttling: Throttling,
}

/// The file that sets a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSource {
    file: PathBuf,
    v2: bool,
}

impl QuotaSource {
    /// The line of shell that takes the quota away.
    #[must_use]
    pub fn lift(&self) -> String {
        // A user with a delegated subtree chooses the names of its groups.
        let file = evenly_model::shell_quoted(&self.file.display().to_string());
        format!("echo {} > {file}", if self.v2 { "max" } else { "-1" })
    }
}

/// A process's group in one hierarchy, as directories.
#[derive(Debug)]
struct Group {
    /// Whether the hierarchy is of version 2.
    v2: bool,
    /// From the group's own directory up to the mount point.
    levels: Vec<PathBuf>,
}

impl Group {
    /// Names of the file with the effective CPUs, best first.
    fn cpuset_files(&self) -> &'static [&'static str] {
        if self.v2 {
            &["cpuset.cpus.effective"]
        } else {
            // Without a prefix where mounted with `noprefix`, as the old cpuset file system was.
            &["cpuset.effective_cpus", "effective_cpus", "cpuset.cpus", "cpus"]
        }
    }

    /// Names of the files that make up the quota.
    fn quota_files(&self) -> &'static [&'static str] {
        if self.v2 { &["cpu.max"] } else { &["cpu.cfs_quota_us", "cpu.cfs_period_us"] }
    }
}

/// Reads limits below a root directory.
#[derive(Debug, Clone)]
pub struct Limits {
    root: PathBuf,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(Path::new("/"))
    }
}

impl Limits {
    /// `fs_root` is `/`, or the directory of a captured tree that has `proc` and `sys`.
    #[must_use]
    pub fn new(fs_root: &Path) -> Self {
        Self { root: fs_root.to_owned() }
    }

    fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let p = absolute.as_ref();
        self.root.join(p.strip_prefix("/").unwrap_or(p))
    }

    /// The CPUs that may ever be online; those that are where that is unknown.
    ///
    /// # Errors
    /// As [`Limits::online`].
    pub fn possible(&self) -> Result<CpuSet, LimitsError> {
        let possible = read_all(&self.path("sys/devices/system/cpu/possible")).ok();
        match possible.and_then(|t| list(&t)).filter(|s| !s.is_empty()) {
            Some(set) => Ok(set),
            None => self.online(),
        }
    }

    /// How fast a CPU is, of [`FULL_CAPACITY`]: `/sys/devices/system/cpu/cpu<N>/cpu_capacity`. Full
    /// where the kernel does not report it, as on machines whose CPUs are all alike.
    #[must_use]
    pub fn capacity(&self, cpu: CpuId) -> u32 {
        let path = self.path(format!("sys/devices/system/cpu/cpu{}/cpu_capacity", cpu.0));
        let text = read_all(&path).ok().and_then(|t| String::from_utf8(t).ok());
        let capacity = text.and_then(|t| t.trim().parse().ok());
        capacity.filter(|&c| c > 0).unwrap_or(FULL_CAPACITY)
    }

    /// The CPUs that are online, from `/sys/devices/system/cpu/online`, or from `/proc/stat` where
    /// `/sys` is not mounted.
    ///
    /// # Errors
    /// Where neither can be read, or where the list is not one.
    pub fn online(&self) -> Result<CpuSet, LimitsError> {
        let path = self.path("sys/devices/system/cpu/online");
        match read_all(&path) {
            Ok(text) => list(&text)
                .filter(|s| !s.is_empty())
                .ok_or_else(|| LimitsError::form(&path, &text, "a list of CPUs such as 0-3,8")),
            Err(source) => {
                let cpus = read_all(&self.path("proc/stat")).map(|t| parse_stat_cpus(&t));
                cpus.ok().filter(|s| !s.is_empty()).ok_or(LimitsError::Read {
                    path,
                    needed: "the CPUs that are online; mount sysfs there, or proc on /proc",
                    source,
                })
            }
        }
    }

    /// Divides the online CPUs of `within` into domains: disjoint, none empty, in the order of
    /// their first CPU. Nodes that have memory only give none; CPUs of which the system says
    /// nothing form a domain of their own. An offline CPU that is known to belong to a node joins
    /// a domain of that node, so that it is in the right one when it comes online; where all CPUs of
    /// a node are offline they form a domain that is empty for now.
    ///
    /// # Errors
    /// Where a file is not of the kernel's form, or where the online CPUs cannot be read.
    pub fn domains(&self, kind: DomainKind, within: &CpuSet) -> Result<Vec<CpuSet>, LimitsError> {
        let online = within.and(&self.online()?);
        let groups = match kind {
            DomainKind::Machine => Vec::new(),
            DomainKind::Numa => self.nodes()?,
            DomainKind::Llc => self.last_caches(&online)?,
        };
        let mut domains = partition(groups, &online);
        self.add_offline(kind, &mut domains, &within.minus(&online));
        Ok(domains)
    }

    /// Adds offline CPUs to domains of their nodes. No list of a node names them, and their caches
    /// are not listed, but the node's directory still has an entry for each. Where a node has several
    /// domains, the one that is smallest lacks a CPU most likely.
    fn add_offline(&self, kind: DomainKind, domains: &mut Vec<CpuSet>, offline: &CpuSet) {
        if offline.is_empty() {
            return;
        }
        for (_, dir) in numbered(&self.path("sys/devices/system/node"), "node") {
            let node: CpuSet = numbered(&dir, "cpu").into_iter().map(|(n, _)| CpuId(n)).collect();
            for cpu in node.and(offline).iter() {
                let one = kind == DomainKind::Machine;
                let of_node = domains.iter_mut().filter(|d| one || !d.and(&node).is_empty());
                match of_node.min_by_key(|d| d.len()) {
                    Some(domain) => domain.insert(cpu),
                    None => domains.push(CpuSet::single(cpu)),
                }
            }
        }
        domains.sort_by_key(CpuSet::first);
    }

    fn nodes(&self) -> Result<Vec<CpuSet>, LimitsError> {
        let mut nodes = Vec::new();
        for (_, dir) in numbered(&self.path("sys/devices/system/node"), "node") {
            let path = dir.join("cpulist");
            // A node that goes away between listing and reading is no node any more.
            let Ok(text) = read_all(&path) else { continue };
            nodes.push(list(&text).ok_or_else(|| {
                LimitsError::form(&path, &text, "a list of CPUs such as 0-3,8 (or an empty line)")
            })?);
        }
        Ok(nodes)
    }

    fn last_caches(&self, within: &CpuSet) -> Result<Vec<CpuSet>, LimitsError> {
        let mut groups: Vec<CpuSet> = Vec::new();
        for cpu in within.iter() {
            if groups.iter().any(|g| g.contains(cpu)) {
                continue;
            }
            let dir = self.path(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
            let mut caches = Vec::new();
            for (_, index) in numbered(&dir, "index") {
                let read = |file| read_all(&index.join(file));
                // Virtual machines leave some of the files out: then that cache is not known.
                let (Ok(level), Ok(kind), Ok(shared)) =
                    (read("level"), read("type"), read("shared_cpu_list"))
                else {
                    continue;
                };
                caches.push(Cache::parse(&level, &kind, &shared).ok_or_else(|| {
                    let found = [level, kind, shared].concat();
                    LimitsError::form(&index, &found, "a cache's level, type and CPU list")
                })?);
            }
            groups.extend(last_cache(&caches).cloned());
        }
        Ok(groups)
    }

    /// The CPUs that the cpuset of a process allows and that are online. Where there is no cpuset,
    /// or where none can be read, that is all online CPUs: the kernel's own affinity calls refuse
    /// what is really not allowed. The id of a thread serves, too: in version 2 the threads of a
    /// process can be in different groups.
    ///
    /// # Errors
    /// Where a file is not of the kernel's form, or where the online CPUs cannot be read.
    pub fn cpuset(&self, pid: Pid) -> Result<CpuSet, LimitsError> {
        let online = self.online()?;
        let Some(group) = self.group(pid, "cpuset") else { return Ok(online) };
        for level in &group.levels {
            for file in group.cpuset_files() {
                let path = level.join(file);
                let Ok(text) = read_all(&path) else { continue };
                let cpus = list(&text)
                    .ok_or_else(|| LimitsError::form(&path, &text, "a list of CPUs such as 0-3,8"))?
                    .and(&online);
                if !cpus.is_empty() {
                    return Ok(cpus);
                }
            }
        }
        Ok(online)
    }

    /// The CPU quota of a process, and how often it was held back by it.
    ///
    /// # Errors
    /// Where a file is not of the kernel's form.
    pub fn quota(&self, pid: Pid) -> Result<Quota, LimitsError> {
        let mut quota = Quota::default();
        let Some(group) = self.group(pid, "cpu") else { return Ok(quota) };
        for level in &group.levels {
            let Some(cpus) = read_quota(&group, level)? else { continue };
            quota.cpus = Some(quota.cpus.map_or(cpus, |least: f64| least.min(cpus)));
            if let Ok(text) = read_all(&level.join("cpu.stat")) {
                let t = parse_cpu_stat(&text);
                quota.throttling.times = quota.throttling.times.saturating_add(t.times);
                quota.throttling.held += t.held;
            }
        }
        Ok(quota)
    }

    /// How many CPUs a process may use all of the time, of these: no more than its quota. What cannot be read is none.
    #[must_use]
    pub fn whole_cpus(&self, pid: Pid, of: &CpuSet) -> f64 {
        let quota = self.quota(pid).ok().and_then(|q| q.cpus);
        quota.unwrap_or(f64::INFINITY).min(of.len() as f64)
    }

    /// Where the quota of a process comes from: the group of which it is least. None where nothing limits.
    #[must_use]
    pub fn quota_source(&self, pid: Pid) -> Option<QuotaSource> {
        let group = self.group(pid, "cpu")?;
        let limited = group.levels.iter().filter_map(|level| {
            let cpus = read_quota(&group, level).ok().flatten()?;
            Some((cpus, level))
        });
        let (_, level) = limited.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(QuotaSource { file: level.join(group.quota_files()[0]), v2: group.v2 })
    }

    /// The NUMA nodes with their CPUs; none where they cannot be read.
    #[must_use]
    pub fn numbered_nodes(&self) -> Vec<(u32, CpuSet)> {
        numbered(&self.path("sys/devices/system/node"), "node")
            .into_iter()
            .filter_map(|(n, dir)| Some((n, list(&read_all(&dir.join("cpulist")).ok()?)?)))
            .collect()
    }

    /// Bytes of memory that the process's groups may still use: the least of all levels. What they
    /// have in caches of files counts as used. None where no limit can be seen.
    #[must_use]
    pub fn memory_left(&self, pid: Pid) -> Option<u64> {
        let group = self.group(pid, "memory")?;
        let (limit, used) = if group.v2 {
            ("memory.max", "memory.current")
        } else {
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
        };
        let value = |level: &Path, file| parse_memory(&read_all(&level.join(file)).ok()?)?;
        let left = |level: &PathBuf| {
            Some(value(level, limit)?.saturating_sub(value(level, used).unwrap_or(0)))
        };
        group.levels.iter().filter_map(left).min()
    }

    /// The directory of a process's group in the hierarchy of a controller, and whether that is of
    /// version 2. With the id of a thread, of that.
    #[must_use]
    pub fn own_group(&self, pid: Pid, controller: &str) -> Option<(PathBuf, bool)> {
        let group = self.group(pid, controller)?;
        Some((group.levels.into_iter().next().filter(|d| d.is_dir())?, group.v2))
    }

    /// Whether a process's group for a controller is the topmost of its hierarchy. None where that
    /// is unknown.
    #[must_use]
    pub fn topmost(&self, pid: Pid, controller: &str) -> Option<bool> {
        let lines = parse_cgroup(&read_all(&self.path(format!("proc/{pid}/cgroup"))).ok()?);
        let v1 = lines.iter().find(|l| l.controllers.iter().any(|c| c == controller));
        let line = v1.or_else(|| lines.iter().find(|l| l.controllers.is_empty()))?;
        Some(line.path == Path::new("/"))
    }

    /// The group of a process in the hierarchy of a controller. None where there is no such
    /// hierarchy, or where it cannot be seen from here.
    fn group(&self, pid: Pid, controller: &str) -> Option<Group> {
        let lines = parse_cgroup(&read_all(&self.path(format!("proc/{pid}/cgroup"))).ok()?);
        let mounts = parse_mountinfo(&read_all(&self.path("proc/self/mountinfo")).ok()?);
        let v1 = lines.iter().find(|l| l.controllers.iter().any(|c| c == controller));
        let line = v1.or_else(|| lines.iter().find(|l| l.controllers.is_empty()))?;
        let v2 = v1.is_none();
        let mut places: Vec<(&CgroupMount, PathBuf)> = mounts
            .iter()
            .filter(|m| if v2 { m.v1_options.is_none() } else { m.has_v1(controller) })
            .filter_map(|m| Some((m, m.relative(&line.path)?)))
            .collect();
        // The mount that shows most of the groups above comes first; one whose directory is hidden
        // under another mount is passed over.
        places.sort_by_key(|(m, _)| m.root.components().count());
        let levels = |(mount, below): &(&CgroupMount, PathBuf)| -> Vec<PathBuf> {
            let point = self.path(&mount.point);
            below.ancestors().map(|b| point.join(b)).collect()
        };
        let found = places.iter().find(|p| levels(p).first().is_some_and(|d| d.is_dir()));
        // A group that has just been removed: what is above it still holds.
        found.or(places.first()).map(|p| Group { v2, levels: levels(p) })
    }
}

/// The quota of one level in CPUs. None where there is none.
fn read_quota(group: &Group, level: &Path) -> Result<Option<f64>, LimitsError> {
    let mut texts = Vec::new();
    for file in group.quota_files() {
        // The topmost group of version 2 has no such file.
        let Ok(text) = read_all(&level.join(file)) else { return Ok(None) };
        texts.push(text);
    }
    let (value, needed) = match texts.as_slice() {
        [quota, period] => (parse_cfs_quota(quota, period), "a quota and a period in microseconds"),
        [max] => (parse_cpu_max(max), "'max' or a quota, and a period, in microseconds"),
        _ => return Ok(None),
    };
    value.ok_or_else(|| {
        LimitsError::form(&level.join(group.quota_files()[0]), &texts.concat(), needed)
    })
}

/// Subdirectories whose names are a prefix and a number, in the order of the numbers.
fn numbered(dir: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|e| {
            let e = e.ok()?;
            let number = e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, e.path()))
        })
        .collect();
    found.sort();
    found
}
