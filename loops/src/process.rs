//! What C's library knows of this process.

use std::ffi::{c_int, c_ulong};
use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// How often a process that led to this one was a child by `fork`, since it was first asked.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that is another one in each child by `fork`. A child that C's library does not make is not told by it.
pub(crate) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// From now on forks are counted.
pub(crate) fn count_forks() {
    type Function = extern "C" fn();
    unsafe extern "C" {
        fn pthread_atfork(
            before: Option<Function>,
            parent: Option<Function>,
            child: Option<Function>,
        ) -> c_int;
    }
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
    }
    static ONCE: Once = Once::new();
    // SAFETY: it is a function of C's library, given one that is there for as long as this library is, and does nothing that is
    // forbidden in a child. Where there is no room for it, it is not called.
    ONCE.call_once(|| _ = unsafe { pthread_atfork(None, None, Some(in_child)) });
}

/// Has a function called when the process ends by `exit`, or this library is unloaded.
pub(crate) fn at_exit(function: extern "C" fn()) {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: it is a function of C's library, given one that is there for as long as this library is. Where there is no room
    // for it, it is not called.
    unsafe { atexit(function) };
}

/// Whether it has privileges that whoever started it has not: what its environment says is not to be followed.
pub(crate) fn is_privileged() -> bool {
    const AT_SECURE: c_ulong = 23;
    unsafe extern "C" {
        fn getauxval(what: c_ulong) -> c_ulong;
    }
    // SAFETY: it reads a word that the kernel has given to the process.
    unsafe { getauxval(AT_SECURE) != 0 }
}
