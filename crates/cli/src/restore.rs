//! `evenly restore`, and the guardian's entry.

use crate::flags::RestoreArgs;
use crate::{End, output, tell};
use evenly_linux::journal::StateDir;
use evenly_linux::restore::{Fate, restore_all};
use evenly_model::Pid;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Name and version of what `--json` writes.
const SCHEMA: &str = "evenly.restore/1";

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<End> {
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let dir = StateDir::find()?;
    let fates = restore_all(&dir, args.pid.map(Pid), args.force)?;
    let complete = fates.iter().all(|(_, fate)| complete(fate));
    if let Some(path) = &json {
        output::write_json(path, &as_json(&dir, complete, &fates))?;
    }
    if fates.is_empty() {
        match args.pid {
            Some(pid) => {
                anyhow::bail!("the balancer {pid} left nothing in {}", dir.path().display())
            }
            None => tell("evenly: nothing to restore"),
        }
    }
    for (path, fate) in &fates {
        tell(&format!("evenly: {}: {}", path.display(), describe(fate)));
    }
    Ok(End::Status(if complete { 0 } else { crate::FAILURE }))
}

fn complete(fate: &Fate) -> bool {
    match fate {
        Fate::Failed(_) => false,
        Fate::Restored(report) => report.failed.is_empty(),
        Fate::Alive | Fate::Stale | Fate::OtherNamespace => true,
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
                    "gone": r.gone, "failed": failed}})
            }
            Fate::Alive => json!({"journal": path, "fate": "alive"}),
            Fate::Stale => json!({"journal": path, "fate": "stale"}),
            Fate::OtherNamespace => json!({"journal": path, "fate": "other_namespace"}),
            Fate::Failed(e) => {
                json!({"journal": path, "fate": "failed", "reason": e.to_string()})
            }
        })
        .collect();
    json!({"schema": SCHEMA, "evenly": env!("CARGO_PKG_VERSION"), "directory": dir.path(),
        "complete": complete, "journals": journals})
}

fn describe(fate: &Fate) -> String {
    match fate {
        Fate::Restored(r) => {
            let mut text = match r.restored {
                1 => String::from("1 thread has its mask back"),
                n => format!("{n} threads have their masks back"),
            };
            if r.foreign > 0 {
                text += &format!(", {} kept as the program set them", r.foreign);
            }
            for f in r.failed.iter().take(3) {
                text += &format!("; thread {}: {}", f.id, f.reason);
            }
            text
        }
        Fate::Alive => String::from(
            "its balancer is at work; nothing was done (--force restores all the same)",
        ),
        Fate::Stale => String::from("nothing was left to restore; removed"),
        Fate::OtherNamespace => {
            String::from("it was written in another process id namespace; run evenly restore there")
        }
        Fate::Failed(e) => e.to_string(),
    }
}

pub(crate) fn guardian(journal: &Path, fd: i32) -> anyhow::Result<End> {
    evenly_linux::guardian::main(journal, fd)?;
    Ok(End::Status(0))
}
