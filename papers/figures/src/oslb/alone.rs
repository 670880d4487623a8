//! Figures 5 and 6: each program by itself, with the operating system's jitter only, and beside a
//! process that computes.

use super::programs::{self, Balancing, PHASES, POINT};
use crate::runs::{mean, ms, range};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Scale, Series};
use evenly_draw::{number, whole};
use evenly_sim::{Barrier, Scenario};
use rayon::prelude::*;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// Speedup of OSLB over the kernel, mean of the seeds.
fn speedup(length: u64, hog: bool, barrier: Barrier) -> Result<f64, FigureError> {
    let one = |seed| {
        let mut strangers = programs::jitter();
        strangers.extend(hog.then(programs::hog));
        let scenario = Scenario { strangers, ..programs::one(length, barrier, seed) };
        let end = |b| programs::ends(&scenario, b).map(|e| range(e).1);
        Ok(end(Balancing::Kernel)? / end(Balancing::Oslb(ms(100)))?)
    };
    Ok(mean(&SEEDS.map(one).collect::<Result<Vec<f64>, FigureError>>()?))
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let over = |hog: bool, barrier: Barrier| {
        PHASES
            .par_iter()
            .enumerate()
            .map(|(i, &p)| Ok((i as f64, speedup(p, hog, barrier)?)))
            .collect::<Result<Vec<_>, FigureError>>()
    };
    let series = vec![
        Series::new("jitter: threads block", 0, Look::Bars, over(false, Barrier::Block)?),
        Series::new("jitter: threads spin", 4, Look::Bars, over(false, Barrier::Spin)?),
        Series::new("a process: threads block", 1, Look::Bars, over(true, Barrier::Block)?),
        Series::new("a process: threads spin", 5, Look::Bars, over(true, Barrier::Spin)?),
    ];
    let mean_of = |i: usize| 100.0 * (mean(&series[i].values().collect::<Vec<_>>()) - 1.0);
    let range_of = |i: usize| {
        let (least, most) = range(series[i].values());
        (100.0 * (least - 1.0), 100.0 * (most - 1.0))
    };
    let quiet = [mean_of(0), mean_of(1)];
    let hog = [mean_of(2), mean_of(3)];
    let (block, spin) = (range_of(2), range_of(3));
    let last = series[2].points.last().map_or(f64::NAN, |p| 100.0 * (p.1 - 1.0));
    let findings = vec![
        Finding {
            paper: "with jitter only: 8 % faster than under Linux on average, EP and FT not at all, UA \
                    35 %",
            here: format!(
                "no gain: {:.1} % on average where threads block, {:.1} % where they spin, the cost of \
                 balancing. 12 threads on 12 equal CPUs leave nothing to balance; the paper \
                 names no cause for what UA gained",
                quiet[0], quiet[1]
            ),
            agrees: Agrees::when((quiet[0] - 8.0).abs() < 3.0, quiet[0] > 2.0),
        },
        Finding {
            paper: "beside a CPU-bound process on one CPU: 14.8 % on average, more for all, EP and FT \
                    hardly, UA 58 %",
            here: format!(
                "{:.1} % on average where threads block ({} to {} %), {:.1} % where they spin ({} to \
                 {} %). Long phases gain most, the single one {last:.0} %, where the paper's EP gains \
                 nothing. Threads that block in phases shorter than the interval lose: pinned, they \
                 cannot be pulled to CPUs that fall idle",
                hog[0],
                whole(block.0),
                whole(block.1),
                hog[1],
                whole(spin.0),
                whole(spin.1)
            ),
            agrees: Agrees::when(
                block.0 > 0.0 && spin.0 > 0.0 && (hog[0] - 14.8).abs() < 5.0,
                hog[0] > quiet[0] + 5.0 && hog[0] < 30.0,
            ),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: 12 CPUs, slices of 4 ms, one program of 12 threads at a time, {} s of CPU time for \
             each thread in phases of 5 ms to 1.28 s; every CPU has work of the system of 20 to 200 us every \
             1 to 20 ms; the process computes 80 to 120 ms, sleeps 5 to 15 ms and stays on one CPU; the \
             kernel pulls threads to idle CPUs; interval 100 ms with jitter, a balancing point takes {} us \
             from every CPU; mean of {} seeds. The paper ran NAS benchmarks on 12 cores.",
            programs::WORK as f64 / 1e3,
            number(POINT.as_millis_f64() * 1e3),
            SEEDS.count()
        ),
        panels: vec![Panel {
            name: String::from("oslb-5-6"),
            title: String::from("Speedup of secretary over the kernel, one program at a time"),
            drawing: Drawing::Chart(Chart {
                x: Axis {
                    scale: Scale::Names(programs::names()),
                    ..Axis::linear("program", "program: length of its phases")
                },
                y: Axis::linear("speedup", "speedup over the kernel").showing(0.8),
                series,
            }),
        }],
        findings,
    })
}
