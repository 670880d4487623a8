//! `evenly simulate --loops`: parallel loops under all ways of dividing their iterations, on all processors and on those that are free.

use super::read;
use crate::flags::{LoopsArg, SimulateArgs};
use crate::{End, output};
use anyhow::Context;
use evenly_model::{CpuId, CpuSet, Nanos, counted};
use evenly_sim::{
    DescribedLoops, LoopArm, LoopComparison, LoopMachine, compare_loops, parse_loops,
};
use std::fmt::Write as _;
use std::path::Path;

const SCHEMA: &str = "evenly.simulate-loops/1";

/// What others use of a CPU where nothing else is said.
const LOAD: f64 = 0.5;

/// A longer list of CPUs is not shown.
const LONGEST: usize = 24;

pub(super) fn compared(
    args: &SimulateArgs,
    what: &LoopsArg,
    json: Option<&Path>,
) -> anyhow::Result<End> {
    let (name, described) = match what {
        LoopsArg::Kernel(kernel) => {
            let described =
                DescribedLoops { program: (kernel.program)(), machine: LoopMachine::default() };
            (kernel.name.to_owned(), described)
        }
        LoopsArg::File(path) => {
            let cannot = || format!("cannot read the loops {}", path.display());
            let text = read(path).with_context(cannot)?;
            (path.display().to_string(), parse_loops(&text).with_context(cannot)?)
        }
    };
    let machine = machine(args, described.machine)?;
    let loads = loads(args, &machine)?;
    let cluster = machine.cluster(&loads);
    let cluster = if args.cooperate { cluster.cooperating() } else { cluster };
    let compared = compare_loops(&cluster, &described.program, args.seed.unwrap_or(1))
        .with_context(|| format!("--loops {name}"))?;
    let mut value = serde_json::to_value(&compared)?;
    value["schema"] = SCHEMA.into();
    value["program"] = name.as_str().into();
    output::say(&text(&name, &machine, &compared), json, || value)
}

/// What is given counts more than what stands in a file.
fn machine(args: &SimulateArgs, described: LoopMachine) -> anyhow::Result<LoopMachine> {
    let given = |given: Option<u32>, described| given.map_or(described, |n| n as usize);
    let (nodes, processors) =
        (given(args.nodes, described.nodes), given(args.cpus, described.processors));
    anyhow::ensure!(
        processors.is_multiple_of(nodes),
        "--cpus: {processors} is no multiple of {nodes} nodes; give both --nodes and --cpus"
    );
    Ok(LoopMachine { nodes, processors, ..described })
}

/// What others use of each processor.
fn loads(args: &SimulateArgs, machine: &LoopMachine) -> anyhow::Result<Vec<f64>> {
    let last = machine.processors.saturating_sub(1);
    let loaded = |p: usize| match &args.loaded {
        Some(list) => list.contains(CpuId(p as u32)),
        None if machine.each() == 1 => p.is_multiple_of(2),
        None => p % machine.each() < machine.each() / 2,
    };
    if let Some(cpu) = args.loaded.iter().flat_map(CpuSet::iter).find(|c| c.0 as usize > last) {
        anyhow::bail!("--loaded: there is no CPU {cpu}; the last is {last}");
    }
    let load = args.load.unwrap_or(LOAD);
    Ok((0..machine.processors).map(|p| if loaded(p) { load } else { 0.0 }).collect())
}

fn text(name: &str, machine: &LoopMachine, c: &LoopComparison) -> String {
    let mut t = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        t,
        "{name}: {} on {} of {}\n{}",
        counted(c.steps, "step"),
        counted(machine.nodes as u64, "node"),
        counted(machine.each() as u64, "processor"),
        others(&c.loads)
    );
    let _ = writeln!(
        t,
        "  {:<16} {:>8} {:>8} {:>9} {:>8} {:>7} {:>7}   % of {}",
        "",
        "",
        "of",
        "waiting,",
        "pages",
        "divided",
        "others",
        if c.main.is_empty() { "all iterations" } else { &c.main },
    );
    let _ = writeln!(
        t,
        "  {:<16} {:>8} {:>8} {:>9} {:>8} {:>7} {:>7}   to each loaded, free CPU",
        "divides", "time, s", "plain", "%", "moved", "anew", "take"
    );
    c.arms.iter().for_each(|arm| row(&mut t, arm));
    let seconds = |time: Nanos| time.as_secs_f64();
    let best = c.arms.iter().find(|arm| arm.divides == c.best);
    let best = best.map_or(1.0, |arm| arm.of_plain);
    let gain = if c.gains {
        format!("best: {}, {best:.3} of plain", c.best)
    } else {
        format!("balancing gains nothing here: plain is within 2 % of the best, {}", c.best)
    };
    let _ = writeln!(
        t,
        "{gain}\nlimit: {:.3} s, where each processor does as much as is free of it, and nothing else takes time",
        seconds(c.limit)
    );
    t
}

fn row(t: &mut String, arm: &LoopArm) {
    let percent = |part: Option<f64>| part.map_or("-".into(), |p| format!("{:.2}", 100.0 * p));
    let others = arm.others_take.map_or("-".into(), |times| format!("{times:.2}x"));
    let _ = writeln!(
        t,
        "  {:<16} {:>8.3} {:>8.3} {:>9.1} {:>8} {:>7} {:>7}   {:>6} {:>6}",
        arm.divides,
        arm.run.makespan.as_secs_f64(),
        arm.of_plain,
        100.0 * arm.run.waited,
        arm.run.transfers,
        arm.divisions,
        others,
        percent(arm.loaded),
        percent(arm.free)
    );
}

/// Who uses the processors besides.
fn others(loads: &[f64]) -> String {
    let loaded = loads.iter().enumerate().filter(|(_, load)| **load > 0.0);
    let cpus: CpuSet = loaded.clone().map(|(p, _)| CpuId(p as u32)).collect();
    let (count, mut list) = (cpus.len(), cpus.to_string());
    if list.len() > LONGEST {
        list = format!("{count} of {}", loads.len());
    }
    match loaded.map(|(_, load)| *load).next() {
        Some(load) => format!("others use {} % of CPUs {list}", (1e4 * load).round() / 1e2),
        None => String::from("nobody else uses its CPUs"),
    }
}
