//! Who sends how much to whom, and computes how much, while MPI programs run: the file that `probe/c/mpi.c`
//! writes (`probe/c/messages.h` is its layout), made and read.
//!
//! Invariants, as of [`crate::waiting`]: a reader writes nothing, never waits, and takes nothing on
//! trust: every number is checked, and what is torn is left out or as it was when it was read last. It is
//! read and not mapped, so that nothing in it can harm evenly. Its length is sealed, as programs do map it. All that is summed up here only
//! goes up, so that a value that was read twice the same was that value in between.

use crate::layout::messages::{header, rank as entry, tally};
use crate::shared::sealed;
use crate::waiting::{u32_at, u64_at};
use evenly_model::{Nanos, Pid, Tid};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The variable that names the file to programs.
pub const VARIABLE: &str = "EVENLY_MESSAGES";
/// What a file begins with that is such a one.
const MAGIC: u64 = u64::from_le_bytes(*b"enlymess");
/// The version of the layout.
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: u64 = 4096;
/// How many ranks there is room for in the index.
const RANKS: u32 = 16_384;
/// Bytes of an entry of the index.
const ENTRY: usize = entry::SIZEOF;
/// Where in the file the tallies begin, behind the index.
const TALLIES: u64 = HEADER + RANKS as u64 * ENTRY as u64;
/// Bytes of a tally.
const TALLY: usize = tally::SIZEOF;
/// Bytes of the file.
const SIZE: u64 = 256 << 20;
/// How the file is called in `/proc`.
const NAME: &str = "evenly-messages";
/// How often what is being written is read again before it is given up for this time.
const TRIES: u32 = 8;

/// What went between a rank and another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The other, by its rank in `MPI_COMM_WORLD`.
    pub with: u32,
    /// How many messages there were.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What a rank has published of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The process that is this rank.
    pub pid: Pid,
    /// The thread that has initialised MPI. All times are of it.
    pub tid: Tid,
    /// Its number in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// How many there are there.
    pub ranks: u32,
    /// When MPI had been initialised, since the host was started.
    pub registered: Nanos,
    /// When it was done with MPI, where it is.
    pub ended: Option<Nanos>,
    /// CPU time of the thread when MPI had been initialised.
    pub began: Nanos,
    /// The same when it read it last.
    pub cpu: Nanos,
    /// What of that was in MPI.
    pub mpi: Nanos,
    /// It is in a call that may wait: what the thread had computed between `cpu` and that call.
    pub open: Option<Nanos>,
    /// Messages to ranks that are not in `MPI_COMM_WORLD`.
    pub outside: u64,
    /// Collectives that are in no tally.
    pub uncounted: u64,
    /// What it has sent, to each that it has sent to.
    pub sent: Vec<Tally>,
    /// What it has fetched by itself, from each.
    pub fetched: Vec<Tally>,
}

impl Rank {
    /// Whether this is of the thread that was started at this moment (since the host was started, in the
    /// kernel's granularity, which rounds down).
    #[must_use]
    pub fn is_of(&self, started: Nanos) -> bool {
        started <= self.registered
    }

    /// CPU time that the thread has used outside of MPI, of all that it has used by now; where that is not
    /// known, of what it knew itself.
    #[must_use]
    pub fn computed(&self, cpu: Option<Nanos>) -> Nanos {
        match self.open {
            // What it has used since then it has waited with.
            Some(open) => (self.cpu - self.mpi) + open,
            None => cpu.unwrap_or_default().max(self.cpu) - self.mpi,
        }
    }
}

/// Why there is no such file to be made or read.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    /// It cannot be made.
    #[error("cannot make the file in which ranks count messages ({what}): {source}")]
    Make {
        /// What could not be done or found, in words.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("cannot read the file in which ranks count messages: {0}")]
    Read(io::Error),
}

/// The file of a run: for programs that are started with [`Mapping::variable`] in their environment. It
/// lives as long as this or a program that has it.
#[derive(Debug)]
pub struct Mapping {
    file: File,
}

impl Mapping {
    /// A new one.
    ///
    /// # Errors
    /// Where the system has no place for it.
    pub fn new() -> Result<Self, MessagesError> {
        let cannot = |what| move |source: io::Error| MessagesError::Make { what, source };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(cannot("boot_id of the host"))?;
        let namespace = fs::metadata("/proc/self/ns/pid").map_err(cannot("PID namespace"))?.ino();
        let file = sealed(NAME, SIZE).map_err(|(what, e)| cannot(what)(e))?;
        let mut bytes = [0; header::SIZEOF];
        let mut put = |at: usize, what: &[u8]| {
            // All of these are within the header, which a test holds against the C one.
            if let Some(to) = bytes.get_mut(at..at + what.len()) {
                to.copy_from_slice(what);
            }
        };
        put(header::MAGIC, &MAGIC.to_ne_bytes());
        put(header::VERSION, &VERSION.to_ne_bytes());
        put(header::RANK_SIZE, &(ENTRY as u32).to_ne_bytes());
        put(header::RANKS, &RANKS.to_ne_bytes());
        let boot = boot.trim().as_bytes();
        put(header::BOOT, boot.get(..header::SIZEOF_BOOT - 1).unwrap_or(boot));
        put(header::PID_NAMESPACE, &namespace.to_ne_bytes());
        put(header::SIZE, &SIZE.to_ne_bytes());
        put(header::NEXT, &TALLIES.to_ne_bytes());
        file.write_all_at(&bytes, 0).map_err(cannot("writing its header"))?;
        Ok(Self { file })
    }

    /// The variable to be set for programs.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        (VARIABLE.into(), path.into())
    }

    /// A reader of it.
    ///
    /// # Errors
    /// Where there are no more descriptors.
    pub fn reader(&self) -> Result<Reader, MessagesError> {
        let file = self.file.try_clone().map_err(MessagesError::Read)?;
        Ok(Reader { file, known: Known::default() })
    }
}

/// Reads such a file.
#[derive(Debug)]
pub struct Reader {
    file: File,
    known: Known,
}

impl Reader {
    /// The ranks that are wanted (their tallies are still empty when that is asked), in the order in which
    /// they came; `out` is emptied before. Returns how many ranks found no room in the file.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read(
        &mut self,
        wanted: &dyn Fn(&Rank) -> bool,
        out: &mut Vec<Rank>,
    ) -> Result<u32, MessagesError> {
        out.clear();
        let read = |bytes: &mut [u8], at: u64| self.file.read_exact_at(bytes, at);
        self.known.read(&read, wanted, out).map_err(MessagesError::Read)
    }
}

/// Where bytes come from: so many from this place on.
type Source<'a> = &'a dyn Fn(&mut [u8], u64) -> io::Result<()>;

/// What was read before: for tallies that are being written whenever they are looked at.
#[derive(Debug, Default)]
struct Known {
    tallies: HashMap<u64, Vec<u8>>,
}

impl Known {
    fn read(
        &mut self,
        source: Source<'_>,
        wanted: &dyn Fn(&Rank) -> bool,
        out: &mut Vec<Rank>,
    ) -> io::Result<u32> {
        let mut bytes = [0; header::SIZEOF];
        source(&mut bytes, 0)?;
        let count = u32_at(&bytes, header::COUNT).min(RANKS);
        // What is claimed together is no more than there can be, so that no program makes us read for ever.
        let mut left = SIZE - TALLIES;
        for number in 0..u64::from(count) {
            let Some(bytes) = entry(source, HEADER + number * ENTRY as u64)? else { continue };
            let Some((mut rank, place)) = parsed(&bytes) else { continue };
            if !wanted(&rank) {
                continue;
            }
            let size = 2 * TALLY as u64 * u64::from(rank.ranks);
            if size > left {
                break;
            }
            left -= size;
            let (sent, fetched) = self.tallies(source, number, place, size as usize)?;
            (rank.sent, rank.fetched) = (sent, fetched);
            out.push(rank);
        }
        Ok(u32_at(&bytes, header::REFUSED))
    }

    /// What was sent, and what was fetched.
    fn tallies(
        &mut self,
        source: Source<'_>,
        number: u64,
        place: u64,
        size: usize,
    ) -> io::Result<(Vec<Tally>, Vec<Tally>)> {
        let (mut once, mut twice) = (vec![0; size], vec![0; size]);
        source(&mut once, place)?;
        source(&mut twice, place)?;
        let before = self.tallies.remove(&number).filter(|known| known.len() == size);
        for at in (0..size).step_by(TALLY) {
            let here = at..at + TALLY;
            for _ in 0..TRIES {
                if once[here.clone()] == twice[here.clone()] {
                    break;
                }
                source(&mut once[here.clone()], place + at as u64)?;
                source(&mut twice[here.clone()], place + at as u64)?;
            }
            if once[here.clone()] != twice[here.clone()] {
                // It is counted when it is read next.
                match &before {
                    Some(known) => once[here.clone()].copy_from_slice(&known[here]),
                    None => once[here].fill(0),
                }
            }
        }
        let parsed = |bytes: &[u8]| -> Vec<Tally> {
            let tally = |(with, bytes): (usize, &[u8])| Tally {
                with: with as u32,
                messages: u64_at(bytes, 0),
                bytes: u64_at(bytes, 8),
            };
            let all = bytes.chunks_exact(TALLY).enumerate().map(tally);
            all.filter(|t| t.messages > 0).collect()
        };
        let (sent, fetched) = once.split_at(size / 2);
        let both = (parsed(sent), parsed(fetched));
        self.tallies.insert(number, once);
        Ok(both)
    }
}

/// An entry as its rank has written it; None where it was being written all the time.
fn entry(source: Source<'_>, at: u64) -> io::Result<Option<[u8; ENTRY]>> {
    let (mut once, mut twice) = ([0; ENTRY], [0; ENTRY]);
    for _ in 0..TRIES {
        source(&mut once, at)?;
        source(&mut twice, at)?;
        // As for the lines of `crate::waiting`; the counters beside the times change without a number.
        let times =
            |bytes: &[u8]| [entry::CPU, entry::MPI, entry::OPEN].map(|at| u64_at(bytes, at));
        let seq = |bytes: &[u8]| u32_at(bytes, entry::SEQ);
        if seq(&once) == seq(&twice)
            && seq(&once).is_multiple_of(2)
            && times(&once) == times(&twice)
        {
            return Ok(Some(twice));
        }
    }
    Ok(None)
}

/// The rank of an entry, without its tallies, and where these are. None where it is not there yet, or cannot
/// be one.
fn parsed(bytes: &[u8]) -> Option<(Rank, u64)> {
    let id = |at| i32::try_from(u32_at(bytes, at)).ok().filter(|&id| id > 0);
    let (rank, ranks) = (u32_at(bytes, entry::RANK), u32_at(bytes, entry::RANKS));
    let place = u64_at(bytes, entry::PLACE);
    let end = place.checked_add(2 * TALLY as u64 * u64::from(ranks))?;
    if rank >= ranks || place < TALLIES || !place.is_multiple_of(8) || end > SIZE {
        return None;
    }
    let nanos = |at| Nanos(u64_at(bytes, at));
    let mult = u128::from(u64_at(bytes, entry::MULT));
    let open = u64_at(bytes, entry::OPEN).checked_sub(1).map(|ticks| {
        let ns = (u128::from(ticks) * mult) >> 32;
        // Nonsense, but no overflow where it is added to.
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX).min(u64::MAX / 4))
    });
    let cpu = Nanos(u64_at(bytes, entry::CPU).min(u64::MAX / 4));
    let rank = Rank {
        pid: Pid(id(entry::PID)?),
        tid: Tid(id(entry::TID)?),
        rank,
        ranks,
        registered: nanos(entry::REGISTERED),
        ended: Some(nanos(entry::ENDED)).filter(|at| *at != Nanos::ZERO),
        began: nanos(entry::BEGAN),
        cpu,
        mpi: nanos(entry::MPI).min(cpu),
        open,
        outside: u64_at(bytes, entry::OUTSIDE),
        uncounted: u64_at(bytes, entry::UNCOUNTED),
        sent: Vec::new(),
        fetched: Vec::new(),
    };
    Some((rank, place))
}

/// Reads arbitrary bytes as such a file: header, entries and tallies one behind the other, nothing where
/// they end; the last one says what changes from reading to reading. For fuzzing: whatever the bytes are,
/// it returns.
#[must_use]
pub fn exercise(bytes: &[u8]) -> Vec<Rank> {
    let changes = bytes.last().copied().unwrap_or_default();
    let entries = bytes.len().saturating_sub(header::SIZEOF) / ENTRY;
    let calls = std::cell::Cell::new(0u64);
    let source = |to: &mut [u8], at: u64| {
        let from = if at < HEADER {
            at
        } else if at < TALLIES {
            header::SIZEOF as u64 + (at - HEADER)
        } else {
            (header::SIZEOF + entries.min(2) * ENTRY) as u64 + (at - TALLIES)
        };
        // All at once: it is called a million times, without optimisation.
        let rest = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or(&[]);
        let (there, missing) = to.split_at_mut(rest.len().min(to.len()));
        there.copy_from_slice(&rest[..there.len()]);
        missing.fill(0);
        calls.set(calls.get() + 1);
        if changes > 127
            && let Some(byte) = to.first_mut()
        {
            *byte = byte.wrapping_add((calls.get() % u64::from(changes)) as u8);
        }
        Ok(())
    };
    // Few of them may have very many tallies.
    let few = std::cell::Cell::new(0);
    let wanted = |rank: &Rank| {
        few.set(few.get() + 1);
        rank.ranks <= 64 && few.get() <= 8
    };
    let (mut known, mut out) = (Known::default(), Vec::new());
    for _ in 0..2 {
        few.set(0);
        out.clear();
        // The source never fails.
        let _ = known.read(&source, &wanted, &mut out);
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use crate::header::Header;
    use std::cell::Cell;

    /// What the compiler of C makes of `probe/c/messages.h`, but for where fields are.
    #[test]
    fn the_numbers_are_those_of_the_header() {
        let mut c = Header::of("messages.h");
        let mut say = |what: String| c.holds(what);
        say(format!("EVENLY_MESSAGES_HEADER == {HEADER} && EVENLY_MESSAGES_RANKS == {RANKS}"));
        say(format!("EVENLY_MESSAGES_SIZE == {SIZE} && EVENLY_MESSAGES_VERSION == {VERSION}"));
        say(format!("EVENLY_MESSAGES_MAGIC == {MAGIC}"));
        let name = format!("{VARIABLE}/memfd:{NAME}");
        c.check("EVENLY_MESSAGES_VARIABLE EVENLY_MESSAGES_NAME", &name);
    }

    /// An entry whose tallies are the first ones there are.
    fn a_rank(rank: u32, ranks: u32, cpu: u64, mpi: u64, open: u64) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(entry::PID, &5u32.to_ne_bytes());
        put(entry::TID, &5u32.to_ne_bytes());
        put(entry::RANK, &rank.to_ne_bytes());
        put(entry::RANKS, &ranks.to_ne_bytes());
        put(entry::REGISTERED, &100u64.to_ne_bytes());
        put(entry::PLACE, &TALLIES.to_ne_bytes());
        // Half a nanosecond.
        put(entry::MULT, &(1u64 << 31).to_ne_bytes());
        put(entry::CPU, &cpu.to_ne_bytes());
        put(entry::MPI, &mpi.to_ne_bytes());
        put(entry::OPEN, &open.to_ne_bytes());
        put(entry::SEQ, &4u32.to_ne_bytes());
        bytes
    }

    fn put(mapping: &Mapping, bytes: &[u8], at: u64) {
        mapping.file.write_all_at(bytes, at).unwrap();
    }

    fn read(reader: &mut Reader) -> Vec<Rank> {
        let mut out = Vec::new();
        reader.read(&|_| true, &mut out).unwrap();
        out
    }

    #[test]
    fn what_ranks_tell() {
        let mapping = Mapping::new().unwrap();
        let mut reader = mapping.reader().unwrap();
        assert_eq!(read(&mut reader), []);
        // One that was taken and is not there yet, one that is, and one that cannot be.
        put(&mapping, &3u32.to_ne_bytes(), header::COUNT as u64);
        put(&mapping, &a_rank(1, 2, 900, 300, 0), HEADER + ENTRY as u64);
        put(&mapping, &a_rank(2, 2, 900, 300, 0), HEADER + 2 * ENTRY as u64);
        for (word, value) in [7u64, 80, 0, 0, 3, 24, 0, 0].into_iter().enumerate() {
            put(&mapping, &value.to_ne_bytes(), TALLIES + 8 * word as u64);
        }
        let found = read(&mut reader);
        assert_eq!(found.len(), 1);
        let rank = &found[0];
        assert_eq!((rank.rank, rank.ranks, rank.pid, rank.tid), (1, 2, Pid(5), Tid(5)));
        assert_eq!(rank.sent, [Tally { with: 0, messages: 7, bytes: 80 }]);
        assert_eq!(rank.fetched, [Tally { with: 0, messages: 3, bytes: 24 }]);
        assert!(rank.is_of(Nanos(100)) && !rank.is_of(Nanos(101)));
        // It computes: all of its CPU time but what was in MPI.
        assert_eq!(rank.computed(Some(Nanos(1_000))), Nanos(700));
        assert_eq!((rank.computed(None), rank.computed(Some(Nanos(1)))), (Nanos(600), Nanos(600)));
        // It waits since it had computed for 50 more; however long that lasts.
        put(&mapping, &a_rank(1, 2, 900, 300, 101), HEADER + ENTRY as u64);
        let rank = &read(&mut reader)[0];
        assert_eq!(rank.computed(Some(Nanos(1_000_000))), Nanos(650));
        // Only those who are wanted.
        let mut out = found;
        reader.read(&|r| r.pid == Pid(6), &mut out).unwrap();
        assert_eq!(out, []);
    }

    #[test]
    fn what_is_no_rank() {
        let good = a_rank(1, 2, 900, 300, 1);
        assert!(parsed(&good).is_some());
        let with = |at: usize, value: &[u8]| {
            let mut bytes = good;
            bytes[at..at + value.len()].copy_from_slice(value);
            parsed(&bytes).map(|(rank, _)| rank)
        };
        for (at, value) in [
            (entry::PID, 0u32),
            (entry::PID, u32::MAX),
            (entry::TID, 0),
            (entry::RANK, 2),
            (entry::RANKS, 0),
            (entry::RANKS, u32::MAX),
        ] {
            assert_eq!(with(at, &value.to_ne_bytes()), None, "{at}: {value}");
        }
        for place in [0, TALLIES - 8, TALLIES + 4, SIZE - 32, SIZE, u64::MAX] {
            assert_eq!(with(entry::PLACE, &place.to_ne_bytes()), None, "{place}");
        }
        // More in MPI than there was; more than there can be.
        let rank = with(entry::MPI, &u64::MAX.to_ne_bytes()).unwrap();
        assert_eq!(rank.computed(None), Nanos::ZERO);
        let mut bytes = good;
        bytes[entry::MULT..entry::MULT + 8].fill(0xff);
        bytes[entry::CPU..entry::CPU + 8].fill(0xff);
        bytes[entry::OPEN..entry::OPEN + 8].fill(0xff);
        let (rank, _) = parsed(&bytes).unwrap();
        assert!(rank.computed(None).0 > u64::MAX / 4);
        // One that has tallies up to the end of the file, whose size is sealed.
        let mapping = Mapping::new().unwrap();
        let mut reader = mapping.reader().unwrap();
        put(&mapping, &1u32.to_ne_bytes(), header::COUNT as u64);
        let mut last = good;
        last[entry::PLACE..entry::PLACE + 8].copy_from_slice(&(SIZE - 64).to_ne_bytes());
        put(&mapping, &last, HEADER);
        let error = mapping.file.set_len(TALLIES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(read(&mut reader).len(), 1);
    }

    #[test]
    fn what_is_torn_is_read_again_or_left_as_it_was() {
        let good = a_rank(0, 1, 900, 300, 0);
        // The first reading is from before the entry was written anew, or in the middle of it.
        let torn = |first: [u8; ENTRY]| {
            let calls = Cell::new(0);
            let source = |to: &mut [u8], _: u64| {
                calls.set(calls.get() + 1);
                to.copy_from_slice(if calls.get() == 1 { &first } else { &good });
                Ok(())
            };
            (entry(&source, HEADER).unwrap(), calls.get())
        };
        assert_eq!(torn(good), (Some(good), 2));
        assert_eq!(torn(a_rank(0, 1, 900, 200, 0)), (Some(good), 4));
        let mut unfinished = good;
        unfinished[entry::SEQ] = 3;
        assert_eq!(torn(unfinished), (Some(good), 4));
        let always = |to: &mut [u8], _: u64| {
            to.copy_from_slice(&unfinished);
            Ok(())
        };
        assert_eq!(entry(&always, HEADER).unwrap(), None);
        // Of two tallies one goes up at each reading.
        let value = Cell::new(10u64);
        let moving = |to: &mut [u8], at: u64| {
            for (i, word) in to.chunks_exact_mut(8).enumerate() {
                let still = at + 8 * i as u64 >= TALLIES + TALLY as u64;
                word.copy_from_slice(&(if still { 5 } else { value.get() }).to_ne_bytes());
            }
            value.set(value.get() + 1);
            Ok(())
        };
        let mut known = Known::default();
        let (sent, fetched) = known.tallies(&moving, 0, TALLIES, 2 * TALLY).unwrap();
        assert_eq!((sent, fetched), (vec![], vec![Tally { with: 0, messages: 5, bytes: 5 }]));
        known.tallies.insert(0, [8u64; 4].iter().flat_map(|w| w.to_ne_bytes()).collect());
        let (sent, _) = known.tallies(&moving, 0, TALLIES, 2 * TALLY).unwrap();
        assert_eq!(sent, [Tally { with: 0, messages: 8, bytes: 8 }]);
    }
}
