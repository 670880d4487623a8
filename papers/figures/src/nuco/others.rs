//! What programs of others (SCOTCH, METIS, KaHIP) make of the applications of the paper.
//!
//! Invariant: nothing is called here. A test that finds the programs installed calls them, and compares
//! what comes out with what is recorded, or records it anew (`tests/figures/others.rs`); so figures are
//! the same where they are not installed.

use super::experiment::{RUNS, outcome};
use crate::FigureError;
use evenly_cluster::CoreIndex;
use evenly_model::Nanos;
use evenly_nuco::map::apps::{K_NEIGHBOR, LB_TEST, LEAN_MD, STENCIL_4D};
use evenly_nuco::map::machines::{NUMA4X20, NUMA32, NUMA48, PaperMachine};
use evenly_nuco::map::{Effort, Request, apps::App};
use std::fmt::Write as _;

/// Their names, as `evenly map` has them.
pub const PROGRAMS: [&str; 3] = ["scotch", "metis", "kahip"];

/// What was recorded, as CSV.
pub const RECORD: &str = include_str!("others.csv");

const HEAD: &str = "application,machine,program,seed,total_s,iteration_s,balancing_s,migrations,\
                    first,last,idle";

/// The runs of the tables: each application and its machines.
fn runs() -> impl Iterator<Item = (App, PaperMachine)> {
    let on = |app: App, machines: &[PaperMachine]| -> Vec<(App, PaperMachine)> {
        machines.iter().map(|&m| (app, m)).collect()
    };
    let both = [NUMA32, NUMA48];
    let all = [
        on(LB_TEST, &both),
        on(K_NEIGHBOR, &both),
        on(STENCIL_4D, &both),
        on(LEAN_MD, &[NUMA32, NUMA48, NUMA4X20]),
    ];
    all.into_iter().flatten()
}

/// What a balancer made of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// Iterations and balancing, in seconds.
    pub(super) makespan_s: f64,
    /// An iteration after the first balancing, in seconds.
    pub(super) iteration_s: f64,
    /// A call, in seconds.
    pub(super) balancing_s: f64,
    /// Tasks moved in a call, in the first, and in the last.
    pub(super) migrations: f64,
    pub(super) first: f64,
    pub(super) last: f64,
    /// Part of the time that cores idle after the first balancing.
    pub(super) idle: f64,
}

/// What is recorded of a program, seed by seed.
pub(super) fn recorded(app: &str, machine: &str, program: &str) -> Vec<Outcome> {
    let rows = RECORD.lines().skip(1).map(|l| l.split(',').collect::<Vec<_>>());
    let its = rows.filter(|r| r.get(..3) == Some(&[app, machine, program][..]));
    its.filter_map(|r| {
        let n = |i: usize| r.get(i)?.parse().ok();
        Some(Outcome {
            makespan_s: n(4)?,
            iteration_s: n(5)?,
            balancing_s: n(6)?,
            migrations: n(7)?,
            first: n(8)?,
            last: n(9)?,
            idle: n(10)?,
        })
    })
    .collect()
}

/// What each of [`PROGRAMS`] takes for an application, in milliseconds: the least of what they said themselves
/// (`scotch_gmap -vt`, `gpmetis`; of SCOTCH the mapping, of METIS the partitioning, without reading and
/// writing) in the calls of one run on each machine, on a 2-core virtual machine. `nuco+` may search for 10 ms.
/// KaHIP does not say, and is taken to need none.
const TAKES_MS: [(&str, [u64; 3]); 4] = [
    ("lb_test", [1, 5, 0]),
    ("kNeighbor", [19, 8, 0]),
    ("stencil4D", [2, 6, 0]),
    ("LeanMD", [7, 23, 0]),
];

fn takes(app: &str, program: &str) -> Nanos {
    let of_app = TAKES_MS.iter().find(|t| t.0 == app).map(|t| t.1);
    let of_all = PROGRAMS.iter().zip(of_app.unwrap_or_default());
    let ms = of_all.filter(|p| *p.0 == program).map(|p| p.1);
    Nanos::from_millis(ms.sum())
}

/// Runs all applications with these of [`PROGRAMS`], so often each at most, and says what comes out in the form
/// of [`RECORD`]. Their own time is in it as it was measured (`TAKES_MS`).
///
/// # Errors
/// Never, with the applications and machines that there are.
pub fn record(
    programs: &[&str],
    runs_of_each: usize,
    map: &dyn Fn(&str, &Request<'_>) -> Vec<CoreIndex>,
) -> Result<String, FigureError> {
    let mut text = format!("{HEAD}\n");
    for (app, machine) in runs() {
        for &program in programs {
            for seed in RUNS.take(runs_of_each) {
                let decides = |request: &Request<'_>| map(program, request);
                let made = outcome(
                    &app,
                    &machine,
                    Some((&decides, Effort::Search, takes(app.name, program))),
                    seed,
                )?;
                let Outcome { makespan_s, iteration_s, balancing_s, .. } = made;
                let Outcome { migrations, first, last, idle, .. } = made;
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{},{program},{seed},{makespan_s:.6},{iteration_s:.6},{balancing_s:.6},\
                     {migrations},{first},{last},{idle:.6}",
                    app.name, machine.name
                );
            }
        }
    }
    Ok(text)
}
