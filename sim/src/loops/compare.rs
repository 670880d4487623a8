//! A program of parallel loops under all ways of dividing its iterations.

use super::cluster::Cluster;
use super::program::{LoopError, LoopProgram, ParallelLoop};
use super::run::{Divides, LoopRun, run_loops};
use evenly_model::Nanos;
use rayon::prelude::*;
use serde::Serialize;

/// Where nothing is faster than the plain program by more than this part of its time, balancing gains nothing.
const GAINS: f64 = 0.02;

/// One way of dividing iterations, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopArm {
    /// Who divides: `plain`, or a policy.
    pub divides: String,
    /// Its time over that of `plain`.
    pub of_plain: f64,
    /// How often iterations of any loop were divided anew.
    pub divisions: u64,
    /// Of the iterations of [`LoopComparison::main`], the part that a processor had which others use, on average; None where
    /// there is none.
    pub loaded: Option<f64>,
    /// The same of processors that nobody else uses.
    pub free: Option<f64>,
    /// All that came of it.
    #[serde(flatten)]
    pub run: LoopRun,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopComparison {
    /// How often the loops are carried out.
    pub steps: u64,
    /// The node of each processor.
    pub nodes: Vec<usize>,
    /// The part of each processor that others use.
    pub loads: Vec<f64>,
    /// Of the random numbers.
    pub seed: u64,
    /// The loop that computes most.
    pub main: String,
    /// The time in which the processors would have done all work if each did as much as is free of it, and neither memory nor
    /// barriers took any.
    #[serde(rename = "limit_ns")]
    pub limit: Nanos,
    /// The fastest of [`LoopComparison::arms`].
    pub best: String,
    /// Whether it is faster than `plain` by more than 2 %.
    pub gains: bool,
    /// `plain` first.
    pub arms: Vec<LoopArm>,
}

/// Runs a program under all of [`Divides::all`].
///
/// # Errors
/// [`LoopError`] where it cannot be run, or is too much.
pub fn compare_loops(
    cluster: &Cluster,
    program: &LoopProgram,
    seed: u64,
) -> Result<LoopComparison, LoopError> {
    let one = |divides: &Divides| run_loops(cluster, program, *divides, seed);
    let divides = Divides::all();
    let runs = divides.par_iter().map(one).collect::<Result<Vec<LoopRun>, LoopError>>()?;
    let (main, _) = (0..program.loops.len())
        .map(|l| (l, work(&program.loops[l], program.steps).0))
        .fold((0, 0.0), |most, next| if next.1 > most.1 { next } else { most });
    let plain = runs.first().map_or(1, |run| run.makespan.0.max(1)) as f64;
    let arm = |(divides, run): (&Divides, LoopRun)| LoopArm {
        divides: divides.to_string(),
        of_plain: run.makespan.0 as f64 / plain,
        divisions: run.loops.iter().map(|l| l.divisions).sum(),
        loaded: share(&run, main, &cluster.loads, |load| load > 0.0),
        free: share(&run, main, &cluster.loads, |load| load <= 0.0),
        run,
    };
    let arms: Vec<LoopArm> = divides.iter().zip(runs).map(arm).collect();
    // The first of equals.
    let best = arms.iter().min_by_key(|arm| arm.run.makespan);
    Ok(LoopComparison {
        steps: program.steps,
        nodes: cluster.memory.nodes.clone(),
        loads: cluster.loads.clone(),
        seed,
        main: program.loops.get(main).map(|l| l.name.clone()).unwrap_or_default(),
        limit: limit(cluster, program),
        gains: best.is_some_and(|best| best.of_plain < 1.0 - GAINS),
        best: best.map(|best| best.divides.clone()).unwrap_or_default(),
        arms,
    })
}

/// CPU time of all iterations of a loop, and of what one processor does after it, in ns.
fn work(of: &ParallelLoop, steps: u64) -> (f64, f64) {
    let in_step = |step| of.work_ns(step) * of.bounds(step).count().unwrap_or(0) as f64;
    let alone = of.alone.map_or(0.0, |work| work.0 as f64);
    ((0..steps).map(in_step).sum(), alone * steps as f64)
}

fn limit(cluster: &Cluster, program: &LoopProgram) -> Nanos {
    let free: f64 = cluster.loads.iter().map(|load| 1.0 - load).sum();
    let of_loop = |of: &ParallelLoop| {
        let (together, alone) = work(of, program.steps);
        together / free + alone
    };
    Nanos(program.loops.iter().map(of_loop).sum::<f64>() as u64)
}

/// Of a loop's iterations, the part that each of these processors had, on average.
fn share(run: &LoopRun, main: usize, loads: &[f64], is_one: fn(f64) -> bool) -> Option<f64> {
    let iterations = &run.loops.get(main)?.iterations;
    let all: u64 = iterations.iter().sum();
    let own: Vec<u64> =
        iterations.iter().zip(loads).filter(|(_, load)| is_one(**load)).map(|(n, _)| *n).collect();
    let part = own.iter().sum::<u64>() as f64 / all.max(1) as f64;
    (!own.is_empty()).then(|| part / own.len() as f64)
}
