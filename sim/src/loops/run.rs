//! Programs of parallel loops, from their begin to their end.

use super::cluster::Cluster;
use super::instance::{Ended, Instance, Machine};
use super::program::{LoopError, LoopProgram, ParallelLoop};
use evenly_iterations::{Common, Memory, Outcome, Policy, Processor, Scheduler};
use evenly_model::Nanos;
use serde::Serialize;
use std::fmt;

/// Who decides which processor carries out what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divides {
    /// Nobody: each processor keeps the equal share that it had first, by blocks or in turn, as is declared.
    Plain,
    /// A policy.
    By(Policy),
}

impl Divides {
    /// All that there are.
    #[must_use]
    pub fn all() -> Vec<Self> {
        std::iter::once(Self::Plain).chain(Policy::ALL.map(Self::By)).collect()
    }
}

impl fmt::Display for Divides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.pad("plain"),
            Self::By(policy) => policy.fmt(f),
        }
    }
}

/// What came of a loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfLoop {
    /// Its name.
    pub name: String,
    /// How its iterations were handed out at the end.
    pub policy: String,
    /// How often iterations were divided anew.
    pub divisions: u64,
    /// Iterations that each processor has carried out.
    pub iterations: Vec<u64>,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopRun {
    /// From begin to end.
    #[serde(rename = "makespan_ns")]
    pub makespan: Nanos,
    /// Barriers that all have passed.
    pub barriers: u64,
    /// Pages that went from one node to another.
    pub transfers: u64,
    /// Pages of which it had to be found out what was written.
    pub diffs: u64,
    /// Messages between nodes: two for each page, and those of barriers, locks and common queues.
    pub messages: u64,
    /// Of all processors' time, the part in which they waited at barriers.
    pub waited: f64,
    /// Of the time, the part in which others had each processor.
    pub others: Vec<f64>,
    /// The power of each processor, at the end.
    pub powers: Vec<f64>,
    /// By loop.
    pub loops: Vec<OfLoop>,
}

/// A loop, and what is known of it so far.
struct Known {
    scheduler: Scheduler,
    iterations: Vec<u64>,
    busy_ns: Vec<u64>,
}

/// Runs a program on a cluster, all of it.
///
/// # Errors
/// [`LoopError`] where it cannot be run, or is too much.
pub fn run_loops(
    cluster: &Cluster,
    program: &LoopProgram,
    divides: Divides,
    seed: u64,
) -> Result<LoopRun, LoopError> {
    program.check(cluster)?;
    let processors = cluster.memory.processors();
    let (policy, memory) = match divides {
        // Neither where data are nor what moves together matters to whoever gives the same to all.
        Divides::Plain => (Policy::Rp, Memory::of_one_node(processors, 1)),
        Divides::By(policy) => (policy, cluster.memory.clone()),
    };
    let known = |l: &ParallelLoop| Known {
        scheduler: Scheduler::new(l.region.clone(), policy, memory.clone()),
        iterations: vec![0; processors],
        busy_ns: vec![0; processors],
    };
    let mut loops: Vec<Known> = program.loops.iter().map(known).collect();
    let mut machine = Machine::new(cluster, program, seed);
    let mut common = Common::new(processors);
    let (mut at, mut barriers, mut waited) = (0, 0, 0_u64);
    for step in 0..program.steps {
        for (of, known) in program.loops.iter().zip(&mut loops) {
            let bounds = of.bounds(step);
            let plan = known.scheduler.begin(&mut common, bounds, 0).0.clone();
            let done: Vec<(u64, u64)> =
                known.iterations.iter().copied().zip(known.busy_ns.iter().copied()).collect();
            let ended = Instance::new(&mut machine, of, step, &plan, &done).carry_out(at);
            let last = ended.arrived.iter().copied().max().unwrap_or(at);
            waited += ended.arrived.iter().map(|&arrived| last - arrived).sum::<u64>();
            add(known, &ended);
            if divides != Divides::Plain {
                let (measured, makespan) = (&ended.measured[..], Nanos(last - at));
                let carried_out = ended.carried_out.as_deref();
                let outcome = Outcome { measured, makespan, carried_out };
                known.scheduler.end(&mut common, outcome);
            }
            at = machine.barrier(last);
            barriers += 1;
            if let Some(work) = of.alone {
                let first = plan.owners().first().copied().unwrap_or(0);
                at = alone(&mut machine, first, at, work);
                barriers += 1;
            }
        }
    }
    let all = at.max(1) as f64 * processors as f64;
    let of_loop = |(of, known): (&ParallelLoop, Known)| OfLoop {
        name: of.name.clone(),
        policy: match divides {
            Divides::Plain => divides.to_string(),
            Divides::By(_) => known.scheduler.policy().to_string(),
        },
        divisions: known.scheduler.divisions(),
        iterations: known.iterations,
    };
    let others = machine.cpus.iter_mut();
    let others = others.map(|cpu| cpu.others(at) as f64 / at.max(1) as f64).collect();
    Ok(LoopRun {
        makespan: Nanos(at),
        barriers,
        transfers: machine.transfers,
        diffs: machine.diffs,
        messages: machine.messages,
        waited: waited as f64 / all,
        others,
        powers: common.powers.get().to_vec(),
        loops: program.loops.iter().zip(loops).map(of_loop).collect(),
    })
}

fn add(known: &mut Known, ended: &Ended) {
    for (p, measured) in ended.measured.iter().enumerate() {
        known.iterations[p] += measured.iterations;
        if measured.iterations > 0 {
            known.busy_ns[p] += measured.time.0;
        }
    }
}

/// When all have passed a further barrier, before which one of them has done this work.
fn alone(machine: &mut Machine<'_>, p: Processor, at: u64, work: Nanos) -> u64 {
    let done = machine.cpus[p].computes(at, work.0);
    let last = machine.cpus.iter_mut().map(|cpu| cpu.on(at)).max().unwrap_or(at);
    machine.barrier(last.max(done))
}
