//! A journal as others read it.

use super::layout::{
    Layout, MAGIC, MAX_MASK_WORDS, PARENT_LIMIT, PARENT_PATH_LIMIT, PARENT_WORDS, SWITCHED_ON,
    VERSION, WORD, at, field, kind, word_at,
};
use super::live::patience;
use super::places::{Kind, Parent};
use super::state_dir::is_local;
use super::{Demand, JournalError, Malformed, Process, RECORD_LIMIT, boot_id, pid_namespace};
use crate::clock::now;
use crate::proc::Proc;
use crate::sched::Scheduling;
use evenly_engine::RunState;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What a record says of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum RecordState {
    /// Nothing: never used, or being written when the writer died.
    Blank = 0,
    /// The thread is balanced.
    Live = 1,
    /// The thread has ended, or has its original mask back. The masks are evidence for threads
    /// that inherited them.
    Ended = 2,
    /// The thread has a mask that the program chose.
    LeftAlone = 3,
}

/// One record, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The thread whose masks are recorded.
    pub id: ThreadId,
    /// The process that the thread belongs to.
    pub tgid: Pid,
    /// Whether the thread is balanced, has ended, or is left alone.
    pub state: RecordState,
    /// The mask that the thread had when it was registered.
    pub original: CpuSet,
    /// The masks that were set last, newest first; at most two.
    pub set: Vec<CpuSet>,
}

/// How a thread was and is scheduled, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingRecord {
    /// The thread whose scheduling is recorded.
    pub id: ThreadId,
    /// The process that the thread belongs to.
    pub tgid: Pid,
    /// Whether the record counts, has ended, or its thread is left alone.
    pub state: RecordState,
    /// How the thread was scheduled when it was registered.
    pub original: Scheduling,
    /// What was set last, newest first; at most two.
    pub set: Vec<Scheduling>,
}

/// Any record, as read.
enum AnyRecord {
    Masks(Record),
    Scheduling(SchedulingRecord),
}

/// The header of a journal, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The id of the boot in which it was written.
    pub boot_id: u128,
    /// Inode of the process id name space in which its ids mean something; 0 where unknown.
    pub pid_namespace: u64,
    /// The evenly process that wrote it.
    pub writer: Process,
    /// The program that is balanced, where it is known.
    pub program: Option<Process>,
    /// Whether everything is undone.
    pub clean: bool,
    /// When the writer was last at work: CLOCK_MONOTONIC.
    pub heartbeat: Nanos,
    /// Its longest balancing period.
    pub period: Nanos,
    /// Rises when others give masks back: see [`super::Journal::released_generation`].
    pub released: u64,
    /// How many threads it places on each CPU, where that is not 0.
    pub counts: Vec<(CpuId, u16)>,
    /// What it tells others of the program's need of CPUs.
    pub demand: Demand,
    /// Directories in which groups were made.
    pub parents: Vec<Parent>,
    capacity: usize,
    pub(super) layout: Layout,
}

impl Header {
    /// The most bytes that a header takes.
    const MAX_BYTES: usize = Layout::WIDEST.header_words() * WORD;

    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`JournalError`] where the file cannot be read or is not a journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let bytes = read_file(path, Self::MAX_BYTES as u64)?;
        Self::parse(&bytes).map_err(|why| JournalError::Malformed { path: path.to_owned(), why })
    }

    /// Whether its evenly stands still: stopped by a signal or by a debugger, or not at work for so
    /// long that its guardian gives all masks back. None where it lives no more.
    #[must_use]
    pub fn stands_still(&self, proc: &Proc) -> Option<bool> {
        let stopped = self.writer.stat_if_alive(proc)?.run_state() == RunState::Stopped;
        Some(stopped || now() >= self.heartbeat + patience(self.period))
    }

    /// Whether its ids can still mean anything.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Whether a journal with this path is of a boot of this host that is over. From a directory that hosts
    /// share it may be that of a living evenly on another host.
    pub(crate) fn is_of_former_boot(&self, path: &Path) -> bool {
        !self.is_of_this_boot() && is_local(path)
    }

    /// Whether its ids mean the same processes for the caller.
    #[must_use]
    pub fn is_of_this_pid_namespace(&self) -> bool {
        let own = pid_namespace();
        own == 0 || self.pid_namespace == 0 || own == self.pid_namespace
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong with the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let short = |words: usize| Malformed::Short { found: bytes.len(), needed: words * WORD };
        let word = |n: usize| word_at(bytes, n).ok_or_else(|| short(at::COUNTS));
        if word(at::MAGIC)? != MAGIC {
            return Err(Malformed::Magic);
        }
        let version = word(at::VERSION)?;
        if version != VERSION {
            return Err(Malformed::Version { found: version });
        }
        let ranged = |n: usize, field: &'static str, least: u64, most: u64| {
            let found = word(n)?;
            if (least..=most).contains(&found) {
                Ok(found)
            } else {
                let needed =
                    if least == most { least.to_string() } else { format!("{least} to {most}") };
                Err(Malformed::Field { field, found, needed })
            }
        };
        let mask_words = ranged(at::MASK_WORDS, "mask words", 1, MAX_MASK_WORDS as u64)? as usize;
        let layout = Layout { mask_words };
        let (header, record) = (layout.header_words() * WORD, layout.record_words() * WORD);
        ranged(at::HEADER_BYTES, "header length", header as u64, header as u64)?;
        ranged(at::RECORD_BYTES, "record length", record as u64, record as u64)?;
        let capacity = ranged(at::CAPACITY, "capacity", 0, RECORD_LIMIT as u64)? as usize;
        let largest = i32::MAX as u64;
        let writer_pid = ranged(at::WRITER_PID, "process id of evenly", 1, largest)?;
        let program_pid = ranged(at::PROGRAM_PID, "process id of the program", 0, largest)?;
        let clean = ranged(at::CLEAN, "clean", 0, 1)? == 1;
        let counts = bytes
            .get(..header)
            .and_then(|h| h.get(at::COUNTS * WORD..layout.first_parent() * WORD))
            .ok_or_else(|| short(layout.header_words()))?
            .chunks_exact(2)
            .zip(0u32..)
            .map(|(c, cpu)| (CpuId(cpu), u16::from_ne_bytes([c[0], c[1]])))
            .filter(|&(_, threads)| threads > 0)
            .collect();
        let parents = (0..PARENT_LIMIT)
            .filter_map(|i| parse_parent(bytes, layout, i).transpose())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            boot_id: (u128::from(word(at::BOOT_ID)?) << 64) | u128::from(word(at::BOOT_ID + 1)?),
            pid_namespace: word(at::PID_NAMESPACE)?,
            writer: Process { pid: Pid(writer_pid as i32), start: word(at::WRITER_START)? },
            program: (program_pid != 0).then_some(Process {
                pid: Pid(program_pid as i32),
                start: word(at::PROGRAM_START)?,
            }),
            clean,
            heartbeat: Nanos(word(at::HEARTBEAT)?),
            period: Nanos(word(at::PERIOD)?),
            released: word(at::RELEASED)?,
            counts,
            demand: Demand::from_words(word(at::WANTED)?, word(at::GIVEN)?, word(at::SAID_UNTIL)?),
            parents,
            capacity,
            layout,
        })
    }
}

/// A journal, as read: a copy, so that nothing that happens to the file meanwhile matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalView {
    /// The header, as it was when the records were read.
    pub header: Header,
    /// Its records of masks, without the blank ones.
    pub records: Vec<Record>,
    /// Its records of how threads are scheduled.
    pub scheduling: Vec<SchedulingRecord>,
}

impl JournalView {
    /// Reads a file.
    ///
    /// # Errors
    /// [`JournalError`] where the file cannot be read or is not a whole journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let limit = Layout::WIDEST.file_bytes(RECORD_LIMIT) as u64;
        let bytes = read_file(path, limit)?;
        Self::parse(&bytes).map_err(|why| JournalError::Malformed { path: path.to_owned(), why })
    }

    /// Reads one that is open, whatever its name leads to.
    pub(super) fn read(file: BorrowedFd<'_>, path: &Path) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), what: "read it", source };
        let length = rustix::fs::fstat(file).map_err(|e| io(e.into()))?.st_size;
        let limit = Layout::WIDEST.file_bytes(RECORD_LIMIT);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0).min(limit)];
        let mut at = 0;
        while at < bytes.len() {
            // Not from where the descriptor stands: other processes share that.
            match rustix::io::pread(file, &mut bytes[at..], at as u64) {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(io(e.into())),
            }
        }
        bytes.truncate(at);
        Self::parse(&bytes).map_err(|why| JournalError::Malformed { path: path.to_owned(), why })
    }

    /// Reads a journal from its bytes.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong with the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let header = Header::parse(bytes)?;
        let needed = header.layout.file_bytes(header.capacity);
        if bytes.len() < needed {
            return Err(Malformed::Short { found: bytes.len(), needed });
        }
        let (mut records, mut scheduling) = (Vec::new(), Vec::new());
        for index in 0..header.capacity {
            match parse_record(bytes, header.layout, index)? {
                Some(AnyRecord::Masks(r)) => records.push(r),
                Some(AnyRecord::Scheduling(r)) => scheduling.push(r),
                None => {}
            }
        }
        Ok(Self { header, records, scheduling })
    }
}

/// None where the place is free.
fn parse_parent(bytes: &[u8], layout: Layout, index: usize) -> Result<Option<Parent>, Malformed> {
    let bad = |what| Malformed::Parent { index, what };
    let first = layout.first_parent() + index * PARENT_WORDS;
    let word = |n: usize| word_at(bytes, first + n).ok_or_else(|| bad("no end"));
    let state = word(0)?;
    if state == 0 {
        return Ok(None);
    }
    let kind =
        Kind::from_number(state & !SWITCHED_ON).ok_or_else(|| bad("a kind that does not exist"))?;
    let length = usize::try_from(word(1)?).ok().filter(|n| (1..=PARENT_PATH_LIMIT).contains(n));
    let length = length.ok_or_else(|| bad("a path of a length that cannot be"))?;
    let start = (first + 2) * WORD;
    let path = bytes.get(start..start + length).ok_or_else(|| bad("no end"))?;
    // What it says decides which directories are removed.
    let path = PathBuf::from(OsStr::from_bytes(path));
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain {
        return Err(bad("a path that is not absolute and plain"));
    }
    Ok(Some(Parent { kind, path, switched_on: state & SWITCHED_ON != 0 }))
}

fn parse_record(
    bytes: &[u8],
    layout: Layout,
    index: usize,
) -> Result<Option<AnyRecord>, Malformed> {
    let bad = |what| Malformed::Record { index, what };
    let first = layout.record(index);
    let word = |n: usize| word_at(bytes, first + n).ok_or_else(|| bad("no end"));
    let tag = word(field::STATE)?;
    if tag == RecordState::Blank as u64 {
        return Ok(None);
    }
    let state = match tag & ((1 << kind::SHIFT) - 1) {
        s if s == RecordState::Live as u64 => RecordState::Live,
        s if s == RecordState::Ended as u64 => RecordState::Ended,
        s if s == RecordState::LeftAlone as u64 => RecordState::LeftAlone,
        _ => return Err(bad("a state that does not exist")),
    };
    let ids = word(field::IDS)?;
    let (tid, tgid) = ((ids >> 32) as u32 as i32, ids as u32 as i32);
    let n = word(field::SETS)?;
    // Where the values stand that were set last, newest first.
    let newest = (0..n.min(2)).map(|back| 1 + ((n - 1 - back) % 2) as usize);
    let of_thread = || {
        if tid <= 0 || tgid <= 0 {
            return Err(bad("a thread or process id that cannot be"));
        }
        Ok((ThreadId { tid: Tid(tid), start: word(field::START)? }, Pid(tgid)))
    };
    match tag >> kind::SHIFT {
        kind::MASKS => {
            let (id, tgid) = of_thread()?;
            let (original, set) = parse_masks(bytes, layout, index, newest)?;
            Ok(Some(AnyRecord::Masks(Record { id, tgid, state, original, set })))
        }
        kind::SCHEDULING => {
            let (id, tgid) = of_thread()?;
            let value = |which| -> Result<Option<Scheduling>, Malformed> {
                let at = Layout::value(0, which, Scheduling::WORDS);
                Ok(Scheduling::from_words([word(at)?, word(at + 1)?]))
            };
            let bad = || bad("a way of scheduling that cannot be");
            let original = value(0)?.ok_or_else(bad)?;
            let mut set = Vec::new();
            for (back, which) in newest.enumerate() {
                match value(which)? {
                    Some(v) => set.push(v),
                    // The older one may be half overwritten.
                    None if back > 0 => {}
                    None => return Err(bad()),
                }
            }
            Ok(Some(AnyRecord::Scheduling(SchedulingRecord { id, tgid, state, original, set })))
        }
        _ => Err(bad("a kind that does not exist")),
    }
}

/// The original mask of a record, and those that were set, newest first.
fn parse_masks(
    bytes: &[u8],
    layout: Layout,
    index: usize,
    newest: impl Iterator<Item = usize>,
) -> Result<(CpuSet, Vec<CpuSet>), Malformed> {
    let bad = |what| Malformed::Record { index, what };
    let first = layout.record(index);
    let mask = |which: usize| -> Result<CpuSet, Malformed> {
        let start = layout.mask(first, which);
        (start..start + layout.mask_words)
            .map(|n| word_at(bytes, n).ok_or_else(|| bad("no end")))
            .collect::<Result<Vec<u64>, _>>()
            .map(|words| CpuSet::from_words(&words))
    };
    let original = mask(0)?;
    if original.is_empty() {
        return Err(bad("an empty original mask"));
    }
    let mut set = Vec::new();
    for (back, which) in newest.enumerate() {
        let m = mask(which)?;
        if !m.is_empty() {
            set.push(m);
        } else if back == 0 {
            return Err(bad("an empty set mask"));
        }
        // The older mask may be half overwritten by one that was never set: it is then no mask of
        // any thread, and an empty one says nothing.
    }
    Ok((original, set))
}

/// Reads a journal file: a regular one, not through a link, of this user or of root.
fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, JournalError> {
    let io = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
    // NONBLOCK: a fifo in its place must not hold the caller.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(io("open it"))?;
    let file = File::from(file);
    let meta = file.metadata().map_err(io("look at it"))?;
    let uid = rustix::process::geteuid().as_raw();
    if !meta.is_file() || (meta.uid() != uid && meta.uid() != 0) {
        let found = if meta.is_file() { "another user's file" } else { "no regular file" };
        return Err(io("trust it")(io::Error::other(format!("it is {found}"))));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(io("read it"))?;
    Ok(bytes)
}
