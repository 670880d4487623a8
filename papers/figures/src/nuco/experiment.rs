//! An application of the paper on machines of the paper, with every mapper as its load balancer.
//!
//! Invariant: the parameters of the model are the same for all of them ([`Parameters::default`]), and
//! so are the options of the mappers. Programs of others are not called here: what they made of it is
//! recorded ([`super::others`]).

use super::others::{self, Outcome};
use crate::runs::mean;
use crate::{Drawing, FigureError, Panel};
use evenly_cluster::CoreIndex;
use evenly_draw::{Axis, Chart, Look, Scale, Series, Table};
use evenly_draw::{decimals, number};
use evenly_model::Nanos;
use evenly_nuco::iterations::{Parameters, Program, Remapper, run};
use evenly_nuco::map::apps::App;
use evenly_nuco::map::machines::PaperMachine;
use evenly_nuco::map::{Effort, MAPPERS, Options, Request};
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// Runs of each, with other tasks and other jitter: as many as the paper has at least.
pub(super) const SEEDS: u64 = 20;
/// Their seeds. By those of 1 to 20 the time limit of `nuco+`, its starts and how it shares out its time were
/// chosen.
pub(super) const RUNS: RangeInclusive<u64> = 21..=20 + SEEDS;
/// Student's t for so many runs: 95 % within.
const STUDENT: f64 = 2.093;
/// How long `nuco+` may search: a tenth of what the paper's balancers take in all on the cluster (Table
/// VI).
const SEARCH: Nanos = Nanos::from_millis(10);
/// The arm in which nothing is balanced.
pub(crate) const BASELINE: &str = "baseline";
/// Numbers of the paper stand at the mapper that is like its balancer: NUCOLB at `nuco`, GREEDYCOMMLB at
/// `greedy-comm`, TREEMATCHLB at `treematch`, SCOTCHLB here.
pub(crate) const SCOTCH: &str = "scotch";
/// What is held against all others.
const OURS: &str = "nuco+";
/// What one balancer made of it: means of all runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The total time of each run, in seconds.
    totals_s: [f64; SEEDS as usize],
    /// Iterations and balancing, in seconds.
    pub(crate) makespan_s: f64,
    /// An iteration after the first balancing, in seconds.
    pub(crate) iteration_s: f64,
    /// A call, in seconds.
    pub(crate) balancing_s: f64,
    /// Tasks moved in a call.
    pub(crate) migrations: f64,
    /// Tasks moved in the first call.
    pub(crate) first: f64,
    /// Tasks moved in the last call.
    pub(crate) last: f64,
    /// Part of the time that cores idle after the first balancing.
    pub(crate) idle: f64,
}

/// Numbers of the paper, by the mapper that is like its balancer.
pub(crate) type Known = &'static [(&'static str, f64)];

/// What the paper says of an application on a machine: what it prints of each balancer. What it says of
/// several together, as "the others", stands in the findings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) makespan_s: Known,
    /// The baseline's makespan over that of each, as printed.
    pub(crate) speedup: Known,
    pub(crate) iteration_s: Known,
    pub(crate) balancing_s: Known,
    pub(crate) migrations: Known,
}

/// An application on a machine.
pub(crate) struct Experiment {
    pub(crate) machine: PaperMachine,
    pub(crate) said: Said,
    /// The baseline, and then the mappers as they are registered.
    pub(crate) rows: Vec<Row>,
}

impl Experiment {
    pub(crate) fn new(app: &App, machine: PaperMachine, said: Said) -> Result<Self, FigureError> {
        let mappers = std::iter::once(None).chain(MAPPERS.iter().map(Some));
        let row = |mapper| Self::row_of(app, &machine, mapper);
        let mappers: Vec<_> = mappers.collect();
        let mut rows = mappers.into_par_iter().map(row).collect::<Result<Vec<_>, _>>()?;
        for program in others::PROGRAMS {
            let runs = others::recorded(app.name, machine.name, program);
            if !runs.is_empty() {
                rows.push(Row::of(program, &runs));
            }
        }
        Ok(Self { machine, said, rows })
    }

    fn row_of(
        app: &App,
        machine: &PaperMachine,
        mapper: Option<&'static evenly_nuco::map::MapperInfo>,
    ) -> Result<Row, FigureError> {
        let outcome = |seed| match mapper {
            None => outcome(app, machine, None, seed),
            Some(m) => outcome(app, machine, Some((&m.map, m.effort, SEARCH)), seed),
        };
        let runs = RUNS.map(outcome).collect::<Result<Vec<_>, FigureError>>()?;
        Ok(Row::of(mapper.map_or(BASELINE, |m| m.name), &runs))
    }

    /// What this one made of it; nothing but NaN where there is none.
    pub(crate) fn of(&self, name: &str) -> Row {
        let none = f64::NAN;
        let nothing = Row {
            name: "",
            totals_s: [none; SEEDS as usize],
            makespan_s: none,
            iteration_s: none,
            balancing_s: none,
            migrations: none,
            first: none,
            last: none,
            idle: none,
        };
        self.rows.iter().find(|r| r.name == name).copied().unwrap_or(nothing)
    }

    /// How much longer this one takes than `nuco+`, run by run, in percent: the mean and what it is within
    /// with 95 %.
    pub(crate) fn slower(&self, name: &str) -> (f64, f64, f64) {
        let pairs = self.of(name).totals_s.into_iter().zip(self.of(OURS).totals_s);
        let percent: Vec<f64> = pairs.map(|(theirs, ours)| 100.0 * (theirs / ours - 1.0)).collect();
        let n = percent.len() as f64;
        let middle = mean(&percent);
        let variance = percent.iter().map(|p| (p - middle).powi(2)).sum::<f64>() / (n - 1.0);
        let within = STUDENT * (variance / n).sqrt();
        (middle, middle - within, middle + within)
    }

    /// The baseline's makespan over that of this one.
    pub(crate) fn speedup(&self, name: &str) -> f64 {
        self.of(BASELINE).makespan_s / self.of(name).makespan_s
    }

    /// The mapper with the shortest makespan of all that are not left out.
    pub(crate) fn fastest(&self, left_out: &[&str]) -> Row {
        let rows = self.rows.iter().filter(|r| !left_out.contains(&r.name));
        rows.min_by(|a, b| a.makespan_s.total_cmp(&b.makespan_s)).copied().unwrap_or(self.of(""))
    }
}

impl Row {
    fn of(name: &'static str, runs: &[Outcome]) -> Self {
        let over = |of: fn(&Outcome) -> f64| mean(&runs.iter().map(of).collect::<Vec<f64>>());
        let total = |seed: usize| runs.get(seed).map_or(f64::NAN, |r| r.makespan_s);
        Self {
            name,
            totals_s: std::array::from_fn(total),
            makespan_s: over(|r| r.makespan_s),
            iteration_s: over(|r| r.iteration_s),
            balancing_s: over(|r| r.balancing_s),
            migrations: over(|r| r.migrations),
            first: over(|r| r.first),
            last: over(|r| r.last),
            idle: over(|r| r.idle),
        }
    }
}

/// What decides, what that takes, and how long a search may take.
pub(super) type Decides<'a> = (&'a dyn Fn(&Request<'_>) -> Vec<CoreIndex>, Effort, Nanos);

/// A run with a balancer, or without.
pub(super) fn outcome(
    app: &App,
    machine: &PaperMachine,
    decides: Option<Decides<'_>>,
    seed: u64,
) -> Result<Outcome, FigureError> {
    let cluster = (machine.make)()?;
    let graph = app.graph(seed)?;
    let start = app.start(&graph, &cluster);
    let time_limit = decides.map_or(SEARCH, |d| d.2);
    let options = Options { seed, time_limit, ..Options::default() };
    let balancer = decides.map(|(map, effort, _)| Remapper { map, effort, options: &options });
    let program = Program::of(app, &graph, &start);
    let run = run(&program, &cluster, &Parameters::default(), balancer, seed)?;
    Ok(Outcome {
        makespan_s: run.makespan_s,
        iteration_s: run.iteration_s(),
        balancing_s: run.balancing_s(),
        migrations: run.migrations(),
        first: run.calls.first().map_or(0.0, |c| c.migrations as f64),
        last: run.calls.last().map_or(0.0, |c| c.migrations as f64),
        idle: run.idle(),
    })
}

/// Whether a number is within a part of what is expected.
pub(crate) fn near(found: f64, expected: f64, part: f64) -> bool {
    (found / expected - 1.0).abs() <= part
}

/// Which is the fastest on each of two machines, as the end of a sentence.
pub(crate) fn fastest_on([a, b]: &[Experiment; 2]) -> String {
    let [on_a, on_b] = [a, b].map(|e| code(e.fastest(&[]).name));
    if on_a == on_b { format!("is {on_a}, on both") } else { format!("is {on_a}, and {on_b}") }
}

/// A name as code.
pub(crate) fn code(name: &str) -> String {
    format!("`{name}`")
}

/// A number that the paper gives.
fn known(of: Known, name: &str) -> Option<f64> {
    of.iter().find(|k| k.0 == name).map(|k| k.1)
}

/// Names on the axis: all of ours, and programs of others.
fn names() -> Vec<String> {
    let ours = std::iter::once(BASELINE).chain(MAPPERS.iter().map(|m| m.name));
    ours.chain(others::PROGRAMS).map(str::to_owned).collect()
}

/// Makespan, iteration, balancing and migrations, a picture each; the machines beside each other,
/// and what the paper has beside them.
pub(crate) fn panels(id: &str, app: &App, experiments: &[Experiment]) -> Vec<Panel> {
    type Of = fn(&Row) -> f64;
    type Says = fn(&Said) -> Known;
    let pictures: [(&str, &str, &'static str, &'static str, Of, Says); 4] = [
        ("", "total time", "total_s", "total time, s", |r| r.makespan_s, |s| s.makespan_s),
        (
            "-iteration",
            "an iteration after the first balancing",
            "iteration_s",
            "time of an iteration, s",
            |r| r.iteration_s,
            |s| s.iteration_s,
        ),
        (
            "-balancing",
            "a call of the balancer",
            "balancing_s",
            "time of a call, s",
            |r| r.balancing_s,
            |s| s.balancing_s,
        ),
        (
            "-migrations",
            "tasks moved in a call",
            "migrations",
            "tasks",
            |r| r.migrations,
            |s| s.migrations,
        ),
    ];
    let panel = |(ending, title, column, label, of, says): (&str, &str, _, _, Of, Says)| {
        let mut series = Vec::new();
        for (i, e) in experiments.iter().enumerate() {
            let ours = e.rows.iter().enumerate().map(|(k, r)| (k as f64, of(r))).collect();
            series.push(Series::new(e.machine.name, i, Look::Bars, ours));
            let known = says(&e.said);
            let names = names();
            let theirs = names.iter().enumerate().filter_map(|(k, name)| {
                known.iter().find(|n| n.0 == name).map(|n| (k as f64, n.1))
            });
            let theirs: Vec<(f64, f64)> = theirs.collect();
            if !theirs.is_empty() {
                // The same colour, lighter.
                let name = format!("{} in the paper", e.machine.name);
                series.push(Series::new(name, i + 16, Look::Bars, theirs));
            }
        }
        Panel {
            name: format!("{id}{ending}"),
            title: format!("{}: {title}", app.name),
            drawing: Drawing::Chart(Chart {
                x: Axis {
                    scale: Scale::Names(names()),
                    ..Axis::linear("balancer", "load balancer")
                },
                y: Axis::linear(column, label).showing(0.0),
                series,
            }),
        }
    };
    pictures.map(panel).into()
}

/// All numbers, ours and the paper's.
pub(crate) fn table(id: &str, experiments: &[Experiment]) -> Table {
    let columns = vec![
        ("machine", "machine"),
        ("balancer", "balancer"),
        ("total_s", "total s"),
        ("paper_total_s", "paper"),
        ("speedup", "speedup"),
        ("paper_speedup", "paper"),
        ("iteration_ms", "iteration ms"),
        ("paper_iteration_ms", "paper"),
        ("balancing_ms", "balancing ms"),
        ("paper_balancing_ms", "paper"),
        ("migrations", "migrations a call"),
        ("paper_migrations", "paper"),
        ("idle_percent", "idle %"),
        ("slower_percent", "longer than nuco+, %"),
        ("slower_least_percent", "from"),
        ("slower_most_percent", "to"),
    ];
    let mut rows = Vec::new();
    for e in experiments {
        let said = |name: &str| {
            let of = |k: Known, factor: f64| {
                known(k, name).map_or_else(String::new, |v| number(v * factor))
            };
            let speedup = known(e.said.speedup, name);
            [
                of(e.said.makespan_s, 1.0),
                speedup.map_or_else(String::new, |s| decimals(s, 2)),
                of(e.said.iteration_s, 1e3),
                of(e.said.balancing_s, 1e3),
                of(e.said.migrations, 1.0),
            ]
        };
        let row = |name: &str, ours: [String; 9]| {
            let [total, speedup, iteration, balancing, migrations, idle, more, least, most] = ours;
            let [p_total, p_speedup, p_iteration, p_balancing, p_migrations] = said(name);
            let machine = e.machine.name.to_owned();
            vec![
                machine,
                name.to_owned(),
                total,
                p_total,
                speedup,
                p_speedup,
                iteration,
                p_iteration,
                balancing,
                p_balancing,
                migrations,
                p_migrations,
                idle,
                more,
                least,
                most,
            ]
        };
        for r in &e.rows {
            let (more, least, most) = e.slower(r.name);
            let percent = |x: f64| if r.name == OURS { String::new() } else { decimals(x, 1) };
            let ours = [
                decimals(r.makespan_s, 2),
                decimals(e.speedup(r.name), 2),
                decimals(1e3 * r.iteration_s, 1),
                decimals(1e3 * r.balancing_s, 1),
                decimals(r.migrations, 0),
                decimals(100.0 * r.idle, 1),
                percent(more),
                percent(least),
                percent(most),
            ];
            rows.push(row(r.name, ours));
        }
        let scotch = row(SCOTCH, Default::default());
        let is_there = e.rows.iter().any(|r| r.name == SCOTCH);
        if !is_there && scotch.iter().skip(2).any(|cell| !cell.is_empty()) {
            rows.push(scotch);
        }
    }
    Table { name: format!("{id}-table"), columns, rows }
}

/// What all figures say of their runs.
pub(crate) fn setting(app: &App, experiments: &[Experiment]) -> String {
    let machines: Vec<&str> = experiments.iter().map(|e| e.machine.name).collect();
    let p = Parameters::default();
    let us = |s: f64| number(1e6 * s);
    format!(
        "Simulated: {} ({}), {} iterations, a call of the balancer after every {}, on {}; mean of {SEEDS} \
         runs with other tasks and other jitter. The model and where its parameters are from: \
         `policies/nuco/src/iterations.rs`; reading a message takes {} us and its bytes over the memory's \
         bandwidth, times the NUMA or NETWORK factor; a message between hosts {} us of CPU time on \
         either side and {} us until it is there; a call {} us a task, {} ns for each task and core \
         ({} for `nuco+`, its time limit), and {} us a migration and its bytes over the bandwidth. \
         Balancing time is of this model; it is not measured. alpha is 1e-5 as in the paper; `nuco+` also \
         counts bytes, by the machine's bandwidths; all options but its time limit are the usual ones. NUCOLB \
         stands at `nuco`, GREEDYCOMMLB at `greedy-comm`, TREEMATCHLB at `treematch`, SCOTCHLB at `scotch`, \
         which with `metis` and `kahip` is a program of others: what they made of these runs is recorded \
         (papers/figures/src/nuco/others.csv), with the time that they said they took (others.rs: 1 to 23 ms a \
         call; KaHIP does not say and is taken to need none). The last three columns are how much longer the \
         total is than with `nuco+`, run by run, and what the mean is within with 95 %. Its time limit, its starts and how it \
         shares out its time were chosen by other runs; with 5 and 20 ms: `cargo bench -p evenly-nuco --bench \
         limits` (docs/map.md). What is left empty the paper's text does not say.",
        app.name,
        app.about,
        app.iterations,
        app.window,
        machines.join(", "),
        us(p.message_s),
        us(p.network_s),
        us(p.flight_s),
        us(p.gather_s),
        number(1e9 * p.look_s),
        SEARCH,
        us(p.migration_s),
    )
}
