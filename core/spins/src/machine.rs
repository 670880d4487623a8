//! The kinds of processors of which the code is known.

use crate::wait::Wait;
use crate::{arm, x86};
use object::Architecture;

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86,
    /// aarch64.
    Arm,
}

impl Machine {
    /// That of this machine; None for another one.
    pub const HOST: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Arm)
    } else {
        None
    };

    pub(crate) fn of(architecture: Architecture) -> Option<Self> {
        match architecture {
            Architecture::X86_64 => Some(Self::X86),
            Architecture::Aarch64 => Some(Self::Arm),
            _ => None,
        }
    }

    /// The loops in the code of a function in which threads wait.
    #[must_use]
    pub fn waits(self, code: &[u8]) -> Vec<Wait> {
        match self {
            Self::X86 => x86::waits(code),
            Self::Arm => arm::waits(code),
        }
    }

    /// Loops around these places of a function that may wait, and in which there is none of the waits that are `known`.
    #[must_use]
    pub fn loops(self, code: &[u8], places: &[usize], known: &[Wait]) -> Vec<Wait> {
        match self {
            Self::X86 => x86::loops(code, places, known),
            Self::Arm => arm::loops(code, places, known),
        }
    }

    /// Whether a function that is called where these bytes of code end returns there: the last of them are a call.
    #[must_use]
    pub fn end_in_call(self, code: &[u8]) -> bool {
        match self {
            Self::X86 => x86::end_in_call(code),
            Self::Arm => arm::end_in_call(code),
        }
    }

    /// How many bytes of an instruction say which it is: the first two of those where threads of x86 wait, or the whole.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::X86 => 2,
            Self::Arm => 4,
        }
    }
}
