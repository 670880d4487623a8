//! What was changed, and how it is undone: the journal, the guardian that survives a killed evenly, and
//! restoring for both of them and for `evenly restore`.
//!
//! Invariant: every module that changes something depends on this room, which depends on none of them: undoing needs
//! the journal and the kernel, and nothing of a run.

pub(crate) mod descent;
pub mod guardian;
pub mod journal;
pub mod restore;
pub(crate) mod share_undo;
