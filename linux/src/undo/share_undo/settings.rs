//! Settings of CPUs, written back.
//!
//! Invariant: only where one has a value of ours still.

use crate::journal::{SettingRecord, State};
use crate::proc::read_all;
use std::fs;
use std::path::Path;

/// Whether a setting has a value of ours still.
pub(crate) fn is_ours(fs_root: &Path, record: &SettingRecord) -> bool {
    // A CPU that is offline has none; when it comes back the kernel gives it its own.
    let text = read_all(&record.setting.path(fs_root, record.cpu));
    let found = text.ok().and_then(|text| record.setting.parse(&text));
    record.state == State::Live
        && found.is_some_and(|f| f != record.original && record.set.contains(&f))
}

/// Writes a setting back. Whether that was needed.
pub(crate) fn undo(fs_root: &Path, record: &SettingRecord) -> Result<bool, String> {
    if !is_ours(fs_root, record) {
        return Ok(false);
    }
    let path = record.setting.path(fs_root, record.cpu);
    fs::write(&path, record.setting.text(record.original)).map(|()| true).map_err(|e| {
        format!(
            "{}: cannot write {} back: {e}; run evenly restore as root",
            path.display(),
            record.setting.text(record.original)
        )
    })
}
