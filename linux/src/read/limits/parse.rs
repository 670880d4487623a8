//! The forms of the files that limits are read from.
//!
//! Invariant: pure and total: any bytes give a value or nothing, never a panic.

use evenly_model::{CpuSet, Nanos};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// How often a group was held back by its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    /// Periods in which the group ran out of quota.
    pub times: u64,
    /// Time that its CPUs were held back, summed over CPUs.
    pub held: Nanos,
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
            // The mount shows a group above the namespace's root, by a name that cannot be seen
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

pub(super) fn list(text: &[u8]) -> Option<CpuSet> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn ascii<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
