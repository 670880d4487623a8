//! The ways of handing out iterations, by name.

use crate::chunks::Sizes;
use std::fmt;
use std::str::FromStr;

/// How the iterations of a region are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// One of the others, by measurement: [`crate::Auto`].
    #[default]
    Auto,
    /// Each processor has the same number, as with OpenMP's `schedule(static)`.
    Static,
    /// The same, and whoever has finished takes from the others, as with libomp's `static_steal`.
    StaticSteal,
    /// By relative power (sections 2.3 and 2.4).
    Rp,
    /// The same, and whoever has finished takes from the others: what is stolen stays with the thief (section 2.4).
    RpSteal,
    /// OpenMP's `schedule(guided)`.
    Guided,
    /// Factoring.
    Factoring,
    /// Adaptive weighted factoring, with weights for each batch.
    AwfB,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Auto,
        Self::Static,
        Self::StaticSteal,
        Self::Rp,
        Self::RpSteal,
        Self::Guided,
        Self::Factoring,
        Self::AwfB,
    ];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Static => "static",
            Self::StaticSteal => "static-steal",
            Self::Rp => "rp",
            Self::RpSteal => "rp-steal",
            Self::Guided => "guided",
            Self::Factoring => "factoring",
            Self::AwfB => "awf-b",
        }
    }

    /// How large chunks are, where whoever comes next takes one.
    pub(crate) fn sizes(self) -> Option<Sizes> {
        match self {
            Self::Guided => Some(Sizes::Guided),
            Self::Factoring => Some(Sizes::Factoring),
            Self::AwfB => Some(Sizes::Weighted),
            _ => None,
        }
    }

    /// Whether iterations follow powers.
    pub(crate) fn has_powers(self) -> bool {
        matches!(self, Self::Rp | Self::RpSteal)
    }

    /// Whether whoever has finished takes from the others.
    pub(crate) fn steals(self) -> bool {
        matches!(self, Self::StaticSteal | Self::RpSteal)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy for loops is called '{0}'; there are {names}", names = Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy(pub String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let unknown = "dynamic".parse::<Policy>().unwrap_err();
        assert!(
            unknown.to_string().ends_with(
                "'dynamic'; there are auto, static, static-steal, rp, \
            rp-steal, guided, factoring, awf-b"
            ),
            "{unknown}"
        );
    }
}
