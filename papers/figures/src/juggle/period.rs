//! Figures 8 and 9: what the period does, for one phase: the bound, the idealised algorithm, and
//! the practical one.

use crate::runs::{EP, analysed, part, range, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::value_at;
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_sim::{IdealOptions, ideal};
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

/// lambda / e of a fine grid up to `most`.
fn fine(most: u32) -> Vec<f64> {
    (1..=most * 50).map(|i| f64::from(i) / 50.0).collect()
}

/// A coarser one; the first is the paper's lambda, 100 ms.
fn coarse(most: u32) -> Vec<f64> {
    let short = [0.1 / 30.0, 0.01, 0.02, 0.05];
    short.into_iter().chain((1..=most * 10).map(|i| f64::from(i) / 10.0)).collect()
}

/// Series over lambda / e.
struct Case {
    shape: Shape,
    bound: Vec<(f64, f64)>,
    /// Empty where it is not asked for: it takes most of the time.
    ideal: Vec<(f64, f64)>,
    juggle: Vec<(f64, f64)>,
}

fn case((n, m): (u32, u32), most: u32, with_ideal: bool) -> Result<Case, FigureError> {
    let s = Shape::new(n, m)?;
    let fixed = theory::static_time(s, EP);
    let mut all = coarse(most);
    all.extend(fine(most).into_iter().filter(|x| x * 10.0 % 1.0 > 1e-9));
    all.sort_by(f64::total_cmp);
    let bound = |&x: &f64| (x, theory::speedup_bound(s, EP, part(EP, x)));
    let idealised = |&x: &f64| {
        let run = ideal(&IdealOptions::new(s, EP, part(EP, x)));
        (x, fixed.over(&run.makespan()))
    };
    let juggle = |x: f64| {
        let simple = analysed(s, EP, part(EP, x));
        let r = run(&simple.scenario(), "juggle", &simple.options(), EP)?;
        Ok((x, fixed.seconds() / r.makespan))
    };
    Ok(Case {
        shape: s,
        bound: all.iter().map(bound).collect(),
        ideal: if with_ideal { all.par_iter().map(idealised).collect() } else { Vec::new() },
        juggle: coarse(most).into_par_iter().map(juggle).collect::<Result<_, FigureError>>()?,
    })
}

fn series(cases: &[Case]) -> Vec<Series> {
    let mut all = Vec::new();
    for (i, c) in cases.iter().enumerate() {
        let name = format!("{} on {}", c.shape.n(), c.shape.m());
        all.push(Series::new(format!("{name} bound"), i, Look::Dotted, c.bound.clone()));
        if !c.ideal.is_empty() {
            all.push(Series::new(format!("{name} ideal"), i, Look::Line, c.ideal.clone()));
        }
        all.push(Series::new(format!("{name} juggle"), i, Look::Marks, c.juggle.clone()));
    }
    all
}

/// By how much the bound is above what was simulated, on average, for periods up to the length of a
/// static phase.
fn slack(cases: &[Case]) -> f64 {
    let over: Vec<f64> = cases
        .iter()
        .flat_map(|c| {
            let limit = f64::from(c.shape.ceil());
            let within = c.juggle.iter().filter(move |p| p.0 <= limit);
            within.map(|&(x, y)| value_at(&c.bound, x) / y - 1.0)
        })
        .collect();
    crate::runs::mean(&over)
}

/// The relative differences between `juggle` and `ideal` for lambda / e in this range.
fn apart(cases: &[Case], from: f64, to: f64) -> Vec<f64> {
    let all = cases.iter().flat_map(|c| {
        let within = c.juggle.iter().filter(|p| (from..=to).contains(&p.0));
        within.map(|&(x, y)| (y / value_at(&c.ideal, x) - 1.0).abs())
    });
    all.collect()
}

fn above_bound(cases: &[Case]) -> f64 {
    let all =
        cases.iter().flat_map(|c| c.juggle.iter().map(|&(x, y)| y / value_at(&c.bound, x) - 1.0));
    range(all).1
}

const ONE: [(u32, u32); 4] = [(8, 7), (9, 8), (12, 8), (15, 8)];
const MANY: [(u32, u32); 4] = [(17, 8), (20, 8), (25, 8), (31, 8)];

fn axes() -> (Axis, Axis) {
    (
        Axis::linear("period_over_phase", "lambda / e").showing(0.0),
        Axis::linear("relative_speedup", "relative speedup").showing(1.0),
    )
}

pub(crate) fn one() -> Result<Made, FigureError> {
    let cases = ONE.map(|c| case(c, 3, false));
    let cases: Vec<Case> = cases.into_iter().collect::<Result<_, _>>()?;
    let (slack, above) = (slack(&cases), above_bound(&cases));
    let best = cases.iter().map(|c| c.juggle[0].1 / theory::upper_bound(c.shape.n(), c.shape.m()));
    let best = range(best).0;
    let last = range(cases.iter().filter_map(|c| c.juggle.last()).map(|p| p.1)).1;
    let (x, y) = axes();
    let findings = vec![
        Finding {
            paper: "what was measured follows the upper bounds closely where floor(n/m) = 1",
            here: format!(
                "the bound is {:.1} % above `juggle` on average for lambda up to 2 e, and never below \
                 it; with lambda = 100 ms `juggle` reaches at least {:.1} % of the limit",
                100.0 * slack,
                100.0 * best
            ),
            agrees: Agrees::when(slack < 0.05 && above < 1e-6 && best > 0.99, above < 1e-6),
        },
        Finding {
            paper: "balancing becomes ineffective as lambda grows relative to e",
            here: format!("at lambda = 3 e nothing is gained any more (at most {last:.3})"),
            agrees: Agrees::when(last < 1.001, last < 1.1),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: one phase of e = 30 s, lambda from 100 ms to 3 e, fair sharing, nothing costs \
             anything, policy `juggle`. Dotted: Eq. 1 over the greater of Eq. 2 and 14. The paper \
             measured EP class C on a Nehalem with 8 cores; which n and m it drew is only in the \
             picture, so that these are our choice.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-8"),
            title: String::from("Relative speedup and period where floor(n/m) = 1"),
            drawing: Drawing::Chart(Chart { x, y, series: series(&cases) }),
        }],
        findings,
    })
}

pub(crate) fn many() -> Result<Made, FigureError> {
    let cases = MANY.map(|c| case(c, 5, true));
    let cases: Vec<Case> = cases.into_iter().collect::<Result<_, _>>()?;
    let (above, loose) = (above_bound(&cases), slack(&cases));
    let of_one = ONE.map(|c| case(c, 2, false)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let tight = slack(&of_one);
    let (short, long) = (range(apart(&cases, 0.0, 0.1)).1, apart(&cases, 0.1 + 1e-9, 5.0));
    let farthest = range(long.iter().copied()).1;
    let (x, y) = axes();
    let findings = vec![
        Finding {
            paper: "the upper bound (dotted) is looser where floor(n/m) > 1",
            here: format!(
                "for lambda up to e ceil(n/m) it is {:.1} % above `juggle` on average, and {:.1} % with \
                 floor(n/m) = 1 (Figure 8); `juggle` is never above it",
                100.0 * loose,
                100.0 * tight
            ),
            agrees: Agrees::when(loose > tight && above < 1e-6, above < 1e-6),
        },
        Finding {
            paper: "the practical implementation follows the simulated idealised algorithm very \
                    closely",
            here: format!(
                "within {:.1} % for lambda up to e / 10, and within {:.1} % beyond, where one balancing \
                 point more or less decides",
                100.0 * short,
                100.0 * farthest
            ),
            agrees: Agrees::when(short < 0.01 && farthest < 0.05, short < 0.01),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "As Figure 8, up to lambda = 5 e, with the idealised algorithm of section 3 as solid lines.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-9"),
            title: String::from("Relative speedup and period where floor(n/m) > 1"),
            drawing: Drawing::Chart(Chart { x, y, series: series(&cases) }),
        }],
        findings,
    })
}
