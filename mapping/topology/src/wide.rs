//! Synthetic machines that have very many things side by side.
//!
//! hwloc finds the place of an object by comparing its CPUs with those of its siblings, one after the
//! other: n cores side by side take n * n comparisons of sets of n CPUs, minutes for 16,384. Such a
//! description is handed to hwloc with two where there are many. What hwloc makes of the two is then
//! repeated as often as it was asked for. hwloc does not see that again: of XML, too, it takes minutes.
//!
//! Invariant: what comes out is what hwloc would have made of the description. It makes all things of a
//! level alike, so that one of them stands for all.

use crate::element::{CPU_SETS, Element, NODE_SETS, set_text};
use crate::hwloc::{self, Found, Input};
use crate::machine::{level, words};
use crate::tree::{Kind, Object};
use evenly_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// As many side by side are left to hwloc, which takes a tenth of a second for 1,024.
pub(crate) const MOST_BESIDE: u64 = 512;

/// A description of the same levels, with two where there are many.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Narrowed {
    pub(crate) text: String,
    /// The numbers that were asked for, of the levels that have more than one, from the topmost.
    counts: Vec<u64>,
}

/// None where hwloc can be asked as it is: where no level has more than `most`, or where the description numbers
/// things himself.
pub(crate) fn narrowed(text: &str, most: u64) -> Option<Narrowed> {
    let (mut narrow, mut counts, mut end) = (String::new(), Vec::new(), 0);
    for word in words(text) {
        let (_, n) = level(&text[word.clone()])?;
        counts.extend((n > 1).then_some(n));
        if n > most {
            let name = text[word.clone()].rfind(':').map_or(0, |colon| colon + 1);
            narrow.push_str(&text[end..word.start + name]);
            narrow.push('2');
            end = word.end;
        }
    }
    narrow.push_str(&text[end..]);
    (end > 0 && !text.contains("indexes=")).then_some(Narrowed { text: narrow, counts })
}

impl Narrowed {
    /// What hwloc makes of this description, with all that was asked for.
    pub(crate) fn read(&self) -> Result<Found, String> {
        let two = hwloc::read(Input::Synthetic(&self.text))?;
        let topology = self.widened(&two.xml)?;
        let root = object(&topology.children[0], 0, &mut BTreeMap::new())?;
        let mut xml = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n",
        );
        topology.write(0, &mut xml);
        Ok(Found { allowed: root.cpus.clone(), root, xml, ..two })
    }

    /// The XML of all, from hwloc's of this description; the error is what is wrong with that.
    fn widened(&self, xml: &str) -> Result<Element, String> {
        let mut topology = Element::parse(xml)?;
        topology.children.retain(|e| e.is_object("Machine"));
        let machine = topology.children.first_mut().ok_or("there is no machine in its XML")?;
        repeat(machine, &self.counts)?;
        number(machine, &mut BTreeMap::new());
        fill(machine, &CpuSet::new())?;
        Ok(topology)
    }
}

fn is_memory(e: &Element) -> bool {
    e.is_object("NUMANode") || e.is_object("MemCache")
}

/// What it consists of, memory and remarks aside.
fn is_part(e: &Element) -> bool {
    e.name == "object" && !is_memory(e)
}

/// The first part as often as its level says. Levels of one thing are not distinguished: nothing branches
/// there, and hwloc makes one object of several levels that have the same CPUs.
fn repeat(e: &mut Element, counts: &[u64]) -> Result<(), String> {
    let parts = e.children.iter().filter(|c| is_part(c)).count();
    let Some(at) = e.children.iter().position(is_part) else { return Ok(()) };
    if parts == 1 {
        return repeat(&mut e.children[at], counts);
    }
    let (n, inner) = counts.split_first().ok_or("it has more levels than its description")?;
    let mut first = e.children.remove(at);
    repeat(&mut first, inner)?;
    e.children.retain(|c| !is_part(c));
    e.children.extend((0..*n).map(|_| first.clone()));
    Ok(())
}

/// Numbers all that have a number, by what they are; memory after what it is attached to, as hwloc does.
fn number(e: &mut Element, next: &mut BTreeMap<String, u64>) {
    let mut take = |of: &str| {
        let n = next.entry(of.to_owned()).or_default();
        *n += 1;
        *n - 1
    };
    if e.get("gp_index").is_some() {
        e.set("gp_index", (take("") + 1).to_string());
    }
    if let (Some(kind), Some(_)) = (e.get("type").map(str::to_owned), e.get("os_index")) {
        e.set("os_index", take(&kind).to_string());
    }
    e.children.iter_mut().filter(|c| !is_memory(c)).for_each(|part| number(part, next));
    e.children.iter_mut().filter(|c| is_memory(c)).for_each(|memory| number(memory, next));
}

/// Adds the numbers of the objects of a kind, from this one down, to a set.
fn collect(e: &Element, kind: &str, set: &mut CpuSet) -> Result<(), String> {
    if e.is_object(kind) {
        let n = e.get("os_index").and_then(|n| n.parse().ok());
        set.insert(CpuId(n.ok_or_else(|| format!("a {kind} has no number"))?));
    }
    e.children.iter().try_for_each(|child| collect(child, kind, set))
}

/// The CPUs of each object, and its nodes: those that are attached to it, below it or above it.
fn fill(e: &mut Element, above: &CpuSet) -> Result<(), String> {
    let (mut cpus, mut nodes, mut attached) = (CpuSet::new(), above.clone(), above.clone());
    collect(e, "PU", &mut cpus)?;
    collect(e, "NUMANode", &mut nodes)?;
    e.children
        .iter()
        .filter(|c| is_memory(c))
        .try_for_each(|c| collect(c, "NUMANode", &mut attached))?;
    let write = |e: &mut Element, cpus: &CpuSet, nodes: &CpuSet| {
        for (names, set) in [(&CPU_SETS, cpus), (&NODE_SETS, nodes)] {
            let text = set_text(set);
            for name in names {
                if e.get(name).is_some() {
                    e.set(name, text.clone());
                }
            }
        }
    };
    write(e, &cpus, &nodes);
    for child in &mut e.children {
        if is_memory(child) {
            child.each(&mut |memory| {
                let mut own = CpuSet::new();
                collect(memory, "NUMANode", &mut own)?;
                write(memory, &cpus, &own);
                Ok(())
            })?;
        } else {
            fill(child, &attached)?;
        }
    }
    Ok(())
}

/// As data, as [`hwloc::read`] has it; synthetic machines have neither models nor subtypes. What is of a
/// kind is counted by level, memory after what it is attached to.
fn object(
    e: &Element,
    depth: usize,
    next: &mut BTreeMap<(Kind, usize), u32>,
) -> Result<Object, String> {
    let kind = match e.get("type").unwrap_or_default() {
        "Machine" => Kind::Machine,
        "Package" => Kind::Package,
        "Die" => Kind::Die,
        "NUMANode" => Kind::Node,
        "MemCache" => Kind::MemoryCache,
        "L1Cache" => Kind::L1,
        "L2Cache" => Kind::L2,
        "L3Cache" => Kind::L3,
        "L4Cache" => Kind::L4,
        "L5Cache" => Kind::L5,
        "Core" => Kind::Core,
        "PU" => Kind::Cpu,
        _ => Kind::Group,
    };
    let number = |attribute| e.get(attribute).and_then(|n| n.parse::<u64>().ok());
    let mut below = |memory: bool| {
        let depth = if memory { 0 } else { depth + 1 };
        let of = e.children.iter().filter(|c| if memory { is_memory(c) } else { is_part(c) });
        of.map(|c| object(c, depth, next)).collect::<Result<Vec<_>, _>>()
    };
    let (children, memory) = (below(false)?, below(true)?);
    let index = next.entry((kind, depth)).or_default();
    *index += 1;
    Ok(Object {
        kind,
        index: *index - 1,
        number: number("os_index").and_then(|n| u32::try_from(n).ok()),
        cpus: e.numbers("cpuset")?,
        bytes: number("cache_size").or_else(|| number("local_memory")).filter(|n| *n > 0),
        name: None,
        memory,
        children,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_what_hwloc_makes_of_them() {
        for text in [
            "core:5 pu:1",
            "5",
            "3 5 pu:1",
            "pack:2 core:7 pu:2",
            "numa:5 core:2 pu:1",
            "pack:5 numa:1 l3:1 core:3 pu:1",
            "pack:1 numa:4 l3:3 l2:5 core:1 pu:2",
            "pack:4(memory=1GB) die:1 l3:4(size=16MiB) l2:5 l1:1 core:1 pu:4",
            "(memory=2GB) core:9 pu:1",
            "pack:4 [numa(memory=16GiB)] [numa(memory=4GiB)] core:4 pu:1",
            "[numa] pack:4 [numa] core:4 [numa] pu:1",
            "group:4 core:4 pu:1",
            "numa:4 group:3 core:4 pu:1",
        ] {
            let direct = hwloc::read(Input::Synthetic(text)).unwrap();
            for most in [2, 3] {
                let ours = narrowed(text, most).unwrap().read().unwrap();
                // It is what hwloc reads in the XML, too.
                let told = hwloc::read(Input::Xml(&ours.xml)).unwrap();
                for found in [ours, told] {
                    assert_eq!(found.root, direct.root, "{text}, {most}");
                    assert_eq!(found.allowed, direct.allowed, "{text}");
                    assert_eq!(found.offline, direct.offline, "{text}");
                    assert_eq!(found.matrices, direct.matrices, "{text}");
                }
            }
        }
    }

    #[test]
    fn few_and_numbered_ones_are_left_to_hwloc() {
        assert_eq!(narrowed("core:512 pu:512", MOST_BESIDE), None);
        assert_eq!(narrowed("core:4 pu:1(indexes=3,2,1,0)", 2), None);
        let narrow = narrowed("pack:2 core:513(x) 1000", MOST_BESIDE).unwrap();
        assert_eq!(narrow.text, "pack:2 core:2(x) 2");
        assert_eq!(narrow.counts, [2, 513, 1000]);
    }
}
