//! A program of parallel loops under all ways of dividing its iterations.

use super::cluster::Cluster;
use super::program::{LoopError, LoopProgram, ParallelLoop};
use super::run::{Divides, LoopRun, OfLoop, run_loops};
use evenly_model::Nanos;
use rayon::prelude::*;
use serde::Serialize;

/// Where nothing is faster than the plain program by more than this part of its time, balancing gains nothing.
const GAINS: f64 = 0.02;

/// What follows the name of a way of dividing where processors cooperate.
const COOPERATES: &str = "+sch";
/// Where only the processors are used that nobody else uses.
const FREE_CPUS: &str = "free-cpus";

/// One way of dividing iterations, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopArm {
    /// Who divides: `plain`, or a policy; with `+sch` where processors cooperate. `free-cpus`: as plain, on those that nobody else
    /// uses.
    pub divides: String,
    /// Whether processors cooperate.
    pub cooperates: bool,
    /// Its time over that of `plain`.
    pub of_plain: f64,
    /// How often iterations of any loop were divided anew.
    pub divisions: u64,
    /// Of the iterations of [`LoopComparison::main`], the part that a processor had which others use, on average; None where
    /// there is none.
    pub loaded: Option<f64>,
    /// The same of processors that nobody else uses.
    pub free: Option<f64>,
    /// How many times as long as alone others take who compute, on the processor where that is most; None where there are none.
    pub others_take: Option<f64>,
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

/// One way of running a program.
struct Way<'c> {
    name: String,
    divides: Divides,
    on: &'c Cluster,
    /// Where not all processors are used: those that are.
    free: Option<Vec<usize>>,
}

impl Way<'_> {
    fn run(&self, program: &LoopProgram, seed: u64) -> Result<LoopRun, LoopError> {
        run_loops(self.on, program, self.divides, seed)
    }
}

/// Runs a program under all of [`Divides::all`], and on the free processors alone; where the cluster cooperates, without that first.
///
/// # Errors
/// [`LoopError`] where it cannot be run, or is too much.
pub fn compare_loops(
    cluster: &Cluster,
    program: &LoopProgram,
    seed: u64,
) -> Result<LoopComparison, LoopError> {
    let alone = Cluster { cooperates: None, ..cluster.clone() };
    let unloaded = alone.unloaded();
    let all = |on, more: &'static str| {
        let way = move |divides: Divides| {
            let name = format!("{divides}{more}");
            Way { name, divides, on, free: None }
        };
        Divides::all().into_iter().map(way)
    };
    let mut ways: Vec<Way<'_>> = all(&alone, "").collect();
    ways.extend(all(cluster, COOPERATES).filter(|_| cluster.cooperates.is_some()));
    ways.extend(unloaded.iter().map(|on| Way {
        name: FREE_CPUS.into(),
        divides: Divides::Plain,
        on,
        free: Some(cluster.free()),
    }));
    let runs = ways.par_iter().map(|way| way.run(program, seed));
    let runs = runs.collect::<Result<Vec<LoopRun>, LoopError>>()?;
    let (main, _) = (0..program.loops.len())
        .map(|l| (l, work(&program.loops[l], program.steps).0))
        .fold((0, 0.0), |most, next| if next.1 > most.1 { next } else { most });
    let plain = runs.first().map_or(1, |run| run.makespan.0.max(1)) as f64;
    let arm = |(way, run): (&Way<'_>, LoopRun)| {
        let run = match &way.free {
            Some(free) => of_all(run, free, cluster.memory.processors()),
            None => run,
        };
        LoopArm {
            divides: way.name.clone(),
            cooperates: way.on.cooperates.is_some(),
            of_plain: run.makespan.0 as f64 / plain,
            divisions: run.loops.iter().map(|l| l.divisions).sum(),
            loaded: share(&run, main, &cluster.loads, |load| load > 0.0),
            free: share(&run, main, &cluster.loads, |load| load <= 0.0),
            others_take: others_take(&run, &cluster.loads),
            run,
        }
    };
    let arms: Vec<LoopArm> = ways.iter().zip(runs).map(arm).collect();
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

/// What came of a run on the free processors, said of all: the others have had theirs for themselves.
fn of_all(run: LoopRun, free: &[usize], processors: usize) -> LoopRun {
    fn at<T: Copy>(values: &[T], free: &[usize], mut all: Vec<T>) -> Vec<T> {
        free.iter().zip(values).for_each(|(&p, value)| all[p] = *value);
        all
    }
    let of_loop =
        |l: OfLoop| OfLoop { iterations: at(&l.iterations, free, vec![0; processors]), ..l };
    LoopRun {
        others: at(&run.others, free, vec![1.0; processors]),
        powers: at(&run.powers, free, vec![0.0; processors]),
        loops: run.loops.into_iter().map(of_loop).collect(),
        ..run
    }
}

fn others_take(run: &LoopRun, loads: &[f64]) -> Option<f64> {
    let loaded = run.others.iter().zip(loads).filter(|(_, load)| **load > 0.0);
    let most = loaded.map(|(part, _)| 1.0 / part).max_by(f64::total_cmp)?;
    most.is_finite().then_some(most)
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
