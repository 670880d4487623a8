//! Figure 17: as lambda comes near the scheduler's slice, and below it, the gain goes.

use crate::runs::{analysed, ms, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_model::Nanos;
use evenly_sim::{Costs, Scenario, Sharing};
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

const PHASE: Nanos = ms(3_000);
const SLICE: Nanos = ms(10);
/// The periods that are run, in microseconds.
const PERIODS: [u64; 10] = [250, 500, 1_000, 2_000, 5_000, 7_000, 10_000, 20_000, 50_000, 100_000];

fn simulated(s: Shape, period: u64, point: Nanos, tick: Nanos) -> Result<f64, FigureError> {
    let simple = analysed(s, PHASE, Nanos::from_micros(period));
    let costs = Costs { point, ..Costs::default() };
    let scenario = Scenario { sharing: Sharing::Slices(SLICE), tick, costs, ..simple.scenario() };
    let r = run(&scenario, "juggle", &simple.options(), PHASE)?;
    Ok(theory::static_time(s, PHASE).seconds() / r.makespan)
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let s = Shape::new(8, 7)?;
    let limit = theory::upper_bound(8, 7);
    let over = |point: Nanos, tick: Nanos| {
        PERIODS
            .par_iter()
            .map(|&p| Ok((p as f64 / 1e3, simulated(s, p, point, tick)?)))
            .collect::<Result<Vec<_>, FigureError>>()
    };
    let point = Nanos::from_micros(100);
    let (costly, free) = (over(point, Nanos::ZERO)?, over(Nanos::ZERO, Nanos::ZERO)?);
    let coarse = over(Nanos::ZERO, SLICE)?;
    let ends = [PERIODS[0] as f64 / 1e3, PERIODS[PERIODS.len() - 1] as f64 / 1e3];
    let series = vec![
        Series::new("limit; Eq. 14", 7, Look::Dashed, ends.map(|x| (x, limit)).to_vec()),
        Series::new("a point costs 100 us", 0, Look::Joined, costly),
        Series::new("points are free", 1, Look::Joined, free),
        Series::new("free; times booked every 10 ms", 2, Look::Joined, coarse),
    ];
    let (costly, free, coarse) = (&series[1], &series[2], &series[3]);
    let above =
        range(series[1..].iter().flat_map(|s| &s.points).filter(|p| p.0 >= 10.0).map(|p| p.1)).0;
    let below = range(coarse.points.iter().filter(|p| p.0 < 10.0).map(|p| p.1)).1;
    let lost = 100.0 * (1.0 - costly.at(0.5) / free.at(0.5));
    let falls = costly.points.iter().filter(|p| p.0 <= 10.0).collect::<Vec<_>>();
    let findings = vec![
        Finding {
            paper: "performance degrades as lambda falls below 10 ms, the interval of that scheduler",
            here: format!(
                "at 10 ms and more at least {above:.2} (limit {limit:.2}). Below, where each point \
                 costs, {:.2} at 5 ms, {:.2} at 2 ms, {:.2} at 1 ms: that is the cost, and there is no \
                 loss without it, since here turns on a CPU are perfectly regular. Where the kernel \
                 books CPU time only once in 10 ms, at most {below:.2} below 10 ms: a lead that short \
                 cannot be seen, and `juggle` swaps nothing on a guess",
                costly.at(5.0),
                costly.at(2.0),
                costly.at(1.0)
            ),
            agrees: Agrees::when(
                free.at(5.0) < 0.98 * above,
                falls.is_sorted_by(|a, b| a.1 < b.1) && below < 0.8 * above,
            ),
        },
        Finding {
            paper: "below that the 100 us of a balancing point count: 20 % are expected to be lost at \
                    0.5 ms",
            here: format!("{lost:.0} % at 0.5 ms, against points that cost nothing"),
            agrees: Agrees::when((lost - 20.0).abs() < 3.0, lost > 5.0),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: n = 8, m = 7, one phase of e = 3 s, a scheduler with slices of 10 ms, all CPUs stand still for 100 us at each balancing point (what the paper measured on its Nehalem), \
             policy `juggle`. The paper measured EP class C, e = 30 s.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-17"),
            title: String::from("Short periods, 8 threads on 7 CPUs, slices of 10 ms"),
            drawing: Drawing::Chart(Chart {
                x: Axis::log("period_ms", "lambda, ms"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}
