//! Figure 7: as more threads share each CPU, static distribution loses less, and there is less to
//! gain.

use crate::runs::{EP, part};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_sim::{IdealOptions, ideal};
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

const FLOORS: std::ops::RangeInclusive<u32> = 1..=10;
const MACHINES: [u32; 5] = [2, 4, 8, 16, 32];

/// The shape of this floor with the greatest imbalance: one thread more than would be even.
fn worst(m: u32, floor: u32) -> Result<Shape, FigureError> {
    Ok(Shape::new(m * floor + 1, m)?)
}

fn simulated(m: u32, floor: u32) -> Result<f64, FigureError> {
    let s = worst(m, floor)?;
    let run = ideal(&IdealOptions::new(s, EP, part(EP, 0.01)));
    Ok(theory::static_time(s, EP).over(&run.makespan()))
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let mut series = Vec::new();
    let (mut off, mut falls) = (0.0_f64, true);
    for (i, m) in MACHINES.into_iter().enumerate() {
        let line = FLOORS
            .map(|f| Ok((f64::from(f), theory::upper_bound(worst(m, f)?.n(), m))))
            .collect::<Result<Vec<_>, FigureError>>()?;
        let marks = FLOORS
            .into_par_iter()
            .map(|f| Ok((f64::from(f), simulated(m, f)?)))
            .collect::<Result<Vec<_>, FigureError>>()?;
        for (a, b) in line.iter().zip(&marks) {
            off = off.max((b.1 / a.1 - 1.0).abs());
        }
        falls &= line.is_sorted_by(|a, b| a.1 > b.1) && marks.is_sorted_by(|a, b| a.1 > b.1);
        series.push(Series::new(format!("m = {m}"), i, Look::Line, line));
        series.push(Series::new(format!("m = {m} (ideal)"), i, Look::Marks, marks));
    }
    let ends = |m: u32| {
        let at = |f| worst(m, f).map(|s| theory::upper_bound(s.n(), m));
        Ok::<_, FigureError>((at(1)?, at(10)?))
    };
    let ((few, few_10), (many, many_10)) = (ends(2)?, ends(32)?);
    let findings = vec![Finding {
        paper: "the advantage of proactive over static balancing falls as n/m grows, since static \
                distribution then loses less",
        here: format!(
            "from {many:.2} to {many_10:.2} (m = 32) and from {few:.2} to {few_10:.2} (m = 2) as \
             floor(n/m) goes from 1 to 10; the idealised algorithm with lambda = e / 100 is within \
             {:.2} % of the theory",
            100.0 * off
        ),
        agrees: Agrees::when(falls && off < 0.01, falls),
    }];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Theory (Eq. 1 over Eq. 14), and the idealised algorithm of section 3 with lambda = \
             e / 100; n = m floor(n/m) + 1, the most imbalanced static distribution, as in the paper \
             (9 on 8, 33 on 32).",
        ),
        panels: vec![Panel {
            name: String::from("juggle-7"),
            title: String::from("Ideal relative speedup as CPUs are shared by more threads"),
            drawing: Drawing::Chart(Chart {
                x: Axis::linear("floor_n_over_m", "floor(n/m)"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}
