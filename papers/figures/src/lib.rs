//! The figures of the papers that evenly implements, drawn from its own theory, policies and
//! simulator, so that a reader can hold the tool against the literature.
//!
//! A figure is computed by one function of a module of its own ([`FIGURES`] lists them): its panels
//! as data, and findings, each of which sets what the paper says beside what came out here. Pictures
//! (SVG), CSV and the page of docs/figures.md are made of these data by functions that all figures
//! share ([`Chart`](evenly_draw::Chart), [`HeatMap`](evenly_draw::HeatMap), [`Lanes`], [`Traces`], [`page()`]).
//!
//! Nothing here measures a real machine. What the papers measured on hardware is simulated, and each
//! figure says with which parameters; what was measured once is a record in the sources.
//!
//! Invariant: equal code gives equal figures, byte for byte: virtual time, seeded randomness, no
//! clock. Whether a finding agrees with the paper is computed from the data, never stated.

#![forbid(unsafe_code)]

mod figure;
mod hpc;
mod juggle;
mod lanes;
mod loops;
mod nuco;
mod oslb;
mod page;
mod runs;
mod traces;

pub(crate) use figure::Made;
pub use figure::{Agrees, Drawing, Figure, FigureError, Finding, Info, Panel, Paper, Summary};
pub use juggle::sweep_map;
pub use lanes::Lanes;
pub use nuco::others;
pub use page::{page, section};
pub use traces::Traces;

use rayon::prelude::*;

/// Name and version of the schema of [`Figure::json`].
pub const SCHEMA: &str = "evenly.figures/1";

/// All figures, in the order of the papers.
pub const FIGURES: &[Info] = &[
    Info {
        id: "juggle-1",
        paper: Paper::Juggle,
        number: "1",
        title: "three threads on two CPUs",
        make: juggle::three_on_two,
    },
    Info {
        id: "juggle-6",
        paper: Paper::Juggle,
        number: "6",
        title: "proactive, reactive and per-domain balancing of 8 to 16 threads on 8 CPUs",
        make: juggle::shapes,
    },
    Info {
        id: "juggle-7",
        paper: Paper::Juggle,
        number: "7",
        title: "ideal relative speedup as floor(n/m) grows",
        make: juggle::oversubscription,
    },
    Info {
        id: "juggle-8",
        paper: Paper::Juggle,
        number: "8",
        title: "the period, one thread on a fast CPU",
        make: juggle::period_one,
    },
    Info {
        id: "juggle-9",
        paper: Paper::Juggle,
        number: "9",
        title: "the period, several threads on each CPU",
        make: juggle::period_many,
    },
    Info {
        id: "juggle-10",
        paper: Paper::Juggle,
        number: "10",
        title: "the idealised algorithm everywhere",
        make: juggle::everywhere,
    },
    Info {
        id: "juggle-11",
        paper: Paper::Juggle,
        number: "11",
        title: "many phases, with and without jitter of the period",
        make: juggle::phases,
    },
    Info {
        id: "juggle-13",
        paper: Paper::Juggle,
        number: "13",
        title: "lambda / e on three machines",
        make: juggle::machines,
    },
    Info {
        id: "juggle-15",
        paper: Paper::Juggle,
        number: "15",
        title: "two neighbours",
        make: juggle::neighbours,
    },
    Info {
        id: "juggle-16",
        paper: Paper::Juggle,
        number: "16",
        title: "migrations",
        make: juggle::migrations,
    },
    Info {
        id: "juggle-17",
        paper: Paper::Juggle,
        number: "17",
        title: "periods near the scheduler's slice",
        make: juggle::short_periods,
    },
    Info {
        id: "juggle-17-phases",
        paper: Paper::Juggle,
        number: "17, phases",
        title: "phases that are too short to balance by progress",
        make: juggle::fine_phases,
    },
    Info {
        id: "oslb-2",
        paper: Paper::Oslb,
        number: "2",
        title: "expected payoff of the selected candidate",
        make: oslb::payoff,
    },
    Info {
        id: "oslb-4",
        paper: Paper::Oslb,
        number: "4",
        title: "the balancing interval, many programs at once",
        make: oslb::interval,
    },
    Info {
        id: "oslb-5-6",
        paper: Paper::Oslb,
        number: "5 and 6",
        title: "one program at a time: with jitter of the system only, and beside a process that computes",
        make: oslb::alone,
    },
    Info {
        id: "oslb-7-8",
        paper: Paper::Oslb,
        number: "7, 8 and Table 2",
        title: "nine programs at once",
        make: oslb::together,
    },
    Info {
        id: "nuco-2",
        paper: Paper::Nuco,
        number: "2",
        title: "lb_test before and after NucoLB, on four cores",
        make: nuco::execution,
    },
    Info {
        id: "nuco-table-4",
        paper: Paper::Nuco,
        number: "Table IV",
        title: "lb_test, 200 uneven tasks that hardly communicate",
        make: nuco::lb_test,
    },
    Info {
        id: "nuco-3",
        paper: Paper::Nuco,
        number: "3",
        title: "kNeighbor, 400 equal tasks that communicate a lot",
        make: nuco::k_neighbor,
    },
    Info {
        id: "nuco-4",
        paper: Paper::Nuco,
        number: "4 and Table V",
        title: "stencil4D, 256 large and uneven tasks",
        make: nuco::stencil,
    },
    Info {
        id: "nuco-5",
        paper: Paper::Nuco,
        number: "5",
        title: "messages that each core receives, stencil4D before and after NucoLB",
        make: nuco::messages,
    },
    Info {
        id: "nuco-6",
        paper: Paper::Nuco,
        number: "6 and Table VI",
        title: "LeanMD, 1,875 small tasks, also on a cluster",
        make: nuco::lean_md,
    },
    Info {
        id: "hpc-3",
        paper: Paper::Hpc,
        number: "3 and Table III",
        title: "MetBench, whose ranks have unequal loads",
        make: hpc::metbench,
    },
    Info {
        id: "hpc-4",
        paper: Paper::Hpc,
        number: "4 and Table IV",
        title: "MetBenchVar, whose loads are reversed twice",
        make: hpc::metbench_var,
    },
    Info {
        id: "hpc-5",
        paper: Paper::Hpc,
        number: "5 and Table V",
        title: "BT-MZ, whose ranks wait for neighbours only",
        make: hpc::bt_mz,
    },
    Info {
        id: "hpc-6",
        paper: Paper::Hpc,
        number: "6 and Table VI",
        title: "a program like SIESTA, with many short and irregular phases",
        make: hpc::siesta,
    },
    Info {
        id: "loops-4",
        paper: Paper::Loops,
        number: "4",
        title: "six kernels on 16 processors, of which others use some",
        make: loops::execution,
    },
    Info {
        id: "loops-5",
        paper: Paper::Loops,
        number: "5",
        title: "16 processors of which others use some, against fewer that nobody else uses",
        make: loops::dedicated,
    },
];

/// The figures of a paper, or of all, or those that are named.
///
/// # Errors
/// [`FigureError::Unknown`].
pub fn select(paper: Option<Paper>, only: &[String]) -> Result<Vec<&'static Info>, FigureError> {
    if let Some(found) = only.iter().find(|o| FIGURES.iter().all(|f| f.id != o.as_str())) {
        let known = FIGURES.iter().map(|f| f.id).collect::<Vec<_>>().join(", ");
        return Err(FigureError::Unknown { found: found.clone(), known });
    }
    let wanted = |f: &&Info| {
        paper.is_none_or(|p| f.paper == p) && (only.is_empty() || only.iter().any(|o| o == f.id))
    };
    Ok(FIGURES.iter().filter(wanted).collect())
}

/// Computes figures on all cores; `done` is called with each, from any thread.
///
/// # Errors
/// [`FigureError`], of the first that comes to nothing.
pub fn make(
    figures: &[&'static Info],
    done: impl Fn(&Info) + Sync,
) -> Result<Vec<Figure>, FigureError> {
    let one = |info: &&'static Info| {
        let figure = info.make();
        done(info);
        figure
    };
    figures.par_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_paper_and_name() {
        let ids = |paper, only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|&o| o.to_owned()).collect();
            select(paper, &only).unwrap().iter().map(|f| f.id).collect()
        };
        assert_eq!(ids(None, &[]).len(), FIGURES.len());
        assert_eq!(ids(None, &["oslb-2", "juggle-9"]), ["juggle-9", "oslb-2"]);
        assert!(ids(Some(Paper::Oslb), &[]).iter().all(|id| id.starts_with("oslb-")));
        assert!(ids(Some(Paper::Oslb), &["juggle-9"]).is_empty());
        let error = select(None, &[String::from("juggle-99")]).unwrap_err().to_string();
        assert!(error.contains("juggle-99") && error.contains("juggle-9, "), "{error}");
    }
}
