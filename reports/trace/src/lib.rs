//! The recording of a run, and the pictures and traces that are made from it.
//!
//! A [`Recorder`] observes balancers and writes `evenly.record/1` (described in
//! `docs/recording.md`); [`Recording`] reads it back; the exporters turn a [`Recording`] into a
//! Perfetto trace ([`perfetto`]), a page ([`html`]) or a picture ([`svg`]).
//!
//! Invariant: exporters look at recordings only. Every figure that they show was observed, none is
//! computed from a theory, and where something was left out for lack of room they say so.

#![forbid(unsafe_code)]

mod format;
pub mod html;
mod lanes;
pub mod perfetto;
mod program;
mod reader;
mod recorder;
mod summary;
pub mod svg;
#[cfg(test)]
mod testdata;
mod timeline;

pub use format::{Header, MAX_LINE_BYTES, SCHEMA};
pub use program::{NoPhases, Phases, Program};
pub use reader::{End, MAX_FILE_BYTES, MAX_LINES, RecordError, Recording, Thinning};
pub use recorder::{
    DEFAULT_LIMIT_BYTES, MIN_LIMIT_BYTES, RecordStats, Recorder, RecorderHandle, RecorderOptions,
};

/// Reads arbitrary bytes as a recording and, where they are one, makes everything that can be made
/// of it. For fuzzing: whatever the bytes are, it returns.
pub fn exercise(bytes: &[u8]) {
    if let Ok(recording) = Recording::parse(bytes) {
        let _ = recording.program();
        let mut sink = std::io::sink();
        // Writing to the sink cannot fail, and a failure would not be a finding.
        let _ = perfetto::export(&recording, &mut sink);
        let _ = html::export(&recording);
        let _ = svg::timeline(&[("fuzz", &recording)], &svg::TimelineOptions::default());
    }
}
