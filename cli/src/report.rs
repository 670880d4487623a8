//! `evenly report`: a recording as a page, a trace, a picture, figures.

use crate::flags::ReportArgs;
use crate::{End, output, tell};
use anyhow::Context;
use evenly_engine::Event;
use evenly_trace::{RecordError, Recording, html, perfetto, svg};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name and version of what `--json` writes.
const SCHEMA: &str = "evenly.report/1";

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<End> {
    let recording = read(&args.file)?;
    let named = |path: &Option<PathBuf>| path.as_deref().map(output::of_this_process);
    let (mut page, mut trace) = (named(&args.html), named(&args.perfetto));
    let (picture, figures) = (named(&args.svg), named(&args.json));
    if [&page, &trace, &picture, &figures].iter().all(|o| o.is_none()) {
        page = Some(args.file.with_extension("html"));
        trace = Some(args.file.with_extension("perfetto-trace"));
    }
    let outputs = [&page, &trace, &picture, &figures];
    check(args, &outputs)?;
    if let Some(path) = &page {
        output::write(path, html::export(&recording).as_bytes())?;
        wrote(path, "");
    }
    if let Some(path) = &trace {
        let mut out = output::create_binary(path)?;
        perfetto::export(&recording, &mut out)
            .and_then(|_| out.flush())
            .with_context(|| output::cannot_write(path))?;
        wrote(path, " (open it in ui.perfetto.dev)");
    }
    if let Some(path) = &picture {
        let more: Vec<(String, Recording)> =
            args.with.iter().map(|p| Ok((label(p), read(p)?))).collect::<anyhow::Result<_>>()?;
        let first = label(&args.file);
        let all: Vec<(&str, &Recording)> = std::iter::once((first.as_str(), &recording))
            .chain(more.iter().map(|(l, r)| (l.as_str(), r)))
            .collect();
        let title = title(&recording);
        let picture =
            svg::timeline(&all, &svg::TimelineOptions { title, ..svg::TimelineOptions::default() });
        output::write(path, picture.as_bytes())?;
        wrote(path, "");
    }
    if let Some(path) = &figures {
        let made: Vec<&PathBuf> = outputs.into_iter().flatten().collect();
        output::write_json(path, &as_json(&args.file, &recording, &made))?;
        wrote(path, "");
    }
    Ok(End::Status(0))
}

/// Nothing is written over a recording, and no two things to one place.
fn check(args: &ReportArgs, outputs: &[&Option<PathBuf>]) -> anyhow::Result<()> {
    let outputs: Vec<&PathBuf> = outputs.iter().copied().flatten().collect();
    for (i, output) in outputs.iter().enumerate() {
        if let Some(input) =
            std::iter::once(&args.file).chain(&args.with).find(|i| output::same_file(i, output))
        {
            anyhow::bail!(
                "{} would be written over the recording {}; name another file",
                output.display(),
                input.display()
            );
        }
        if outputs[..i].contains(output) {
            anyhow::bail!("{} is named for two outputs; give two names", output.display());
        }
    }
    Ok(())
}

fn as_json(file: &Path, recording: &Recording, wrote: &[&PathBuf]) -> Value {
    let (mut points, mut moves, mut failed) = (0_u64, 0_u64, 0_u64);
    let (mut threads, mut notes) = (BTreeSet::new(), Vec::new());
    for event in &recording.events {
        match event {
            Event::Point(p) => {
                points += 1;
                failed += p.moves.iter().filter(|m| m.error.is_some()).count() as u64;
                moves += p.moves.iter().filter(|m| m.error.is_none()).count() as u64;
            }
            Event::Joined { thread, .. } => _ = threads.insert(thread.id),
            Event::Note { at, text } => {
                notes.push(json!({"at_s": at.as_secs_f64(), "text": text}));
            }
            Event::Domain { .. } | Event::Left { .. } => {}
        }
    }
    let h = &recording.header;
    json!({
        "schema": SCHEMA,
        "evenly": env!("CARGO_PKG_VERSION"),
        "recording": file,
        "header": {"evenly": h.evenly, "command": h.command, "host": h.host,
            "settings": h.settings, "started_unix_ms": h.started_unix_ms},
        "seconds": recording.duration().as_secs_f64(),
        "points": points,
        "moves": moves,
        "failed_moves": failed,
        "threads": threads.len(),
        "notes": notes,
        "truncated": recording.truncated || recording.end.is_none(),
        "left_out": recording.end.as_ref()
            .map(|e| json!({"thinned": e.thinned, "dropped": e.dropped})),
        "run": recording.end.as_ref().map(|e| &e.summary),
        "wrote": wrote,
    })
}

fn read(path: &Path) -> anyhow::Result<Recording> {
    let recording = Recording::read(path).map_err(|e| match e {
        // It names the file itself.
        RecordError::Read { .. } => e.into(),
        e => anyhow::Error::new(e).context(format!("cannot read {}", path.display())),
    })?;
    warn_if_unfinished(path, &recording);
    Ok(recording)
}

/// What is shown of a recording that was cut off must not be taken for all of it.
pub(crate) fn warn_if_unfinished(path: &Path, recording: &Recording) {
    if let Some(why) = recording.unfinished() {
        tell(&format!("evenly: warning: {}: {why}", path.display()));
    }
}

/// Longest command shown as a title, in characters.
const TITLE: usize = 90;

/// What ran, for a picture.
fn title(recording: &Recording) -> String {
    let command = recording.header.command.join(" ");
    let name = command.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let rest = command.split_once(' ').map(|(_, rest)| format!(" {rest}")).unwrap_or_default();
    let mut title = match name {
        "" => String::from("who ran where"),
        name => format!("{name}{rest}: who ran where"),
    };
    if title.chars().count() > TITLE {
        title = format!("{name}: who ran where");
    }
    title
}

fn label(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn wrote(path: &Path, hint: &str) {
    if !output::is_stdout(path) {
        tell(&format!("evenly: wrote {}{hint}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_named_after_the_program() {
        let of = |command: &[&str]| {
            let header = json!({"schema": "evenly.record/1", "evenly": "0", "command": command});
            title(&Recording::parse(format!("{header}\n").as_bytes()).unwrap())
        };
        assert_eq!(of(&["./bin/app", "--n", "3"]), "app --n 3: who ran where");
        assert_eq!(of(&["/bin/app", &"x".repeat(200)]), "app: who ran where");
        assert_eq!(of(&[]), "who ran where");
    }
}
