//! The pictures and the page in docs are what the code draws now.
//!
//! To write them anew: `EVENLY_BLESS=1 cargo test --release -p evenly-figures --test figures`.
//!
//! The million runs of Figure 10 take too long without optimisation; there, its picture is checked
//! field by field for some rows.

use crate::{LONG, blessing, figures};
use evenly_figures::{FIGURES, page, section, sweep_map};
use evenly_sim::Sweep;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const PICTURES: &str = "figures/";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

const HOW: &str = "see the head of papers/figures/tests/figures/committed.rs";

#[test]
fn pictures_are_current() {
    let dir = docs().join("figures");
    if blessing() {
        fs::create_dir_all(&dir).unwrap();
        for p in figures().iter().flat_map(|f| &f.panels) {
            fs::write(dir.join(format!("{}.svg", p.name)), p.svg()).unwrap();
        }
    }
    for p in figures().iter().flat_map(|f| &f.panels) {
        let path = dir.join(format!("{}.svg", p.name));
        assert!(read(&path) == p.svg(), "{} is not what is drawn now; {HOW}", path.display());
    }
    let mut all = BTreeSet::from([format!("{LONG}.svg")]);
    all.extend(figures().iter().flat_map(|f| &f.panels).map(|p| format!("{}.svg", p.name)));
    let mut sum = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(all.remove(&name), "nothing draws {name}");
        let bytes = entry.metadata().unwrap().len();
        assert!(bytes < 40_000, "{name} has {bytes} bytes");
        sum += bytes;
    }
    assert!(all.is_empty() && sum < 600_000, "missing: {all:?}; {sum} bytes");
}

#[test]
fn the_page_is_current() {
    let path = docs().join("figures.md");
    if blessing() {
        fs::write(&path, page(figures(), PICTURES)).unwrap();
    }
    let text = read(&path);
    let head = page(&[], PICTURES);
    let sections = text.strip_prefix(&head).unwrap_or_else(|| panic!("the page's head; {HOW}"));
    let found: Vec<String> = sections.split("\n## ").skip(1).map(|s| format!("## {s}")).collect();
    assert_eq!(found.len(), FIGURES.len(), "{HOW}");
    for (info, found) in FIGURES.iter().zip(&found) {
        match figures().iter().find(|f| f.info == info) {
            Some(f) => assert_eq!(found.trim_end(), section(f, PICTURES).trim_end(), "{HOW}"),
            None => assert!(found.starts_with(&format!("## Juggle {}: ", info.number))),
        }
    }
}

/// Rows of the committed heat map, drawn again: as paths, these fields are a part of its paths.
#[test]
fn the_heat_map_is_current_where_it_is_looked_at() {
    if blessing() {
        return; // Another test is writing it.
    }
    let svg = read(&docs().join("figures").join(format!("{LONG}.svg")));
    // Each field is in exactly one path: colour by column and row, the latter from above.
    let committed = |column: usize, from_above: usize| -> Option<String> {
        svg.split("<path stroke=\"").skip(1).find_map(|p| {
            let (colour, rest) = p.split_once("\" d=\"")?;
            let d = rest.split('"').next()?;
            let hit = d.split('M').skip(1).any(|run| {
                let (c, run) = run.split_once(' ').unwrap();
                let (row, long) = run.split_once('v').unwrap();
                let (row, long): (usize, usize) = (row.parse().unwrap(), long.parse().unwrap());
                c.parse() == Ok(column) && (row..row + long).contains(&from_above)
            });
            hit.then(|| colour.to_owned())
        })
    };
    let mut looked = 0;
    for tenth in [9_u32, 19, 30, 49] {
        let sweep = Sweep { periods: 10 * tenth + 1..=10 * tenth + 10, ..Sweep::default() };
        let rows = sweep.run(|_| {}, &AtomicBool::new(false)).unwrap();
        let map = sweep_map(&rows);
        let colours = evenly_draw::heat_colours();
        for f in &map.fields {
            assert_eq!(f.row, tenth as usize);
            let found = committed(f.column, map.size.1 - 1 - f.row);
            assert_eq!(found.as_ref(), colours.get(map.level(f.mean)), "{f:?}; {HOW}");
            looked += 1;
        }
    }
    assert!(looked > 4 * 70, "{looked}");
}

#[test]
fn every_figure_has_something_to_say() {
    for f in figures() {
        assert!(!f.panels.is_empty() && !f.findings.is_empty(), "{:?}", f.info);
        for p in &f.panels {
            assert!(p.name.starts_with(f.info.id.split_once('-').unwrap().0), "{}", p.name);
            let (svg, csv) = (p.svg(), p.csv());
            assert!(svg.starts_with("<svg") && csv.lines().count() > 5, "{}", p.name);
            assert!(!svg.contains("NaN") && !csv.contains("NaN") && !csv.contains("inf"));
            let columns = csv.lines().next().unwrap().split(',').count();
            assert!(csv.lines().all(|l| l.split(',').count() == columns), "{}", p.name);
        }
    }
}

/// Virtual time and seeds: however many cores work on it.
#[test]
fn figures_are_repeatable() {
    for id in ["juggle-15", "oslb-2"] {
        let made = crate::figure(id);
        assert_eq!(&made.info.make().unwrap(), made);
    }
}
