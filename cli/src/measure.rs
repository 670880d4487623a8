//! What the memory of this host costs, measured and kept.

use crate::tell;
use evenly_topology::{MachineTopology, MeasureOptions, default_dir, measure};
use std::io::{IsTerminal, stderr};

/// The machine with what was measured on it, or is now, which is kept. What cannot be measured or kept
/// is noted.
pub(crate) fn measured_machine(
    machine: MachineTopology,
    again: bool,
    notes: &mut Vec<String>,
) -> MachineTopology {
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
