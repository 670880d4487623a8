//! A module: a program or a library, as a file.

use crate::machine::Machine;
use crate::wait::Wait;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};
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
    /// It has Go's runtime, which handles all signals by itself, past the C library.
    pub is_go: bool,
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
        let file = object::File::parse(bytes)?;
        let is_go = [".gopclntab", ".go.buildinfo", ".note.go.buildid"]
            .iter()
            .any(|name| file.section_by_name(name).is_some());
        let machine = Machine::of(file.architecture());
        let none = Self { is_go, machine, ..Self::default() };
        let Some(machine) = machine else { return Ok(none) };
        let mut found = Vec::new();
        for_functions(&file, bytes, |code, offset| {
            pause();
            let all = machine.waits(code).into_iter();
            found.extend(all.filter_map(|wait| spin(machine, code, offset, wait)));
        });
        found.sort_unstable_by_key(|spin| spin.offset);
        found.dedup_by_key(|spin| spin.offset);
        Ok(Self { spins: found, ..none })
    }
}

impl Module {
    /// Loops around these places of a file that may wait, of which that is not proved.
    ///
    /// # Errors
    /// If it is no module.
    pub fn doubtful(bytes: &[u8], places: &[u64]) -> Result<Vec<Spin>, SpinsError> {
        let file = object::File::parse(bytes)?;
        let mut found = Vec::new();
        let Some(machine) = Machine::of(file.architecture()) else { return Ok(found) };
        for_functions(&file, bytes, |code, offset| {
            let within =
                |&at: &u64| Some(at.checked_sub(offset)? as usize).filter(|&i| i < code.len());
            let places: Vec<usize> = places.iter().filter_map(within).collect();
            if !places.is_empty() {
                let all = machine.loops(code, &places, &machine.waits(code)).into_iter();
                found.extend(all.filter_map(|wait| spin(machine, code, offset, wait)));
            }
        });
        Ok(found)
    }

    /// The loop that a place in the file is within; the smallest, where they are nested.
    #[must_use]
    pub fn spin_at(&self, offset: u64) -> Option<&Spin> {
        let around = self.spins.iter().filter(|spin| spin.turn.contains(&offset));
        around.min_by_key(|spin| spin.turn.end - spin.turn.start)
    }
}

/// A wait in the code of a function that begins there in the file.
fn spin(machine: Machine, code: &[u8], offset: u64, Wait { at, turn }: Wait) -> Option<Spin> {
    let bytes = code.get(at..at + machine.bytes())?.to_vec();
    let turn = offset + turn.start as u64..offset + turn.end as u64;
    Some(Spin { offset: offset + at as u64, bytes, turn })
}

/// The functions that may be looked at: the bytes of each, and where they are in the file.
fn for_functions(file: &object::File<'_>, bytes: &[u8], mut each: impl FnMut(&[u8], u64)) {
    let only = only(file);
    // What is damaged there is none of a compiler's.
    for (start, length) in functions(file).unwrap_or_default() {
        if only.as_ref().is_none_or(|only| only.contains(&start))
            && let Some((code, offset)) = code(file, bytes, start, length)
        {
            each(code, offset);
        }
    }
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

/// The bytes of a function, and where they are in the file; None where they are not all in one executable segment.
fn code<'a>(
    file: &object::File<'_>,
    bytes: &'a [u8],
    start: u64,
    length: u64,
) -> Option<(&'a [u8], u64)> {
    let runs =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0);
    file.segments().filter(|s| runs(s.flags())).find_map(|s| {
        let (at, size) = s.file_range();
        let skip = start.checked_sub(s.address()).filter(|&skip| skip < size)?;
        let from = at.checked_add(skip)?;
        let until = from.checked_add(length.min(size - skip))?;
        let code = bytes.get(usize::try_from(from).ok()?..usize::try_from(until).ok()?)?;
        Some((code, from))
    })
}
