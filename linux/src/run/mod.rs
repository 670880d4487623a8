//! A run as a whole: the program is started or attached to, balanced, observed and let go.

pub(crate) mod agents;
pub mod beside;
pub(crate) mod control;
pub(crate) mod crowd;
pub(crate) mod doubts;
pub mod handover;
pub mod live;
pub mod mapping;
pub mod metronome;
pub(crate) mod others;
pub(crate) mod refused;
pub mod supervise;
pub mod tuning;
pub(crate) mod watcher;
pub mod witness;
