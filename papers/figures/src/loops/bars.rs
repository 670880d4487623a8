//! Six kernels under all arms, while others use more and more of the processors.

use crate::FigureError;
use crate::runs::{mean, range};
use evenly_iterations::Policy;
use evenly_sim::{Cluster, Divides, LOOP_KERNELS, LoopKernel, LoopProgram, LoopRun, run_loops};
use rayon::prelude::*;

pub(super) const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// How many processors are loaded, and how many of each of the four nodes.
pub(super) const LOADED: [(usize, [usize; 4]); 5] =
    [(0, [0, 0, 0, 0]), (1, [1, 0, 0, 0]), (2, [2, 0, 0, 0]), (4, [2, 1, 1, 0]), (8, [2, 2, 2, 2])];
/// The place of eight in it.
pub(super) const EIGHT: usize = 4;

pub(super) const PLAIN: usize = 0;
/// The paper's: by powers between nodes, and by stealing within them.
pub(super) const LB: usize = 1;
/// The scheduler of the loaded processors cooperates.
pub(super) const SCH: usize = 2;
pub(super) const LB_SCH: usize = 3;
pub(super) const RP: usize = 4;
/// Only the processors are used that are not loaded.
pub(super) const FREE: usize = 5;

/// Which processors are used, and how they are scheduled.
#[derive(Debug, Clone, Copy)]
enum On {
    All,
    Cooperating,
    Free,
}

#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) divides: Divides,
    on: On,
}

const fn arm(name: &'static str, divides: Divides, on: On) -> Arm {
    Arm { name, divides, on }
}

pub(super) const ARMS: [Arm; 6] = [
    arm("plain", Divides::Plain, On::All),
    arm("LB (rp-steal)", Divides::By(Policy::RpSteal), On::All),
    arm("SCH", Divides::Plain, On::Cooperating),
    arm("LB+SCH", Divides::By(Policy::RpSteal), On::Cooperating),
    arm("rp: no stealing", Divides::By(Policy::Rp), On::All),
    arm("unloaded only", Divides::Plain, On::Free),
];

impl Arm {
    fn cluster(&self, loaded: [usize; 4]) -> Cluster {
        let load = |p: usize| if p % 4 < loaded[p / 4] { 0.5 } else { 0.0 };
        let all = Cluster::of_paper(4, 4, &(0..16).map(load).collect::<Vec<f64>>());
        match self.on {
            On::All => all,
            On::Cooperating => all.cooperating(),
            // Where none is loaded these are all.
            On::Free => all.unloaded().unwrap_or(all),
        }
    }

    pub(super) fn cell(
        &self,
        program: &LoopProgram,
        loaded: [usize; 4],
    ) -> Result<Cell, FigureError> {
        Cell::of(&self.cluster(loaded), program, self.divides)
    }
}

/// What came of an arm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) seconds: f64,
    pub(super) transfers: f64,
    pub(super) messages: f64,
    pub(super) barriers: u64,
    /// How many times as long as alone those take who compute on loaded processors: the least and the most.
    pub(super) others_take: Option<(f64, f64)>,
}

impl Cell {
    pub(super) fn of(
        cluster: &Cluster,
        program: &LoopProgram,
        divides: Divides,
    ) -> Result<Self, FigureError> {
        let one = |seed| Ok(run_loops(cluster, program, divides, seed)?);
        let all = SEEDS.map(one).collect::<Result<Vec<LoopRun>, FigureError>>()?;
        let mean = |of: &dyn Fn(&LoopRun) -> f64| mean(&all.iter().map(of).collect::<Vec<_>>());
        let is_loaded = |p: usize| cluster.loads.get(p).is_some_and(|load| *load > 0.0);
        let parts = all.iter().flat_map(|run| run.others.iter().enumerate());
        let take: Vec<f64> =
            parts.filter(|(p, _)| is_loaded(*p)).map(|(_, part)| 1.0 / part).collect();
        Ok(Self {
            seconds: mean(&|run| run.makespan.as_secs_f64()),
            transfers: mean(&|run| run.transfers as f64),
            messages: mean(&|run| run.messages as f64),
            barriers: all[0].barriers,
            others_take: (!take.is_empty()).then(|| range(take)),
        })
    }
}

/// A kernel, by how many are loaded and by arm.
pub(super) struct Bars {
    pub(super) kernel: &'static LoopKernel,
    pub(super) cells: Vec<Vec<Cell>>,
}

impl Bars {
    /// All kernels, in the order of the paper.
    pub(super) fn all() -> Result<Vec<Self>, FigureError> {
        LOOP_KERNELS.par_iter().map(Self::of).collect()
    }

    fn of(kernel: &'static LoopKernel) -> Result<Self, FigureError> {
        let program = (kernel.program)();
        let arms = |(_, loaded)| {
            ARMS.par_iter().map(|arm| arm.cell(&program, loaded)).collect::<Result<Vec<_>, _>>()
        };
        let cells = LOADED.into_par_iter().map(arms).collect::<Result<Vec<_>, FigureError>>()?;
        Ok(Self { kernel, cells })
    }

    pub(super) fn name(&self) -> &'static str {
        self.kernel.name
    }

    /// The time over that of plain without load.
    pub(super) fn time(&self, loaded: usize, arm: usize) -> f64 {
        self.cells[loaded][arm].seconds / self.cells[0][PLAIN].seconds
    }

    /// By how many per cent it is less than plain's.
    pub(super) fn less(&self, loaded: usize, arm: usize) -> f64 {
        let cells = &self.cells[loaded];
        100.0 * (1.0 - cells[arm].seconds / cells[PLAIN].seconds)
    }

    /// The same for all numbers of loaded processors but 0: the least and the most.
    pub(super) fn less_range(&self, arm: usize) -> (f64, f64) {
        range((1..LOADED.len()).map(|loaded| self.less(loaded, arm)))
    }

    /// The time over that of plain without load, for all numbers of loaded processors but 0.
    pub(super) fn times(&self, arm: usize) -> (f64, f64) {
        range((1..LOADED.len()).map(|loaded| self.time(loaded, arm)))
    }
}
