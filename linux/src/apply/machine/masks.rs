//! What is known of the masks of a program, over all domains: which threads have a mask of ours, what they
//! had before, and which processes may have become another program with it.
//!
//! Invariant: a mask of ours is noted here before it is set, so that whatever inherits it is recognised.

use crate::clock;
use crate::journal::Journal;
use crate::proc::{Image, Proc};
use evenly_engine::RunState;
use evenly_model::{CpuSet, Pid, ThreadId, Tid};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What evenly knows of the masks of a program.
pub struct Masks {
    pub(super) journal: Arc<Journal>,
    processes: Mutex<BTreeMap<Pid, ProcessMasks>>,
    /// The process that was looked at last for whether it has become another program.
    looked_at: Mutex<Option<Pid>>,
    /// Whether any mask was ever narrowed: until then nothing can have been inherited.
    pub(super) narrowed_any: AtomicBool,
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
    /// None where the process has ended, or its first thread alone has: nothing follows from that.
    fn of(proc: &Proc, pid: Pid) -> Option<Self> {
        let stat = proc.thread_stat(Tid(pid.0))?;
        let dead = stat.run_state() == RunState::Dead;
        (!dead).then_some(Self { start: stat.start, image: stat.image })
    }
}

/// How many processes are looked at in one look for exec.
pub(super) const PROCESSES_PER_LOOK: usize = 16;

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
    pub(super) fn can_be_inherited(&self, mask: &CpuSet) -> bool {
        self.narrowed_any.load(Ordering::Relaxed)
            && self.lock().values().any(|p| p.ours.iter().any(|o| o.mask == *mask))
    }

    /// What a thread had before, if it can only have its mask from one that we had narrowed: one of
    /// its own process, or of a process that descends to it. Where those differ it is what all of
    /// them allow.
    pub(super) fn inherited(
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
    pub(super) fn remember(
        &self,
        id: ThreadId,
        pid: Pid,
        mask: &CpuSet,
        original: &CpuSet,
        proc: &Proc,
    ) {
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
    pub(super) fn ended(&self, id: ThreadId, pid: Pid) {
        if let Some(p) = self.lock().get_mut(&pid) {
            p.narrowed.remove(&id);
        }
    }

    pub(super) fn processes(&self) -> Vec<Pid> {
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

/// Time since boot in the unit in which `/proc` shows when a thread started, rounded down.
pub(super) fn ticks_since_boot() -> u64 {
    let per_second = clock::ticks_per_second();
    let t = clock::since_boot();
    (u128::from(t.0) * u128::from(per_second) / 1_000_000_000) as u64
}
