//! What a record can name besides threads: directories in which groups were made, and settings of CPUs.

use evenly_model::CpuId;
use std::path::{Path, PathBuf};

/// What kind of directory groups are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Kind {
    /// A control group of version 1 with the cpu controller.
    Shares = 1,
    /// A control group of version 2 with the cpu controller.
    Weight = 2,
    /// The topmost directory of resctrl.
    Resctrl = 3,
}

impl Kind {
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Shares, Self::Weight, Self::Resctrl].into_iter().find(|k| *k as u64 == number)
    }

    /// The file that lists a group's threads, and takes them in.
    #[must_use]
    pub fn threads_file(self) -> &'static str {
        match self {
            Self::Weight => "cgroup.threads",
            Self::Shares | Self::Resctrl => "tasks",
        }
    }

    /// The file that holds a group's weight.
    pub(crate) fn weight_file(self) -> &'static str {
        match self {
            Self::Weight => "cpu.weight",
            Self::Shares => "cpu.shares",
            Self::Resctrl => "schemata",
        }
    }

    /// The weight that the kernel gives a group, and the weights that there are.
    pub(crate) fn scale(self) -> (f64, f64, f64) {
        match self {
            Self::Weight => (100.0, 1.0, 10_000.0),
            Self::Shares | Self::Resctrl => (1_024.0, 2.0, 262_144.0),
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

/// A setting of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Setting {
    /// The limit of its frequency: `scaling_max_freq`, in kHz.
    HighestFrequency = 1,
    /// Its preference for performance or energy: `energy_performance_preference`.
    EnergyPreference = 2,
}

/// The kernel's words for a preference, the one that saves most first. `default` is none of them: what
/// it stands for is unknown, so it is in the journal with the number that follows.
pub(crate) const PREFERENCES: [&str; 5] =
    ["power", "balance_power", "balance_performance", "performance", "default"];
/// Some machines report numbers (0 to 255) instead.
const RAW: u64 = 256;

impl Setting {
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::HighestFrequency, Self::EnergyPreference]
            .into_iter()
            .find(|s| u64::from(*s as u32) == number)
    }

    /// The name of its file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::HighestFrequency => "scaling_max_freq",
            Self::EnergyPreference => "energy_performance_preference",
        }
    }

    /// The path of its file for this CPU, below the root of a file system.
    pub(crate) fn path(self, fs_root: &Path, cpu: CpuId) -> PathBuf {
        fs_root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{}", self.file()))
    }

    /// Reads a value as it stands in the file. None where its form is not known.
    #[must_use]
    pub fn parse(self, text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?.trim();
        match self {
            Self::HighestFrequency => text.parse().ok(),
            Self::EnergyPreference => PREFERENCES
                .iter()
                .position(|p| *p == text)
                .map(|at| at as u64)
                .or_else(|| text.parse().ok().filter(|n| *n < RAW).map(|n: u64| RAW + n)),
        }
    }

    /// The text that stands for a value in the file: the reverse of [`Setting::parse`].
    #[must_use]
    pub fn text(self, value: u64) -> String {
        match self {
            Self::EnergyPreference => usize::try_from(value)
                .ok()
                .and_then(|at| PREFERENCES.get(at))
                .map_or_else(|| value.saturating_sub(RAW).to_string(), |p| String::from(*p)),
            Self::HighestFrequency => value.to_string(),
        }
    }
}
