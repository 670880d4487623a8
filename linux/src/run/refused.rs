//! Why threads that spin keep their CPU, although they crowd the CPUs.

use crate::breakpoints::Unfit;
use evenly_model::Pid;
use std::io;

/// Why threads that spin keep their CPU, although they crowd the CPUs.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The program filters system calls.
    #[error("process {0} filters system calls (seccomp)")]
    LeftAlone(Pid),
    /// The table has no more room.
    #[error("there are more places where programs wait than the table has room for")]
    Full,
    /// The signal would not reach the handler.
    #[error("process {0} {1}")]
    Unfit(Pid, Unfit),
    /// It has Go's runtime.
    #[error("process {0} has Go's runtime, which handles signals past the C library")]
    Go(Pid),
    /// Its memory may not be changed.
    #[error(
        "the memory of process {pid} cannot be changed ({source}); needed are the rights of a debugger: \
         kernel.yama.ptrace_scope of at most 1, and proc_mem.force_override not restricted"
    )]
    Memory {
        /// The process.
        pid: Pid,
        /// What the system says.
        source: io::Error,
    },
}
