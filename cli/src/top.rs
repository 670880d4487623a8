//! `evenly top`: an observing cycle that feeds the live view.
//!
//! Invariant: the program that is watched is not changed, and neither is what other commands know
//! of it: the journal of the observing cycle is private to it.

use crate::flags::TopArgs;
use crate::probe::OpenWaitReports;
use crate::{End, output};
use anyhow::Context;
use evenly_engine::Observer;
use evenly_linux::journal::{Journal, Other, StateDir, others};
use evenly_linux::live::{Control, Live, LiveError, LiveOptions, LiveReport, check_target};
use evenly_linux::proc::Proc;
use evenly_linux::supervise::Outcome;
use evenly_model::Pid;
use evenly_top::{
    Exit, Feed, Header, OtherEvenly, OtherState, World, has_terminal, run_json, run_plain,
    run_terminal,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The part of one CPU that watching may use: a user who looks at it accepts this cost.
const BUDGET: f64 = 0.02;

pub(crate) fn top(args: &TopArgs) -> anyhow::Result<End> {
    let proc = Proc::default();
    let known = StateDir::look().and_then(|dir| others(&dir, &proc)).unwrap_or_default();
    let pid = match args.pid {
        Some(pid) => Pid(pid),
        None => only_program(&known, &proc)?,
    };
    check_target(&proc, pid, &known)?;
    let header = Header {
        pid,
        command: command(&proc, pid),
        policy: evenly_policies::watching().name.to_owned(),
    };
    let beside = Beside::of(pid);
    anyhow::ensure!(proc.process_stat(pid).is_some(), "there is no process {pid}");
    let json = args.json.as_deref().map(|path| output::expand(path, pid));
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let dir = tempfile::tempdir().context("cannot make a directory for the journal")?;
    let journal = Arc::new(Journal::create(&StateDir::at(dir.path())?, None)?);
    let control = Control::default();
    let mut feeds = vec![Feed::new()];
    feeds.extend(json.as_ref().map(|_| Feed::new()));
    let watching = watch(args, pid, journal.clone(), feeds.clone(), control.clone())?;
    let ended = || watching.is_finished();
    let balancer = || beside.look();
    let world = World { ended: &ended, balancer: &balancer };
    let exit = match (json.as_deref(), feeds.as_slice()) {
        (Some(path), [feed, ..]) if output::is_stdout(path) => {
            let mut out = io::stdout().lock();
            run_json(feed, &header, world, &mut out).context("cannot show the program")
        }
        (Some(path), [shown, written]) => {
            also(path, written, &header, world, || show(args, shown, &header, world))
        }
        (_, feeds) => show(args, &feeds[0], &header, world),
    };
    control.end();
    let watched = watching.join();
    journal.finish()?;
    let exit = exit?;
    if let Ok(result) = watched {
        result?;
    }
    Ok(match exit {
        Exit::Quit | Exit::Ended | Exit::Closed => End::Status(0),
        Exit::Signal(signal) => End::Like(Outcome::Signaled(signal)),
    })
}

/// On the screen, or as lines.
fn show(args: &TopArgs, feed: &Feed, header: &Header, world: World<'_>) -> anyhow::Result<Exit> {
    if args.plain || !has_terminal() {
        run_plain(feed, header, world, &mut output::stdout())
    } else {
        run_terminal(feed, header, world)
    }
    .context("cannot show the program")
}

/// Writes JSON to a file for as long as the program is shown.
fn also(
    path: &Path,
    feed: &Feed,
    header: &Header,
    world: World<'_>,
    show: impl FnOnce() -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    // Opened here: a file that cannot be written is reported before the screen is taken.
    let file = std::fs::File::create(path).with_context(|| output::cannot_write(path))?;
    let done = AtomicBool::new(false);
    #[expect(clippy::disallowed_methods, reason = "no program is started here")]
    thread::scope(|scope| {
        let writer = thread::Builder::new()
            .name(String::from("json"))
            .spawn_scoped(scope, || {
                // Nothing else is read because of the flag, so no ordering is needed.
                let ended = || done.load(Ordering::Relaxed) || (world.ended)();
                let world = World { ended: &ended, ..world };
                run_json(feed, header, world, &mut io::BufWriter::new(file))
            })
            .context("cannot start the thread that writes JSON")?;
        let exit = show();
        done.store(true, Ordering::Relaxed);
        if let Ok(written) = writer.join() {
            written.with_context(|| output::cannot_write(path))?;
        }
        exit
    })
}

/// The evenly that balances the program beside this view.
struct Beside {
    dir: Option<StateDir>,
    proc: Proc,
    program: Pid,
}

impl Beside {
    fn of(program: Pid) -> Self {
        let dir = StateDir::look().ok();
        Self { dir, proc: Proc::default(), program }
    }

    /// What balances the program now.
    fn look(&self) -> Option<OtherEvenly> {
        let known = others(self.dir.as_ref()?, &self.proc).ok()?;
        let other = known.iter().find(|o| o.program.is_some_and(|p| p.pid == self.program))?;
        let stopped = other.stands_still;
        let state = if stopped { OtherState::Stopped } else { OtherState::Working };
        Some(OtherEvenly { pid: other.evenly.pid, state, given: other.demand.given })
    }
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
    feeds: Vec<Feed>,
    control: Control,
) -> anyhow::Result<Watching> {
    let policy = evenly_policies::watching();
    let whole = crate::program::allowed(Some(pid)).unwrap_or_default();
    let options = LiveOptions {
        // Where another evenly has loaded the probe into it.
        wait_reports: crate::probe::wait_reports_of_running(pid).map(|_| {
            Box::new(move || crate::probe::wait_reports_of_running(pid)) as OpenWaitReports
        }),
        ..LiveOptions::plain(policy, args.period, BUDGET, whole)
    };
    let live = Live::new(options, pid, journal);
    #[expect(clippy::disallowed_methods, reason = "no program is started here")]
    thread::Builder::new()
        .name(String::from("observer-0"))
        .spawn(move || {
            live.run(&control, |_| {
                feeds.iter().map(|f| Box::new(f.clone()) as Box<dyn Observer>).collect()
            })
        })
        .context("cannot start the observing thread")
}
