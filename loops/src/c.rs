//! The interface for C and C++, `include/evenly/loops.h`: pointers are checked here, and all that follows is safe.
//!
//! Invariants:
//! - A pointer that is NULL is answered by a message, or by nothing to do; of any other the caller promises that it came from here,
//!   and was not freed.
//! - What a thread has begun is given up when the thread ends, so that no other waits for it; not when the process ends, whose status
//!   would be that of a program which did something wrong.

use crate::declare::{Array, Team};
use crate::ends::{self, HasThreads};
use crate::error::LoopsError;
use crate::region::{Region, State};
use crate::team::{lock, this_thread};
use evenly_iterations::{Access, Bounds, Load, Policy, Use};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

type Handler = extern "C" fn(*const c_char);

static HANDLER: RwLock<Option<Handler>> = RwLock::new(None);

/// By which loops are handed out for which the program does not say how.
const ENVIRONMENT: &str = "EVENLY_LOOPS";

fn handler() -> Option<Handler> {
    *HANDLER.read().unwrap_or_else(PoisonError::into_inner)
}

/// Says what is wrong, and aborts unless the program has its own way.
fn wrong(message: &str) {
    let Some(handler) = handler() else {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if IS_SAID.swap(true, Relaxed) {
            // Another thread is about to abort; were it not, this one does.
            std::thread::sleep(std::time::Duration::from_secs(10));
        } else {
            // Where it cannot be said, nothing is left but to end.
            let _ = writeln!(std::io::stderr(), "evenly: {message}");
        }
        std::process::abort();
    };
    // A name that has a NUL in it never came from C.
    let message = CString::new(message).unwrap_or_default();
    handler(message.as_ptr());
}

/// `evenly_team`.
#[derive(Debug)]
pub struct EvenlyTeam(Team);

/// `evenly_region`: what was declared, and the loop once it has begun.
#[derive(Debug)]
pub struct EvenlyRegion {
    team: Team,
    name: String,
    declared: Mutex<Declared>,
    region: OnceLock<Region>,
    loops: Box<[EvenlyLoop]>,
}

#[derive(Debug)]
struct Declared {
    load: Load,
    access: Access,
    policy: Option<Policy>,
    overtakes: bool,
    uses: Vec<(Use, Array, i64, i64)>,
}

/// `evenly_loop`: where a thread is in a loop.
#[derive(Debug)]
#[repr(align(128))]
pub struct EvenlyLoop {
    /// Where it is in.
    region: *const EvenlyRegion,
    itself: Weak<EvenlyRegion>,
    thread: usize,
    at: Mutex<At>,
}

#[derive(Debug, Default)]
struct At {
    state: Option<State>,
    /// The thread of the program that began last is known to give it up when it ends.
    known_to: u64,
}

impl HasThreads for EvenlyRegion {
    fn thread_ends(&self, thread: usize) {
        if self.region.get().is_some_and(|region| region.is(thread, this_thread())) {
            self.abandon(thread, "ended in it");
        }
    }
}

impl EvenlyLoop {
    fn of(&self) -> &EvenlyRegion {
        // SAFETY: a loop is in its region, and so is there for no longer.
        unsafe { &*self.region }
    }
}

impl EvenlyRegion {
    fn region(&self) -> &Region {
        if let Some(region) = self.region.get() {
            return region;
        }
        let policy = lock(&self.declared).policy;
        // What is wrong is said before others wait for the loop to be made.
        let policy = policy.unwrap_or_else(|| match std::env::var(ENVIRONMENT) {
            Ok(name) if !name.is_empty() => name.parse().unwrap_or_else(|error| {
                wrong(&format!("{ENVIRONMENT}: {error}"));
                Policy::Auto
            }),
            _ => Policy::Auto,
        });
        self.region.get_or_init(|| {
            let declared = lock(&self.declared);
            let region = self.team.region(&self.name).load(declared.load).access(declared.access);
            let uses = declared.uses.iter();
            let region =
                uses.fold(region, |region, (used, array, a, b)| region.uses(*used, array, *a, *b));
            let region = region.policy(policy);
            if declared.overtakes { region.overtakes().build() } else { region.build() }
        })
    }

    /// What is declared of it, to which this function adds something; None where it has begun, which is said.
    fn declares(&self, function: &str) -> Option<MutexGuard<'_, Declared>> {
        if self.region.get().is_some() {
            let name = &self.name;
            wrong(&format!("{function}: loop '{name}' has begun, and is declared before"));
            return None;
        }
        Some(lock(&self.declared))
    }

    /// Says why the loop has failed, to a handler once.
    fn fails(&self, error: &LoopsError) {
        if handler().is_none() || !self.region().was_told() {
            wrong(&error.to_string());
        }
    }

    fn has_failed(&self) -> bool {
        self.region.get().is_some_and(Region::is_given_up)
    }

    fn abandon(&self, thread: usize, how: &str) {
        let Some(own) = self.loops.get(thread) else { return };
        if let Some(mut state) = lock(&own.at).state.take().filter(|state| !state.ended) {
            self.region().abandon(&mut state, how);
        }
    }
}

/// # Safety
/// NULL, or from here and not freed.
unsafe fn given<'a, T>(pointer: *const T, function: &str) -> Option<&'a T> {
    // SAFETY: the caller's promise is the same.
    let given = unsafe { pointer.as_ref() };
    if given.is_none() {
        wrong(&format!("{function} was given NULL"));
    }
    given
}

/// # Safety
/// NULL, or a string that ends in a NUL.
unsafe fn text<'a>(pointer: *const c_char, function: &str) -> Option<std::borrow::Cow<'a, str>> {
    // SAFETY: the caller's promise is the same.
    unsafe { given(pointer, function) }?;
    // SAFETY: it is not NULL, and a string by the caller's promise.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
}

/// `evenly_loops_on_error`: see the header.
#[unsafe(no_mangle)]
pub extern "C" fn evenly_loops_on_error(handler: Option<Handler>) {
    *HANDLER.write().unwrap_or_else(PoisonError::into_inner) = handler;
}

/// `evenly_team_new`: see the header.
#[unsafe(no_mangle)]
pub extern "C" fn evenly_team_new(threads: usize) -> *mut EvenlyTeam {
    match Team::new(threads) {
        Ok(team) => Box::into_raw(Box::new(EvenlyTeam(team))),
        Err(error) => {
            wrong(&error.to_string());
            std::ptr::null_mut()
        }
    }
}

/// `evenly_team_free`: see the header.
///
/// # Safety
/// `team` is NULL, or from `evenly_team_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_team_free(team: *mut EvenlyTeam) {
    if !team.is_null() {
        // SAFETY: it came from `Box::into_raw`, and is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(team) });
    }
}

/// `evenly_team_array`: see the header.
///
/// # Safety
/// `team` is NULL or a team; at `sizes` are so many. Nothing is read at `array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_team_array(
    team: *const EvenlyTeam,
    array: *const c_void,
    element_bytes: usize,
    dimensions: usize,
    sizes: *const usize,
) {
    let function = "evenly_team_array";
    // SAFETY: the caller's promise is the same.
    let Some(team) = (unsafe { given(team, function) }) else { return };
    let address = array.addr() as u64;
    if dimensions == 0 {
        return team.0.forget_size(address);
    }
    // SAFETY: NULL, or so many are there by the caller's promise.
    let Some(_) = (unsafe { given(sizes, function) }) else { return };
    // SAFETY: it is not NULL, and so many are there by the caller's promise.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, dimensions) };
    if let Err(error) = team.0.sized_array(address, element_bytes as u64, sizes) {
        wrong(&format!("{function}: {error}"));
    }
}

/// `evenly_region_new`: see the header.
///
/// # Safety
/// `team` is NULL or a team, `name` NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_new(
    team: *const EvenlyTeam,
    name: *const c_char,
    load: c_int,
    access: c_int,
) -> *const EvenlyRegion {
    let function = "evenly_region_new";
    // SAFETY: the caller's promise is the same.
    let (Some(team), Some(name)) =
        (unsafe { given(team, function) }, unsafe { text(name, function) })
    else {
        return std::ptr::null();
    };
    let load = match load {
        0 => Load::Fixed,
        1 => Load::Variable,
        other => {
            wrong(&format!("{function}: a load is EVENLY_FIXED or EVENLY_VARIABLE, not {other}"));
            return std::ptr::null();
        }
    };
    let access = match access {
        0 => Access::Independent,
        1 => Access::Stencil,
        2 => Access::Unknown,
        other => {
            wrong(&format!(
                "{function}: an access is EVENLY_INDEPENDENT, EVENLY_STENCIL or EVENLY_UNKNOWN, not {other}"
            ));
            return std::ptr::null();
        }
    };
    Arc::into_raw(Arc::new_cyclic(|region| {
        let at = |thread| EvenlyLoop {
            region: region.as_ptr(),
            itself: Weak::clone(region),
            thread,
            at: Mutex::default(),
        };
        EvenlyRegion {
            team: team.0.clone(),
            name: name.into_owned(),
            declared: Mutex::new(Declared {
                load,
                access,
                policy: None,
                overtakes: false,
                uses: Vec::new(),
            }),
            region: OnceLock::new(),
            loops: (0..team.0.threads()).map(at).collect(),
        }
    }))
}

/// `evenly_region_free`: see the header.
///
/// # Safety
/// `region` is NULL, or from `evenly_region_new` and not freed; no thread is in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_free(region: *const EvenlyRegion) {
    if !region.is_null() {
        // SAFETY: it came from `Arc::into_raw`, and is freed once, by the caller's promise.
        drop(unsafe { Arc::from_raw(region) });
    }
}

/// `evenly_region_uses`: see the header.
///
/// # Safety
/// `region` is NULL or a region. Nothing is read at `array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_uses(
    region: *const EvenlyRegion,
    used: c_int,
    array: *const c_void,
    element_bytes: usize,
    a: i64,
    b: i64,
) {
    let function = "evenly_region_uses";
    // SAFETY: the caller's promise is the same.
    let Some(region) = (unsafe { given(region, function) }) else { return };
    let used = match used {
        0 => Use::Reads,
        1 => Use::Writes,
        other => {
            return wrong(&format!(
                "{function}: a use is EVENLY_READS or EVENLY_WRITES, not {other}"
            ));
        }
    };
    let Some(mut declared) = region.declares(function) else { return };
    // An array is known by its address, by whatever loop it is declared.
    let array = region.team.array_at(array.addr() as u64, element_bytes as u64);
    declared.uses.push((used, array, a, b));
}

/// `evenly_region_policy`: see the header.
///
/// # Safety
/// `region` is NULL or a region, `name` NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_policy(region: *const EvenlyRegion, name: *const c_char) {
    let function = "evenly_region_policy";
    // SAFETY: the caller's promise is the same.
    let (Some(region), Some(name)) =
        (unsafe { given(region, function) }, unsafe { text(name, function) })
    else {
        return;
    };
    // What is wrong is said while no lock is held: a handler may declare something itself, or leave by longjmp.
    let policy = match name.parse() {
        Ok(policy) => policy,
        Err(error) => return wrong(&format!("{function}: {error}")),
    };
    if let Some(mut declared) = region.declares(function) {
        declared.policy = Some(policy);
    }
}

/// `evenly_region_overtakes`: see the header.
///
/// # Safety
/// `region` is NULL or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_overtakes(region: *const EvenlyRegion) {
    let function = "evenly_region_overtakes";
    // SAFETY: the caller's promise is the same.
    let Some(region) = (unsafe { given(region, function) }) else { return };
    if let Some(mut declared) = region.declares(function) {
        declared.overtakes = true;
    }
}

/// `evenly_begin`: see the header.
///
/// # Safety
/// `region` is NULL or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_begin(
    region: *const EvenlyRegion,
    thread: usize,
    lower: i64,
    upper: i64,
    stride: i64,
) -> *const EvenlyLoop {
    // SAFETY: the caller's promise is the same.
    let Some(own) = (unsafe { given(region, "evenly_begin") }) else { return std::ptr::null() };
    let state = match own.region().enter(thread, Bounds { lower, upper, stride }) {
        Ok(state) => state,
        Err(error) => {
            if matches!(error, LoopsError::Nested { .. }) {
                // Perhaps it has left this one by longjmp.
                own.abandon(thread, "began it again before its end");
            }
            own.fails(&error);
            return std::ptr::null();
        }
    };
    let at = &own.loops[thread];
    let mut now = lock(&at.at);
    now.state = Some(state);
    let known_to = this_thread();
    if now.known_to != known_to {
        ends::joins(at.itself.clone(), thread);
        now.known_to = known_to;
    }
    at
}

/// `evenly_next_task`: see the header.
///
/// # Safety
/// `own` is NULL or from `evenly_begin`; the others are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_next_task(
    own: *const EvenlyLoop,
    lower: *mut i64,
    upper: *mut i64,
    stride: *mut i64,
) -> c_int {
    // SAFETY: the caller's promise is the same.
    let Some(own) = (unsafe { own.as_ref() }) else { return 0 };
    let region = own.of();
    let mut at = lock(&own.at);
    let Some(state) = &mut at.state else { return 0 };
    match region.region().next_task(state) {
        Ok(None) => 0,
        Ok(Some(part)) => {
            for (to, value) in [(lower, part.lower), (upper, part.upper), (stride, part.stride)] {
                if !to.is_null() {
                    // SAFETY: it may be written to, by the caller's promise.
                    unsafe { to.write(value) };
                }
            }
            1
        }
        Err(error) => {
            // A handler may leave by longjmp.
            drop(at);
            region.fails(&error);
            0
        }
    }
}

/// Puts together what all threads give; what this one gave where the loop has failed.
unsafe fn reduce(own: *const EvenlyLoop, given: u64, together: impl Fn(u64, u64) -> u64) -> u64 {
    // SAFETY: the caller's promise is the same.
    let Some(own) = (unsafe { own.as_ref() }) else { return given };
    let region = own.of();
    if lock(&own.at).state.as_ref().is_some_and(|state| !state.ended) {
        region.abandon(own.thread, "reduced before it had carried out all of its tasks");
    }
    let gathered = region.region().gather(own.thread, given);
    match gathered {
        Ok(all) => all.reduce(together).unwrap_or(given),
        Err(error) => {
            region.fails(&error);
            given
        }
    }
}

const OPERATIONS: &str = "an operation is EVENLY_SUM, EVENLY_MIN or EVENLY_MAX";

/// `evenly_reduce_double`: see the header.
///
/// # Safety
/// `own` is NULL or from `evenly_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_reduce_double(
    own: *const EvenlyLoop,
    operation: c_int,
    given: f64,
) -> f64 {
    let together: fn(f64, f64) -> f64 = match operation {
        0 => |a, b| a + b,
        1 => f64::min,
        2 => f64::max,
        other => {
            wrong(&format!("evenly_reduce_double: {OPERATIONS}, not {other}"));
            return given;
        }
    };
    let of_bits = |a, b| together(f64::from_bits(a), f64::from_bits(b)).to_bits();
    // SAFETY: the caller's promise is the same.
    f64::from_bits(unsafe { reduce(own, given.to_bits(), of_bits) })
}

/// `evenly_reduce_int64`: see the header.
///
/// # Safety
/// `own` is NULL or from `evenly_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_reduce_int64(
    own: *const EvenlyLoop,
    operation: c_int,
    given: i64,
) -> i64 {
    let together: fn(i64, i64) -> i64 = match operation {
        0 => i64::wrapping_add,
        1 => i64::min,
        2 => i64::max,
        other => {
            wrong(&format!("evenly_reduce_int64: {OPERATIONS}, not {other}"));
            return given;
        }
    };
    let of_bits = |a, b| together(a as i64, b as i64) as u64;
    // SAFETY: the caller's promise is the same.
    (unsafe { reduce(own, given as u64, of_bits) }) as i64
}

/// `evenly_reduce_uint64`: see the header.
///
/// # Safety
/// `own` is NULL or from `evenly_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_reduce_uint64(
    own: *const EvenlyLoop,
    operation: c_int,
    given: u64,
) -> u64 {
    let together: fn(u64, u64) -> u64 = match operation {
        0 => u64::wrapping_add,
        1 => u64::min,
        2 => u64::max,
        other => {
            wrong(&format!("evenly_reduce_uint64: {OPERATIONS}, not {other}"));
            return given;
        }
    };
    // SAFETY: the caller's promise is the same.
    unsafe { reduce(own, given, together) }
}

/// `evenly_abandon`: see the header.
///
/// # Safety
/// `own` is NULL or from `evenly_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_abandon(own: *const EvenlyLoop) {
    // SAFETY: the caller's promise is the same.
    let Some(own) = (unsafe { own.as_ref() }) else { return };
    own.of().abandon(own.thread, "left it before its end");
}

/// `evenly_failed`: see the header.
///
/// # Safety
/// `region` is NULL or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_failed(region: *const EvenlyRegion) -> c_int {
    // SAFETY: the caller's promise is the same.
    unsafe { given(region, "evenly_failed") }.is_none_or(EvenlyRegion::has_failed).into()
}

/// `evenly_region_iterations`: see the header.
///
/// # Safety
/// `region` is NULL or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evenly_region_iterations(
    region: *const EvenlyRegion,
    thread: usize,
) -> u64 {
    // SAFETY: the caller's promise is the same.
    let region = unsafe { given(region, "evenly_region_iterations") };
    let done =
        region.and_then(|region| region.region.get()?.report().iterations.get(thread).copied());
    done.unwrap_or(0)
}
