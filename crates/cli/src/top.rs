//! `evenly top`: an observing cycle that feeds the live view.
//!
//! Invariant: the program that is watched is not changed, and neither is what other commands know
//! of it: the journal of the observing cycle is private to it.

use crate::End;
use crate::flags::TopArgs;
use anyhow::Context;
use evenly_engine::{GuardOptions, Observer, Period};
use evenly_linux::journal::{Journal, Other, StateDir, others};
use evenly_linux::live::{
    Control, Live, LiveError, LiveOptions, LiveReport, SourceKind, check_target,
};
use evenly_linux::proc::Proc;
use evenly_linux::supervise::Outcome;
use evenly_model::Pid;
use evenly_top::{Exit, Feed, Header, has_terminal, run_plain, run_terminal};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The part of one CPU that watching may use: somebody looks at it, and may well pay for that.
const BUDGET: f64 = 0.02;

pub(crate) fn top(args: &TopArgs) -> anyhow::Result<End> {
    let proc = Proc::default();
    let known = StateDir::find().and_then(|dir| others(&dir, &proc)).unwrap_or_default();
    let pid = match args.pid {
        Some(pid) => Pid(pid),
        None => only_program(&known, &proc)?,
    };
    check_target(&proc, pid, &known)?;
    let header = Header {
        pid,
        command: command(&proc, pid),
        policy: String::from("observe"),
        balanced_by: known
            .iter()
            .find(|o| o.program.is_some_and(|p| p.pid == pid))
            .map(|o| o.evenly.pid),
    };
    anyhow::ensure!(proc.process_stat(pid).is_some(), "there is no process {pid}");
    let dir = tempfile::tempdir().context("cannot make a directory for the journal")?;
    let journal = Arc::new(Journal::create(&StateDir::at(dir.path())?, None)?);
    let (feed, control) = (Feed::new(), Control::default());
    let watching = watch(args, pid, journal.clone(), feed.clone(), control.clone())?;
    let ended = || watching.is_finished();
    let exit = if args.plain || !has_terminal() {
        run_plain(&feed, &header, &ended, &mut io::stdout().lock())
    } else {
        run_terminal(&feed, &header, &ended)
    };
    control.end();
    let watched = watching.join();
    journal.finish()?;
    let exit = exit.context("cannot show the program")?;
    if let Ok(result) = watched {
        result?;
    }
    Ok(match exit {
        Exit::Quit | Exit::Ended | Exit::Closed => End::Status(0),
        Exit::Signal(signal) => End::Like(Outcome::Signaled(signal)),
    })
}

/// The program that another evenly balances.
fn only_program(known: &[Other], proc: &Proc) -> anyhow::Result<Pid> {
    let programs: Vec<Pid> = known.iter().filter_map(|o| Some(o.program?.pid)).collect();
    match programs.as_slice() {
        [] => anyhow::bail!(
            "no other evenly balances a program of yours; say which to show: evenly top PID"
        ),
        [one] => Ok(*one),
        several => {
            let list: Vec<String> =
                several.iter().map(|&p| format!("{p} ({})", command(proc, p))).collect();
            anyhow::bail!(
                "{} programs are being balanced, say which to show, for example evenly top {}: {}",
                several.len(),
                several[0],
                list.join(", ")
            )
        }
    }
}

/// The command line, or the name where there is none.
fn command(proc: &Proc, pid: Pid) -> String {
    let argv = proc.command_line(pid);
    let words: Vec<String> = argv.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if words.iter().all(String::is_empty) {
        return proc.process_stat(pid).map(|s| s.name()).unwrap_or_default();
    }
    words.join(" ")
}

type Watching = JoinHandle<Result<LiveReport, LiveError>>;

fn watch(
    args: &TopArgs,
    pid: Pid,
    journal: Arc<Journal>,
    feed: Feed,
    control: Control,
) -> anyhow::Result<Watching> {
    let policy = evenly_policy::by_name("observe").context("there is no policy that observes")?;
    let options = LiveOptions {
        policy,
        period: Period::Fixed(args.period),
        budget: BUDGET,
        cpus: None,
        domain: None,
        expected: None,
        eligible: None,
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
        source: SourceKind::Auto,
        seed: 1,
    };
    let live = Live::new(options, pid, journal);
    thread::Builder::new()
        .name(String::from("observer-0"))
        .spawn(move || live.run(&control, |_| vec![Box::new(feed.clone()) as Box<dyn Observer>]))
        .context("cannot start the observing thread")
}
