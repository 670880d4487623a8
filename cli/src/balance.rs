//! `evenly run` and `evenly attach`: the wiring of program, supervisor, guardian, balancer and
//! report.
//!
//! Invariant (promises P8 and P9): from the moment when the program runs, nothing that goes wrong
//! here stops it. It is said in one line, and the program goes on unbalanced.

mod facts;
mod filter;
mod log;
mod options;

pub(crate) use options::check_options;

use crate::flags::{
    AttachArgs, BalanceArgs, CooperateArg, ProbeArg, RunArgs, policy_without_probe,
};
use crate::handover;
use crate::messages::Counting;
use crate::output::expand;
use crate::probe::{OpenWaitReports, Prepared, Watch};
use crate::program::{Wait, check_command, host, unix_ms};
use crate::restore::{leftovers, shares};
use crate::{End, tell};
use anyhow::Context;
use evenly_engine::{GuardOptions, Observer};
use evenly_errors::said;
use evenly_linux::beside::Beside;
use evenly_linux::clock::now;
use evenly_linux::guardian::Guardian;
use evenly_linux::journal::{Journal, Process, StateDir, others};
use evenly_linux::live::{
    Control, Live, LiveOptions, LiveReport, balanced_above, check_target_is_free,
};
use evenly_linux::machine::RankCounts;
use evenly_linux::mapping::Mapping;
use evenly_linux::proc::Proc;
use evenly_linux::restore::{Fate, restore_all};
use evenly_linux::supervise::{Outcome, Signals, SpawnOptions, Supervisor, Threads};
use evenly_linux::tuning::{Tuned, Tuning};
use evenly_model::hpc::{Heuristic, Levels, Parameters};
use evenly_model::{CpuSet, DomainId, Knowledge, Pid, printable};
use evenly_phase::Openings;
use evenly_probe::binding::unbound;
use evenly_probe::load::Unseen;
use evenly_probe::loops::{self, Told};
use evenly_probe::waiting::Cooperation;
use evenly_trace::{Header, Recorder, RecorderOptions};
use facts::Facts;
use filter::{Filter, Names};
use log::Log;
use options::{
    check_cpus, check_outputs, check_probe, check_shares, choose_policy, knowledge, levels,
    mapping, may_change, may_use, messages_by, needs_probe, parameters, tells_messages,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

pub(crate) fn run(mut args: RunArgs) -> anyhow::Result<End> {
    check_command("run", &args.program.command)?;
    choose_policy(&mut args);
    check_probe(&args)?;
    // What it starts with: no need to look over all processes for that.
    let whole = may_use(&args.balance, None)?;
    let mut notes = check_cpus(&args.balance, &whole)?;
    let mapping = mapping(&args.balance, &whole, &mut notes)?;
    let knowledge = knowledge(&args.balance, &mut notes)?;
    let parameters = parameters(&args.balance)?;
    check_shares(&args.balance, &mut notes)?;
    check_outputs(&args.balance)?;
    let filter = Filter::new(&args.balance)?;
    notes.extend(leftovers(args.balance.quiet));
    // As under taskset: from its first instruction the program sees, and is held to, these.
    let cpus = args.balance.cpus.as_ref().map(|asked| whole.and(asked));
    let whole = cpus.clone().unwrap_or(whole);
    let Probes { prepared, counting, counts, hands, loops, mut env } =
        probes(&args, &whole, &mut notes);
    env.extend(unbound_ranks(&args, &mut notes));
    notes.extend(messages_by(&args.balance, counts.is_some()));
    let spawn = SpawnOptions { cpus, env };
    let began = now();
    let signals = Signals::block().context("cannot receive signals")?;
    let supervisor = match signals.spawn(&args.program.command, &spawn) {
        Ok(supervisor) => supervisor,
        Err(e) => {
            tell(&format!("evenly: {e}"));
            return Ok(End::Like(e.outcome()));
        }
    };
    // From here on the program runs: failures are reported, not returned.
    let watch = prepared.map(|prepared| prepared.start(supervisor.threads(), &mut notes));
    let hands = hands.map(|hands| hands.start(supervisor.threads(), &mut notes));
    let command = args.program.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut facts = Facts::new(&args.balance, supervisor.pid(), command, notes, began);
    (facts.watch, facts.counting, facts.hands, facts.loops) = (watch, counting, hands, loops);
    // Where nothing could be loaded.
    let may_beat = may_beat(&args.balance, args.cooperate);
    let beats = (facts.hands.is_none() && may_beat).then(|| whole.clone());
    let together = (args.cooperate == CooperateArg::Auto && !args.balance.policy().only_watches())
        .then(|| whole.clone());
    facts.watch_for_doctor(&args.balance, &supervisor);
    let wait_reports = facts.watch.as_ref().map(Watch::wait_reports);
    let openings = facts.watch.as_ref().and_then(Watch::openings);
    let said = Said {
        args: args.balance,
        filter,
        whole,
        mapping,
        knowledge,
        parameters,
        wait_reports,
        openings,
        counts,
        beats: may_beat,
    };
    let balancing = Balancing::start(said, facts, beats, &supervisor);
    if let (Ok(balancing), Some(cpus)) = (&balancing, together) {
        balancing.cooperate_with_others(cpus);
    }
    let outcome = supervisor.run(&mut Wait);
    finish(balancing, outcome);
    Ok(End::Like(outcome))
}

pub(crate) fn attach(mut args: AttachArgs) -> anyhow::Result<End> {
    let pid = Pid(args.pid);
    let filter = Filter::new(&args.balance)?;
    let parameters = parameters(&args.balance)?;
    let mut unbalanced = Vec::new();
    check_shares(&args.balance, &mut unbalanced)?;
    check_outputs(&args.balance)?;
    let proc = Proc::default();
    let known = StateDir::look().and_then(|dir| others(&dir, &proc)).unwrap_or_default();
    check_target_is_free(&proc, pid, &known)?;
    // From here on a signal ends evenly as it should, whatever it is just doing.
    let signals = Signals::block().context("cannot receive signals")?;
    undo_leftovers(&args.balance);
    // What could not be undone, or was not to be.
    unbalanced.extend(leftovers(args.balance.quiet));
    let command: Vec<String> =
        proc.command_line(pid).iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let supervisor = Supervisor::for_attach(signals, pid)?;
    if !args.balance.quiet && stderr().is_terminal() {
        let name = proc.process_stat(pid).map(|s| s.name()).unwrap_or_default();
        let name = printable(&name);
        tell(&format!(
            "evenly: attached to process {pid} ({name}); Ctrl-C ends balancing, not the program"
        ));
    }
    // All of its threads are looked at, once for all that has to know.
    let whole = may_use(&args.balance, Some(pid))?;
    let mut notes = check_cpus(&args.balance, &whole)?;
    notes.append(&mut unbalanced);
    if args.balance.policy().moves_within_phases() {
        if let Some(asked) = args.balance.asked_policy {
            notes.push(format!(
                "--policy {}: as hybrid, because only evenly run loads the probe",
                asked.name
            ));
        }
        args.balance.asked_policy = Some(policy_without_probe());
    }
    let mapping = mapping(&args.balance, &whole, &mut notes)?;
    let knowledge = knowledge(&args.balance, &mut notes)?;
    notes.extend(messages_by(&args.balance, false));
    may_change(&args.balance, pid)?;
    if args.balance.policy().gives_weights() {
        notes.push(format!(
            "{}: the threads are only spread evenly, because without the probe it is unknown when they \
             wait; start the program with evenly run",
            args.balance.policy().name
        ));
    }
    let mut facts = Facts::new(&args.balance, pid, command, notes, now());
    let cpus = args.balance.cpus.as_ref().map_or_else(|| whole.clone(), |asked| whole.and(asked));
    let may_beat = may_beat(&args.balance, args.cooperate);
    let beats = may_beat.then_some(cpus);
    facts.watch_for_doctor(&args.balance, &supervisor);
    let (wait_reports, openings, counts) = (None, None, None);
    let said = Said {
        args: args.balance,
        filter,
        whole,
        mapping,
        knowledge,
        parameters,
        wait_reports,
        openings,
        counts,
        beats: may_beat,
    };
    let balancing = Balancing::start(said, facts, beats, &supervisor);
    // Where nothing is balanced there is nothing to wait for.
    let outcome = match &balancing {
        Ok(_) => supervisor.run(&mut Wait),
        Err(_) => Outcome::Detached,
    };
    Ok(End::Status(if finish(balancing, outcome) { 0 } else { crate::FAILURE }))
}

/// A balancer that was killed together with its guardian left masks and shares, which would be taken for the
/// program's own.
fn undo_leftovers(args: &BalanceArgs) {
    if args.policy().only_watches() {
        return;
    }
    // What cannot be restored is a matter for `evenly restore`, which says why.
    let fates = StateDir::look().and_then(|dir| restore_all(&dir, None, false)).unwrap_or_default();
    let of = |fate| if let Fate::Restored(report) = fate { Some(report) } else { None };
    for report in fates.into_iter().filter_map(|(_, fate)| of(fate)) {
        let others = shares(&report.shares);
        if (report.restored > 0 || !others.is_empty()) && !args.quiet {
            tell(&format!(
                "evenly: restored what a killed balancer had left: masks of threads: {}{others}",
                report.restored
            ));
        }
    }
}

/// Reports, also where there was no balancing. Returns whether there was.
fn finish(balancing: Result<Balancing, Failed>, outcome: Outcome) -> bool {
    match balancing {
        Ok(balancing) => balancing.finish(outcome),
        Err(Failed { mut facts, why }) => {
            facts.report(outcome, LiveReport::default(), Some(why), None);
            false
        }
    }
}

/// What is loaded into the program, as far as that is possible.
#[derive(Default)]
struct Probes {
    prepared: Option<Prepared>,
    counting: Option<Counting>,
    counts: Option<RankCounts>,
    hands: Option<handover::Prepared>,
    /// Where programs with `libevenly_loops` tell what their loops do.
    loops: Option<Told>,
    /// Variables that it needs.
    env: Vec<(OsString, OsString)>,
}

/// What is loaded into the program. What cannot be loaded is reported, and noted.
fn probes(args: &RunArgs, whole: &CpuSet, notes: &mut Vec<String>) -> Probes {
    let by_default = args.probe == ProbeArg::Auto && needs_probe(args).is_none();
    let observes = !by_default || args.balance.policy().moves_within_phases();
    let mut probes = Probes::default();
    if args.probe != ProbeArg::Off && observes {
        observing(args, by_default, whole, &mut probes, notes);
    }
    if args.probe != ProbeArg::Off && args.cooperate != CooperateArg::Off {
        handing_over(args, whole, &mut probes, notes);
    }
    hear_of_loops(&mut probes, notes);
    probes
}

/// Has loops tell what they do, unless the user has them tell that to a file already.
fn hear_of_loops(probes: &mut Probes, notes: &mut Vec<String>) {
    if std::env::var_os(loops::VARIABLE).is_some_and(|path| !path.is_empty()) {
        return;
    }
    match Told::new() {
        Ok(told) => {
            probes.env.push(told.variable());
            probes.loops = Some(told);
        }
        Err(e) => notes.push(format!("what loops of libevenly_loops do is not known: {e}")),
    }
}

/// `--probe on`.
fn observing(
    args: &RunArgs,
    by_default: bool,
    whole: &CpuSet,
    probes: &mut Probes,
    notes: &mut Vec<String>,
) {
    let cooperate = match args.cooperate {
        CooperateArg::Auto | CooperateArg::Program => Cooperation::WhileMoved,
        CooperateArg::Off => Cooperation::Never,
    };
    // What was not asked for is only noted where it cannot be had.
    let (command, quiet) = (&args.program.command, args.balance.quiet || by_default);
    if args.balance.policy().places_load() {
        let decides = !tells_messages(&args.balance);
        let mpicc = args.mpicc.as_deref();
        if let Some((counting, env)) = Counting::prepare(command, mpicc, decides, quiet, notes) {
            probes.counts = counting.counts().ok();
            probes.counting = Some(counting);
            probes.env = env;
        }
    }
    // It stands before the other, which calls the MPI library itself.
    let before = probes.preloaded();
    if let Some((prepared, env)) =
        Prepared::for_command(command, before.as_deref(), (whole, cooperate), quiet, notes)
    {
        probes.prepared = Some(prepared);
        probes.set(env);
    }
}

/// `--cooperate auto`: wherever it can be loaded, as programs may start others, and load code later.
fn handing_over(args: &RunArgs, whole: &CpuSet, probes: &mut Probes, notes: &mut Vec<String>) {
    let command = &args.program.command;
    if !Unseen::of(command).is_empty() {
        return;
    }
    let before = probes.preloaded();
    if let Some((hands, env)) = handover::Prepared::new(before.as_deref(), whole, notes) {
        probes.hands = Some(hands);
        probes.set(env);
    }
}

impl Probes {
    /// What `LD_PRELOAD` is with what is loaded already.
    fn preloaded(&self) -> Option<OsString> {
        let set = self.env.iter().find(|(name, _)| name == "LD_PRELOAD");
        set.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("LD_PRELOAD"))
    }

    fn set(&mut self, env: Vec<(OsString, OsString)>) {
        self.env.retain(|(name, _)| env.iter().all(|(new, _)| new != name));
        self.env.extend(env);
    }
}

/// Whether CPUs may change hands often, from outside.
fn may_beat(args: &BalanceArgs, cooperate: CooperateArg) -> bool {
    cooperate != CooperateArg::Off && !args.policy().only_watches()
}

/// What keeps a launcher from binding ranks that are to be placed here. It is reported, and noted.
fn unbound_ranks(args: &RunArgs, notes: &mut Vec<String>) -> Vec<(OsString, OsString)> {
    let by = match (&args.balance.map, args.balance.policy()) {
        (Some(_), _) => "--map",
        (None, policy) if policy.places_load() => policy.name,
        _ => return Vec::new(),
    };
    let set = unbound(&args.program.command, |name| std::env::var_os(name));
    if !set.is_empty() {
        let list: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let note = format!(
            "sets {}: Open MPI binds ranks by default (mpirun --bind-to), and {by} cannot place bound ranks",
            list.join(" ")
        );
        if !args.balance.quiet {
            tell(&format!("evenly: {note}"));
        }
        notes.push(note);
    }
    set.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// How long balancing may take to end. It takes longer only where a thread of evenly's is stuck.
const ENDING: Duration = Duration::from_secs(30);

/// Whether a thread ends within some time.
fn ends_within<T>(thread: &JoinHandle<T>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while !thread.is_finished() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// What the user said, read and found good.
struct Said {
    args: BalanceArgs,
    filter: Filter,
    /// What the program may use.
    whole: CpuSet,
    mapping: Option<Mapping>,
    knowledge: Option<Arc<Knowledge>>,
    parameters: Parameters,
    /// Reads what threads report of their waiting.
    wait_reports: Option<OpenWaitReports>,
    /// The barriers of the program.
    openings: Option<Arc<dyn Openings>>,
    /// Reads what ranks count.
    counts: Option<RankCounts>,
    /// Whether CPUs may change hands often.
    beats: bool,
}

/// A balancer that runs beside the supervisor.
struct Balancing {
    control: Control,
    thread: Option<JoinHandle<Result<LiveReport, String>>>,
    journal: Arc<Journal>,
    guardian: Option<Arc<Guardian>>,
    recorder: Option<Recorder>,
    log: Option<Log>,
    facts: Facts,
}

/// Balancing that could not begin. The reason has been reported.
struct Failed {
    facts: Box<Facts>,
    why: String,
}

/// Says once why the program is not balanced (promise P8), and returns the reason.
fn not_balancing(error: &anyhow::Error) -> String {
    let why = said(error);
    tell(&format!("evenly: not balancing, the program runs as it is: {why}"));
    why
}

impl Balancing {
    /// Starts balancing. Where that is not possible one line says why, and what would mend it.
    /// `beats` are the CPUs that may change hands often.
    fn start(
        said: Said,
        mut facts: Facts,
        beats: Option<CpuSet>,
        supervisor: &Supervisor,
    ) -> Result<Self, Failed> {
        match Parts::prepare(said, &facts, supervisor) {
            Ok(p) => {
                if let Some(cpus) = beats {
                    facts.beat(supervisor, cpus);
                }
                Ok(Self {
                    control: p.control,
                    thread: Some(p.thread),
                    journal: p.journal,
                    guardian: p.guardian,
                    recorder: p.recorder,
                    log: p.log,
                    facts,
                })
            }
            Err(e) => Err(Failed { facts: Box::new(facts), why: not_balancing(&e) }),
        }
    }

    /// CPUs are handed over to other programs as well that run under evenly.
    fn cooperate_with_others(&self, cpus: CpuSet) {
        if let Some(hands) = &self.facts.hands {
            hands.cooperate_with(Beside::new(self.journal.clone(), Proc::default(), cpus));
        }
    }

    /// Ends balancing, restores masks, and reports. Returns whether the program was balanced.
    fn finish(mut self, outcome: Outcome) -> bool {
        self.control.end();
        self.facts.end_beats();
        let thread = self.thread.take();
        if thread.as_ref().is_some_and(|t| !ends_within(t, ENDING)) {
            // As with a balancer that panicked.
            tell("evenly: its balancer does not end, so its guardian restores all masks");
            return false;
        }
        let live = match thread.map(JoinHandle::join) {
            Some(Ok(report)) => report,
            // The journal stays as it is: letting the guardian go makes it restore.
            Some(Err(_)) => return false,
            None => Err(String::from("its balancer was never started")),
        };
        // Looks once more for masks that were inherited since the last scan.
        if let Err(e) = evenly_linux::restore::end(&self.journal) {
            tell(&format!("evenly: {e}"));
        }
        if let Some(Err(e)) = self.guardian.take().map(|g| g.finish()) {
            tell(&format!("evenly: {e}"));
        }
        if let Some(log) = self.log.take() {
            log.finish();
        }
        let (live, failure) = match live {
            Ok(live) => (live, None),
            Err(why) => (LiveReport::default(), Some(why)),
        };
        let balanced = failure.is_none();
        self.facts.report(outcome, live, failure, self.recorder.take());
        balanced
    }
}

/// All that runs while a program is balanced.
struct Parts {
    control: Control,
    thread: JoinHandle<Result<LiveReport, String>>,
    journal: Arc<Journal>,
    guardian: Option<Arc<Guardian>>,
    recorder: Option<Recorder>,
    log: Option<Log>,
}

impl Parts {
    fn prepare(what: Said, facts: &Facts, supervisor: &Supervisor) -> anyhow::Result<Self> {
        let args = &what.args;
        let (pid, threads, waker) = (supervisor.pid(), supervisor.threads(), supervisor.waker());
        let dir = StateDir::find()?;
        let proc = Proc::default();
        if !args.policy().only_watches()
            && let Some(by) = balanced_above(&proc, pid, &others(&dir, &proc).unwrap_or_default())
        {
            anyhow::bail!("another evenly (process {by}) balances it already, with its parents");
        }
        // With the program from the start: an evenly inside it must see whose it is.
        let journal = Arc::new(Journal::create(&dir, Process::find(&proc, pid))?);
        let guardian = if args.policy().only_watches() {
            None
        } else {
            let exe = std::env::current_exe().context("cannot find evenly's own program file")?;
            Some(Arc::new(Guardian::start(&exe, &journal, false)?))
        };
        // A recording that cannot be made is no reason not to balance.
        let recorder = args.record.as_deref().and_then(|path| {
            recorder(threads, path, args, pid, &facts.command)
                .map_err(|e| tell(&format!("evenly: not recording: {}", said(&e))))
                .ok()
        });
        let log = args.verbose.then(|| Log::start(threads)).transpose()?;
        let control = Control::default();
        // Where it cannot be tuned it is balanced nevertheless.
        let tuning = Heuristic::by_name(args.policy().name).and_then(|policy| {
            let tuned = Tuned { policy, parameters: what.parameters.clone() };
            Tuning::create(&dir, tuned).map_err(|e| tell(&format!("evenly: {e}"))).ok()
        });
        let mut options = live_options(what, facts.names.clone());
        options.tuning = tuning;
        let mut live = Live::new(options, pid, journal.clone());
        if let Some(guardian) = &guardian {
            live = live.guarded_by(guardian.clone());
        }
        let (events, decisions) =
            (recorder.as_ref().map(Recorder::handle), log.as_ref().map(Log::handle));
        let ctl = control.clone();
        let balance = move || {
            let observers = |_: DomainId| {
                let mut all: Vec<Box<dyn Observer>> = Vec::new();
                if let Some(r) = &events {
                    all.push(Box::new(r.clone()));
                }
                if let Some(l) = &decisions {
                    all.push(Box::new(l.clone()));
                }
                all
            };
            let report = live.run(&ctl, observers).map_err(|e| not_balancing(&e.into()));
            waker.wake();
            report
        };
        let thread =
            threads.start("balancer-0", balance).context("cannot start the balancer's thread")?;
        Ok(Self { control, thread, journal, guardian, recorder, log })
    }
}

fn live_options(said: Said, names: Names) -> LiveOptions {
    let Said { args, filter, whole, mapping, knowledge, parameters, .. } = said;
    let Said { wait_reports, openings, counts, beats, .. } = said;
    let policy = args.policy();
    LiveOptions {
        policy,
        period: args.period.0,
        budget: args.budget,
        cpus: args.cpus,
        domain: args.domain.map(Into::into),
        expected: args.threads,
        eligible: filter.into_eligible(names),
        guard: GuardOptions {
            enabled: !args.no_guard && policy.is_guarded(),
            ..GuardOptions::default()
        },
        source: args.source.into(),
        progress: args.progress.into(),
        seed: args.seed,
        whole,
        mapping,
        knowledge,
        wait_reports,
        openings,
        counted_by: counts,
        shares: args.shares.into(),
        levels: if policy.may_give_weights() { levels() } else { Levels::new() },
        parameters,
        tuning: None,
        numbered_by: args.map_by.into(),
        beats,
    }
}

/// The recorder has a thread of its own.
fn recorder(
    _: Threads,
    path: &Path,
    args: &BalanceArgs,
    pid: Pid,
    command: &[String],
) -> anyhow::Result<Recorder> {
    let path = expand(path, pid);
    let header = Header {
        evenly: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.to_vec(),
        host: host(),
        settings: BTreeMap::from([
            (String::from("policy"), args.policy().name.to_owned()),
            (
                String::from("period"),
                match args.period.0 {
                    evenly_engine::Period::Auto => String::from("auto"),
                    evenly_engine::Period::Fixed(p) => p.to_string(),
                },
            ),
            (
                String::from("cpus"),
                args.cpus.as_ref().map_or_else(|| String::from("all"), CpuSet::to_string),
            ),
            (String::from("seed"), args.seed.to_string()),
        ]),
        started_unix_ms: unix_ms(SystemTime::now()),
    };
    let options = RecorderOptions { limit_bytes: args.record_limit << 20, header };
    Recorder::create(&path, options).with_context(|| format!("cannot record to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: an evenly that waits for a thread of its own for ever.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "no program is started here")]
    fn a_thread_that_does_not_end_is_waited_for_no_longer_than_that() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_err());
        assert!(!ends_within(&thread, Duration::from_millis(1)));
        drop(end);
        assert!(ends_within(&thread, Duration::from_secs(180)));
    }
}
