//! A module: a program or a library, as a file.

use crate::code::{PAUSE, pauses};
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Architecture, Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};

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

/// What is known of a module by its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// Offsets in the file of the `pause` instructions at which threads wait, in rising order.
    pub pauses: Vec<u64>,
    /// It has Go's runtime, which handles all signals by itself, past the C library.
    pub is_go: bool,
}

impl Module {
    /// Looks through a file.
    ///
    /// # Errors
    /// If it is no module.
    pub fn of(bytes: &[u8]) -> Result<Self, SpinsError> {
        let file = object::File::parse(bytes)?;
        let is_go = [".gopclntab", ".go.buildinfo", ".note.go.buildid"]
            .iter()
            .any(|name| file.section_by_name(name).is_some());
        let none = Self { is_go, ..Self::default() };
        // Most modules have none.
        let has_pauses = bytes.windows(PAUSE.len()).any(|b| b == PAUSE);
        if !has_pauses || file.architecture() != Architecture::X86_64 || allocates(&file) {
            return Ok(none);
        }
        let mut found = Vec::new();
        // What is damaged there is none of a compiler's.
        for (start, length) in functions(&file).unwrap_or_default() {
            let Some((code, offset)) = code(&file, bytes, start, length) else { continue };
            found.extend(pauses(code, start).into_iter().map(|at| offset + (at - start)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(Self { pauses: found, ..none })
    }
}

/// Whether it stands for the C library's allocator, as jemalloc does: that is called while all signals are blocked.
fn allocates(file: &object::File<'_>) -> bool {
    file.dynamic_symbols().any(|s| s.is_definition() && s.name() == Ok("free"))
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
