//! Finds the threads of a program: of its process, its children and theirs, as they come and go.
//!
//! Invariant: a thread is told apart from an earlier one with the same id by its start time, or by
//! a descriptor that was opened on it and that the kernel fails once it has ended. A process that
//! has been met stays known until it ends, even if its parent ends first.
//!
//! Cost: a process whose number of threads has not changed (one `stat` call on its task directory)
//! is listed again only now and then, and a thread that is known costs one `pread`. Of a thread
//! that has never wanted a CPU to speak of, nothing but its times is read: programs have thousands
//! of such threads, and nobody needs their names.

use crate::proc::{Proc, Stat, parse_schedstat, read_all};
use evenly_engine::{Candidate, RunState, Times};
use evenly_model::{Nanos, Pid, ThreadId, Tid};
use rustix::fs::{Mode, OFlags, openat};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

/// A listing is trusted for this long while the number of threads stays the same.
const LISTING: Nanos = Nanos::from_millis(1_000);
/// For how many passes a process is taken not to be of the program.
const STRANGERS: u32 = 16;
/// How many threads without any use of a CPU have their state looked at in one scan.
const STATES: usize = 128;
/// A thread that has wanted a CPU for this long since it started is more than a sleeper.
const SLEEPS: Nanos = Nanos::from_millis(1);

/// What is known of a thread that has wanted a CPU.
struct Known {
    id: ThreadId,
    name: String,
    fair: bool,
    state: RunState,
}

impl Known {
    fn new(tid: Tid, stat: &Stat) -> Self {
        let id = ThreadId { tid, start: stat.start };
        Self { id, name: stat.name(), fair: stat.is_fair(), state: stat.run_state() }
    }
}

struct Thread {
    tid: Tid,
    file: Option<File>,
    times: Times,
    known: Option<Known>,
}

struct Process {
    start: u64,
    /// Its task directory, so that threads are found by a short path.
    tasks: Option<File>,
    threads: HashMap<Tid, Thread>,
    links: u64,
    /// When its threads were listed last; None: not yet.
    listed: Option<Nanos>,
}

/// Scans a program's threads.
pub struct Scanner {
    proc: Proc,
    root: Pid,
    me: Pid,
    processes: HashMap<Pid, Process>,
    /// Processes that are not of the program, and the pass in which that was last checked: ids are
    /// used again.
    strangers: HashMap<Pid, u32>,
    pass: u32,
    files: usize,
    most_files: usize,
    next_state: usize,
    /// Threads that have been found since they were last asked for.
    newcomers: Vec<Tid>,
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
            strangers: HashMap::new(),
            pass: 0,
            files: 0,
            most_files,
            next_state: 0,
            newcomers: Vec::new(),
        }
    }

    /// Looks for processes of the program that have appeared since: one pass over all processes of
    /// the machine, so not for every scan.
    pub fn find_processes(&mut self) {
        let mut parents = HashMap::new();
        self.pass = self.pass.wrapping_add(1);
        let pass = self.pass;
        // Each stranger is looked at again now and then, not all in the same pass.
        self.strangers.retain(|pid, checked| {
            pass.wrapping_sub(*checked) < STRANGERS + pid.0.unsigned_abs() % STRANGERS
        });
        for pid in self.proc.processes() {
            if pid != self.me
                && !self.strangers.contains_key(&pid)
                && !self.processes.contains_key(&pid)
                && let Some(stat) = self.proc.process_stat(pid)
            {
                parents.insert(pid, (stat.ppid, stat.start));
            }
        }
        if !self.processes.contains_key(&self.root)
            && let Some(&(_, start)) = parents.get(&self.root)
        {
            self.add(self.root, start);
        }
        // Children of children may come before their parents in the listing.
        loop {
            let found: Vec<(Pid, u64)> = parents
                .iter()
                .filter(|(_, (parent, _))| self.processes.contains_key(parent))
                .map(|(&pid, &(_, start))| (pid, start))
                .collect();
            if found.is_empty() {
                self.strangers.extend(parents.into_keys().map(|pid| (pid, pass)));
                return;
            }
            for (pid, start) in found {
                parents.remove(&pid);
                self.add(pid, start);
            }
        }
    }

    fn add(&mut self, pid: Pid, start: u64) {
        let tasks = (self.files < self.most_files)
            .then(|| File::open(self.proc.process_file(pid, "task")).ok())
            .flatten();
        self.files += usize::from(tasks.is_some());
        let (threads, listed) = (HashMap::new(), None);
        self.processes.insert(pid, Process { start, tasks, threads, links: 0, listed });
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

    /// How many threads it had at the last scan, those included that have never computed.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.processes.values().map(|p| p.threads.len()).sum()
    }

    /// How many of its threads that have computed are of a real-time or deadline class.
    #[must_use]
    pub fn realtime_threads(&self) -> usize {
        let threads = self.processes.values().flat_map(|p| p.threads.values());
        threads.filter(|t| t.known.as_ref().is_some_and(|k| !k.fair)).count()
    }

    /// The threads of the known processes that have wanted a CPU, with their times. Names and
    /// states are fresh for threads that compute and for a part of the others. Looks for new
    /// threads, and for threads that have begun to compute.
    pub fn scan(&mut self, now: Nanos) -> Vec<Candidate> {
        self.look_at_threads(now, true)
    }

    /// As [`Scanner::scan`], but of the threads that have wanted a CPU by the last scan only: its
    /// cost does not depend on how many others there are.
    pub fn glance(&mut self, now: Nanos) -> Vec<Candidate> {
        self.look_at_threads(now, false)
    }

    fn look_at_threads(&mut self, now: Nanos, all: bool) -> Vec<Candidate> {
        let mut found = Vec::new();
        let (mut states, mut seen) = (STATES, 0);
        let first_state = self.next_state;
        let mut dead = Vec::new();
        for (&pid, process) in &mut self.processes {
            let task = self.proc.process_file(pid, "task");
            let Ok(links) = fs::metadata(&task).map(|m| m.nlink()) else {
                dead.push(pid);
                continue;
            };
            let new = process.listed.is_none();
            let old = process.listed.is_none_or(|t| now - t > LISTING);
            if new || (all && (links != process.links || old)) {
                (process.links, process.listed) = (links, Some(now));
                let newcomers = &mut self.newcomers;
                if !list(&self.proc, pid, process, &mut self.files, self.most_files, newcomers) {
                    dead.push(pid);
                    continue;
                }
            }
            let before = process.threads.len();
            process.threads.retain(|_, t| {
                if !all && t.known.is_none() {
                    return true;
                }
                let Some(times) = read_times(&self.proc, t) else {
                    self.files -= usize::from(t.file.is_some());
                    return false;
                };
                let idle = times == t.times;
                let sleeper = t.known.is_none() && times.ran + times.waited < SLEEPS;
                t.times = times;
                seen += 1;
                let in_turn = all && states > 0 && seen > first_state;
                if (!idle && !sleeper) || in_turn {
                    if idle || sleeper {
                        states -= 1;
                        self.next_state = seen;
                    }
                    if let Some(stat) = self.proc.thread_stat(t.tid) {
                        look(t, &stat, sleeper);
                    }
                }
                if let Some(known) = &t.known {
                    found.push(Candidate {
                        id: known.id,
                        pid,
                        name: known.name.clone(),
                        first: t.tid.0 == pid.0,
                        fair: known.fair,
                        times,
                        state: known.state,
                    });
                }
                true
            });
            if process.threads.len() != before {
                process.links = 0;
            }
        }
        if all && states > 0 {
            self.next_state = 0;
        }
        for pid in dead {
            if let Some(p) = self.processes.remove(&pid) {
                self.files -= p.threads.values().filter(|t| t.file.is_some()).count();
                self.files -= usize::from(p.tasks.is_some());
            }
        }
        found
    }
}

/// Takes over what `stat` says. One that sleeps stays unknown, unless it waits for its first CPU.
fn look(thread: &mut Thread, stat: &Stat, sleeper: bool) {
    match &mut thread.known {
        Some(known) => {
            let id = known.id;
            *known = Known { id, ..Known::new(thread.tid, stat) };
        }
        None if sleeper && stat.run_state() != RunState::Runnable => {}
        none => *none = Some(Known::new(thread.tid, stat)),
    }
}

/// Brings the list of threads of a process up to date. False if it has ended or is another one.
fn list(
    proc: &Proc,
    pid: Pid,
    process: &mut Process,
    files: &mut usize,
    most: usize,
    newcomers: &mut Vec<Tid>,
) -> bool {
    if proc.process_stat(pid).is_none_or(|s| s.start != process.start) {
        return false;
    }
    let tids = proc.threads(pid);
    for &tid in &tids {
        if process.threads.contains_key(&tid) {
            continue;
        }
        let file = (*files < most).then(|| open(proc, process.tasks.as_ref(), tid)).flatten();
        *files += usize::from(file.is_some());
        let thread = Thread { tid, file, times: Times::default(), known: None };
        process.threads.insert(tid, thread);
        newcomers.push(tid);
    }
    // A thread without a descriptor is only known to have ended by not being listed any more.
    if process.threads.len() > tids.len() {
        let listed: HashSet<Tid> = tids.iter().copied().collect();
        process.threads.retain(|tid, t| {
            let stays = listed.contains(tid);
            *files -= usize::from(!stays && t.file.is_some());
            stays
        });
    }
    !tids.is_empty()
}

/// The times of a thread, by a descriptor that stays with it whatever becomes of its id.
fn open(proc: &Proc, tasks: Option<&File>, tid: Tid) -> Option<File> {
    let Some(tasks) = tasks else { return File::open(proc.thread_file(tid, "schedstat")).ok() };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(tasks, format!("{tid}/schedstat"), flags, Mode::empty()).ok().map(File::from)
}

fn read_times(proc: &Proc, thread: &Thread) -> Option<Times> {
    match &thread.file {
        Some(file) => {
            let mut buffer = [0u8; 96];
            let n = file.read_at(&mut buffer, 0).ok()?;
            parse_schedstat(buffer.get(..n)?)
        }
        None => {
            let text = read_all(&proc.thread_file(thread.tid, "schedstat")).ok()?;
            let times = parse_schedstat(&text)?;
            let same =
                |k: &Known| proc.thread_stat(thread.tid).is_some_and(|s| s.start == k.id.start);
            thread.known.as_ref().is_none_or(same).then_some(times)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Barrier};

    #[test]
    fn children_of_children_are_found_and_lost() {
        let mut shell =
            Command::new("sh").args(["-c", "sh -c 'sleep 60 & wait' & wait"]).spawn().unwrap();
        let mut scanner = Scanner::new(Proc::default(), Pid(shell.id() as i32), 100);
        loop {
            scanner.find_processes();
            scanner.scan(Nanos::ZERO);
            if scanner.processes() >= 3 {
                break;
            }
        }
        assert_eq!(scanner.threads(), 3);
        for pid in scanner.processes.keys().copied().collect::<Vec<_>>() {
            // SAFETY: kill(2) takes two integers and touches no memory of ours.
            unsafe { libc::kill(pid.0, libc::SIGKILL) };
        }
        shell.wait().unwrap();
        while scanner.processes() > 0 {
            scanner.scan(Nanos::ZERO);
        }
        assert_eq!((scanner.threads(), scanner.files), (0, 0));
    }

    #[test]
    fn threads_come_and_go_with_and_without_descriptors() {
        for most_files in [100, 0] {
            let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(4)));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (stop, started) = (stop.clone(), started.clone());
                    std::thread::Builder::new()
                        .name("scan) me".into())
                        .spawn(move || {
                            started.wait();
                            while !stop.load(Ordering::Relaxed) {
                                std::hint::spin_loop();
                            }
                        })
                        .unwrap()
                })
                .collect();
            started.wait();
            let me = Pid(std::process::id() as i32);
            let mut scanner = Scanner::new(Proc::default(), me, most_files);
            scanner.add(me, Proc::default().process_stat(me).unwrap().start);
            let count = |s: &mut Scanner, now| {
                s.scan(Nanos::from_millis(now)).iter().filter(|c| c.name == "scan) me").count()
            };
            let mut now = 0;
            while count(&mut scanner, now) != 3 {
                now += 2_000;
            }
            assert!(scanner.files <= most_files);
            stop.store(true, Ordering::Relaxed);
            for t in threads {
                t.join().unwrap();
            }
            while count(&mut scanner, now) != 0 {
                now += 2_000;
            }
        }
    }

    #[test]
    fn sleepers_are_counted_and_nothing_more() {
        let stop = Arc::new(Barrier::new(21));
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let stop = stop.clone();
                std::thread::Builder::new()
                    .name("sleeper".into())
                    .spawn(move || stop.wait())
                    .unwrap()
            })
            .collect();
        let me = Pid(std::process::id() as i32);
        let proc = Proc::default();
        let asleep = || {
            let stats = proc.threads(me).into_iter().filter_map(|t| proc.thread_stat(t));
            let mut sleepers = stats.filter(|s| s.comm.as_slice() == b"sleeper");
            sleepers.by_ref().filter(|s| s.state == b'S').count() == 20
        };
        while !asleep() {}
        let mut scanner = Scanner::new(Proc::default(), me, 100);
        scanner.add(me, Proc::default().process_stat(me).unwrap().start);
        let found = scanner.scan(Nanos::ZERO);
        assert!(scanner.threads() > 20);
        // All of them, once.
        let newcomers = scanner.take_newcomers();
        assert_eq!(newcomers.len(), scanner.threads());
        assert_eq!(newcomers.iter().collect::<HashSet<_>>().len(), newcomers.len());
        // On a busy machine some have waited for long to get to where they sleep, and count.
        let seen = scanner.processes.values().flat_map(|p| p.threads.values());
        let (mut quiet, mut busy) = (0, 0);
        for t in seen
            .filter(|t| proc.thread_stat(t.tid).is_some_and(|s| s.comm.as_slice() == b"sleeper"))
        {
            let little = t.times.ran + t.times.waited < SLEEPS;
            assert_eq!(t.known.is_none(), little, "{:?}", t.times);
            quiet += usize::from(little);
            busy += usize::from(!little);
        }
        assert_eq!(quiet + busy, 20);
        assert_eq!(found.iter().filter(|c| c.name == "sleeper").count(), busy);
        stop.wait();
        for t in threads {
            t.join().unwrap();
        }
    }
}
