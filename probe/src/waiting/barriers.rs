//! The barriers of a program that threads meet at again and again, in the mapping of the waiting probe: when
//! they open, what each thread computes until then, and where evenly has put it.
//!
//! Invariant: programs write to the mapping, so every number that is read is checked before it is used as an
//! index, and none is used for anything but time. The file is our own and its length is sealed.

use super::{HEADER, LINE, LINES, NOTES, OWN, SIZE, TEAM, THREAD};
use crate::layout::waiting::{header, line, note};
use evenly_model::{CpuId, Nanos, Pid, ThreadId};
use evenly_phase::{Measured, NAP, Opening, Openings, Reported};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::clock_ticks_per_second;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{PoisonError, RwLock};

/// For how long a helper waits for an opening.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: NAP.0 as _ };

/// For how many seconds a team measures its phases, and masks are hidden, unless that is said again: after a `kill -9`
/// of evenly.
const HOLDS: i64 = 5;

/// For how many seconds more masks are hidden when threads were let go: a process can have inherited one just before.
const LINGERS: i64 = 1;

/// How much a team says of its phases: nothing; when its barriers open; and what its members compute.
pub(super) const UNMEASURED: u32 = 0;
pub(super) const COUNTED: u32 = 1;
pub(super) const TIMED: u32 = 2;

/// The mapping, as words.
struct Words(NonNull<u8>);

// SAFETY: the memory is only reached through atomics, and unmapped only when its one owner is dropped.
#[allow(unsafe_code)]
unsafe impl Send for Words {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Words {}

impl Words {
    #[allow(unsafe_code)]
    fn of(file: &File) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let base =
            unsafe { mmap(std::ptr::null_mut(), SIZE as usize, protection, flags, file, 0)? };
        NonNull::new(base.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    #[allow(unsafe_code)]
    fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= SIZE as usize, "word at {at}");
        // SAFETY: inside the mapping, and aligned, by the assertion; the file cannot become shorter; the
        // mapping lives as long as self; every access by any process is an atomic one.
        unsafe { self.0.add(at).cast().as_ref() }
    }

    #[allow(unsafe_code)]
    fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= SIZE as usize, "word at {at}");
        // SAFETY: as above.
        unsafe { self.0.add(at).cast().as_ref() }
    }
}

impl Drop for Words {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no reference into it outlives self.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE as usize) };
    }
}

/// The number of a line, which is less than [`LINES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line(u32);

impl Line {
    fn at(self, field: usize) -> usize {
        HEADER + self.0 as usize * LINE + field
    }

    fn note(self, field: usize) -> usize {
        NOTES + self.0 as usize * LINE + field
    }
}

/// The barrier that is followed, and the lines of threads.
#[derive(Debug, Default)]
struct Followed {
    team: Option<Line>,
    members: HashMap<ThreadId, Line>,
    /// Lines of all threads that were asked for.
    lines: HashMap<ThreadId, Line>,
}

/// The barriers of the programs that have a mapping.
pub struct Barriers {
    words: Words,
    followed: RwLock<Followed>,
    /// What helpers wait at while no barrier is followed: how often they were called.
    calls: AtomicU32,
}

impl fmt::Debug for Barriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barriers").finish_non_exhaustive()
    }
}

impl Barriers {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        Ok(Self { words: Words::of(file)?, followed: RwLock::default(), calls: AtomicU32::new(0) })
    }

    /// Wakes helpers that wait for this team, or those that wait while there is none.
    fn wake(&self, team: Option<Line>, helpers: NonZeroU32) {
        // Nobody who hears it is there: nothing is lost.
        let _ = if let Some(team) = team {
            let phase = self.words.u32(team.note(note::PHASE));
            futex::wake_bitset(phase, futex::Flags::empty(), i32::MAX as u32, helpers)
        } else {
            self.calls.fetch_add(1, Release);
            futex::wake_bitset(&self.calls, futex::Flags::PRIVATE, i32::MAX as u32, helpers)
        };
    }

    fn team(&self) -> Option<Line> {
        self.followed.read().unwrap_or_else(PoisonError::into_inner).team
    }

    fn opening_of(&self, team: Line) -> Opening {
        // Acquire: the time of this opening, or of a later one, is seen.
        let phase = self.words.u32(team.note(note::PHASE)).load(Acquire);
        Opening { phase, at: Nanos(self.words.u64(team.note(note::OPENED)).load(Relaxed)) }
    }

    /// The kind of a line.
    fn kind(&self, line: Line) -> u8 {
        // The last of the four bytes that hold team, state and kind.
        self.words.u32(line.at(line::TEAM)).load(Relaxed).to_ne_bytes()[line::KIND - line::TEAM]
    }

    /// The line of the team that a thread meets at barriers.
    fn team_of(&self, line: Line) -> Option<Line> {
        let number = self.words.u32(line.note(note::MEETS)).load(Relaxed);
        let team = number.checked_sub(1).filter(|n| *n < LINES).map(Line)?;
        matches!(self.kind(team), TEAM | OWN).then_some(team)
    }

    /// The lines that belong to threads, among those that were ever used.
    fn lines(&self) -> impl Iterator<Item = Line> {
        let high = self.words.u32(header::HIGH).load(Acquire).min(LINES);
        (0..high).map(Line).filter(|line| self.kind(*line) == THREAD)
    }

    /// The lines of these threads.
    fn lines_of(&self, threads: &[ThreadId]) -> HashMap<ThreadId, Line> {
        let ids: HashMap<i32, ThreadId> = threads.iter().map(|t| (t.tid.0, *t)).collect();
        let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
        let found = self.lines().filter_map(|line| {
            let tid = self.words.u32(line.at(line::TID)).load(Relaxed);
            let id = ids.get(&i32::try_from(tid).ok()?)?;
            let registered = self.words.u64(line.at(line::REGISTERED)).load(Relaxed);
            (id.start.saturating_mul(tick) <= registered).then_some((*id, line))
        });
        found.collect()
    }
}

impl Openings for Barriers {
    fn follow(&self, threads: &[ThreadId]) -> Option<u32> {
        let lines = self.lines_of(threads);
        let mut teams: BTreeMap<Line, HashMap<ThreadId, Line>> = BTreeMap::new();
        for (id, line) in &lines {
            if let Some(team) = self.team_of(*line) {
                teams.entry(team).or_default().insert(*id, *line);
            }
        }
        let several = teams.into_iter().filter(|(_, members)| members.len() > 1);
        // All that wait in code of the program are one team, among them those that meet nobody.
        let most = several.max_by_key(|(team, m)| (self.kind(*team) == TEAM, m.len()));
        let (team, members) = most.unzip();
        let mut followed = self.followed.write().unwrap_or_else(PoisonError::into_inner);
        let before = followed.team;
        if let Some(before) = before.filter(|before| Some(*before) != team) {
            self.words.u32(before.note(note::ARMED)).store(0, Relaxed);
            self.words.u32(before.note(note::MEASURED)).store(UNMEASURED, Relaxed);
        }
        *followed = Followed { team, members: members.unwrap_or_default(), lines };
        drop(followed);
        if before != team {
            self.wake(before, ALL);
        }
        team.map(|team| team.0)
    }

    fn measure(&self, what: Measured) {
        if let Some(team) = self.team() {
            let measured = match what {
                Measured::Nothing => UNMEASURED,
                Measured::Openings => COUNTED,
                Measured::Phases => TIMED,
            };
            self.words.u32(team.note(note::UNTIL)).store(after(HOLDS), Relaxed);
            self.words.u32(team.note(note::MEASURED)).store(measured, Relaxed);
        }
    }

    fn arm(&self, cpus: &[CpuId], least: Nanos) {
        if let Some(team) = self.team() {
            let set = cpus.iter().fold(0, |set, cpu| set | bit(*cpu).get());
            let least = u32::try_from(least.0).unwrap_or(u32::MAX);
            self.words.u32(team.note(note::EXPECTED)).store(least, Relaxed);
            self.words.u32(team.note(note::ARMED)).store(set, Relaxed);
        }
    }

    fn hold(&self, held: bool) {
        let pins = self.words.u32(header::PINS);
        let until = if held { after(HOLDS) } else { pins.load(Relaxed).min(after(LINGERS)) };
        pins.store(until, Relaxed);
    }

    fn show_masks(&self, process: Pid) {
        let Ok(process) = u32::try_from(process.0) else { return };
        for line in self.lines() {
            if self.words.u32(line.at(line::PID)).load(Relaxed) == process {
                self.words.u32(line.note(note::BOUND)).store(1, Relaxed);
            }
        }
        self.words.u32(header::BOUND).fetch_add(1, Release);
    }

    fn wait(&self, cpu: CpuId, seen: Opening) -> Option<Opening> {
        let until = clock_gettime(ClockId::Monotonic) + PATIENCE;
        // Before it looks, so that no call from then on is missed.
        let calls = self.calls.load(Acquire);
        let Some(team) = self.team() else {
            // Woken or not, no barrier has opened.
            let flags = futex::Flags::PRIVATE;
            let _ = futex::wait_bitset(&self.calls, flags, calls, Some(&until), bit(cpu));
            return None;
        };
        let phase = self.words.u32(team.note(note::PHASE));
        let flags = futex::Flags::empty();
        match futex::wait_bitset(phase, flags, seen.phase, Some(&until), bit(cpu)) {
            // It has opened before this waits. Another may be followed by now.
            Ok(()) | Err(Errno::AGAIN) if self.team() == Some(team) => Some(self.opening_of(team)),
            _ => None,
        }
    }

    fn call(&self, cpu: CpuId) {
        self.wake(self.team(), bit(cpu));
    }

    fn last(&self) -> Opening {
        self.team().map_or_else(Opening::default, |team| self.opening_of(team))
    }

    fn worth(&self) -> u32 {
        self.team().map_or(0, |team| self.words.u32(team.note(note::MEETS)).load(Relaxed))
    }

    fn reported(&self, thread: ThreadId) -> Option<Reported> {
        let followed = self.followed.read().unwrap_or_else(PoisonError::into_inner);
        let (team, line) = (followed.team?, *followed.members.get(&thread)?);
        let phase = self.words.u32(team.note(note::PHASE)).load(Relaxed);
        let expected = self.words.u32(line.note(note::EXPECTED)).load(Relaxed);
        Some(Reported {
            expected: Nanos(u64::from(expected)),
            base: Nanos(self.words.u64(line.note(note::BASE)).load(Relaxed)),
            finished: self.words.u32(line.note(note::FINISHED)).load(Relaxed) == phase,
        })
    }

    fn put(&self, thread: ThreadId, cpu: Option<CpuId>) {
        let followed = self.followed.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = followed.lines.get(&thread) {
            let home = cpu.map_or(0, |cpu| cpu.0.saturating_add(1));
            self.words.u32(line.note(note::HOME)).store(home, Relaxed);
        }
    }
}

/// So many seconds from now.
fn after(seconds: i64) -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    u32::try_from(now.tv_sec + seconds).unwrap_or(u32::MAX)
}

/// The helpers of all CPUs, as a set for FUTEX_WAKE_BITSET.
const ALL: NonZeroU32 = NonZeroU32::MAX;

/// The helper of a CPU among those that wait: where several have the same they are woken together.
fn bit(cpu: CpuId) -> NonZeroU32 {
    NonZeroU32::new(1 << (cpu.0 % 32)).unwrap_or(NonZeroU32::MIN)
}
