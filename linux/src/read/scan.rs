//! Finds the threads of a program: of its process, its children and theirs, as they come and go.
//!
//! Three kinds of work, each done in pieces of at most about [`PIECE`] readings, so that a
//! caller with an overhead budget can stop after any of them, and so that balancing points happen in
//! between:
//!
//! - [`Scanner::find_processes`] goes over all processes of the machine for those of the program.
//! - [`Scanner::search`] goes over the threads of those that have never wanted a CPU to speak of,
//!   for such that do by now, and lists those that are new.
//! - [`Scanner::look`] reads the threads that have wanted a CPU, the [`Scanner::candidates`].
//!
//! Invariants: a thread is distinguished from an earlier one with the same id by its start time, or by
//! a descriptor that was opened on it and that the kernel fails once it has ended. A process that
//! has been found stays known until it ends, even if its parent ends first. Once all threads are known
//! a search and a look allocate nothing.
//!
//! Cost: a process whose number of threads has not changed (one `fstat` of its task directory) is
//! listed again only now and then, and a thread that is known costs one `pread`. Of a thread that
//! has never wanted a CPU to speak of, nothing but its times is read: programs have thousands of
//! such threads, and their names are not needed.
//!
//! Times are read from `schedstat` here, whatever `--source` says: that is for the threads that are
//! balanced. Most threads of which there are many sleep, and a question and an answer by netlink for
//! each of them would cost several times as much as the one `pread`. Nothing is lost: a kernel that reports
//! waiting times by taskstats has `schedstat` (CONFIG_TASK_DELAY_ACCT selects CONFIG_SCHED_INFO).

use crate::proc::{Proc, Stat, read_schedstat};
use evenly_engine::{Candidate, RunState, Times};
use evenly_model::{Nanos, Pid, ThreadId, Tid};
use rustix::fs::{Mode, OFlags, RawDir, fstat, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt};

/// How much is done in one piece, in readings of a thread's times; what else is done counts as many
/// as take as long. The last thing that is begun in a piece can take it past this by a part of a directory
/// with all threads in it.
pub const PIECE: usize = 256;
/// A file that is opened.
const OPEN: usize = 6;
/// `stat` of a thread, opened and read.
const STAT: usize = 12;
/// A part of a directory.
const LIST: usize = 16;
/// Bytes that are listed in one call.
const LIST_BYTES: usize = 1024;

/// A listing is trusted for this long while the number of threads stays the same.
const LISTING: Nanos = Nanos::from_millis(1_000);
/// Links of the task directory of a process with one thread: no other can have taken its place.
const ONE_THREAD: u64 = 3;
/// For so long no process is looked for where the kernel has given out no number since: to go over all of them takes twenty times as
/// long as to ask that. Not for longer, as who stands in for the kernel in a container may answer late.
const NONE_NEW: Nanos = Nanos::from_millis(2_000);
/// For how many passes a process is taken not to be of the program.
const STRANGERS: u32 = 16;
/// How many threads without any use of a CPU have their state looked at in one search, and of those
/// that have wanted one, and rest, in one look.
const STATES: usize = 128;
/// The state of a thread that wanted a CPU for most of the time since it was read says no more than that. So it is looked at again
/// after this long, for its name and how it is scheduled; while it is new, each time.
const NAMES: Nanos = Nanos::from_millis(1_000);
const NEW: Nanos = Nanos::from_millis(2_000);
/// A thread that has wanted a CPU for this long since it started is more than a sleeper.
const SLEEPS: Nanos = Nanos::from_millis(1);

/// How much has been done in a piece.
#[derive(Default)]
struct Work(usize);

impl Work {
    fn is_done(&self) -> bool {
        self.0 >= PIECE
    }
}

struct Thread {
    tid: Tid,
    pid: Pid,
    /// Start time of its process.
    process: u64,
    /// Its times, by a descriptor that stays with it whatever becomes of its id.
    file: Option<File>,
    /// Since when it has been known to want a CPU, and when its state was looked at last.
    since: Nanos,
    looked_at: Nanos,
}

struct Process {
    start: u64,
    /// Its task directory, so that threads are found by a short path.
    tasks: Option<File>,
    /// The ids of those of its threads that have been found.
    tids: HashSet<Tid>,
    /// Links of its task directory when its threads were listed: two more than it had threads. 0:
    /// they are to be listed again.
    links: u64,
    /// When they were listed last; None: not yet.
    listed: Option<Nanos>,
}

/// A process whose threads are being listed.
struct Listing {
    pid: Pid,
    dir: File,
    any: bool,
}

/// How far a search for threads has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// None is going on.
    Rest,
    /// At the processes, whose new threads are looked for.
    Processes,
    /// At the threads that sleep.
    Sleepers,
}

/// Which of many threads have their state looked at, so that each has its turn.
#[derive(Default)]
struct Turns {
    first: usize,
    next: usize,
    left: usize,
}

impl Turns {
    fn begin(&mut self) {
        (self.first, self.next, self.left) = (self.next, 0, STATES);
    }

    fn has(&mut self, at: usize) -> bool {
        let turn = self.left > 0 && at >= self.first;
        if turn {
            self.left -= 1;
            // Where all have had their turn the next pass begins at the first.
            self.next = if self.left == 0 { at + 1 } else { 0 };
        }
        turn
    }
}

/// Scans a program's threads.
pub struct Scanner {
    proc: Proc,
    root: Pid,
    me: Pid,
    processes: HashMap<Pid, Process>,
    /// Those whose threads have never been listed.
    fresh: Vec<Pid>,
    /// Processes that are not of the program, and the pass in which that was last checked: ids are
    /// used again.
    strangers: HashMap<Pid, u32>,
    pass: u32,
    /// The directory of all processes while it is being gone over, and what was found in it.
    finding: Option<File>,
    parents: HashMap<Pid, (Pid, u64)>,
    /// When they were gone over last, and the last number that had been given out before.
    found_at: Option<(Nanos, Option<Pid>)>,
    /// Threads that have not wanted a CPU to speak of.
    sleepers: Vec<Thread>,
    /// Threads that have; beside each, in the other list, what is reported of it.
    known: Vec<Thread>,
    candidates: Vec<Candidate>,
    stage: Stage,
    listing: Option<Listing>,
    /// Processes that a search has yet to come to.
    queue: Vec<Pid>,
    /// How far the search has come among the sleepers, and the look among those that are known.
    at_sleeper: usize,
    at_known: usize,
    turns_of_sleepers: Turns,
    turns_of_known: Turns,
    files: usize,
    most_files: usize,
    /// Threads that have been found since they were last asked for.
    newcomers: Vec<Tid>,
    /// How many threads have come, gone, or begun to want a CPU.
    changes: u64,
    /// What the last piece came to.
    last_piece: usize,
}

impl Scanner {
    /// For the program whose first process is `root`. At most `most_files` descriptors are kept
    /// open; further threads are read by opening their files each time.
    #[must_use]
    pub fn new(proc: Proc, root: Pid, most_files: usize) -> Self {
        Self {
            proc,
            root,
            me: Pid(std::process::id().cast_signed()),
            processes: HashMap::new(),
            fresh: Vec::new(),
            strangers: HashMap::new(),
            pass: 0,
            finding: None,
            parents: HashMap::new(),
            found_at: None,
            sleepers: Vec::new(),
            known: Vec::new(),
            candidates: Vec::new(),
            stage: Stage::Rest,
            listing: None,
            queue: Vec::new(),
            at_sleeper: 0,
            at_known: 0,
            turns_of_sleepers: Turns::default(),
            turns_of_known: Turns::default(),
            files: 0,
            most_files,
            newcomers: Vec::new(),
            changes: 0,
            last_piece: 0,
        }
    }

    /// One piece of work, of which note is taken how much it was.
    fn piece(&mut self, work: impl FnOnce(&mut Self, &mut Work) -> bool) -> bool {
        let mut amount = Work::default();
        let done = work(self, &mut amount);
        self.last_piece = amount.0;
        done
    }

    /// One piece of looking for processes of the program that have appeared since, among all of the
    /// machine. True when that is done.
    pub fn find_processes(&mut self, now: Nanos) -> bool {
        self.piece(|scanner, work| scanner.find_some(now, work))
    }

    fn find_some(&mut self, now: Nanos, work: &mut Work) -> bool {
        let dir = match self.finding.take() {
            Some(dir) => dir,
            None => {
                let last = self.proc.last_number();
                work.0 += OPEN;
                let is_same = |(at, before)| now - at < NONE_NEW && before == last;
                if last.is_some() && self.found_at.is_some_and(is_same) {
                    // As strangers are looked at again after some passes, one that was left out counts as well.
                    self.pass = self.pass.wrapping_add(1);
                    return true;
                }
                self.begin_finding(work);
                let Ok(dir) = File::open(self.proc.root()) else { return true };
                self.found_at = Some((now, last));
                dir
            }
        };
        while !work.is_done() {
            let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
            let mut entries = RawDir::new(&dir, &mut buffer);
            work.0 += LIST;
            loop {
                let Some(Ok(entry)) = entries.next() else {
                    self.add_descendants();
                    return true;
                };
                if let Some(pid) = number(entry.file_name()).map(Pid)
                    && pid != self.me
                    && !self.strangers.contains_key(&pid)
                    && !self.processes.contains_key(&pid)
                {
                    work.0 += STAT;
                    // Of the first thread alone: the kernel adds up all of a process.
                    if let Some(stat) = self.proc.thread_stat(Tid(pid.0)) {
                        self.parents.insert(pid, (stat.ppid, stat.start));
                    }
                }
                if entries.is_buffer_empty() {
                    break;
                }
            }
        }
        self.finding = Some(dir);
        false
    }

    fn begin_finding(&mut self, work: &mut Work) {
        self.pass = self.pass.wrapping_add(1);
        let pass = self.pass;
        // Each stranger is looked at again now and then, not all in the same pass.
        self.strangers.retain(|pid, checked| {
            pass.wrapping_sub(*checked) < STRANGERS + pid.0.unsigned_abs() % STRANGERS
        });
        self.parents.clear();
        if !self.processes.contains_key(&self.root) {
            work.0 += STAT + OPEN;
            if let Some(stat) = self.proc.thread_stat(Tid(self.root.0)) {
                self.add(self.root, stat.start);
            }
        }
    }

    /// Adds those of the processes found that descend from the program's. Children of children may
    /// have come before their parents in the listing.
    fn add_descendants(&mut self) {
        let mut parents = std::mem::take(&mut self.parents);
        loop {
            let found: Vec<(Pid, u64)> = parents
                .iter()
                .filter(|(_, (parent, _))| self.processes.contains_key(parent))
                .map(|(&pid, &(_, start))| (pid, start))
                .collect();
            if found.is_empty() {
                break;
            }
            for (pid, start) in found {
                parents.remove(&pid);
                self.add(pid, start);
            }
        }
        let pass = self.pass;
        self.strangers.extend(parents.drain().map(|(pid, _)| (pid, pass)));
        self.parents = parents;
    }

    fn add(&mut self, pid: Pid, start: u64) {
        let tasks = (self.files < self.most_files)
            .then(|| File::open(self.proc.process_file(pid, "task")).ok())
            .flatten();
        self.files += usize::from(tasks.is_some());
        let process = Process { start, tasks, tids: HashSet::new(), links: 0, listed: None };
        self.processes.insert(pid, process);
        self.fresh.push(pid);
    }

    /// Forgets a process that has ended. Its threads are dropped when they are come to.
    fn remove(&mut self, pid: Pid) {
        if let Some(p) = self.processes.remove(&pid) {
            // It may be there all the same, where it could not be read for a moment.
            self.found_at = None;
            self.files -= usize::from(p.tasks.is_some());
        }
    }

    /// Whether processes have been found whose threads have not been listed yet.
    #[must_use]
    pub fn has_new_processes(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Forgets the first process if it has ended, without waiting for the next search.
    pub fn look_at_root(&mut self) {
        if let Some(p) = self.processes.get(&self.root)
            && links(&self.proc, self.root, p).is_none_or(|l| l < ONE_THREAD)
        {
            self.remove(self.root);
        }
    }

    /// Takes the threads that have been found since this was called last, whether they compute or
    /// not: they may have inherited a mask.
    pub fn take_newcomers(&mut self) -> Vec<Tid> {
        std::mem::take(&mut self.newcomers)
    }

    /// How many processes the program has.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// How many threads it had when each was last read, those included that have never computed.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.sleepers.len() + self.known.len()
    }

    /// How many threads have come, gone, or begun to want a CPU since it began.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The threads that have wanted a CPU, as of when each was last read.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// How much the last piece of work came to, in readings of a thread's times.
    #[must_use]
    pub fn last_piece(&self) -> usize {
        self.last_piece
    }

    /// One piece of looking for new threads, and for threads that have begun to compute. True when
    /// all have been looked at.
    pub fn search(&mut self, now: Nanos) -> bool {
        self.piece(|scanner, work| scanner.search_some(now, work))
    }

    fn search_some(&mut self, now: Nanos, work: &mut Work) -> bool {
        while !work.is_done() {
            if let Some(listing) = self.listing.take() {
                self.go_on_listing(listing, work);
            } else if let Some(pid) = self.fresh.pop() {
                self.begin_listing(pid, now, work);
            } else if self.stage == Stage::Rest {
                self.queue.clear();
                self.queue.extend(self.processes.keys());
                self.stage = Stage::Processes;
            } else if self.stage == Stage::Processes {
                match self.queue.pop() {
                    Some(pid) => self.look_at_process(pid, now, work),
                    None => {
                        self.stage = Stage::Sleepers;
                        self.at_sleeper = 0;
                        self.turns_of_sleepers.begin();
                    }
                }
            } else if self.at_sleeper < self.sleepers.len() {
                self.read_sleeper(now, work);
            } else {
                self.stage = Stage::Rest;
                return true;
            }
        }
        false
    }

    fn look_at_process(&mut self, pid: Pid, now: Nanos, work: &mut Work) {
        work.0 += 1;
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(links) = links(&self.proc, pid, process) else { return self.remove(pid) };
        let old = links != ONE_THREAD && process.listed.is_none_or(|t| now - t > LISTING);
        if links != process.links || old {
            self.begin_listing(pid, now, work);
        }
    }

    fn begin_listing(&mut self, pid: Pid, now: Nanos, work: &mut Work) {
        work.0 += OPEN + STAT;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let dir = File::open(self.proc.process_file(pid, "task")).ok();
        let dir = dir.and_then(|d| d.metadata().ok().map(|m| (d, m.nlink())));
        let same = self.proc.thread_stat(Tid(pid.0)).is_some_and(|s| s.start == process.start);
        match dir {
            Some((dir, links)) if same => {
                (process.links, process.listed) = (links, Some(now));
                self.listing = Some(Listing { pid, dir, any: false });
            }
            _ => self.remove(pid),
        }
    }

    fn go_on_listing(&mut self, mut listing: Listing, work: &mut Work) {
        let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&listing.dir, &mut buffer);
        work.0 += LIST;
        loop {
            let Some(Ok(entry)) = entries.next() else {
                if !listing.any {
                    self.remove(listing.pid);
                }
                return;
            };
            if let Some(tid) = number(entry.file_name()).map(Tid)
                && let Some(process) = self.processes.get_mut(&listing.pid)
            {
                listing.any = true;
                if process.tids.insert(tid) {
                    work.0 += OPEN;
                    let file = (self.files < self.most_files)
                        .then(|| open(Some(&listing.dir), tid, "schedstat"))
                        .flatten();
                    self.files += usize::from(file.is_some());
                    let (pid, process) = (listing.pid, process.start);
                    let never = Nanos::ZERO;
                    let thread = Thread { tid, pid, process, file, since: never, looked_at: never };
                    self.sleepers.push(thread);
                    self.newcomers.push(tid);
                    self.changes += 1;
                }
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        self.listing = Some(listing);
    }

    /// Reads the sleeper that the search has come to. One that has wanted a CPU, or waits for its
    /// first one, becomes known.
    fn read_sleeper(&mut self, now: Nanos, work: &mut Work) {
        let at = self.at_sleeper;
        let thread = &self.sleepers[at];
        let tasks = self.processes.get(&thread.pid).and_then(|p| p.tasks.as_ref());
        let Some(times) = read_times(&self.proc, tasks, thread, work) else {
            let thread = self.sleepers.swap_remove(at);
            return self.dropped(&thread);
        };
        let sleeper = times.ran + times.waited < SLEEPS;
        if (!sleeper || self.turns_of_sleepers.has(at))
            && let Some(stat) = read_stat(&self.proc, tasks, thread, work)
            && (!sleeper || stat.run_state() == RunState::Runnable)
        {
            self.candidates.push(Candidate {
                id: ThreadId { tid: thread.tid, start: stat.start },
                pid: thread.pid,
                name: stat.name(),
                first: thread.tid.0 == thread.pid.0,
                fair: stat.is_fair(),
                times,
                state: stat.run_state(),
                read_at: now,
            });
            let thread = self.sleepers.swap_remove(at);
            self.known.push(Thread { since: now, looked_at: now, ..thread });
            self.changes += 1;
            return;
        }
        self.at_sleeper += 1;
    }

    /// Takes note of a thread that is no longer in any list.
    fn dropped(&mut self, thread: &Thread) {
        self.files -= usize::from(thread.file.is_some());
        self.changes += 1;
        if let Some(p) = self.processes.get_mut(&thread.pid)
            && p.start == thread.process
        {
            p.tids.remove(&thread.tid);
            // Another may have come at the same time.
            p.links = 0;
        }
    }

    /// One piece of reading the threads that have wanted a CPU. Names and states are fresh for those
    /// that compute and for a part of the others. True when all have been read.
    pub fn look(&mut self, now: Nanos) -> bool {
        self.piece(|scanner, work| scanner.look_at_some(now, work))
    }

    fn look_at_some(&mut self, now: Nanos, work: &mut Work) -> bool {
        if self.at_known == 0 {
            self.turns_of_known.begin();
        }
        while self.at_known < self.known.len() {
            if work.is_done() {
                return false;
            }
            if self.read_known(self.at_known, now, work) {
                self.at_known += 1;
            } else {
                let thread = self.known.swap_remove(self.at_known);
                self.candidates.swap_remove(self.at_known);
                self.dropped(&thread);
            }
        }
        self.at_known = 0;
        true
    }

    /// False where the thread has ended.
    fn read_known(&mut self, at: usize, now: Nanos, work: &mut Work) -> bool {
        let (thread, candidate) = (&mut self.known[at], &mut self.candidates[at]);
        let tasks = self.processes.get(&thread.pid).and_then(|p| p.tasks.as_ref());
        let Some(times) = read_times(&self.proc, tasks, thread, work) else { return false };
        let wanted = (times.ran + times.waited) - (candidate.times.ran + candidate.times.waited);
        let computes = wanted.0 * 2 >= (now - candidate.read_at).0
            && now - thread.since >= NEW
            && now - thread.looked_at < NAMES;
        let idle = times == candidate.times;
        let look = if idle { self.turns_of_known.has(at) } else { !computes };
        // Without a descriptor a thread is distinguished from another one of its id by its start alone.
        if look || thread.file.is_none() {
            match read_stat(&self.proc, tasks, thread, work) {
                Some(stat) if stat.start == candidate.id.start => {
                    if stat.comm.as_slice() != candidate.name.as_bytes() {
                        candidate.name = stat.name();
                    }
                    (candidate.fair, candidate.state) = (stat.is_fair(), stat.run_state());
                    thread.looked_at = now;
                }
                _ => return false,
            }
        }
        (candidate.times, candidate.read_at) = (times, now);
        true
    }
}

/// Links of the task directory of a process. None where it has ended.
fn links(proc: &Proc, pid: Pid, process: &Process) -> Option<u64> {
    match &process.tasks {
        #[allow(clippy::unnecessary_cast, reason = "32 bits on some architectures")]
        Some(dir) => fstat(dir).ok().map(|s| s.st_nlink as u64),
        None => std::fs::metadata(proc.process_file(pid, "task")).ok().map(|m| m.nlink()),
    }
}

/// The number that a directory entry is named by.
fn number(name: &CStr) -> Option<i32> {
    name.to_str().ok()?.parse().ok()
}

/// A file of a thread, by the task directory of its process. Nothing is allocated.
fn open(tasks: Option<&File>, tid: Tid, file: &str) -> Option<File> {
    let mut path = [0u8; 32];
    write!(&mut path[..31], "{tid}/{file}").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    openat(tasks?, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

/// The same where there is no descriptor for that directory.
fn open_by(proc: &Proc, tasks: Option<&File>, thread: &Thread, file: &str) -> Option<File> {
    match tasks {
        Some(_) => open(tasks, thread.tid, file),
        None => {
            let dir = proc.process_file(thread.pid, "task").join(thread.tid.to_string());
            File::open(dir.join(file)).ok()
        }
    }
}

fn read_times(
    proc: &Proc,
    tasks: Option<&File>,
    thread: &Thread,
    work: &mut Work,
) -> Option<Times> {
    work.0 += 1;
    if let Some(file) = &thread.file {
        return read_schedstat(file);
    }
    work.0 += OPEN;
    read_schedstat(&open_by(proc, tasks, thread, "schedstat")?)
}

fn read_stat(proc: &Proc, tasks: Option<&File>, thread: &Thread, work: &mut Work) -> Option<Stat> {
    work.0 += STAT;
    let mut buffer = [0u8; 1024];
    let n = open_by(proc, tasks, thread, "stat")?.read_at(&mut buffer, 0).ok()?;
    Stat::parse(buffer.get(..n)?)
}

#[cfg(test)]
mod tests;
