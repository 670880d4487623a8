//! How a thread is scheduled: class, nice value, real-time priority and slice, as system calls.
//!
//! Invariant: nothing here decides, and what is not asked for is left as it is.

use evenly_model::{Nanos, Tid};
use std::fmt;
use std::io;

/// SCHED_OTHER, the normal class, in which nice values give shares.
pub const OTHER: u8 = 0;
/// SCHED_FIFO, the real-time class without time slices.
pub const FIFO: u8 = 1;
/// SCHED_RR, the real-time class in which threads of one priority take turns.
pub const ROUND_ROBIN: u8 = 2;
/// SCHED_BATCH, for threads that compute: on waking they displace none that runs.
pub const BATCH: u8 = 3;
/// SCHED_IDLE, a share of next to nothing, whatever the nice value.
pub const IDLE: u8 = 5;
/// SCHED_EXT: a scheduler in BPF has it.
pub const EXT: u8 = 7;
const RESET_ON_FORK: u64 = 1;
/// Set in the first word, so that zeros are nothing.
const PRESENT: u64 = 1 << 63;

/// How a thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scheduling {
    /// Its class, by the kernel's number.
    pub policy: u8,
    /// Its nice value; threads of real-time classes keep theirs.
    pub nice: i8,
    /// Its real-time priority; 0 for other classes.
    pub priority: u8,
    /// Whether its children are scheduled normally, where it is a real-time thread.
    pub reset_on_fork: bool,
    /// For how long it runs at a stretch. [`Nanos::ZERO`] where the kernel does not report it (before 6.12), or
    /// its own choice.
    pub slice: Nanos,
}

impl Scheduling {
    /// Words that it takes in the journal.
    pub(crate) const WORDS: usize = 2;

    /// Whether it has a weight at all.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        matches!(self.policy, OTHER | BATCH | IDLE)
    }

    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let bytes = [
            self.policy,
            (i16::from(self.nice) + 20).clamp(0, 39) as u8,
            self.priority,
            u8::from(self.reset_on_fork),
        ];
        [u64::from(u32::from_le_bytes(bytes)) | PRESENT, self.slice.0]
    }

    /// None for words that [`Scheduling::to_words`] does not make.
    pub(crate) fn from_words([first, slice]: [u64; Self::WORDS]) -> Option<Self> {
        let [policy, nice, priority, reset, rest @ ..] = first.to_le_bytes();
        let possible = policy < 8 && nice < 40 && priority < 100 && reset < 2;
        (possible && rest == [0, 0, 0, 0x80]).then(|| Self {
            policy,
            nice: nice as i8 - 20,
            priority,
            reset_on_fork: reset == 1,
            slice: Nanos(slice),
        })
    }

    fn class(&self) -> &'static str {
        match self.policy {
            OTHER => "normal",
            FIFO => "first in first out",
            ROUND_ROBIN => "round robin",
            BATCH => "batch",
            IDLE => "idle",
            EXT => "sched_ext",
            _ => "deadline",
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, nice {}", self.class(), self.nice)?;
        if self.priority > 0 {
            write!(f, ", priority {}", self.priority)?;
        }
        if self.slice > Nanos::ZERO {
            write!(f, ", slice {:.1} ms", self.slice.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// How a thread is scheduled; of the calling one with [`Tid`] 0.
///
/// # Errors
/// As sched_getattr(2): ESRCH where it has ended.
pub fn get(tid: Tid) -> io::Result<Scheduling> {
    let mut a = Attributes::default();
    // SAFETY: the kernel writes at most the given number of bytes into the structure, which is
    // live, has the layout of the call's first version and is valid for any bytes.
    let r = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid.0, &raw mut a, size_of::<Attributes>(), 0)
    };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = u8::try_from(a.policy).map_err(|_| io::ErrorKind::InvalidData)?;
    let fair = matches!(policy, OTHER | BATCH | IDLE | EXT);
    // Real-time threads keep a nice value, which that call does not return.
    let nice = if fair { a.nice } else { nice(tid)? };
    Ok(Scheduling {
        policy,
        nice: nice.clamp(-20, 19) as i8,
        priority: a.priority.min(99) as u8,
        reset_on_fork: a.flags & RESET_ON_FORK != 0,
        slice: if fair { Nanos(a.runtime) } else { Nanos::ZERO },
    })
}

/// The nice value of a thread.
fn nice(tid: Tid) -> io::Result<i32> {
    // SAFETY: the call takes numbers only.
    let r = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid.0) };
    // The system call itself, other than the library's, returns 20 minus the nice value.
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(20 - r as i32) }
}

/// Sets the nice value of a thread, and nothing else.
///
/// # Errors
/// As setpriority(2): EACCES where it may not be lowered so far, EPERM for another user's thread,
/// ESRCH where it has ended.
pub fn set_nice(tid: Tid, nice: i8) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    let r = unsafe {
        libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid.0, libc::c_int::from(nice))
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets all of it. A slice of [`Nanos::ZERO`] leaves the choice to the kernel.
///
/// # Errors
/// As sched_setattr(2): EPERM where that is not permitted, ESRCH where the thread has ended.
pub fn set(tid: Tid, to: &Scheduling) -> io::Result<()> {
    let fair = to.is_fair();
    let mut a = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: u32::from(to.policy),
        flags: if to.reset_on_fork { RESET_ON_FORK } else { 0 },
        nice: if fair { i32::from(to.nice) } else { 0 },
        priority: u32::from(to.priority),
        runtime: if fair { to.slice.0 } else { 0 },
        ..Attributes::default()
    };
    // SAFETY: the kernel reads the structure, which is live and as large as it says; where it refuses
    // the size it writes the one it knows into it.
    let r = unsafe { libc::syscall(libc::SYS_sched_setattr, tid.0, &raw mut a, 0) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets what differs. A slice that is the kernel's own, `base`, is left to the kernel.
pub(crate) fn change(tid: Tid, found: &Scheduling, to: &Scheduling, base: Nanos) -> io::Result<()> {
    if (Scheduling { nice: to.nice, ..*found }) == *to {
        return set_nice(tid, to.nice);
    }
    let slice = if to.slice == base { Nanos::ZERO } else { to.slice };
    set(tid, &Scheduling { slice, ..*to })
}

/// The slice that the kernel gives a thread by itself. None where it does not report it (before 6.12).
#[must_use]
pub fn base_slice() -> Option<Nanos> {
    // A thread of our own, for this one may have inherited another.
    let of_new_thread = || {
        let own = get(Tid(0)).ok()?;
        set(Tid(0), &Scheduling { slice: Nanos::ZERO, ..own }).ok()?;
        get(Tid(0)).ok().map(|s| s.slice).filter(|s| *s > Nanos::ZERO)
    };
    std::thread::Builder::new().spawn(of_new_thread).ok()?.join().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_of_our_own_is_read_and_set() {
        let before = get(Tid(0)).unwrap();
        std::thread::spawn(move || {
            assert_eq!(get(Tid(0)).unwrap(), before);
            set(Tid(0), &Scheduling { policy: BATCH, slice: Nanos::ZERO, ..before }).unwrap();
            assert_eq!(get(Tid(0)).unwrap().policy, BATCH);
            set_nice(Tid(0), (before.nice + 3).min(19)).unwrap();
            assert_eq!(get(Tid(0)).unwrap().nice, (before.nice + 3).min(19));
        })
        .join()
        .unwrap();
        assert_eq!(get(Tid(0)).unwrap(), before);
        assert!(get(Tid(i32::MAX)).is_err() && set_nice(Tid(i32::MAX), 0).is_err());
    }

    #[test]
    fn the_kernels_slice_comes_back_after_another() {
        let Some(base) = base_slice() else {
            return evenly_testing::skip("sched-slice", "the kernel does not report slices");
        };
        std::thread::spawn(move || {
            let own = get(Tid(0)).unwrap();
            let other = Nanos(base.0 * 3);
            set(Tid(0), &Scheduling { slice: other, ..own }).unwrap();
            assert_eq!(get(Tid(0)).unwrap().slice, other);
            assert_eq!(base_slice(), Some(base));
            set(Tid(0), &Scheduling { slice: Nanos::ZERO, ..own }).unwrap();
            assert_eq!(get(Tid(0)).unwrap().slice, base);
        })
        .join()
        .unwrap();
    }

    proptest! {
        #[test]
        fn words_are_read_back(
            policy in 0u8..8, nice in -20i8..20, priority in 0u8..100, reset: bool, slice: u64,
        ) {
            let s =
                Scheduling { policy, nice, priority, reset_on_fork: reset, slice: Nanos(slice) };
            prop_assert_eq!(Scheduling::from_words(s.to_words()), Some(s));
        }

        #[test]
        fn any_words_are_nothing_or_themselves(first: u64, slice: u64) {
            if let Some(s) = Scheduling::from_words([first, slice]) {
                prop_assert_eq!(s.to_words(), [first, slice]);
            }
        }
    }
    #[test]
    fn zeros_are_nothing() {
        assert_eq!(Scheduling::from_words([0, 0]), None);
    }
}
