//! Figure 2: expected value of the one selected of n candidates, uniform in [0, 1].

use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_model::stats::Random;
use evenly_secretary::stopping::{Rule, uniform_payoff, uniform_skip};

const MOST: usize = 1_000;
const TRIES: usize = 4_000;

fn expected(n: usize) -> f64 {
    uniform_payoff(n, uniform_skip(n))
}

/// The rule that the policy `secretary` follows, tried out.
fn tried(n: usize) -> f64 {
    let mut random = Random::new(n as u64);
    let one = |random: &mut Random| {
        let mut rule = Rule::new(uniform_skip(n));
        let mut last = 0.0;
        for _ in 0..n {
            last = random.unit();
            if rule.take(last) {
                break;
            }
        }
        last
    };
    (0..TRIES).map(|_| one(&mut random)).sum::<f64>() / TRIES as f64
}

/// Numbers that lie evenly on a logarithmic axis.
fn spread() -> Vec<usize> {
    let mut all: Vec<usize> = (1..=10).collect();
    let mut n = 10.0_f64;
    while n < MOST as f64 {
        n *= 1.12;
        all.push((n as usize).min(MOST));
    }
    all.dedup();
    all
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let line: Vec<(f64, f64)> = spread().into_iter().map(|n| (n as f64, expected(n))).collect();
    let marks: Vec<(f64, f64)> = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000]
        .into_iter()
        .map(|n| (n as f64, tried(n)))
        .collect();
    let off = marks.iter().map(|&(n, v)| (v - expected(n as usize)).abs()).fold(0.0, f64::max);
    let found = [10, 100, 500].map(expected);
    let as_stated = found.iter().zip([0.73, 0.90, 0.95]).all(|(f, least)| *f >= least);
    let findings = vec![Finding {
        paper: "the expected payoff is above 0.73 at n = 10, 0.90 at n = 100, 0.95 at n = 500",
        here: format!(
            "{:.3}, {:.3} and {:.3}; the rule as the policy `secretary` follows it, tried {TRIES} \
             times for each n, is within {off:.3}",
            found[0], found[1], found[2]
        ),
        agrees: Agrees::when(as_stated && off < 0.02, as_stated),
    }];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Theory (Bearden 2006) and trials: candidates uniform in [0, 1] in random order, \
             sqrt(n) - 1 pass (rounded), then the first that is better than all before is taken, or the \
             last.",
        ),
        panels: vec![Panel {
            name: String::from("oslb-2"),
            title: String::from("Expected payoff of the selected candidate"),
            drawing: Drawing::Chart(Chart {
                x: Axis::log("candidates", "candidates n"),
                y: Axis::linear("payoff", "expected payoff").showing(1.0),
                series: vec![
                    Series::new("theory", 0, Look::Line, line),
                    Series::new("tried", 1, Look::Marks, marks),
                ],
            }),
        }],
        findings,
    })
}
