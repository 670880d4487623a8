//! Figure 15: two neighbours that sleep and compute for random times, beside 8 or 9 threads on 8
//! CPUs.

use crate::runs::{analysed, mean, ms, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_model::{CpuId, Nanos};
use evenly_sim::{Barrier, DriverOptions, Scenario, Simple, Stranger};
use evenly_theory::Shape;
use rayon::prelude::*;

const CPUS: u32 = 8;
/// e in seconds, and how many phases.
const PHASES: [(u64, u32); 6] =
    [(100, 600), (300, 200), (1_000, 60), (3_000, 20), (10_000, 6), (60_000, 1)];
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

fn scenario(s: Shape, (phase, phases): (u64, u32), seed: u64) -> (Scenario, DriverOptions) {
    let simple = Simple {
        phases,
        barrier: Barrier::Yield,
        jitter: true,
        seed,
        ..analysed(s, ms(phase), ms(100))
    };
    let scenario = Scenario {
        strangers: vec![Stranger::random(CpuId(2)), Stranger::random(CpuId(5))],
        ..simple.scenario()
    };
    (scenario, simple.options())
}

/// Relative speedup of juggle and of the kernel alone, mean of the seeds.
fn speedups(n: u32, phase: (u64, u32)) -> Result<[f64; 2], FigureError> {
    let s = Shape::new(n, CPUS)?;
    let one = |seed| {
        let (scenario, options) = scenario(s, phase, seed);
        let expected = Nanos(2 * phase.0 * 1_000_000 * u64::from(phase.1));
        let makespan = |policy| run(&scenario, policy, &options, expected).map(|r| r.makespan);
        let fixed = makespan("static")?;
        Ok([fixed / makespan("juggle")?, fixed / makespan("observe")?])
    };
    let all = SEEDS.map(one).collect::<Result<Vec<[f64; 2]>, FigureError>>()?;
    Ok([0, 1].map(|i| mean(&all.iter().map(|a| a[i]).collect::<Vec<_>>())))
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let mut series = Vec::new();
    for (i, n) in [8, 9].into_iter().enumerate() {
        let found = PHASES
            .par_iter()
            .map(|&p| Ok((p.0 as f64 / 1e3, speedups(n, p)?)))
            .collect::<Result<Vec<_>, FigureError>>()?;
        for (k, name) in ["juggle", "the kernel alone"].into_iter().enumerate() {
            let points = found.iter().map(|(x, y)| (*x, y[k])).collect();
            series.push(Series::new(format!("{n} on 8 ({name})"), 2 * k + i, Look::Joined, points));
        }
    }
    let long = |s: &Series| range(s.points.iter().filter(|p| p.0 >= 1.0).map(|p| p.1));
    let (juggle, kernel) =
        ([long(&series[0]), long(&series[2])], [1, 3].map(|i| range(series[i].values())));
    let shortest = [0, 2].map(|i: usize| series[i].points[0].1);
    let findings = vec![
        Finding {
            paper: "Juggle lets the benchmarks run efficiently beside unpredictable neighbours: faster \
                    than static distribution",
            here: format!(
                "with phases of a second and more {:.2} to {:.2} (8 on 8) and {:.2} to {:.2} (9 on 8); \
                 with phases of 100 ms, as long as the period, {:.2} and {:.2}",
                juggle[0].0, juggle[0].1, juggle[1].0, juggle[1].1, shortest[0], shortest[1]
            ),
            agrees: Agrees::when(
                juggle.iter().all(|j| j.0 > 1.05),
                juggle.iter().all(|j| j.0 > 1.0),
            ),
        },
        Finding {
            paper: "Linux's own balancer (LLB) usually makes them slower than static distribution",
            here: format!(
                "the kernel as modelled here is no help, and no harm: {:.2} to {:.2} (8 on 8), {:.2} to \
                 {:.2} (9 on 8), the most where there is one phase only, whose threads leave CPUs idle \
                 as they end. Unlike a real kernel, it moves nothing for any other reason",
                kernel[0].0, kernel[0].1, kernel[1].0, kernel[1].1
            ),
            agrees: Agrees::when(
                kernel.iter().all(|k| k.0 < 1.0 && k.1 < 1.02),
                kernel.iter().zip(&juggle).all(|(k, j)| k.1 < j.1),
            ),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: m = 8, lambda = 100 ms with jitter, 60 s of CPU time for each thread in phases \
             of 100 ms to 60 s, barriers at which threads yield, fair sharing; CPUs 2 and 5 have a \
             neighbour each that sleeps 0 to 5 s and computes 5 to 10 s; the kernel pulls threads to \
             idle CPUs and does nothing else; mean of {} seeds. The paper \
             measured eight UPC NAS benchmarks (n = 9 for BT and SP) on a Nehalem, one neighbour at \
             nice -3; the simulator knows no priorities, and its neighbours stay where they are.",
            SEEDS.count()
        ),
        panels: vec![Panel {
            name: String::from("juggle-15"),
            title: String::from("Beside two neighbours, m = 8, lambda = 100 ms"),
            drawing: Drawing::Chart(Chart {
                x: Axis::log("phase_s", "length of a phase e, s"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}
