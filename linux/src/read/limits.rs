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

use crate::proc::read_all;
use crate::sched;
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Nanos, Pid, Tid};
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Which sets of CPUs are balanced on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// All CPUs together.
    Machine,
    /// The CPUs of one NUMA node.
    Numa,
    /// The CPUs that share their last cache.
    Llc,
}

/// Why something about the machine cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; it is needed for {needed}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What it is needed for, and what helps.
        needed: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else than expected.
    #[error("{} holds '{found}', which is not {needed}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What it holds (the beginning of it).
        found: String,
        /// What was expected.
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

/// How often a group was held back by its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    /// Periods in which the group ran out of quota.
    pub times: u64,
    /// Time that its CPUs were held back, summed over CPUs.
    pub held: Nanos,
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
        format!("echo {} > {}", if self.v2 { "max" } else { "-1" }, self.file.display())
    }
}

/// One line of `/proc/<pid>/cgroup`: the group of a process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLine {
    /// Number of the hierarchy; 0 is version 2.
    pub hierarchy: u32,
    /// Controllers of a version 1 hierarchy (`name=...` is among them); none for version 2.
    pub controllers: Vec<OsString>,
    /// Path of the group, relative to the root of the reader's cgroup namespace.
    pub path: PathBuf,
}

/// Reads `/proc/<pid>/cgroup`. Lines that are not of the form `N:controllers:path` are left out.
#[must_use]
pub fn parse_cgroup(text: &[u8]) -> Vec<CgroupLine> {
    let line = |line: &[u8]| -> Option<CgroupLine> {
        let mut parts = line.splitn(3, |&b| b == b':');
        let hierarchy = ascii(parts.next()?)?;
        let controllers = parts
            .next()?
            .split(|&b| b == b',')
            .filter(|c| !c.is_empty())
            .map(|c| OsString::from_vec(c.to_vec()))
            .collect();
        let path = parts.next().filter(|p| p.starts_with(b"/"))?;
        Some(CgroupLine { hierarchy, controllers, path: PathBuf::from(OsStr::from_bytes(path)) })
    };
    text.split(|&b| b == b'\n').filter_map(line).collect()
}

/// One cgroup mount of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Which directory of the hierarchy is mounted: `/` for all of it; a part of it in containers
    /// that have no cgroup namespace; `/..` and the like where it was mounted outside of the
    /// reader's namespace.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Options of the file system: for version 1 the controllers are among them. None for
    /// version 2.
    pub v1_options: Option<Vec<OsString>>,
}

impl CgroupMount {
    /// Whether this is a version 1 hierarchy with the controller.
    #[must_use]
    pub fn has_v1(&self, controller: &str) -> bool {
        self.v1_options.as_ref().is_some_and(|o| o.iter().any(|o| o == controller))
    }

    /// Where the group's files are, below the mount point. None where this mount shows neither the
    /// group nor a group above it.
    #[must_use]
    pub fn relative(&self, group: &Path) -> Option<PathBuf> {
        let escapes = |p: &Path| p.components().any(|c| c == Component::ParentDir);
        match group.strip_prefix(&self.root) {
            Ok(rest) => (rest.is_relative() && !escapes(rest)).then(|| rest.to_owned()),
            // The mount shows a group above the namespace's root, by a name that cannot be told
            // from in here. It is above every group of the namespace, so its limits hold for all.
            Err(_) => {
                let above = self.root.components().skip(1).all(|c| c == Component::ParentDir);
                (above && escapes(&self.root) && !escapes(group)).then(PathBuf::new)
            }
        }
    }
}

/// Reads the cgroup mounts from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[must_use]
pub fn parse_mountinfo(text: &[u8]) -> Vec<CgroupMount> {
    let line = |line: &[u8]| -> Option<CgroupMount> {
        let mut fields = line.split(|&b| b == b' ');
        // Both are absolute: a relative root would let a group's path leave the mount point.
        let root = unescape(fields.nth(3).filter(|f| f.starts_with(b"/"))?);
        let point = unescape(fields.next().filter(|f| f.starts_with(b"/"))?);
        // Mount options, then optional fields up to a single hyphen.
        fields.next()?;
        fields.find(|f| *f == b"-")?;
        let kind = fields.next()?;
        let v1_options = match kind {
            b"cgroup2" => None,
            b"cgroup" | b"cpuset" => {
                let options = fields.nth(1)?;
                Some(options.split(|&b| b == b',').map(unescape).collect())
            }
            _ => return None,
        };
        Some(CgroupMount { root: root.into(), point: point.into(), v1_options })
    };
    text.split(|&b| b == b'\n').filter_map(line).collect()
}

/// Undoes the escapes of mountinfo: a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal.map(|d| d.iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'))) {
            Some(code @ 0..=255) => {
                out.push(code as u8);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

/// Reads `cpu.max` of version 2 (`max 100000`, `150000 100000`): the quota in CPUs, None for
/// `max`. The outer None says that the text is neither.
#[must_use]
pub fn parse_cpu_max(text: &[u8]) -> Option<Option<f64>> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let quota = words.next()?;
    // The period may be left out when written; when read it is always there.
    let period: u64 = words.next().map_or(Some(100_000), ascii)?;
    if words.next().is_some() {
        return None;
    }
    if quota == b"max" {
        return Some(None);
    }
    ratio(ascii(quota)?, period).map(Some)
}

/// Reads `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1: the quota in CPUs, None for a
/// quota of -1. The outer None says that the texts are not numbers.
#[must_use]
pub fn parse_cfs_quota(quota_us: &[u8], period_us: &[u8]) -> Option<Option<f64>> {
    let quota: i64 = ascii(quota_us.trim_ascii())?;
    let period: u64 = ascii(period_us.trim_ascii())?;
    match u64::try_from(quota) {
        Ok(quota) => ratio(quota, period).map(Some),
        Err(_) => Some(None),
    }
}

fn ratio(quota: u64, period: u64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Reads `memory.max`, `memory.current` (version 2), `memory.limit_in_bytes` or
/// `memory.usage_in_bytes` (version 1): bytes. The inner None stands for no limit.
#[must_use]
pub fn parse_memory(text: &[u8]) -> Option<Option<u64>> {
    match text.trim_ascii() {
        b"max" => Some(None),
        bytes => ascii(bytes).map(Some),
    }
}

/// Reads `cpu.stat`: version 2 has `throttled_usec`, version 1 `throttled_time` in nanoseconds.
/// What is missing counts as zero.
#[must_use]
pub fn parse_cpu_stat(text: &[u8]) -> Throttling {
    let mut t = Throttling::default();
    for line in text.split(|&b| b == b'\n') {
        let mut words = line.split(u8::is_ascii_whitespace);
        let (Some(key), Some(value)) = (words.next(), words.next().and_then(ascii)) else {
            continue;
        };
        match key {
            b"nr_throttled" => t.times = value,
            b"throttled_usec" => t.held = Nanos(u64::saturating_mul(value, 1000)),
            b"throttled_time" => t.held = Nanos(value),
            _ => {}
        }
    }
    t
}

/// One cache of a CPU: the files `level`, `type` and `shared_cpu_list` of
/// `/sys/devices/system/cpu/cpu*/cache/index*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1 is next to the CPU.
    pub level: u32,
    /// Whether data is in it (not instructions only).
    pub data: bool,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

impl Cache {
    /// Reads the three files. None where one is not of the kernel's form.
    #[must_use]
    pub fn parse(level: &[u8], kind: &[u8], shared_cpu_list: &[u8]) -> Option<Self> {
        let data = match kind.trim_ascii() {
            b"Data" | b"Unified" => true,
            b"Instruction" => false,
            _ => return None,
        };
        Some(Self { level: ascii(level.trim_ascii())?, data, cpus: list(shared_cpu_list)? })
    }
}

/// The CPUs that share the last cache, the one of the largest level that holds data. None where
/// there is none.
#[must_use]
pub fn last_cache(caches: &[Cache]) -> Option<&CpuSet> {
    caches.iter().filter(|c| c.data && !c.cpus.is_empty()).max_by_key(|c| c.level).map(|c| &c.cpus)
}

/// Divides `within` by groups of CPUs: disjoint, none empty, in the order of their first CPU. CPUs
/// that are in no group form one of their own; a CPU that is in several belongs to the first.
#[must_use]
pub fn partition(groups: impl IntoIterator<Item = CpuSet>, within: &CpuSet) -> Vec<CpuSet> {
    let mut left = within.clone();
    let mut parts = Vec::new();
    for group in groups {
        let part = group.and(&left);
        left = left.minus(&part);
        parts.push(part);
    }
    parts.push(left);
    parts.retain(|p| !p.is_empty());
    parts.sort_by_key(CpuSet::first);
    parts
}

/// Reads the `cpuN` lines of `/proc/stat`: the CPUs that are online.
#[must_use]
pub fn parse_stat_cpus(text: &[u8]) -> CpuSet {
    text.split(|&b| b == b'\n')
        .filter_map(|l| l.strip_prefix(b"cpu")?.split(|&b| b == b' ').next())
        .filter_map(list)
        .filter(|s| s.len() == 1)
        .fold(CpuSet::new(), |all, cpu| all.or(&cpu))
}

fn list(text: &[u8]) -> Option<CpuSet> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn ascii<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
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

    /// The CPUs that may ever be online; those that are where that cannot be told.
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
    /// where the kernel does not tell, as on machines whose CPUs are all alike.
    #[must_use]
    pub fn capacity(&self, cpu: CpuId) -> u32 {
        let path = self.path(format!("sys/devices/system/cpu/cpu{}/cpu_capacity", cpu.0));
        let text = read_all(&path).ok().and_then(|t| String::from_utf8(t).ok());
        let told = text.and_then(|t| t.trim().parse().ok());
        told.filter(|&c| c > 0).unwrap_or(FULL_CAPACITY)
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
    /// Where a file is not of the kernel's form, or where the online CPUs cannot be told.
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
    /// are not told, but the node's directory still has an entry for each. Where a node has several
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
    /// Where a file is not of the kernel's form, or where the online CPUs cannot be told.
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

    /// Whether a process's group for a controller is the topmost of its hierarchy. None where that cannot
    /// be told.
    #[must_use]
    pub fn topmost(&self, pid: Pid, controller: &str) -> Option<bool> {
        let lines = parse_cgroup(&read_all(&self.path(format!("proc/{pid}/cgroup"))).ok()?);
        let v1 = lines.iter().find(|l| l.controllers.iter().any(|c| c == controller));
        let line = v1.or_else(|| lines.iter().find(|l| l.controllers.is_empty()))?;
        Some(line.path == Path::new("/"))
    }

    /// Watches the limits of a process for changes.
    #[must_use]
    pub fn watch(&self, pid: Pid) -> Watch {
        let mut watch = Watch { limits: self.clone(), pid, files: Vec::new(), missing: Vec::new() };
        watch.open();
        watch
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

/// Notices when the limits of a process change: CPUs going on- and offline, its cpuset, its quota,
/// and being moved to another group.
///
/// A check reads a few small files through descriptors that are kept open, and allocates nothing
/// while nothing changes. How often to check is the caller's to decide; [`Watch::INTERVAL`] is
/// enough for people and managers that change limits.
pub struct Watch {
    limits: Limits,
    pid: Pid,
    files: Vec<Watched>,
    /// Files that were not there, but would take precedence if they came.
    missing: Vec<CString>,
}

struct Watched {
    file: File,
    last: Vec<u8>,
}

impl Watched {
    /// Whether the content is still what it was.
    fn is_same(&self) -> bool {
        let mut chunk = [0u8; 512];
        let mut at = 0;
        loop {
            match self.file.read_at(&mut chunk, at as u64) {
                Ok(0) => return at == self.last.len(),
                Ok(n) if self.last.get(at..at + n) == Some(&chunk[..n]) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A removed group or an ended process is a change too.
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("pid", &self.pid).field("files", &self.files.len()).finish()
    }
}

impl Watch {
    /// A sensible time between two checks.
    pub const INTERVAL: Nanos = Nanos::from_millis(250);

    /// Whether anything has changed since the last call, or since the watch was made. What it is
    /// now is to be asked of [`Limits`]. The end of the process is reported as one change.
    pub fn changed(&mut self) -> bool {
        let same = self.files.iter().all(Watched::is_same)
            && !self
                .missing
                .iter()
                .any(|p| rustix::fs::access(p.as_c_str(), rustix::fs::Access::EXISTS).is_ok());
        if !same {
            self.open();
        }
        !same
    }

    fn open(&mut self) {
        self.files.clear();
        self.missing.clear();
        self.add(&self.limits.path("sys/devices/system/cpu/online"));
        self.add(&self.limits.path(format!("proc/{}/cgroup", self.pid)));
        if let Some(group) = self.limits.group(self.pid, "cpuset") {
            // Up to the nearest that is there, as in reading it.
            let files = group.cpuset_files();
            for path in group.levels.iter().flat_map(|l| files.iter().map(move |f| l.join(f))) {
                if self.add(&path) {
                    break;
                }
            }
        }
        if let Some(group) = self.limits.group(self.pid, "cpu") {
            for level in &group.levels {
                for file in group.quota_files() {
                    self.add(&level.join(file));
                }
            }
        }
    }

    /// Watches a file; says whether it is there.
    fn add(&mut self, path: &Path) -> bool {
        let opened = File::open(path).ok().and_then(|file| {
            let last = read_all(path).ok()?;
            Some(Watched { file, last })
        });
        match opened {
            Some(w) => self.files.push(w),
            None => {
                // A path with a zero byte inside cannot come into being.
                self.missing.extend(CString::new(path.as_os_str().as_bytes()));
                return false;
            }
        }
        true
    }
}

/// How finely the scheduler shares a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The tick: a running thread's time is accounted for at least this often.
    pub tick: Nanos,
    /// How long a thread runs, at the least, before another of the same weight takes its place.
    pub slice: Nanos,
}

/// Tick and slice for the calling thread. See [`slice_of`].
#[must_use]
pub fn slice() -> Slice {
    slice_of(Tid(0))
}

/// Tick and slice for a thread: from sched_getattr(2) (kernels from 6.12 on tell it there), else
/// from sched_rr_get_interval(2), else the tick. A thread that is not scheduled fairly has no such
/// slice: then it is the tick, too.
#[must_use]
pub fn slice_of(tid: Tid) -> Slice {
    let tick = tick();
    let slice = fair_slice(tid).filter(|&s| s >= Nanos::from_micros(100)).unwrap_or(tick);
    Slice { tick, slice }
}

fn tick() -> Nanos {
    let r = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let nanos = u64::try_from(r.tv_nsec).unwrap_or(0);
    let seconds = u64::try_from(r.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

fn fair_slice(tid: Tid) -> Option<Nanos> {
    let found = sched::get(tid).ok().filter(|s| s.is_fair() || s.policy == sched::EXT)?;
    if found.slice > Nanos::ZERO {
        return Some(found.slice);
    }
    let mut interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is live.
    let r = unsafe { libc::sched_rr_get_interval(tid.0, &raw mut interval) };
    let nanos = u64::try_from(interval.tv_nsec).ok()?;
    let seconds = u64::try_from(interval.tv_sec).ok()?;
    (r == 0).then(|| Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
}
