//! `evenly restore`, and the guardian's entry.

use crate::flags::RestoreArgs;
use crate::{End, tell};
use evenly_linux::journal::StateDir;
use evenly_linux::restore::{Fate, restore_all};
use evenly_model::Pid;
use std::path::Path;

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<End> {
    let dir = StateDir::find()?;
    let fates = restore_all(&dir, args.pid.map(Pid), args.force)?;
    if fates.is_empty() {
        match args.pid {
            Some(pid) => {
                anyhow::bail!("the balancer {pid} left nothing in {}", dir.path().display())
            }
            None => tell("evenly: nothing to restore"),
        }
    }
    let mut failed = false;
    for (path, fate) in &fates {
        failed |= match fate {
            Fate::Failed(_) => true,
            Fate::Restored(report) => !report.failed.is_empty(),
            _ => false,
        };
        tell(&format!("evenly: {}: {}", path.display(), describe(fate)));
    }
    Ok(End::Status(if failed { crate::FAILURE } else { 0 }))
}

fn describe(fate: &Fate) -> String {
    match fate {
        Fate::Restored(r) => {
            let mut text = format!("{} threads have their masks back", r.restored);
            if r.foreign > 0 {
                text += &format!(", {} keep the masks that the program chose", r.foreign);
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
