//! The end of a process.

use std::ffi::c_int;

/// Has a function called when the process ends by `exit`, or this library is unloaded.
pub(crate) fn at_exit(function: extern "C" fn()) {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: it is a function of C's library, given one that is there for as long as this library is. Where there is no room
    // for it, it is not called.
    unsafe { atexit(function) };
}
