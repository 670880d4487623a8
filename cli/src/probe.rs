//! `evenly run --probe on`: the probe loaded into the program, and what its threads say of their waiting.
//!
//! Invariant (promise P8): where the probe cannot be loaded one line says why, and the program runs without.

use crate::tell;
use evenly_engine::Waiting;
use evenly_linux::clock::{now, thread_cpu_time};
use evenly_linux::foreign::open_memory;
use evenly_linux::proc::read_all;
use evenly_linux::supervise::Threads;
use evenly_linux::wait_reports::{ReadWaitReports, ReportedWait};
use evenly_model::{CpuSet, Nanos, Pid, Tid};
use evenly_phase::Openings;
use evenly_probe::late::Late;
use evenly_probe::load::{Unseen, for_sanitizers, library, preload};
use evenly_probe::waiting::{
    self, Activity, Cooperation, Mapping, Observed, Peer, Reader, VARIABLE,
};
use evenly_report::{ProbeReport, ProbeThread, WaitedFor};
use evenly_topology::cache_dir;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How often threads are asked. What the last stretch of a thread was that ends in between is not known.
const INTERVAL: Duration = Duration::from_millis(250);
/// The part of a CPU that asking may take.
const SHARE: f64 = 0.002;
/// For how long what was read is as good as new.
const FRESH: Nanos = Nanos::from_millis(20);
/// Of so many threads an account is kept; a program can start and end them for days.
const MOST: usize = 16_384;

/// Of a thread at most so many others are remembered for which it was seen to wait, with the calls.
const MOST_OTHERS: usize = 256;

/// Makes one more reader of the wait reports of threads.
pub(crate) type OpenWaitReports = Box<dyn Fn() -> Option<ReadWaitReports> + Send>;

/// The probe for a program that is to be started: all but the thread that reads it, which may not be there
/// before the program is.
pub(crate) struct Prepared(Watch);

/// The probe in a program that runs.
pub(crate) struct Watch {
    // The programs look for it in this process.
    mapping: Arc<Mapping>,
    state: Arc<Mutex<WatchState>>,
}

struct WatchState {
    reader: Reader,
    seen: Vec<Observed>,
    threads: HashMap<(i32, u64), Known>,
    left_out: u64,
    fresh_until: Nanos,
}

/// What is known of a thread.
struct Known {
    last: Observed,
    /// How often it was seen to wait, for which thread or rank, and in which call.
    waiting: u32,
    waited_for: HashMap<(Call, Whom), u32>,
}

/// Where a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    /// In this call of MPI.
    Mpi(&'static str),
    /// In another wait, such as at a barrier.
    Other(Activity),
}

/// Whom it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whom {
    Peer(Peer),
    Thread(Tid),
}

impl Known {
    fn see(&mut self, o: &Observed, late: &Late) {
        self.last = *o;
        self.waiting += u32::from(o.activity.waits());
        let mut count = |call: Call, whom: Whom| {
            let key = (call, whom);
            if self.waited_for.len() < MOST_OTHERS || self.waited_for.contains_key(&key) {
                *self.waited_for.entry(key).or_default() += 1;
            }
        };
        if let (Some(call), Some(peer)) = (o.call().map(Call::Mpi), o.peer) {
            if peer == Peer::All {
                late.ranks(o).iter().for_each(|rank| count(call, Whom::Peer(Peer::World(*rank))));
            } else {
                count(call, Whom::Peer(peer));
            }
        }
        late.threads(o).iter().for_each(|tid| count(Call::Other(o.activity), Whom::Thread(*tid)));
    }

    fn report(&self) -> ProbeThread {
        let o = &self.last;
        let waited_for = self.waited_for.iter().map(|(&(call, whom), &seen)| {
            let (rank, world, tid) = match whom {
                Whom::Peer(Peer::World(rank)) => (Some(rank), true, None),
                Whom::Peer(Peer::Other(rank)) => (Some(rank), false, None),
                Whom::Peer(Peer::Anyone | Peer::All) => (None, false, None),
                Whom::Thread(tid) => (None, false, Some(tid)),
            };
            let call = match call {
                Call::Mpi(name) => format!("MPI_{name}"),
                Call::Other(activity) => activity.word().to_owned(),
            };
            WaitedFor { call, rank, world, tid, seen }
        });
        let mut waited_for: Vec<WaitedFor> = waited_for.collect();
        waited_for.sort_by(|a, b| {
            let order = |w: &WaitedFor| (Reverse(w.seen), w.rank, !w.world, w.tid);
            order(a).cmp(&order(b)).then_with(|| a.call.cmp(&b.call))
        });
        ProbeThread {
            pid: o.pid,
            tid: o.tid,
            rank: o.rank,
            waited_s: o.waited.as_secs_f64(),
            outside_s: o.outside.as_secs_f64(),
            phases: o.phases,
            waits: o.waits,
            seen_waiting: self.waiting,
            waited_for,
        }
    }
}

impl WatchState {
    fn read(&mut self) {
        // What is asked one after the other at the end is read once.
        let time = now();
        if time < self.fresh_until {
            return;
        }
        self.fresh_until = time + FRESH;
        // Nothing can be said where the mapping cannot be read.
        if self.reader.read(time, &mut self.seen).is_err() {
            return;
        }
        let late = Late::of(&self.seen);
        for o in self.seen.iter().filter(|o| says_something(o)) {
            let key = (o.tid.0, o.registered.0);
            if self.threads.len() < MOST || self.threads.contains_key(&key) {
                let new = || Known { last: *o, waiting: 0, waited_for: HashMap::new() };
                self.threads.entry(key).or_insert_with(new).see(o, &late);
            } else {
                self.left_out += 1;
            }
        }
    }
}

impl Prepared {
    /// The probe for this command, and variables with which it has to be started; `before` is what
    /// `LD_PRELOAD` would be without, `base` the mask with which the command is started. None where it cannot be loaded, which is reported, and noted for the report.
    pub(crate) fn for_command(
        command: &[OsString],
        before: Option<&OsStr>,
        (base, cooperate): (&CpuSet, Cooperation),
        quiet: bool,
        notes: &mut Vec<String>,
    ) -> Option<(Self, Vec<(OsString, OsString)>)> {
        let mut say = |why: String| {
            let note = format!("--probe: {why}");
            if !quiet {
                tell(&format!("evenly: {note}"));
            }
            notes.push(note);
        };
        let program = command.first().map(|c| c.to_string_lossy()).unwrap_or_default();
        let unseen = Unseen::of(command);
        for (word, why) in &unseen {
            say(format!("'{}' runs without the probe: {why}", word.display()));
        }
        // What it starts may be seen all the same, unless a loader would complain.
        if unseen.iter().any(|(_, why)| why.harms()) {
            return None;
        }
        match Self::new(command, before, (base, cooperate)) {
            Ok(found) => Some(found),
            Err(e) => {
                say(format!("'{program}' runs without the probe: {}", evenly_errors::said(&e)));
                None
            }
        }
    }

    fn new(
        command: &[OsString],
        before: Option<&OsStr>,
        (base, cooperate): (&CpuSet, Cooperation),
    ) -> anyhow::Result<(Self, Vec<(OsString, OsString)>)> {
        let dir = cache_dir("probe").ok_or_else(|| {
            anyhow::anyhow!(
                "it has no place: neither XDG_CACHE_HOME nor HOME is set; set one of them"
            )
        })?;
        let file = library(command, &dir)?;
        let value = preload(&file, before)?;
        let mapping = Mapping::new()?;
        mapping.set_cooperation(cooperate)?;
        mapping.set_base(base)?;
        let (threads, seen) = (HashMap::new(), Vec::new());
        let reader = mapping.reader()?;
        let state = Arc::new(Mutex::new(WatchState {
            reader,
            seen,
            threads,
            left_out: 0,
            fresh_until: Nanos::ZERO,
        }));
        let env = vec![("LD_PRELOAD".into(), value), mapping.variable(), sanitizers()];
        Ok((Self(Watch { mapping: Arc::new(mapping), state }), env))
    }

    /// Reads the probe from now on. Without the thread for it there is still what the probe says at the end,
    /// and a note on what is missing.
    pub(crate) fn start(self, threads: Threads, notes: &mut Vec<String>) -> Watch {
        let watched = Arc::downgrade(&self.0.state);
        if let Err(e) = threads.start("probe", move || ask(&watched)) {
            notes.push(format!(
                "--probe: for whom threads wait is not known: no thread to read it: {e}"
            ));
        }
        self.0
    }
}

impl Watch {
    /// For callers that ask again and again.
    pub(crate) fn wait_reports(&self) -> OpenWaitReports {
        let mapping = self.mapping.clone();
        Box::new(move || Some(read_wait_reports(mapping.reader().ok()?)))
    }

    /// The barriers of the program; None where they cannot be read.
    pub(crate) fn openings(&self) -> Option<Arc<dyn Openings>> {
        Some(Arc::new(self.mapping.openings().ok()?))
    }

    /// Whether a program used MPI although its command names no launcher: waits in MPI are then unknown.
    pub(crate) fn misses_mpi(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read();
        state.reader.counts().unseen_mpi
    }

    /// What is to be said of what could not be seen.
    pub(crate) fn note(&self) -> Option<String> {
        self.misses_mpi().then(|| format!("--probe: {}", unseen_mpi("run --probe on")))
    }

    /// What its threads have said.
    pub(crate) fn report(&self) -> ProbeReport {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read();
        let counts = state.reader.counts();
        let mut threads: Vec<ProbeThread> = state.threads.values().map(Known::report).collect();
        threads.sort_by_key(|t| (t.pid, t.tid));
        ProbeReport {
            processes: counts.attached,
            left_out: u64::from(counts.refused) + state.left_out,
            threads,
            replaced: state.reader.replaced(),
        }
    }
}

/// The variable with which programs with sanitizers accept a library that is loaded before theirs.
pub(crate) fn sanitizers() -> (OsString, OsString) {
    for_sanitizers(std::env::var_os("ASAN_OPTIONS").as_deref())
}

/// What is said of MPI that was not expected; this form of evenly would have seen it.
pub(crate) fn unseen_mpi(form: &str) -> String {
    format!(
        "a program had MPI, and calls of it were not seen, because the command did not start with an MPI \
         launcher; start it with one (evenly {form} -- mpirun -n 1 ...)"
    )
}

/// Reads the wait reports of a program that already runs with the probe of another evenly.
fn reader_of(pid: Pid) -> Option<Reader> {
    let process = Path::new("/proc").join(pid.to_string());
    let environment = read_all(&process.join("environ")).ok()?;
    let path = environment
        .split(|&b| b == 0)
        .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    let path = Path::new(OsStr::from_bytes(path));
    let user = process.metadata().ok()?.uid();
    let file = open_memory(path, waiting::NAME, waiting::SIZE, user).ok()?;
    Reader::of(file, path.to_owned()).ok()
}

/// The wait reports of such a program.
pub(crate) fn wait_reports_of_running(pid: Pid) -> Option<ReadWaitReports> {
    reader_of(pid).map(read_wait_reports)
}

/// Whether such a program uses MPI although its command names no launcher.
pub(crate) fn running_misses_mpi(pid: Pid) -> bool {
    reader_of(pid).is_some_and(|mut reader| {
        reader.read(now(), &mut Vec::new()).is_ok() && reader.counts().unseen_mpi
    })
}

/// Wait reports, in the terms of the balancing cycle.
fn read_wait_reports(mut reader: Reader) -> ReadWaitReports {
    let mut seen: Vec<Observed> = Vec::new();
    Box::new(move |now, out| {
        // A mapping that cannot be read says nothing.
        if reader.read(now, &mut seen).is_ok() {
            out.extend(seen.iter().filter(|o| says_something(o)).map(|o| {
                let (waited, outside, phases, waits) = (o.waited, o.outside, o.phases, o.waits);
                let computes_since =
                    (o.activity == Activity::Computing).then_some(o.since.min(now));
                let waiting = Waiting { waited, outside, phases, waits, computes_since };
                ReportedWait { tid: o.tid, since: o.registered, waiting }
            }));
        }
    })
}

/// Whether a thread has reported a wait. Of others nothing is known: they may spin in ways that the probe does not see.
fn says_something(o: &Observed) -> bool {
    o.waits > 0 || o.activity.waits()
}

/// Asks until no user of the answers is left.
fn ask(state: &Weak<Mutex<WatchState>>) {
    let mut pause = INTERVAL;
    loop {
        std::thread::sleep(pause);
        let Some(state) = state.upgrade() else { return };
        let before = thread_cpu_time();
        state.lock().unwrap_or_else(PoisonError::into_inner).read();
        pause = pause_after(thread_cpu_time() - before);
    }
}

/// For how long threads are not asked after that took so much CPU time: where there are thousands it is done more rarely.
fn pause_after(cost: Nanos) -> Duration {
    INTERVAL.max(Duration::from_nanos(cost.scale(1.0 / SHARE).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: ten thousand threads that are asked as often as ten.
    #[test]
    fn who_is_costly_to_ask_is_asked_rarely() {
        assert_eq!(pause_after(Nanos::from_micros(400)), INTERVAL);
        assert_eq!(pause_after(Nanos::from_millis(10)), Duration::from_secs(5));
    }
}
