//! Moments as they are shown.

use std::time::{Duration, UNIX_EPOCH};

/// A moment as `2026-11-21T19:30:00Z`.
pub(crate) fn date(unix_s: u64) -> String {
    // The largest that can be written.
    let moment = UNIX_EPOCH + Duration::from_secs(unix_s.min(253_402_300_799));
    humantime::format_rfc3339_seconds(moment).to_string()
}
