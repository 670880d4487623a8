//! What evenly was started with, for the program that it starts, and the system calls that change signal
//! masks and dispositions.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;

/// Highest signal number of Linux (all architectures but MIPS).
pub(super) const MAX_SIGNAL: c_int = 64;
/// Size of the kernel's signal set, which is smaller than that of the C library.
pub(super) const SIGSET_BYTES: usize = size_of::<u64>();
pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// What evenly was started with and what the Rust runtime changes before `main`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Original {
    /// The blocked signals, a bit for each: see [`bit`].
    pub(super) mask: u64,
    /// The ignored signals, in the same form.
    pub(super) ignored: u64,
    /// Which of the descriptors 0, 1, 2 were closed (the runtime opens /dev/null on them).
    pub(super) closed: [bool; 3],
    /// Soft and hard RLIMIT_NOFILE, None where it could not be read.
    pub(super) nofile: Option<(libc::rlim_t, libc::rlim_t)>,
}

static ORIGINAL: OnceLock<Original> = OnceLock::new();

/// Runs before the Rust runtime, which sets SIGPIPE to ignored.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls, in the main thread,
// before `main`; this is one. What it calls needs nothing of the Rust runtime.
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture_original;

extern "C" fn capture_original() {
    ORIGINAL.get_or_init(Original::now);
}

impl Original {
    pub(super) fn get() -> &'static Self {
        ORIGINAL.get_or_init(Self::now)
    }

    fn now() -> Self {
        let mut ignored = 0;
        for signal in 1..=MAX_SIGNAL {
            if disposition(signal) == Some(libc::SIG_IGN) {
                ignored |= bit(signal);
            }
        }
        // SAFETY: F_GETFD only asks about a number, whether or not it is an open descriptor.
        let closed = [0, 1, 2].map(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes one rlimit into a live variable of that type.
        let r = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        Self {
            mask: change_mask(libc::SIG_BLOCK, 0),
            ignored,
            closed,
            nofile: (r == 0).then_some((limit.rlim_cur, limit.rlim_max)),
        }
    }
}

/// The kernel's `struct sigaction`, of which the first word is the handler on every architecture
/// that evenly runs on; larger than any of them. The system call is made directly because the C
/// library refuses to speak of the signals that it keeps for itself.
type KernelSigaction = [usize; 8];

pub(super) fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    let mut old: KernelSigaction = [0; 8];
    // SAFETY: no new action is given; the old one is written to an array that is large enough.
    let r = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<c_void>(),
            old.as_mut_ptr(),
            SIGSET_BYTES,
        )
    };
    (r == 0).then_some(old[0])
}

/// Sets a signal to SIG_DFL or SIG_IGN. Async-signal-safe.
pub(super) fn set_disposition(signal: c_int, handler: libc::sighandler_t) {
    debug_assert!(handler == libc::SIG_DFL || handler == libc::SIG_IGN);
    let mut new: KernelSigaction = [0; 8];
    new[0] = handler;
    // SAFETY: the new action holds no function, no flags and an empty mask, so that nothing is
    // ever called through it; the array is larger than the kernel's structure. SIGKILL and
    // SIGSTOP are refused by the kernel, which is as it should be.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            new.as_ptr(),
            ptr::null_mut::<c_void>(),
            SIGSET_BYTES,
        );
    }
}

/// Changes the mask of the calling thread and returns the former one. Async-signal-safe.
pub(super) fn change_mask(how: c_int, set: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both sets are live and of the size given. The call cannot fail with these arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut old, SIGSET_BYTES);
    }
    old
}

/// Signals that wait for the calling thread or for the process.
pub(super) fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel writes one set of the size given.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, SIGSET_BYTES) };
    set
}

pub(super) fn own_pid() -> c_int {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

pub(super) fn kill(pid: c_int, signal: c_int) -> io::Result<()> {
    // SAFETY: kill touches no memory of this process.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a signal was ignored when evenly was started, as SIGHUP is under nohup(1) and SIGINT in
/// the background of a script. A program started that way is to keep ignoring it.
#[must_use]
pub fn was_ignored(signal: i32) -> bool {
    (1..=MAX_SIGNAL).contains(&signal) && Original::get().ignored & bit(signal) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_evenly_was_started_with_was_read_before_the_runtime_changed_it() {
        // The runtime has set SIGPIPE to ignored; the process that started the tests had most likely not.
        let now = Original::now();
        assert!(now.ignored & bit(libc::SIGPIPE) != 0);
        assert!(ORIGINAL.get().is_some(), "the constructor has not run");
    }
}
