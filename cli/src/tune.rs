//! `evenly tune`: the parameters of a program's balancer, shown and changed while it runs.

use crate::flags::TuneArgs;
use crate::restore::searched;
use crate::{End, output, tell};
use anyhow::Context;
use evenly_linux::journal::{Other, StateDir, others};
use evenly_linux::proc::Proc;
use evenly_linux::tuning::{self, Tuned};
use evenly_model::Pid;
use serde_json::{Value, json};
use std::fmt::Write;

/// Name and version of what `--json` writes.
const SCHEMA: &str = "evenly.tune/1";

pub(crate) fn tune(args: &TuneArgs) -> anyhow::Result<End> {
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let pid = Pid(args.pid);
    let dir = StateDir::look()?;
    let evenly = balancer(&dir, pid)?;
    let nothing = || {
        format!(
            "the evenly that balances process {pid} (process {}) has a policy without parameters; \
             hpc-auto, hpc-uniform and hpc-adaptive have parameters",
            evenly.evenly
        )
    };
    let (before, after) = if args.values.is_empty() {
        let tuned = tuning::read(&dir, evenly.evenly)?.with_context(nothing)?;
        (tuned.clone(), tuned)
    } else {
        tuning::tune(&dir, evenly.evenly, &args.values)?.with_context(nothing)?
    };
    if args.values.is_empty() {
        return output::say(&table(&after), json.as_deref(), || as_json(&evenly, &after));
    }
    if let Some(path) = &json {
        output::write_json(path, &as_json(&evenly, &after))?;
    }
    let changes = tuning::changes(&before.parameters, &after.parameters);
    let what = if changes.is_empty() { String::from("unchanged") } else { changes.join(", ") };
    let name = after.policy.name();
    let waits = if evenly.stands_still { ", once it is no longer stopped" } else { "" };
    tell(&format!("evenly: {name} of process {}: {what}{waits}", evenly.evenly));
    Ok(End::Status(0))
}

/// The evenly that has this process id, or that balances the program with it.
fn balancer(dir: &StateDir, pid: Pid) -> anyhow::Result<Other> {
    let all = others(dir, &Proc::default())?;
    let is_it = |o: &Other| o.evenly.pid == pid || o.program.is_some_and(|p| p.pid == pid);
    let known: Vec<String> = all.iter().filter_map(|o| Some(o.program?.pid.to_string())).collect();
    all.into_iter().find(is_it).with_context(|| {
        let known = match known.as_slice() {
            [] => String::from("none is running"),
            some => format!("those of this user balance {}", some.join(", ")),
        };
        format!(
            "no evenly of this user is, or balances, process {pid}: {known} (their journals are in {}); \
             that of another user is tuned by that user",
            searched(dir)
        )
    })
}

fn table(tuned: &Tuned) -> String {
    let mut text = format!("{}\n", tuned.policy.name());
    for p in tuning::known(tuned.policy.name()) {
        let (least, most) = p.range();
        // A String takes all that is written to it.
        let _ = writeln!(
            text,
            "  {:<13} {:>8}   {least} to {most}, usually {}: {}",
            p.name(),
            rounded(tuned.parameters.get(p)),
            rounded(p.usual()),
            p.about()
        );
    }
    text
}

/// As many digits as are useful to read.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn as_json(evenly: &Other, tuned: &Tuned) -> Value {
    let parameters: Vec<Value> = tuning::known(tuned.policy.name())
        .map(|p| {
            let (least, most) = p.range();
            json!({"name": p.name(), "value": tuned.parameters.get(p), "usual": p.usual(),
                "least": least, "most": most, "about": p.about()})
        })
        .collect();
    json!({"schema": SCHEMA, "evenly": env!("CARGO_PKG_VERSION"),
        "balancer": evenly.evenly.pid, "program": evenly.program.map(|p| p.pid),
        "policy": tuned.policy.name(), "parameters": parameters})
}
