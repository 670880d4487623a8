//! Real-time threads of our own, which cannot hold a CPU.
//!
//! A real-time thread that spins keeps all others from its CPU. So each of ours has a limit: one that has run for
//! [`MOST`] and has not slept is a normal thread from then on. The kernel counts that (RLIMIT_RTTIME) and interrupts the
//! thread itself by SIGXCPU, so that nobody else need be awake, or find a CPU to run on. Where that does not help, as
//! the thread hangs in the kernel, the hard limit ends the process, and the guardian undoes what it did.
//!
//! Invariants: a thread gets the class here only, after the limit. The limits are those of this process: the program
//! that it runs has been started before any thread of ours (see [`crate::supervise::Threads`]), and the guardian has no
//! real-time threads. A SIGXCPU that a process has sent is for the program, and goes on to the main thread.

use super::sched::{self, Scheduling};
use evenly_model::{Nanos, Tid};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// For how long a thread may run and not sleep. The kernel counts in ticks, and may be late by two.
pub const MOST: Nanos = Nanos::from_millis(20);
/// After so much it ends the process.
const LAST: Nanos = Nanos::from_millis(1_000);

/// Makes the calling thread a real-time one of the least priority, until it does not sleep for too long.
///
/// # Errors
/// Where that is not permitted, or cannot be limited. Nothing about the thread has changed then.
pub fn enter() -> io::Result<()> {
    static LIMITED: OnceLock<Result<(), i32>> = OnceLock::new();
    let limited =
        *LIMITED.get_or_init(|| limit().map_err(|e| e.raw_os_error().unwrap_or(libc::EPERM)));
    limited.map_err(io::Error::from_raw_os_error)?;
    let found = sched::get(Tid(0))?;
    let to = Scheduling {
        policy: sched::FIFO,
        priority: 1,
        reset_on_fork: true,
        slice: Nanos::ZERO,
        ..found
    };
    let before = unblock();
    sched::set(Tid(0), &to).inspect_err(|_| set_mask(&before))
}

/// Puts a thread of ours into this class of threads without real-time priority, from outside.
///
/// # Errors
/// As [`sched::set`].
pub fn leave(tid: Tid, policy: u8) -> io::Result<()> {
    let found = sched::get(tid)?;
    sched::set(tid, &Scheduling { policy, priority: 0, slice: Nanos::ZERO, ..found })
}

/// Sets the limits of this process, and what happens where a thread comes to them.
fn limit() -> io::Result<()> {
    // SAFETY: zeros are a valid sigaction: no flags, an empty mask. The handler has the type for SA_SIGINFO, is
    // async-signal-safe, and stays for as long as the process.
    let installed = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_limit as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGXCPU, &raw const action, ptr::null_mut())
    };
    if installed != 0 {
        return Err(io::Error::last_os_error());
    }
    set_limits()
}

/// As the kernel raises the soft limit by a second each time, it is set anew then. Async-signal-safe.
fn set_limits() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into a live variable of that type, and reads one.
    let result = unsafe {
        if libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_max = limit.rlim_max.min(LAST.0 / 1000);
        limit.rlim_cur = MOST.0 / 1000;
        // Where both come at the same time the process would be ended.
        if limit.rlim_max < 2 * limit.rlim_cur {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// In the thread that has not slept for too long.
extern "C" fn on_limit(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: all calls are system calls, which touch no memory but what they are given: a parameter on the stack, and
    // the signal's information, which lives until this returns. The error number is that of the thread that was
    // interrupted, and is put back.
    unsafe {
        let errno = *libc::__errno_location();
        if (*info).si_code == libc::SI_KERNEL {
            let none = libc::sched_param { sched_priority: 0 };
            // To leave out the flag would need a privilege.
            let normal = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
            libc::syscall(libc::SYS_sched_setscheduler, 0, normal, &raw const none);
            let _ = set_limits();
        } else {
            // In the one form that a thread may give on to another, with the sender: as by sigqueue(3).
            let mut passed_on = *info;
            passed_on.si_code = libc::SI_QUEUE;
            let process = libc::getpid();
            let to = &raw const passed_on;
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, process, signal, to);
        }
        *libc::__errno_location() = errno;
    }
}

/// Lets the signal through to the calling thread; all others of evenly block it. Returns what was blocked.
fn unblock() -> libc::sigset_t {
    // SAFETY: both sets are live, and the first is made empty before it is used.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        let mut before = set;
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXCPU);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before);
        before
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is live, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}
