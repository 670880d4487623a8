//! The signals that evenly handles: blocked, received by descriptor, and passed on to the program.

use super::original::{MAX_SIGNAL, Original, SIGSET_BYTES, bit, change_mask, set_disposition};
use super::spawn::{Program, SpawnError, SpawnOptions};
use super::{Supervisor, Target, Waker};
use evenly_model::Pid;
use std::ffi::{OsString, c_int};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Reports of own faults, which must not be blocked, and what cannot be blocked.
const NEVER_BLOCKED: [c_int; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGKILL,
    libc::SIGSTOP,
];
/// Signals 32 and 33 belong to the C library's thread implementation.
const LIBC_INTERNAL: [c_int; 2] = [32, 33];

/// The signals that evenly handles, blocked and to be received by descriptor.
///
/// Holding one is the evidence that they are blocked and that no program has been started yet. It
/// stays in the thread that made it, as a descriptor for signals delivers those of its reader.
///
/// No thread can be started with it, as [`Threads`](super::Threads) comes from a [`Supervisor`] only,
/// and no second program, as [`Signals::spawn`] consumes it:
///
/// ```compile_fail,E0382
/// # use evenly_linux::supervise::{Signals, SpawnOptions};
/// let signals = Signals::block().unwrap();
/// let first = signals.spawn(&["true".into()], &SpawnOptions::default());
/// let second = signals.spawn(&["true".into()], &SpawnOptions::default());
/// ```
#[derive(Debug)]
pub struct Signals {
    pub(super) fd: OwnedFd,
    this_thread_only: PhantomData<*const ()>,
}

impl Signals {
    /// Blocks the signals for the calling thread and all threads that it starts from now on.
    ///
    /// To be called in the main thread before any other is started. SIGCHLD is set to its default
    /// action, since with an inherited "ignored" the program's end would not be reported.
    ///
    /// # Errors
    /// As signalfd(2): no descriptor or no memory left.
    pub fn block() -> io::Result<Self> {
        let original = Original::get();
        if original.ignored & bit(libc::SIGCHLD) != 0 {
            set_disposition(libc::SIGCHLD, libc::SIG_DFL);
        }
        let set = (1..=MAX_SIGNAL)
            .filter(|s| !NEVER_BLOCKED.contains(s) && !LIBC_INTERNAL.contains(s))
            .fold(0, |set, s| set | bit(s));
        // SAFETY: the set is live and of the size given; -1 asks for a new descriptor.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_signalfd4,
                -1,
                &raw const set,
                SIGSET_BYTES,
                libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
            )
        };
        let fd = RawFd::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        change_mask(libc::SIG_BLOCK, set);
        // SAFETY: the descriptor was opened just now and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, this_thread_only: PhantomData })
    }

    /// Lets all signals through again that evenly did not find blocked when it was started: for
    /// work that goes on after the program has ended, with nothing that must not be interrupted. What
    /// waits is delivered at once. Concerns the calling thread, and those that it starts from now on.
    pub fn let_through() {
        change_mask(libc::SIG_SETMASK, Original::get().mask);
    }

    /// Starts a program, found by PATH as execvp(3) does, in evenly's process group and with
    /// everything that evenly was started with. `argv[0]` is passed on as given.
    ///
    /// Where it fails the signals stay blocked; evenly then ends with [`SpawnError::outcome`].
    ///
    /// # Errors
    /// See [`SpawnError`]; the program does not run then.
    ///
    /// # Panics
    /// In debug builds, where other threads run.
    pub fn spawn(self, argv: &[OsString], opts: &SpawnOptions) -> Result<Supervisor, SpawnError> {
        let eventfd = |source| SpawnError::System { what: "eventfd", source };
        // Before the fork: afterwards the program would run on without a supervisor.
        let wake = Waker::new().map_err(eventfd)?;
        let program = Program::spawn(argv, opts)?;
        Ok(Supervisor::with_target(self, Target::Child(program), wake))
    }

    /// The next signal that waits, None where there is none.
    pub(super) fn next(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of_val(&info);
        loop {
            // SAFETY: the kernel writes at most `size` bytes, which the variable has.
            let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            if usize::try_from(n) == Ok(size) {
                // SAFETY: the kernel has written the whole structure, and any bytes are valid.
                return Some(Received::from(unsafe { info.assume_init_ref() }));
            }
            if n >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
}

/// A signal with what is known of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) signal: c_int,
    pub(super) code: c_int,
    pub(super) sender: c_int,
    pub(super) sender_uid: u32,
    pub(super) value: u64,
}

impl From<&libc::signalfd_siginfo> for Received {
    fn from(i: &libc::signalfd_siginfo) -> Self {
        Self {
            signal: i.ssi_signo.cast_signed(),
            code: i.ssi_code,
            sender: i.ssi_pid.cast_signed(),
            sender_uid: i.ssi_uid,
            value: i.ssi_ptr,
        }
    }
}

/// How a signal goes on to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forward {
    /// Not at all: the program has it, or it is not meant for the program.
    No,
    /// By kill(2), which carries no value.
    Plain,
    /// By sigqueue(3), with its value and sender.
    Queued,
}

/// Where a signal comes from, as far as the decision needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// Evenly itself sent it.
    pub(super) own: bool,
    /// The program or one of its descendants sent it.
    pub(super) from_program: bool,
    /// Evenly leads its session.
    pub(super) session_leader: bool,
}

/// The rule of the module's text. Not for SIGCHLD and SIGCONT, which are never passed on as such.
pub(super) fn forward(r: &Received, origin: Origin) -> Forward {
    if r.code > 0 {
        return if r.signal == libc::SIGHUP && origin.session_leader {
            Forward::Plain
        } else {
            Forward::No
        };
    }
    match r.code {
        _ if origin.own || origin.from_program => Forward::No,
        libc::SI_USER | libc::SI_TKILL => Forward::Plain,
        libc::SI_QUEUE => Forward::Queued,
        _ => Forward::No,
    }
}

/// The part of `siginfo_t` that belongs to sigqueue(3).
#[repr(C)]
struct QueuedInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    // A structure of its own for the alignment that the union has in C.
    rt: QueuedFields,
}

#[repr(C)]
struct QueuedFields {
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
}

const _: () = assert!(
    size_of::<QueuedInfo>() <= size_of::<libc::siginfo_t>()
        && align_of::<QueuedInfo>() <= align_of::<libc::siginfo_t>()
);

/// Sends a signal on as sigqueue(3) sent it, with its value and its sender.
pub(super) fn queue(pid: Pid, r: &Received) -> io::Result<()> {
    // On 32-bit systems the kernel extends the value; the lower half is what was sent.
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    let rt = QueuedFields { pid: r.sender, uid: r.sender_uid, value: r.value as usize };
    let info = QueuedInfo { signo: r.signal, errno: 0, code: libc::SI_QUEUE, rt };
    let mut whole = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: siginfo_t is at least as large and as aligned (asserted above); it stays
    // initialised, since it was zeroed. The kernel only reads it.
    let result = unsafe {
        whole.as_mut_ptr().cast::<QueuedInfo>().write(info);
        libc::syscall(libc::SYS_rt_sigqueueinfo, pid.0, r.signal, whole.as_ptr())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: Origin = Origin { own: false, from_program: false, session_leader: false };

    fn received(signal: c_int, code: c_int) -> Received {
        Received { signal, code, sender: 1, sender_uid: 0, value: 0 }
    }

    #[test]
    fn what_the_kernel_sent_to_the_group_is_not_passed_on() {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH, libc::SIGHUP] {
            assert_eq!(forward(&received(signal, libc::SI_KERNEL), ELSEWHERE), Forward::No);
        }
        let leader = Origin { session_leader: true, ..ELSEWHERE };
        assert_eq!(forward(&received(libc::SIGHUP, libc::SI_KERNEL), leader), Forward::Plain);
        assert_eq!(forward(&received(libc::SIGINT, libc::SI_KERNEL), leader), Forward::No);
    }

    #[test]
    fn what_a_process_sent_is_passed_on_in_its_own_form() {
        for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGTSTP, 40] {
            let by = |code, origin| forward(&received(signal, code), origin);
            assert_eq!(by(libc::SI_USER, ELSEWHERE), Forward::Plain);
            assert_eq!(by(libc::SI_TKILL, ELSEWHERE), Forward::Plain);
            assert_eq!(by(libc::SI_QUEUE, ELSEWHERE), Forward::Queued);
            assert_eq!(by(libc::SI_TIMER, ELSEWHERE), Forward::No);
            assert_eq!(by(libc::SI_USER, Origin { own: true, ..ELSEWHERE }), Forward::No);
            assert_eq!(by(libc::SI_QUEUE, Origin { from_program: true, ..ELSEWHERE }), Forward::No);
        }
    }
}
