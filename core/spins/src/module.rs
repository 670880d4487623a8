//! A module: a program or a library, as a file.

use crate::machine::Machine;
use crate::wait::Wait;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SegmentFlags};
use std::io::{Read, Seek};
use std::ops::Range;

/// Why a module cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum SpinsError {
    /// It is no ELF file, or a damaged one.
    #[error("no module: {0}; needed is an ELF file of this machine")]
    NoModule(#[from] object::Error),
    /// The table of its functions is damaged.
    #[error("the table of its functions (.eh_frame) is damaged: {0}")]
    Functions(#[from] gimli::Error),
}

/// An instruction that is executed once a turn of a loop that waits: a pause, or the jump back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spin {
    /// Where it is in the file.
    pub offset: u64,
    /// Its first two bytes; all four, on aarch64.
    pub bytes: Vec<u8>,
    /// Where the loop is.
    pub turn: Range<u64>,
}

/// What is known of a module by its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// Where its threads wait by spinning, in rising order.
    pub spins: Vec<Spin>,
    /// For which kind of processor it is; None for one that is not known.
    pub machine: Option<Machine>,
}

impl Module {
    /// Looks through a file.
    ///
    /// # Errors
    /// If it is no module.
    pub fn of(bytes: &[u8]) -> Result<Self, SpinsError> {
        Self::of_slowly(bytes, || {})
    }

    /// The same, with a pause before each function.
    ///
    /// # Errors
    /// If it is no module.
    pub fn of_slowly(bytes: &[u8], mut pause: impl FnMut()) -> Result<Self, SpinsError> {
        let functions = Functions::of(bytes)?;
        let mut spins = Vec::new();
        for function in &functions.all {
            pause();
            spins.extend(functions.spins(function, code(bytes, function)));
        }
        spins.sort_unstable_by_key(|spin| spin.offset);
        spins.dedup_by_key(|spin| spin.offset);
        Ok(Self { spins, machine: functions.machine })
    }

    /// Loops around these places of a file that may wait, of which that is not proved.
    ///
    /// # Errors
    /// If it is no module.
    pub fn doubtful(bytes: &[u8], places: &[u64]) -> Result<Vec<Spin>, SpinsError> {
        let functions = Functions::of(bytes)?;
        let of = |f: &Range<u64>| functions.doubtful(f, code(bytes, f), places);
        Ok(functions.all.iter().flat_map(of).collect())
    }

    /// The loop that a place in the file is within; the smallest, where they are nested.
    #[must_use]
    pub fn spin_at(&self, offset: u64) -> Option<&Spin> {
        innermost(&self.spins, offset)
    }
}

/// The loop that a place in the file is within; the smallest, where they are nested.
#[must_use]
pub fn innermost(spins: &[Spin], offset: u64) -> Option<&Spin> {
    let around = spins.iter().filter(|spin| spin.turn.contains(&offset));
    around.min_by_key(|spin| spin.turn.end - spin.turn.start)
}

/// The functions of a module that may be looked at, as far as its tables say: to go through the code of one takes a moment, and
/// through that of all, in a large file, half a second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    /// Where they are in the file, in rising order.
    all: Vec<Range<u64>>,
    machine: Option<Machine>,
}

impl Functions {
    /// Those of this file.
    ///
    /// # Errors
    /// If it is no module.
    pub fn of(bytes: &[u8]) -> Result<Self, SpinsError> {
        let file = object::File::parse(bytes)?;
        let machine = Machine::of(file.architecture());
        if machine.is_none() {
            return Ok(Self::default());
        }
        let only = only(&file);
        // What is damaged there is none of a compiler's.
        let mut all = functions(&file).unwrap_or_default();
        all.retain(|(start, _)| only.as_ref().is_none_or(|only| only.contains(start)));
        let size = bytes.len() as u64;
        let in_file = |(start, length)| in_file(&file, start, length).filter(|f| f.end <= size);
        let mut all: Vec<Range<u64>> = all.into_iter().filter_map(in_file).collect();
        all.sort_unstable_by_key(|f| (f.start, f.end));
        Ok(Self { all, machine })
    }

    /// For which kind of processor it is; None for one that is not known.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        self.machine
    }

    /// The function that a place in the file is within.
    #[must_use]
    pub fn around(&self, offset: u64) -> Option<&Range<u64>> {
        let before = self.all.partition_point(|f| f.start <= offset);
        self.all[..before].last().filter(|f| f.contains(&offset))
    }

    /// Where threads wait by spinning in a function with this code.
    #[must_use]
    pub fn spins(&self, function: &Range<u64>, code: &[u8]) -> Vec<Spin> {
        let Some(machine) = self.machine else { return Vec::new() };
        let all = machine.waits(code).into_iter();
        all.filter_map(|wait| spin(machine, code, function.start, wait)).collect()
    }

    /// Its loops around these places of the file that may wait, of which that is not proved.
    #[must_use]
    pub fn doubtful(&self, function: &Range<u64>, code: &[u8], places: &[u64]) -> Vec<Spin> {
        let within = places.iter().filter(|at| function.contains(at));
        let places: Vec<usize> = within.map(|at| (at - function.start) as usize).collect();
        let Some(machine) = self.machine.filter(|_| !places.is_empty()) else { return Vec::new() };
        let all = machine.loops(code, &places, &machine.waits(code)).into_iter();
        all.filter_map(|wait| spin(machine, code, function.start, wait)).collect()
    }
}

/// No module has more sections.
const MOST_SECTIONS: usize = 10_000;

/// Whether a file has Go's runtime, which handles all signals by itself, past the C library; or is so unusual that it may have. Only
/// the names of its sections are read.
#[must_use]
pub fn is_go(file: impl Read + Seek) -> bool {
    let cache = ReadCache::new(file);
    let Ok(file) = object::File::parse(&cache) else { return false };
    let names = [".gopclntab", ".go.buildinfo", ".note.go.buildid"];
    file.sections().nth(MOST_SECTIONS).is_some()
        || names.iter().any(|name| file.section_by_name(name).is_some())
}

/// The code of a function.
fn code<'a>(bytes: &'a [u8], function: &Range<u64>) -> &'a [u8] {
    let range = usize::try_from(function.start).ok().zip(usize::try_from(function.end).ok());
    range.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default()
}

/// A wait in the code of a function that begins there in the file.
fn spin(machine: Machine, code: &[u8], offset: u64, Wait { at, turn }: Wait) -> Option<Spin> {
    let bytes = code.get(at..at + machine.bytes())?.to_vec();
    let turn = offset + turn.start as u64..offset + turn.end as u64;
    Some(Spin { offset: offset + at as u64, bytes, turn })
}

/// The function of the C library in which programs wait for locks of their own.
const LOCK: &str = "pthread_spin_lock";

/// Addresses of the functions that alone may be looked at, where it is the C library, or stands for its allocator as jemalloc
/// does: the rest is called while all signals are blocked.
fn only(file: &object::File<'_>) -> Option<Vec<u64>> {
    let mut is_of_system = false;
    let mut locks = Vec::new();
    for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
        let is_lock = symbol.name() == Ok(LOCK);
        is_of_system |= is_lock || symbol.name() == Ok("free");
        if is_lock {
            locks.push(symbol.address());
        }
    }
    is_of_system.then_some(locks)
}

/// Addresses and lengths of the functions.
fn functions(file: &object::File<'_>) -> Result<Vec<(u64, u64)>, SpinsError> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Ok(Vec::new()) };
    let data = section.data()?;
    let table = EhFrame::new(data, LittleEndian);
    let address = |name| file.section_by_name(name).map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut all = Vec::new();
    let mut entries = table.entries(&bases);
    while let Some(entry) = entries.next()? {
        if let CieOrFde::Fde(partial) = entry {
            let of = |_: &EhFrame<EndianSlice<'_, LittleEndian>>, bases: &BaseAddresses, offset| {
                table.cie_from_offset(bases, offset)
            };
            let function = partial.parse(of)?;
            all.push((function.initial_address(), function.len()));
        }
    }
    Ok(all)
}

/// Where a function is in the file; None where it is not all in one executable segment.
fn in_file(file: &object::File<'_>, start: u64, length: u64) -> Option<Range<u64>> {
    let runs =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0);
    file.segments().filter(|s| runs(s.flags())).find_map(|s| {
        let (at, size) = s.file_range();
        let skip = start.checked_sub(s.address()).filter(|&skip| skip < size)?;
        let from = at.checked_add(skip)?;
        Some(from..from.checked_add(length.min(size - skip))?)
    })
}
