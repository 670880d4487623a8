//! The fork and the exec of the program, with everything that evenly was started with.

use super::original::{
    MAX_SIGNAL, Original, bit, change_mask, kill, own_pid, pending, set_disposition,
};
use super::{Outcome, is_stopped, positive, stop_self};
use crate::affinity;
use crate::proc::Proc;
use evenly_model::{CpuSet, Pid, Tid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{self as rp, PidfdFlags, WaitId, WaitIdOptions};
use std::ffi::{CString, OsString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// How long a start may take before it is checked whether the child was stopped before its exec.
const EXEC_CHECK_MS: u64 = 100;
/// How long a thread that was joined may take to leave the process.
const LEAVING: Duration = Duration::from_secs(1);

/// What is different for a program that [`Signals::spawn`](super::Signals::spawn) starts.
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
    /// The outcome that evenly has to end with, see [`end_like`](super::end_like): 127 not found, 126 not
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

/// The program, started and not yet waited for.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) pid: Pid,
    pub(super) pidfd: Option<OwnedFd>,
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
    pub(super) fn spawn(argv: &[OsString], opts: &SpawnOptions) -> Result<Self, SpawnError> {
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
    // A system call and nothing else. Its error differs in sign from one of exec.
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
            stop_self(signal, || is_stopped(Pid(pid)));
            kill(pid, libc::SIGCONT)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::supervise::Signals;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a program is started while other threads run")]
    fn a_program_is_not_started_beside_other_threads() {
        // The tests themselves run in several.
        let signals = Signals::block().unwrap();
        let _ = signals.spawn(&["true".into()], &SpawnOptions::default());
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
}
