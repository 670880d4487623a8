//! The mappers for runtimes that are not written in Rust, such as Charm++: a C interface,
//! `include/evenly_mapper.h`, over `evenly_nuco::map`.
//!
//! ```text
//! C arrays -> (here: checked, borrowed) -> problem::solve, which is safe -> C array
//! ```
//!
//! Invariants:
//! - No panic crosses the border: one is caught and returned as a status.
//! - There is no state: a call touches what it is given and its own memory, nothing else.
//! - Outputs are written when all is well, and only then.
//! - Whatever numbers the arrays hold is data, and is checked; that pointers point to as many elements
//!   as their counts say is the caller's promise, and all that cannot be checked.
//!
//! The structures here and in the header are the same; `tests/c.rs` holds them against each other.

mod options;
mod problem;

pub use options::EvenlyMapOptions;

use evenly_nuco::map::{MAPPERS, MapperInfo, Objectives, Options, is_within, mapper};
use problem::{Problem, Solved, Status, Trouble, solve};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The version of the interface.
pub const VERSION: u32 = 1;

/// The algorithm where none is named.
const USUAL: &str = "nuco+";

/// Most tasks: as many as `evenly map` reads.
const MOST_TASKS: usize = 4_000_000;
/// The most edges that a call may give.
const MOST_EDGES: usize = 20_000_000;
/// Most cores and most nodes.
const MOST_CORES: usize = 1 << 20;
const MOST_NODES: usize = 1 << 12;

/// Most levels of caches.
const MOST_LEVELS: usize = 16;

/// `struct evenly_map_problem`: see the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the header has them")]
pub struct EvenlyMapProblem {
    pub struct_size: usize,
    pub tasks: usize,
    pub loads_s: *const f64,
    pub sizes_bytes: *const f64,
    pub movable: *const u8,
    pub present: *const u32,
    pub edges: usize,
    pub edge_from: *const u32,
    pub edge_to: *const u32,
    pub edge_messages: *const f64,
    pub edge_bytes: *const f64,
    pub cores: usize,
    pub core_node: *const u32,
    pub core_speed: *const f64,
    pub nodes: usize,
    pub node_host: *const u32,
    pub factors: *const f64,
    pub bandwidths: *const f64,
    pub cache_levels: usize,
    pub cache_factors: *const f64,
    pub core_caches: *const u32,
}

/// How long that structure has been: as it was at first, and as it is.
const PROBLEM_SIZES: [usize; 2] =
    [std::mem::offset_of!(EvenlyMapProblem, cache_levels), size_of::<EvenlyMapProblem>()];

impl EvenlyMapProblem {
    /// Nothing of anything: what is not given.
    const NOTHING: Self = Self {
        struct_size: 0,
        tasks: 0,
        loads_s: std::ptr::null(),
        sizes_bytes: std::ptr::null(),
        movable: std::ptr::null(),
        present: std::ptr::null(),
        edges: 0,
        edge_from: std::ptr::null(),
        edge_to: std::ptr::null(),
        edge_messages: std::ptr::null(),
        edge_bytes: std::ptr::null(),
        cores: 0,
        core_node: std::ptr::null(),
        core_speed: std::ptr::null(),
        nodes: 0,
        node_host: std::ptr::null(),
        factors: std::ptr::null(),
        bandwidths: std::ptr::null(),
        cache_levels: 0,
        cache_factors: std::ptr::null(),
        core_caches: std::ptr::null(),
    };
}

/// How long that structure has been: as it was at first, and as it is.
const OPTIONS_SIZES: [usize; 2] =
    [std::mem::offset_of!(EvenlyMapOptions, beta), size_of::<EvenlyMapOptions>()];

/// `struct evenly_map_objectives`: see the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the header has them")]
pub struct EvenlyMapObjectives {
    pub makespan_s: f64,
    pub mean_load_s: f64,
    pub imbalance: f64,
    pub nuco_messages: f64,
    pub remote_messages: f64,
    pub hop_bytes: f64,
    pub migrations: usize,
    pub migrated_bytes: f64,
}

impl From<Objectives> for EvenlyMapObjectives {
    fn from(o: Objectives) -> Self {
        Self {
            makespan_s: o.makespan_s,
            mean_load_s: o.mean_load_s,
            imbalance: o.imbalance,
            nuco_messages: o.nuco_messages,
            remote_messages: o.remote_messages,
            hop_bytes: o.hop_bytes,
            migrations: o.migrations,
            migrated_bytes: o.migrated_bytes,
        }
    }
}

/// `evenly_map_version`: see the header.
#[unsafe(no_mangle)]
pub extern "C" fn evenly_map_version() -> u32 {
    VERSION
}

/// `evenly_map_algorithm`: see the header.
///
/// # Safety
/// `name` is NULL, or has room for `size` bytes that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_map_algorithm(i: usize, name: *mut c_char, size: usize) -> usize {
    let found = MAPPERS.get(i).map_or("", |m| m.name);
    // SAFETY: the caller's promise is the same.
    unsafe { write_text(found, name, size) };
    found.len()
}

/// `evenly_map_options_init_sized`: see the header.
///
/// # Safety
/// `options` is NULL, or points to `size` bytes that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_map_options_init_sized(
    options: *mut EvenlyMapOptions,
    size: usize,
) {
    let Some(known) = OPTIONS_SIZES.into_iter().rfind(|known| *known <= size) else { return };
    if options.is_null() {
        return;
    }
    // A structure that is longer than ours keeps its size: evenly_map refuses it then.
    let struct_size = if size > size_of::<EvenlyMapOptions>() { size } else { known };
    let usual = EvenlyMapOptions { struct_size, ..EvenlyMapOptions::usual() };
    // SAFETY: it is not null, so by the caller's promise there are at least as many bytes; `usual` has
    // no fewer, without padding, as all of its fields have eight.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const usual).cast::<u8>(), options.cast::<u8>(), known);
    }
}

/// As programs call it that were built when `tolerance` was the last field: they have no room for more.
///
/// # Safety
/// `options` is NULL, or points to memory for the structure of that time, which no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_map_options_init(options: *mut EvenlyMapOptions) {
    // SAFETY: the caller's promise is the same.
    unsafe { evenly_map_options_init_sized(options, OPTIONS_SIZES[0]) };
}

/// `evenly_map`: see the header.
///
/// # Safety
/// Pointers are NULL, or point to as many elements as the header says, properly aligned; no thread
/// writes to what is read meanwhile, or uses what is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_map(
    problem: *const EvenlyMapProblem,
    options: *const EvenlyMapOptions,
    assignment: *mut u32,
    before: *mut EvenlyMapObjectives,
    after: *mut EvenlyMapObjectives,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    let solved = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller promises what `borrow` and `choices` need; both look at nothing but what
        // they are given here.
        let (problem, (mapper, options)) = unsafe { (borrow(problem)?, choices(options)?) };
        if assignment.is_null() {
            return Err(Trouble::input(
                "assignment is NULL; room for a core for each task is needed",
            ));
        }
        // When it returns the caller's arrays have been read, and may be the ones that are written.
        let solved = solve(&problem, mapper, &options)?;
        let note = unreached(mapper, &solved, &options);
        Ok((solved, note))
    }));
    let (status, what) = match solved {
        Ok(Ok((solved, note))) => {
            for (i, core) in solved.assignment.iter().enumerate() {
                // SAFETY: there is a core for each task, and the caller has room for as many.
                unsafe { assignment.add(i).write(*core) };
            }
            for (to, value) in [(before, solved.before), (after, solved.after)] {
                if !to.is_null() {
                    // SAFETY: it is not null, so by the caller's promise it can be written.
                    unsafe { to.write(value.into()) };
                }
            }
            (Status::Ok, note)
        }
        Ok(Err(trouble)) => (trouble.status, trouble.what),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            (Status::Fault, format!("a fault in evenly: {said}"))
        }
    };
    // SAFETY: by the caller's promise there are `message_size` bytes, or none where it is null.
    unsafe { write_text(&what, message, message_size) };
    status as c_int
}

/// What is said of a bound that was aimed at and not reached.
fn unreached(mapper: &MapperInfo, solved: &Solved, options: &Options) -> String {
    let asked = options.max_imbalance.filter(|_| mapper.name == USUAL);
    let missed = asked.filter(|&asked| !is_within(solved.after.imbalance, asked));
    missed.map_or(String::new(), |asked| {
        let [asked, reached] = [asked, solved.after.imbalance].map(|share| 100.0 * share);
        format!("an imbalance of {asked:.2} % was not reached: {reached:.2} % is the least that was found")
    })
}

/// `evenly_map_bounds_kept`: see the header.
///
/// # Safety
/// Pointers are NULL, or point to such structures, which no thread writes to meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_map_bounds_kept(
    options: *const EvenlyMapOptions,
    after: *const EvenlyMapObjectives,
) -> c_int {
    let kept = catch_unwind(|| {
        // SAFETY: the caller promises what `choices` needs.
        let Ok((_, options)) = (unsafe { choices(options) }) else { return false };
        if after.is_null() || !after.is_aligned() {
            return false;
        }
        // SAFETY: it is neither null nor misaligned, so by the caller's promise it can be read.
        let after = unsafe { after.read() };
        options.max_migrations.is_none_or(|most| after.migrations <= most)
            && options.max_imbalance.is_none_or(|most| is_within(after.imbalance, most))
    });
    c_int::from(kept.unwrap_or(false))
}

/// Writes a line as C has it: cut to the room that there is, on a whole character, with a closing 0.
///
/// # Safety
/// `to` is NULL, or has room for `size` bytes that no other thread uses meanwhile.
unsafe fn write_text(what: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let clean = evenly_model::printable(what);
    let mut end = clean.len().min(size - 1);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` is less than `size`, so text and closing 0 fit; our text is not in the caller's
    // memory, so the two do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(clean.as_ptr(), to.cast::<u8>(), end);
        to.add(end).write(0);
    }
}

/// Borrows so many elements; None where the pointer is null.
///
/// # Safety
/// The pointer is null, or there are that many elements, properly aligned, and no thread writes to them
/// during `'a`.
unsafe fn optional<'a, T>(
    first: *const T,
    len: usize,
    name: &str,
) -> Result<Option<&'a [T]>, Trouble> {
    if first.is_null() {
        return Ok(None);
    }
    if !first.is_aligned() {
        return Err(Trouble::input(format!("{name} is not aligned as its elements must be")));
    }
    // SAFETY: it is neither null nor misaligned, `len` is below the limits that were checked, so that
    // the bytes are fewer than isize::MAX; the rest is the caller's promise.
    Ok(Some(unsafe { std::slice::from_raw_parts(first, len) }))
}

/// The same, where an array must be there unless it would have no element.
///
/// # Safety
/// As for [`optional`].
unsafe fn needed<'a, T>(first: *const T, len: usize, name: &str) -> Result<&'a [T], Trouble> {
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise is the same.
    let found = unsafe { optional(first, len, name) }?;
    found.ok_or_else(|| Trouble::input(format!("{name} is NULL; {len} elements are needed")))
}

/// Checks counts, and borrows the arrays.
///
/// # Safety
/// As for [`evenly_map`].
unsafe fn borrow<'a>(problem: *const EvenlyMapProblem) -> Result<Problem<'a>, Trouble> {
    // SAFETY: the caller promises that it is null or points to such a structure.
    let size = unsafe { size_of_structure(problem, "problem", &PROBLEM_SIZES) }?
        .ok_or_else(|| Trouble::input("problem is NULL"))?;
    let mut p = EvenlyMapProblem::NOTHING;
    // SAFETY: the caller's structure has so many bytes, and ours no fewer; any bytes are a value of its
    // fields.
    unsafe {
        std::ptr::copy_nonoverlapping(problem.cast::<u8>(), (&raw mut p).cast::<u8>(), size);
    }
    for (name, found, least, most) in [
        ("tasks", p.tasks, 1, MOST_TASKS),
        ("edges", p.edges, 0, MOST_EDGES),
        ("cores", p.cores, 1, MOST_CORES),
        ("nodes", p.nodes, 1, MOST_NODES),
        ("cache_levels", p.cache_levels, 0, MOST_LEVELS),
    ] {
        if found < least || found > most {
            return Err(Trouble::input(format!("{name} is {found}; {least} to {most} is needed")));
        }
    }
    let square = p.nodes * p.nodes;
    // SAFETY: the counts are within their limits, and the caller promises that many elements.
    unsafe {
        Ok(Problem {
            loads_s: needed(p.loads_s, p.tasks, "loads_s")?,
            sizes_bytes: optional(p.sizes_bytes, p.tasks, "sizes_bytes")?,
            movable: optional(p.movable, p.tasks, "movable")?,
            present: needed(p.present, p.tasks, "present")?,
            edge_from: needed(p.edge_from, p.edges, "edge_from")?,
            edge_to: needed(p.edge_to, p.edges, "edge_to")?,
            edge_messages: needed(p.edge_messages, p.edges, "edge_messages")?,
            edge_bytes: optional(p.edge_bytes, p.edges, "edge_bytes")?,
            core_node: needed(p.core_node, p.cores, "core_node")?,
            core_speed: optional(p.core_speed, p.cores, "core_speed")?,
            nodes: p.nodes,
            node_host: optional(p.node_host, p.nodes, "node_host")?,
            factors: needed(p.factors, square, "factors")?,
            bandwidths: optional(p.bandwidths, square, "bandwidths")?,
            cache_factors: needed(p.cache_factors, p.cache_levels, "cache_factors")?,
            core_caches: needed(p.core_caches, p.cores * p.cache_levels, "core_caches")?,
        })
    }
}

/// Reads the size of a structure that says it first, so that one of another version is noticed: it must be
/// one of these. None where there is no structure.
///
/// # Safety
/// The pointer is null, or points to a structure whose first field is its size, of that many bytes.
unsafe fn size_of_structure<T>(
    at: *const T,
    name: &str,
    sizes: &[usize],
) -> Result<Option<usize>, Trouble> {
    if at.is_null() {
        return Ok(None);
    }
    if !at.is_aligned() {
        return Err(Trouble::input(format!("{name} is not aligned as a structure must be")));
    }
    // SAFETY: its first field is its size, which is there in every version.
    let found = unsafe { at.cast::<usize>().read() };
    if !sizes.contains(&found) {
        let needed: Vec<String> = sizes.iter().map(usize::to_string).collect();
        return Err(Trouble::input(format!(
            "{name}: struct_size is {found}; {} is needed (version {VERSION})",
            needed.join(" or ")
        )));
    }
    Ok(Some(found))
}

type Choices = (&'static evenly_nuco::map::MapperInfo, Options);

/// The algorithm and its options.
///
/// # Safety
/// `options` is null or points to such a structure, and its `algorithm` to a text with a closing 0.
unsafe fn choices(options: *const EvenlyMapOptions) -> Result<Choices, Trouble> {
    // SAFETY: the caller promises that it is null or points to such a structure.
    let given = unsafe { size_of_structure(options, "options", &OPTIONS_SIZES) }?;
    let mut o = EvenlyMapOptions::usual();
    if let Some(size) = given {
        // SAFETY: the caller's structure has so many bytes, and ours no fewer; any bytes are a value of
        // its fields. What it does not have stays as is usual.
        unsafe {
            std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut o).cast::<u8>(), size);
        }
    }
    let name = if o.algorithm.is_null() {
        std::borrow::Cow::Borrowed(USUAL)
    } else {
        // SAFETY: it is not null, so by the caller's promise there is a text with a closing 0.
        unsafe { CStr::from_ptr(o.algorithm) }.to_string_lossy()
    };
    let mapper = mapper(&name).ok_or_else(|| {
        let names: Vec<&str> = MAPPERS.iter().map(|m| m.name).collect();
        let shown: String = name.chars().take(40).collect();
        let what = format!("there is no algorithm '{shown}'; there are {}", names.join(", "));
        Trouble { status: Status::Algorithm, what }
    })?;
    Ok((mapper, problem::options(&o)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_names() {
        let name = |i: usize| {
            let mut room = [1; 32];
            // SAFETY: there is as much room as is said.
            let length = unsafe { evenly_map_algorithm(i, room.as_mut_ptr(), room.len()) };
            let text: String = room
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| char::from(c.cast_unsigned()))
                .collect();
            assert_eq!(text.len(), length);
            text
        };
        let names: Vec<String> = (0..).map(name).take_while(|n| !n.is_empty()).collect();
        assert_eq!(names, MAPPERS.iter().map(|m| m.name).collect::<Vec<_>>());
        assert!(mapper(USUAL).is_some());
    }

    #[test]
    fn messages_are_cut_on_a_whole_character() {
        let written = |what: &str, size: usize| {
            let mut room = [b'x'.cast_signed(); 16];
            // SAFETY: there is more room than is said.
            unsafe { write_text(what, room.as_mut_ptr(), size) };
            room.map(i8::cast_unsigned)
        };
        assert_eq!(&written("abc\ndef", 16)[..11], b"abc\xef\xbf\xbddef\0x");
        assert_eq!(&written("abcdef", 4)[..5], b"abc\0x");
        assert_eq!(&written("ab\u{e9}f", 4)[..5], b"ab\0xx");
        assert_eq!(written("abc", 1)[..2], [0, b'x']);
        assert_eq!(written("abc", 0)[0], b'x');
    }
}
