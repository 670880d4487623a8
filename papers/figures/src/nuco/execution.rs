//! Figure 2: cores 4 to 7 while lb_test runs.

use super::experiment::near;
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::decimals;
use evenly_draw::{Axis, Chart, Look, Series, Table};
use evenly_nuco::iterations::{Parameters, Program, Remapper, Run, run};
use evenly_nuco::map::apps::LB_TEST;
use evenly_nuco::map::machines::NUMA32;
use evenly_nuco::map::{Options, mapper};
use std::ops::Range;

const ID: &str = "nuco-2";
/// As the paper's picture has them.
const CORES: Range<usize> = 4..8;
/// Iterations that are shown: those before the first call, those up to the second, and the beginning
/// of the rest.
const SHOWN: usize = 25;

pub(crate) fn figure() -> Result<Made, FigureError> {
    let cluster = (NUMA32.make)()?;
    let graph = LB_TEST.graph(1)?;
    let start = LB_TEST.start(&graph, &cluster);
    let program = Program::of(&LB_TEST, &graph, &start);
    let options = Options::default();
    let balancer = mapper("nuco").map(|mapper| Remapper::of(mapper, &options));
    let run = run(&program, &cluster, &Parameters::default(), balancer, 1)?;

    let window = LB_TEST.window as usize;
    let [before, after] = [0..window, window..2 * window];
    let takes = |w: &Range<usize>| run.iterations_s[w.clone()].iter().sum::<f64>();
    let (before_s, after_s) = (takes(&before), takes(&after));
    let percent = |w: &Range<usize>| -> Vec<f64> {
        CORES.map(|core| 100.0 * busy(&run, core, w) / takes(w)).collect()
    };
    let (uneven, even) = (percent(&before), percent(&after));
    let all = 0..cluster.cores().len();
    let work = |core: &usize| busy(&run, *core, &before);
    let fullest = all.max_by(|a, b| work(a).total_cmp(&work(b))).unwrap_or(0);
    let [least, most] =
        [f64::min, f64::max].map(|f| uneven.iter().copied().reduce(f).unwrap_or(0.0));
    let least_after = even.iter().copied().fold(f64::INFINITY, f64::min);
    let listed = |all: &[f64]| all.iter().map(|p| decimals(*p, 0)).collect::<Vec<_>>().join(", ");
    let findings = vec![
        Finding {
            paper: "before NUCOLB is called, from 2 s to 9.4 s, the cores 4 to 7 are busy for unequal parts \
                    of the time; core 7 is the most loaded of all",
            here: format!(
                "the 10 iterations before the first call take {before_s:.1} s, in which the cores 4 to 7 are \
                 busy {} % of the time; the most loaded of all is core {fullest}, which is a matter of the \
                 loads that were drawn",
                listed(&uneven)
            ),
            agrees: Agrees::when(
                near(before_s, 7.4, 0.1) && most - least > 10.0,
                most - least > 10.0,
            ),
        },
        Finding {
            paper: "the 10 iterations after the call take 5.1 s, from 9.4 s to 14.5 s, and the cores hardly \
                    idle",
            here: format!(
                "{after_s:.1} s, and the four cores are busy {} % of the time",
                listed(&even)
            ),
            agrees: Agrees::when(
                near(after_s, 5.1, 0.1) && least_after > 85.0,
                after_s < before_s && least_after > least,
            ),
        },
    ];
    Ok(Made {
        setting: format!(
            "Simulated: a run of lb_test on NUMA32 with `nuco` as in Table IV, the first {SHOWN} of its 50 \
             iterations. For each iteration what part of it each of the four cores computes; the rest it \
             waits for the slowest of all 32. The paper's picture was not at hand, only its caption."
        ),
        panels: vec![Panel {
            name: ID.to_owned(),
            title: String::from("lb_test on cores 4 to 7 of NUMA32: how busy they are"),
            drawing: Drawing::Chart(chart(&run)),
        }],
        tables: vec![table(&run, &[("before the first call", before), ("after it", after)])],
        findings,
    })
}

/// How long a core was at work in these iterations.
fn busy(run: &Run, core: usize, iterations: &Range<usize>) -> f64 {
    run.busy_s[iterations.clone()].iter().map(|cores| cores[core]).sum()
}

fn chart(run: &Run) -> Chart {
    let window = run.before.max(1);
    let mut series: Vec<Series> = CORES
        .enumerate()
        .map(|(i, core)| Series::new(format!("core {core}"), i, Look::Line, Vec::new()))
        .collect();
    let mut at = 0.0;
    for k in 0..SHOWN.min(run.iterations_s.len()) {
        if k > 0 && k % window == 0 {
            at += run.calls.get(k / window - 1).map_or(0.0, |c| c.took_s);
        }
        let end = at + run.iterations_s[k];
        for (s, core) in series.iter_mut().zip(CORES) {
            let part = 100.0 * run.busy_s[k][core] / run.iterations_s[k];
            s.points.extend([(at, part), (end, part)]);
        }
        at = end;
    }
    Chart {
        x: Axis::linear("time_s", "time, s"),
        y: Axis::linear("busy_percent", "computing, % of the iteration").showing(0.0),
        series,
    }
}

fn table(run: &Run, windows: &[(&str, Range<usize>)]) -> Table {
    let rows = windows.iter().flat_map(|(name, w)| {
        let all: f64 = run.iterations_s[w.clone()].iter().sum();
        CORES.map(move |core| {
            let busy = busy(run, core, w);
            let idle = 100.0 * (1.0 - busy / all);
            vec![(*name).to_owned(), core.to_string(), decimals(busy, 2), decimals(idle, 1)]
        })
    });
    let columns = vec![
        ("window", "10 iterations"),
        ("core", "core"),
        ("busy_s", "computing s"),
        ("idle_percent", "idle %"),
    ];
    Table { name: format!("{ID}-table"), columns, rows: rows.collect() }
}
