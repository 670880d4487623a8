//! `evenly run` and `evenly attach`: the wiring of program, supervisor, guardian, balancer and
//! report.
//!
//! Invariant (promises P8 and P9): from the moment when the program runs, nothing that goes wrong
//! here stops it. It is said in one line, and the program goes on unbalanced.

use crate::doctor::Watching;
use crate::flags::{AttachArgs, BalanceArgs, ProbeArg, RunArgs};
use crate::messages::Counting;
use crate::output::{self, expand};
use crate::probe::{Prepared, TestimoniesMaker, Watch, unseen_mpi};
use crate::restore::{leftovers, shares};
use crate::{End, tell};
use anyhow::Context;
use evenly_engine::{Candidate, Eligible, Event, GuardOptions, Mapping, Observer, ThreadSummary};
use evenly_errors::said;
use evenly_linux::affinity;
use evenly_linux::clock::now;
use evenly_linux::guardian::Guardian;
use evenly_linux::journal::{Journal, Process, StateDir, others};
use evenly_linux::live::{
    Control, Live, LiveOptions, LiveReport, balanced_above, check_target_is_free, describe,
};
use evenly_linux::machine::RankCounts;
use evenly_linux::proc::Proc;
use evenly_linux::restore::{Fate, restore_all};
use evenly_linux::share::{Choice, Real};
use evenly_linux::supervise::{Hooks, Outcome, Signals, SpawnOptions, Supervisor, Threads};
use evenly_linux::tuning::{self, Tuned, Tuning};
use evenly_model::{CpuSet, DomainId, Knowledge, Nanos, Pid, Task, TaskGraph, Tid};
use evenly_policy::PolicyInfo;
use evenly_policy::hpc::{Heuristic, Levels, Parameters};
use evenly_probe::binding::unbound;
use evenly_report::{Ended, RunReport};
use evenly_trace::{Header, Recorder, RecorderOptions};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn run(args: RunArgs) -> anyhow::Result<End> {
    check_command("run", &args.program.command)?;
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
    let Probes { prepared, counting, counts, mut env } = probes(&args, &mut notes);
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
    // From here on the program runs: failures are told, not returned.
    let watch = prepared.map(|prepared| prepared.start(supervisor.threads(), &mut notes));
    let command = args.program.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut facts = Facts::new(&args.balance, supervisor.pid(), command, notes, began);
    (facts.watch, facts.counting) = (watch, counting);
    facts.watch_for_doctor(&args.balance, &supervisor);
    let told_by = facts.watch.as_ref().map(Watch::testimonies);
    let said =
        Said { args: args.balance, filter, whole, mapping, knowledge, parameters, told_by, counts };
    let balancing = Balancing::start(said, facts, &supervisor);
    let outcome = supervisor.run(&mut Wait);
    finish(balancing, outcome);
    Ok(End::Like(outcome))
}

pub(crate) fn attach(args: AttachArgs) -> anyhow::Result<End> {
    let pid = Pid(args.pid);
    let filter = Filter::new(&args.balance)?;
    let parameters = parameters(&args.balance)?;
    let mut unbalanced = Vec::new();
    check_shares(&args.balance, &mut unbalanced)?;
    check_outputs(&args.balance)?;
    let proc = Proc::default();
    let known = StateDir::find().and_then(|dir| others(&dir, &proc)).unwrap_or_default();
    check_target_is_free(&proc, pid, &known)?;
    // From here on a signal ends evenly as it should, whatever it is just doing.
    let signals = Signals::block().context("cannot receive signals")?;
    undo_leftovers(&args.balance);
    // What could not be undone, or was not to be.
    unbalanced.extend(leftovers(args.balance.quiet));
    let command: Vec<String> =
        proc.command_line(pid).iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let supervisor = Supervisor::for_attach(signals, pid)?;
    // All of its threads are looked at, once for all that has to know.
    let whole = may_use(&args.balance, Some(pid))?;
    let mut notes = check_cpus(&args.balance, &whole)?;
    notes.append(&mut unbalanced);
    let mapping = mapping(&args.balance, &whole, &mut notes)?;
    let knowledge = knowledge(&args.balance, &mut notes)?;
    notes.extend(messages_by(&args.balance, false));
    may_change(&args.balance, pid)?;
    if args.balance.policy.gives_weights {
        notes.push(format!(
            "{}: threads are only spread evenly, as they do not tell when they wait: start the \
             program with evenly run",
            args.balance.policy.name
        ));
    }
    let mut facts = Facts::new(&args.balance, pid, command, notes, now());
    facts.watch_for_doctor(&args.balance, &supervisor);
    let (told_by, counts) = (None, None);
    let said =
        Said { args: args.balance, filter, whole, mapping, knowledge, parameters, told_by, counts };
    let balancing = Balancing::start(said, facts, &supervisor);
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
    if args.policy.only_watches() {
        return;
    }
    // What cannot be restored is a matter for `evenly restore`, which says why.
    let fates = StateDir::find().and_then(|dir| restore_all(&dir, None, false)).unwrap_or_default();
    let of = |fate| if let Fate::Restored(report) = fate { Some(report) } else { None };
    for report in fates.into_iter().filter_map(|(_, fate)| of(fate)) {
        let others = shares(&report.shares);
        if (report.restored > 0 || !others.is_empty()) && !args.quiet {
            tell(&format!(
                "evenly: a balancer that was killed had left masks or shares; threads that have their masks \
                 back: {}{others}",
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

/// A program named like an option is a mistyped option.
pub(crate) fn check_command(name: &str, command: &[OsString]) -> anyhow::Result<()> {
    match command.first().map(|c| c.to_string_lossy()) {
        Some(word) if word.starts_with('-') => anyhow::bail!(
            "there is no option {word} (see evenly {name} --help); a program of that name is \
             given as ./{word}"
        ),
        _ => Ok(()),
    }
}

/// Options that cannot work for a program that this process would start are bad input.
pub(crate) fn check_options(args: &BalanceArgs) -> anyhow::Result<()> {
    let whole = may_use(args, None)?;
    let mut notes = check_cpus(args, &whole)?;
    mapping(args, &whole, &mut notes)?;
    knowledge(args, &mut notes)?;
    parameters(args)?;
    check_shares(args, &mut notes)?;
    check_outputs(args)?;
    Filter::new(args).map(drop)
}

/// Files that cannot be written are bad input.
fn check_outputs(args: &BalanceArgs) -> anyhow::Result<()> {
    for (option, path) in [("--json", &args.json), ("--record", &args.record)] {
        if let Some(path) = path {
            output::not_stdout(option, path)?;
            output::check(option, path)?;
        }
    }
    if let (Some(json), Some(record)) = (&args.json, &args.record)
        && (json == record || output::same_file(json, record))
    {
        anyhow::bail!("--json and --record name the same file, {}; give two", json.display());
    }
    Ok(())
}

/// A list of CPUs of which the program can use none is bad input. Where it can use some, those that
/// it cannot are told, and returned as a note for the report.
fn check_cpus(args: &BalanceArgs, allowed: &CpuSet) -> anyhow::Result<Vec<String>> {
    if let Some(asked) = &args.cpus {
        if asked.and(allowed).is_empty() {
            anyhow::bail!(
                "--cpus {asked}: the program may use the CPUs {allowed}, and none of these is among \
                 them"
            );
        }
        let left_out = asked.minus(allowed);
        if !left_out.is_empty() {
            let note = format!(
                "--cpus {asked}: the program may use the CPUs {allowed}; {left_out} cannot be used"
            );
            if !args.quiet {
                tell(&format!("evenly: {note}"));
            }
            return Ok(vec![note]);
        }
    }
    Ok(Vec::new())
}

/// What a running program may use, or one that this process would start. Nothing where that cannot be
/// read and no option is to be held against it: a program that has ended is found out elsewhere.
fn may_use(args: &BalanceArgs, program: Option<Pid>) -> anyhow::Result<CpuSet> {
    let found = allowed(program);
    if args.cpus.is_some() || args.map.is_some() { found } else { Ok(found.unwrap_or_default()) }
}

/// What a running program may use, or one that this process would start.
pub(crate) fn allowed(program: Option<Pid>) -> anyhow::Result<CpuSet> {
    match program {
        Some(pid) => affinity::of_program(&Proc::default(), pid)
            .with_context(|| format!("cannot read the affinity mask of process {pid}")),
        None => affinity::get(Tid(0)).context("cannot read this process's affinity mask"),
    }
}

/// `--map`. A mapping of which no task can have its place is bad input; what else is odd about it is
/// told, and added to the notes.
fn mapping(
    args: &BalanceArgs,
    allowed: &CpuSet,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Mapping>> {
    let Some(path) = &args.map else { return Ok(None) };
    let file = path.display();
    anyhow::ensure!(
        !args.policy.only_watches(),
        "--map {file}: the policy {} moves nothing; take another, or leave --map out",
        args.policy.name
    );
    let found = evenly_map::assignment_file(path).context("--map")?;
    let allowed = args.cpus.as_ref().map_or_else(|| allowed.clone(), |cpus| allowed.and(cpus));
    let named = found.places.values().fold(CpuSet::new(), |all, cpus| all.or(cpus));
    anyhow::ensure!(
        !named.and(&allowed).is_empty(),
        "--map {file}: it names the CPUs {named}; the program may use {allowed}, and none of these \
         is among them"
    );
    let mut odd = Vec::new();
    let lost = named.minus(&allowed);
    if !lost.is_empty() {
        odd.push(format!(
            "--map {file}: it names the CPUs {lost}, which the program may not use (it may use \
             {allowed})"
        ));
    }
    if let Some(machine) = found.made_for.filter(|m| m != "this") {
        odd.push(format!(
            "--map {file}: it was made for {machine}; its core numbers are taken for the CPU numbers \
             of this machine"
        ));
    }
    for note in odd {
        if !args.quiet {
            tell(&format!("evenly: {note}"));
        }
        notes.push(note);
    }
    Ok(Some(Mapping::new(found.places)))
}

/// What a policy that places threads by load is told of machine and program; notes say what it is not
/// told.
fn knowledge(
    args: &BalanceArgs,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Arc<Knowledge>>> {
    let name = args.policy.name;
    if !args.policy.places_load {
        for (option, given) in [
            ("--profile", args.profile.is_some()),
            ("--edges", args.edges.is_some()),
            ("--every", args.every.is_some()),
        ] {
            anyhow::ensure!(
                !given,
                "{option}: the policy {name} does not look at it; add --policy nuco, or leave it out"
            );
        }
        return Ok(None);
    }
    let profile = profile(args, notes)?;
    let mut knowledge = match evenly_topology::this_machine() {
        Ok(machine) => {
            let known = machine.knowledge();
            notes.push(match known.nodes.len() {
                1 => format!(
                    "{name}: this machine has one NUMA node: threads are placed by load among its \
                     CPUs, messages cost {}, and no memory is moved",
                    // One that all have tells no CPU from another.
                    if known.caches.iter().all(|(_, sets)| sets.len() == 1) {
                        "the same between all of them"
                    } else {
                        "less between those that share a cache"
                    }
                ),
                n => format!(
                    "{name}: factors between the {n} NUMA nodes: {} (evenly topology --measure)",
                    machine.factors().source().words()
                ),
            });
            known
        }
        Err(e) => {
            notes.push(format!("{name}: nothing is known of NUMA nodes, load alone counts: {e}"));
            Knowledge::even(vec![(0, CpuSet::new())], 1.0)
        }
    };
    knowledge.profile = profile;
    knowledge.every = args.every.unwrap_or(Knowledge::USUAL_EVERY);
    Ok(Some(Arc::new(knowledge)))
}

/// The parts of this machine at which counts of threads are made even: nodes, then caches, those of cores last. None
/// where nothing is known of them.
fn levels() -> Levels {
    let Ok(machine) = evenly_topology::this_machine() else { return Levels::new() };
    let known = machine.knowledge();
    let nodes = known.nodes.into_iter().map(|(_, cpus)| cpus).collect();
    let caches = known.caches.into_iter().rev().map(|(_, caches)| caches);
    std::iter::once(nodes).chain(caches).collect()
}

/// What a policy goes by that can be tuned (`--set`).
fn parameters(args: &BalanceArgs) -> anyhow::Result<Parameters> {
    let mut parameters = Parameters::default();
    anyhow::ensure!(
        args.set.is_empty() || args.policy.gives_weights,
        "--set: the policy {} has nothing that can be tuned; add --policy hpc-auto, or leave it out",
        args.policy.name
    );
    tuning::set(args.policy.name, &mut parameters, &args.set).context("--set")?;
    Ok(parameters)
}

/// A setting of the environment by which a runtime spins without end where it waits.
fn told_to_spin(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    [
        ("OMP_WAIT_POLICY", "active"),
        ("KMP_BLOCKTIME", "infinite"),
        ("KMP_LIBRARY", "turnaround"),
        ("OMPI_MCA_mpi_yield_when_idle", "0"),
    ]
    .into_iter()
    .find(|(name, spins)| variable(name).is_some_and(|v| v.trim().eq_ignore_ascii_case(spins)))
    .map(|(name, spins)| format!("{name}={spins}"))
}

/// A mechanism of `--shares` that the policy has no weights for is bad input; one that this machine lacks is
/// told, and threads are only placed.
fn check_shares(args: &BalanceArgs, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let choice: Choice = args.shares.into();
    if choice.gives_parts() {
        return Ok(());
    }
    let (asked, name) = (args.shares.name(), args.policy.name);
    let is_auto = name == Heuristic::Auto.name();
    // Such an account of work in CPU time is longer on a slower CPU: it would answer itself.
    anyhow::ensure!(
        choice.gives_turns() || args.policy.gives_weights && !is_auto,
        "--shares {asked}: the policy {name} gives no weights to threads that have a CPU of their own; add \
         --policy hpc-adaptive, or leave it out"
    );
    anyhow::ensure!(
        args.policy.gives_weights,
        "--shares {asked}: the policy {name} gives no weights to threads; add --policy hpc-adaptive, or leave \
         it out"
    );
    if choice == Choice::RoundRobin {
        anyhow::ensure!(
            !is_auto,
            "--shares {asked}: the policy {name} gives weights only to threads that spin while they wait, and \
             those are not raised above others; add --policy hpc-adaptive, or leave it out"
        );
        if let Some(setting) = told_to_spin(|name| std::env::var(name).ok()) {
            anyhow::bail!(
                "--shares {asked}: {setting} tells threads to spin while they wait, and they would do so above \
                 all others; let them sleep (OMP_WAIT_POLICY=passive), or leave it out"
            );
        }
    }
    if let Some(missing) = choice.missing(&Real::default()) {
        let remedy = missing.remedy.map(|r| format!("; {r}")).unwrap_or_default();
        let note =
            format!("{name}: threads are only placed, --shares {asked}: {}{remedy}", missing.why);
        if !args.quiet {
            tell(&format!("evenly: {note}"));
        }
        notes.push(note);
    }
    Ok(())
}

/// Whether the user has told of messages.
fn tells_messages(args: &BalanceArgs) -> bool {
    args.profile.is_some() || args.edges.is_some()
}

/// Where loads and messages are from, for the report, where the policy looks at them.
fn messages_by(args: &BalanceArgs, counted: bool) -> Option<String> {
    let by = match (tells_messages(args), counted) {
        _ if !args.policy.places_load => return None,
        (false, false) => {
            "nothing is known of messages (--profile, --edges; evenly run --probe on counts those of MPI \
             programs); threads are placed by load alone"
        }
        (false, true) => {
            "messages between MPI ranks, and what each computes without waiting for others, are counted \
             while the program runs"
        }
        (true, false) => "messages are those of --profile or --edges",
        (true, true) => {
            "messages are those of --profile or --edges; what each MPI rank computes without waiting for \
             others is counted while the program runs"
        }
    };
    Some(format!("{}: {by}", args.policy.name))
}

/// What is loaded into the program, as far as that is possible.
#[derive(Default)]
struct Probes {
    prepared: Option<Prepared>,
    counting: Option<Counting>,
    counts: Option<RankCounts>,
    /// Variables that it needs.
    env: Vec<(OsString, OsString)>,
}

/// `--probe on`. What cannot be loaded is told, and noted.
fn probes(args: &RunArgs, notes: &mut Vec<String>) -> Probes {
    let mut probes = Probes::default();
    // Those can do nothing without it.
    if args.probe == ProbeArg::Off && !args.balance.policy.gives_weights {
        return probes;
    }
    let (command, quiet) = (&args.program.command, args.balance.quiet);
    let mut before = std::env::var_os("LD_PRELOAD");
    if args.balance.policy.places_load {
        let decides = !tells_messages(&args.balance);
        let mpicc = args.mpicc.as_deref();
        if let Some((counting, env)) = Counting::prepare(command, mpicc, decides, quiet, notes) {
            probes.counts = counting.counts().ok();
            probes.counting = Some(counting);
            before = env.iter().find(|(name, _)| name == "LD_PRELOAD").map(|(_, v)| v.clone());
            probes.env = env;
        }
    }
    // It stands before the other, which calls the MPI library itself.
    if let Some((prepared, env)) = Prepared::for_command(command, before.as_deref(), quiet, notes) {
        probes.prepared = Some(prepared);
        probes.env.retain(|(name, _)| name != "LD_PRELOAD");
        probes.env.extend(env);
    }
    probes
}

/// What keeps a launcher from binding ranks that are to be placed here. It is told, and noted.
fn unbound_ranks(args: &RunArgs, notes: &mut Vec<String>) -> Vec<(OsString, OsString)> {
    let by = match (&args.balance.map, args.balance.policy) {
        (Some(_), _) => "--map",
        (None, policy) if policy.places_load => policy.name,
        _ => return Vec::new(),
    };
    let set = unbound(&args.program.command, |name| std::env::var_os(name));
    if !set.is_empty() {
        let list: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let note = format!(
            "sets {}: Open MPI binds ranks where nothing says otherwise (mpirun --bind-to), and {by} could \
             place none that is bound",
            list.join(" ")
        );
        if !args.balance.quiet {
            tell(&format!("evenly: {note}"));
        }
        notes.push(note);
    }
    set.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// Loads and messages of an earlier run: `--profile`, `--edges`, or the loads of the one and the
/// messages of the other.
fn profile(args: &BalanceArgs, notes: &mut Vec<String>) -> anyhow::Result<Option<TaskGraph>> {
    let open = |option: &str, path: &Path| {
        let name = path.display().to_string();
        let file = std::fs::File::open(path)
            .with_context(|| format!("{option}: {name} cannot be read"))?;
        anyhow::Ok((file, name))
    };
    let mut read = None;
    if let Some(path) = &args.profile {
        let (file, name) = open("--profile", path)?;
        let (tasks, edges, _) = evenly_map::read_tasks(file, &name).context("--profile")?;
        let graph = TaskGraph::new(tasks, &edges.list);
        read = Some(graph.with_context(|| format!("--profile: {name}"))?);
    }
    let Some(path) = &args.edges else { return Ok(read) };
    let (file, name) = open("--edges", path)?;
    let known = |id| read.as_ref().is_none_or(|graph| graph.find(id).is_some());
    let edges = evenly_map::read_edges(file, &name, &known).context("--edges")?.list;
    let tasks = match &read {
        Some(graph) => graph.tasks().to_vec(),
        None => {
            notes.push(format!(
                "{}: no loads are given with --edges: each of its tasks counts as 1 s of computing \
                 (--profile)",
                args.policy.name
            ));
            let ids: BTreeSet<u64> = edges.iter().flat_map(|e| [e.from, e.to]).collect();
            let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
            ids.into_iter().map(task).collect()
        }
    };
    anyhow::ensure!(
        !edges.is_empty(),
        "--edges: {name} has no edge between two tasks; at least one is needed"
    );
    Ok(Some(TaskGraph::new(tasks, &edges).with_context(|| format!("--edges: {name}"))?))
}

/// The options that choose threads by name, as they were given.
fn filter_as_given(args: &BalanceArgs) -> Vec<String> {
    let only = args.only.iter().map(|g| format!("--only {g}"));
    let skip = args.skip.iter().map(|g| format!("--skip {g}"));
    let idle = args.idle_thread.iter().map(|w| format!("--idle-thread {w}"));
    only.chain(skip).chain(idle).collect()
}

/// Number of ranks of the MPI program of which this process is a part, as its launcher says.
fn mpi_ranks(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
        .iter()
        .find_map(|name| variable(name)?.trim().parse().ok())
}

/// Whether affinity masks of the process may be changed at all.
fn may_change(args: &BalanceArgs, pid: Pid) -> anyhow::Result<()> {
    if args.policy.only_watches() {
        return Ok(());
    }
    affinity::may_set(Tid(pid.0)).with_context(|| {
        format!(
            "process {pid} belongs to another user, and changing its affinity needs that user or \
             CAP_SYS_NICE (try: sudo evenly attach {pid})"
        )
    })
}

/// `--only`, `--skip` and `--idle-thread`.
struct Filter {
    only: Option<GlobSet>,
    skip: GlobSet,
    idle: Option<String>,
}

impl Filter {
    fn new(args: &BalanceArgs) -> anyhow::Result<Self> {
        let globs = |option: &str, list: &[String]| -> anyhow::Result<GlobSet> {
            let mut set = GlobSetBuilder::new();
            for g in list {
                let glob =
                    Glob::new(g).map_err(|e| anyhow::anyhow!("{option} '{g}': {}", e.kind()));
                set.add(glob?);
            }
            Ok(set.build()?)
        };
        Ok(Self {
            only: (!args.only.is_empty()).then(|| globs("--only", &args.only)).transpose()?,
            skip: globs("--skip", &args.skip)?,
            idle: args.idle_thread.clone(),
        })
    }

    fn into_eligible(self, names: Names) -> Option<Eligible> {
        if self.only.is_none() && self.skip.is_empty() && self.idle.is_none() {
            return None;
        }
        Some(Box::new(move |c: &Candidate| {
            let idle = match self.idle.as_deref() {
                Some("first") => c.first,
                Some(name) => c.name == name,
                None => false,
            };
            let left = !idle
                && !self.skip.is_match(&c.name)
                && self.only.as_ref().is_none_or(|o| o.is_match(&c.name));
            names.saw(&c.name, left);
            left
        }))
    }
}

/// Names of threads that the filter left, and of those that it left out, for the report.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<[BTreeSet<String>; 2]>>);

/// Of each so many names are kept.
const MOST_NAMES: usize = 8;

impl Names {
    fn saw(&self, name: &str, left: bool) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let set = &mut sets[usize::from(!left)];
        if set.len() < MOST_NAMES && !set.contains(name) {
            set.insert(name.to_owned());
        }
    }

    fn all(&self) -> [Vec<String>; 2] {
        let sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.clone().map(|set| set.into_iter().collect())
    }
}

/// While the program runs there is nothing to do here but to look after balancing.
pub(crate) struct Wait;

impl Hooks for Wait {
    fn on_stop(&mut self) {
        // Stopped threads are not moved (they are not behind, they wait), and the guardian gives
        // back pinned masks if the stop lasts.
    }

    fn on_continue(&mut self) {}

    fn on_wake(&mut self) -> ControlFlow<()> {
        // Only the balancer wakes the supervisor, as its last act: the program has no threads left,
        // or it failed. Whether its thread has ended yet must not be asked: it may not have.
        ControlFlow::Break(())
    }
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
    /// Reads what threads tell of their waiting.
    told_by: Option<TestimoniesMaker>,
    /// Reads what ranks count.
    counts: Option<RankCounts>,
}

/// A balancer at work beside the supervisor.
struct Balancing {
    control: Control,
    thread: Option<JoinHandle<Result<LiveReport, String>>>,
    journal: Arc<Journal>,
    guardian: Option<Arc<Guardian>>,
    recorder: Option<Recorder>,
    log: Option<Log>,
    facts: Facts,
}

/// The part of a recording that what the doctor saw may take: of what is kept free for its end, a quarter.
const EVIDENCE_PART: u64 = 64;

/// What the report says beside what the balancer measured.
struct Facts {
    command: Vec<String>,
    policy: &'static PolicyInfo,
    budget: f64,
    expected: Option<u32>,
    filter: Vec<String>,
    names: Names,
    /// What is to be noted before all else.
    notes: Vec<String>,
    began: Nanos,
    quiet: bool,
    json: Option<PathBuf>,
    /// What its threads say of themselves.
    watch: Option<Watch>,
    /// What its ranks count.
    counting: Option<Counting>,
    /// Sees for a recording what the doctor will need.
    watching: Option<Watching>,
    /// Bytes that the recording may have.
    record_limit: u64,
}

/// Balancing that could not begin. It has been told why.
struct Failed {
    facts: Box<Facts>,
    why: String,
}

/// Says once why the program is not balanced (promise P8), and gives the reason back.
fn not_balancing(error: &anyhow::Error) -> String {
    let why = said(error);
    tell(&format!("evenly: not balancing, the program runs as it is: {why}"));
    why
}

impl Facts {
    fn new(
        args: &BalanceArgs,
        pid: Pid,
        command: Vec<String>,
        notes: Vec<String>,
        began: Nanos,
    ) -> Self {
        Self {
            command,
            policy: args.policy,
            budget: args.budget,
            expected: args.threads,
            filter: filter_as_given(args),
            names: Names::default(),
            notes,
            began,
            quiet: args.quiet,
            json: args.json.as_deref().map(|p| expand(p, pid)),
            watch: None,
            counting: None,
            watching: None,
            record_limit: args.record_limit << 20,
        }
    }

    /// Has the program watched if it is recorded. Nobody need be told where that fails: the doctor will say that
    /// the recording has less in it.
    fn watch_for_doctor(&mut self, args: &BalanceArgs, supervisor: &Supervisor) {
        let told_by = || self.watch.as_ref().and_then(|w| w.testimonies()());
        let (threads, pid) = (supervisor.threads(), supervisor.pid());
        let sparing = || Watching::sparing(threads, pid, told_by()).ok();
        self.watching = args.record.as_ref().and_then(|_| sparing());
    }

    /// What the doctor will need, for the recording. None where there is nothing, or too much of it.
    fn evidence(&mut self, report: &RunReport) -> Option<serde_json::Value> {
        let mut evidence = self.watching.take()?.seen(self.command.clone())?;
        if !self.policy.only_watches() && report.started {
            let own = |t: &ThreadSummary, tid| t.id.tid.0 == tid && t.own_mask;
            let threads = &report.summary.threads;
            evidence
                .beside(self.policy.name, &report.cpus, |tid| threads.iter().any(|t| own(t, tid)));
        }
        if let Some(told) = &report.probe {
            evidence.told_by_probe(&told.ranks(), told.for_whom());
        }
        if self.watch.as_ref().is_some_and(Watch::misses_mpi) {
            evidence.forget_spinning(&unseen_mpi("run --probe on"));
        }
        let json = evidence.json();
        let most = self.record_limit / EVIDENCE_PART;
        (json.to_string().len() as u64 <= most).then_some(json)
    }

    /// The report at the end: as text, as JSON, and as the last line of the recording.
    fn report(
        &mut self,
        outcome: Outcome,
        mut live: LiveReport,
        failure: Option<String>,
        recorder: Option<Recorder>,
    ) {
        live.summary.notes.splice(0..0, self.notes.iter().cloned());
        live.summary.notes.extend(self.watch.as_ref().and_then(Watch::note));
        let report = RunReport {
            schema: evenly_report::SCHEMA,
            evenly: env!("CARGO_PKG_VERSION"),
            command: self.command.clone(),
            policy: self.policy,
            ended: match outcome {
                Outcome::Exited(status) => Ended::Exit(status),
                Outcome::Signaled(signal) => Ended::Signal(signal),
                Outcome::Detached => Ended::RunsOn,
                Outcome::TargetEnded => Ended::Gone,
            },
            seconds: (now() - self.began).as_secs_f64(),
            balanced_s: live.balanced_s,
            cpus: live.cpus,
            quota_cpus: live.quota.cpus,
            period_ms: live.period.as_millis_f64(),
            overhead_s: live.overhead_s,
            budget: self.budget,
            source: live.source.map(String::from),
            failure,
            started: live.started,
            expected_threads: self.expected,
            filtered: !self.filter.is_empty(),
            filter: self.filter.clone(),
            names: self.names.all(),
            mpi_ranks: mpi_ranks(|name| std::env::var(name).ok()),
            all_threads: live.threads,
            realtime_threads: live.realtime_threads,
            mapping: live.mapping,
            processes: live.processes,
            summary: live.summary,
            efficiency: None,
            probe: self.watch.as_ref().map(Watch::report),
            messages: self.counting.as_ref().map(Counting::report),
            measured: None,
            gain: None,
            verdict: String::new(),
        }
        .judged();
        // A failure has been told when it came.
        if !self.quiet && report.failure.is_none() {
            tell(report.text().trim_end());
        }
        let json = match serde_json::to_value(&report) {
            Ok(json) => json,
            Err(e) => return tell(&format!("evenly: cannot write the report as JSON: {e}")),
        };
        if let Some(path) = &self.json
            && let Err(e) = std::fs::write(path, format!("{json:#}\n"))
        {
            tell(&format!("evenly: cannot write {}: {e}", path.display()));
        }
        if let Some(recorder) = recorder {
            let mut summary = json;
            if let (Some(fields), Some(seen)) = (summary.as_object_mut(), self.evidence(&report)) {
                fields.insert(String::from("evidence"), seen);
            }
            if let Err(e) = recorder.finish(summary) {
                tell(&format!("evenly: {e}"));
            }
        }
    }
}

impl Balancing {
    /// Starts balancing. Where that is not possible one line says why, and what would mend it.
    fn start(said: Said, facts: Facts, supervisor: &Supervisor) -> Result<Self, Failed> {
        match Parts::prepare(said, &facts, supervisor) {
            Ok(p) => Ok(Self {
                control: p.control,
                thread: Some(p.thread),
                journal: p.journal,
                guardian: p.guardian,
                recorder: p.recorder,
                log: p.log,
                facts,
            }),
            Err(e) => Err(Failed { facts: Box::new(facts), why: not_balancing(&e) }),
        }
    }

    /// Ends balancing, gives masks back, and reports. Returns whether the program was balanced.
    fn finish(mut self, outcome: Outcome) -> bool {
        self.control.end();
        let live = match self.thread.take().map(JoinHandle::join) {
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

/// All that works while a program is balanced.
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
        if !args.policy.only_watches()
            && let Some(by) = balanced_above(&proc, pid, &others(&dir, &proc).unwrap_or_default())
        {
            anyhow::bail!("another evenly (process {by}) balances it already, with its parents");
        }
        // With the program from the start: an evenly inside it must see whose it is.
        let journal = Arc::new(Journal::create(&dir, Process::find(&proc, pid))?);
        let guardian = if args.policy.only_watches() {
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
        // Where it cannot be tuned it is balanced all the same.
        let tuning = Heuristic::by_name(args.policy.name).and_then(|policy| {
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

fn live_options(
    Said { args, filter, whole, mapping, knowledge, parameters, told_by, counts }: Said,
    names: Names,
) -> LiveOptions {
    LiveOptions {
        policy: args.policy,
        period: args.period.0,
        budget: args.budget,
        cpus: args.cpus,
        domain: args.domain.map(Into::into),
        expected: args.threads,
        eligible: filter.into_eligible(names),
        guard: GuardOptions {
            enabled: !args.no_guard && args.policy.is_guarded(),
            ..GuardOptions::default()
        },
        source: args.source.into(),
        progress: args.progress.into(),
        seed: args.seed,
        whole,
        mapping,
        knowledge,
        told_by,
        counted_by: counts,
        shares: args.shares.into(),
        levels: if args.policy.gives_weights { levels() } else { Levels::new() },
        parameters,
        tuning: None,
        numbered_by: args.map_by.into(),
    }
}

/// What a recording says of the machine.
pub(crate) fn host() -> BTreeMap<String, String> {
    let fact =
        |file: &str| std::fs::read_to_string(file).map(|t| t.trim().to_owned()).unwrap_or_default();
    BTreeMap::from([
        (String::from("hostname"), fact("/proc/sys/kernel/hostname")),
        (String::from("kernel"), fact("/proc/sys/kernel/osrelease")),
        (String::from("cpus"), fact("/sys/devices/system/cpu/online")),
    ])
}

/// A moment as recordings say it; 0 where the clock is before 1970.
pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
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
            (String::from("policy"), args.policy.name.to_owned()),
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

/// The decision log on standard error. Written by a thread of its own, so that a reader who is
/// slow never holds up the balancer; what it cannot take is counted.
struct Log {
    sender: SyncSender<String>,
    thread: JoinHandle<()>,
}

const LOG_LINES: usize = 4096;

impl Log {
    fn start(threads: Threads) -> anyhow::Result<Self> {
        let (sender, lines): (_, Receiver<String>) = sync_channel(LOG_LINES);
        let write = move || lines.iter().for_each(|l| tell(&l));
        let thread = threads.start("log", write).context("cannot start the log's thread")?;
        Ok(Self { sender, thread })
    }

    fn handle(&self) -> LogHandle {
        LogHandle { sender: self.sender.clone(), lost: 0 }
    }

    fn finish(self) {
        drop(self.sender);
        // It ends when the last handle is gone; a panic there has nothing left to say.
        let _ = self.thread.join();
    }
}

#[derive(Clone)]
struct LogHandle {
    sender: SyncSender<String>,
    lost: u64,
}

impl Observer for LogHandle {
    fn event(&mut self, event: &Event) {
        for line in describe(event) {
            if self.sender.try_send(format!("evenly: {line}")).is_err() {
                self.lost += 1;
            } else if self.lost > 0 {
                let text = format!("evenly: ({} lines were lost)", self.lost);
                if self.sender.try_send(text).is_ok() {
                    self.lost = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_what_the_launcher_says() {
        let with = |name: &'static str, value: &'static str| {
            mpi_ranks(|n| (n == name).then(|| value.to_owned()))
        };
        assert_eq!(with("OMPI_COMM_WORLD_SIZE", "3"), Some(3));
        assert_eq!(with("PMI_SIZE", "12"), Some(12));
        assert_eq!(with("PMI_SIZE", "many"), None);
        assert_eq!(with("HOME", "3"), None);
    }
}
