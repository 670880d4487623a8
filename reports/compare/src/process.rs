//! The executor that starts real processes.
//!
//! The clock runs from before the start to after the end was seen; everything else (files,
//! digests, forwarding) happens outside it. The end is awaited on a pidfd, so that a time limit
//! needs no helper thread on CPUs that are being measured; we wake ten times a second, to look at
//! the interrupt flag.
//!
//! Children stay in our process group: Ctrl-C at the terminal reaches them without our help.
//!
//! Invariant: when [`Executor::run`] returns, the process that it started has ended and has been
//! waited for. Descendants that outlive it are not followed.

use crate::executor::{Arm, Executor, RunError, RunOutcome, Status};
use crate::output::Output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, pidfd_open, pidfd_send_signal};
use rustix::termios::tcgetpgrp;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a process has to react to an interrupt, and then to SIGTERM, before the next step.
const GRACE: Duration = Duration::from_secs(5);
/// How often a flag set by a signal handler is looked at; a wake-up costs some microseconds.
const FLAG_EVERY: Duration = Duration::from_millis(100);
/// How much of standard error an error message quotes.
const TAIL_BYTES: u64 = 2048;
const TAIL_LINES: usize = 10;

/// Where runs read standard input from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Input {
    /// The program reads from `/dev/null`.
    #[default]
    Null,
    /// A file, opened anew for every run.
    File(PathBuf),
}

/// Runs arms as child processes.
#[derive(Debug, Default)]
pub struct ProcessExecutor {
    /// Standard input of every run.
    pub input: Input,
    /// Longest time that one run may take; past it SIGTERM, and five seconds later SIGKILL.
    pub limit: Option<Duration>,
    /// Copy every run's standard output to ours after the run.
    pub forward: bool,
    /// Set by the caller's handler of SIGINT or SIGTERM.
    pub interrupted: Arc<AtomicBool>,
    /// Number of the signal that set it, for callers that want the run to get it too; 0 otherwise.
    /// To be set first.
    pub arrived: Arc<AtomicUsize>,
}

impl Executor for ProcessExecutor {
    fn run(&mut self, arm: &Arm, _index: usize) -> Result<RunOutcome, RunError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let (program, arguments) = arm.argv.split_first().ok_or(RunError::NoCommand)?;
        let stdin = match &self.input {
            Input::Null => Stdio::null(),
            Input::File(path) => File::open(path)
                .map_err(|source| RunError::Input { path: path.clone(), source })?
                .into(),
        };
        let stdout = tempfile::tempfile().map_err(RunError::Capture)?;
        let stderr = tempfile::tempfile().map_err(RunError::Capture)?;
        if let Some(path) = &arm.report {
            forget_report(path)?;
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(arm.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(stdout.try_clone().map_err(RunError::Capture)?)
            .stderr(stderr.try_clone().map_err(RunError::Capture)?);

        let begin = Instant::now();
        let child = command.spawn().map_err(|source| RunError::Start {
            program: program.to_string_lossy().into_owned(),
            source,
        })?;
        let end = self.await_end(child, begin)?;
        let seconds = begin.elapsed().as_secs_f64();

        let status = match (end.status.code(), end.status.signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, signal) => Status::Signalled(signal.unwrap_or_default()),
        };
        // SIGINT without our flag: the terminal signals the whole group at once, and the child may
        // be gone before our own handler has run.
        let by_interrupt = status == Status::Signalled(Signal::INT.as_raw());
        if self.interrupted.load(Ordering::Relaxed) || by_interrupt {
            return Err(RunError::Interrupted);
        }
        if let Some(error) = end.past(self.limit) {
            return Err(error);
        }
        let output = Output::of_file(stdout).map_err(RunError::Capture)?;
        if self.forward {
            // A reader that has gone away does not spoil the measurement.
            self.forward = io::copy(&mut output.reader(), &mut io::stdout().lock()).is_ok();
        }
        let report = match &arm.report {
            Some(path) if status.success() => Some(read_report(path)?),
            _ => None,
        };
        let stderr_tail = tail(&stderr).map_err(RunError::Capture)?;
        Ok(RunOutcome { seconds, status, output, stderr_tail, report })
    }
}

/// How the wait ended.
struct End {
    status: ExitStatus,
    timed_out: bool,
    killed: bool,
}

impl End {
    /// The error where it had to be ended because its time was up.
    fn past(&self, limit: Option<Duration>) -> Option<RunError> {
        let limit = limit.filter(|_| self.timed_out)?;
        Some(RunError::TimedOut { limit, killed: self.killed })
    }
}

/// What has been done to end a process.
#[derive(Clone, Copy, PartialEq)]
enum Pressure {
    None,
    /// The user interrupted at this moment, and the process has the signal.
    Interrupted(Instant),
    /// SIGTERM was sent at this moment.
    Terminated(Instant),
    Killed,
}

impl ProcessExecutor {
    fn await_end(&self, mut child: Child, begin: Instant) -> Result<End, RunError> {
        let pidfd = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let watched = match pidfd {
            Ok(pidfd) => self.watch(&pidfd, begin),
            // Without pidfds (before Linux 5.3, or forbidden) a run without limit still works.
            Err(_) if self.limit.is_none() => Ok((false, Pressure::None)),
            Err(error) => Err(error.into()),
        };
        if watched.is_err() {
            // It is being abandoned; an error here means that it has just ended by itself.
            let _ = child.kill();
        }
        let status = child.wait();
        let (timed_out, pressure) = watched.map_err(RunError::Wait)?;
        Ok(End {
            status: status.map_err(RunError::Wait)?,
            timed_out,
            killed: pressure == Pressure::Killed,
        })
    }

    /// Returns when the process has ended: whether its time was up, and what it took to end it.
    fn watch(&self, pidfd: &OwnedFd, begin: Instant) -> io::Result<(bool, Pressure)> {
        let mut timed_out = false;
        let mut pressure = Pressure::None;
        loop {
            let left = match (self.limit, pressure) {
                (Some(limit), Pressure::None) => limit.saturating_sub(begin.elapsed()),
                _ => FLAG_EVERY,
            };
            if ended(pidfd, left.min(FLAG_EVERY))? {
                return Ok((timed_out, pressure));
            }
            let now = Instant::now();
            pressure = match pressure {
                Pressure::None if self.interrupted.load(Ordering::Acquire) => {
                    if let Some(signal) = self.to_pass_on() {
                        send(pidfd, signal)?;
                    }
                    Pressure::Interrupted(now)
                }
                Pressure::None if self.limit.is_some_and(|limit| now - begin >= limit) => {
                    timed_out = true;
                    send(pidfd, Signal::TERM)?;
                    Pressure::Terminated(now)
                }
                Pressure::Interrupted(since) if now - since >= GRACE => {
                    send(pidfd, Signal::TERM)?;
                    Pressure::Terminated(now)
                }
                Pressure::Terminated(since) if now - since >= GRACE => {
                    send(pidfd, Signal::KILL)?;
                    Pressure::Killed
                }
                unchanged => unchanged,
            };
        }
    }
}

impl ProcessExecutor {
    /// The signal that ended the comparison, where the run has not got it by itself. Ctrl-C comes
    /// from the terminal to the whole foreground, and many programs take a second one for impatience.
    fn to_pass_on(&self) -> Option<Signal> {
        let arrived = i32::try_from(self.arrived.load(Ordering::Relaxed)).ok()?;
        let signal = Signal::from_named_raw(arrived)?;
        (signal != Signal::INT || !in_foreground()).then_some(signal)
    }
}

/// Whether this process is in the foreground of a terminal.
fn in_foreground() -> bool {
    let group = File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
    group == Some(getpgrp())
}

/// Waits at most `time` for the end of the process.
fn ended(pidfd: &OwnedFd, time: Duration) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Signals a process that may have ended in the meantime.
fn send(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the last run's report, so that it cannot be taken for this run's.
fn forget_report(path: &Path) -> Result<(), RunError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RunError::Report { path: path.to_owned(), reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

fn read_report(path: &Path) -> Result<serde_json::Value, RunError> {
    let bad = |reason: String| RunError::Report { path: path.to_owned(), reason };
    let text = fs::read(path).map_err(|error| bad(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))
}

/// The last lines of a file, for a message.
fn tail(file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    let kept = TAIL_BYTES.min(length);
    let mut bytes = vec![0; kept as usize];
    file.read_exact_at(&mut bytes, length - kept)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn shell(script: &str) -> Arm {
        Arm::new("sh", ["/bin/sh", "-c", script])
    }

    fn text(outcome: &RunOutcome) -> String {
        let mut s = String::new();
        outcome.output.reader().read_to_string(&mut s).unwrap();
        s
    }

    #[test]
    fn output_status_and_errors_are_kept() {
        let run = |script| ProcessExecutor::default().run(&shell(script), 0).unwrap();
        let good = run("echo out; (echo more); echo err >&2");
        assert!(good.status.success() && good.seconds > 0.0);
        assert_eq!((text(&good).as_str(), good.stderr_tail.as_str()), ("out\nmore\n", "err"));
        assert_eq!(run("exit 3").status, Status::Exited(3));
        assert_eq!(run("kill -SEGV $$").status, Status::Signalled(11));
        let tail = run("i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done");
        assert!(tail.stderr_tail.starts_with("line 490\n"), "{}", tail.stderr_tail);
        assert!(tail.stderr_tail.ends_with("line 499"));
    }

    #[test]
    fn input_is_empty_or_a_file_read_anew() {
        let mut executor = ProcessExecutor::default();
        assert_eq!(text(&executor.run(&shell("cat"), 0).unwrap()), "");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"hello").unwrap();
        executor.input = Input::File(file.path().to_owned());
        for _ in 0..2 {
            assert_eq!(text(&executor.run(&shell("cat"), 0).unwrap()), "hello");
        }
        executor.input = Input::File("/nonexistent/input".into());
        let error = executor.run(&shell("cat"), 0).unwrap_err();
        assert!(matches!(error, RunError::Input { .. }), "{error}");
    }

    #[test]
    fn environment_is_added() {
        let mut arm = shell("echo $EVENLY_TEST; echo ${PATH:+path}");
        arm.env.push(("EVENLY_TEST".into(), "yes".into()));
        assert_eq!(text(&ProcessExecutor::default().run(&arm, 0).unwrap()), "yes\npath\n");
    }

    #[test]
    fn programs_that_cannot_start_are_named() {
        let arm = Arm::new("kernel", ["/nonexistent/program"]);
        let message = ProcessExecutor::default().run(&arm, 0).unwrap_err().to_string();
        assert!(message.contains("cannot start `/nonexistent/program`: No such file"), "{message}");
        let arm = Arm::new("kernel", Vec::<String>::new());
        assert!(matches!(ProcessExecutor::default().run(&arm, 0), Err(RunError::NoCommand)));
    }

    #[test]
    fn the_time_limit_ends_a_run() {
        let limit = Some(Duration::from_millis(200));
        let mut executor = ProcessExecutor { limit, ..Default::default() };
        let error = executor.run(&shell("exec sleep 1000"), 0).unwrap_err();
        assert!(matches!(error, RunError::TimedOut { killed: false, .. }), "{error}");
    }

    /// Its time is up only once it ignores SIGTERM.
    #[test]
    fn a_run_past_its_limit_that_ignores_sigterm_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script =
            format!("trap '' TERM; echo >{}; while :; do sleep 0.1; done", ready.display());
        let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        while !ready.exists() {
            std::thread::yield_now();
        }
        let executor = ProcessExecutor { limit: Some(Duration::ZERO), ..Default::default() };
        let end = executor.await_end(child, Instant::now()).unwrap();
        assert_eq!(end.status.signal(), Some(Signal::KILL.as_raw()));
        let error = end.past(executor.limit).unwrap();
        assert_eq!(
            error.to_string(),
            "was still running after 0 s and was killed, as SIGTERM did not end it; allow more \
             with --timeout"
        );
    }

    #[test]
    fn descendants_that_keep_the_output_open_hold_up_nothing() {
        let mut executor =
            ProcessExecutor { limit: Some(Duration::from_secs(60)), ..Default::default() };
        let outcome = executor.run(&shell("sleep 120 & echo $!"), 0).unwrap();
        let pid: i32 = text(&outcome).trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn interruption_is_distinguished_from_failure() {
        let mut executor = ProcessExecutor::default();
        let run = executor.run(&shell("kill -INT $$"), 0);
        assert!(matches!(run, Err(RunError::Interrupted)));
        executor.interrupted.store(true, Ordering::Relaxed);
        let run = executor.run(&shell("exit 1"), 0);
        assert!(matches!(run, Err(RunError::Interrupted)));
    }

    #[test]
    fn a_run_that_ignores_the_interrupt_is_terminated() {
        let mut executor = ProcessExecutor::default();
        let flag = Arc::clone(&executor.interrupted);
        let setter = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            flag.store(true, Ordering::Relaxed);
        });
        let run = executor.run(&shell("exec sleep 1000"), 0);
        assert!(matches!(run, Err(RunError::Interrupted)));
        setter.join().unwrap();
    }

    #[test]
    fn a_signal_that_came_to_the_comparison_alone_is_passed_on() {
        let mut executor = ProcessExecutor::default();
        let dir = tempfile::tempdir().unwrap();
        let (ready, got) = (dir.path().join("ready"), dir.path().join("got"));
        let script = format!(
            "trap 'kill $!; echo HUP >{}; exit 3' HUP; sleep 1000 & echo >{}; wait",
            got.display(),
            ready.display()
        );
        let (flag, arrived) = (executor.interrupted.clone(), executor.arrived.clone());
        let setter = std::thread::spawn(move || {
            while !ready.exists() {
                std::thread::yield_now();
            }
            arrived.store(Signal::HUP.as_raw() as usize, Ordering::Relaxed);
            flag.store(true, Ordering::Release);
        });
        let run = executor.run(&shell(&script), 0);
        assert!(matches!(run, Err(RunError::Interrupted)));
        assert_eq!(fs::read_to_string(got).unwrap(), "HUP\n");
        setter.join().unwrap();
    }

    #[test]
    fn reports_are_read_and_never_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        let quoted = path.display();
        let mut arm = shell(&format!("echo '{{\"moves\": 3}}' > {quoted}"));
        arm.report = Some(path.clone());
        let mut executor = ProcessExecutor::default();
        assert_eq!(executor.run(&arm, 0).unwrap().report.unwrap()["moves"], 3);
        arm.argv = shell("true").argv;
        let error = executor.run(&arm, 1).unwrap_err();
        assert!(matches!(error, RunError::Report { .. }), "{error}");
        arm.argv = shell(&format!("echo '{{' > {quoted}")).argv;
        assert!(executor.run(&arm, 2).unwrap_err().to_string().contains("EOF while parsing"));
        arm.argv = shell("exit 4").argv;
        assert_eq!(executor.run(&arm, 3).unwrap().status, Status::Exited(4));
    }
}
