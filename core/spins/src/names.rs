//! How a place in a module is called in its source.

use evenly_model::printable;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::path::Path;

/// The function at this place of a file, with its line where the file says: `barrier (app.c:12)`. `module` where the function
/// has no name.
#[must_use]
pub fn place(bytes: &[u8], offset: u64, module: &str) -> Option<String> {
    let object = object::File::parse(bytes).ok()?;
    let at = object.segments().find_map(|s| {
        let (begin, length) = s.file_range();
        let within = offset.checked_sub(begin).filter(|&within| within < length)?;
        s.address().checked_add(within)
    })?;
    // Behind the end of one is a function that has no name, as most of a stripped library.
    let is_in = |s: &object::Symbol<'_, '_>| {
        at.checked_sub(s.address()).is_some_and(|within| within < s.size())
    };
    let mut symbols = object.symbols().chain(object.dynamic_symbols());
    let symbol = symbols.find(|s| s.kind() == object::SymbolKind::Text && is_in(s));
    let name = symbol.and_then(|s| Some(s.name().ok()?.to_owned()));
    let name = name.map(|name| addr2line::demangle_auto(name.into(), None).into_owned());
    let name = name.unwrap_or_else(|| module.to_owned());
    let text = match line(&object, at) {
        Some(line) => format!("{name} ({line})"),
        None => name,
    };
    Some(printable(&text).into_owned())
}

/// The line of the source that an address is of, where the file says.
fn line(object: &object::File<'_>, at: u64) -> Option<String> {
    let section = |id: gimli::SectionId| -> Result<&[u8], gimli::Error> {
        let found = object.section_by_name(id.name());
        Ok(found.and_then(|s| s.data().ok()).unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(section).ok()?;
    let dwarf = sections.borrow(|data| gimli::EndianSlice::new(data, gimli::LittleEndian));
    let context = addr2line::Context::from_dwarf(dwarf).ok()?;
    // Of the function itself, where it waits in one that is part of it.
    let mut frames = context.find_frames(at).skip_all_loads().ok()?;
    let mut location = None;
    while let Ok(Some(frame)) = frames.next() {
        location = frame.location.or(location);
    }
    let location = location?;
    let file = Path::new(location.file?).file_name()?.to_string_lossy().into_owned();
    Some(format!("{file}:{}", location.line?))
}
