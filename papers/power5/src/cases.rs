//! The paper's four programs, and what its Tables III to VI say of them.
//!
//! # What is fitted, and on what
//! Speeds and loads follow from the rows "Baseline" and "Static" alone; nothing is fitted on a row of a
//! heuristic. A speed of 1 is that of two tasks with equal priorities.
//!
//! **MetBench and MetBenchVar.** 81.78 s and 368.17 s are 10 and 45 iterations of the same 8.18 s. With an
//! initialisation of a fiftieth of an iteration (the paper's footnote 3 says that there is one, not how
//! long it is) an iteration takes u = 8.162 s.
//!
//! - Light load, P1: 25.34 % of u at speed 1, so 2.068 s.
//! - With fixed priorities of 4 and 6 both always compute: the light one is 2.068 s in 99.97 % of 70.90 /
//!   10.02 s, so low(2) = 0.2924.
//! - Heavy load: 2.068 s beside the other and 6.092 s alone; and 99.64 % of 7.076 s with a priority
//!   higher by 2. So 2.068 + 6.092 alone = 7.050 high(2). MetBenchVar's static row, in whose second
//!   period the light rank has the priority 6, takes 338.4 s with high(2) = 1.70: alone = 1.628. That
//!   a task beside a waiting one is no faster than with a priority higher by 2 says that the core is
//!   not wholly left to it: Linux's idle loop runs on the other context.
//! - Of a difference of 1 there is no row. low(1) is the geometric mean of 1 and low(2); high(1) lies
//!   between 1 and high(2) as its decode share (3/4) between 1/2 and 7/8.
//!
//! **BT-MZ.** P1 and P4 are on one core and P2 and P3 on the other: with priorities 4, 4, 5, 6 the time
//! that P1 computes grows 3.36 times, that of P2 1.19 times. Speeds: low(2) = 16.74 s / 56.25 s; low(1) =
//! 28.35 s / 33.62 s; high(2) is taken from MetBench, from which alone = 1.439 follows by P4 (16.74 s + 78.09 s
//! alone = 56.25 s high(2) + 23.26 s alone) and high(1) = 1.678 by P3. These are other speeds than those of
//! MetBench, as other programs need other parts of a core. That P3 is faster where P2 has a lower priority
//! than it says that they compute at the same time, so that P2 waits for P4, too: all are neighbours but
//! P1 and P3.
//!
//! **SIESTA.** There is no static row. That P1 is no faster and the others no slower in the class of HPC tasks,
//! although by the heuristics' limits P1 has the priority 6 and the others have 4 throughout, says that
//! priorities do not matter to it: [`SIESTA`] is indifferent to them. What it would be with the speeds of
//! MetBench is [`Case::with_speeds`]. 20,000 phases of about 4 ms are assumed ("the execution phases are very
//! small"), each ending in an exchange of 45 us, which is P1's 1.1 % of waiting. Latency over length of a phase
//! is all that the gain depends on; both are chosen, so that the paper's gain comes out is no result.
//!
//! The tasks of SIESTA "need to exchange several messages" in a phase (section V-D), and each that comes wakes its
//! receiver. How many each rank has the paper does not say. Here they are in proportion to what a rank
//! computes, one a phase for P1: latency takes the same part of every rank's computing then, and parts of
//! computing hardly change from class to class. That is nearer to Table VI, in which computing falls by 4.7 s
//! (P1) and 2.0 s (P2) and grows by 0.9 s and 0.4 s (P3 and P4), than one wake a phase of every rank, which
//! would take 5 s off each.

use super::{Need, Program, Speeds};
use evenly_model::stats::Random;

/// What the paper says of an arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperRow {
    /// `baseline`, `static`, or the name of a heuristic.
    pub arm: &'static str,
    /// % Comp of P1 to P4.
    pub computing_percent: [f64; 4],
    /// The column Exec. Time of the paper, in seconds.
    pub time_s: f64,
}

/// How often ranks are woken in an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wakes {
    /// Once, when the iteration begins.
    Once,
    /// So often in a mean iteration, and in each in proportion to what is computed in it.
    Proportional([f64; 4]),
}

/// How the loads of ranks vary.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Varying {
    /// All together, by this part either way, from one iteration to the next.
    together: f64,
    /// Each by itself, by this part either way.
    each: f64,
}

/// A program of the paper.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name of the case here.
    pub id: &'static str,
    /// As it is called.
    pub name: &'static str,
    /// What the case is, in a line.
    pub about: &'static str,
    /// The number of its table.
    pub table: &'static str,
    /// The priorities of the paper's static arm.
    pub fixed: Option<[u8; 4]>,
    /// The rows of its table.
    pub paper: &'static [PaperRow],
    /// The number of its iterations, the initialisation left out.
    pub iterations: usize,
    /// The initialisation as a part of an iteration; none where it is 0.
    initial: f64,
    /// How fast it is.
    pub speeds: Speeds,
    cores: [usize; 4],
    /// Seconds at speed 1, in the first period and in every other one.
    loads_s: [f64; 4],
    /// After so many iterations loads are reversed within cores.
    reversed_every: Option<usize>,
    varying: Varying,
    exchange_s: f64,
    wakes: Wakes,
    needs: fn() -> Vec<Vec<Need>>,
}

const METBENCH_SPEEDS: Speeds = Speeds { alone: 1.628, high: [1.467, 1.70], low: [0.5407, 0.2924] };
const LIGHT_S: f64 = 2.068;
const HEAVY_S: f64 = LIGHT_S + 6.092 * METBENCH_SPEEDS.alone;
const HARDLY: Varying = Varying { together: 0.0, each: 0.002 };

const fn row(arm: &'static str, computing_percent: [f64; 4], time_s: f64) -> PaperRow {
    PaperRow { arm, computing_percent, time_s }
}

/// Section V-A, Table III.
pub const METBENCH: Case = Case {
    id: "metbench",
    name: "MetBench",
    about: "two light and two heavy ranks at a barrier (Table III)",
    table: "III",
    fixed: Some([4, 6, 4, 6]),
    paper: &[
        row("baseline", [25.34, 99.98, 25.32, 99.97], 81.78),
        row("static", [99.97, 99.64, 99.95, 99.64], 70.90),
        row("hpc-uniform", [96.17, 98.57, 90.94, 99.57], 71.74),
        row("hpc-adaptive", [80.64, 99.52, 87.52, 99.20], 71.65),
    ],
    iterations: 10,
    initial: 0.02,
    speeds: METBENCH_SPEEDS,
    cores: [0, 0, 1, 1],
    loads_s: [LIGHT_S, HEAVY_S, LIGHT_S, HEAVY_S],
    reversed_every: None,
    varying: HARDLY,
    // P2 waits for 0.02 % of the time.
    exchange_s: 1e-3,
    wakes: Wakes::Once,
    needs: all_others,
};

/// Section V-B, Table IV: k = 15.
pub const METBENCH_VAR: Case = Case {
    id: "metbench-var",
    name: "MetBenchVar",
    about: "the same, with loads that are reversed twice (Table IV)",
    table: "IV",
    paper: &[
        row("baseline", [50.24, 75.09, 50.22, 75.08], 368.17),
        row("static", [99.97, 68.06, 99.94, 68.04], 338.40),
        row("hpc-uniform", [91.47, 95.55, 91.44, 95.33], 327.17),
        row("hpc-adaptive", [89.61, 93.08, 89.99, 95.15], 326.41),
    ],
    iterations: 45,
    reversed_every: Some(15),
    ..METBENCH
};

/// Section V-C, Table V: class A, 200 iterations of 0.475 s.
pub const BT_MZ: Case = Case {
    id: "bt-mz",
    name: "BT-MZ",
    about: "four unequal ranks that wait for neighbours (Table V)",
    table: "V",
    fixed: Some([4, 4, 5, 6]),
    paper: &[
        row("baseline", [17.63, 29.85, 66.09, 99.85], 94.97),
        row("static", [70.64, 42.22, 60.96, 99.85], 79.63),
        row("hpc-uniform", [70.31, 37.18, 65.29, 99.85], 79.81),
        row("hpc-adaptive", [70.31, 37.30, 65.30, 99.83], 79.92),
    ],
    iterations: 200,
    initial: 0.0,
    speeds: Speeds { alone: 1.439, high: [1.678, 1.70], low: [0.8432, 0.2977] },
    cores: [0, 1, 1, 0],
    // In 0.475 s: what each computes, that in which the other one waits at the speed of one alone.
    loads_s: [0.0837, 0.1417, 0.3894, 0.6455],
    reversed_every: None,
    varying: HARDLY,
    // P4 waits for 0.15 % of the time.
    exchange_s: 0.7e-3,
    wakes: Wakes::Once,
    needs: neighbours,
};

/// Section V-D, Table VI.
pub const SIESTA: Case = Case {
    id: "siesta",
    name: "SIESTA-like",
    about: "many short, irregular phases (Table VI)",
    table: "VI",
    fixed: None,
    paper: &[
        row("baseline", [98.90, 52.79, 28.45, 19.99], 81.49),
        row("hpc-uniform", [98.81, 53.38, 31.41, 21.68], 76.82),
        row("hpc-adaptive", [98.81, 53.40, 31.47, 21.71], 76.91),
    ],
    iterations: 20_000,
    initial: 0.0,
    speeds: Speeds::INDIFFERENT,
    cores: [0, 0, 1, 1],
    // Of 4.0745 ms each computes its part (Table VI, baseline), 6.2 % of that being latency: P1's 0.25 ms.
    loads_s: [3.780e-3, 2.0175e-3, 1.0873e-3, 0.7640e-3],
    reversed_every: None,
    varying: Varying { together: 0.6, each: 0.4 },
    exchange_s: 45e-6,
    // As parts of computing are to each other.
    wakes: Wakes::Proportional([1.0, 0.5338, 0.2877, 0.2021]),
    needs: one_in_the_middle,
};

/// All of them, in the order of the paper.
pub const CASES: [&Case; 4] = [&METBENCH, &METBENCH_VAR, &BT_MZ, &SIESTA];

/// The case of that name.
#[must_use]
pub fn case(id: &str) -> Option<&'static Case> {
    CASES.into_iter().find(|c| c.id == id)
}

impl Case {
    /// The program; equal seeds give equal loads.
    #[must_use]
    pub fn program(&self, seed: u64) -> Program {
        self.disturbed(seed, 0.0, 0.0)
    }

    /// The program, in which an iteration of a rank is with this probability longer by this part of
    /// itself, for reasons that lie outside of it.
    #[must_use]
    pub fn disturbed(&self, seed: u64, probability: f64, by: f64) -> Program {
        let mut random = Random::new(seed);
        let initial = usize::from(self.initial > 0.0);
        let (mut work_s, mut wakes) = (vec![Vec::new(); 4], vec![Vec::new(); 4]);
        for i in 0..self.iterations + initial {
            let around = |random: &mut Random, part: f64| 1.0 + part * (2.0 * random.unit() - 1.0);
            let all = around(&mut random, self.varying.together);
            let part = if i < initial { self.initial } else { 1.0 };
            let period = |k| (i - initial.min(i)) / k;
            let is_reversed = self.reversed_every.is_some_and(|k| period(k) % 2 == 1);
            for (rank, work) in work_s.iter_mut().enumerate() {
                let of = if is_reversed { rank ^ 1 } else { rank };
                let one = around(&mut random, self.varying.each);
                let more = if random.unit() < probability { 1.0 + by } else { 1.0 };
                let varied = part * all * one * more;
                work.push(self.loads_s[of] * varied);
                wakes[rank].push(match self.wakes {
                    Wakes::Once => 1.0,
                    Wakes::Proportional(mean) => mean[of] * varied,
                });
            }
        }
        Program {
            work_s,
            initial,
            wakes,
            cores: self.cores.to_vec(),
            needs: (self.needs)(),
            exchange_s: self.exchange_s,
            speeds: self.speeds,
        }
    }

    /// The same with so many iterations.
    #[must_use]
    pub fn lasting(&self, iterations: usize) -> Self {
        Self { iterations, ..*self }
    }

    /// The same loads at the baseline, with other speeds. Exact where all ranks begin together.
    #[must_use]
    pub fn with_speeds(&self, speeds: Speeds) -> Self {
        let of = |rank: usize| {
            let beside = |o: &usize| *o != rank && self.cores[*o] == self.cores[rank];
            let other = (0..4).find(beside).map_or(0.0, |o| self.loads_s[o]);
            // Both as they are now: a time beside the other, and one alone.
            let (own, was) = (self.loads_s[rank], self.speeds.alone);
            let together = own.min(other);
            let alone_s = (own - together) / was;
            together + alone_s * speeds.alone
        };
        Self { loads_s: [0, 1, 2, 3].map(of), speeds, ..*self }
    }
}

fn need(from: usize) -> Need {
    Need { from, ahead: 0 }
}

/// A barrier: the master starts an iteration when all workers have ended the one before.
fn all_others() -> Vec<Vec<Need>> {
    (0..4).map(|rank| (0..4).filter(|from| *from != rank).map(need).collect()).collect()
}

/// All but P1 and P3 have common boundaries.
fn neighbours() -> Vec<Vec<Need>> {
    [&[1, 3][..], &[0, 2, 3], &[1, 3], &[0, 1, 2]]
        .map(|of| of.iter().copied().map(need).collect())
        .to_vec()
}

/// All wait for P1; P1 needs what the others made of what it sent some phases ago.
fn one_in_the_middle() -> Vec<Vec<Need>> {
    let first = (1..4).map(|from| Need { from, ahead: 8 }).collect();
    vec![first, vec![need(0)], vec![need(0)], vec![need(0)]]
}
