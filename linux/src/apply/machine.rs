//! Linux as the [`Machine`](evenly_engine::Machine) of the balancing cycle.
//!
//! One instance serves one domain, in one thread. What all domains of a program must agree on
//! (which masks evenly has set, and what the threads had before) is in [`Masks`], which they share.
//!
//! Invariants:
//! - A mask is set only inside the one that the thread had when it was met (P1), and only after it
//!   is in the journal (P4).
//! - Before a mask is changed it is compared with the one that we left. Where it differs, and
//!   neither the cpuset nor the guardian explains it, the program has set it: its wish wins, and
//!   the thread is not touched again.
//! - Before a mask is changed the thread is looked at through a descriptor that was opened on it, so
//!   that a thread which has the same id by now is not taken for it.
//! - In the steady state a reading is one `pread`, or with BPF none, and allocates nothing.
//!
//! # Whose mask is it?
//! A thread that could use its whole cpuset when it was met is taken to want every CPU that there
//! is: it follows the cpuset when that grows, as it would have without evenly. A cpuset or a CPU
//! that goes offline trims masks, and the kernel gives them back when it grows again; so what we
//! set is remembered as it was set, and what is found is compared with what the kernel leaves of
//! it. Cpusets change while masks are read: one that cannot be explained is taken for the
//! program's wish when it is found a second time, and until then the thread is not touched.
//!
//! A program that sets the very mask which the thread has from us at that moment leaves no trace:
//! that wish is not seen until it is set again. Where threads are released after a move, as for
//! programs that block, there is no such moment.
//!
//! A thread that was created after one of its process (or of an ancestor of it) was given a mask,
//! and that has this very mask, is taken to have inherited it. That the program itself chose the
//! same mask for a new thread cannot be told from this.
//!
//! A program that a thread becomes by exec keeps its mask, ours if it had one. So each process of
//! which a thread has a mask of ours is looked at again and again ([`Masks::look_for_exec`]), and
//! its first thread, the only one after exec, gets its original mask back.

use crate::affinity;
use crate::bpf::{Seen, Switches, Watched};
use crate::clock::{self, now, thread_cpu_time};
use crate::counters::Counters;
use crate::journal::{Journal, Process, Slot, others};
use crate::limits::{Limits, Watch, slice};
use crate::memory::{Mover, bytes_of, on_nodes};
use crate::proc::{Image, Proc, Stat, parse_schedstat, status_field, status_number};
use crate::restore::is_left_of;
use crate::share::Shares;
use crate::taskstats::{TaskStats, TaskTimes};
use evenly_engine::{
    Actuator, ApplyError, Located, MemoryMoved, MemoryUnknown, Neighbour, RankActivity, Reading,
    RunState, Sensors, ShareError, Times, Waiting, Wanted,
};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What evenly knows of the masks of a program.
pub struct Masks {
    journal: Arc<Journal>,
    processes: Mutex<BTreeMap<Pid, ProcessMasks>>,
    /// The process that was looked at last for whether it has become another program.
    looked_at: Mutex<Option<Pid>>,
    /// Whether any mask was ever narrowed: until then nothing can have been inherited.
    narrowed_any: AtomicBool,
}

#[derive(Default)]
struct ProcessMasks {
    ours: Vec<Ours>,
    /// Its threads that have a mask of ours.
    narrowed: HashSet<ThreadId>,
    /// What it was when it was narrowed first, or looked at last.
    program: Option<Program>,
    /// A thread of it may have a mask of ours: one that is narrowed, or one that has taken the place
    /// of such a thread, whose id has ended, by exec.
    watched: bool,
}

/// Which program a process runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Program {
    /// Start time of the process, which exec does not change.
    start: u64,
    image: Image,
}

impl Program {
    /// None where the process has ended, or its first thread alone has: that tells nothing.
    fn of(proc: &Proc, pid: Pid) -> Option<Self> {
        let stat = proc.thread_stat(Tid(pid.0))?;
        let dead = stat.run_state() == RunState::Dead;
        (!dead).then_some(Self { start: stat.start, image: stat.image })
    }
}

/// How many processes are looked at in one look for exec.
const PROCESSES_PER_LOOK: usize = 16;

/// A mask that we have set on a thread, narrower than the original one.
struct Ours {
    mask: CpuSet,
    original: CpuSet,
    /// When it was set first, in the unit of thread start times: a thread that is older has not
    /// inherited it.
    since: u64,
}

impl Masks {
    /// With the journal that all changes go to first.
    #[must_use]
    pub fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            processes: Mutex::default(),
            looked_at: Mutex::default(),
            narrowed_any: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pid, ProcessMasks>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the mask has been set on any thread, so that others can have inherited it.
    fn can_be_inherited(&self, mask: &CpuSet) -> bool {
        self.narrowed_any.load(Ordering::Relaxed)
            && self.lock().values().any(|p| p.ours.iter().any(|o| o.mask == *mask))
    }

    /// What a thread had before, if it can only have its mask from one that we had narrowed: one of
    /// its own process, or of a process that descends to it. Where those differ it is what all of
    /// them allow.
    fn inherited(
        &self,
        id: ThreadId,
        pid: Pid,
        ancestors: &[Pid],
        found: &CpuSet,
        proc: &Proc,
    ) -> Option<CpuSet> {
        let all = self.lock();
        // A thread that calls exec takes over the leader's id and start time, and all others end.
        let alone = id.tid.0 == pid.0
            && all.get(&pid).is_some_and(|p| {
                p.narrowed
                    .iter()
                    .all(|&t| t == id || proc.thread_stat(t.tid).is_none_or(|s| s.start != t.start))
            });
        ancestors
            .iter()
            .filter_map(|a| all.get(a))
            .flat_map(|p| &p.ours)
            .filter(|o| o.mask == *found && (alone || o.since <= id.start))
            .map(|o| o.original.clone())
            .reduce(|a, b| a.and(&b))
    }

    /// Notes that the thread has this mask from us from now on.
    fn remember(&self, id: ThreadId, pid: Pid, mask: &CpuSet, original: &CpuSet, proc: &Proc) {
        let mut all = self.lock();
        let p = all.entry(pid).or_default();
        if mask == original {
            p.narrowed.remove(&id);
            p.watched &= !p.narrowed.is_empty();
            return;
        }
        p.narrowed.insert(id);
        p.watched = true;
        if p.program.is_none() {
            p.program = Program::of(proc, pid);
        }
        if !p.ours.iter().any(|o| o.mask == *mask && o.original == *original) {
            let since = ticks_since_boot();
            p.ours.push(Ours { mask: mask.clone(), original: original.clone(), since });
            self.narrowed_any.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets a thread that has ended.
    fn ended(&self, id: ThreadId, pid: Pid) {
        if let Some(p) = self.lock().get_mut(&pid) {
            p.narrowed.remove(&id);
        }
    }

    fn processes(&self) -> Vec<Pid> {
        self.lock().keys().copied().collect()
    }

    /// Looks at a few of the processes of which a thread has a mask of ours, each in its turn.
    /// Returns the first thread, which is the only one then, of each that has become another
    /// program by exec since it was narrowed first or looked at last.
    ///
    /// Cost: nothing where no mask is narrowed, else one reading of `stat` for each process looked
    /// at.
    pub fn look_for_exec(&self, proc: &Proc) -> SmallVec<[ThreadId; 4]> {
        let mut found = SmallVec::new();
        if !self.narrowed_any.load(Ordering::Relaxed) {
            return found;
        }
        let mut last = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let turn: SmallVec<[(Pid, Option<Program>); PROCESSES_PER_LOOK]> = {
            let all = self.lock();
            let rest = all.range((from, Bound::Unbounded));
            let first = all.range(..=last.unwrap_or(Pid(0)));
            (rest.chain(first).filter(|(_, p)| p.watched))
                .map(|(&pid, p)| (pid, p.program))
                .take(PROCESSES_PER_LOOK)
                .collect()
        };
        for (pid, before) in turn {
            *last = Some(pid);
            let now = Program::of(proc, pid);
            if now == before || (now.is_none() && proc.thread_stat(Tid(pid.0)).is_some()) {
                continue;
            }
            if let Some(p) = self.lock().get_mut(&pid) {
                (p.program, p.watched) = (now, p.watched && now.is_some());
            }
            let Some(now) = now else { continue };
            if before.is_some_and(|b| b.start == now.start) {
                found.push(ThreadId { tid: Tid(pid.0), start: now.start });
            }
        }
        found
    }
}

/// Time since boot in the unit in which `/proc` tells when a thread started, rounded down.
fn ticks_since_boot() -> u64 {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let t = clock::since_boot();
    (u128::from(t.0) * u128::from(per_second) / 1_000_000_000) as u64
}

/// A thread whose masks we may change.
struct Managed {
    pid: Pid,
    original: CpuSet,
    /// The mask that it has as far as we know: what we set last, or the original one. What a cpuset
    /// leaves of it may be less.
    set: CpuSet,
    slot: Slot,
    /// How often the cpuset had changed when `set` was set.
    cpuset_changes: u64,
    /// A mask that was found once and could not be explained.
    suspect: Option<CpuSet>,
    /// The program has chosen its mask.
    left_alone: bool,
    /// The last mask of ours that `Masks` has been told of, so that it is told once.
    told: CpuSet,
}

impl Managed {
    /// Takes note of a mask that was found, if what we know explains it.
    fn explains(&mut self, found: &CpuSet, cpuset: &CpuSet, changes: u64) -> bool {
        if !self.left_alone && is_left_of(found, &self.set, Some(cpuset)) {
            return true;
        }
        // Given back by the guardian, or by the program itself.
        if is_left_of(found, &self.original, Some(cpuset)) {
            self.set.clone_from(&self.original);
            return true;
        }
        // Kernels before 6.2 forget a mask of which a cpuset left nothing: the thread keeps all of
        // the cpuset when that grows again.
        if !self.left_alone && found == cpuset && changes != self.cpuset_changes {
            self.set.clone_from(found);
            return true;
        }
        false
    }
}

struct Files {
    id: ThreadId,
    /// A time at which the thread of this id was seen to be this one. None where it was not.
    seen: Option<Nanos>,
    /// The account that is kept of it in the kernel, where there is one.
    watched: Option<Watched>,
    schedstat: Option<File>,
    stat: Option<File>,
}

impl Files {
    /// The times of the thread, from what is kept for it: its account, or until that has been begun its
    /// `schedstat`. None where nothing is kept.
    fn times(&self, now: Nanos) -> Option<Reading> {
        match self.watched.as_ref().map(|w| w.look(now)) {
            Some(Seen::Account(account)) => return Some(Reading::Times(account.times)),
            Some(Seen::Ended) => return Some(Reading::Gone),
            Some(Seen::Nothing) | None => {}
        }
        let file = self.schedstat.as_ref()?;
        Some(read_schedstat(file).map_or(Reading::Gone, Reading::Times))
    }
}

/// Where thread times come from.
pub enum Source {
    /// `/proc/<pid>/task/<tid>/schedstat`: needs nothing.
    Schedstat,
    /// The taskstats netlink interface, as in the papers: needs CAP_NET_ADMIN.
    Taskstats(Box<TaskStats>),
    /// Accounts that BPF programs keep in the kernel: needs CAP_BPF and CAP_PERFMON. For threads of which
    /// there is no account, as [`Source::Schedstat`].
    Bpf(Arc<Switches>),
}

impl Source {
    /// As `--source` has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Taskstats(_) => "taskstats",
            Self::Bpf(_) => "bpf",
        }
    }
}

/// What a thread says of itself, from inside its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Testimony {
    /// Which thread.
    pub tid: Tid,
    /// When it said so first, since the host was started: it is older than that. One that is younger is
    /// another with the same number.
    pub since: Nanos,
    /// How it has waited.
    pub waiting: Waiting,
}

/// Reads what all threads of a program say of themselves at this moment. Nothing is added where nothing
/// can be read any more.
pub type Testimonies = Box<dyn FnMut(Nanos, &mut Vec<Testimony>) + Send>;

/// Threads that tell of their waiting, and what they said last.
pub(crate) struct Tellers {
    read: Testimonies,
    all: Vec<Testimony>,
    by_tid: HashMap<Tid, usize>,
    ticks_per_second: u64,
}

impl Tellers {
    pub(crate) fn new(read: Testimonies) -> Self {
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        Self { read, all: Vec::new(), by_tid: HashMap::new(), ticks_per_second }
    }

    /// Reads what all of them say now.
    pub(crate) fn listen(&mut self) {
        self.all.clear();
        (self.read)(now(), &mut self.all);
        self.by_tid.clear();
        self.by_tid.extend(self.all.iter().enumerate().map(|(at, t)| (t.tid, at)));
    }

    /// What this one said.
    pub(crate) fn said(&self, id: ThreadId) -> Option<Waiting> {
        let said = self.all.get(*self.by_tid.get(&id.tid)?)?;
        // Rounded down, as the kernel does.
        let per_second = u128::from(self.ticks_per_second);
        let started = u128::from(id.start) * 1_000_000_000 / per_second;
        (started <= u128::from(said.since.0)).then_some(said.waiting)
    }
}

impl std::fmt::Debug for Tellers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tellers").field("all", &self.all).finish_non_exhaustive()
    }
}

/// Reads what the threads of ranks have counted, as [`Sensors::ranks`].
pub type RankCounts =
    Box<dyn FnMut(&[(ThreadId, Nanos)], &mut Vec<Option<RankActivity>>) -> bool + Send>;

/// Linux, for one domain.
pub struct LinuxMachine {
    proc: Proc,
    source: Source,
    /// What the threads do, where that is counted.
    counters: Option<Counters>,
    /// What they say of their waiting, where they do.
    tellers: Option<Tellers>,
    /// What ranks count, where they do.
    ranks: Option<RankCounts>,
    /// What gives them parts of CPUs, where they may be given any.
    shares: Option<Shares>,
    limits: Limits,
    watch: Watch,
    root: Pid,
    cpuset: CpuSet,
    /// How often it has changed.
    cpuset_changes: u64,
    /// Every CPU that this machine can ever have.
    possible: CpuSet,
    masks: Arc<Masks>,
    managed: HashMap<ThreadId, Managed>,
    files: Vec<Files>,
    tids: Vec<Tid>,
    /// The files of threads that are read one at a time, in no order.
    single: HashMap<ThreadId, Files>,
    next_stat: usize,
    most_files: usize,
    resolution: Nanos,
    mover: Mover,
}

impl LinuxMachine {
    /// For the program whose first process is `root`. At most `most_files` descriptors are kept
    /// open.
    #[must_use]
    pub fn new(root: Pid, masks: Arc<Masks>, source: Source, most_files: usize) -> Self {
        let limits = Limits::default();
        let mut machine = Self {
            proc: Proc::default(),
            source,
            counters: None,
            tellers: None,
            ranks: None,
            shares: None,
            watch: limits.watch(root),
            possible: limits.possible().unwrap_or_default(),
            limits,
            root,
            cpuset: CpuSet::new(),
            cpuset_changes: 0,
            masks,
            managed: HashMap::new(),
            files: Vec::new(),
            tids: Vec::new(),
            single: HashMap::new(),
            next_stat: 0,
            most_files,
            resolution: slice().tick,
            mover: Mover::default(),
        };
        machine.read_cpuset();
        machine
    }

    /// With these counters, which tell progress from now on.
    #[must_use]
    pub fn counting(mut self, counters: Option<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// With what gives threads parts of the CPUs that they share.
    #[must_use]
    pub fn sharing(mut self, shares: Option<Shares>) -> Self {
        self.shares = shares;
        self
    }

    /// With what threads say of their own waiting.
    #[must_use]
    pub fn told_by(mut self, testimonies: Option<Testimonies>) -> Self {
        self.tellers = testimonies.map(Tellers::new);
        self
    }

    /// With what ranks count of their computing and their messages.
    #[must_use]
    pub fn counted_by(mut self, ranks: Option<RankCounts>) -> Self {
        self.ranks = ranks;
        self
    }

    /// Takes note of a cpuset that has changed. To be called before threads are met: whether a
    /// thread could use its whole cpuset is told by the one that is known.
    pub fn look_at_cpuset(&mut self) {
        if self.watch.changed() {
            self.read_cpuset();
        }
    }

    fn read_cpuset(&mut self) {
        // Of a process that has ended nothing can be told: the last known cpuset holds, and the
        // kernel refuses what is really not allowed.
        if !self.cpuset.is_empty() && self.proc.process_stat(self.root).is_none() {
            return;
        }
        if let Ok(cpus) = self.limits.cpuset(self.root).or_else(|_| self.limits.online())
            && cpus != self.cpuset
        {
            self.cpuset = cpus;
            self.cpuset_changes += 1;
        }
    }

    /// The descriptors of a thread. Threads are read in the same order point after point, so the
    /// hint is nearly always right.
    fn files(&mut self, id: ThreadId, hint: usize) -> &mut Files {
        let at = if self.files.get(hint).is_some_and(|f| f.id == id) {
            hint
        } else if let Some(found) = self.files.iter().position(|f| f.id == id) {
            let to = hint.min(self.files.len() - 1);
            self.files.swap(found, to);
            to
        } else {
            self.files.push(self.open(id));
            let (to, last) = (hint.min(self.files.len() - 1), self.files.len() - 1);
            self.files.swap(to, last);
            to
        };
        &mut self.files[at]
    }

    /// All of them by taskstats. What is not answered, because the reply was lost or the kernel had
    /// no memory for it, is unknown; only an answer can say that a thread has ended.
    fn read_by_taskstats(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.resize(ids.len(), Reading::Unknown);
        self.tids.clear();
        for (i, id) in ids.iter().enumerate() {
            self.tids.push(id.tid);
            let _ = self.files(*id, i);
        }
        let Source::Taskstats(stats) = &mut self.source else { return };
        let (files, asked) = (&self.files, now());
        let result = stats.read_many(&self.tids, |i, times| {
            let seen = files.get(i).filter(|f| f.id == ids[i]).and_then(|f| f.seen);
            let same = |t: &TaskTimes| {
                // Where the kernel does not say when the thread started, /proc does.
                t.is_of_thread_seen(seen?, asked).or_else(|| {
                    Some(self.proc.thread_stat(ids[i].tid).is_some_and(|s| s.start == ids[i].start))
                })
            };
            out[i] = match times.filter(|t| same(t) == Some(true)) {
                Some(t) => Reading::Times(t.times()),
                None => Reading::Gone,
            };
        });
        // An error leaves readings unknown, which is all that there is to be done about it.
        let _ = result;
    }

    /// Whether the files of one more thread may be kept open.
    fn has_room(&self) -> bool {
        2 * (self.files.len() + self.single.len()) < self.most_files
    }

    /// Opens the files of a thread, as long as there are not too many.
    fn open(&self, id: ThreadId) -> Files {
        let keep = self.has_room();
        let open =
            |file| keep.then(|| File::open(self.proc.thread_file(id.tid, file)).ok()).flatten();
        let watched = if let Source::Bpf(all) = &self.source { all.watch(id) } else { None };
        let schedstat = !matches!(self.source, Source::Taskstats(_));
        let schedstat = schedstat.then(|| open("schedstat")).flatten();
        let mut files = Files { id, seen: Some(now()), watched, schedstat, stat: open("stat") };
        // They must be of this thread, not of one that has its id now.
        match self.proc.thread_stat(id.tid) {
            Some(s) if s.start == id.start => {}
            Some(_) => {
                files = Files { id, seen: None, watched: None, schedstat: None, stat: None };
            }
            None => files.seen = None,
        }
        files
    }

    fn read_one_by_taskstats(&mut self, id: ThreadId) -> Reading {
        // Here are only threads that are read one at a time: those of long ago are let go.
        if 2 * self.files.len() >= self.most_files {
            self.files.clear();
        }
        let mut out = Vec::with_capacity(1);
        self.read_by_taskstats(&[id], &mut out);
        let reading = out.first().copied().unwrap_or(Reading::Unknown);
        if reading == Reading::Gone {
            self.files.retain(|f| f.id != id);
            self.part(id);
        }
        reading
    }

    fn read_in_order(&mut self, id: ThreadId, hint: usize, now: Nanos) -> Reading {
        let kept = self.files(id, hint).times(now);
        kept.unwrap_or_else(|| self.read_by_name(id))
    }

    /// Reads the times of a thread of which no file is kept open.
    fn read_by_name(&self, id: ThreadId) -> Reading {
        let read = || {
            self.proc.thread_stat(id.tid).filter(|s| s.start == id.start)?;
            let text = crate::proc::read_all(&self.proc.thread_file(id.tid, "schedstat")).ok()?;
            parse_schedstat(&text)
        };
        read().map_or(Reading::Gone, Reading::Times)
    }

    fn stat(&mut self, id: ThreadId) -> Option<Stat> {
        let mut buffer = [0u8; 1024];
        if let Some(Files { stat: Some(file), .. }) = self.single.get(&id) {
            let n = file.read_at(&mut buffer, 0).ok()?;
            return Stat::parse(buffer.get(..n)?).filter(|s| s.start == id.start);
        }
        // Threads are looked for in the order in which they are read, so the next one is usually
        // right behind the last.
        let at = if self.files.get(self.next_stat).is_some_and(|f| f.id == id) {
            self.next_stat
        } else {
            self.files.iter().position(|f| f.id == id).unwrap_or(self.files.len())
        };
        self.next_stat = at + 1;
        let stat = match &self.files(id, at).stat {
            Some(file) => {
                let n = file.read_at(&mut buffer, 0).ok()?;
                Stat::parse(buffer.get(..n)?)?
            }
            None => self.proc.thread_stat(id.tid)?,
        };
        (stat.start == id.start).then_some(stat)
    }

    /// The process of a thread, the mask that it had before evenly came, and the one it has now.
    /// `/proc` tells the whole mask, with CPUs that are offline at the moment, where
    /// sched_getaffinity leaves them out.
    fn look(&self, id: ThreadId) -> Option<(Pid, CpuSet, CpuSet)> {
        let status = self.proc.thread_status(id.tid).ok()?;
        let pid = Pid(status_number(&status, "Tgid").and_then(|n| i32::try_from(n).ok())?);
        let found = whole_mask(&status)?;
        // Read after the status: that was of this thread, and not of one with its id.
        self.proc.thread_stat(id.tid).filter(|s| s.start == id.start)?;
        if self.masks.can_be_inherited(&found) {
            let ancestors = self.ancestors(pid);
            let inherited = self.masks.inherited(id, pid, &ancestors, &found, &self.proc);
            if let Some(original) = inherited {
                return Some((pid, original, found));
            }
        }
        let original = if found == self.cpuset { found.or(&self.possible) } else { found.clone() };
        Some((pid, original, found))
    }

    /// A process and those that it descends from, up to the first of the program. Where that cannot
    /// be followed, because one of them has ended, all of the program's processes come into
    /// question.
    fn ancestors(&self, pid: Pid) -> Vec<Pid> {
        let mut chain: Vec<Pid> = self.proc.lineage(pid).collect();
        match chain.iter().position(|&p| p == self.root) {
            Some(root) => {
                chain.truncate(root + 1);
                chain
            }
            None => self.masks.processes(),
        }
    }

    /// The mask that a thread had before evenly came. None where it has ended.
    #[must_use]
    pub fn mask_when_met(&self, id: ThreadId) -> Option<CpuSet> {
        self.look(id).map(|(_, original, _)| original)
    }

    /// Looks at a thread that has just appeared. If it inherited a mask of ours it gets back what
    /// the thread had that created it: it may be a program of its own, or start threads itself.
    pub fn welcome(&mut self, id: ThreadId) {
        // One system call for nearly all threads.
        if !self.masks.narrowed_any.load(Ordering::Relaxed)
            || self.managed.contains_key(&id)
            || !affinity::get(id.tid).is_ok_and(|found| self.masks.can_be_inherited(&found))
        {
            return;
        }
        if self.look(id).is_some_and(|(_, original, found)| original != found)
            && self.meet(id).is_ok()
        {
            self.restore(id);
            // Should it compute it is met again, with the mask that it has then.
            self.part(id);
        }
    }

    /// [`LinuxMachine::welcome`] for threads of which nothing is known yet but that they are there.
    pub fn welcome_all(&mut self, newcomers: &[Tid]) {
        if !self.masks.narrowed_any.load(Ordering::Relaxed) {
            return;
        }
        for &tid in newcomers {
            if affinity::get(tid).is_ok_and(|found| self.masks.can_be_inherited(&found))
                && let Some(stat) = self.proc.thread_stat(tid)
            {
                self.welcome(ThreadId { tid, start: stat.start });
            }
        }
    }

    /// First threads of processes that have become another program by exec while they had a mask
    /// of ours. To be called at each look over the threads.
    #[must_use]
    pub fn look_for_exec(&self) -> SmallVec<[ThreadId; 4]> {
        self.masks.look_for_exec(&self.proc)
    }

    /// Gives the thread back the mask that it had when it was met, or that it inherited one of ours
    /// instead of, and forgets it: it has become another program, which must see all its CPUs
    /// (promise P3).
    pub fn reclaim(&mut self, id: ThreadId) {
        if self.release(id) {
            self.welcome(id);
        }
    }

    /// Whether a thread that has been bound, as far as we know, by the program or by whoever started
    /// it, may use all of `whole` by now. `within` is what we know of one whose mask was never changed.
    #[must_use]
    pub fn is_unbound(&self, id: ThreadId, within: &CpuSet, whole: &CpuSet) -> bool {
        let bound = match self.managed.get(&id) {
            Some(m) => m.left_alone || !whole.is_subset(&m.original),
            None => !whole.is_subset(within),
        };
        bound && affinity::get(id.tid).is_ok_and(|found| whole.is_subset(&found))
    }

    /// Meets a thread: from now on its mask may be changed.
    ///
    /// # Errors
    /// [`ApplyError::Gone`] where it has ended, [`ApplyError::Refused`] where the journal has no
    /// room for it.
    fn meet(&mut self, id: ThreadId) -> Result<&mut Managed, ApplyError> {
        if !self.managed.contains_key(&id) {
            let (pid, original, found) = self.look(id).ok_or(ApplyError::Gone)?;
            let journal = &self.masks.journal;
            let mut slot =
                journal.meet(id, pid, &original).map_err(|e| ApplyError::Refused(e.to_string()))?;
            let inherited = !is_left_of(&found, &original, Some(&self.cpuset));
            if inherited {
                // It is ours to undo from the start.
                self.masks.journal.about_to_set(&mut slot, &found);
                self.masks.remember(id, pid, &found, &original, &self.proc);
            }
            let managed = Managed {
                pid,
                set: if inherited { found } else { original.clone() },
                told: CpuSet::new(),
                original,
                slot,
                cpuset_changes: self.cpuset_changes,
                suspect: None,
                left_alone: false,
            };
            self.managed.insert(id, managed);
        }
        self.managed.get_mut(&id).ok_or(ApplyError::Gone)
    }

    /// Forgets a thread that has ended or has its original mask, or one that is not ours: it can be met
    /// anew.
    pub fn part(&mut self, id: ThreadId) {
        if let Some(m) = self.managed.remove(&id) {
            self.masks.ended(id, m.pid);
            self.masks.journal.forget(m.slot);
        }
    }

    /// Whether the mask that the thread has now is explained by what we know. That the thread is
    /// there must be known.
    fn check(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        let found = mask_of(id)?;
        let changes = self.cpuset_changes;
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if m.explains(&found, &self.cpuset, changes) {
            m.suspect = None;
            return self.take_charge(id);
        }
        // The cpuset may have changed since it was read; and a process may have one of its own.
        let fresh = self.limits.cpuset(m.pid).unwrap_or_else(|_| self.cpuset.clone());
        let found = mask_of(id)?;
        let moved_on = changes + u64::from(fresh != self.cpuset);
        if m.explains(&found, &fresh, moved_on) {
            m.suspect = None;
            return self.take_charge(id);
        }
        // A CPU that goes offline is taken from masks as they are told before it is taken from the
        // CPUs that are online, and a thread that may use no other gets all of them: the whole mask
        // tells that.
        let status = self.proc.thread_status(id.tid).ok();
        if let Some(whole) = status.as_deref().and_then(whole_mask)
            && whole != found
            && m.explains(&whole, &fresh, moved_on)
        {
            m.suspect = None;
            return self.take_charge(id);
        }
        let pid = m.pid;
        let took_over = id.tid.0 == pid.0
            && self.masks.inherited(id, pid, &[pid], &found, &self.proc).is_some();
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if took_over && !m.left_alone {
            // A thread that is not the leader called exec and became the leader: it brought the
            // mask that it had from us.
            m.suspect = None;
            self.masks.journal.about_to_set(&mut m.slot, &found);
            m.set = found;
            return Ok(());
        }
        if m.suspect.as_ref() == Some(&found) || m.left_alone {
            m.left_alone = true;
            self.masks.journal.leave_alone(&mut m.slot);
            return Err(ApplyError::Foreign { found });
        }
        m.suspect = Some(found);
        Err(ApplyError::Unusable { wanted: m.set.clone() })
    }

    /// A thread that the program has given its original mask back is ours to balance again: with a
    /// record of its own, because the old one says that it is not.
    fn take_charge(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        if self.managed.get(&id).is_some_and(|m| m.left_alone) {
            self.part(id);
            self.meet(id)?;
        }
        Ok(())
    }

    /// [`LinuxMachine::check`] before a thread is narrowed: one that has become a real-time thread
    /// gets its mask back.
    fn check_before_narrowing(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        // The mask is read last, so that hardly any time is left in which the program can set it.
        let is_raised = self.shares.as_ref().is_some_and(|s| s.raises(id));
        if self.stat(id).ok_or(ApplyError::Gone)?.is_fair() || is_raised {
            return self.check(id);
        }
        self.restore(id);
        Err(ApplyError::Refused(String::from("it is a real-time or deadline thread by now")))
    }

    fn set(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if m.told != *mask {
            self.masks.remember(id, m.pid, mask, &m.original, &self.proc);
            m.told.clone_from(mask);
        }
        self.masks.journal.about_to_set(&mut m.slot, mask);
        let result = affinity::set(id.tid, mask);
        if result.is_err() {
            self.masks.journal.not_set(&mut m.slot);
        }
        match result {
            Ok(()) => {
                m.set.clone_from(mask);
                m.cpuset_changes = self.cpuset_changes;
                Ok(())
            }
            Err(e) if affinity::is_gone(&e) => Err(ApplyError::Gone),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                Err(ApplyError::Unusable { wanted: mask.clone() })
            }
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                Err(ApplyError::Refused(self.not_permitted(id)))
            }
            Err(e) => Err(ApplyError::Refused(format!(
                "the kernel refuses to set its affinity mask to {mask}: {e}"
            ))),
        }
    }

    fn not_permitted(&self, id: ThreadId) -> String {
        let own = rustix::process::geteuid().as_raw();
        let owner = (self.proc.thread_status(id.tid).ok())
            .and_then(|s| status_number(&s, "Uid"))
            .map_or_else(|| String::from("another user"), |uid| format!("user {uid}"));
        format!(
            "it belongs to {owner}, and evenly runs as user {own}; setting its affinity mask needs \
             the same user, or CAP_SYS_NICE (sudo evenly)"
        )
    }
}

/// The mask of a thread in its `/proc` status: the whole one, with CPUs that are offline.
fn whole_mask(status: &[u8]) -> Option<CpuSet> {
    let list = status_field(status, "Cpus_allowed_list")?;
    std::str::from_utf8(list).ok()?.parse().ok()
}

fn read_schedstat(file: &File) -> Option<Times> {
    let mut buffer = [0u8; 96];
    let n = file.read_at(&mut buffer, 0).ok()?;
    parse_schedstat(buffer.get(..n)?)
}

fn mask_of(id: ThreadId) -> Result<CpuSet, ApplyError> {
    affinity::get(id.tid).map_err(|e| {
        if affinity::is_gone(&e) { ApplyError::Gone } else { ApplyError::Refused(e.to_string()) }
    })
}

impl Sensors for LinuxMachine {
    fn now(&self) -> Nanos {
        now()
    }

    fn own_cpu_time(&self) -> Nanos {
        thread_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        self.next_stat = 0;
        if let Some(shares) = &mut self.shares {
            shares.tick(now());
        }
        if matches!(self.source, Source::Taskstats(_)) {
            self.read_by_taskstats(ids, out);
        } else {
            let now = now();
            for (i, &id) in ids.iter().enumerate() {
                let reading = self.read_in_order(id, i, now);
                out.push(reading);
            }
        }
        for (&id, _) in ids.iter().zip(out.iter()).filter(|(_, r)| **r == Reading::Gone) {
            self.part(id);
        }
        // Threads that are no longer asked for have been swapped to the end.
        self.files.truncate(ids.len());
        // Nor are they when they end later. Rarely, so that it costs nothing to speak of.
        if self.managed.len() > 2 * ids.len() + 64 {
            let ended: Vec<ThreadId> = (self.managed.keys().copied())
                .filter(|id| self.proc.thread_stat(id.tid).is_none_or(|s| s.start != id.start))
                .collect();
            for id in ended {
                self.part(id);
            }
        }
    }

    fn read_one(&mut self, id: ThreadId) -> Reading {
        if matches!(self.source, Source::Taskstats(_)) {
            return self.read_one_by_taskstats(id);
        }
        let now = now();
        let mut kept = self.single.get(&id).and_then(|f| f.times(now));
        if kept.is_none() && self.has_room() {
            let files = self.open(id);
            kept = files.times(now);
            if let Some(Reading::Times(_)) = kept {
                self.single.insert(id, files);
            }
        }
        let reading = kept.unwrap_or_else(|| self.read_by_name(id));
        if reading == Reading::Gone {
            self.single.remove(&id);
            self.part(id);
        }
        reading
    }

    fn retired(&mut self, ids: &[ThreadId], out: &mut Vec<Option<u64>>) {
        out.clear();
        let Some(counters) = &mut self.counters else { return };
        let proc = &self.proc;
        let is_it = |id: ThreadId| proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start);
        out.extend(ids.iter().enumerate().map(|(i, &id)| counters.read(id, i, || is_it(id))));
        counters.keep(ids.len());
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        out.clear();
        if let Some(tellers) = &mut self.tellers {
            tellers.listen();
            out.extend(ids.iter().map(|&id| tellers.said(id)));
        }
    }

    fn ranks(
        &mut self,
        threads: &[(ThreadId, Nanos)],
        out: &mut Vec<Option<RankActivity>>,
    ) -> bool {
        self.ranks.as_mut().is_some_and(|read| read(threads, out))
    }

    fn weighs_by(&self) -> Option<&'static str> {
        self.shares.as_ref().and_then(Shares::name)
    }

    fn weighs_cpus(&self) -> bool {
        self.shares.as_ref().is_some_and(Shares::of_cpus)
    }

    fn weighs_for(&self) -> Option<Nanos> {
        self.shares.as_ref().and_then(Shares::lasts)
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let stat = self.stat(id)?;
        Some(Located {
            cpu: stat.cpu,
            state: stat.run_state(),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        })
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.look_at_cpuset();
        within.and(&self.cpuset)
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.meet(id).ok().map(|m| m.original.clone())
    }

    fn neighbours(&mut self) -> Vec<Neighbour> {
        // A directory that cannot be read has nothing to tell.
        let all = others(&self.masks.journal.dir(), &self.proc).unwrap_or_default();
        let own = Process::own();
        all.into_iter()
            .map(|o| Neighbour {
                pid: o.evenly.pid,
                was_first: (o.evenly.start, o.evenly.pid.0) < (own.start, own.pid.0),
                threads: o.counts,
            })
            .collect()
    }

    fn memory_of(&mut self, pid: Pid) -> Option<u64> {
        bytes_of(&self.proc, pid)
    }

    fn memory_on_nodes(&mut self, pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
        on_nodes(&self.proc, pid)
    }

    fn capacity(&self, cpu: CpuId) -> u32 {
        self.limits.capacity(cpu)
    }

    fn resolution(&self) -> Nanos {
        self.resolution
    }
}

impl Actuator for LinuxMachine {
    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let Some(shares) = &mut self.shares else {
            let why = || ApplyError::Refused(String::from("parts of CPUs are not given here"));
            return wanted.iter().map(|_| Err(why())).collect();
        };
        let told = |e| match e {
            ShareError::Gone => ApplyError::Gone,
            e => ApplyError::Refused(e.to_string()),
        };
        shares.weigh(wanted).into_iter().map(|given| given.map_err(told)).collect()
    }

    fn unweigh(&mut self, process: Pid, thread: ThreadId) {
        if let Some(shares) = &mut self.shares {
            shares.restore(process, thread);
        }
    }

    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        self.meet(id)?;
        self.check_before_narrowing(id)?;
        let one = CpuSet::single(cpu);
        let m = self.managed.get(&id).ok_or(ApplyError::Gone)?;
        if !one.is_subset(&m.original) {
            return Err(ApplyError::Unusable { wanted: one });
        }
        if m.set != one {
            self.set(id, &one)?;
        }
        let Some(release) = release else { return Ok(()) };
        self.set(id, release).or_else(|_| {
            let original = self.managed.get(&id).map(|m| m.original.clone()).unwrap_or_default();
            self.set(id, &original)
        })
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.meet(id)?;
        self.check_before_narrowing(id)?;
        let m = self.managed.get(&id).ok_or(ApplyError::Gone)?;
        if !mask.is_subset(&m.original) {
            return Err(ApplyError::Unusable { wanted: mask.clone() });
        }
        if m.set == *mask { Ok(()) } else { self.set(id, mask) }
    }

    fn restore(&mut self, id: ThreadId) {
        // A mask that cannot be explained at the first look may be explained at the second.
        for _ in 0..2 {
            let Some(m) = self.managed.get(&id) else { return };
            if m.left_alone || self.stat(id).is_none() {
                return;
            }
            match self.check(id) {
                Ok(()) => break,
                Err(ApplyError::Unusable { .. }) => {}
                Err(_) => return,
            }
        }
        if let Some(m) = self.managed.get(&id)
            && m.set != m.original
        {
            let original = m.original.clone();
            // Where the original mask cannot be set (its CPUs are gone) there is nothing better to
            // give back.
            let _ = self.set(id, &original);
        }
    }

    fn release(&mut self, id: ThreadId) -> bool {
        self.restore(id);
        // Whoever takes it over meets it with the mask that it has: nothing of ours may be left.
        let free = (self.managed.get(&id)).is_none_or(|m| !m.left_alone && m.set == m.original);
        if free {
            self.part(id);
        }
        free
    }

    fn move_memory(&mut self, pid: Pid, from: u32, to: u32) -> bool {
        self.mover.add(&self.proc, pid, from, to);
        true
    }

    fn go_on_moving(&mut self) -> Option<MemoryMoved> {
        self.mover.go_on(&self.proc)
    }
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        for (_, m) in self.managed.drain() {
            self.masks.journal.forget(m.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counted;
    use crate::journal::{JournalView, State, StateDir};
    use evenly_model::Tid;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn own_id() -> ThreadId {
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start }
    }

    type Job = Box<dyn FnOnce() + Send>;

    /// A thread that does what it is told.
    struct Worker {
        id: ThreadId,
        jobs: Option<Sender<Job>>,
        done: Receiver<()>,
        thread: Option<JoinHandle<()>>,
    }

    impl Worker {
        fn new() -> Self {
            let (jobs, todo) = channel::<Job>();
            let (tell, done) = channel();
            let (say_id, id) = channel();
            let thread = std::thread::spawn(move || {
                say_id.send(own_id()).unwrap();
                for job in todo {
                    job();
                    tell.send(()).unwrap();
                }
            });
            Self { id: id.recv().unwrap(), jobs: Some(jobs), done, thread: Some(thread) }
        }

        fn run(&self, job: impl FnOnce() + Send + 'static) {
            self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
            self.done.recv().unwrap();
        }

        /// The program sets the mask of its thread.
        fn pin_itself(&self, mask: &CpuSet) {
            let mask = mask.clone();
            self.run(move || affinity::set(Tid(0), &mask).unwrap());
        }

        fn starts_another(&self) -> Self {
            let (give, take) = channel();
            self.run(move || give.send(Self::new()).unwrap());
            take.recv().unwrap()
        }

        fn mask(&self) -> CpuSet {
            affinity::get(self.id.tid).unwrap()
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            self.jobs = None;
            self.thread.take().unwrap().join().unwrap();
        }
    }

    struct Bench {
        machine: LinuxMachine,
        whole: CpuSet,
        a: CpuId,
        b: CpuId,
        _tmp: tempfile::TempDir,
    }

    /// None where there are not two CPUs.
    fn bench() -> Option<Bench> {
        let whole = affinity::get(Tid(0)).unwrap();
        let mut two = whole.iter().collect::<Vec<_>>().into_iter();
        let (Some(a), Some(b)) = (two.next(), two.next()) else {
            evenly_testing::skip("two-cpus", "fewer than two CPUs");
            return None;
        };
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let masks = Arc::new(Masks::new(Arc::new(Journal::create(&dir, None).unwrap())));
        let root = Pid(std::process::id().cast_signed());
        let machine = LinuxMachine::new(root, masks, Source::Schedstat, 64);
        Some(Bench { machine, whole, a, b, _tmp: tmp })
    }

    impl Bench {
        fn record(&self, id: ThreadId) -> (State, Vec<CpuSet>) {
            let view = JournalView::open(&self.machine.masks.journal.path()).unwrap();
            let r = view.records.into_iter().rfind(|r| r.id == id).unwrap();
            (r.state, r.set)
        }
    }

    /// As [`bench`], with taskstats.
    fn bench_by_taskstats() -> Option<Bench> {
        let t = bench()?;
        let stats = match TaskStats::open() {
            Ok(stats) => stats,
            Err(e) => {
                evenly_testing::skip("taskstats", e);
                return None;
            }
        };
        let root = Pid(std::process::id().cast_signed());
        let source = Source::Taskstats(Box::new(stats));
        let machine = LinuxMachine::new(root, t.machine.masks.clone(), source, 64);
        Some(Bench { machine, ..t })
    }

    #[test]
    fn taskstats_does_not_take_a_thread_for_one_that_had_its_id() {
        let Some(mut t) = bench_by_taskstats() else { return };
        let (w, mut out) = (Worker::new(), Vec::new());
        let earlier = ThreadId { tid: w.id.tid, start: w.id.start - 1 };
        for _ in 0..3 {
            t.machine.read(&[w.id, earlier], &mut out);
            assert!(matches!(out[..], [Reading::Times(_), Reading::Gone]), "{out:?}");
        }
        // One that was read before the thread of this id started.
        let before = clock::now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let w = Worker::new();
        t.machine.read(&[w.id], &mut out);
        assert!(matches!(out[..], [Reading::Times(_)]), "{out:?}");
        t.machine.files[0].seen = Some(before);
        // Where this thread is kept from running just when it asks, the age tells less.
        let gone = (0..1_000).any(|_| {
            t.machine.read(&[w.id], &mut out);
            out == [Reading::Gone]
        });
        assert!(gone);
    }

    #[test]
    fn a_reply_that_is_lost_is_no_end_of_a_thread() {
        let Some(mut t) = bench_by_taskstats() else { return };
        let w = Worker::new();
        let ended = (0..99).map(|i| ThreadId { tid: Tid(i32::MAX - i), start: 1 });
        let ids: Vec<ThreadId> = ended.chain([w.id]).collect();
        t.machine.place(w.id, t.a, None).unwrap();
        let mut out = Vec::new();
        let room = |t: &Bench, bytes| {
            let Source::Taskstats(stats) = &t.machine.source else { panic!() };
            stats.set_room_for_replies(bytes);
        };
        t.machine.read(&ids, &mut out);
        assert!(out[..99].iter().all(|r| *r == Reading::Gone), "{out:?}");
        assert!(matches!(out[99], Reading::Times(_)), "{out:?}");
        room(&t, 1);
        t.machine.read(&ids, &mut out);
        assert_eq!((out.len(), out[99]), (100, Reading::Unknown));
        assert!(!out.iter().any(|r| matches!(r, Reading::Times(_))), "{out:?}");
        // It is still ours.
        assert!(t.machine.managed.contains_key(&w.id));
        room(&t, 100_000);
        t.machine.read(&ids, &mut out);
        assert!(matches!(out[99], Reading::Times(_)), "{out:?}");
        t.machine.restore(w.id);
        assert_eq!(w.mask(), t.whole);
    }

    #[test]
    fn a_thread_is_placed_released_and_restored() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        assert_eq!(w.mask(), CpuSet::single(t.a));
        assert_eq!(t.record(w.id), (State::Live, vec![CpuSet::single(t.a)]));
        t.machine.place(w.id, t.b, Some(&t.whole)).unwrap();
        assert_eq!(w.mask(), t.whole);
        t.machine.place(w.id, t.a, None).unwrap();
        t.machine.restore(w.id);
        assert_eq!(w.mask(), t.whole);
    }

    /// The same way that instructions go, with what can be counted on every machine.
    #[test]
    fn what_threads_do_is_counted_beside_their_times() {
        let Some(t) = bench() else { return };
        let counters = match Counters::new(Counted::CpuTime, 8) {
            Ok(counters) => counters,
            Err(e) => return evenly_testing::skip("perf-events", e),
        };
        let (mut times, mut done) = (Vec::new(), vec![Some(1)]);
        let workers = [Worker::new(), Worker::new()];
        let ids = [workers[0].id, workers[1].id];
        let mut machine = t.machine;
        machine.retired(&ids, &mut done);
        assert!(done.is_empty(), "nothing counts yet");
        let mut machine = machine.counting(Some(counters));
        let mut read = |ids: &[ThreadId]| {
            machine.read(ids, &mut times);
            machine.retired(ids, &mut done);
            (times.clone(), done.clone())
        };
        let (_, first) = read(&ids);
        workers[1].run(|| {
            let mut x = 1u64;
            (0..20_000_000u64).for_each(|i| x = std::hint::black_box(x.wrapping_mul(31) ^ i));
        });
        let (times, second) = read(&ids);
        let done = [0, 1].map(|i| second[i].unwrap() - first[i].unwrap());
        assert!(done[1] > 1_000_000 && done[1] > 3 * done[0], "{done:?}");
        // Nanoseconds of CPU time are what the scheduler counts, too, which was read a moment earlier.
        let Reading::Times(own) = times[1] else { panic!("gone") };
        assert!(own.ran.0 * 5 / 4 + 10_000_000 >= done[1], "{own:?} {done:?}");
        // In another order, with one left out, and one that has ended.
        let (_, swapped) = read(&[ids[1], ids[0]]);
        assert!(swapped[0] >= second[1] && swapped[1] >= second[0] && swapped[1] < second[1]);
        assert_eq!(read(&[ids[1]]).1.len(), 1);
        let gone = ThreadId { start: ids[0].start + 1, ..ids[0] };
        assert_eq!(read(&[ids[1], gone]).1[1], None);
    }

    #[test]
    fn a_thread_that_another_domain_takes_over_keeps_its_original_mask() {
        let Some(mut t) = bench() else { return };
        let root = Pid(std::process::id().cast_signed());
        let mut second = LinuxMachine::new(root, t.machine.masks.clone(), Source::Schedstat, 64);
        let w = Worker::new();
        let (a, b) = (CpuSet::single(t.a), CpuSet::single(t.b));
        t.machine.confine(w.id, &a).unwrap();
        assert!(t.machine.release(w.id));
        assert_eq!(w.mask(), t.whole);
        assert_eq!(t.record(w.id).0, State::Ended);
        second.confine(w.id, &b).unwrap();
        assert_eq!(w.mask(), b);
        let view = JournalView::open(&second.masks.journal.path()).unwrap();
        let live: Vec<_> =
            view.records.iter().filter(|r| r.id == w.id && r.state == State::Live).collect();
        assert!(live.len() == 1 && t.whole.is_subset(&live[0].original), "{live:?}");
        // And back.
        assert!(second.release(w.id));
        t.machine.place(w.id, t.a, None).unwrap();
        assert_eq!(w.mask(), a);
        t.machine.restore(w.id);
        assert_eq!(w.mask(), t.whole);
        // One whose mask the program has set stays where it is.
        t.machine.place(w.id, t.a, None).unwrap();
        w.pin_itself(&b);
        assert!(!t.machine.release(w.id));
        assert_eq!(w.mask(), b);
    }

    #[test]
    fn a_thread_with_the_same_id_is_not_taken_for_one_that_ended() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        let earlier = ThreadId { tid: w.id.tid, start: w.id.start - 1 };
        assert_eq!(t.machine.place(earlier, t.a, None), Err(ApplyError::Gone));
        assert_eq!(t.machine.confine(earlier, &CpuSet::single(t.a)), Err(ApplyError::Gone));
        t.machine.welcome(earlier);
        t.machine.restore(earlier);
        assert_eq!(w.mask(), t.whole);
        // Met, and ended since.
        t.machine.place(w.id, t.a, None).unwrap();
        let id = w.id;
        drop(w);
        assert_eq!(t.machine.place(id, t.b, None), Err(ApplyError::Gone));
    }

    #[test]
    fn a_thread_that_the_journal_has_no_room_for_is_left_alone_and_told() {
        let Some(mut t) = bench() else { return };
        let journal = t.machine.masks.journal.clone();
        for tid in 1..=crate::journal::RECORD_LIMIT as i32 {
            let id = ThreadId { tid: Tid(tid), start: 1 };
            let _ = journal.meet(id, Pid(tid), &t.whole).unwrap();
        }
        let w = Worker::new();
        for refused in
            [t.machine.place(w.id, t.a, None), t.machine.confine(w.id, &CpuSet::single(t.a))]
        {
            let Err(ApplyError::Refused(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("full") && why.contains("left alone"), "{why}");
        }
        assert_eq!(w.mask(), t.whole);
    }

    #[test]
    fn no_mask_is_set_outside_the_original_one() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        w.pin_itself(&CpuSet::single(t.b));
        let outside = CpuSet::single(t.a);
        // A cpuset of this one CPU would make it a thread that may use everything.
        assert_ne!(t.machine.cpuset, CpuSet::single(t.b));
        let refused = Err(ApplyError::Unusable { wanted: outside.clone() });
        assert_eq!(t.machine.place(w.id, t.a, None), refused);
        assert_eq!(t.machine.confine(w.id, &outside), refused);
        assert_eq!(w.mask(), CpuSet::single(t.b));
    }

    #[test]
    fn a_mask_that_the_program_chose_is_left_until_it_is_given_back() {
        let Some(mut t) = bench() else { return };
        let (w, other) = (Worker::new(), Worker::new());
        // Also where another thread of the process has this mask from us.
        t.machine.place(other.id, t.b, None).unwrap();
        t.machine.place(w.id, t.a, None).unwrap();
        w.pin_itself(&CpuSet::single(t.b));
        // It is not touched at the first sight of it, and known as a wish at the second.
        assert!(matches!(t.machine.place(w.id, t.a, None), Err(ApplyError::Unusable { .. })));
        let found = CpuSet::single(t.b);
        assert_eq!(t.machine.place(w.id, t.a, None), Err(ApplyError::Foreign { found }));
        t.machine.restore(w.id);
        assert_eq!(w.mask(), CpuSet::single(t.b));
        assert_eq!(t.record(w.id).0, State::LeftAlone);
        // What we had set is a wish too, now.
        w.pin_itself(&CpuSet::single(t.a));
        assert!(t.machine.place(w.id, t.b, None).is_err());
        assert_eq!(w.mask(), CpuSet::single(t.a));
        w.pin_itself(&t.whole);
        t.machine.place(w.id, t.a, None).unwrap();
        assert_eq!(t.record(w.id), (State::Live, vec![CpuSet::single(t.a)]));
    }

    #[test]
    fn a_thread_that_widens_itself_is_not_taken_for_one_that_a_cpuset_freed() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        t.machine.managed.get_mut(&w.id).unwrap().original = CpuSet::single(t.a);
        if t.whole != t.machine.cpuset {
            return evenly_testing::skip("whole-cpuset", "the mask is less than the cpuset");
        }
        w.pin_itself(&t.whole);
        t.machine.restore(w.id);
        assert!(matches!(t.machine.place(w.id, t.a, None), Err(ApplyError::Foreign { .. })));
        assert_eq!(w.mask(), t.whole);
    }

    #[test]
    fn what_was_inherited_is_given_back_and_what_was_chosen_is_not() {
        let Some(mut t) = bench() else { return };
        let (w, older) = (Worker::new(), Worker::new());
        // Start times are counted in hundredths of a second.
        while ticks_since_boot() <= older.id.start {
            std::thread::yield_now();
        }
        t.machine.place(w.id, t.a, None).unwrap();
        older.pin_itself(&CpuSet::single(t.a));
        let child = w.starts_another();
        assert_eq!(child.mask(), CpuSet::single(t.a));
        t.machine.welcome(older.id);
        t.machine.welcome(child.id);
        assert_eq!((older.mask(), child.mask()), (CpuSet::single(t.a), t.whole.clone()));
        assert_eq!(t.record(child.id).0, State::Ended);
        // One that is met before it was welcomed is known as narrowed from the start.
        let second = w.starts_another();
        assert!(t.whole.is_subset(&t.machine.original_mask(second.id).unwrap()));
        assert_eq!(t.record(second.id), (State::Live, vec![CpuSet::single(t.a)]));
        t.machine.restore(second.id);
        assert_eq!(second.mask(), t.whole);
    }

    #[test]
    fn newcomers_get_back_what_they_inherited_at_the_first_look() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        let child = w.starts_another();
        t.machine.welcome_all(&[w.id.tid, child.id.tid, Tid(i32::MAX)]);
        assert_eq!((w.mask(), child.mask()), (CpuSet::single(t.a), t.whole.clone()));
    }

    /// Processes that wait for a line on standard input, and then become something else.
    struct Shell {
        child: std::process::Child,
        id: ThreadId,
    }

    impl Shell {
        fn start(script: &str) -> Self {
            let mut sh = std::process::Command::new("sh");
            let child =
                sh.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
            let tid = Tid(child.id().cast_signed());
            let id = ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
            let shell = Self { child, id };
            shell.wait_until_asleep_as(|line| line == ["sh", "-c", script]);
            shell
        }

        fn command_line(&self) -> Vec<String> {
            let line = Proc::default().command_line(Pid(self.id.tid.0));
            line.into_iter().map(|a| a.into_string().unwrap()).collect()
        }

        fn wait_until_asleep_as(&self, wanted: impl Fn(&[String]) -> bool) {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let asleep =
                || Proc::default().thread_stat(self.id.tid).is_some_and(|s| s.state == b'S');
            while !(wanted(&self.command_line()) && asleep()) {
                assert!(std::time::Instant::now() < deadline, "{:?}", self.command_line());
                std::thread::yield_now();
            }
        }

        /// Has it become the next program.
        fn go_on(&mut self) {
            use std::io::Write;
            let before = self.command_line();
            self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.wait_until_asleep_as(|line| line != before && !line.is_empty());
        }

        fn mask(&self) -> CpuSet {
            affinity::get(self.id.tid).unwrap()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }

    #[test]
    fn what_a_pinned_thread_becomes_by_exec_has_its_mask_back_after_one_look() {
        let Some(mut t) = bench() else { return };
        let mut shell = Shell::start("read go; exec sh -c 'read go; exec sleep 600'");
        assert!(t.machine.look_for_exec().is_empty());
        for _ in 0..2 {
            t.machine.place(shell.id, t.a, None).unwrap();
            // As long as it is the same program it stays pinned.
            assert!((0..3).all(|_| t.machine.look_for_exec().is_empty()));
            shell.go_on();
            assert_eq!(shell.mask(), CpuSet::single(t.a));
            let found = t.machine.look_for_exec();
            assert_eq!(found.as_slice(), [shell.id]);
            t.machine.reclaim(shell.id);
            assert_eq!(shell.mask(), t.whole);
            assert_eq!(t.record(shell.id).0, State::Ended);
            assert!(t.machine.look_for_exec().is_empty());
        }
    }

    #[test]
    fn a_mask_that_the_program_set_before_exec_stays() {
        let Some(mut t) = bench() else { return };
        let mut shell = Shell::start("read go; exec sleep 600");
        t.machine.place(shell.id, t.a, None).unwrap();
        let wish = CpuSet::single(t.b);
        affinity::set(shell.id.tid, &wish).unwrap();
        shell.go_on();
        for id in t.machine.look_for_exec() {
            t.machine.reclaim(id);
        }
        assert_eq!(shell.mask(), wish);
    }

    #[test]
    fn many_processes_are_looked_at_in_turns() {
        let Some(mut t) = bench() else { return };
        let mut shells: Vec<Shell> = (0..2 * PROCESSES_PER_LOOK + 1)
            .map(|_| Shell::start("read go; exec sleep 600"))
            .collect();
        for s in &shells {
            t.machine.place(s.id, t.a, None).unwrap();
        }
        shells.iter_mut().for_each(Shell::go_on);
        let mut found: Vec<ThreadId> = (0..3).flat_map(|_| t.machine.look_for_exec()).collect();
        found.sort_unstable_by_key(|id| id.tid);
        let mut all: Vec<ThreadId> = shells.iter().map(|s| s.id).collect();
        all.sort_unstable_by_key(|id| id.tid);
        assert_eq!(found, all);
    }

    #[test]
    fn a_cpu_that_does_not_exist_changes_nothing() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        let nowhere = CpuId(16_000);
        t.machine.managed.get_mut(&w.id).unwrap().original.insert(nowhere);
        let refused = t.machine.place(w.id, nowhere, None);
        assert_eq!(refused, Err(ApplyError::Unusable { wanted: CpuSet::single(nowhere) }));
        assert_eq!(w.mask(), CpuSet::single(t.a));
        assert_eq!(t.record(w.id).1[0], CpuSet::single(t.a));
    }

    #[test]
    fn a_thread_that_becomes_a_real_time_thread_is_let_go() {
        let Some(mut t) = bench() else { return };
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        let tid = w.id.tid.0;
        let (say, became) = channel();
        w.run(move || {
            let p = libc::sched_param { sched_priority: 1 };
            // SAFETY: the kernel only reads the structure, which is live.
            say.send(unsafe { libc::sched_setscheduler(tid, libc::SCHED_FIFO, &raw const p) } == 0)
                .unwrap();
        });
        if !became.recv().unwrap() {
            return evenly_testing::skip("realtime", "not permitted to make a real-time thread");
        }
        assert!(matches!(t.machine.place(w.id, t.b, None), Err(ApplyError::Refused(_))));
        assert_eq!(w.mask(), t.whole);
    }

    #[test]
    fn threads_that_ended_unasked_are_forgotten() {
        let Some(mut t) = bench() else { return };
        let mut out = Vec::new();
        for _ in 0..100 {
            let w = Worker::new();
            t.machine.place(w.id, t.a, None).unwrap();
            t.machine.restore(w.id);
            drop(w);
            t.machine.read(&[], &mut out);
        }
        assert!(t.machine.managed.len() <= 65);
    }

    /// What a mask counts as, at each step of a story: cpuset, times that it changed, mask found.
    fn story(original: &str, set: &str, steps: &[(&str, u64, &str, bool)]) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let journal = Journal::create(&dir, None).unwrap();
        let id = ThreadId { tid: Tid(1), start: 1 };
        let mut m = Managed {
            pid: Pid(1),
            original: cpus(original),
            set: cpus(set),
            slot: journal.meet(id, Pid(1), &cpus(original)).unwrap(),
            cpuset_changes: 0,
            suspect: None,
            left_alone: false,
            told: CpuSet::new(),
        };
        for (i, &(cpuset, changes, found, ours)) in steps.iter().enumerate() {
            assert_eq!(m.explains(&cpus(found), &cpus(cpuset), changes), ours, "step {i}");
        }
    }

    #[test]
    fn cpusets_that_shrink_and_grow_explain_masks() {
        // What is left, all that is left, and as it was.
        let steps = [("0-1", 1, "0-1", true), ("0-3", 2, "3", true), ("2-3", 3, "3", true)];
        story("0-7", "3", &steps);
        // Before kernel 6.2 the mask is forgotten.
        story("0-7", "3", &[("0-1", 1, "0-1", true), ("0-3", 2, "0-3", true)]);
        story("2-7", "3", &[("0-3", 1, "0-3", true)]);
        // Without a change it is the program's wish.
        story("2-7", "3", &[("0-3", 0, "0-3", false), ("0-3", 0, "1", false)]);
        // Given back.
        story("0-3", "1", &[("0-7", 0, "0-3", true)]);
        story("0-3", "1", &[("2-7", 1, "2-3", true)]);
        story("0-3", "1", &[("0-7", 0, "0-2", false)]);
    }
}
