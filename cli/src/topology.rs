//! `evenly topology`: what a machine is made of, and what its memory costs from where.

use crate::flags::TopologyArgs;
use crate::measure::measured_machine;
use crate::{End, network, output, tell_lines};
use anyhow::Context;
use evenly_topology::{Declared, Origin, Report, declared, from_xml, svg, synthetic, this_machine};
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
