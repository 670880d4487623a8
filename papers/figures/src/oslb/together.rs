//! Figures 7 and 8 and Table 2: nine programs at once, ten times.

use super::programs::{self, Balancing, POINT, WORK};
use crate::runs::{mean, ms, range, variance};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::number;
use evenly_draw::{Axis, Chart, Look, Scale, Series};
use evenly_sim::Barrier;
use rayon::prelude::*;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

/// Ten runs of one kind.
struct Runs {
    /// When each program ended, by run.
    ends: Vec<Vec<f64>>,
    /// When all programs had ended, in seconds, by run.
    totals: Vec<f64>,
}

impl Runs {
    fn new(barrier: Barrier, balances: bool, balancing: Balancing) -> Result<Self, FigureError> {
        let one = |seed| programs::ends(&programs::all(WORK, barrier, balances, seed), balancing);
        let ends: Vec<Vec<f64>> = SEEDS.into_par_iter().map(one).collect::<Result<_, _>>()?;
        let totals = ends.iter().map(|r| range(r.iter().copied()).1).collect();
        Ok(Self { ends, totals })
    }

    fn mean(&self) -> f64 {
        mean(&self.totals)
    }

    fn max_over_min(&self) -> f64 {
        let (least, most) = range(self.totals.iter().copied());
        most / least
    }

    /// Mean time of a program.
    fn of(&self, program: usize) -> f64 {
        mean(&self.ends.iter().map(|r| r[program]).collect::<Vec<_>>())
    }

    fn by_run(&self) -> Vec<(f64, f64)> {
        self.totals.iter().enumerate().map(|(i, &t)| (i as f64 + 1.0, t)).collect()
    }
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let oslb = Balancing::Oslb(ms(100));
    let pulls = Runs::new(Barrier::Spin, false, Balancing::Kernel)?;
    let balances = Runs::new(Barrier::Spin, true, Balancing::Kernel)?;
    let balanced = Runs::new(Barrier::Spin, false, oslb)?;
    let sleeping = Runs::new(Barrier::Block, false, Balancing::Kernel)?;
    let sleeping_balanced = Runs::new(Barrier::Block, false, oslb)?;
    let speedups = |kernel: &Runs| -> Vec<(f64, f64)> {
        (0..programs::PHASES.len()).map(|p| (p as f64, kernel.of(p) / balanced.of(p))).collect()
    };
    let (over_pulls, over_balances) = (speedups(&pulls), speedups(&balances));
    let gain = |kernel: &Runs, oslb: &Runs| 100.0 * (kernel.mean() / oslb.mean() - 1.0);
    let each = range(over_pulls.iter().map(|p| 100.0 * (p.1 - 1.0)));
    let single = over_pulls.last().map_or(f64::NAN, |p| 100.0 * (p.1 - 1.0));
    let table = |r: &Runs| {
        format!("{:.2} s, {:.3}, {:.2}", r.mean(), variance(&r.totals), r.max_over_min())
    };
    let (much, little) = (gain(&pulls, &balanced), gain(&balances, &balanced));
    let steadier = variance(&balanced.totals) < variance(&pulls.totals)
        && balanced.max_over_min() < pulls.max_over_min();
    let findings = vec![
        Finding {
            paper: "all programs together end 40 % faster than under Linux",
            here: format!(
                "{much:.0} % where the kernel only pulls threads to idle CPUs, and threads that spin \
                 leave none idle. Against a kernel that balances the numbers of threads there is nothing \
                 to gain ({little:.0} %: each CPU then has as many threads as any other), and nothing \
                 where threads sleep at barriers ({:.0} %: no CPU is idle before the end, and none \
                 wastes time). The gain is that of spreading threads evenly; memory and caches, which \
                 the paper's programs use, are not simulated",
                gain(&sleeping, &sleeping_balanced)
            ),
            agrees: Agrees::when(much.min(little) > 30.0, (much - 40.0).abs() < 25.0),
        },
        Finding {
            paper: "Table 2, mean, variance and max/min: 1051.54 s, 550.78, 1.07 under Linux; 753.76 s, \
                    38.34, 1.03 under OSLB: more consistent",
            here: format!(
                "{} (kernel that pulls), {} (kernel that balances); {} under `secretary`",
                table(&pulls),
                table(&balances),
                table(&balanced)
            ),
            // Steadier than either, but faster only than the one that pulls.
            agrees: Agrees::when(
                steadier
                    && variance(&balanced.totals) < variance(&balances.totals)
                    && balanced.mean() < balances.mean(),
                steadier,
            ),
        },
        Finding {
            paper: "all programs but EP (one phase) gain, 10 to 75 %",
            here: format!(
                "all gain {:.0} to {:.0} % against the kernel that pulls, the one with a single phase \
                 {:.0} %; none gains more than {:.0} % against the one that balances",
                each.0,
                each.1,
                single,
                range(over_balances.iter().map(|p| 100.0 * (p.1 - 1.0))).1.max(0.0)
            ),
            agrees: Agrees::when(each.0 > 10.0 && single < 1.0, each.0 > 10.0),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: 12 CPUs, slices of 4 ms, nine programs of 12 threads each with {} s of CPU time, \
             in phases of 5 ms to 1.28 s, with barriers at which threads spin; threads start on random \
             CPUs; {} seeds; interval 100 ms with jitter, each program balanced by itself; a balancing \
             point takes {} us from every CPU. The paper ran nine NAS benchmarks on 12 cores, of which \
             it gives neither phases nor how threads wait.",
            WORK as f64 / 1e3,
            SEEDS.count(),
            number(POINT.as_millis_f64() * 1e3)
        ),
        panels: vec![
            Panel {
                name: String::from("oslb-7"),
                title: String::from("Nine programs at once: time until all have ended"),
                drawing: Drawing::Chart(Chart {
                    x: Axis::linear("run", "run"),
                    y: Axis::linear("total_s", "time, s").showing(0.0),
                    series: vec![
                        Series::new("kernel that pulls", 1, Look::Joined, pulls.by_run()),
                        Series::new("kernel that balances", 2, Look::Joined, balances.by_run()),
                        Series::new("secretary", 0, Look::Joined, balanced.by_run()),
                    ],
                }),
            },
            Panel {
                name: String::from("oslb-8"),
                title: String::from("Nine programs at once: speedup of each under secretary"),
                drawing: Drawing::Chart(Chart {
                    x: Axis {
                        scale: Scale::Names(programs::names()),
                        ..Axis::linear("program", "program: length of its phases")
                    },
                    y: Axis::linear("speedup", "speedup over the kernel").showing(0.0),
                    series: vec![
                        Series::new("over a kernel that pulls", 1, Look::Bars, over_pulls),
                        Series::new("over one that balances", 2, Look::Bars, over_balances),
                    ],
                }),
            },
        ],
        findings,
    })
}
