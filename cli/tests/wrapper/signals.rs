//! Signals that are sent to evenly and meant for the program: whoever sends them sees what he would see
//! without evenly. One test for each command, probe and signal.
//!
//! `evenly compare` is not a wrapper: signals end the comparison, which is reported and ends by the signal.

use crate::mpi::MPIS;
use crate::profile::cache;
use crate::support::{Child, Tool, json, text, wait_until, workload};
use evenly_linux::affinity;
use evenly_linux::journal::StateDir;
use evenly_linux::proc::Proc;
use evenly_model::{Pid, Tid};
use rustix::process::{Pid as Id, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;

/// What runs the program.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// `evenly run`, with `--probe` on or off.
    Run(&'static str),
    /// `evenly run` that balances three threads restlessly.
    Balancing,
    /// `evenly doctor`, with `--probe` on or off.
    Doctor(&'static str),
    /// `evenly compare`, with these two policies.
    Compare(&'static str),
    /// `evenly map --profile`, with the probe for this MPI.
    Map(&'static str),
}

impl By {
    fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::Run(probe) => vec!["run", "--probe", probe],
            Self::Balancing => {
                let options =
                    "run --policy juggle --period 10ms --budget 50 --no-guard --threads 3";
                options.split_whitespace().collect()
            }
            Self::Doctor(probe) => vec!["doctor", "--probe", probe],
            Self::Compare(policies) => vec!["compare", "--policies", policies, "--runs", "3"],
            Self::Map(mpicc) => vec!["map", "--profile", "--mpicc", mpicc],
        }
    }

    fn compares(self) -> bool {
        matches!(self, Self::Compare(_))
    }

    /// Whether what it needs is installed.
    fn is_here(self) -> bool {
        let Self::Map(mpicc) = self else { return true };
        let here = crate::mpi::here().iter().any(|mpi| mpi.tool("mpicc") == mpicc);
        assert!(MPIS.iter().any(|mpi| mpi.tool("mpicc") == mpicc));
        here
    }
}

/// A program under evenly, both in a process group of their own.
struct Session {
    tool: Tool,
    evenly: Child,
    program: Pid,
}

impl Session {
    /// Starts a script and waits until the program is ready for signals, which it says by its id.
    fn start(by: By, script: &str) -> Self {
        let tool = Tool::new();
        let log = tool.path("log");
        let words = tool.path("stderr");
        // A test in the background of a script has signals ignored, which its children would inherit.
        let mut c = tool.by("env");
        c.args(["--default-signal=HUP,INT,TERM,TSTP,CONT", tool.exe()]).args(by.arguments());
        if by.compares() {
            c.arg("--json").arg(tool.path("json"));
        }
        c.args(["--", "sh", "-c", script, "sh"]).arg(&log);
        c.env("XDG_CACHE_HOME", cache()).env("TMPDIR", tool.dir.path());
        c.stdout(File::create(tool.path("stdout")).unwrap());
        c.stderr(File::create(&words).unwrap()).process_group(0);
        let mut evenly = Child::spawn(&mut c);
        let mut ready = None;
        wait_until("the program is ready", || {
            let ended = evenly.0.try_wait().unwrap();
            assert_eq!(ended, None, "{}", fs::read_to_string(&words).unwrap());
            let lines = fs::read_to_string(&log).unwrap_or_default();
            ready = lines.strip_suffix('\n').and_then(|line| line.parse().ok());
            ready.is_some()
        });
        Self { tool, evenly, program: Pid(ready.unwrap()) }
    }

    fn send(&self, signal: Signal) {
        kill_process(Id::from_child(&self.evenly.0), signal).unwrap();
    }

    /// As a terminal sends it.
    fn send_to_all(&self, signal: Signal) {
        kill_process_group(Id::from_child(&self.evenly.0), signal).unwrap();
    }

    fn all_are_stopped(&self) -> bool {
        let is = |pid: Pid| Proc::default().process_stat(pid).is_some_and(|s| s.state == b'T');
        is(Pid(self.evenly.0.id().cast_signed())) && is(self.program)
    }

    fn none_is_stopped(&self) -> bool {
        let is = |pid: Pid| Proc::default().process_stat(pid).is_some_and(|s| s.state != b'T');
        is(Pid(self.evenly.0.id().cast_signed())) && is(self.program)
    }

    /// What evenly ended with. By then the program is gone, and nothing is left to be undone.
    fn end(&mut self) -> (ExitStatus, String) {
        let mut ended = None;
        wait_until("evenly ends", || {
            ended = self.evenly.0.try_wait().unwrap();
            ended.is_some()
        });
        let words = text(&fs::read(self.tool.path("stderr")).unwrap());
        assert_eq!(Proc::default().process_stat(self.program), None, "it was orphaned: {words}");
        let state = StateDir::at(&self.tool.path("state")).unwrap();
        assert!(state.journals().unwrap().is_empty(), "{words}");
        (ended.unwrap(), words)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.tool.path("log")).unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A test that failed may leave the program and what it has started.
        if std::thread::panicking() {
            let _ = kill_process_group(Id::from_child(&self.evenly.0), Signal::KILL);
        }
    }
}

/// Does nothing about signals.
const PLAIN: &str = "echo $$ >>\"$1\"; exec sleep 1000";
/// Notes each and ends with a status of its own.
const CATCHING: &str =
    "for s in HUP INT TERM; do trap \"kill \\$!; echo $s >>'$1'; exit 7\" $s; done
    sleep 1000 & echo $$ >>\"$1\"; while :; do wait; done";

fn ends_as_the_program_ends(by: By, signal: Signal, name: &str) {
    if !by.is_here() {
        return;
    }
    let mut s = Session::start(by, CATCHING);
    s.send(signal);
    let (status, words) = s.end();
    assert_eq!(s.log(), format!("{}\n{name}\n", s.program), "{words}");
    if by.compares() {
        assert_eq!(status.signal(), Some(signal.as_raw()), "{words}");
        assert!(words.contains("evenly: interrupted; the results are those of the runs so far"));
        assert_eq!(json(&s.tool.path("json"))["incomplete"], true);
    } else {
        assert_eq!(status.code(), Some(7), "{words}");
    }
    let mut s = Session::start(by, PLAIN);
    s.send(signal);
    let (status, words) = s.end();
    assert_eq!(status.signal(), Some(signal.as_raw()), "{words}");
}

fn stops_and_continues_with_the_program(by: By) {
    if !by.is_here() {
        return;
    }
    let mut s = Session::start(by, PLAIN);
    // Sent to a comparison alone it stops that alone: the run is not told by anybody.
    let send = if by.compares() { Session::send_to_all } else { Session::send };
    for _ in 0..2 {
        send(&s, Signal::TSTP);
        wait_until("all are stopped", || s.all_are_stopped());
        send(&s, Signal::CONT);
        wait_until("all have been continued", || s.none_is_stopped());
    }
    s.send(Signal::TERM);
    let (status, words) = s.end();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{words}");
}

/// What evenly learns of the program's stop after it has been continued itself is no reason to stop again.
#[test]
fn a_program_that_stopped_while_evenly_was_stopped_is_continued_with_it() {
    let mut s = Session::start(By::Run("off"), PLAIN);
    let is_stopped = |pid| Proc::default().process_stat(pid).is_some_and(|p| p.state == b'T');
    s.send(Signal::STOP);
    wait_until("evenly is stopped", || is_stopped(Pid(s.evenly.0.id().cast_signed())));
    kill_process(Id::from_raw(s.program.0).unwrap(), Signal::TSTP).unwrap();
    wait_until("the program is stopped", || is_stopped(s.program));
    s.send(Signal::CONT);
    wait_until("all have been continued", || s.none_is_stopped());
    s.send(Signal::TERM);
    assert_eq!(s.end().0.signal(), Some(Signal::TERM.as_raw()));
}

/// What the program has started lives on, with the masks that it had.
fn masks_are_undone(signal: Signal) {
    let whole = affinity::get(Tid(0)).unwrap();
    if whole.len() < 2 {
        return evenly_testing::skip("two-cpus", "fewer than two CPUs");
    }
    let churn = workload("churn");
    let computes =
        format!("{churn} --workers 3 --duration-s 300 >/dev/null & echo $! >\"$1.churn\"");
    let mut s = Session::start(By::Balancing, &format!("{computes}; {CATCHING}"));
    let churn: i32 = fs::read_to_string(s.tool.path("log.churn")).unwrap().trim().parse().unwrap();
    let narrowed = || {
        let mask = |tid: &Tid| affinity::get(*tid).unwrap();
        let masks = Proc::default().threads(Pid(churn));
        masks.iter().filter(|tid| mask(tid) != whole).count()
    };
    wait_until("its threads are pinned", || narrowed() == 3);
    s.send(signal);
    let (status, words) = s.end();
    let left = narrowed();
    kill_process(Id::from_raw(churn).unwrap(), Signal::KILL).unwrap();
    assert_eq!((status.code(), left), (Some(7), 0), "{words}");
}

#[test]
fn term_undoes_masks() {
    masks_are_undone(Signal::TERM);
}

#[test]
fn int_undoes_masks() {
    masks_are_undone(Signal::INT);
}

#[test]
fn hup_undoes_masks() {
    masks_are_undone(Signal::HUP);
}

macro_rules! table {
    ($($(#[$second:meta])? $command:ident: $by:expr;)*) => {$(
        mod $command {
            use super::{By, Signal, ends_as_the_program_ends, stops_and_continues_with_the_program};

            #[test]
            $(#[$second])?
            fn term() {
                ends_as_the_program_ends($by, Signal::TERM, "TERM");
            }

            #[test]
            $(#[$second])?
            fn int() {
                ends_as_the_program_ends($by, Signal::INT, "INT");
            }

            #[test]
            $(#[$second])?
            fn hup() {
                ends_as_the_program_ends($by, Signal::HUP, "HUP");
            }

            #[test]
            $(#[$second])?
            fn tstp() {
                stops_and_continues_with_the_program($by);
            }
        }
    )*};
}

table! {
    run: By::Run("off");
    run_with_probe: By::Run("on");
    doctor: By::Doctor("off");
    doctor_with_probe: By::Doctor("on");
    compare_kernel: By::Compare("kernel,kernel:OMP_WAIT_POLICY=passive");
    compare: By::Compare("observe:--probe=off,hybrid:--probe=off");
    compare_with_probe: By::Compare("observe:--probe=on,hybrid:--probe=on");
    #[ignore = "needs MPI: ./dev test --all"]
    map_openmpi: By::Map("mpicc.openmpi");
    #[ignore = "needs MPI: ./dev test --all"]
    map_mpich: By::Map("mpicc.mpich");
}
