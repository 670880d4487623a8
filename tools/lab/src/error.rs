//! What can go wrong between a request for a lab and its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a lab could not be had, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Something this machine lacks: QEMU, a kernel image, the right to cap
    /// CPUs. Tests skip and say so.
    #[error("the lab is not available here: {0}")]
    Unavailable(String),

    /// An option that cannot be met.
    #[error("{0}")]
    Options(String),

    /// A file or directory that could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A system call about the lab as a whole failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried, in words.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },

    /// A kernel image in a form that is not understood.
    #[error("kernel image {path}: {reason}")]
    KernelImage {
        /// The image that cannot be used.
        path: PathBuf,
        /// What was found, and what was needed.
        reason: String,
    },

    /// QEMU or the guest ended although it should run.
    #[error("{when}, the guest ended; its last words:\n{console}")]
    GuestEnded {
        /// What was going on.
        when: &'static str,
        /// The end of the kernel's console and of QEMU's messages.
        console: String,
    },

    /// The guest runs but gives no answer.
    #[error("{when}, the guest gave no answer within {waited:?}; its last words:\n{console}")]
    NoAnswer {
        /// What was going on.
        when: &'static str,
        /// How long the host waited.
        waited: Duration,
        /// The end of the kernel's console and of QEMU's messages.
        console: String,
    },

    /// QEMU or the guest's agent answered something unexpected.
    #[error("unexpected answer from {from}: {answer}")]
    Protocol {
        /// The program that answered.
        from: &'static str,
        /// What it answered.
        answer: String,
    },
}

impl LabError {
    /// Whether the cause is a missing prerequisite: a reason to skip, not to fail.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, LabError::Unavailable(_))
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { path, source }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::System { what, source }
    }
}

/// The result of everything the lab does.
pub type Result<T> = std::result::Result<T, LabError>;
