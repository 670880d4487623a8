//! More or less for a thread by a control group of its own: `cpu.shares` of version 1, `cpu.weight` of
//! version 2.
//!
//! Invariant: a group is only ever made inside the group in which the thread is, so that all limits of
//! that go on holding; the group above is in the journal before (promise P4); and removing ours puts
//! every thread that is found in it, also those that the program has created there, back into the group
//! above.
//!
//! # One group a thread
//! A group's weight is shared by all its threads, and divided among the CPUs on which they run: of a
//! group with four threads on four CPUs each would get a quarter. So each thread gets a group of its
//! own, whose weight stands for the thread's nice value, which counts for nothing in a group alone.
//! Threads that stay in the group above compete with these groups, each with its own weight; where the
//! group above is the topmost and autogroup is on, all of a session's together with one.
//!
//! # Version 2
//! Processes with threads in different groups are only there in *threaded* groups
//! (`cgroup.type`), which are made right inside the program's group; that becomes the root of a
//! threaded subtree as long as one of ours exists, and needs the cpu controller switched on for its
//! children. Where it was off it is switched off again. Without privileges this works in groups that
//! were delegated: whose directory, `cgroup.threads` and `cgroup.subtree_control` may be written.

use super::Missing;
use super::weights::{Bounds, ShareError, ShareMechanism, Steps, Target, weight_of_nice};
use crate::journal::{Journal, PARENT_PATH_LIMIT, Process};
use crate::limits::Limits;
use crate::proc::Proc;
use crate::real::Real;
use crate::share_undo::groups::{empty, prefix, remove, remove_all};
use evenly_model::{Pid, ThreadId};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::journal::{Kind, Parent};

/// More groups than this are a mistake: each costs the kernel memory and time.
const GROUP_LIMIT: usize = 1_024;

/// Whether groups can be made for a process, and where.
///
/// # Errors
/// What is missing.
pub(crate) fn place(limits: &Limits, pid: Pid) -> Result<(Kind, PathBuf), Missing> {
    let (dir, v2) = limits
        .own_group(pid, "cpu")
        .ok_or_else(|| Missing::of("the control group of the program is not mounted here", None))?;
    let kind = if v2 { Kind::Weight } else { Kind::Shares };
    let may = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    let mut needed = vec![dir.clone(), dir.join(kind.threads_file())];
    if v2 {
        let has = |file: &str| {
            let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
            text.split_whitespace().any(|c| c == "cpu")
        };
        if !has("cgroup.controllers") {
            return Err(Missing::of(
                &format!("the cpu controller is not available in {}", dir.display()),
                Some(format!(
                    "echo +cpu > {}/cgroup.subtree_control, as root",
                    dir.parent().unwrap_or(&dir).display()
                )),
            ));
        }
        if !has("cgroup.subtree_control") {
            needed.push(dir.join("cgroup.subtree_control"));
        }
    }
    for path in needed {
        if let Err(e) = may(&path) {
            return Err(Missing::of(
                &format!("{} may not be written: {}", path.display(), super::words(e)),
                Some(String::from(if v2 {
                    "run as root, or in a group that is delegated: systemd-run --user --scope -p Delegate=yes COMMAND"
                } else {
                    "run as root"
                })),
            ));
        }
    }
    if dir.as_os_str().len() > PARENT_PATH_LIMIT {
        return Err(Missing::of(&format!("{} is too long a path", dir.display()), None));
    }
    Ok((kind, dir))
}

#[derive(Debug)]
struct Own {
    process: Pid,
    parent: PathBuf,
    group: PathBuf,
    /// The weight of the thread by its nice value, when it was registered.
    original: f64,
}

/// Shares by control groups.
#[derive(Debug)]
pub struct GroupShares {
    journal: Arc<Journal>,
    proc: Proc,
    limits: Limits,
    kind: Kind,
    prefix: String,
    /// Directories that are in the journal.
    parents: HashMap<PathBuf, Parent>,
    own: HashMap<ThreadId, Own>,
    /// Threads that were moved out of the group that they were given.
    left_alone: HashSet<ThreadId>,
    made: u64,
}

impl GroupShares {
    /// A mechanism for the threads of a program, of which this is the first process.
    ///
    /// # Errors
    /// What is missing.
    pub fn new(journal: Arc<Journal>, program: Pid) -> Result<Self, Missing> {
        Self::at(journal, program, &Real::default())
    }

    /// The same where control groups are those of this file system.
    ///
    /// # Errors
    /// What is missing.
    pub fn at(journal: Arc<Journal>, program: Pid, real: &Real) -> Result<Self, Missing> {
        let limits = Limits::new(real.root());
        let (kind, _) = place(&limits, program)?;
        Ok(Self {
            journal,
            proc: Proc::default(),
            limits,
            kind,
            prefix: prefix(Process::own()),
            parents: HashMap::new(),
            own: HashMap::new(),
            left_alone: HashSet::new(),
            made: 0,
        })
    }

    fn is_alive(&self, id: ThreadId) -> bool {
        self.proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start)
    }

    fn threads(&self, target: Target) -> Result<Vec<(Pid, ThreadId)>, ShareError> {
        let threads = match target {
            Target::Thread { process, id } if self.is_alive(id) => vec![(process, id)],
            Target::Process { process, start } => {
                let same = self.proc.process_stat(process).is_some_and(|s| s.start == start);
                let tids = if same { self.proc.threads(process) } else { Vec::new() };
                let with_start = |tid| {
                    Some((process, ThreadId { tid, start: self.proc.thread_stat(tid)?.start }))
                };
                tids.into_iter().filter_map(with_start).collect()
            }
            Target::Thread { .. } => Vec::new(),
        };
        if threads.is_empty() { Err(ShareError::Gone) } else { Ok(threads) }
    }

    fn original_weight(&self, id: ThreadId) -> Result<f64, ShareError> {
        if let Some(own) = self.own.get(&id) {
            return Ok(own.original);
        }
        let found = crate::sched::get(id.tid).map_err(|_| ShareError::Gone)?;
        if !found.is_fair() || found.policy == crate::sched::IDLE {
            return Err(ShareError::Foreign { what: "scheduling class", found: found.to_string() });
        }
        let (normal, ..) = self.kind.scale();
        Ok(weight_of_nice(i32::from(found.nice)) / weight_of_nice(0) * normal)
    }

    /// Gives a thread a group with this weight.
    fn give_one(&mut self, process: Pid, id: ThreadId, units: f64) -> Result<(), ShareError> {
        let foreign = |found: &Path| ShareError::Foreign {
            what: "control group",
            found: found.display().to_string(),
        };
        let (now, v2) = self.limits.own_group(Pid(id.tid.0), "cpu").ok_or(ShareError::Gone)?;
        if v2 != (self.kind == Kind::Weight) || self.left_alone.contains(&id) {
            return Err(foreign(&now));
        }
        let refused = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| match e.raw_os_error() {
                Some(libc::ESRCH) => ShareError::Gone,
                _ => ShareError::Refused(format!("{}: {e}", path.display())),
            }
        };
        let weight = format!("{units:.0}");
        if let Some(own) = self.own.get(&id) {
            if own.group != now {
                self.left_alone.insert(id);
                return Err(foreign(&now));
            }
            // Threads that this one has created are in its group as well.
            let _ = empty(self.kind, &own.parent, &own.group, Some(id));
            let file = own.group.join(self.kind.weight_file());
            return fs::write(&file, weight).map_err(refused(&file));
        }
        if self.own.len() >= GROUP_LIMIT {
            return Err(ShareError::Refused(format!(
                "there are {GROUP_LIMIT} control groups already; further threads are left as they are"
            )));
        }
        let original = self.original_weight(id)?;
        // It may have been created in a group of ours.
        let ours = |p: &Path| {
            p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&self.prefix))
        };
        let parent = if ours(&now) { now.parent().unwrap_or(&now).to_owned() } else { now.clone() };
        self.record(&parent)?;
        self.made += 1;
        let group = parent.join(format!("{}{}", self.prefix, self.made));
        fs::create_dir(&group).map_err(refused(&group))?;
        let own = Own { process, parent, group, original };
        let filled = self.fill(&own, id, &weight, &refused);
        if filled.is_err() {
            let _ = remove(self.kind, &own.parent, &own.group);
        } else {
            self.own.insert(id, own);
        }
        filled
    }

    fn fill<F: FnOnce(io::Error) -> ShareError>(
        &self,
        own: &Own,
        id: ThreadId,
        weight: &str,
        refused: &impl Fn(&Path) -> F,
    ) -> Result<(), ShareError> {
        let write = |file: PathBuf, text: &str| fs::write(&file, text).map_err(refused(&file));
        if self.kind == Kind::Weight {
            write(own.group.join("cgroup.type"), "threaded")?;
            if self.parents.get(&own.parent).is_some_and(|p| p.switched_on) {
                // Only now that the group above is the root of a threaded subtree may it have both
                // threads and a controller.
                write(own.parent.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        write(own.group.join(self.kind.weight_file()), weight)?;
        // Ids are used again.
        if !self.is_alive(id) {
            return Err(ShareError::Gone);
        }
        write(own.group.join(self.kind.threads_file()), &id.tid.to_string())
    }

    /// Writes a directory into the journal, once.
    fn record(&mut self, parent: &Path) -> Result<(), ShareError> {
        if self.parents.contains_key(parent) {
            return Ok(());
        }
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control"));
        let on = |text: String| text.split_whitespace().any(|c| c == "cpu");
        let switched_on = self.kind == Kind::Weight && !controllers.is_ok_and(on);
        let entry = Parent { kind: self.kind, path: parent.to_owned(), switched_on };
        self.journal.about_to_make_groups(&entry).map_err(|_| {
            ShareError::Refused(format!(
                "the program is in too many control groups: {} is left as it is",
                parent.display()
            ))
        })?;
        self.parents.insert(parent.to_owned(), entry);
        Ok(())
    }

    fn undo(&mut self, id: ThreadId) -> Result<(), ShareError> {
        self.left_alone.remove(&id);
        let Some(own) = self.own.get(&id) else { return Ok(()) };
        remove(self.kind, &own.parent, &own.group).map_err(|e| {
            ShareError::Refused(format!("{}: cannot remove it: {e}", own.group.display()))
        })?;
        let parent = self.own.remove(&id).map(|own| own.parent);
        if let Some(parent) = parent
            && !self.own.values().any(|o| o.parent == parent)
            && let Some(entry) = self.parents.get(&parent)
        {
            // Nothing is left in it: this switches its controller off again.
            remove_all(entry, Process::own());
        }
        Ok(())
    }
}

impl ShareMechanism for GroupShares {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Weight => "cpu.weight",
            _ => "cpu.shares",
        }
    }

    fn steps(&self) -> Steps {
        let (_, least, most) = self.kind.scale();
        Steps::Whole(least, most)
    }

    fn bounds(&mut self, target: Target) -> Result<Bounds, ShareError> {
        let (_, least, most) = self.kind.scale();
        // Of a process the first thread that has a weight.
        let mut last = ShareError::Gone;
        for (_, id) in self.threads(target)? {
            match self.original_weight(id) {
                Ok(original) => return Ok(Bounds { original, least, most }),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn give(&mut self, target: Target, units: f64) -> Result<f64, ShareError> {
        let bounds = self.bounds(target)?;
        let mut any = false;
        for (process, id) in self.threads(target)? {
            let own = match self.original_weight(id) {
                Ok(original) => units / bounds.original * original,
                Err(_) => continue,
            };
            match self.give_one(process, id, own.round().clamp(bounds.least, bounds.most)) {
                Ok(()) => any = true,
                Err(ShareError::Gone) => {}
                Err(ShareError::Foreign { .. }) if any => {}
                Err(e) => return Err(e),
            }
        }
        if any { Ok(units) } else { Err(ShareError::Gone) }
    }

    fn restore(&mut self, target: Target) -> Result<(), ShareError> {
        let ids: Vec<ThreadId> = match target {
            Target::Thread { id, .. } => vec![id],
            Target::Process { process, .. } => {
                let of_it = self.own.iter().filter(|(_, o)| o.process == process);
                of_it.map(|(id, _)| *id).collect()
            }
        };
        let mut result = Ok(());
        for id in ids {
            // All of them, also behind one that failed.
            result = result.and(self.undo(id));
        }
        result
    }
}
