//! Figure 6: 8 to 16 threads on 8 CPUs, e = 30 s, lambda = 100 ms: proactive over the machine and
//! over two domains, and reactive.

use crate::runs::{EP, analysed, cpus, ms, run};
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_sim::DriverOptions;
use evenly_theory::{self as theory, Shape};
use rayon::prelude::*;

const CPUS: u32 = 8;

/// What was simulated for one n, as relative speedup: juggle, juggle in two domains, the policy
/// reactive, the kernel alone.
struct Row {
    n: u32,
    simulated: [f64; 4],
    theory: [f64; 3],
}

fn row(n: u32) -> Result<Row, FigureError> {
    let s = Shape::new(n, CPUS)?;
    let simple = analysed(s, EP, ms(100));
    let (scenario, options) = (simple.scenario(), simple.options());
    let two = DriverOptions { domains: vec![cpus(0, 4), cpus(4, 8)], ..options.clone() };
    let fixed = theory::static_time(s, EP).seconds();
    let speedup = |policy, options: &DriverOptions| {
        run(&scenario, policy, options, EP).map(|r| fixed / r.makespan)
    };
    let halves = [Shape::new(n.div_ceil(2), CPUS / 2)?, Shape::new(n / 2, CPUS / 2)?];
    Ok(Row {
        n,
        simulated: [
            speedup("juggle", &options)?,
            speedup("juggle", &two)?,
            speedup("reactive", &options)?,
            speedup("observe", &options)?,
        ],
        theory: [
            theory::upper_bound(n, CPUS),
            fixed / theory::domains_time(&halves, EP).seconds(),
            fixed / theory::reactive_time_anywhere(s, EP).seconds(),
        ],
    })
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let rows: Vec<Row> = (8..=16).into_par_iter().map(row).collect::<Result<_, _>>()?;
    let of = |name: &str, colour, look, value: &dyn Fn(&Row) -> f64| {
        Series::new(name, colour, look, rows.iter().map(|r| (f64::from(r.n), value(r))).collect())
    };
    let off = |sim: usize, theory: usize| {
        rows.iter().map(|r| (r.simulated[sim] / r.theory[theory] - 1.0).abs()).fold(0.0, f64::max)
    };
    let (whole, domains, reactive, kernel) = (off(0, 0), off(1, 1), off(2, 2), off(3, 2));
    let series = vec![
        of("proactive; Eq. 14", 0, Look::Line, &|r| r.theory[0]),
        of("two domains; Eq. 14", 1, Look::Line, &|r| r.theory[1]),
        of("reactive; Eq. 21", 2, Look::Line, &|r| r.theory[2]),
        of("juggle", 0, Look::Marks, &|r| r.simulated[0]),
        of("juggle in two domains", 1, Look::Marks, &|r| r.simulated[1]),
        of("the kernel alone", 2, Look::Marks, &|r| r.simulated[3]),
        of("reactive (policy)", 5, Look::Marks, &|r| r.simulated[2]),
    ];
    let of_section_4 = Shape::new(16, 12)?;
    let fixed = theory::static_time(of_section_4, EP);
    let by_21 = fixed.over(&theory::reactive_time(of_section_4, EP)?);
    let by_14 = fixed.over(&theory::continuous_time(of_section_4, EP));
    let percent = |x: f64| format!("{:.2} %", 100.0 * x);
    let findings = vec![
        Finding {
            paper: "Juggle over all CPUs is near the theory for lambda << e (Eq. 14), over two \
                    domains near that for two domains of four CPUs",
            here: format!(
                "within {} over the machine, {} over two domains",
                percent(whole),
                percent(domains)
            ),
            agrees: Agrees::when(whole < 0.01 && domains < 0.01, whole < 0.05),
        },
        Finding {
            paper: "Linux's own balancing (LLB) is near the theory of reactive balancing (Eq. 21)",
            here: format!(
                "within {} for the kernel as it is modelled here (an idle CPU pulls a waiting \
                 thread at once), {} for the policy `reactive`; real kernels pull later",
                percent(kernel),
                percent(reactive)
            ),
            agrees: Agrees::when(kernel < 0.01 && reactive < 0.01, kernel < 0.1),
        },
        Finding {
            paper: "16 threads on 12 CPUs gain the same from reactive and from proactive balancing \
                    (section 4.3, with reference to this figure)",
            here: format!(
                "Eq. 21 gives {by_21:.3}, Eq. 14 {by_14:.3}; for 12 on 8 both give {:.3}",
                theory::upper_bound(12, 8)
            ),
            agrees: Agrees::when((by_21 / by_14 - 1.0).abs() < 0.01, false),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: n = 8 to 16, m = 8, one phase of e = 30 s, lambda = 100 ms, fair sharing, \
             nothing costs anything; domains are CPUs 0-3 and 4-7. The paper ran its \
             microbenchmark on a Nehalem with 8 cores. Eq. 21 with the floor that its derivation \
             gives, where the print has a ceiling.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-6"),
            title: String::from("8 to 16 threads on 8 CPUs"),
            drawing: Drawing::Chart(Chart {
                x: Axis::linear("threads", "threads n"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}
