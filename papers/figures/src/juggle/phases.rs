//! Figure 11: many phases, 8 threads on 7 CPUs, with and without jitter of the period.

use crate::runs::{analysed, approximation, mean, ms, part, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_model::Nanos;
use evenly_sim::{Barrier, Simple};
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

const PHASE: Nanos = ms(1_000);
const PHASES: u32 = 60;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;
/// lambda / e in tenths.
const MOST: u32 = 80;

fn grid() -> Vec<f64> {
    [0.01, 0.02, 0.05].into_iter().chain((1..=MOST).map(|i| f64::from(i) / 10.0)).collect()
}

fn simulated(s: Shape, x: f64, jitter: bool) -> Result<f64, FigureError> {
    let seeds = if jitter { SEEDS } else { 1..=1 };
    let fixed = theory::unbalanced_time(s, u64::from(PHASES), PHASE).seconds();
    let one = |seed| {
        let simple = Simple {
            phases: PHASES,
            barrier: Barrier::Yield,
            jitter,
            seed,
            ..analysed(s, PHASE, part(PHASE, x))
        };
        let expected = Nanos(PHASE.0 * u64::from(PHASES));
        Ok(fixed / run(&simple.scenario(), "juggle", &simple.options(), expected)?.makespan)
    };
    let all = seeds.map(one).collect::<Result<Vec<f64>, FigureError>>()?;
    Ok(mean(&all))
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let s = Shape::new(8, 7)?;
    let grid = grid();
    let over = |jitter: bool| {
        let one = |&x: &f64| Ok((x, simulated(s, x, jitter)?));
        grid.par_iter().map(one).collect::<Result<Vec<_>, FigureError>>()
    };
    let (plain, jittered) = (over(false)?, over(true)?);
    let line =
        grid.iter().map(|&x| Ok((x, approximation(s, u64::from(PHASES), PHASE, part(PHASE, x))?)));
    let line = line.collect::<Result<Vec<_>, FigureError>>()?;

    let multiple = |x: f64| x >= 2.0 && (x % 2.0).min(2.0 - x % 2.0) < 1e-6;
    let dips: Vec<f64> = plain.iter().filter(|p| multiple(p.0)).map(|p| p.1).collect();
    let filled: Vec<f64> = jittered.iter().filter(|p| multiple(p.0)).map(|p| p.1).collect();
    let deepest = range(dips.iter().copied()).1;
    let (shallow, _) = range(filled.iter().copied());
    // Where there are no dips, and where a period is long enough for one point in a phase at most.
    let off = |points: &[(f64, f64)], from: f64, to: f64| {
        let both = points.iter().zip(&line).filter(|(p, _)| (from..to).contains(&p.0));
        range(both.map(|(p, l)| (p.1 / l.1 - 1.0).abs())).1
    };
    let short = off(&plain, 0.0, 0.15).max(off(&jittered, 0.0, 0.15));
    let (middle, long) = (off(&jittered, 0.15, 2.0), off(&jittered, 2.0, 9.0));
    let findings = vec![
        Finding {
            paper: "measured speedup follows the approximations, Eq. 16 for lambda < e ceil(n/m), \
                    \"Eq. 18\" above",
            here: format!(
                "within {:.1} % up to e / 10; with jitter within {:.0} % from there to 2 e (where a point \
                 late in a phase finds idle CPUs, of which Eq. 16 knows nothing) and {:.0} % above. For \
                 8 on 7, n_fast > n_slow, so that Eq. 17 is meant and drawn, not Eq. 18",
                100.0 * short,
                100.0 * middle,
                100.0 * long
            ),
            agrees: Agrees::when(short < 0.05 && middle < 0.05 && long < 0.05, middle < 0.25),
        },
        Finding {
            paper: "where lambda / e is a multiple of 2 = ceil(n/m) there is no speedup: points fall on \
                    the ends of phases",
            here: format!("at lambda / e = 2, 4, 6 and 8 at most {deepest:.3} without jitter"),
            agrees: Agrees::when(deepest < 1.001, deepest < 1.02),
        },
        Finding {
            paper: "with a random variation of lambda by up to 10 % these dips are gone",
            here: format!("with jitter at least {shallow:.3} at the same places"),
            agrees: Agrees::when(shallow > 1.01, shallow > deepest),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: n = 8, m = 7, {PHASES} phases of e = 1 s with barriers at which threads yield \
             (as UPC's do), fair sharing, nothing costs anything, policy `juggle`; with jitter the mean \
             of {} seeds. The paper measured EP class C with barriers added.",
            SEEDS.count()
        ),
        panels: vec![Panel {
            name: String::from("juggle-11"),
            title: String::from("Many phases, 8 threads on 7 CPUs"),
            drawing: Drawing::Chart(Chart {
                x: Axis::linear("period_over_phase", "lambda / e").showing(0.0),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series: vec![
                    Series::new("Eq. 16 and 17", 7, Look::Dashed, line),
                    Series::new("juggle (no jitter)", 0, Look::Joined, plain),
                    Series::new("juggle (jitter of 10 %)", 1, Look::Joined, jittered),
                ],
            }),
        }],
        findings,
    })
}
