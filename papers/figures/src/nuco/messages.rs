//! Figure 5: what each core receives while stencil4D runs.

use super::experiment::near;
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_cluster::CoreIndex;
use evenly_draw::{Axis, Chart, Look, Scale, Series, Table};
use evenly_draw::{decimals, number};
use evenly_model::TaskGraph;
use evenly_nuco::iterations::{Parameters, Program, Remapper, run};
use evenly_nuco::map::apps::STENCIL_4D;
use evenly_nuco::map::machines::NUMA48;
use evenly_nuco::map::{Options, mapper};

const ID: &str = "nuco-5";

pub(crate) fn figure() -> Result<Made, FigureError> {
    let cluster = (NUMA48.make)()?;
    let graph = STENCIL_4D.graph(1)?;
    let start = STENCIL_4D.start(&graph, &cluster);
    let program = Program::of(&STENCIL_4D, &graph, &start);
    let options = Options::default();
    let balancer = mapper("nuco").map(|mapper| Remapper::of(mapper, &options));
    let run = run(&program, &cluster, &Parameters::default(), balancer, 1)?;

    let cores = cluster.cores().len();
    let mut windows = run.mappings.iter().map(|m| received(&graph, m, cores));
    let before = windows.next().unwrap_or_default();
    let mut after = vec![0.0; cores];
    for window in windows {
        after.iter_mut().zip(window).for_each(|(sum, messages)| *sum += messages);
    }
    let (a, b) = (Spread::of(&before), Spread::of(&after));
    let names = |s: &Spread| match s.none {
        0 => String::new(),
        n => format!(", of those that receive any ({n} do not)"),
    };
    let findings = vec![
        Finding {
            paper: "before NUCOLB is called core 22 receives the most messages from other cores, 4.5 times as \
                    many as the one that receives the least",
            here: format!(
                "core {} receives the most, {} in 10 iterations, {:.1} times as many as the one with the \
                 least{}; the paper's start leaves all cores some tasks, it does not say which",
                a.fullest,
                number(a.most),
                a.ratio(),
                names(&a)
            ),
            agrees: Agrees::when(near(a.ratio(), 4.5, 0.2) && a.none == 0, a.ratio() > 1.5),
        },
        Finding {
            paper: "after it the most are 2.6 times the least",
            here: format!("{:.1} times{}", b.ratio(), names(&b)),
            agrees: Agrees::when(
                near(b.ratio(), 2.6, 0.2) && b.none == 0,
                b.none < a.none || (b.none == 0 && b.ratio() < a.ratio()),
            ),
        },
    ];
    let panel = |ending: &str, when: &str, messages: &[f64]| Panel {
        name: format!("{ID}-{ending}"),
        title: format!("stencil4D on NUMA48: messages received from other cores, {when}"),
        drawing: Drawing::Chart(Chart {
            x: Axis {
                scale: Scale::Names((0..cores).map(|c| c.to_string()).collect()),
                ..Axis::linear("core", "core")
            },
            y: Axis::linear("messages", "messages").showing(0.0),
            series: vec![Series::new(
                when,
                0,
                Look::Bars,
                messages.iter().enumerate().map(|(c, m)| (c as f64, *m)).collect(),
            )],
        }),
    };
    let row = |when: &str, s: &Spread| {
        vec![
            when.to_owned(),
            number(s.most),
            number(s.least),
            decimals(s.ratio(), 1),
            s.none.to_string(),
        ]
    };
    let (first, rest) = ("the first 10 iterations", "the other 40");
    let columns = vec![
        ("iterations", "iterations"),
        ("most", "most of a core"),
        ("least", "least of those that receive any"),
        ("ratio", "ratio"),
        ("none", "cores that receive none"),
    ];
    Ok(Made {
        setting: String::from(
            "Simulated: a run of stencil4D on NUMA48 with `nuco` as in Figure 4. Counted are messages whose \
             sender and receiver are on different cores, at the receiver; which they are follows from the \
             mapping of each window. The paper's picture was not at hand, only its text.",
        ),
        panels: vec![panel("before", first, &before), panel("after", rest, &after)],
        tables: vec![Table {
            name: format!("{ID}-table"),
            columns,
            rows: vec![row(first, &a), row(rest, &b)],
        }],
        findings,
    })
}

/// What each core receives from others in a window.
fn received(graph: &TaskGraph, mapping: &[CoreIndex], cores: usize) -> Vec<f64> {
    let mut received = vec![0.0; cores];
    for (t, &to) in mapping.iter().enumerate() {
        let from_others = graph.links(t).iter().filter(|l| mapping[l.with] != to);
        received[to] += from_others.map(|l| l.received).sum::<f64>();
    }
    received
}

/// How unequal it is.
struct Spread {
    fullest: usize,
    most: f64,
    /// The least value that is above 0.
    least: f64,
    none: usize,
}

impl Spread {
    fn of(received: &[f64]) -> Self {
        let order = |a: &usize, b: &usize| received[*a].total_cmp(&received[*b]).then(b.cmp(a));
        let fullest = (0..received.len()).max_by(order).unwrap_or(0);
        Self {
            fullest,
            most: received.iter().copied().fold(0.0, f64::max),
            least: received.iter().copied().filter(|m| *m > 0.0).fold(f64::INFINITY, f64::min),
            none: received.iter().filter(|m| **m <= 0.0).count(),
        }
    }

    fn ratio(&self) -> f64 {
        self.most / self.least
    }
}
