//! Families of MPI libraries, and how they are recognised.

use std::fmt;

/// The two families of MPI libraries. Programs of one cannot use the other's: their handles are of
/// different sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI, whose handles are addresses.
    OpenMpi,
    /// MPICH, and those that are made of it with the same binary interface (Intel MPI, MVAPICH).
    Mpich,
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

impl Flavour {
    /// By the name of a library that a program needs.
    pub(crate) fn of_library(name: &str) -> Option<Self> {
        let (base, version) = name.split_once(".so")?;
        match base {
            // Numbers of the binary interface: 12 is what MPICH and its kin have agreed on, Open MPI's
            // are 1, 20 and 40.
            "libmpi" if version.starts_with(".12") => Some(Self::Mpich),
            "libmpich" | "libmpifort" | "libmpichfort" | "libmpichf90" => Some(Self::Mpich),
            "libmpi" | "libmpi_mpifh" | "libmpi_usempif08" => Some(Self::OpenMpi),
            _ => None,
        }
    }

    /// By what a launcher says of its version.
    pub(crate) fn of_version(text: &str) -> Option<Self> {
        let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
        if has(&["Open MPI", "OpenRTE", "PRRTE", "prterun"]) {
            Some(Self::OpenMpi)
        } else if has(&["HYDRA", "Hydra", "MPICH", "Intel(R) MPI"]) {
            Some(Self::Mpich)
        } else {
            None
        }
    }

    /// How Debian names its parts.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// Debian's package with the compiler.
    pub(crate) const fn package(self) -> &'static str {
        match self {
            Self::OpenMpi => "libopenmpi-dev",
            Self::Mpich => "libmpich-dev",
        }
    }
}
