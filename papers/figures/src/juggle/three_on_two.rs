//! Figure 1: three threads on two CPUs, lambda = 1 s: which thread runs where, and how far each is.

use crate::runs::{analysed, ms, range, watch};
use crate::{Agrees, Drawing, FigureError, Finding, Lanes, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_engine::Event;
use evenly_theory::Shape;

/// Periods that are shown.
const PERIODS: u64 = 9;

pub(crate) fn figure() -> Result<Made, FigureError> {
    let simple = analysed(Shape::new(3, 2)?, ms(60_000), ms(1_000));
    let (scenario, options) = (simple.scenario(), simple.options());
    let limit = ms(1_000 * PERIODS);
    let juggle = watch(&scenario, "juggle", &options, limit)?;
    let fixed = watch(&scenario, "static", &options, limit)?;

    let mut series: Vec<Series> =
        (0..3).map(|i| Series::new(format!("T{i}"), i, Look::Joined, Vec::new())).collect();
    for event in &juggle {
        let Event::Point(p) = event else { continue };
        for (s, t) in series.iter_mut().zip(&p.threads) {
            s.points.push((p.at.as_secs_f64(), t.progress as f64 / 1e9));
        }
    }
    let apart = |i: usize| {
        let (least, most) = range(series.iter().filter_map(|s| s.points.get(i)).map(|p| p.1));
        most - least
    };
    let points = series[0].points.len();
    let apart_at_thirds = (0..points).filter(|&i| i % 3 == 0).map(apart).fold(0.0, f64::max);
    let most = (0..points).map(apart).fold(0.0, f64::max);
    let rates: Vec<f64> =
        series.iter().filter_map(|s| s.points.last()).map(|(at, progress)| progress / at).collect();
    let (least, greatest) = range(rates.iter().copied());
    let ideal = (0..=PERIODS).map(|k| (k as f64, k as f64 * 2.0 / 3.0)).collect();
    series.push(Series::new("m/n = 2/3", 7, Look::Line, ideal));

    let chart = Chart {
        x: Axis::linear("time_s", "time, s"),
        y: Axis::linear("progress_s", "progress, s of CPU time"),
        series,
    };
    let findings = vec![
        Finding {
            paper: "over time every thread progresses at m/n = 2/3 of a CPU",
            here: format!(
                "after {PERIODS} periods the threads have progressed at {least:.3} to {greatest:.3}; \
                 at every third balancing point all are equal (at most {apart_at_thirds:.3} s apart)"
            ),
            agrees: Agrees::when(least > 0.66 && greatest < 0.67, false),
        },
        Finding {
            paper: "Lemma 1: at a balancing point two threads are equal or \
                    lambda / (floor(n/m) ceil(n/m)) = 0.5 s apart",
            here: format!("never more than {most:.3} s apart"),
            agrees: Agrees::when((most - 0.5).abs() < 1e-6, most < 1.0),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: format!(
            "Simulated: n = 3, m = 2, lambda = 1 s, fair sharing, nothing costs anything, policy \
             `juggle` (and `static` beside it); the first {PERIODS} periods of a long phase."
        ),
        panels: vec![
            Panel {
                name: String::from("juggle-1-lanes"),
                title: String::from("Three threads on two CPUs: where each runs"),
                drawing: Drawing::Lanes(Lanes::new(vec![
                    (String::from("juggle"), juggle),
                    (String::from("static"), fixed),
                ])),
            },
            Panel {
                name: String::from("juggle-1"),
                title: String::from("Three threads on two CPUs: progress under juggle"),
                drawing: Drawing::Chart(chart),
            },
        ],
        findings,
    })
}
