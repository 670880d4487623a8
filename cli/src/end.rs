//! How a command ends.

use evenly_linux::supervise::Outcome;

/// What a command came to.
pub(crate) enum End {
    /// evenly exits with this status.
    Status(u8),
    /// evenly ends as the program ended: with its status, or by the same signal.
    Like(Outcome),
}

/// The exit status of a failure of evenly itself, bad input included.
pub(crate) const FAILURE: u8 = 125;
