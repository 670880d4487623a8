//! What C's library knows of this process.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, Once, TryLockError};
use std::time::Duration;

/// How often a process that led to this one was a child by `fork`, since it was first asked.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that is another one in each child by `fork`. A child that C's library does not make is not told by it.
pub(crate) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// A lock, if it can be had soon: in a child after `fork` a thread may hold it that is not there.
pub(crate) fn soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..100 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            // What is behind it is whole at every step.
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    None
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

/// By which C's library knows whose end is asked for.
enum Key {
    None,
    Known(c_uint),
    /// The process ends, or this library is unloaded.
    Gone,
}

static KEY: Mutex<Key> = Mutex::new(Key::None);

/// Has a function called when the calling thread ends, which is the same one each time. It is not called when the process ends, as
/// what drops a thread-local value is for the thread that calls `exit`, or returns from `main`.
pub(crate) fn at_thread_end(function: extern "C" fn(*mut c_void)) {
    type Function = extern "C" fn(*mut c_void);
    unsafe extern "C" {
        fn pthread_key_create(key: *mut c_uint, function: Option<Function>) -> c_int;
        fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    }
    let Some(mut known) = soon(&KEY) else { return };
    if matches!(*known, Key::None) {
        let mut key = 0;
        // SAFETY: it is a function of C's library, which writes a number to where it is told. What it is given to call is there
        // for as long as this library is, before the end of which the key is deleted.
        if unsafe { pthread_key_create(&raw mut key, Some(function)) } == 0 {
            at_exit(forget_thread_ends);
            *known = Key::Known(key);
        }
    }
    if let Key::Known(key) = *known {
        // SAFETY: it is a function of C's library, given a key that came from it, and is not deleted while the lock is held. The
        // value is nothing but a mark: not NULL, so that the function is called.
        unsafe { pthread_setspecific(key, std::ptr::dangling()) };
    }
}

extern "C" fn forget_thread_ends() {
    unsafe extern "C" {
        fn pthread_key_delete(key: c_uint) -> c_int;
    }
    let Some(mut known) = soon(&KEY) else { return };
    if let Key::Known(key) = std::mem::replace(&mut *known, Key::Gone) {
        // SAFETY: it is a function of C's library, given a key that came from it, and is used no more.
        unsafe { pthread_key_delete(key) };
    }
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
