//! The smallest wrapper that can be made of [`evenly_linux::supervise`], and a program to be run
//! by it that notes every signal it gets. The tests of the module are written with both.
//!
//! - `supervised run -- COMMAND...` runs a command as `evenly run` does, without balancing.
//! - `supervised attach PID` waits for a process as `evenly attach` does.
//! - `supervised listen LOG [group]` appends `<signal> code=<si_code> value=<si_value>` to LOG for
//!   each signal, until SIGTERM; then exits with status 7. With `group` it first sends SIGUSR1 to
//!   its process group.
//!
//! The first two write `run`, `wake`, `stop` and `continue` to the file that `SUPERVISED_LOG`
//! names.

use evenly_linux::supervise::{Hooks, Outcome, Signals, SpawnOptions, Supervisor, end_like};
use evenly_model::Pid;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::path::Path;
use std::ptr;
use std::thread;

type Failure = Box<dyn Error>;

fn main() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let outcome = match words.as_slice() {
        ["run", "--", ..] => run(&args[2..]),
        ["attach", pid] => attach(pid),
        ["listen", log] => listen(Path::new(log), false),
        ["listen", log, "group"] => listen(Path::new(log), true),
        _ => Err("usage: supervised run -- COMMAND... | attach PID | listen LOG [group]".into()),
    };
    end_like(outcome.unwrap_or_else(|e| {
        eprintln!("supervised: {e}");
        Outcome::Exited(125)
    }))
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

struct Log(Option<File>);

impl Log {
    fn open() -> std::io::Result<Self> {
        let path = std::env::var_os("SUPERVISED_LOG");
        Ok(Self(path.map(|p| append(Path::new(&p))).transpose()?))
    }

    fn line(&mut self, text: &str) {
        if let Some(file) = &mut self.0
            && let Err(e) = writeln!(file, "{text}")
        {
            eprintln!("supervised: cannot write to the log: {e}");
        }
    }
}

impl Hooks for Log {
    fn on_stop(&mut self) {
        self.line("stop");
    }

    fn on_continue(&mut self) {
        self.line("continue");
    }

    fn on_wake(&mut self) -> ControlFlow<()> {
        self.line("wake");
        ControlFlow::Continue(())
    }
}

/// As evenly does for its descriptors of threads.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        eprintln!("supervised: cannot raise RLIMIT_NOFILE: {e}");
    }
}

/// Stands for a balancer thread: wakes the supervisor once and lives on.
fn balancer(supervisor: &Supervisor) -> std::io::Result<()> {
    let waker = supervisor.waker();
    let work = move || {
        waker.wake();
        loop {
            thread::park();
        }
    };
    supervisor.threads().start("balancer", work).map(drop)
}

fn run(argv: &[OsString]) -> Result<Outcome, Failure> {
    let signals = Signals::block()?;
    raise_descriptor_limit();
    match signals.spawn(argv, &SpawnOptions::default()) {
        Ok(supervisor) => supervise(supervisor),
        Err(e) => {
            eprintln!("supervised: {e}");
            Ok(e.outcome())
        }
    }
}

fn attach(pid: &str) -> Result<Outcome, Failure> {
    let signals = Signals::block()?;
    supervise(Supervisor::for_attach(signals, Pid(pid.parse()?))?)
}

fn supervise(supervisor: Supervisor) -> Result<Outcome, Failure> {
    let mut log = Log::open()?;
    balancer(&supervisor)?;
    log.line("run");
    let outcome = supervisor.run(&mut log);
    log.line(&format!("{outcome:?}"));
    Ok(outcome)
}

fn listen(log: &Path, group: bool) -> Result<Outcome, Failure> {
    let mut log = append(log)?;
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything else uses it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let standard = [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGTERM,
            libc::SIGCONT,
            libc::SIGWINCH,
        ];
        for signal in standard.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        if group {
            libc::kill(0, libc::SIGUSR1);
        }
    }
    writeln!(log, "ready {}", std::process::id())?;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, and the kernel fills the structure if it returns a
        // signal; si_value may be read of any siginfo_t, as all its bytes are initialised.
        let (signal, code, value) = unsafe {
            let signal = libc::sigwaitinfo(set.as_ptr(), info.as_mut_ptr());
            let info = info.assume_init();
            (signal, info.si_code, info.si_value().sival_ptr.addr())
        };
        if signal < 0 {
            continue;
        }
        let value = if code == libc::SI_QUEUE { value } else { 0 };
        writeln!(log, "{signal} code={code} value={value}")?;
        if signal == libc::SIGTERM {
            return Ok(Outcome::Exited(7));
        }
    }
}
