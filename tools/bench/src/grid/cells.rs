//! The cells of the grid: how threads wait, how long phases are, how many threads there are, who is beside them, and whether
//! they have the same to do.

use crate::commands::{Program, metbench, openmp, spmd};
use crate::mpi::MpiArg;

/// How threads wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Spmd(&'static str),
    OpenMp(&'static str),
    Mpi(MpiArg),
}

/// By name.
pub(super) const WAITS: [(&str, Waits); 7] = [
    ("block", Waits::Spmd("block")),
    ("yield", Waits::Spmd("yield")),
    ("spin", Waits::Spmd("spin")),
    ("libgomp", Waits::OpenMp("omp_spmd-gomp")),
    ("libomp", Waits::OpenMp("omp_spmd-omp")),
    ("openmpi", Waits::Mpi(MpiArg::Openmpi)),
    ("mpich", Waits::Mpi(MpiArg::Mpich)),
];
/// By name, in microseconds.
pub(super) const PHASES: [(&str, u64); 6] = [
    ("20us", 20),
    ("200us", 200),
    ("2ms", 2_000),
    ("20ms", 20_000),
    ("200ms", 200_000),
    ("4s", 4_000_000),
];
pub(super) const THREADS: [u32; 4] = [2, 3, 4, 5];
/// Whether a program that computes is beside them, and whether they have unequal work.
pub(super) const BESIDE: [(bool, bool); 4] =
    [(false, false), (true, false), (false, true), (true, true)];

/// A cell of the grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) waits: (&'static str, Waits),
    pub(super) phase: (&'static str, u64),
    pub(super) threads: u32,
    /// A program of one thread that computes runs beside it.
    pub(super) hog: bool,
    /// The first thread has half the work of the mean, the last one and a half times as much.
    pub(super) unequal: bool,
}

pub(super) fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for waits in WAITS {
        for threads in THREADS {
            for (hog, unequal) in BESIDE {
                all.extend(PHASES.map(|phase| Cell { waits, phase, threads, hog, unequal }));
            }
        }
    }
    all
}

impl Cell {
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.row(), self.phase.0)
    }

    /// All but the phases.
    pub(super) fn row(&self) -> String {
        let mut name = format!("{}-{}", self.waits.0, self.threads);
        if self.hog {
            name.push_str("-hog");
        }
        if self.unequal {
            name.push_str("-unequal");
        }
        name
    }

    /// For people.
    pub(super) fn what(&self) -> String {
        let beside = beside((self.hog, self.unequal));
        format!("{}, {} threads, {}, {beside}", self.waits.0, self.threads, self.phase.0)
    }

    /// How much work each thread has, the mean being 1.
    pub(super) fn loads(&self) -> Vec<f64> {
        let most = f64::from(self.threads.max(2) - 1);
        let load = |i| if self.unequal { 0.5 + f64::from(i) / most } else { 1.0 };
        (0..self.threads).map(load).collect()
    }

    /// How many phases take so long with as many threads as CPUs, in seconds.
    pub(super) fn phases(&self, seconds: u32) -> u64 {
        (u64::from(seconds) * 1_000_000 / self.phase.1).max(1)
    }

    /// The program, and the words of its command with so many iterations in a millisecond.
    pub(super) fn command(&self, seconds: u32, per_ms: u64) -> (Program, Vec<String>) {
        let phases = self.phases(seconds);
        let iterations = (self.phase.1 * per_ms / 1_000).max(1);
        let list =
            self.loads().iter().map(|load| format!("{load:.3}")).collect::<Vec<_>>().join(",");
        let (program, mut words) = match self.waits.1 {
            Waits::Spmd(barrier) => {
                (Program::Workload, spmd(barrier, self.threads, phases, iterations))
            }
            Waits::OpenMp(program) => {
                (Program::Workload, openmp(program, self.threads, phases, iterations))
            }
            Waits::Mpi(mpi) => (Program::Ranks(mpi), metbench("barrier", phases, iterations)),
        };
        if self.unequal {
            let option =
                if matches!(program, Program::Ranks(_)) { "--loads" } else { "--imbalance" };
            words.extend([option.to_owned(), list]);
        }
        (program, words)
    }
}

/// Who is beside them, and whether they have unequal work, for people.
pub(super) fn beside((hog, unequal): (bool, bool)) -> &'static str {
    match (hog, unequal) {
        (false, false) => "alone",
        (true, false) => "beside a hog",
        (false, true) => "alone, unequal",
        (true, true) => "hog, unequal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_the_same_work() {
        let all = cells();
        let names: std::collections::BTreeSet<String> = all.iter().map(Cell::name).collect();
        assert_eq!((names.len(), all.len()), (7 * 4 * 4 * 6, 7 * 4 * 4 * 6));
        for cell in &all {
            let mean = cell.loads().iter().sum::<f64>() / f64::from(cell.threads);
            assert!((mean - 1.0).abs() < 1e-12, "{}", cell.name());
        }
    }
}
