//! The options of balancing, checked before the program starts: what cannot work is bad input, and what is
//! only unusual is a note.

use super::filter::Filter;
use crate::flags::{BalanceArgs, ProbeArg, RunArgs, policy_without_probe};
use crate::program::allowed;
use crate::{output, tell};
use anyhow::Context;
use evenly_linux::affinity;
use evenly_linux::mapping::Mapping;
use evenly_linux::share::{Choice, Real};
use evenly_linux::tuning;
use evenly_model::hpc::{Heuristic, Levels, Parameters};
use evenly_model::{CpuSet, Knowledge, Pid, Task, TaskGraph, Tid};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// What can do nothing without the probe.
pub(super) fn needs_probe(args: &RunArgs) -> Option<String> {
    let policy = args.balance.policy();
    let asked_for = args.balance.asked_policy.is_some();
    (policy.gives_weights() || policy.moves_within_phases() && asked_for)
        .then(|| format!("--policy {}", policy.name))
}

/// What needs no probe is the default where none is to be loaded, and beside a mapping, within which threads stay.
pub(super) fn choose_policy(args: &mut RunArgs) {
    let balance = &mut args.balance;
    let needs_none = args.probe == ProbeArg::Off || balance.map.is_some();
    if balance.asked_policy.is_none() && needs_none {
        balance.asked_policy = Some(policy_without_probe());
    }
}

/// `--probe off` beside what needs the probe is bad input.
pub(super) fn check_probe(args: &RunArgs) -> anyhow::Result<()> {
    match needs_probe(args).filter(|_| args.probe == ProbeArg::Off) {
        None => Ok(()),
        Some(what) => anyhow::bail!(
            "--probe off: {what} needs the probe, by which threads report when they wait; leave one of the \
             two out"
        ),
    }
}

/// Options that cannot work for a program that this process would start are bad input.
pub(crate) fn check_options(run: &RunArgs) -> anyhow::Result<()> {
    let args = &run.balance;
    check_probe(run)?;
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
pub(super) fn check_outputs(args: &BalanceArgs) -> anyhow::Result<()> {
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
/// it cannot use are reported, and returned as a note for the report.
pub(super) fn check_cpus(args: &BalanceArgs, allowed: &CpuSet) -> anyhow::Result<Vec<String>> {
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
pub(super) fn may_use(args: &BalanceArgs, program: Option<Pid>) -> anyhow::Result<CpuSet> {
    let found = allowed(program);
    if args.cpus.is_some() || args.map.is_some() { found } else { Ok(found.unwrap_or_default()) }
}

/// `--map`. A mapping of which no task can have its place is bad input; other problems with it
/// are reported, and added to the notes.
pub(super) fn mapping(
    args: &BalanceArgs,
    allowed: &CpuSet,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Mapping>> {
    let Some(path) = &args.map else { return Ok(None) };
    let file = path.display();
    anyhow::ensure!(
        !args.policy().only_watches(),
        "--map {file}: the policy {} moves nothing; take another, or leave --map out",
        args.policy().name
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

/// What a policy that places threads by load knows of machine and program; notes say what is unknown.
pub(super) fn knowledge(
    args: &BalanceArgs,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Arc<Knowledge>>> {
    let name = args.policy().name;
    if !args.policy().places_load() {
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
                    // A cache that all CPUs share does not distinguish them.
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
            notes.push(format!("{name}: the NUMA nodes are unknown, so only load counts: {e}"));
            Knowledge::even(vec![(0, CpuSet::new())], 1.0)
        }
    };
    knowledge.profile = profile;
    knowledge.every = args.every.unwrap_or(Knowledge::USUAL_EVERY);
    Ok(Some(Arc::new(knowledge)))
}

/// The parts of this machine at which counts of threads are made even: nodes, then caches, those of cores last. None
/// where nothing is known of them.
pub(super) fn levels() -> Levels {
    let Ok(machine) = evenly_topology::this_machine() else { return Levels::new() };
    let known = machine.knowledge();
    let nodes = known.nodes.into_iter().map(|(_, cpus)| cpus).collect();
    let caches = known.caches.into_iter().rev().map(|(_, caches)| caches);
    std::iter::once(nodes).chain(caches).collect()
}

/// The parameters of a policy that can be tuned (`--set`).
pub(super) fn parameters(args: &BalanceArgs) -> anyhow::Result<Parameters> {
    let mut parameters = Parameters::default();
    anyhow::ensure!(
        args.set.is_empty() || args.policy().gives_weights(),
        "--set: the policy {} has nothing that can be tuned; add --policy hpc-auto, or leave it out",
        args.policy().name
    );
    tuning::set(args.policy().name, &mut parameters, &args.set).context("--set")?;
    Ok(parameters)
}

/// A setting of the environment by which a runtime spins without end where it waits.
fn spin_setting(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
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
/// reported, and threads are only placed.
pub(super) fn check_shares(args: &BalanceArgs, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let choice: Choice = args.shares.into();
    let (asked, name) = (args.shares.name(), args.policy().name);
    if choice.gives_parts() {
        anyhow::ensure!(
            choice == Choice::Auto || args.policy().may_give_weights(),
            "--shares {asked}: the policy {name} gives threads no shares of CPUs; add --policy hpc-auto, or \
             leave --shares out"
        );
        return Ok(());
    }
    anyhow::ensure!(
        args.policy().gives_weights(),
        "--shares {asked}: the policy {name} gives no weights to threads; add --policy hpc-adaptive, or leave \
         it out"
    );
    if choice == Choice::RoundRobin {
        anyhow::ensure!(
            name != Heuristic::Auto.name(),
            "--shares {asked}: the policy {name} gives weights only to threads that spin while they wait, and \
             those are not raised above others; add --policy hpc-adaptive, or leave it out"
        );
        if let Some(setting) = spin_setting(|name| std::env::var(name).ok()) {
            anyhow::bail!(
                "--shares {asked}: with {setting} threads spin while they wait, and they would do so above \
                 all others; let them sleep (OMP_WAIT_POLICY=passive), or leave it out"
            );
        }
    }
    if let Some(missing) = choice.missing(&Real::default()) {
        let note =
            format!("{name}: threads are placed without shares, --shares {asked}: {missing}");
        if !args.quiet {
            tell(&format!("evenly: {note}"));
        }
        notes.push(note);
    }
    Ok(())
}

/// Whether the user has given messages.
pub(super) fn tells_messages(args: &BalanceArgs) -> bool {
    args.profile.is_some() || args.edges.is_some()
}

/// Where loads and messages are from, for the report, where the policy looks at them.
pub(super) fn messages_by(args: &BalanceArgs, counted: bool) -> Option<String> {
    let by = match (tells_messages(args), counted) {
        _ if !args.policy().places_load() => return None,
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
    Some(format!("{}: {by}", args.policy().name))
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
                args.policy().name
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

/// Whether affinity masks of the process may be changed at all.
pub(super) fn may_change(args: &BalanceArgs, pid: Pid) -> anyhow::Result<()> {
    if args.policy().only_watches() {
        return Ok(());
    }
    affinity::may_set(Tid(pid.0)).with_context(|| {
        format!(
            "process {pid} belongs to another user, and changing its affinity needs that user or \
             CAP_SYS_NICE (try: sudo evenly attach {pid})"
        )
    })
}
