//! What a journal names besides threads: directories in which control groups were made.

use std::path::PathBuf;

/// What kind of directory groups are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Kind {
    /// A control group of version 1 with the cpu controller.
    Shares = 1,
    /// A control group of version 2 with the cpu controller.
    Weight = 2,
}

impl Kind {
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Shares, Self::Weight].into_iter().find(|k| *k as u64 == number)
    }

    /// The file that lists a group's threads, and takes them in.
    #[must_use]
    pub fn threads_file(self) -> &'static str {
        match self {
            Self::Weight => "cgroup.threads",
            Self::Shares => "tasks",
        }
    }

    /// The file that holds a group's weight.
    pub(crate) fn weight_file(self) -> &'static str {
        match self {
            Self::Weight => "cpu.weight",
            Self::Shares => "cpu.shares",
        }
    }

    /// The weight that the kernel gives a group, and the weights that there are.
    pub(crate) fn scale(self) -> (f64, f64, f64) {
        match self {
            Self::Weight => (100.0, 1.0, 10_000.0),
            Self::Shares => (1_024.0, 2.0, 262_144.0),
        }
    }
}

/// A directory in which groups were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The kind of the directory, which decides how its files are named.
    pub kind: Kind,
    /// Its path from the root of the file system.
    pub path: PathBuf,
    /// Whether a controller was switched on for its groups, which was off.
    pub switched_on: bool,
}
