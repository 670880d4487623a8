//! `evenly report`: a recording as a page, a trace, a picture.

use crate::flags::ReportArgs;
use crate::{End, output, tell};
use anyhow::Context;
use evenly_trace::{Recording, html, perfetto, svg};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<End> {
    let recording = read(&args.file)?;
    let nothing_asked = args.html.is_none() && args.perfetto.is_none() && args.svg.is_none();
    let or_default = |path: &Option<PathBuf>, ending: &str| {
        path.clone().or_else(|| nothing_asked.then(|| args.file.with_extension(ending)))
    };
    let (page, trace) =
        (or_default(&args.html, "html"), or_default(&args.perfetto, "perfetto-trace"));
    for output in [&page, &trace, &args.svg].into_iter().flatten() {
        if let Some(input) =
            std::iter::once(&args.file).chain(&args.with).find(|i| output::same_file(i, output))
        {
            anyhow::bail!(
                "{} would be written over the recording {}; name another file",
                output.display(),
                input.display()
            );
        }
    }
    if let Some(path) = page {
        write(&path, html::export(&recording).as_bytes())?;
    }
    if let Some(path) = trace {
        let file = File::create(&path).with_context(|| cannot_write(&path))?;
        perfetto::export(&recording, BufWriter::new(file)).with_context(|| cannot_write(&path))?;
        tell(&format!("evenly: wrote {} (open it in ui.perfetto.dev)", path.display()));
    }
    if let Some(path) = &args.svg {
        let more: Vec<(String, Recording)> =
            args.with.iter().map(|p| Ok((label(p), read(p)?))).collect::<anyhow::Result<_>>()?;
        let first = label(&args.file);
        let all: Vec<(&str, &Recording)> = std::iter::once((first.as_str(), &recording))
            .chain(more.iter().map(|(l, r)| (l.as_str(), r)))
            .collect();
        let picture = svg::timeline(&all, &svg::TimelineOptions::default());
        write(path, picture.as_bytes())?;
    }
    Ok(End::Status(0))
}

fn read(path: &Path) -> anyhow::Result<Recording> {
    Recording::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn label(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| cannot_write(path))?;
    tell(&format!("evenly: wrote {}", path.display()));
    Ok(())
}
