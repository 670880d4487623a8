//! The user's program, run and supervised as if evenly were not there (promise P9).
//!
//! Invariant: the program starts with exactly the signal dispositions, signal mask, descriptors,
//! limits and process group that evenly was started with, and evenly ends as the program ended.
//! Whatever happens to evenly, SIGKILL included, the program runs on.
//!
//! # Order of the calls
//!
//! Block first, then start the program, then start threads. The types keep this order: each step
//! takes or gives the evidence of the one before.
//!
//! 1. [`Signals::block`], in the main thread and before any other thread is started: threads
//!    inherit the blocked mask, so that no signal is delivered to a thread that would die of it.
//! 2. [`Signals::spawn`], before evenly changes anything else of itself that a child inherits
//!    (nice level, scheduling class, affinity, working directory). Signals, descriptors 0-2,
//!    RLIMIT_NOFILE and interval timers are put right for the program by `spawn` itself.
//!    It consumes the [`Signals`], so that nothing is forked a second time.
//! 3. [`Supervisor::threads`] for whatever starts a thread, [`Supervisor::waker`] for the
//!    balancer threads, and [`Supervisor::run`], in the thread of step 1.
//! 4. [`end_like`], after everything has been restored and reported.
//!
//! # Who gets which signal
//!
//! The program stays in evenly's process group, so that the kernel sends it the terminal's
//! signals (Ctrl-C, Ctrl-\\, Ctrl-Z, resizing, hangup) directly. Evenly gets them too and drops
//! them; they are known by `si_code > 0`. One exception: on a hangup the kernel tells only the
//! session leader, so that a SIGHUP is passed on where evenly is the leader.
//!
//! A signal that a process sent is passed on, as the program is what the sender means: by
//! sigqueue(3) with its value and sender where it came by sigqueue(3), by kill(2) otherwise. A
//! receiver cannot tell kill(pid) from kill(-pgid), and in the second case the program has the
//! signal already. It then gets it twice, which is the lesser harm: of two SIGTERMs at the same
//! time most programs notice one (a pending standard signal is merged, the default action ends
//! the program, an ignored one is ignored), `timeout` sends two to the program that it starts in
//! any case, and sigqueue(3), where a count could matter, has no form for groups. Not passing it
//! on would lose the `kill PID` of every batch system. Signals that come from the program or its
//! descendants are not passed on: those are `kill(0, ...)`, which has reached the program, or
//! meant for its parent.
//!
//! SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS are not blocked and not passed on: they
//! report evenly's own faults.
//!
//! # Job control
//!
//! When the program stops, evenly stops with the same signal, so that the shell sees the job
//! stopped; a program that ignores SIGTSTP keeps evenly running. Where no shell with job control
//! waits for evenly and only the program was stopped (`kill -STOP` by a resource manager), evenly
//! runs on, as the SIGCONT would come to the program alone and nobody would wake evenly. When
//! evenly gets SIGCONT it continues the program if that is still stopped; a running program is
//! not sent a second SIGCONT, since after `fg` and `bg` it has had its own.
//!
//! # Known gaps
//!
//! A parent-death signal that evenly was started with is not handed to the program. Where evenly
//! is a session or process group leader the program is not one.

use crate::affinity;
use crate::proc::Proc;
use evenly_model::{CpuSet, Pid, Tid};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{self as rp, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus};
use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Highest signal number of Linux (all architectures but MIPS).
const MAX_SIGNAL: c_int = 64;
/// Size of the kernel's signal set, which is smaller than that of the C library.
const SIGSET_BYTES: usize = size_of::<u64>();
/// How long a start may take before it is checked whether the child was stopped before its exec.
const EXEC_CHECK_MS: u64 = 100;
/// How long a thread that was joined may take to leave the process.
const LEAVING: Duration = Duration::from_secs(1);

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

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// What evenly was started with and what the Rust runtime changes before `main`.
#[derive(Debug, Clone, Copy)]
struct Original {
    /// Blocked signals.
    mask: u64,
    /// Ignored signals.
    ignored: u64,
    /// Which of the descriptors 0, 1, 2 were closed (the runtime opens /dev/null on them).
    closed: [bool; 3],
    /// Soft and hard RLIMIT_NOFILE, None where it could not be read.
    nofile: Option<(libc::rlim_t, libc::rlim_t)>,
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
    fn get() -> &'static Self {
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

fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
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
fn set_disposition(signal: c_int, handler: libc::sighandler_t) {
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
fn change_mask(how: c_int, set: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both sets are live and of the size given. The call cannot fail with these arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut old, SIGSET_BYTES);
    }
    old
}

/// Signals that wait for the calling thread or for the process.
fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel writes one set of the size given.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, SIGSET_BYTES) };
    set
}

fn own_pid() -> c_int {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

fn kill(pid: c_int, signal: c_int) -> io::Result<()> {
    // SAFETY: kill touches no memory of this process.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a signal was ignored when evenly was started, as SIGHUP is under nohup(1) and SIGINT in
/// the background of a script. Who starts a program that way wants it to stay ignored.
#[must_use]
pub fn was_ignored(signal: i32) -> bool {
    (1..=MAX_SIGNAL).contains(&signal) && Original::get().ignored & bit(signal) != 0
}

/// Whether this process has no thread but the calling one. True where the kernel does not say.
fn has_one_thread() -> bool {
    let one = || Proc::default().process_stat(Pid(own_pid())).is_none_or(|s| s.threads <= 1);
    let begin = Instant::now();
    // pthread_join returns a moment before the kernel has removed the thread.
    while !one() {
        if begin.elapsed() > LEAVING {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// The signals that evenly handles, blocked and to be received by descriptor.
///
/// Holding one is the evidence that they are blocked and that no program has been started yet. It
/// stays in the thread that made it, as a descriptor for signals delivers those of its reader.
///
/// No thread can be started with it, as [`Threads`] comes from a [`Supervisor`] only, and no second
/// program, as [`Signals::spawn`] consumes it:
///
/// ```compile_fail,E0382
/// # use evenly_linux::supervise::{Signals, SpawnOptions};
/// let signals = Signals::block().unwrap();
/// let first = signals.spawn(&["true".into()], &SpawnOptions::default());
/// let second = signals.spawn(&["true".into()], &SpawnOptions::default());
/// ```
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
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
        // SAFETY: the descriptor was opened just now and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, this_thread_only: PhantomData })
    }

    /// Lets all signals through again that evenly did not find blocked when it was started: for
    /// whoever goes on after the program has ended, with nothing that must not be interrupted. What
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
    fn next(&self) -> Option<Received> {
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
struct Received {
    signal: c_int,
    code: c_int,
    sender: c_int,
    sender_uid: u32,
    value: u64,
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
enum Forward {
    /// Not at all: the program has it, or it is not meant for the program.
    No,
    /// By kill(2).
    Plain,
    /// By sigqueue(3), with its value and sender.
    Queued,
}

/// Where a signal comes from, as far as the decision needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    /// Evenly itself sent it.
    own: bool,
    /// The program or one of its descendants sent it.
    from_program: bool,
    /// Evenly leads its session.
    session_leader: bool,
}

/// The rule of the module's text. Not for SIGCHLD and SIGCONT, which are never passed on as such.
fn forward(r: &Received, origin: Origin) -> Forward {
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

/// Options of [`Signals::spawn`].
#[derive(Debug, Clone, Default)]
pub struct SpawnOptions {
    /// Variables set for the program on top of evenly's own environment. Where there are none the
    /// environment is passed on byte for byte.
    pub env: Vec<(OsString, OsString)>,
    /// The CPUs that the program starts with, as under taskset(1); evenly's own where there are none.
    pub cpus: Option<CpuSet>,
}

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("cannot run '{}': {detail}", .program.display())]
    NotFound {
        /// The program's name as given.
        program: OsString,
        /// What was looked for.
        detail: String,
    },
    /// There is such a file, but it cannot be executed.
    #[error("cannot run '{}': {detail}", .program.display())]
    NotExecutable {
        /// The program's name as given.
        program: OsString,
        /// What stands in the way.
        detail: String,
    },
    /// A fatal signal came before the program was started; end with it.
    #[error("ended by signal {0} before the program was started")]
    Interrupted(i32),
    /// The command line holds nothing that can be run.
    #[error("bad command line: {0}")]
    BadCommand(&'static str),
    /// The system could not start a process.
    #[error("cannot start a process ({what}): {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl SpawnError {
    /// The outcome that evenly has to end with, see [`end_like`]: 127 not found, 126 not
    /// executable, 125 any other failure, as env(1) and timeout(1) have it.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotFound { .. } => Outcome::Exited(127),
            Self::NotExecutable { .. } => Outcome::Exited(126),
            Self::Interrupted(signal) => Outcome::Signaled(*signal),
            Self::BadCommand(_) | Self::System { .. } => Outcome::Exited(125),
        }
    }

    fn from_exec(program: &OsString, errno: c_int) -> Self {
        let program = program.clone();
        let path = Path::new(&program);
        let has_slash = program.as_bytes().contains(&b'/');
        if errno == libc::ENOENT {
            let detail = match (has_slash, path.exists()) {
                (true, true) => "the file exists, but not the interpreter that it names in its \
                                 first line (or its dynamic loader)"
                    .to_owned(),
                (true, false) => "no such file".to_owned(),
                (false, _) => match std::env::var_os("PATH") {
                    Some(p) => format!("not found in PATH={}", p.display()),
                    None => "not found in the default path (PATH is not set)".to_owned(),
                },
            };
            return Self::NotFound { program, detail };
        }
        let detail = if errno == libc::EACCES && has_slash && path.is_dir() {
            "it is a directory".to_owned()
        } else if errno == libc::EACCES {
            format!(
                "permission denied (it must be a file with execute permission, on a file system \
                 mounted without noexec; see ls -l {})",
                program.display()
            )
        } else {
            io::Error::from_raw_os_error(errno).to_string()
        };
        Self::NotExecutable { program, detail }
    }
}

/// How supervision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The program exited with this status.
    Exited(i32),
    /// The program was ended by this signal.
    Signaled(i32),
    /// Attached only: the user ended evenly, the target runs on.
    Detached,
    /// Attached only: the target has ended.
    TargetEnded,
}

/// The program, started and not yet waited for.
#[derive(Debug)]
struct Program {
    pid: Pid,
    pidfd: Option<OwnedFd>,
}

/// Interval timers survive exec but not fork, so that an `alarm` set for the program before evenly
/// was started has to be handed over.
const TIMERS: [c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];
const NO_TIMER: libc::itimerval = libc::itimerval {
    it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
    it_value: libc::timeval { tv_sec: 0, tv_usec: 0 },
};

fn set_timer(which: c_int, value: &libc::itimerval) {
    // SAFETY: the value is only read, and the old one is not asked for. The types differ between C
    // libraries, hence the cast of the number.
    unsafe { libc::setitimer(which as _, value, ptr::null_mut()) };
}

fn timer(which: c_int) -> libc::itimerval {
    let mut value = NO_TIMER;
    // SAFETY: the kernel writes one itimerval into a live variable of that type.
    unsafe { libc::getitimer(which as _, &raw mut value) };
    value
}

fn is_armed(t: &libc::itimerval) -> bool {
    t.it_value.tv_sec != 0 || t.it_value.tv_usec != 0
}

// SAFETY: the C library defines it with this name and type (environ(7)).
unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Pointers for exec, null-terminated; `owned` keeps what they point to.
struct Vector {
    owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Vector {
    fn arguments(argv: &[OsString]) -> Result<Self, SpawnError> {
        if argv.is_empty() || argv[0].is_empty() {
            return Err(SpawnError::BadCommand("no program given"));
        }
        let owned = argv
            .iter()
            .map(|a| CString::new(a.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| SpawnError::BadCommand("an argument contains a zero byte"))?;
        let pointers = owned.iter().map(|a| a.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { owned, pointers })
    }

    /// The environment with `set` put in place of what has the same names.
    fn environment(set: &[(OsString, OsString)]) -> Result<Self, SpawnError> {
        let mut owned = Vec::new();
        for (name, value) in set {
            let bytes = [name.as_bytes(), b"=", value.as_bytes()].concat();
            owned.push(CString::new(bytes).map_err(|_| {
                SpawnError::BadCommand("a variable for the program contains a zero byte")
            })?);
        }
        let mut pointers = Vec::new();
        // SAFETY: `environ` is null or an array of strings that ends with a null pointer. Nothing
        // changes the environment meanwhile: it is read before other threads are started.
        unsafe {
            let mut next = environ;
            while !next.is_null() && !(*next).is_null() {
                let entry = std::ffi::CStr::from_ptr(*next).to_bytes();
                let replaced = set.iter().any(|(name, _)| {
                    entry.strip_prefix(name.as_bytes()).is_some_and(|r| r.starts_with(b"="))
                });
                if !replaced {
                    pointers.push(*next);
                }
                next = next.add(1);
            }
        }
        pointers.extend(owned.iter().map(|e| e.as_ptr()));
        pointers.push(ptr::null());
        Ok(Self { owned, pointers })
    }
}

impl Program {
    fn spawn(argv: &[OsString], opts: &SpawnOptions) -> Result<Self, SpawnError> {
        debug_assert!(has_one_thread(), "a program is started while other threads run");
        let system = |what| move |source: io::Error| SpawnError::System { what, source };
        let args = Vector::arguments(argv)?;
        let env = Vector::environment(&opts.env)?;
        let original = Original::get();
        let (status, report) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|e| system("pipe")(e.into()))?;
        let timers = TIMERS.map(timer);

        // What came until now would have ended a program that is run without evenly; the child
        // does not inherit it. Only a signal of the next few microseconds is missed.
        let fatal = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
        let waiting = pending() & !original.ignored & !original.mask;
        if let Some(signal) = fatal.into_iter().find(|s| waiting & bit(*s) != 0) {
            return Err(SpawnError::Interrupted(signal));
        }

        // SAFETY: no other threads run: threads are started with `Threads`, which exists only once
        // the program has been started (asserted above in debug builds). The child calls only
        // functions that are safe after fork even if there were some.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let errno = become_program(original, &timers, opts.cpus.as_ref(), &args, &env);
            // SAFETY: the descriptor is open and the four bytes are live; _exit has no
            // preconditions. Nothing of the parent's state is run or dropped.
            unsafe {
                libc::write(report.as_raw_fd(), (&raw const errno).cast(), size_of::<c_int>());
                libc::_exit(127);
            }
        }
        if pid < 0 {
            return Err(system("fork")(io::Error::last_os_error()));
        }
        drop(report);
        drop((args.owned, env.owned));
        let errno = exec_result(pid, &status).map_err(system("start"))?;
        if let Some(errno) = errno {
            if let Some(p) = positive(pid) {
                // The child has ended or is about to; that it cannot be waited for changes nothing.
                let _ = retry_on_intr(|| rp::waitid(WaitId::Pid(p), WaitIdOptions::EXITED));
            }
            if errno < 0 {
                let source = io::Error::from_raw_os_error(-errno);
                return Err(SpawnError::System { what: "set the CPUs of the program", source });
            }
            return Err(SpawnError::from_exec(&argv[0], errno));
        }
        for (which, value) in TIMERS.into_iter().zip(&timers) {
            if is_armed(value) {
                set_timer(which, &NO_TIMER);
            }
        }
        let pidfd = positive(pid).and_then(|p| rp::pidfd_open(p, PidfdFlags::empty()).ok());
        Ok(Self { pid: Pid(pid), pidfd })
    }
}

/// In the child: puts everything back to what evenly was started with and executes the program.
/// Returns the error number if that fails. Async-signal-safe (execvp of the usual C libraries uses
/// the stack only).
fn become_program(
    original: &Original,
    timers: &[libc::itimerval; 3],
    cpus: Option<&CpuSet>,
    args: &Vector,
    env: &Vector,
) -> c_int {
    // A system call and nothing else. Its error is told by its sign from one of exec.
    if let Some(Err(e)) = cpus.map(|cpus| affinity::set(Tid(0), cpus)) {
        return -e.raw_os_error().unwrap_or(libc::EINVAL);
    }
    for signal in 1..=MAX_SIGNAL {
        let ignored = original.ignored & bit(signal) != 0;
        set_disposition(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
    }
    if let Some((soft, hard)) = original.nofile {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the limit is only read.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
    for (fd, closed) in (0..).zip(original.closed) {
        if closed {
            // SAFETY: this is the /dev/null of the Rust runtime; nothing else in this process,
            // which is about to be replaced, uses it.
            unsafe { libc::close(fd) };
        }
    }
    for (which, value) in TIMERS.into_iter().zip(timers) {
        if is_armed(value) {
            set_timer(which, value);
        }
    }
    // Last, as a signal that came since the fork takes effect here.
    change_mask(libc::SIG_SETMASK, original.mask);
    // SAFETY: both vectors end with null pointers and their strings are alive in this copy of the
    // parent's memory.
    unsafe {
        libc::execvpe(args.pointers[0], args.pointers.as_ptr(), env.pointers.as_ptr());
        *libc::__errno_location()
    }
}

/// Waits until the child has executed the program (None) or failed to (the error number).
fn exec_result(pid: c_int, status: &OwnedFd) -> io::Result<Option<c_int>> {
    let timeout = Timespec::try_from(Duration::from_millis(EXEC_CHECK_MS)).ok();
    loop {
        let mut fds = [PollFd::new(status, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut fds, timeout.as_ref()))? > 0 {
            let mut errno = [0; size_of::<c_int>()];
            let n = retry_on_intr(|| rustix::io::read(status, &mut errno))?;
            return Ok((n == errno.len()).then(|| c_int::from_ne_bytes(errno)));
        }
        // A Ctrl-Z between fork and exec stops the child while we wait for its exec: stop too.
        let stopped = positive(pid).and_then(|p| {
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            rp::waitid(WaitId::Pid(p), options).ok().flatten()
        });
        if let Some(signal) = stopped.and_then(|s| s.stopping_signal()) {
            stop_self(signal);
            kill(pid, libc::SIGCONT)?;
        }
    }
}

/// What the supervisor calls, in its own thread.
pub trait Hooks {
    /// The program (or, attached, evenly itself) is being stopped: suspend balancing. Evenly may
    /// be stopped right after.
    fn on_stop(&mut self);
    /// The program runs again: resume balancing.
    fn on_continue(&mut self);
    /// A [`Waker`] was used. `Break` ends an attached supervisor ([`Outcome::Detached`]); a
    /// program that evenly started is waited for in any case.
    fn on_wake(&mut self) -> ControlFlow<()>;
}

/// Wakes a supervisor from any thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the supervisor call [`Hooks::on_wake`] soon; several calls may be merged into one.
    pub fn wake(&self) {
        // Fails only where the counter is full, and then the supervisor is awake already.
        let _ = retry_on_intr(|| rustix::io::write(&*self.0, &1u64.to_ne_bytes()));
    }
}

/// Starts threads of evenly's own.
///
/// Holding one is the evidence that signals are blocked and that the program, if evenly starts one,
/// has been started: a thread inherits the mask, and there is no fork any more that would copy a
/// process with several threads. Only [`Supervisor::threads`] makes it:
///
/// ```compile_fail,E0423
/// let threads = evenly_linux::supervise::Threads(());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Threads(());

impl Threads {
    /// Starts a thread with a name, of which the kernel keeps 15 bytes.
    ///
    /// # Errors
    /// As pthread_create(3): no memory, or no more threads allowed.
    pub fn start<T: Send + 'static>(
        self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

/// Why evenly cannot attach to a process.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such process.
    #[error("cannot attach to {0}: there is no such process")]
    NoProcess(Pid),
    /// It is the id of a thread.
    #[error("cannot attach to {0}: that is a thread, not a process; give the process id")]
    Thread(Pid),
    /// The system refused.
    #[error("cannot attach to {pid}: {what}: {source}")]
    System {
        /// The target.
        pid: Pid,
        /// The call that failed and what it needs.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

#[derive(Debug)]
enum Target {
    Child(Program),
    Attached { pid: Pid, pidfd: OwnedFd },
}

/// Waits for signals, the end of the program and wakers, and acts as the module's text says.
#[derive(Debug)]
pub struct Supervisor {
    signals: Signals,
    target: Target,
    wake: Waker,
    /// The signal that the program is stopped by, while it is.
    stopped: Option<c_int>,
    /// A stop signal that evenly has got itself since the last SIGCONT.
    own_stop: bool,
}

impl Supervisor {
    /// Supervises a process that runs already: waits for its end and lets SIGINT, SIGTERM, SIGHUP
    /// and SIGQUIT (where they are not ignored from the start) end evenly alone.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn for_attach(signals: Signals, pid: Pid) -> Result<Self, AttachError> {
        let raw = positive(pid.0).ok_or(AttachError::NoProcess(pid))?;
        let system = |what| move |source| AttachError::System { pid, what, source };
        let pidfd = rp::pidfd_open(raw, PidfdFlags::empty()).map_err(|e| match e {
            Errno::SRCH => AttachError::NoProcess(pid),
            Errno::INVAL | Errno::NOENT => AttachError::Thread(pid),
            e => system("pidfd_open (Linux 5.3 or newer is needed)")(e.into()),
        })?;
        let wake = Waker::new().map_err(system("eventfd"))?;
        Ok(Self::with_target(signals, Target::Attached { pid, pidfd }, wake))
    }

    fn with_target(signals: Signals, target: Target, wake: Waker) -> Self {
        Self { signals, target, wake, stopped: None, own_stop: false }
    }

    /// The process that is supervised.
    #[must_use]
    pub fn pid(&self) -> Pid {
        match &self.target {
            Target::Child(program) => program.pid,
            Target::Attached { pid, .. } => *pid,
        }
    }

    /// What starts threads, from now on.
    #[must_use]
    pub fn threads(&self) -> Threads {
        Threads(())
    }

    /// A handle by which other threads wake the supervisor.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Supervises until the program has ended or, attached, until the user or the target ends it.
    /// Sleeps in poll(2) between events.
    ///
    /// The signals stay blocked afterwards, so that restoring and reporting are not interrupted; see
    /// [`Signals::let_through`].
    pub fn run(mut self, hooks: &mut dyn Hooks) -> Outcome {
        loop {
            // Before the first poll too: a signal or an end may have come before.
            if let Some(outcome) = self.step(hooks) {
                return outcome;
            }
            if self.wait().is_err() {
                return self.last_resort();
            }
        }
    }

    /// Waits for any event.
    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![
            PollFd::new(&self.signals.fd, PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.0.as_fd(), PollFlags::IN),
        ];
        let pidfd = match &self.target {
            Target::Child(p) => p.pidfd.as_ref(),
            Target::Attached { pidfd, .. } => Some(pidfd),
        };
        fds.extend(pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)));
        retry_on_intr(|| poll(&mut fds, None))?;
        Ok(())
    }

    /// The kernel could not poll (out of memory): the program's end is still waited for.
    fn last_resort(&self) -> Outcome {
        let Target::Child(program) = &self.target else { return Outcome::Detached };
        loop {
            match wait_child(program.pid, WaitIdOptions::EXITED) {
                Ok(status) => {
                    if let Some(outcome) = ended(status.as_ref()) {
                        return outcome;
                    }
                }
                Err(_) => return LOST,
            }
        }
    }

    /// Handles everything that waits. Signals come before the program's changes of state, so that
    /// a stop of the whole group is known as such.
    fn step(&mut self, hooks: &mut dyn Hooks) -> Option<Outcome> {
        let mut count = [0; size_of::<u64>()];
        let woken = retry_on_intr(|| rustix::io::read(&*self.wake.0, &mut count)).is_ok();
        let end = woken && hooks.on_wake().is_break();
        while let Some(received) = self.signals.next() {
            let outcome = match self.target {
                Target::Child(_) => self.signal_for_program(&received, hooks),
                Target::Attached { .. } => signal_attached(&received, hooks),
            };
            if outcome.is_some() {
                return outcome;
            }
        }
        match &self.target {
            Target::Child(_) => self.reap(hooks),
            Target::Attached { pidfd, .. } => {
                let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                let gone = retry_on_intr(|| poll(&mut fds, Some(&now))).is_ok_and(|n| n > 0);
                if gone { Some(Outcome::TargetEnded) } else { end.then_some(Outcome::Detached) }
            }
        }
    }

    fn signal_for_program(&mut self, r: &Received, hooks: &mut dyn Hooks) -> Option<Outcome> {
        let Target::Child(program) = &self.target else { return None };
        let pid = program.pid;
        match r.signal {
            libc::SIGCHLD => return None,
            libc::SIGCONT => {
                self.own_stop = false;
                // The program may have been continued along with us.
                let outcome = self.reap(hooks);
                if outcome.is_none() && self.stopped.is_some() {
                    // A program that cannot be signalled, or is gone, needs nothing from us.
                    let _ = kill(pid.0, libc::SIGCONT);
                }
                return outcome;
            }
            _ => {}
        }
        let own = r.sender == own_pid();
        let origin = Origin {
            own,
            from_program: r.code <= 0 && !own && is_of_program(Pid(r.sender), pid),
            session_leader: is_session_leader(),
        };
        match forward(r, origin) {
            Forward::No => {}
            // As above: what cannot be signalled is beyond the sender's reach too.
            Forward::Plain => drop(kill(pid.0, r.signal)),
            Forward::Queued => {
                if queue(pid, r).is_err() {
                    let _ = kill(pid.0, r.signal);
                }
            }
        }
        if matches!(r.signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) && !own {
            self.own_stop = true;
            if let Some(signal) = self.stopped {
                self.follow(signal);
            }
        }
        None
    }

    /// Takes note of all changes of the program's state.
    fn reap(&mut self, hooks: &mut dyn Hooks) -> Option<Outcome> {
        let Target::Child(program) = &self.target else { return None };
        let pid = program.pid;
        let options = WaitIdOptions::EXITED
            | WaitIdOptions::STOPPED
            | WaitIdOptions::CONTINUED
            | WaitIdOptions::NOHANG;
        loop {
            let status = match wait_child(pid, options) {
                Ok(Some(status)) => status,
                Ok(None) => return None,
                Err(_) => return Some(LOST),
            };
            let outcome = ended(Some(&status));
            if outcome.is_some() {
                return outcome;
            }
            if let Some(signal) = status.stopping_signal() {
                if self.stopped.replace(signal).is_none() {
                    hooks.on_stop();
                }
                self.follow(signal);
            } else if status.continued() && self.stopped.take().is_some() {
                hooks.on_continue();
            }
        }
    }

    /// Stops evenly as the program was stopped, if somebody will continue it.
    fn follow(&mut self, signal: c_int) {
        let whole_group = std::mem::take(&mut self.own_stop);
        // A SIGCONT that waits would be discarded by the stop, and we should sleep for ever.
        let continued = pending() & bit(libc::SIGCONT) != 0;
        if (whole_group || has_job_control_parent()) && !continued {
            stop_self(signal);
        }
    }
}

fn signal_attached(r: &Received, hooks: &mut dyn Hooks) -> Option<Outcome> {
    if Original::get().ignored & bit(r.signal) != 0 || r.sender == own_pid() {
        return None;
    }
    match r.signal {
        libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM => Some(Outcome::Detached),
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            hooks.on_stop();
            stop_self(r.signal);
            hooks.on_continue();
            None
        }
        _ => None,
    }
}

/// The system library's form of a process id; it takes negative numbers for a bug of ours.
fn positive(pid: c_int) -> Option<rp::Pid> {
    if pid > 0 { rp::Pid::from_raw(pid) } else { None }
}

/// What is reported where the child cannot be waited for, which means that some other part of
/// evenly has waited for it: a failure of ours.
const LOST: Outcome = Outcome::Exited(125);

/// The child's next change of state, None where there is none yet.
fn wait_child(pid: Pid, options: WaitIdOptions) -> rustix::io::Result<Option<WaitIdStatus>> {
    let pid = positive(pid.0).ok_or(Errno::CHILD)?;
    retry_on_intr(|| rp::waitid(WaitId::Pid(pid), options))
}

fn ended(status: Option<&WaitIdStatus>) -> Option<Outcome> {
    let status = status?;
    let exited = status.exit_status().map(Outcome::Exited);
    exited.or_else(|| status.terminating_signal().map(Outcome::Signaled))
}

/// Stops this process by a stop signal's default action, and returns when it has been continued
/// (or at once where the kernel does not stop a group that no shell looks after).
fn stop_self(signal: c_int) {
    if signal == libc::SIGSTOP {
        let _ = kill(own_pid(), signal);
        return;
    }
    let former = disposition(signal);
    set_disposition(signal, libc::SIG_DFL);
    // Sent while blocked, so that it merges with one that waits; delivered by the unblocking.
    let _ = kill(own_pid(), signal);
    change_mask(libc::SIG_UNBLOCK, bit(signal));
    change_mask(libc::SIG_BLOCK, bit(signal));
    if former == Some(libc::SIG_IGN) {
        set_disposition(signal, libc::SIG_IGN);
    }
}

/// Whether a shell with job control waits for us: a parent in another group of our session.
fn has_job_control_parent() -> bool {
    // SAFETY: these calls only read ids of processes; -1 stands for "not to be known".
    unsafe {
        let parent = libc::getppid();
        let (group, session) = (libc::getpgid(parent), libc::getsid(parent));
        parent > 0 && group > 0 && group != libc::getpgrp() && session == libc::getsid(0)
    }
}

fn is_session_leader() -> bool {
    // SAFETY: only reads an id.
    unsafe { libc::getsid(0) == own_pid() }
}

/// Whether a process is the program or a descendant of it. One that descends from this evenly is
/// not, though evenly itself may have been started by the program.
fn is_of_program(pid: Pid, program: Pid) -> bool {
    let own = Pid(own_pid());
    let proc = Proc::default();
    proc.lineage(pid).take_while(|&p| p == program || p != own).any(|p| p == program)
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
fn queue(pid: Pid, r: &Received) -> io::Result<()> {
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

/// Ends evenly as the program ended: with its status, or by the same signal and without a core
/// dump of evenly's own; status 0 for an attached evenly.
///
/// Everything has to be restored and written by now.
pub fn end_like(outcome: Outcome) -> ! {
    let signal = match outcome {
        Outcome::Exited(status) => std::process::exit(status),
        Outcome::Detached | Outcome::TargetEnded => std::process::exit(0),
        Outcome::Signaled(signal) => signal,
    };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is only read, and the other call takes numbers.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    set_disposition(signal, libc::SIG_DFL);
    let _ = kill(own_pid(), signal);
    change_mask(libc::SIG_UNBLOCK, bit(signal));
    // Reached where the default action is not to end, and by the first process of a container,
    // which no signal of its own ends.
    std::process::exit(128 + signal)
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

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a program is started while other threads run")]
    fn a_program_is_not_started_beside_other_threads() {
        // The tests themselves run in several.
        let signals = Signals::block().unwrap();
        let _ = signals.spawn(&["true".into()], &SpawnOptions::default());
    }

    #[test]
    fn descent_is_followed_up_to_ourselves() {
        let own = Pid(own_pid());
        let parent = Proc::default().process_stat(own).unwrap().ppid;
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid(c_int::try_from(child.id()).unwrap());
        assert!(is_of_program(pid, pid));
        assert!(is_of_program(pid, own));
        assert!(!is_of_program(own, pid));
        assert!(!is_of_program(Pid(0), pid) && !is_of_program(Pid(1), pid));
        // Those that evenly itself started are not of a program that evenly descends from.
        assert!(Proc::default().descends(pid, parent) && !is_of_program(pid, parent));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_of_program(pid, own));
    }

    #[test]
    fn variables_are_replaced_by_name() {
        let text = |v: &Vector| -> Vec<String> {
            let pointers = v.pointers.iter().take_while(|p| !p.is_null());
            // SAFETY: the pointers are those of live strings, up to the null pointer.
            let strings = pointers.map(|p| unsafe { std::ffi::CStr::from_ptr(*p) });
            strings.map(|s| s.to_string_lossy().into_owned()).collect()
        };
        let plain = text(&Vector::environment(&[]).unwrap());
        assert!(plain.iter().any(|e| e.starts_with("PATH=")));
        let changed = text(&Vector::environment(&[("PATH".into(), "/x=y".into())]).unwrap());
        assert_eq!(changed.iter().filter(|e| e.starts_with("PATH=")).count(), 1);
        assert_eq!(changed.last().unwrap(), "PATH=/x=y");
        assert_eq!(changed.len(), plain.len());
        assert!(Vector::environment(&[("A".into(), "\0".into())]).is_err());
        assert!(Vector::arguments(&["a".into(), "\0".into()]).is_err());
    }

    #[test]
    fn what_evenly_was_started_with_was_read_before_the_runtime_changed_it() {
        // The runtime has set SIGPIPE to ignored; whoever started the tests had most likely not.
        let now = Original::now();
        assert!(now.ignored & bit(libc::SIGPIPE) != 0);
        assert!(ORIGINAL.get().is_some(), "the constructor has not run");
    }
}
