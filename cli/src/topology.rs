//! `evenly topology`: what a machine is made of, and what its memory costs from where.

use crate::flags::TopologyArgs;
use crate::{End, network, output, tell, tell_lines};
use anyhow::Context;
use evenly_topology::{
    Declared, Machine, MeasureOptions, Origin, Report, declared, default_dir, from_xml, measure,
    svg, synthetic, this_machine,
};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

pub(crate) fn topology(args: &TopologyArgs) -> anyhow::Result<End> {
    let named = |path: &Option<PathBuf>| path.as_deref().map(output::of_this_process);
    let (export, picture, json) = (named(&args.export), named(&args.svg), named(&args.json));
    check(args, &[("--export", &export), ("--svg", &picture), ("--json", &json)])?;
    if let Some(dir) = &args.as_host {
        return network::one(args, dir);
    }
    let mut notes = Vec::new();
    let mut machine = match (&args.synthetic, &args.xml) {
        (Some(text), _) => synthetic(text).context("--synthetic")?,
        (None, Some(path)) => from_xml(path).context("--xml")?,
        (None, None) if args.network => network::all(args, &mut notes)?,
        (None, None) => this_machine()?,
    };
    let here = *machine.origin() == Origin::Here;
    let found: Option<Declared> = here.then(|| declared(Path::new("/")));
    if here && args.measure {
        machine = measured_machine(machine, args.again, &mut notes);
    }
    let report = Report { machine: &machine, declared: found.as_ref(), notes: &notes };
    let outputs = [&export, &picture, &json];
    if outputs.iter().any(|o| o.as_deref().is_some_and(output::is_stdout)) {
        tell_lines(&report.text());
    } else {
        output::write(Path::new("-"), report.text().as_bytes())?;
    }
    if let Some(path) = &export {
        output::write(path, machine.to_xml()?.as_bytes())?;
    }
    if let Some(path) = &picture {
        output::write(path, svg(&machine).as_bytes())?;
    }
    if let Some(path) = &json {
        output::write_json(path, &report.json())?;
    }
    Ok(End::Status(0))
}

/// Before anything is measured: whether all can be written, each to a place of its own.
fn check(args: &TopologyArgs, outputs: &[(&str, &Option<PathBuf>)]) -> anyhow::Result<()> {
    let outputs: Vec<(&str, &PathBuf)> =
        outputs.iter().filter_map(|(option, path)| Some((*option, path.as_ref()?))).collect();
    for (i, (option, path)) in outputs.iter().enumerate() {
        output::check(option, path)?;
        if outputs[..i].iter().any(|(_, other)| other == path) {
            anyhow::bail!("{} is named for two outputs; give two names", path.display());
        }
        if args.xml.as_ref().is_some_and(|input| output::same_file(input, path)) {
            anyhow::bail!(
                "{option}: {} would be written over the input; name another file",
                path.display()
            );
        }
    }
    Ok(())
}

/// The machine with what was measured on it, or is now, which is kept. What cannot be measured or kept
/// is noted.
pub(crate) fn measured_machine(machine: Machine, again: bool, notes: &mut Vec<String>) -> Machine {
    if let Some(kept) = machine.measurement().filter(|_| !again) {
        notes.push(format!("measured before, at {}; --again measures anew", kept.when()));
        return machine;
    }
    let mut said = |text: &str| {
        if stderr().is_terminal() {
            tell(&format!("evenly: {text}"));
        }
    };
    match measure(&machine, &MeasureOptions::default(), &mut said) {
        Ok(m) => {
            let machine = machine.with_measurement(m);
            let kept = match default_dir() {
                Some(dir) => machine.keep_in(&dir).map(drop).map_err(|e| {
                    format!("what was measured cannot be kept in {}: {e}", dir.display())
                }),
                None => {
                    Err("what was measured is not kept: neither XDG_CACHE_HOME nor HOME is set"
                        .to_owned())
                }
            };
            notes.extend(kept.err());
            machine
        }
        Err(e) => {
            // What was measured earlier still counts.
            notes.push(format!(
                "not measured: {e}; the factors: {}",
                machine.factors().source().words()
            ));
            machine
        }
    }
}
