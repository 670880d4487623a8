//! What C's library knows of this process.

use std::ffi::{c_int, c_ulong};

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
