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
//! # Which process gets which signal
//!
//! The program stays in evenly's process group, so that the kernel sends it the terminal's
//! signals (Ctrl-C, Ctrl-\\, Ctrl-Z, resizing, hangup) directly. Evenly gets them too and drops
//! them; they are known by `si_code > 0`. One exception: on a hangup the kernel signals only the
//! session leader, so that a SIGHUP is passed on where evenly is the leader.
//!
//! A signal that a process sent is passed on, as the program is what the sender means: by
//! sigqueue(3) with its value and sender where it came by sigqueue(3), by kill(2) otherwise. A
//! receiver cannot distinguish kill(pid) from kill(-pgid), and in the second case the program has the
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
//! runs on, as the SIGCONT would come to the program alone and would not wake evenly. When
//! evenly gets SIGCONT it continues the program if that is still stopped; a running program is
//! not sent a second SIGCONT, since after `fg` and `bg` it has had its own.
//!
//! # Known gaps
//!
//! A parent-death signal that evenly was started with is not handed to the program. Where evenly
//! is a session or process group leader the program is not one.

mod original;
mod signals;
mod spawn;

pub use original::was_ignored;
pub use signals::Signals;
pub use spawn::{SpawnError, SpawnOptions};

use crate::proc::Proc;
use evenly_engine::RunState;
use evenly_model::Pid;
use original::{Original, bit, change_mask, disposition, kill, own_pid, pending, set_disposition};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{self as rp, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus};
use signals::{Forward, Origin, Received, forward, queue};
use spawn::Program;
use std::ffi::c_int;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// How the supervision of a program ended; evenly itself ends accordingly.
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
    /// A system call that attaching needs failed.
    #[error("cannot attach to {pid}: {what}: {source}")]
    System {
        /// The process that was to be supervised.
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
    /// A stop signal was passed on since the last SIGCONT, and the program has not been seen stopped.
    stop_on_its_way: bool,
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
        Self { signals, target, wake, stopped: None, own_stop: false, stop_on_its_way: false }
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
            Target::Child(_) => self.reap(Follow::Stops, hooks),
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
                // The program may have been continued along with us. If it has stopped, it is continued
                // below: to follow it would leave both stopped, as no other SIGCONT comes.
                let outcome = self.reap(Follow::Nothing, hooks);
                // Nor may a stop that was passed on too late outlast the SIGCONT, if that has reached
                // the program first.
                let stops = std::mem::take(&mut self.stop_on_its_way) || self.stopped.is_some();
                if outcome.is_none() && stops {
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
        let how = forward(r, origin);
        match how {
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
            self.stop_on_its_way = how != Forward::No;
            // It may run again by now.
            let outcome = self.reap(Follow::Stops, hooks);
            if let Some(signal) = self.stopped.filter(|_| self.own_stop) {
                self.follow(signal);
            }
            return outcome;
        }
        None
    }

    /// Takes note of all changes of the program's state.
    fn reap(&mut self, follow: Follow, hooks: &mut dyn Hooks) -> Option<Outcome> {
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
                // Where another signal stopped it, the one on its way will be discarded by SIGCONT.
                self.stop_on_its_way = false;
                if self.stopped.replace(signal).is_none() {
                    hooks.on_stop();
                }
                if follow == Follow::Stops {
                    self.follow(signal);
                }
            } else if status.continued() && self.stopped.take().is_some() {
                hooks.on_continue();
            }
        }
    }

    /// Stops evenly as the program was stopped, if a shell will continue it.
    fn follow(&mut self, signal: c_int) {
        let whole_group = std::mem::take(&mut self.own_stop);
        if whole_group || has_job_control_parent() {
            let pid = self.pid();
            stop_self(signal, || is_stopped(pid));
        }
    }
}

/// Whether evenly stops where the program has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    Stops,
    Nothing,
}

fn signal_attached(r: &Received, hooks: &mut dyn Hooks) -> Option<Outcome> {
    if Original::get().ignored & bit(r.signal) != 0 || r.sender == own_pid() {
        return None;
    }
    match r.signal {
        libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM => Some(Outcome::Detached),
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            hooks.on_stop();
            stop_self(r.signal, || true);
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
///
/// A stop discards a SIGCONT that waits, and evenly would sleep for ever. So it does not stop where
/// one waits, nor where one came to the whole group a moment later: the program, the younger of both,
/// got it first and is no longer `stopped`.
fn stop_self(signal: c_int, stopped: impl Fn() -> bool) {
    if pending() & bit(libc::SIGCONT) != 0 {
        return;
    }
    if signal == libc::SIGSTOP {
        if stopped() {
            let _ = kill(own_pid(), signal);
        }
        return;
    }
    let former = disposition(signal);
    set_disposition(signal, libc::SIG_DFL);
    // Sent while blocked, so that it merges with one that waits, and is discarded by a SIGCONT from
    // now on; delivered by the unblocking.
    let _ = kill(own_pid(), signal);
    if stopped() {
        change_mask(libc::SIG_UNBLOCK, bit(signal));
        change_mask(libc::SIG_BLOCK, bit(signal));
    } else {
        // Discards it, too.
        set_disposition(signal, libc::SIG_IGN);
    }
    let ignored = former == Some(libc::SIG_IGN);
    set_disposition(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
}

fn is_stopped(pid: Pid) -> bool {
    Proc::default().process_stat(pid).is_some_and(|s| s.run_state() == RunState::Stopped)
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
}
