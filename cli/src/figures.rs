//! `evenly figures`: the papers' figures from evenly's own code.

use crate::flags::FiguresArgs;
use crate::{End, output};
use anyhow::Context;
use evenly_figures::{Agrees, FIGURES, Figure, SCHEMA, make, page, select};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;

/// The page beside the pictures.
const PAGE: &str = "figures.md";

pub(crate) fn figures(args: &FiguresArgs) -> anyhow::Result<End> {
    let wanted = select(args.paper.map(Into::into), &args.only).context("--only")?;
    anyhow::ensure!(
        !wanted.is_empty(),
        "--only names figures of another paper than --paper; leave --paper out"
    );
    let out = output::of_this_process(&args.out);
    let json = args.json.as_deref().map(output::of_this_process);
    fs::create_dir_all(&out)
        .with_context(|| format!("--out: cannot make the directory {}", out.display()))?;
    output::check("--out", &out.join(PAGE))?;
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} figures")?;
        ProgressBar::new(wanted.len() as u64).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    bar.tick();
    let figures = make(&wanted, |_| bar.inc(1));
    bar.finish_and_clear();
    let figures = figures?;
    write_files(&figures, &out)?;
    let words = words(&figures, &out);
    output::say(&words, json.as_deref(), || {
        let list: Vec<_> = figures.iter().map(Figure::json).collect();
        json!({ "schema": SCHEMA, "out": out.display().to_string(), "figures": list })
    })
}

fn write_files(figures: &[Figure], out: &Path) -> anyhow::Result<()> {
    for panel in figures.iter().flat_map(|f| &f.panels) {
        output::write(&out.join(format!("{}.svg", panel.name)), panel.svg().as_bytes())?;
        output::write(&out.join(format!("{}.csv", panel.name)), panel.csv().as_bytes())?;
    }
    for table in figures.iter().flat_map(|f| &f.tables) {
        output::write(&out.join(format!("{}.csv", table.name)), table.csv().as_bytes())?;
    }
    output::write(&out.join(PAGE), page(figures, "").as_bytes())
}

fn words(figures: &[Figure], out: &Path) -> String {
    let mut t = String::new();
    let width = FIGURES.iter().map(|f| f.id.len()).max().unwrap_or(0);
    for f in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(t, "{:width$}  {}", f.info.id, f.info.title);
        for finding in &f.findings {
            let same = match finding.agrees {
                Agrees::Yes => "as in the paper",
                Agrees::Partly => "in part as in the paper",
                Agrees::No => "not as in the paper",
            };
            let _ = writeln!(t, "{:width$}    {same}: {}", "", finding.paper);
        }
    }
    let _ = writeln!(t, "{}: pictures, data, and what came out", out.join(PAGE).display());
    t
}
