//! The page that shows figures: pictures, and what the paper says beside what came out here.
//!
//! Invariant: no number stands on the page that does not come from the figures' data.

use crate::{Figure, Paper};
use std::fmt::Write;

/// The part of one figure, in Markdown. Pictures are linked in the directory `pictures`, which ends
/// with a slash or is empty.
#[must_use]
pub fn section(figure: &Figure, pictures: &str) -> String {
    let info = figure.info;
    let mut t = String::new();
    let _ = writeln!(t, "## {} {}: {}\n", info.paper.name(), info.number, info.title);
    for p in &figure.panels {
        let _ = writeln!(t, "![{}]({pictures}{}.svg)\n", p.title, p.name);
    }
    let _ = writeln!(t, "{}\n", figure.setting);
    let _ = writeln!(t, "| the paper | here | the same? |\n|---|---|---|");
    for f in &figure.findings {
        let _ = writeln!(t, "| {} | {} | {} |", f.paper, f.here, f.agrees.word());
    }
    for table in &figure.tables {
        let _ = write!(t, "\n{}", table.markdown());
    }
    t
}

const HEAD: &str = "\
# The papers' figures, from evenly's own code

Written by `evenly figures`, as are the pictures; a test fails where they are not what the code says
now. Nothing here was measured on a real machine: what the papers measured on hardware is simulated
(`evenly simulate`), with the parameters that stand with each figure. Of the papers only text and
captions were at hand, not the pictures, so that what is compared is what the text says. What was
measured live is in measured.md.

`evenly figures --out DIR` writes all pictures and their data as CSV, `--only juggle-9` one of them.

Words: n threads on m CPUs, e the CPU time of a phase of one thread, lambda the balancing period.
Relative speedup is the makespan under static distribution over the makespan. For NucoLB's
applications a speedup is the total time without balancing over the total time. For those of HPCSched
`faster by` is the part of the baseline's time that an arm does not take, and a rank computes as long as
it is runnable.
";

/// The whole page of figures, as Markdown.
#[must_use]
pub fn page(figures: &[Figure], pictures: &str) -> String {
    let mut t = String::from(HEAD);
    for paper in [Paper::Juggle, Paper::Oslb, Paper::Nuco, Paper::Hpc, Paper::Loops] {
        for f in figures.iter().filter(|f| f.info.paper == paper) {
            let _ = write!(t, "\n{}", section(f, pictures));
        }
    }
    t
}
