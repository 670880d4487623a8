//! The guardian: a small process that gives all threads their masks back when evenly is killed,
//! SIGKILL included, or stopped for longer than its patience (promise P5).
//!
//! Invariant: it acts only when evenly cannot: after evenly's end of the connection is closed
//! without a clean journal, or while the heartbeat in the journal stands still.
//!
//! evenly and the guardian hold the two ends of a socket pair. The kernel closes evenly's end
//! when the last of its threads is gone, so no mask is set any more when the guardian sees that;
//! and evenly sees the guardian's end close if the guardian is killed, and starts another. In
//! between the guardian
//! sleeps, and wakes at most once a second to look at one word of the shared journal.
//! The guardian holds the journal's descriptor, which comes over the connection, as does that of another
//! one where evenly has to make it anew ([`Guardian::keep_journal`]). So it undoes everything whatever
//! became of the journal's name, of its directory, or of the file system.
//!
//! That costs 0.002 % of a CPU (the ignored test `costs` measures it) and some 300 KiB of memory.
//!
//! It has its own session, hence no terminal and no part in the process group that a terminal or a
//! job scheduler signals, and it ignores every signal that can be ignored: only SIGKILL ends it
//! early. SIGTERM is ignored because a user who ends evenly with it, or a shutdown, sends it
//! to both, and the guardian must be the one to stay; it ends by itself right after evenly.

mod connection;

use crate::clock::timespec;
use crate::journal::{Journal, JournalError, LiveJournal, patience};
use crate::proc::Proc;
use crate::restore::{self, RestoreReport};
use connection::{Connection, Received};
use evenly_model::Nanos;
use rustix::event::Timespec;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The least time between two looks at the heartbeat.
const LEAST_NAP: Nanos = Nanos::from_millis(1_000);
/// How long evenly waits for the guardian to say that it watches. An exec on a busy machine takes
/// milliseconds.
const START_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Why there is no guardian.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    /// The process could not be started.
    #[error("guardian: cannot start {}: {source}", program.display())]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// Why the system did not start it.
        source: io::Error,
    },
    /// The process was started, but did not come to watch.
    #[error("guardian: {} ended, or said nothing for 10 s, before it watched: {source}", program.display())]
    NotReady {
        /// The program that was started.
        program: PathBuf,
        /// Why evenly stopped waiting for it.
        source: io::Error,
    },
    /// It could not set itself up, watch or be waited for.
    #[error("guardian: cannot {what}: {source}")]
    System {
        /// What could not be done, as it follows "cannot" in the message.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The journal cannot be read or removed.
    #[error("guardian: {0}")]
    Journal(#[from] JournalError),
    /// Something could not be given back; the journal is kept for `evenly restore`.
    #[error(
        "guardian: {count} threads or control groups could not be restored, the first is {first}; the journal is kept: run evenly restore"
    )]
    Unrestored {
        /// How many threads and control groups could not be restored.
        count: usize,
        /// The first of them.
        first: String,
    },
}

/// evenly's hold on its guardian. Dropping it without [`Guardian::finish`] makes the guardian act,
/// as the death of evenly does.
#[derive(Debug)]
pub struct Guardian {
    journal: Arc<Journal>,
    state: Mutex<Hold>,
}

#[derive(Debug)]
struct Hold {
    /// What to start, also where another one is needed.
    command: Command,
    /// None once the guardian has been let go, or where no other could be started.
    watching: Option<Watching>,
}

#[derive(Debug)]
struct Watching {
    connection: Connection,
    child: Child,
}

impl Watching {
    fn start(command: &mut Command, journal: &Journal) -> Result<Self, GuardianError> {
        let program = PathBuf::from(command.get_program());
        let start = |source| GuardianError::Start { program: program.clone(), source };
        let (ours, theirs) = Connection::pair().map_err(start)?;
        // Before it is started: should evenly die now, the guardian knows what to undo.
        journal.with_file(|file, path| ours.send_journal(file, path)).map_err(start)?;
        command.stdin(theirs).stdout(Stdio::null());
        let child = command.spawn();
        // The command holds the other end of the connection; it must be the guardian's alone.
        command.stdin(Stdio::null());
        let mut watching = Self { connection: ours, child: child.map_err(start)? };
        watching.connection.wait_until_ready(START_TIMEOUT).map_err(|source| {
            watching.abandon();
            GuardianError::NotReady { program, source }
        })?;
        Ok(watching)
    }

    fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The guardian says nothing after it is ready: what can be received is the end.
        !matches!(self.connection.wait(now), Ok(true))
    }

    /// Ends a guardian that is of no use, so that it is not left as a zombie.
    fn abandon(&mut self) {
        // Both fail only where it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Guardian {
    /// Starts `exe guardian --journal PATH --fd 0`, which has to call [`main`], and waits until it
    /// watches. With `stderr` it may write there; otherwise it is silent.
    ///
    /// # Errors
    /// [`GuardianError`]: balancing must then not start.
    pub fn start(exe: &Path, journal: &Arc<Journal>, stderr: bool) -> Result<Self, GuardianError> {
        let mut command = Command::new(exe);
        // A list of processes shows by its name whose guardian it is.
        let path = journal.path();
        command.args([OsStr::new("guardian"), OsStr::new("--journal"), path.as_os_str()]);
        // The connection travels as standard input: no other descriptor survives exec.
        command.args(["--fd", "0"]);
        if !stderr {
            command.stderr(Stdio::null());
        }
        Self::spawn(command, journal)
    }

    /// Starts a command that calls [`main`] with descriptor 0, and waits until it watches.
    ///
    /// # Errors
    /// As [`Guardian::start`].
    pub fn spawn(mut command: Command, journal: &Arc<Journal>) -> Result<Self, GuardianError> {
        let watching = Watching::start(&mut command, journal)?;
        let state = Mutex::new(Hold { command, watching: Some(watching) });
        Ok(Self { journal: journal.clone(), state })
    }

    fn lock(&self) -> MutexGuard<'_, Hold> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the guardian watches. Costs one system call; asked before every change it would be
    /// the dearest part of it, so now and then is enough.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lock().watching.as_ref().is_some_and(Watching::is_alive)
    }

    /// Starts another guardian where this one has been killed, and waits until it watches. Returns
    /// whether that was needed.
    ///
    /// # Errors
    /// As [`Guardian::start`]: no guardian watches then, and all masks must be given back.
    pub fn renew(&self) -> Result<bool, GuardianError> {
        let mut hold = self.lock();
        if hold.watching.as_ref().is_some_and(Watching::is_alive) {
            return Ok(false);
        }
        if let Some(mut dead) = hold.watching.take() {
            dead.abandon();
        }
        hold.watching = Some(Watching::start(&mut hold.command, &self.journal)?);
        Ok(true)
    }

    /// Makes the journal anew where its name no longer leads to it, and gives it to the guardian. A guardian
    /// that cannot take it is killed, so that it does not undo what an old journal says: to be followed by
    /// [`Guardian::renew`]. Returns where the journal is now, and None where nothing had to be done.
    ///
    /// # Errors
    /// As [`Journal::make_anew`]: all masks must be given back.
    pub fn keep_journal(&self) -> Result<Option<PathBuf>, JournalError> {
        let mut hold = self.lock();
        self.journal.make_anew(|file, path| {
            if let Some(mut watching) = hold.watching.take() {
                match watching.connection.send_journal(file, path) {
                    Ok(()) => hold.watching = Some(watching),
                    Err(_) => watching.abandon(),
                }
            }
        })
    }

    /// The guardian's process id, for lists of evenly's processes. None where none watches.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.lock().watching.as_ref().map(|w| w.child.id())
    }

    /// Lets the guardian go, after [`Journal::finish`], and waits for its end.
    ///
    /// # Errors
    /// [`GuardianError::System`] where it cannot be waited for.
    pub fn finish(&self) -> Result<(), GuardianError> {
        let Some(Watching { connection, mut child }) = self.lock().watching.take() else {
            return Ok(());
        };
        drop(connection);
        match child.wait() {
            // A wait for all children of evenly may have come first.
            Err(e) if e.raw_os_error() != Some(libc::ECHILD) => {
                Err(GuardianError::System { what: "wait for its end", source: e })
            }
            _ => Ok(()),
        }
    }
}

/// What the guardian came to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duty {
    /// evenly undid everything itself.
    Nothing,
    /// evenly was gone, and its threads were restored.
    Restored(RestoreReport),
}

/// The guardian's whole life: takes the connection `fd`, leaves session, terminal, directory and
/// descriptors of its parent, watches the journal that comes over the connection, and restores if it must.
///
/// To be called first thing in a process of its own: it closes every other descriptor above 2.
///
/// # Errors
/// [`GuardianError`] where the journal cannot be read or a mask could not be given back.
pub fn main(fd: RawFd) -> Result<Duty, GuardianError> {
    ignore_signals();
    let connection = settle(fd)?;
    let Received::Journal(file, path) = connection.receive().map_err(cannot_receive)? else {
        return Ok(Duty::Nothing);
    };
    let mut evenly = Evenly { live: LiveJournal::of(file, path)?, connection };
    evenly.connection.say_ready();
    watch(&mut evenly)?;
    if evenly.live.is_clean() {
        return Ok(Duty::Nothing);
    }
    let report = restore::finish(&evenly.live, &Proc::default())?;
    match report.failures() {
        None => Ok(Duty::Restored(report)),
        Some((count, first)) => Err(GuardianError::Unrestored { count, first }),
    }
}

fn cannot_receive(source: io::Error) -> GuardianError {
    GuardianError::System { what: "receive the journal", source }
}

/// Ignores what can be ignored, for the whole process.
fn ignore_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // Faults of its own must end it, and children are none.
        if [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGCHLD]
            .contains(&signal)
        {
            continue;
        }
        // SAFETY: ignoring a signal runs no code. It fails for SIGKILL, SIGSTOP and the two that
        // the C library keeps, and changes nothing then.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Leaves everything that was inherited, and gives the connection a place of its own.
fn settle(fd: RawFd) -> Result<Connection, GuardianError> {
    let cannot = |what| move |e: Errno| GuardianError::System { what, source: e.into() };
    // SAFETY: the descriptor is only borrowed for the duplication; where it is not open, that fails
    // with EBADF.
    let given = unsafe { BorrowedFd::borrow_raw(fd) };
    let connection =
        rustix::io::fcntl_dupfd_cloexec(given, 3).map_err(cannot("take its connection"))?;
    let kept = connection.as_raw_fd();
    close_all_but(kept);
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(cannot("open /dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(cannot("leave standard input"))?;
    rustix::stdio::dup2_stdout(&null).map_err(cannot("leave standard output"))?;
    drop(null);
    // It is no leader of a process group, for it is a child; should it be one all the same, it
    // keeps the session and everything else still holds.
    let _ = rustix::process::setsid();
    // So that no file system is kept busy.
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"evenly-guardian");
    // Not permitted to most users. It is small, so the kernel hardly picks it anyhow.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    Ok(Connection::from(connection))
}

/// Closes every descriptor above 2 but one.
fn close_all_but(kept: RawFd) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|&fd| fd > 2 && fd != kept) {
        // SAFETY: this process has just been started and owns no descriptor but the one that is
        // kept; the listing's own is closed already, and closing it again fails with EBADF.
        let _ = unsafe { libc::close(fd) };
    }
}

/// What a watch has to do with the world.
trait Watched {
    /// When evenly was last seen to work, on the clock of `now`.
    fn heartbeat(&self) -> Nanos;
    /// The longest balancing period that evenly uses, on which the guardian's patience depends.
    fn period(&self) -> Nanos;
    fn now(&self) -> Nanos;
    /// Gives the threads their masks back.
    fn release(&mut self);
    /// Whether a thread has a mask of evenly's.
    fn holds(&self) -> bool;
    /// Whether evenly ended within this time.
    fn wait(&mut self, time: Nanos) -> Result<bool, GuardianError>;
}

/// The evenly process that this guardian watches, by its connection and its journal.
struct Evenly {
    connection: Connection,
    live: LiveJournal,
}

impl Watched for Evenly {
    fn heartbeat(&self) -> Nanos {
        self.live.heartbeat()
    }

    fn period(&self) -> Nanos {
        self.live.period()
    }

    fn now(&self) -> Nanos {
        crate::clock::now()
    }

    fn release(&mut self) {
        // Dying of a journal that cannot be read now would leave no process to try again.
        if !self.live.is_clean() {
            let _ = restore::release_living(&self.live);
        }
    }

    fn holds(&self) -> bool {
        !self.live.is_clean() && restore::holds(&self.live)
    }

    fn wait(&mut self, time: Nanos) -> Result<bool, GuardianError> {
        let cannot =
            |e: Errno| GuardianError::System { what: "watch its connection", source: e.into() };
        if !self.connection.wait(timespec(time)).map_err(cannot)? {
            return Ok(false);
        }
        match self.connection.receive().map_err(cannot_receive)? {
            Received::Journal(file, path) => {
                let newer = LiveJournal::of(file, path)?;
                newer.follows(&self.live);
                self.live = newer;
                Ok(false)
            }
            Received::End => Ok(true),
        }
    }
}

/// Waits for the end of evenly; meanwhile releases its threads whenever its heartbeat stops, and again where it holds
/// some all the same: it can be continued, finish what it was about to set, and be stopped before its next heartbeat.
fn watch(evenly: &mut impl Watched) -> Result<(), GuardianError> {
    // The heartbeat for which the threads were released last.
    let mut released_at = None;
    loop {
        let beat = evenly.heartbeat();
        let patience = patience(evenly.period());
        let late_at = beat + patience;
        let now = evenly.now();
        let is_late = now >= late_at;
        if is_late && (released_at != Some(beat) || evenly.holds()) {
            evenly.release();
            released_at = Some(beat);
        }
        let nap = if is_late { patience } else { late_at - now };
        if evenly.wait(nap.max(LEAST_NAP))? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_twenty_periods_and_at_least_two_seconds() {
        assert_eq!(patience(Nanos::ZERO), Nanos::from_millis(2_000));
        assert_eq!(patience(Nanos::from_millis(20)), Nanos::from_millis(2_000));
        assert_eq!(patience(Nanos::from_millis(500)), Nanos::from_millis(10_000));
        assert_eq!(patience(Nanos(u64::MAX)), Nanos(u64::MAX));
    }

    /// An evenly that beats once a period, but not while it is stopped, and ends at last.
    struct Story {
        now: Nanos,
        period: Nanos,
        /// From when to when it is stopped.
        stops: Vec<(Nanos, Nanos)>,
        end: Nanos,
        released: Vec<Nanos>,
        /// When it sets a mask although it leaves no heartbeat.
        sets: Vec<Nanos>,
    }

    impl Watched for Story {
        fn heartbeat(&self) -> Nanos {
            let last = |t: Nanos| Nanos(t.0 / self.period.0 * self.period.0);
            match self.stops.iter().find(|(from, to)| (*from..*to).contains(&last(self.now))) {
                Some((from, _)) => last(*from - Nanos(1)),
                None => last(self.now),
            }
        }

        fn period(&self) -> Nanos {
            self.period
        }

        fn now(&self) -> Nanos {
            self.now
        }

        fn release(&mut self) {
            self.released.push(self.now);
        }

        fn holds(&self) -> bool {
            let last = self.released.last().copied().unwrap_or_default();
            self.sets.iter().any(|t| (last..self.now).contains(t))
        }

        fn wait(&mut self, time: Nanos) -> Result<bool, GuardianError> {
            self.now += time;
            Ok(self.now >= self.end)
        }
    }

    /// When threads are released, in milliseconds.
    fn releases(period_ms: u64, stops_s: &[(u64, u64)], end_s: u64) -> Vec<u64> {
        releases_with(period_ms, stops_s, end_s, &[])
    }

    fn releases_with(
        period_ms: u64,
        stops_s: &[(u64, u64)],
        end_s: u64,
        sets_s: &[u64],
    ) -> Vec<u64> {
        let seconds = |s: u64| Nanos::from_millis(1000 * s);
        let mut story = Story {
            now: Nanos::ZERO,
            period: Nanos::from_millis(period_ms),
            stops: stops_s.iter().map(|&(from, to)| (seconds(from), seconds(to))).collect(),
            end: seconds(end_s),
            released: Vec::new(),
            sets: sets_s.iter().map(|s| seconds(*s)).collect(),
        };
        watch(&mut story).unwrap();
        story.released.iter().map(|t| t.0 / 1_000_000).collect()
    }

    /// However long the stop is, and whatever the guardian was doing when it began: once, within
    /// patience and a nap of its beginning, and never while evenly works.
    #[test]
    fn a_stop_of_any_length_releases_once() {
        assert!(releases(20, &[], 100_000).is_empty());
        for (from, to) in [(5, 10), (5, 65), (7, 7 + 86_400)] {
            for period in [10, 20, 37, 100] {
                let released = releases(period, &[(from, to)], to + 100);
                let times = 1000 * from..=1000 * from + 2_000 + 1_000;
                assert!(
                    matches!(released[..], [t] if times.contains(&t)),
                    "stopped {from} to {to} s, period {period} ms: {released:?}"
                );
            }
        }
    }

    /// It was stopped, continued for so short a time that it set a mask and left no heartbeat, and is stopped again.
    #[test]
    fn a_mask_that_is_set_after_the_release_is_given_back_as_well() {
        let released = releases_with(20, &[(5, 65)], 100, &[20, 50]);
        assert!(
            matches!(released[..], [5_000..=8_000, 20_000..=23_000, 50_000..=53_000]),
            "{released:?}"
        );
    }

    #[test]
    fn each_stop_counts_and_short_ones_do_not() {
        let released = releases(20, &[(10, 70), (100, 160), (200, 201)], 300);
        assert_eq!(released.len(), 2, "{released:?}");
        // Twenty periods of half a second are ten seconds.
        assert!(releases(500, &[(10, 19)], 300).is_empty());
        assert_eq!(releases(500, &[(10, 70)], 300).len(), 1);
    }
}
