//! Sets of CPUs, and the kernel's list syntax for them (`0-3,8`).
//!
//! Invariant: the representation is canonical (no trailing zero words), so equality of sets is
//! equality of values.

use crate::CpuId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The largest CPU number that is accepted, exclusive: above every NR_CPUS that is built today.
const MAX_CPUS: u32 = 16_384;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    words: Vec<u64>,
}

/// Why a text is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part that is neither `a`, `a-b` nor `a-b:c/d`.
    #[error("CPU list '{list}': '{part}' is not a CPU number or a range such as 0-3,8")]
    Part {
        /// The whole list, as it was given.
        list: String,
        /// The part that cannot be read.
        part: String,
    },
    /// A range that ends before it starts.
    #[error("CPU list '{list}': the range '{part}' ends before it starts")]
    Backwards {
        /// The whole list, as it was given.
        list: String,
        /// The range that ends before it begins.
        part: String,
    },
    /// A CPU number that no kernel has.
    #[error("CPU list '{list}': CPU {cpu} is out of range, the largest that is accepted is 16383")]
    Range {
        /// The whole list, as it was given.
        list: String,
        /// The number that is too large.
        cpu: u64,
    },
}

impl CpuSet {
    /// A set without any CPU.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// The set of one CPU.
    #[must_use]
    pub fn single(cpu: CpuId) -> Self {
        let mut s = Self::new();
        s.insert(cpu);
        s
    }

    /// From the kernel's mask: words of 64 CPUs, lowest first.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        let mut s = Self { words: words.to_vec() };
        s.trim();
        s
    }

    /// The kernel's mask: words of 64 CPUs, lowest first, without trailing zeros.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Adds a CPU; one that is in the set already changes nothing.
    pub fn insert(&mut self, cpu: CpuId) {
        let word = (cpu.0 / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu.0 % 64);
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: CpuId) {
        let word = (cpu.0 / 64) as usize;
        if word < self.words.len() {
            self.words[word] &= !(1 << (cpu.0 % 64));
            self.trim();
        }
    }

    /// Whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get((cpu.0 / 64) as usize).is_some_and(|w| w >> (cpu.0 % 64) & 1 == 1)
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        // From one CPU of a word to the next, so that a set of one high CPU costs no walk over all below it.
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(CpuId(i as u32 * 64 + bit))
            })
        })
    }

    /// The CPU with the lowest number; None in an empty set.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::from_words(
            &self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect::<Vec<_>>(),
        )
    }

    /// The CPUs that are in one of the sets, or in both.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let n = self.words.len().max(other.words.len());
        let at = |s: &Self, i: usize| s.words.get(i).copied().unwrap_or(0);
        Self::from_words(&(0..n).map(|i| at(self, i) | at(other, i)).collect::<Vec<_>>())
    }

    /// CPUs of this set that are not in the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let at = |i: usize| other.words.get(i).copied().unwrap_or(0);
        Self::from_words(
            &self.words.iter().enumerate().map(|(i, w)| w & !at(i)).collect::<Vec<_>>(),
        )
    }

    /// Whether every CPU of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, w)| w & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// `CPU 3`, `CPUs 0-3`, `no CPUs`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.len() {
            0 => String::from("no CPUs"),
            1 => format!("CPU {self}"),
            _ => format!("CPUs {self}"),
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut s = Self::new();
        for cpu in cpus {
            s.insert(cpu);
        }
        s
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Reads the kernel's list syntax: `0-3,8`, groups `0-31:2/8` (two of every eight), blanks and
    /// a line end around it. The empty text is the empty set: the kernel prints it so.
    fn from_str(list: &str) -> Result<Self, CpuListError> {
        let mut set = Self::new();
        for part in list.trim().split(',').map(str::trim) {
            if part.is_empty() && list.trim().is_empty() {
                break;
            }
            let bad = || CpuListError::Part { list: list.trim().to_owned(), part: part.to_owned() };
            let number = |t: &str| -> Result<u64, CpuListError> {
                if t.is_empty() || !t.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(bad());
                }
                t.parse().map_err(|_| bad())
            };
            let (range, group) = match part.split_once(':') {
                Some((range, group)) => {
                    let (used, size) = group.split_once('/').ok_or_else(bad)?;
                    let (used, size) = (number(used)?, number(size)?);
                    if used == 0 || used > size {
                        return Err(bad());
                    }
                    (range, (used, size))
                }
                None => (part, (1, 1)),
            };
            let (first, last) = match range.split_once('-') {
                Some((a, b)) => (number(a)?, number(b)?),
                None => (number(range)?, number(range)?),
            };
            if last < first {
                return Err(CpuListError::Backwards {
                    list: list.trim().to_owned(),
                    part: part.to_owned(),
                });
            }
            if last >= u64::from(MAX_CPUS) {
                return Err(CpuListError::Range { list: list.trim().to_owned(), cpu: last });
            }
            for cpu in first..=last {
                if (cpu - first) % group.1 < group.0 {
                    set.insert(CpuId(cpu as u32));
                }
            }
        }
        Ok(set)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(|c| c.0).peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&(last + 1)) {
                last += 1;
                cpus.next();
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kernel_lists() {
        // Captured: /sys/devices/system/cpu/online, node*/cpulist, Cpus_allowed_list of several
        // machines, and the group syntax of Documentation/admin-guide/kernel-parameters.
        for (text, cpus) in [
            ("0-1\n", vec![0, 1]),
            ("0", vec![0]),
            ("", vec![]),
            ("\n", vec![]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("0,2-3,64", vec![0, 2, 3, 64]),
            ("0-7:1/2", vec![0, 2, 4, 6]),
            ("0-9:2/4", vec![0, 1, 4, 5, 8, 9]),
        ] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), cpus, "{text}");
        }
    }

    #[test]
    fn one_cpu_in_words_is_not_many() {
        let words = |list: &str| list.parse::<CpuSet>().unwrap().in_words();
        assert_eq!(["", "3", "0-3,8"].map(words), ["no CPUs", "CPU 3", "CPUs 0-3,8"]);
    }

    #[test]
    fn bad_lists_are_refused() {
        for bad in [",", "0,", "a", "3-1", "-1", "1-", "0-99999", "1:2", "0-3:0/2", "0-3:3/2", "+1"]
        {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(cpus in proptest::collection::btree_set(0u32..300, 0..60)) {
            let set: CpuSet = cpus.iter().map(|&c| CpuId(c)).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.len(), cpus.len());
        }

        #[test]
        fn set_algebra(a in proptest::collection::vec(any::<u64>(), 0..4), b in proptest::collection::vec(any::<u64>(), 0..4)) {
            let (a, b) = (CpuSet::from_words(&a), CpuSet::from_words(&b));
            prop_assert_eq!(a.and(&b).len() + a.or(&b).len(), a.len() + b.len());
            prop_assert!(a.and(&b).is_subset(&a) && a.is_subset(&a.or(&b)));
            prop_assert_eq!(a.minus(&b).or(&a.and(&b)), a);
        }

        #[test]
        fn no_text_panics(text in "[0-9,:/ a-z-]{0,20}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
