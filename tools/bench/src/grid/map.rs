//! The heat map: the default against its best arm, in each cell that was measured.

use super::cells::{BESIDE, Cell, PHASES, THREADS, WAITS, beside, cells};
use super::kept::{AUTO, Measurement, worst};
use crate::commands::KERNEL;
use evenly_draw::{Matrix, Named, Tile};
use std::fmt::Write;

/// From which part of its best arm on the default counts as level with it.
const LEVEL: f64 = 0.97;

/// What came out, in a sentence, and the worst cell in another.
fn result(all: &[Measurement], seed: u64) -> (String, String) {
    let parts: Vec<f64> = all.iter().filter_map(|m| Some(m.of_best(seed)?.0.value)).collect();
    // As it is written into the fields.
    let level = parts.iter().filter(|part| (**part * 100.0).round() >= LEVEL * 100.0).count();
    let title = format!(
        "{AUTO} has 0.97 or more of the speed of the best arm in {level} of {} cells",
        parts.len()
    );
    let Some((m, part, arm)) = worst(all, seed) else { return (title, String::new()) };
    let what = cells().iter().find(|cell| cell.name() == m.cell).map(Cell::what);
    let what = what.unwrap_or_else(|| m.cell.clone());
    let open = match all.iter().filter(|m| m.is_open()).count() {
        0 => String::new(),
        open => format!(" In {open} more no arm came to its end."),
    };
    (title, format!("Worst: {what}: {} of {arm}.{open}", part.text(2)))
}

/// The words of a list.
fn listed(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        all => all.concat(),
    }
}

/// How it was measured.
fn how(all: &[Measurement]) -> [String; 2] {
    let mut arms: Vec<String> = Vec::new();
    for arm in all.iter().flat_map(|m| &m.arms).filter(|arm| arm.name != AUTO) {
        if !arms.contains(&arm.name) {
            arms.push(arm.name.clone());
        }
    }
    let range = |of: &dyn Fn(&Measurement) -> Option<usize>| {
        let (least, most) = all
            .iter()
            .filter_map(of)
            .fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        if least >= most { most.to_string() } else { format!("{least} to {most}") }
    };
    let seconds = range(&|m| Some(m.asked_s as usize));
    let runs = range(&|m| m.arms.iter().map(|arm| arm.seconds.len()).max());
    let time = if all.iter().any(|m| m.simulated) {
        format!("runs of {seconds} virtual seconds (with 2 threads, alone)")
    } else {
        format!("medians of {runs} runs of {seconds} s (with 2 threads, alone)")
    };
    [
        format!("Speed of {AUTO}, over that of the best of {}.", listed(&arms)),
        format!("Two CPUs; {time}."),
    ]
}

/// The picture of all that was measured.
pub(super) fn svg(all: &[Measurement], seed: u64) -> String {
    let (title, worst) = result(all, seed);
    let named = |group: &str, name: &str| Named { group: group.into(), name: name.into() };
    let columns = THREADS.iter().flat_map(|threads| {
        PHASES.iter().map(move |(phase, _)| named(&format!("{threads} threads"), phase))
    });
    let rows = WAITS.iter().flat_map(|(waits, _)| BESIDE.iter().map(|b| named(waits, beside(*b))));
    let tile = |cell: &Cell| {
        let m = all.iter().find(|m| m.cell == cell.name())?;
        let (part, arm) = m.of_best(seed)?;
        let mut told = format!("{}: {} of {arm}", cell.what(), part.text(2));
        if let Some(own) = m.over(AUTO, KERNEL, seed).filter(|_| arm != KERNEL) {
            // Writing to a string does not fail.
            let _ = write!(told, ", {} of the kernel", own.text(2));
        }
        Some(Tile { value: part.value, told })
    };
    let tiles = WAITS.iter().flat_map(|waits| {
        BESIDE.iter().map(|(hog, unequal)| {
            let in_row = |threads, phase| Cell {
                waits: *waits,
                phase,
                threads,
                hog: *hog,
                unequal: *unequal,
            };
            let all = THREADS.iter().flat_map(|t| PHASES.iter().map(|p| in_row(*t, *p)));
            all.map(|cell| tile(&cell)).collect()
        })
    });
    Matrix {
        title,
        notes: std::iter::once(worst).chain(how(all)).collect(),
        columns: columns.collect(),
        rows: rows.collect(),
        tiles: tiles.collect(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::super::kept::{measured, read};
    use super::*;
    use std::path::{Path, PathBuf};

    fn of(name: &str, seconds: [f64; 3]) -> Measurement {
        let [kernel, auto, phase] = seconds;
        measured(name, &[(KERNEL, kernel), (AUTO, auto), ("phase", phase)])
    }

    #[test]
    fn the_title_says_what_came_out_and_the_note_what_is_worst() {
        let all = [
            of("block-3-2ms", [1.0, 1.0, 1.1]),
            of("spin-4-hog-20ms", [2.0, 1.25, 1.0]),
            of("mpich-2-unequal-4s", [1.0, 1.01, 1.0]),
        ];
        let svg = svg(&all, 1);
        for wanted in [
            "auto has 0.97 or more of the speed of the best arm in 2 of 3 cells",
            "Worst: spin, 4 threads, 20ms, beside a hog: 0.80 of phase.",
            "over that of the best of kernel and phase.",
            "Two CPUs; medians of 1 runs of 2 s",
            "0.80 of phase, 1.60 of the kernel",
            ">mpich<",
        ] {
            assert!(svg.contains(wanted), "{wanted}: {svg}");
        }
        assert!(!svg.contains(">libomp<") && !svg.contains("5 threads"), "{svg}");
    }

    /// To draw them anew: `EVENLY_BLESS=1 cargo test -p evenly-bench committed_maps`.
    #[test]
    fn committed_maps_are_of_the_committed_figures() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for name in ["grid", "grid-simulated"] {
            let file = |end: &str| -> PathBuf { docs.join(format!("{name}.{end}")) };
            let all = read(&file("jsonl")).unwrap();
            assert!(!all.is_empty(), "{name}");
            let drawn = svg(&all, 1);
            if std::env::var_os("EVENLY_BLESS").is_some() {
                std::fs::write(file("svg"), &drawn).unwrap();
            }
            let there = std::fs::read_to_string(file("svg")).unwrap_or_default();
            assert!(
                there == drawn,
                "docs/{name}.svg is not what is drawn of docs/{name}.jsonl now"
            );
        }
    }
}
