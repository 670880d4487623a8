//! Who computes and who waits: the mapping that `probe/c/waiting.c` writes (`probe/c/waiting.h` is its layout),
//! made and read.
//!
//! Invariants: a reader writes nothing, never waits, and takes nothing on trust: the file is written by
//! programs, so every number in it is checked, and what is torn or of another thread is left out. It is
//! read and not mapped, so that nothing in it can harm evenly: one call for all threads, a second one to know that
//! nothing changed meanwhile. Its length is sealed, as programs do map it.

use self::barriers::Barriers;
use crate::layout::waiting::{header, line, note};
use crate::shared::sealed;
use evenly_model::{CpuSet, Nanos, Pid, Tid};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

mod barriers;

/// The variable that names the mapping to programs.
pub const VARIABLE: &str = "EVENLY_PROBE";
/// What a file begins with that is such a mapping.
const MAGIC: u64 = u64::from_le_bytes(*b"enlywait");
/// The version of the layout.
const VERSION: u32 = 5;
/// Bytes of the header.
const HEADER: usize = 4096;
/// Bytes of a line, and of a note.
const LINE: usize = line::SIZEOF;
const _: () = assert!(note::SIZEOF == LINE);
/// How many lines there is room for.
const LINES: u32 = 65_535;
/// The name of the file, as given to memfd_create(2).
pub const NAME: &str = "evenly-waiting";
/// Where the notes on phases are, one for each line and as long.
const NOTES: usize = HEADER + LINES as usize * LINE;
/// The size of the file in bytes.
pub const SIZE: u64 = (NOTES + LINES as usize * LINE) as u64;

/// How many bytes of the header are read at once. What programs and evenly write behind that is read separately.
const READ: usize = header::UNSEEN_MPI;

/// Two threads that read the clock at the same moment differ by less, in ns.
const CLOCKS: u64 = 4_000;

/// Of a team in `object`: tasks were made that waiting threads may execute unseen.
const UNSEEN_TASKS: u32 = 1;

const THREAD: u8 = 1;
const TEAM: u8 = 2;
const RANK: u8 = 3;
const OWN: u8 = 4;

/// Of a thread in MPI `object` holds the number of the call, and above it of what kind the other is, and its rank.
const CALL_BITS: u32 = 9;
const PEER_BITS: u32 = 2;
/// In place of a rank, with no one in particular: all.
const ALL: u32 = 1;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// It computes, as far as is known.
    Computing,
    /// It waits at a barrier.
    Barrier,
    /// It waits for a condition, a lock, or tasks of others.
    Lock,
    /// It is in an MPI call that waits for one rank or some.
    Mpi,
    /// It is in an MPI call of all ranks.
    Collective,
    /// It has ended its part of a parallel region and waits for the others.
    RegionEnd,
    /// It was started for parallel regions, and there is none.
    Outside,
}

impl Activity {
    fn of(state: u8) -> Option<Self> {
        Some(match state {
            0 => Self::Computing,
            1 => Self::Barrier,
            2 => Self::Lock,
            3 => Self::Mpi,
            4 => Self::Collective,
            5 => Self::RegionEnd,
            6 => Self::Outside,
            _ => return None,
        })
    }

    /// Whether it waits for a thread or rank that computes.
    #[must_use]
    pub const fn waits(self) -> bool {
        !matches!(self, Self::Computing | Self::Outside)
    }

    /// In words, for lines that are read by people and programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Barrier => "barrier",
            Self::Lock => "lock",
            Self::Mpi => "mpi",
            Self::Collective => "collective",
            Self::RegionEnd => "region-end",
            Self::Outside => "outside",
        }
    }
}

/// For whom an MPI call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The one of this rank in `MPI_COMM_WORLD`.
    World(u32),
    /// The one of this rank in another communicator, of which it is not known who is in it.
    Other(u32),
    /// The first that sends (`MPI_ANY_SOURCE`).
    Anyone,
    /// All of `MPI_COMM_WORLD` that are not in it yet: [`crate::late`] finds who that is.
    All,
}

impl Peer {
    fn of(object: u32) -> Option<Self> {
        let rank = object >> (CALL_BITS + PEER_BITS);
        match object >> CALL_BITS & ((1 << PEER_BITS) - 1) {
            1 => Some(Self::World(rank)),
            2 => Some(Self::Other(rank)),
            3 if rank == ALL => Some(Self::All),
            3 => Some(Self::Anyone),
            _ => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World(rank) => write!(f, "rank {rank}"),
            Self::Other(rank) => write!(f, "rank {rank} of another communicator"),
            Self::Anyone => f.write_str("any rank"),
            Self::All => f.write_str("all ranks"),
        }
    }
}

/// What is known of a thread at the moment of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// The thread that has the line.
    pub tid: Tid,
    /// The process that the thread belongs to.
    pub pid: Pid,
    /// When it got its line, since the host was started (suspended time included). A thread that was
    /// started later is another one with the same number: see [`Observed::is_of`].
    pub registered: Nanos,
    /// Whether it computes or waits, and where it waits.
    pub activity: Activity,
    /// When it began to do that (`CLOCK_MONOTONIC`).
    pub since: Nanos,
    /// How long it has waited for others, until now. It can become less: what is taken for waiting at a
    /// barrier of libgomp turns out to be none when the first task is made that may be executed there.
    pub waited: Nanos,
    /// How long it was outside of parallel regions, until now, of a thread that is there for them.
    pub outside: Nanos,
    /// Barriers, collectives and ends of regions that it has reached.
    pub phases: u32,
    /// Waits of all kinds that it has begun. Each ends an iteration: a stretch of computing.
    pub waits: u32,
    /// What it waits for: the same for all that wait for the same in one process; of MPI the number of the
    /// call. 0 where not known.
    pub object: u32,
    /// For whom it waits, where it is in an MPI call that says so.
    pub peer: Option<Peer>,
    /// The rank of its process in `MPI_COMM_WORLD`, where that has initialised MPI.
    pub rank: Option<u32>,
}

impl Observed {
    /// Whether this is of the thread that was started at this moment (since the host was started, in
    /// the kernel's granularity, which rounds down).
    #[must_use]
    pub fn is_of(&self, started: Nanos) -> bool {
        started <= self.registered
    }

    /// The MPI call that it is in.
    #[must_use]
    pub fn call(&self) -> Option<&'static str> {
        matches!(self.activity, Activity::Mpi | Activity::Collective)
            .then(|| calls().nth((self.object as usize).checked_sub(1)?))
            .flatten()
    }
}

/// The MPI calls that are seen, in the order of their numbers.
pub fn calls() -> impl Iterator<Item = &'static str> {
    include_str!("../c/mpi_calls.h").lines().filter_map(|line| {
        let (kind, rest) = line.split_once('(')?;
        // Other lines are about how these are used.
        kind.starts_with("CALL").then_some(rest.split_once(',')?.0)
    })
}

/// Why there is no mapping to be made or read.
#[derive(Debug, thiserror::Error)]
pub enum WaitingError {
    /// It cannot be made.
    #[error("cannot make the mapping in which programs publish who waits ({what}): {source}")]
    Make {
        /// What could not be done or found, in words.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be opened or read.
    #[error("cannot read {}, in which a program publishes who waits: {source}", .path.display())]
    Read {
        /// The path under which the mapping was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no mapping in which a program publishes who waits: {what}", .path.display())]
    Other {
        /// The path of the file that is no mapping.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The mapping of a run: for programs that are started with [`Mapping::variable`] in their environment. It
/// lives as long as this or a program that has it.
#[derive(Debug)]
pub struct Mapping {
    file: File,
}

/// Whether barriers are replaced in parallel regions that are plain (waiting_plain.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cooperation {
    /// They are left to the runtime.
    Never = 0,
    /// While the team is moved within phases.
    WhileMoved = 1,
    /// Whether the team is moved or not: for tests.
    Always = 2,
}

impl Mapping {
    /// A new one.
    ///
    /// # Errors
    /// Where the system has no place for it.
    pub fn new() -> Result<Self, WaitingError> {
        let cannot = |what| move |source: io::Error| WaitingError::Make { what, source };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(cannot("boot_id of the host"))?;
        let namespace = fs::metadata("/proc/self/ns/pid").map_err(cannot("PID namespace"))?.ino();
        // Where the kernel does not trust the cycle counter, we do not.
        let clock =
            fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let ticks = ["tsc", "arch_sys_counter"].contains(&clock.unwrap_or_default().trim());
        let file = sealed(NAME, SIZE).map_err(|(what, e)| cannot(what)(e))?;
        let mut bytes = [0; READ];
        let mut put = |at: usize, what: &[u8]| {
            // All of these are within the header, which a test holds against the C one.
            if let Some(to) = bytes.get_mut(at..at + what.len()) {
                to.copy_from_slice(what);
            }
        };
        put(header::MAGIC, &MAGIC.to_ne_bytes());
        put(header::VERSION, &VERSION.to_ne_bytes());
        put(header::LINE_SIZE, &(LINE as u32).to_ne_bytes());
        put(header::LINES, &LINES.to_ne_bytes());
        put(header::TICKS, &u32::from(ticks).to_ne_bytes());
        let boot = boot.trim().as_bytes();
        put(header::BOOT, boot.get(..header::SIZEOF_BOOT - 1).unwrap_or(boot));
        put(header::PID_NAMESPACE, &namespace.to_ne_bytes());
        file.write_all_at(&bytes, 0).map_err(cannot("writing its header"))?;
        Ok(Self { file })
    }

    /// Where programs find it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// The variable to be set for programs.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        (VARIABLE.into(), self.path().into())
    }

    /// When barriers are replaced in regions of OpenMP that are plain, so that threads wait cooperatively. Else all
    /// barriers are left to the runtime and observed.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn set_cooperation(&self, cooperation: Cooperation) -> Result<(), WaitingError> {
        let value = (cooperation as u32).to_ne_bytes();
        let cannot = |source| WaitingError::Make { what: "writing its header", source };
        self.file.write_all_at(&value, header::COOPERATE as u64).map_err(cannot)
    }

    /// The mask with which the program is started: what it is shown while evenly keeps threads on single CPUs.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn set_base(&self, mask: &CpuSet) -> Result<(), WaitingError> {
        let mut words = [0u64; header::SIZEOF_BASE / 8];
        for cpu in mask.iter() {
            // Where there are more CPUs than are known here, masks are shown as they are.
            let Some(word) = words.get_mut(cpu.0 as usize / 64) else { return Ok(()) };
            *word |= 1 << (cpu.0 % 64);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let cannot = |source| WaitingError::Make { what: "writing its header", source };
        self.file.write_all_at(&bytes, header::BASE as u64).map_err(cannot)
    }

    /// The barriers of programs that are started with it.
    ///
    /// # Errors
    /// Where it cannot be mapped.
    pub fn openings(&self) -> Result<Barriers, WaitingError> {
        Barriers::of(&self.file).map_err(|source| WaitingError::Make { what: "mapping it", source })
    }

    /// A reader of it.
    ///
    /// # Errors
    /// Where there are no more descriptors.
    pub fn reader(&self) -> Result<Reader, WaitingError> {
        let path = self.path();
        match self.file.try_clone() {
            Ok(file) => Reader::of(file, path),
            Err(source) => Err(WaitingError::Read { path, source }),
        }
    }
}

/// The counters of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Processes that have mapped it.
    pub attached: u32,
    /// Threads for which there was no line: of them nothing is known.
    pub refused: u32,
    /// Goes up whenever a thread comes or goes.
    pub changes: u32,
    /// One of the processes had MPI, and the library that sees no calls of MPI.
    pub unseen_mpi: bool,
}

/// A mapping that is open for reading, and what was read of it last.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    lines: u32,
    counts: Counts,
    once: Vec<u8>,
    twice: Vec<u8>,
    notes: Vec<u8>,
}

/// How often a line that is being written is read again before it is given up for this time.
const TRIES: u32 = 8;

impl Reader {
    /// Of a file that is open for reading; `path` is for messages. The value of [`VARIABLE`] in the environment
    /// of a program is not to be opened without a check of what it leads to: that program chose it.
    ///
    /// # Errors
    /// Where it cannot be read, or is something else.
    pub fn of(file: File, path: PathBuf) -> Result<Self, WaitingError> {
        let mut bytes = [0; READ];
        if let Err(source) = file.read_exact_at(&mut bytes, 0) {
            return Err(WaitingError::Read { path, source });
        }
        let lines = match checked(&bytes) {
            Ok(lines) => lines,
            Err(what) => return Err(WaitingError::Other { path, what }),
        };
        let counts = Counts::default();
        let (once, twice, notes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { file, path, lines, counts, once, twice, notes })
    }

    /// What was counted when it was last read.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Lines that were ever used, when it was last read.
    #[must_use]
    pub fn lines_used(&self) -> usize {
        self.once.len() / LINE
    }

    /// All threads that have a line, at this moment (`CLOCK_MONOTONIC`). One that is just writing, or
    /// was killed while it did, is missing.
    ///
    /// # Errors
    /// Where the file cannot be read any more.
    pub fn read(&mut self, now: Nanos, out: &mut Vec<Observed>) -> Result<(), WaitingError> {
        out.clear();
        match self.refresh() {
            Ok(()) => {}
            Err(source) => return Err(WaitingError::Read { path: self.path.clone(), source }),
        }
        out.extend(observed((&self.once, &self.twice), &self.notes, now));
        Ok(())
    }

    /// Parallel regions of which the barriers were replaced, of teams that had a line when it was last read.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        let of = |note| u64::from(u32_at(note, note::REPLACED));
        self.notes.chunks_exact(LINE).map(of).sum()
    }

    /// Reads all lines, twice, and then the notes.
    fn refresh(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut unseen_mpi = [0; 4];
        self.file.read_exact_at(&mut unseen_mpi, header::UNSEEN_MPI as u64)?;
        self.counts = Counts {
            attached: u32_at(&bytes, header::ATTACHED),
            refused: u32_at(&bytes, header::REFUSED),
            changes: u32_at(&bytes, header::CHANGES),
            unseen_mpi: u32::from_ne_bytes(unseen_mpi) != 0,
        };
        let size = u32_at(&bytes, header::HIGH).min(self.lines) as usize * LINE;
        self.once.resize(size, 0);
        self.twice.resize(size, 0);
        self.file.read_exact_at(&mut self.once, HEADER as u64)?;
        self.file.read_exact_at(&mut self.twice, HEADER as u64)?;
        for number in 0..size / LINE {
            let place = number * LINE..(number + 1) * LINE;
            let at = (HEADER + number * LINE) as u64;
            for _ in 0..TRIES {
                if settled(&self.once[place.clone()], &self.twice[place.clone()]) {
                    break;
                }
                self.file.read_exact_at(&mut self.once[place.clone()], at)?;
                self.file.read_exact_at(&mut self.twice[place.clone()], at)?;
            }
        }
        self.notes.resize(size, 0);
        self.file.read_exact_at(&mut self.notes, NOTES as u64)
    }
}

/// Whether a line that was read twice is as its thread has written it. Both readings are the same and none
/// was being written: then nothing was written between the moments when `seq` was read, and each byte was
/// read within them, by the one reading or by the other.
fn settled(once: &[u8], twice: &[u8]) -> bool {
    once == twice && u32_at(once, line::SEQ).is_multiple_of(2)
}

/// How many lines a mapping has of which this is the header; what is wrong with it otherwise.
fn checked(bytes: &[u8]) -> Result<u32, String> {
    let needed = |name: &str, found: u64, wanted: u64| {
        if found == wanted { Ok(()) } else { Err(format!("its {name} is {found}, not {wanted}")) }
    };
    if u64_at(bytes, header::MAGIC) != MAGIC {
        return Err(String::from("it begins with something else"));
    }
    let u32_of = |at| u64::from(u32_at(bytes, at));
    needed("version", u32_of(header::VERSION), u64::from(VERSION))?;
    needed("size of a line", u32_of(header::LINE_SIZE), LINE as u64)?;
    Ok(u32_at(bytes, header::LINES).min(LINES))
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    // What is not there counts as 0.
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes_at(bytes, at))
}

fn byte_at(bytes: &[u8], at: usize) -> u8 {
    u8::from_ne_bytes(bytes_at(bytes, at))
}

/// The threads of lines that were read twice, before the notes.
fn observed<'a>(
    (once, twice): (&'a [u8], &'a [u8]),
    notes: &'a [u8],
    now: Nanos,
) -> impl Iterator<Item = Observed> + 'a {
    let lines = || once.chunks_exact(LINE).zip(twice.chunks_exact(LINE));
    // By process; the one that registered last, should a number have been used again.
    let mut ranks: Vec<(u32, u64, u32)> = lines()
        .filter(|(a, b)| byte_at(a, line::KIND) == RANK && settled(a, b))
        .map(|(a, _)| (u32_at(a, line::PID), u64_at(a, line::REGISTERED), u32_at(a, line::OBJECT)))
        .collect();
    ranks.sort_unstable();
    let rank_of = move |pid: u32| {
        let behind = ranks.partition_point(|known| known.0 <= pid);
        ranks.get(behind.checked_sub(1)?).filter(|known| known.0 == pid).map(|known| known.2)
    };
    let whole = lines().enumerate().filter(|(_, (a, b))| settled(a, b));
    whole.filter_map(move |(number, (bytes, _))| {
        if byte_at(bytes, line::KIND) != THREAD {
            return None;
        }
        let tid = i32::try_from(u32_at(bytes, line::TID)).ok().filter(|&tid| tid > 0)?;
        let pid = i32::try_from(u32_at(bytes, line::PID)).ok().filter(|&pid| pid > 0)?;
        let mut activity = Activity::of(byte_at(bytes, line::STATE))?;
        let mut since = Nanos(u64_at(bytes, line::ENTERED));
        let mut waited = Nanos(u64_at(bytes, line::WAITED));
        let mut outside = Nanos(u64_at(bytes, line::OUTSIDE));
        if matches!(activity, Activity::Barrier | Activity::RegionEnd) {
            let team = team_of(bytes, once, twice);
            let there = all_there(bytes, number, (once, notes));
            let before;
            (activity, since, before) = as_others_see((activity, since), bytes, team, there, now);
            waited.0 = waited.0.saturating_add(before.0);
        }
        let (mut object, mut peer) = (u32_at(bytes, line::OBJECT), None);
        // For tasks, and not for a lock, which has a name.
        if activity == Activity::Lock
            && object == 0
            && has_unseen_tasks(team_of(bytes, once, twice))
        {
            activity = Activity::Computing;
        }
        if matches!(activity, Activity::Mpi | Activity::Collective) {
            peer = Peer::of(object);
            object &= (1 << CALL_BITS) - 1;
        }
        let rank = rank_of(u32_at(bytes, line::PID));
        // The root of a broadcast waits for no rank in particular, and least for itself.
        peer = peer.filter(|p| !matches!(*p, Peer::World(of) if rank == Some(of)));
        let lasts = now.0.saturating_sub(since.0);
        if activity == Activity::Outside {
            outside.0 = outside.0.saturating_add(lasts);
        } else if activity.waits() {
            waited.0 = waited.0.saturating_add(lasts);
        }
        Some(Observed {
            tid: Tid(tid),
            pid: Pid(pid),
            registered: Nanos(u64_at(bytes, line::REGISTERED)),
            activity,
            since,
            waited,
            outside,
            phases: u32_at(bytes, line::PHASES),
            waits: u32_at(bytes, line::WAITS),
            object,
            peer,
            rank,
        })
    })
}

/// What a thread does that waits since then, as far as it could not say itself: since when, and for how long it has waited
/// before that.
fn as_others_see(
    (waits, since): (Activity, Nanos),
    thread: &[u8],
    team: Option<&[u8]>,
    there: Option<Nanos>,
    now: Nanos,
) -> (Activity, Nanos, Nanos) {
    let tasks = has_unseen_tasks(team);
    let ended = team.and_then(|team| over(thread, team));
    let Some(end) = [ended, there].into_iter().flatten().min() else {
        return (if tasks { Activity::Computing } else { waits }, since, Nanos::ZERO);
    };
    let end = end.min(now).max(since);
    let before = if tasks { Nanos::ZERO } else { end - since };
    // While a region goes on it only lacks a CPU.
    let then = if ended.is_some() { Activity::Outside } else { Activity::Computing };
    (then, end, before)
}

/// Whether who waits in a region of this team may be executing tasks.
fn has_unseen_tasks(team: Option<&[u8]>) -> bool {
    team.is_some_and(|team| u32_at(team, line::OBJECT) & UNSEEN_TASKS != 0)
}

/// The line of the team in whose region this thread is.
fn team_of<'a>(thread: &[u8], once: &'a [u8], twice: &[u8]) -> Option<&'a [u8]> {
    let number = usize::from(u16_at(thread, line::TEAM)).checked_sub(1)?;
    let (team, again) = (entry_of(once, number)?, entry_of(twice, number)?);
    (settled(team, again) && byte_at(team, line::KIND) == TEAM).then_some(team)
}

/// A line, or a note, by its number.
fn entry_of(all: &[u8], number: usize) -> Option<&[u8]> {
    all.get(number.checked_mul(LINE)?..)?.get(..LINE)
}

/// When a thread that waits, with this line, had no one left to wait for; None where it has, or that is not known.
/// `all_there` in probe/c/waiting_phases.h is the same.
fn all_there(thread: &[u8], number: usize, (lines, notes): (&[u8], &[u8])) -> Option<Nanos> {
    let meets = u32_at(entry_of(notes, number)?, note::MEETS);
    let number = (meets as usize).checked_sub(1)?;
    let team = entry_of(notes, number)?;
    if u32_at(entry_of(lines, number)?, line::OBJECT) != 0 {
        return None;
    }
    let entered = u64_at(thread, line::ENTERED).saturating_add(CLOCKS);
    let (ended, opened) = (u64_at(team, note::BASE), u64_at(team, note::OPENED));
    let is_its = u32_at(team, note::FINISHED) == u32_at(thread, line::OBJECT);
    if ended > entered {
        return Some(Nanos(ended));
    }
    (opened > entered && is_its).then_some(Nanos(opened))
}

/// When the parallel region ended in which this thread waits; None where it goes on. `over` in
/// probe/c/waiting.c is the same.
fn over(thread: &[u8], team: &[u8]) -> Option<Nanos> {
    let (region, last) = (u32_at(thread, line::REGION), u32_at(team, line::REGION));
    let goes_on = byte_at(team, line::STATE) != 0;
    if region == last && goes_on {
        return None;
    }
    // Where later ones are over, too, it is not known: as if it had been at once.
    let known = region == last || (goes_on && last == region.wrapping_add(1));
    Some(Nanos(if known { u64_at(team, line::ENTERED) } else { 0 }))
}

/// Reads arbitrary bytes as a mapping. For fuzzing: whatever the bytes are, it returns.
#[must_use]
pub fn exercise(bytes: &[u8]) -> (Option<u32>, Vec<Observed>) {
    let (first, rest) = bytes.split_at(bytes.len().min(READ));
    (checked(first).ok(), observed((rest, rest), rest, Nanos(u64::MAX)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests;
