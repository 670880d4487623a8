//! `evenly restore`, and the guardian's entry.

use crate::flags::RestoreArgs;
use crate::{End, output, tell};
use evenly_linux::journal::{Process, StateDir};
use evenly_linux::proc::Proc;
use evenly_linux::restore::{Fate, Left, Living, left, restore_all};
use evenly_linux::share::ShareReport;
use evenly_model::Pid;
use evenly_top::OtherState;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Name and version of what `--json` writes.
const SCHEMA: &str = "evenly.restore/1";

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<End> {
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let dir = StateDir::look()?;
    let fates = restore_all(&dir, args.pid.map(Pid), args.force)?;
    let complete = fates.iter().all(|(_, fate)| complete(fate, args.pid.is_some()));
    if let Some(path) = &json {
        output::write_json(path, &as_json(&dir, complete, &fates))?;
    }
    if fates.is_empty() {
        match args.pid {
            Some(pid) => {
                anyhow::bail!("the balancer {pid} left nothing in {}", searched(&dir))
            }
            None => tell("evenly: nothing to restore"),
        }
    }
    for (path, fate) in &fates {
        tell(&format!("evenly: {}: {}", path.display(), describe(fate)));
    }
    Ok(End::Status(if complete { 0 } else { crate::FAILURE }))
}

/// The directories in which journals were looked for.
pub(crate) fn searched(dir: &StateDir) -> String {
    let places: Vec<String> = dir.places().iter().map(|p| p.display().to_string()).collect();
    places.join(", ")
}

/// Whether all was done that was asked for. Threads of a living balancer are not left behind, and are
/// asked for only by name.
fn complete(fate: &Fate, named: bool) -> bool {
    match fate {
        Fate::Failed(_) => false,
        Fate::Restored(report) => report.is_complete(),
        Fate::Alive(_) => !named,
        Fate::Stale | Fate::OtherHost | Fate::OtherNamespace => true,
    }
}

fn as_json(dir: &StateDir, complete: bool, fates: &[(PathBuf, Fate)]) -> Value {
    let journals: Vec<Value> = fates
        .iter()
        .map(|(path, fate)| match fate {
            Fate::Restored(r) => {
                let failed: Vec<Value> = r
                    .failed
                    .iter()
                    .map(|f| {
                        json!({"tid": f.id.tid, "start": f.id.start, "wanted": f.wanted,
                            "reason": f.reason})
                    })
                    .collect();
                json!({"journal": path, "fate": "restored", "threads": {
                    "restored": r.restored, "foreign": r.foreign, "unchanged": r.unchanged,
                    "gone": r.gone, "failed": failed},
                    "shares": {"restored": r.shares.restored, "foreign": r.shares.foreign,
                    "groups": r.shares.groups, "failed": r.shares.failed}})
            }
            Fate::Alive(living) => json!({"journal": path, "fate": "alive",
                "balancer": {"pid": living.evenly.pid, "state": state(living).word()},
                "program": living.program.map(|p| json!({"pid": p.pid, "name": name(p)})),
                "held": living.held}),
            Fate::Stale => json!({"journal": path, "fate": "stale"}),
            Fate::OtherNamespace => json!({"journal": path, "fate": "other_namespace"}),
            Fate::OtherHost => json!({"journal": path, "fate": "other_host"}),
            Fate::Failed(e) => {
                json!({"journal": path, "fate": "failed", "reason": e.to_string()})
            }
        })
        .collect();
    let alive = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Alive(_))).count();
    json!({"schema": SCHEMA, "evenly": env!("CARGO_PKG_VERSION"), "directory": dir.path(),
        "complete": complete, "left_to_living": alive, "journals": journals})
}

fn state(living: &Living) -> OtherState {
    if living.stands_still { OtherState::Stopped } else { OtherState::Working }
}

/// The name of a program, where it still runs.
fn name(program: Process) -> Option<String> {
    let proc = Proc::default();
    let stat = proc.process_stat(program.pid).filter(|s| s.start == program.start)?;
    Some(stat.name())
}

/// Which program is left to which balancer, and how to restore its masks nevertheless.
fn left_to(living: &Living) -> String {
    let program = match living.program.map(|p| (p.pid, name(p))) {
        Some((pid, Some(name))) => format!("program {pid} ({name})"),
        Some((pid, None)) => format!("program {pid}, which has ended,"),
        None => String::from("its program"),
    };
    let held = match living.held {
        0 => {
            let evenly = living.evenly.pid;
            return format!(
                "{program}: nothing to restore, as no thread has a mask from evenly (pid {evenly})"
            );
        }
        1 => String::from("1 thread has a mask"),
        n => format!("{n} threads have masks"),
    };
    let now = match state(living) {
        OtherState::Stopped => {
            "which is stopped: its guardian restores them; --force does it at once"
        }
        _ => {
            "which is running and restores them when it ends; --force does it now, and the \
             balancer continues"
        }
    };
    format!("{program} was not changed: {held} from evenly (pid {}), {now}", living.evenly.pid)
}

/// What balancers that died with their guardians have left: a line for each, printed unless quiet.
pub(crate) fn leftovers(quiet: bool) -> Vec<String> {
    let found = StateDir::look().map(|dir| left(&dir)).unwrap_or_default();
    let lines: Vec<String> = found.iter().map(left_behind).collect();
    if !quiet {
        lines.iter().for_each(|line| tell(&format!("evenly: {line}")));
    }
    lines
}

fn left_behind(left: &Left) -> String {
    let shares = &left.report.shares;
    let counted = [
        (left.report.restored, "mask", "masks"),
        (shares.restored, "thread's share", "threads' shares"),
        (shares.groups, "group", "groups"),
    ];
    let parts: Vec<String> = counted
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, one, many)| format!("{n} {}", if n == 1 { one } else { many }))
        .collect();
    format!(
        "a balancer (pid {}) was killed together with its guardian, and left changes ({}): evenly restore \
         undoes them",
        left.evenly,
        parts.join(", ")
    )
}

/// What was given back besides masks; nothing where nothing was.
pub(crate) fn shares(r: &ShareReport) -> String {
    let mut text = String::new();
    for (n, one, many) in [
        (r.restored, "1 thread is scheduled as before", "threads are scheduled as before"),
        (r.groups, "1 control group is removed", "control groups are removed"),
    ] {
        match n {
            0 => {}
            1 => text += &format!(", {one}"),
            n => text += &format!(", {n} {many}"),
        }
    }
    if r.foreign > 0 {
        text += &format!(", {} scheduled as the program chose", r.foreign);
    }
    for why in r.failed.iter().take(3) {
        text += &format!("; {why}");
    }
    text
}

fn describe(fate: &Fate) -> String {
    match fate {
        Fate::Restored(r) => {
            let mut text = match r.restored {
                1 => String::from("restored the mask of 1 thread"),
                n => format!("restored the masks of {n} threads"),
            };
            if r.foreign > 0 {
                text += &format!(", {} masks that the program set itself were kept", r.foreign);
            }
            for f in r.failed.iter().take(3) {
                text += &format!("; thread {}: {}", f.id, f.reason);
            }
            text += &shares(&r.shares);
            text
        }
        Fate::Alive(living) => left_to(living),
        Fate::Stale => String::from("nothing was left to restore; removed"),
        Fate::OtherHost => String::from(
            "it is of another host that shares this directory, or of a former boot: run evenly restore on \
             the host that wrote it, or remove the file",
        ),
        Fate::OtherNamespace => {
            String::from("it was written in another process id namespace; run evenly restore there")
        }
        Fate::Failed(e) => e.to_string(),
    }
}

pub(crate) fn guardian(fd: i32) -> anyhow::Result<End> {
    evenly_linux::guardian::main(fd)?;
    Ok(End::Status(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_linux::restore::RestoreReport;

    #[test]
    fn what_is_left_is_reported_in_one_line() {
        let evenly = Process { pid: Pid(47), start: 1 };
        let shares = ShareReport { groups: 1, restored: 2, ..ShareReport::default() };
        let report = RestoreReport { restored: 3, shares, ..RestoreReport::default() };
        let line = left_behind(&Left { evenly, report });
        assert!(line.contains("(pid 47)"), "{line}");
        assert!(line.contains("(3 masks, 2 threads' shares, 1 group): evenly restore"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
