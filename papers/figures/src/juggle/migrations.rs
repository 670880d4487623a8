//! Figure 16: how many threads migrate.

use crate::runs::{EP, analysed, part, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_theory::Shape;
use rayon::prelude::*;

const SHAPES: [(u32, u32); 6] = [(8, 8), (8, 7), (9, 8), (12, 8), (15, 8), (17, 8)];
/// lambda / e; the first is 100 ms.
const RATIOS: [f64; 10] = [0.1 / 30.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5];

/// Migrations of one run, for each balancing period of the paper's kind, and for each second.
fn simulated((n, m): (u32, u32), x: f64) -> Result<(f64, f64), FigureError> {
    let simple = analysed(Shape::new(n, m)?, EP, part(EP, x));
    let r = run(&simple.scenario(), "juggle", &simple.options(), EP)?;
    let moves = r.outcome.migrations as f64;
    // The first point is at time zero, and only spreads the threads.
    let points = r.outcome.points.saturating_sub(1).max(1);
    Ok((moves / points as f64, moves / r.makespan))
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let (mut per_point, mut per_second) = (Vec::new(), Vec::new());
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let found = RATIOS
            .par_iter()
            .map(|&x| Ok((x, simulated(shape, x)?)))
            .collect::<Result<Vec<_>, FigureError>>()?;
        let name = format!("{} on {}", shape.0, shape.1);
        let one = |f: &dyn Fn((f64, f64)) -> f64| found.iter().map(|&(x, y)| (x, f(y))).collect();
        per_point.push(Series::new(name.clone(), i, Look::Joined, one(&|y| y.0)));
        per_second.push(Series::new(name, i, Look::Joined, one(&|y| y.1)));
    }
    let eight_on_seven = &per_point[1];
    let (mean_7, rate_7) = (eight_on_seven.points[0].1, per_second[1].points[0].1);
    let even = range(per_point[0].values()).1;
    // From 100 ms to e / 10 the period becomes thirty times as long.
    let fall = range(per_second[1..].iter().map(|s| s.points[0].1 / s.at(0.1)));
    let short = |s: &Series| s.points[0].1;
    let more: Vec<String> = per_point[1..]
        .iter()
        .map(|s| {
            format!("{} for {}", evenly_draw::number((short(s) * 100.0).round() / 100.0), s.name)
        })
        .collect();
    let findings = vec![
        Finding {
            paper: "8 on 7 with lambda = 100 ms: at most four migrations a period (one slow CPU, two \
                    swaps), 3 on average; 28 in a second",
            here: format!("{mean_7:.2} a period, {rate_7:.1} in a second"),
            agrees: Agrees::when(
                (mean_7 - 3.0).abs() < 0.2 && (rate_7 - 28.0).abs() < 3.0,
                mean_7 <= 4.0,
            ),
        },
        Finding {
            paper: "8 on 8: no migrations",
            here: format!("{even}"),
            agrees: Agrees::when(even == 0.0, false),
        },
        Finding {
            paper: "the number of migrations follows from the period, and from n relative to m",
            here: format!(
                "they are in proportion to the number of periods: where lambda is thirty times as long, \
                 {:.0} to {:.0} times fewer in a second; with lambda = 100 ms a period has {}",
                fall.0,
                fall.1,
                more.join(", ")
            ),
            agrees: Agrees::when(fall.0 > 27.0 && fall.1 < 36.0, fall.0 > 1.0),
        },
    ];
    let chart = |name: &str, title: &str, y: Axis, series: Vec<Series>| Panel {
        name: name.to_owned(),
        title: title.to_owned(),
        drawing: Drawing::Chart(Chart {
            x: Axis::log("period_over_phase", "lambda / e"),
            y: y.showing(0.0),
            series,
        }),
    };
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: one phase of e = 30 s, lambda from 100 ms to e / 2, fair sharing, nothing costs \
             anything, policy `juggle`. The paper measured EP class C on a Nehalem; its shapes other \
             than 8 on 7 are only in its picture.",
        ),
        panels: vec![
            chart(
                "juggle-16",
                "Migrations a balancing period",
                Axis::linear("migrations_per_point", "migrations a period"),
                per_point,
            ),
            chart(
                "juggle-16-rate",
                "Migrations a second",
                Axis::linear("migrations_per_s", "migrations a second"),
                per_second,
            ),
        ],
        findings,
    })
}
