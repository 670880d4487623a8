//! Figure 13: 16 threads on 12 CPUs of three machines, lambda = 100 ms, phases of any length.

use crate::runs::{analysed, approximation, cpus, ms, part, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_sim::{Barrier, Cpu, DriverOptions, Scenario, Simple};
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

const PERIOD: Nanos = ms(100);
/// CPU time of a thread, all phases together, about.
const TOTAL: f64 = 20.0;
/// The values of lambda / e that are run.
const RATIOS: [f64; 16] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.1, 3.0, 5.0, 7.0, 10.0];

/// The CPUs of a Nehalem: 2 sockets of 4 cores of 2 hyper-threads (section 4, footnote 4). CPUs 2 k and 2 k + 1
/// are on a core.
const NEHALEM_CPUS: usize = 16;
/// Six hyper-threads of each socket, as the paper has them, which does not say which: three cores full, or spread
/// over all four, so that two of the six have a core to themselves.
const FULL: [[u32; 6]; 2] = [[0, 1, 2, 3, 4, 5], [8, 9, 10, 11, 12, 13]];
const SPREAD: [[u32; 6]; 2] = [[0, 1, 2, 3, 4, 6], [8, 9, 10, 11, 12, 14]];

/// Domains, and whether CPUs are hardware threads of which two make a core.
struct JuggleMachine {
    name: &'static str,
    domains: Vec<CpuSet>,
    smt: bool,
}

fn machines() -> [JuggleMachine; 4] {
    let equal = |k: u32| (0..k).map(|d| cpus(d * 12 / k, (d + 1) * 12 / k)).collect();
    let of = |lists: [[u32; 6]; 2]| lists.map(|l| l.into_iter().map(CpuId).collect()).to_vec();
    [
        JuggleMachine { name: "Tigerton (12 CPUs)", domains: Vec::new(), smt: false },
        JuggleMachine { name: "Barcelona (4 domains of 3)", domains: equal(4), smt: false },
        JuggleMachine {
            name: "Nehalem (2 of 6 hyper-threads on 3 cores)",
            domains: of(FULL),
            smt: true,
        },
        JuggleMachine {
            name: "Nehalem (2 of 6 hyper-threads on 4 cores)",
            domains: of(SPREAD),
            smt: true,
        },
    ]
}

fn simple(s: Shape, x: f64) -> Simple {
    let phase = part(PERIOD, 1.0 / x);
    let phases = (TOTAL / phase.as_secs_f64()).round().max(1.0) as u32;
    Simple { phases, barrier: Barrier::Yield, jitter: true, ..analysed(s, phase, PERIOD) }
}

fn simulated(machine: &JuggleMachine, s: Shape, x: f64) -> Result<f64, FigureError> {
    let simple = simple(s, x);
    let mut scenario: Scenario = simple.scenario();
    if machine.smt {
        // One that yields keeps its core busy here; one that sleeps does not.
        scenario.barrier = Barrier::Block;
        // Section 4.3: 35 % faster while the other one is idle.
        let hyper_thread = |i: usize| Cpu {
            speed_permille: 1000,
            sibling: Some(CpuId(i as u32 ^ 1)),
            alone_permille: 350,
        };
        scenario.cpus = (0..NEHALEM_CPUS).map(hyper_thread).collect();
        let chosen = machine.domains.iter().fold(CpuSet::new(), |all, domain| all.or(domain));
        for thread in &mut scenario.threads {
            thread.mask.clone_from(&chosen);
        }
    }
    let options = DriverOptions { domains: machine.domains.clone(), ..simple.options() };
    let expected = Nanos(2 * simple.phase.0 * u64::from(simple.phases));
    // As the paper has it (section 4): over Eq. 1 and 18, not over a static run on that machine.
    let fixed = theory::unbalanced_time(s, u64::from(simple.phases), simple.phase).seconds();
    Ok(fixed / run(&scenario, "juggle", &options, expected)?.makespan)
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let s = Shape::new(16, 12)?;
    let line = RATIOS.iter().map(|&x| {
        let Simple { phases, phase, .. } = simple(s, x);
        Ok((x, approximation(s, u64::from(phases), phase, PERIOD)?))
    });
    let line = line.collect::<Result<Vec<_>, FigureError>>()?;
    let mut series = vec![Series::new("Eq. 16 and 17", 7, Look::Dashed, line.clone())];
    for (i, machine) in machines().iter().enumerate() {
        let one = |&x: &f64| Ok((x, simulated(machine, s, x)?));
        let points = RATIOS.par_iter().map(one).collect::<Result<_, FigureError>>()?;
        series.push(Series::new(machine.name, i, Look::Joined, points));
    }
    let off = |series: &Series, from: f64, to: f64| {
        let both = series.points.iter().zip(&line).filter(|(p, _)| (from..=to).contains(&p.0));
        range(both.map(|(p, l)| (p.1 / l.1 - 1.0).abs())).1
    };
    let plain = || series[1..3].iter();
    let near = plain().map(|s| off(s, 0.0, 0.1)).fold(0.0, f64::max);
    let far = plain().map(|s| off(s, 0.1, 10.0)).fold(0.0, f64::max);
    let full = off(&series[3], 0.0, 10.0);
    let first = |i: usize| series[i].points[0].1;
    let last = range(series[1..].iter().filter_map(|s| s.points.last()).map(|p| p.1)).1;
    let findings = vec![
        Finding {
            paper: "how far a benchmark is from the ideal relative speedup of 1.5 is mostly a matter \
                    of lambda / e: measured results are near Eq. 16 and 17",
            here: format!(
                "from {:.2} at lambda / e = 0.005 down to {last:.2} at 10; within {:.0} % of Eq. 16 up \
                 to e / 10, within {:.0} % over all (without hyper-threads)",
                first(1),
                100.0 * near,
                100.0 * far
            ),
            agrees: Agrees::when(near < 0.03 && far < 0.1, near < 0.05),
        },
        Finding {
            paper: "EP on the hyper-threaded Nehalem gets 1.57, more than the ideal 1.5, because a \
                    hyper-thread is 35 % faster while the other of its core is idle",
            here: format!(
                "a matter of which six hyper-threads of a domain are used, which the paper does not say: {:.2} \
                 at the same lambda / e with three cores full, and {:.2} spread over all four, where two \
                 have a core alone throughout. With full cores all threads end their one phase within a period, so \
                 that hardly a hyper-thread is idle before; over all that is within {:.0} % of Eq. 16 and \
                 17. {:.2} and {:.2} on the other two machines",
                first(3),
                first(4),
                100.0 * full,
                first(1),
                first(2),
            ),
            agrees: Agrees::when(
                [3, 4].iter().any(|&i| (first(i) - 1.57).abs() < 0.02),
                first(3) < 1.57 && first(4) > 1.57,
            ),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: n = 16, m = 12, lambda = 100 ms with jitter, phases of e = 20 s down to 10 ms, \
             {TOTAL} s of CPU time for each thread, barriers at which threads yield, fair sharing, \
             nothing costs anything, policy `juggle` in each domain. The paper measured UPC NAS \
             benchmarks, whose e it derived from barrier counts that it does not print; a machine here \
             has the paper's domains and hyper-threads (on these threads sleep at barriers; six of a domain's eight are \
             used, on three cores or on all four), no caches and no memory (so nothing like FT, \
             which deviates most there)."
        ),
        panels: vec![Panel {
            name: String::from("juggle-13"),
            title: String::from("16 threads on 12 CPUs of three machines, lambda = 100 ms"),
            drawing: Drawing::Chart(Chart {
                x: Axis::log("period_over_phase", "lambda / e"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}
