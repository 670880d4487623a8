//! Identifiers as types of their own, so that a thread id is never taken for a CPU number.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Kernel thread id, as in `/proc/<pid>/task/<tid>`.
    Tid(i32)
}
id! {
    /// Process id (thread group id).
    Pid(i32)
}
id! {
    /// Logical CPU number, as the kernel counts.
    CpuId(u32)
}
id! {
    /// Number of a domain: a set of CPUs that is balanced on its own.
    DomainId(u32)
}

/// Identity of a thread: its id together with its start time.
///
/// The kernel re-uses thread ids; a re-used id has another start time and is another thread.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ThreadId {
    /// The id that the kernel has given the thread; it is used again after its end.
    pub tid: Tid,
    /// Start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start: u64,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tid)
    }
}
