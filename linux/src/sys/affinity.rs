//! Affinity masks of threads, as system calls.
//!
//! Invariant: masks of any width that the kernel knows are read whole; nothing here decides.

use crate::proc::Proc;
use evenly_model::{CpuSet, Pid, Tid};
use std::io;

/// Words of the largest mask that is handled: 16,384 CPUs.
const MAX_WORDS: usize = 256;

/// The mask of a thread.
///
/// # Errors
/// As sched_getaffinity(2): ESRCH where the thread has ended.
pub fn get(tid: Tid) -> io::Result<CpuSet> {
    let mut words = [0u64; MAX_WORDS];
    // SAFETY: the kernel writes at most the given number of bytes into the array, which is live
    // and large enough, and returns how many it wrote.
    let n = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid.0, size_of_val(&words), words.as_mut_ptr())
    };
    let bytes = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok(CpuSet::from_words(&words[..(bytes / 8).min(MAX_WORDS)]))
}

/// The CPUs that any thread of a process, or of one that descends from it, may use: threads that are
/// bound (`OMP_PROC_BIND`) have one or a few of them each, the first like the others.
///
/// # Errors
/// As [`get`], of the first thread of the process; others that have ended meanwhile do not count.
pub fn of_program(proc: &Proc, root: Pid) -> io::Result<CpuSet> {
    let first = get(Tid(root.0))?;
    let processes = proc.processes().into_iter().filter(|&p| proc.descends(p, root));
    let threads = processes.flat_map(|p| proc.threads(p));
    Ok(threads.filter_map(|t| get(t).ok()).fold(first, |all, mask| all.or(&mask)))
}

/// Sets the mask of a thread. A running thread on a CPU outside the mask has been moved when this
/// returns.
///
/// # Errors
/// As sched_setaffinity(2): ESRCH where the thread has ended, EINVAL where no CPU of the mask can
/// be used, EPERM, EBUSY for deadline threads.
pub fn set(tid: Tid, mask: &CpuSet) -> io::Result<()> {
    let words = mask.words();
    // SAFETY: the kernel only reads the given number of bytes, all of which belong to the slice.
    let r = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid.0, size_of_val(words), words.as_ptr())
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the mask of a thread may be set. Nothing is changed: setting even the mask that a thread
/// has would be remembered by the kernel as requested, and cut every later cpuset.
///
/// # Errors
/// EPERM where it may not; ESRCH where the thread has ended.
pub fn may_set(tid: Tid) -> io::Result<()> {
    // Permission is checked before the mask, and an empty mask is never accepted.
    match set(tid, &CpuSet::new()) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

/// Whether the error says that the thread has ended.
#[must_use]
pub fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::CpuId;

    #[test]
    fn own_mask_can_be_narrowed_and_widened() {
        let whole = get(Tid(0)).unwrap();
        let one = CpuSet::single(whole.first().unwrap());
        set(Tid(0), &one).unwrap();
        assert_eq!(get(Tid(0)).unwrap(), one);
        may_set(Tid(0)).unwrap();
        assert_eq!(get(Tid(0)).unwrap(), one);
        set(Tid(0), &whole).unwrap();
        assert_eq!(get(Tid(0)).unwrap(), whole);
    }

    #[test]
    fn a_thread_that_never_was_is_gone_and_a_cpu_that_never_was_is_refused() {
        assert!(is_gone(&get(Tid(i32::MAX)).unwrap_err()));
        assert!(is_gone(&may_set(Tid(i32::MAX)).unwrap_err()));
        assert!(set(Tid(0), &CpuSet::new()).is_err());
        assert!(set(Tid(0), &CpuSet::single(CpuId(16_000))).is_err());
    }
}
