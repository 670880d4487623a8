//! Less cache or memory bandwidth for a thread: the file system resctrl.
//!
//! Invariant: as for control groups ([`super::groups`]): the directory is in the journal before the first
//! group is made, and removing groups of ours gives their threads to the topmost one. Only threads that
//! are there are taken: groups that others have made are left alone.
//!
//! There are few groups (`num_closids`, often 16), so threads of the same weight share one. A group
//! gets the lowest ways of those that the topmost one has, or so many percent of the bandwidth: it is lowered, and what the
//! topmost group has is the most.
//!
//! What this acts upon is described in the kernel's Documentation/arch/x86/resctrl.rst.

use super::Missing;
use super::groups::{Kind, Parent};
use super::weights::{Bounds, ShareError, ShareMechanism, Steps, Target};
use crate::files::Files;
use crate::journal::{Journal, Process};
use crate::real::Real;
use crate::share_undo::groups;
use evenly_model::{Pid, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where it is mounted.
const MOUNT: &str = "sys/fs/resctrl";

/// A resource that resctrl divides among groups of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Ways of the last cache.
    Cache,
    /// Memory bandwidth, in percent or, on AMD, in eighths of a GB/s.
    Bandwidth,
}

impl Resource {
    /// The name of the mechanism.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Bandwidth => "memory-bandwidth",
        }
    }

    /// The word with which its line of a `schemata` begins.
    fn key(self) -> &'static str {
        match self {
            Self::Cache => "L3",
            Self::Bandwidth => "MB",
        }
    }
}

/// The line of a `schemata` for a resource: its domains, each with a value as it stands there.
#[must_use]
pub fn parse_schemata(text: &str, resource: Resource) -> Option<Vec<(u32, u64)>> {
    let line =
        text.lines().find_map(|l| l.trim().strip_prefix(resource.key())?.strip_prefix(':'))?;
    line.split(';')
        .map(|domain| {
            let (id, value) = domain.split_once('=')?;
            let value = value.trim();
            let value = match resource {
                Resource::Cache => u64::from_str_radix(value, 16).ok()?,
                Resource::Bandwidth => value.parse().ok()?,
            };
            Some((id.trim().parse().ok()?, value))
        })
        .collect()
}

/// The group in `/proc/<pid>/cpu_resctrl_groups`, relative to the mount point.
#[must_use]
pub fn parse_group(text: &str) -> Option<&str> {
    text.lines().find_map(|l| l.strip_prefix("res:")).map(|g| g.trim_start_matches('/'))
}

/// What the topmost group has of a domain: so many ways from this one on, or so many percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: u32,
    size: u32,
}

impl Part {
    /// Ways of a group must be beside each other, and those that the topmost one lacks belong to other groups: the
    /// longest run of those that it has.
    fn of(value: u64, resource: Resource) -> Self {
        if resource == Resource::Bandwidth {
            return Self { first: 0, size: u32::try_from(value).unwrap_or(100) };
        }
        let (mut longest, mut first) = (Self { first: 0, size: 0 }, 0);
        while first < u64::BITS {
            let rest = value >> first;
            let size = rest.trailing_ones();
            if size > longest.size {
                longest = Self { first, size };
            }
            first += size.max(1);
        }
        longest
    }
}

/// What a machine can divide.
#[derive(Debug, Clone, PartialEq)]
struct Division {
    /// Domains (caches, or memory controllers), with what the topmost group has of each.
    domains: Vec<(u32, Part)>,
    least: f64,
    most: f64,
    step: f64,
    groups: usize,
}

impl Division {
    fn read(files: &dyn Files, mount: &Path, resource: Resource) -> Option<Self> {
        let info =
            |file: &str| files.read(&mount.join("info").join(resource.key()).join(file)).ok();
        let number = |file: &str| info(file)?.trim().parse::<f64>().ok();
        let domains = parse_schemata(&files.read(&mount.join("schemata")).ok()?, resource)?;
        let domains: Vec<(u32, Part)> =
            domains.into_iter().map(|(id, value)| (id, Part::of(value, resource))).collect();
        // The least of what they have; a domain with more is divided in the same ratio.
        let most = f64::from(domains.iter().map(|(_, part)| part.size).min()?);
        let (least, step) = match resource {
            Resource::Cache => (number("min_cbm_bits")?, 1.0),
            Resource::Bandwidth => (number("min_bandwidth")?, number("bandwidth_gran")?.max(1.0)),
        };
        let groups = number("num_closids")? as usize;
        (most >= least && least > 0.0).then_some(Self { domains, least, most, step, groups })
    }

    /// The line that gives a group so much.
    fn schemata(&self, resource: Resource, units: u64) -> String {
        let value = |(id, part): &(u32, Part)| match resource {
            Resource::Cache => {
                let ways = (units as f64 * f64::from(part.size) / self.most).round() as u32;
                let ways = ways.clamp(1, part.size.clamp(1, 63));
                format!("{id}={:x}", ((1u64 << ways) - 1) << part.first)
            }
            Resource::Bandwidth => format!("{id}={units}"),
        };
        let domains: Vec<String> = self.domains.iter().map(value).collect();
        format!("{}:{}\n", resource.key(), domains.join(";"))
    }
}

#[derive(Debug)]
struct Own {
    process: Pid,
    units: u64,
}

/// Shares of the cache or of memory bandwidth.
#[derive(Debug)]
pub struct Resctrl {
    resource: Resource,
    journal: Arc<Journal>,
    real: Real,
    division: Division,
    prefix: String,
    in_journal: bool,
    made: u64,
    /// Groups that were made, by what they give.
    groups: BTreeMap<u64, PathBuf>,
    own: HashMap<ThreadId, Own>,
}

impl Resctrl {
    /// A mechanism for the machine with this file system.
    ///
    /// # Errors
    /// What is missing.
    pub fn new(resource: Resource, journal: Arc<Journal>, real: Real) -> Result<Self, Missing> {
        let division = offered(&real, resource)?;
        Ok(Self {
            resource,
            journal,
            real,
            division,
            prefix: groups::prefix(Process::own()),
            in_journal: false,
            made: 0,
            groups: BTreeMap::new(),
            own: HashMap::new(),
        })
    }

    fn mount(&self) -> PathBuf {
        self.real.root().join(MOUNT)
    }

    fn start(&self, file: &str) -> Option<u64> {
        let text = self.real.files().read(&self.real.root().join(file)).ok()?;
        crate::proc::Stat::parse(text.as_bytes()).map(|s| s.start)
    }

    fn is_alive(&self, id: ThreadId) -> bool {
        self.start(&format!("proc/{0}/task/{0}/stat", id.tid)) == Some(id.start)
    }

    fn threads(&self, target: Target) -> Result<Vec<(Pid, ThreadId)>, ShareError> {
        let threads = match target {
            Target::Thread { process, id } if self.is_alive(id) => vec![(process, id)],
            Target::Thread { .. } => Vec::new(),
            Target::Process { process, start } => {
                if self.start(&format!("proc/{process}/stat")) != Some(start) {
                    return Err(ShareError::Gone);
                }
                let task = self.real.root().join(format!("proc/{process}/task"));
                let tid =
                    |p: PathBuf| Some(evenly_model::Tid(p.file_name()?.to_str()?.parse().ok()?));
                let tids =
                    self.real.files().dirs(&task).unwrap_or_default().into_iter().filter_map(tid);
                let id = |tid| {
                    let start = self.start(&format!("proc/{tid}/task/{tid}/stat"))?;
                    Some((process, ThreadId { tid, start }))
                };
                tids.filter_map(id).collect()
            }
            Target::Cpu(_) => {
                let target = target.to_string();
                return Err(ShareError::Unfit { mechanism: self.name(), target });
            }
        };
        if threads.is_empty() { Err(ShareError::Gone) } else { Ok(threads) }
    }

    /// The group for so much; None for the topmost one.
    fn group(&mut self, units: u64) -> Result<Option<PathBuf>, ShareError> {
        if units as f64 >= self.division.most {
            return Ok(None);
        }
        if let Some(group) = self.groups.get(&units) {
            return Ok(Some(group.clone()));
        }
        let mount = self.mount();
        let there = self.real.files().dirs(&mount).unwrap_or_default();
        // The directories `info`, `mon_data` and `mon_groups` are no groups; the topmost one is.
        let taken =
            there.iter().filter(|d| self.real.files().read(&d.join("schemata")).is_ok()).count()
                + 1;
        if taken >= self.division.groups {
            return Err(ShareError::Refused(format!(
                "all {} groups of {} are in use",
                self.division.groups,
                mount.display()
            )));
        }
        if !self.in_journal {
            let path = Path::new("/").join(MOUNT);
            let parent = Parent { kind: Kind::Resctrl, path, switched_on: false };
            let full = |e: crate::journal::JournalError| ShareError::Refused(e.to_string());
            self.journal.about_to_make_groups(&parent).map_err(full)?;
            self.in_journal = true;
        }
        self.made += 1;
        let group = mount.join(format!("{}{}{}", self.prefix, self.resource.key(), self.made));
        self.real.files().make_dir(&group).map_err(|e| refused(&group, &e))?;
        let schemata = group.join("schemata");
        let line = self.division.schemata(self.resource, units);
        if let Err(e) = self.real.files().write(&schemata, &line) {
            let _ = self.real.files().remove_dir(&group);
            return Err(refused(&schemata, &e));
        }
        self.groups.insert(units, group.clone());
        Ok(Some(group))
    }

    fn move_to(&mut self, process: Pid, id: ThreadId, units: u64) -> Result<(), ShareError> {
        let path = self.real.root().join(format!("proc/{0}/task/{0}/cpu_resctrl_groups", id.tid));
        let text = self.real.files().read(&path).map_err(|e| refused(&path, &e))?;
        let now = parse_group(&text).unwrap_or_default();
        if !now.is_empty() && !now.starts_with(&self.prefix) {
            let found = now.to_owned();
            return Err(ShareError::Foreign { what: "resctrl group", found });
        }
        // Put back by another program: that is what it was found with, and may be changed again.
        let group = self.group(units)?;
        let to = group.clone().unwrap_or_else(|| self.mount()).join(Kind::Resctrl.threads_file());
        let name = group.as_deref().and_then(Path::file_name).and_then(|n| n.to_str());
        if name.unwrap_or_default() != now {
            // Ids are used again.
            if !self.is_alive(id) {
                return Err(ShareError::Gone);
            }
            self.real.files().write(&to, &id.tid.to_string()).map_err(|e| refused(&to, &e))?;
        }
        if group.is_some() {
            self.own.insert(id, Own { process, units });
        } else {
            self.own.remove(&id);
        }
        self.remove_unused();
        Ok(())
    }

    /// Removes groups in which no thread is that was put there.
    fn remove_unused(&mut self) {
        let mount = self.mount();
        let unused: Vec<u64> = self
            .groups
            .keys()
            .copied()
            .filter(|units| !self.own.values().any(|o| o.units == *units))
            .collect();
        for units in unused {
            if let Some(group) = self.groups.remove(&units)
                && groups::remove(self.real.files(), Kind::Resctrl, &mount, &group).is_err()
            {
                // It is tried again the next time, and by the guardian.
                self.groups.insert(units, group);
            }
        }
    }
}

fn refused(path: &Path, e: &io::Error) -> ShareError {
    match e.raw_os_error() {
        Some(libc::ESRCH) => ShareError::Gone,
        _ => ShareError::Refused(format!("{}: {e}", path.display())),
    }
}

impl ShareMechanism for Resctrl {
    fn name(&self) -> &'static str {
        self.resource.name()
    }

    fn steps(&self) -> Steps {
        let d = &self.division;
        let levels = ((d.most - d.least) / d.step) as u32;
        let mut table: Vec<f64> = (0..=levels).map(|i| d.least + f64::from(i) * d.step).collect();
        table.retain(|l| *l < d.most);
        table.push(d.most);
        Steps::Table(table)
    }

    fn bounds(&mut self, target: Target) -> Result<Bounds, ShareError> {
        self.threads(target)?;
        let d = &self.division;
        Ok(Bounds { original: d.most, least: d.least, most: d.most })
    }

    fn give(&mut self, target: Target, units: f64) -> Result<f64, ShareError> {
        let mut any = false;
        for (process, id) in self.threads(target)? {
            match self.move_to(process, id, units as u64) {
                Ok(()) => any = true,
                Err(ShareError::Gone) => {}
                Err(e) => return Err(e),
            }
        }
        if any { Ok(units) } else { Err(ShareError::Gone) }
    }

    fn restore(&mut self, target: Target) -> Result<(), ShareError> {
        let ids: Vec<(Pid, ThreadId)> = match target {
            Target::Thread { process, id } => vec![(process, id)],
            Target::Process { process, .. } => {
                let of_it = self.own.iter().filter(|(_, o)| o.process == process);
                of_it.map(|(id, o)| (o.process, *id)).collect()
            }
            Target::Cpu(_) => Vec::new(),
        };
        let mut result = Ok(());
        for (process, id) in
            ids.into_iter().filter(|(_, id)| self.own.contains_key(id)).collect::<Vec<_>>()
        {
            match self.move_to(process, id, self.division.most as u64) {
                Ok(()) => {}
                // It is somewhere else by now, or nowhere.
                Err(ShareError::Foreign { .. } | ShareError::Gone) => {
                    self.own.remove(&id);
                }
                Err(_) if !self.is_alive(id) => {
                    self.own.remove(&id);
                }
                Err(e) => result = result.and(Err(e)),
            }
        }
        self.remove_unused();
        result
    }
}

/// Whether a resource can be divided, and how.
///
/// # Errors
/// What is missing.
fn offered(real: &Real, resource: Resource) -> Result<Division, Missing> {
    let files = real.files();
    let mount = real.root().join(MOUNT);
    if files.read(&mount.join("schemata")).is_err() {
        let known = files.read(&real.root().join("proc/filesystems")).unwrap_or_default();
        return Err(if known.split_whitespace().any(|f| f == "resctrl") {
            Missing::of(
                "resctrl is not mounted",
                Some(String::from("sudo mount -t resctrl resctrl /sys/fs/resctrl")),
            )
        } else {
            Missing::of("this kernel has no resctrl, or found nothing in the CPUs to divide", None)
        });
    }
    if resource == Resource::Bandwidth
        && let Some(value) = absolute_bandwidth(files, &mount)
    {
        return Err(Missing::of(
            &format!(
                "{} has MB in absolute numbers ({value} for all there is), and what the memory can do in all it does \
                 not say, so that no part of it can be given",
                mount.join("schemata").display()
            ),
            None,
        ));
    }
    let division = Division::read(files, &mount, resource).ok_or_else(|| {
        Missing::of(
            &format!("{} names no {} that can be divided", mount.display(), resource.key()),
            None,
        )
    })?;
    files.may_write(&mount.join(Kind::Resctrl.threads_file())).map_err(|e| {
        Missing::of(
            &format!("{} may not be written: {}", mount.display(), super::words(e)),
            Some(String::from("run as root")),
        )
    })?;
    Ok(division)
}

/// What the topmost group has of memory bandwidth where that is no percentage: on AMD eighths of a GB/s, of which 2048
/// is no limit at all, and MB/s where resctrl is mounted with `mba_MBps`.
fn absolute_bandwidth(files: &dyn Files, mount: &Path) -> Option<u64> {
    let domains = parse_schemata(&files.read(&mount.join("schemata")).ok()?, Resource::Bandwidth)?;
    domains.into_iter().map(|(_, value)| value).max().filter(|&value| value > 100)
}

/// The least that can be given, relative to what is there; or what is missing.
pub(crate) fn range(real: &Real, resource: Resource) -> Result<f64, Missing> {
    offered(real, resource).map(|d| d.least / d.most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalView, StateDir};
    use crate::share::fake_resctrl::Kernel;
    use evenly_model::Tid;
    use std::fs;

    /// In the form of the kernel's documentation, written for these tests; trees of machines are in
    /// [`captured_trees_are_divided_as_they_are`].
    const SCHEMATA: &str = "    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n";

    fn scene() -> (tempfile::TempDir, Kernel, Arc<Journal>) {
        let tmp = tempfile::tempdir().unwrap();
        let kernel = Kernel(tmp.path().join("root"));
        for (file, text) in [
            ("info/L3/cbm_mask", "fffff\n"),
            ("info/L3/min_cbm_bits", "2\n"),
            ("info/L3/num_closids", "4\n"),
            ("info/MB/min_bandwidth", "10\n"),
            ("info/MB/bandwidth_gran", "10\n"),
            ("info/MB/num_closids", "8\n"),
            ("schemata", SCHEMATA),
            ("tasks", ""),
        ] {
            let path = kernel.mount().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (tid, pid) in [(70, 70), (71, 70), (80, 80)] {
            kernel.thread(tid, pid);
        }
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        (tmp, kernel, Arc::new(Journal::create(&dir, None).unwrap()))
    }

    fn mechanism(resource: Resource, kernel: &Kernel, journal: &Arc<Journal>) -> Resctrl {
        let real = Real::at(&kernel.0).with_files(Arc::new(kernel.clone()));
        Resctrl::new(resource, journal.clone(), real).unwrap()
    }

    fn process(pid: i32) -> Target {
        Target::Process { process: Pid(pid), start: 7 }
    }

    #[test]
    fn who_has_less_to_do_gets_fewer_ways_and_gives_them_back() {
        let (_tmp, kernel, journal) = scene();
        let mut cache = mechanism(Resource::Cache, &kernel, &journal);
        let given = cache.set_all(&[(process(70), 2.0), (process(80), 1.0)]);
        assert_eq!(given, [Ok(1.0), Ok(0.5)]);
        let group = kernel.group_of(80);
        assert_eq!(fs::read_to_string(group.join("schemata")).unwrap(), "L3:0=3ff;1=3ff\n");
        assert_eq!((kernel.group_of(70), kernel.group_of(71)), (kernel.mount(), kernel.mount()));
        // A thread that it has created since is in its group, and goes back with it.
        kernel.thread(81, 80);
        kernel.write(&group.join("tasks"), "81").unwrap();
        cache.restore(process(80)).unwrap();
        assert_eq!((kernel.group_of(80), kernel.group_of(81)), (kernel.mount(), kernel.mount()));
        assert!(!group.exists());
    }

    #[test]
    fn the_journal_alone_removes_the_groups() {
        let (_tmp, kernel, journal) = scene();
        let mut bandwidth = mechanism(Resource::Bandwidth, &kernel, &journal);
        let given = bandwidth.set_all(&[(process(70), 0.5), (process(80), 0.32)]);
        assert!(given.iter().all(Result::is_ok), "{given:?}");
        let texts: Vec<String> = [70, 80]
            .map(|tid| fs::read_to_string(kernel.group_of(tid).join("schemata")).unwrap())
            .into();
        assert_eq!(texts, ["MB:0=50;1=50\n", "MB:0=30;1=30\n"]);
        let view = JournalView::open(&journal.path()).unwrap();
        let [parent] = &view.header.parents[..] else { panic!("{:?}", view.header) };
        assert_eq!(parent.path, Path::new("/sys/fs/resctrl"));
        let done = groups::remove_all(&kernel, &kernel.0, parent, view.header.writer);
        assert_eq!((done.removed, done.failed.len()), (2, 0));
        assert!([70, 71, 80].iter().all(|tid| kernel.group_of(*tid) == kernel.mount()));
        assert_eq!(kernel.groups().len(), 1);
    }

    #[test]
    fn groups_of_others_are_left_and_there_are_only_so_many() {
        let (_tmp, kernel, journal) = scene();
        let mut cache = mechanism(Resource::Cache, &kernel, &journal);
        let other = kernel.mount().join("batch");
        kernel.make_dir(&other).unwrap();
        kernel.write(&other.join("tasks"), "70").unwrap();
        let refused = cache.set(process(70), 0.5).unwrap_err();
        let found = String::from("batch");
        assert_eq!(refused, ShareError::Foreign { what: "resctrl group", found });
        // Four: the topmost, that one, and two of ours.
        for (tid, weight) in [(71, 0.5), (80, 0.4)] {
            let id = ThreadId { tid: Tid(tid), start: 7 };
            cache.set(Target::Thread { process: Pid(tid), id }, weight).unwrap();
        }
        kernel.thread(90, 90);
        let refused = cache.set(process(90), 0.2).unwrap_err().to_string();
        assert!(refused.contains("all 4 groups") && refused.contains("in use"), "{refused}");
        for pid in [71, 80] {
            let id = ThreadId { tid: Tid(pid), start: 7 };
            cache.restore(Target::Thread { process: Pid(pid), id }).unwrap();
        }
        assert_eq!(kernel.groups(), [other, kernel.mount()]);
    }

    #[test]
    fn what_is_missing_is_reported() {
        let tmp = tempfile::tempdir().unwrap();
        let real = Real::at(tmp.path());
        assert!(range(&real, Resource::Cache).unwrap_err().remedy.is_none());
        fs::create_dir_all(tmp.path().join("proc")).unwrap();
        fs::write(tmp.path().join("proc/filesystems"), "nodev\tsysfs\nnodev\tresctrl\n").unwrap();
        let missing = range(&real, Resource::Bandwidth).unwrap_err();
        assert!(missing.remedy.unwrap().contains("mount -t resctrl"));
        let (_tmp, kernel, _) = scene();
        fs::write(kernel.mount().join("schemata"), "MB:0=100\n").unwrap();
        assert!(range(&Real::at(&kernel.0), Resource::Bandwidth).is_ok());
        let missing = range(&Real::at(&kernel.0), Resource::Cache).unwrap_err();
        assert!(missing.why.contains("no L3"), "{missing:?}");
        // As AMD's processors have it, and as `mba_MBps`.
        for all in ["2048", "4294967295"] {
            fs::write(kernel.mount().join("schemata"), format!("MB:0={all};1={all}\n")).unwrap();
            let missing = range(&Real::at(&kernel.0), Resource::Bandwidth).unwrap_err();
            assert!(missing.why.contains(&format!("absolute numbers ({all} ")), "{missing:?}");
        }
    }

    /// What real topmost groups have: not always all ways, nor from the first one on.
    #[test]
    fn captured_trees_are_divided_as_they_are() {
        for (name, least, half) in [
            ("resctrl-skx.txt", Some(0.25), "L3:0=30\n"),
            ("resctrl-two.txt", Some(0.25), "L3:0=30;1=3f\n"),
            ("resctrl-moved.txt", Some(2.0 / 9.0), "L3:0=1f00;1=1f00\n"),
            // Code and data apart.
            ("resctrl-cdp.txt", None, ""),
        ] {
            let tree = super::super::tests::captured(name);
            let kernel = Kernel(tree.path().to_owned());
            fs::write(kernel.mount().join("tasks"), "").unwrap();
            let real = Real::at(tree.path());
            // The machines could not divide bandwidth, whatever `info` says.
            let missing = range(&real, Resource::Bandwidth).unwrap_err();
            assert!(missing.why.contains("no MB that can be divided"), "{missing:?}");
            let Some(least) = least else {
                let missing = range(&real, Resource::Cache).unwrap_err();
                assert!(missing.why.contains("no L3 that can be divided"), "{missing:?}");
                continue;
            };
            assert!((range(&real, Resource::Cache).unwrap() - least).abs() < 1e-9, "{name}");
            let state = tempfile::tempdir().unwrap();
            let dir = StateDir::at(state.path()).unwrap();
            let journal = Arc::new(Journal::create(&dir, None).unwrap());
            // Groups of others have their threads in a file that was not kept.
            for group in crate::files::System.dirs(&kernel.mount()).unwrap() {
                if group.join("schemata").exists() {
                    fs::write(group.join("tasks"), "").unwrap();
                }
            }
            kernel.thread(70, 70);
            let mut cache = mechanism(Resource::Cache, &kernel, &journal);
            cache.set(process(70), 0.5).unwrap();
            let group = kernel.group_of(70);
            assert_eq!(fs::read_to_string(group.join("schemata")).unwrap(), half, "{name}");
            cache.restore(process(70)).unwrap();
            assert!(kernel.group_of(70) == kernel.mount() && !group.exists());
        }
    }

    /// No such tree was found anywhere: this one is written by hand, after the kernel's documentation.
    #[test]
    fn bandwidth_is_divided_where_the_tree_says_how() {
        let tree = super::super::tests::captured("resctrl-mb.txt");
        let kernel = Kernel(tree.path().to_owned());
        fs::write(kernel.mount().join("tasks"), "").unwrap();
        kernel.thread(70, 70);
        let least = |resource| range(&Real::at(tree.path()), resource).unwrap();
        assert!((least(Resource::Bandwidth) - 0.1).abs() < 1e-9);
        assert!((least(Resource::Cache) - 1.0 / 11.0).abs() < 1e-9);
        let state = tempfile::tempdir().unwrap();
        let dir = StateDir::at(state.path()).unwrap();
        let journal = Arc::new(Journal::create(&dir, None).unwrap());
        let mut bandwidth = mechanism(Resource::Bandwidth, &kernel, &journal);
        // In steps of the hardware, and no less than its least.
        for (wanted, given, line) in [(0.52, 0.5, "MB:0=50;1=50\n"), (0.01, 0.1, "MB:0=10;1=10\n")]
        {
            assert_eq!(bandwidth.set(process(70), wanted), Ok(given));
            let schemata = kernel.group_of(70).join("schemata");
            assert_eq!(fs::read_to_string(schemata).unwrap(), line);
        }
        bandwidth.restore(process(70)).unwrap();
        assert_eq!(kernel.groups(), [kernel.mount()]);
    }

    #[test]
    fn schemata_are_read_and_damaged_ones_are_none() {
        assert_eq!(
            parse_schemata(SCHEMATA, Resource::Cache),
            Some(vec![(0, 0xfffff), (1, 0xfffff)])
        );
        assert_eq!(parse_schemata(SCHEMATA, Resource::Bandwidth), Some(vec![(0, 100), (1, 100)]));
        for damaged in ["", "L3", "L3:", "L3:0", "L3:0=xyz", "L3:0=ff;", "L3CODE:0=ff", "L3:a=ff"] {
            assert_eq!(parse_schemata(damaged, Resource::Cache), None, "{damaged}");
        }
        assert_eq!(parse_group("res:/p0\nmon:\n"), Some("p0"));
        assert_eq!((parse_group("res:/\nmon:\n"), parse_group("mon:")), (Some(""), None));
    }
}
