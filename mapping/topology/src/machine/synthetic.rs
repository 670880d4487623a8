//! Machines of a description in words, as hwloc understands it.
//!
//! Invariant: what a description stands for is counted before it is built.

use super::{MachineTopology, Origin, TopologyError};
use crate::hosts::{self, HostXml};
use crate::hwloc::{self, Input};
use crate::network::MOST_HOSTS;

/// Most CPUs of a synthetic description.
pub const MOST_CPUS: u64 = 16_384;
/// Most things of a level in one of the level above. hwloc compares each with all others of them, sets of CPUs
/// with sets of CPUs: what it does in a tenth of a second for 1,024 takes it minutes for 16,384.
pub(super) const MOST_BESIDE: u64 = 1_024;

/// The level of synthetic descriptions that hwloc has not: so many hosts, each as the rest says.
const HOST_LEVEL: &str = "host";

/// The machine that a synthetic description of hwloc stands for, such as `numa:2 core:4 pu:2`. Where it does not
/// go down to the CPUs (`pu`), each thing of its last level has one. A first level `host` is ours:
/// `host:2 numa:2 core:4` are two hosts as one machine, as [`join`](fn@super::join) makes them, named `host0` and `host1`.
///
/// # Errors
/// Where hwloc does not understand it, or it has more than [`MOST_CPUS`] CPUs, 1,024 things side by side or 256
/// hosts.
pub fn synthetic(text: &str) -> Result<MachineTopology, TopologyError> {
    let refused = |why: String| TopologyError::Synthetic { text: text.to_owned(), why };
    let levels = levels(text).map_err(refused)?;
    if levels.iter().fold(1, |all: u64, (_, n)| all.saturating_mul(*n)) > MOST_CPUS {
        return Err(TopologyError::TooMany { text: text.to_owned() });
    }
    if levels.iter().any(|(_, n)| *n > MOST_BESIDE) {
        return Err(TopologyError::TooManyBeside { text: text.to_owned() });
    }
    let last = levels.last().ok_or_else(|| refused("it is empty".into()))?;
    let (hosts, each) = host_level(text, &levels).map_err(refused)?;
    let whole = match last.0.to_ascii_lowercase().as_str() {
        // hwloc takes numbers without names, too; the last is of CPUs.
        "pu" | "" => each.to_owned(),
        _ => format!("{each} pu:1"),
    };
    let mut found = hwloc::read(Input::Synthetic(whole.trim())).map_err(refused)?;
    // One host is a machine.
    if let Some(hosts) = hosts.filter(|hosts| *hosts > 1) {
        let names: Vec<String> = (0..hosts).map(|k| format!("{HOST_LEVEL}{k}")).collect();
        let parts: Vec<HostXml<'_>> =
            names.iter().map(|name| HostXml { name, xml: &found.xml }).collect();
        let merged = hosts::merge(&parts, None).map_err(refused)?;
        found = hwloc::read(Input::Xml(&merged.xml)).map_err(refused)?;
    }
    MachineTopology::new(Origin::Synthetic(text.to_owned()), found)
}

/// How many hosts a synthetic description is of, where it says so, and what each of them is. The error
/// is what is wrong.
fn host_level<'a>(text: &'a str, levels: &[(&str, u64)]) -> Result<(Option<u64>, &'a str), String> {
    let is_host = |(name, _): &(&str, u64)| name.eq_ignore_ascii_case(HOST_LEVEL);
    let Some((first, inner)) = levels.split_first() else { return Ok((None, text)) };
    if inner.iter().any(is_host) {
        return Err(String::from("hosts are the first level, as in host:2 numa:2 core:4"));
    }
    if !is_host(first) {
        return Ok((None, text));
    }
    if !(1..=MOST_HOSTS as u64).contains(&first.1) {
        return Err(format!("there can be 1 to {MOST_HOSTS} hosts"));
    }
    match text.trim_start().split_at_checked(HOST_LEVEL.len()) {
        Some((name, rest)) if name.eq_ignore_ascii_case(HOST_LEVEL) => {
            let number = |c: char| c == ':' || c.is_ascii_digit();
            Ok((Some(first.1), rest.trim_start_matches(number)))
        }
        // Memory, or attributes of the machine.
        _ => Err(String::from("nothing can stand before the hosts")),
    }
}

/// The levels of a synthetic description with their numbers, as hwloc will read them; attributes (in
/// parentheses) and attached memory (in brackets) are no levels. It builds whatever it is given, so it is
/// counted before. The error is what is wrong.
fn levels(text: &str) -> Result<Vec<(&str, u64)>, String> {
    let (mut depth, mut start, mut levels) = (0_usize, None, Vec::new());
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let bare = depth == 0 && !c.is_whitespace() && !matches!(c, '(' | ')' | '[' | ']');
        match (bare, start) {
            (true, None) => start = Some(at),
            (false, Some(s)) => {
                levels.push(level(&text[s..at])?);
                start = None;
            }
            _ => {}
        }
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(levels)
}

/// The name of such a level, which may be left out, and its number.
fn level(word: &str) -> Result<(&str, u64), String> {
    let (name, number) = word.rsplit_once(':').unwrap_or(("", word));
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("'{word}' has no number of things, as in core:4"));
    }
    // A number that is too large for any type is too many, too.
    Ok((name, number.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_counted_before_it_is_built() {
        let of = |text| levels(text).unwrap();
        assert_eq!(of("numa:2 core:4 pu:2"), [("numa", 2), ("core", 4), ("pu", 2)]);
        assert_eq!(
            of("pack:2 [numa(memory=1GB)] [numa] core:3(x=1) pu:4(indexes=2*4:1*4)"),
            [("pack", 2), ("core", 3), ("pu", 4)]
        );
        assert_eq!(of("2 3 4"), [("", 2), ("", 3), ("", 4)]);
        assert_eq!(of("core:99999999999999999999"), [("core", u64::MAX)]);
        assert!(of(" ").is_empty());
        assert_eq!(of("host:20 numa:2 core:2"), [("host", 20), ("numa", 2), ("core", 2)]);
        for bad in ["core", "core:", "core:0x10", "core:-1", "core:4,"] {
            assert!(levels(bad).unwrap_err().contains(bad), "{bad}");
        }
        for many in ["numa:1000 core:1000 pu:2", "100000 100000", "core:99999999999999999999"] {
            let error = synthetic(many).unwrap_err().to_string();
            assert!(error.contains("more than 16384 CPUs"), "{error}");
        }
        for many in ["core:1025", "numa:2 core:1025 pu:2", "2 2 1025", "host:2 core:1025"] {
            let error = synthetic(many).unwrap_err().to_string();
            assert!(error.contains("more than 1024 things side by side"), "{error}");
        }
    }
}
