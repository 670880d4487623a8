//! Several hosts as one machine: hwloc's XML of each, put together into one, with a group for each host.
//!
//! hwloc 2 has no object above a machine. Here the machine at the root stands for all hosts together, and
//! each host is a group in it (subtype [`SUBTYPE`], its name as the info [`NAME`]). CPUs and NUMA nodes
//! are numbered through, host by host, as hwloc wants different numbers for different things; packages and
//! cores keep their hosts' numbers. Distances, attributes of memory and what hwloc says of its own
//! abilities are left out: they are of one host alone.
//!
//! Invariant: what comes out has every CPU, node, cache and kind of CPU of every host once, in the order
//! of the hosts.

use evenly_model::{CpuId, CpuSet};
use quick_xml::Reader;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesStart, Event};
use std::fmt::Write as _;

/// The subtype of the group that is a host.
pub(crate) const SUBTYPE: &str = "Host";
/// The info that has its name; hwloc names the machine so, too.
pub(crate) const NAME: &str = "HostName";
/// The info of the whole that says how long a load from local memory takes, in nanoseconds: the median
/// of the hosts. Factors are over it, and so it makes seconds of them.
pub(crate) const MEMORY_NS: &str = "EvenlyMemoryLatencyNs";

/// The highest number, exclusive, of a CPU of all hosts together.
pub(crate) const MOST_CPUS: u32 = 1 << 20;

/// A host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostXml<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// hwloc's XML of it.
    pub(crate) xml: &'a str,
}

/// Hosts in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The XML.
    pub(crate) xml: String,
    /// What has to be added to the number of a node of each host to get its number here.
    pub(crate) node_offsets: Vec<u32>,
}

/// An element, its attributes as they are written, with escapes.
#[derive(Debug, Clone, PartialEq)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn of(start: &BytesStart<'_>) -> Result<Self, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let attributes = start.attributes().map(|a| {
            let a = a.map_err(|e| e.to_string())?;
            Ok::<_, String>((text(a.key.as_ref()), text(&a.value)))
        });
        Ok(Self {
            name: text(start.name().as_ref()),
            attributes: attributes.collect::<Result<_, _>>()?,
            children: Vec::new(),
        })
    }

    fn info(name: &str, value: &str) -> Self {
        Self {
            name: String::from("info"),
            attributes: vec![
                (String::from("name"), name.to_owned()),
                (String::from("value"), partial_escape(value).replace('"', "&quot;")),
            ],
            children: Vec::new(),
        }
    }

    /// The topmost element. Text between elements is left out: only distances have some.
    fn parse(xml: &str) -> Result<Self, String> {
        let mut reader = Reader::from_str(xml);
        let mut open: Vec<Self> = Vec::new();
        loop {
            let closed = match reader.read_event().map_err(|e| e.to_string())? {
                Event::Start(start) => {
                    open.push(Self::of(&start)?);
                    continue;
                }
                Event::Empty(start) => Self::of(&start)?,
                // The reader has seen to it that it ends what was begun last.
                Event::End(_) => open.pop().ok_or("an element ends that did not begin")?,
                Event::Eof => return Err(String::from("it ends too early")),
                _ => continue,
            };
            match open.last_mut() {
                Some(parent) => parent.children.push(closed),
                None => return Ok(closed),
            }
        }
    }

    fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, attribute: &str, value: String) {
        match self.attributes.iter_mut().find(|(name, _)| name == attribute) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((attribute.to_owned(), value)),
        }
    }

    fn is_object(&self, kind: &str) -> bool {
        self.name == "object" && self.get("type") == Some(kind)
    }

    fn is_info(&self, name: &str) -> bool {
        self.name == "info" && self.get("name") == Some(name)
    }

    /// The set of an attribute; none of those that are looked at may be missing or unlimited.
    fn numbers(&self, attribute: &str) -> Result<CpuSet, String> {
        let text = self.get(attribute).ok_or_else(|| format!("there is no {attribute}"))?;
        parse_set(text).ok_or_else(|| format!("the {attribute} is '{text}', no set that ends"))
    }

    /// All elements from this one down.
    fn each(
        &mut self,
        change: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        change(self)?;
        self.children.iter_mut().try_for_each(|child| child.each(change))
    }

    fn write(&self, depth: usize, out: &mut String) {
        let _ = write!(out, "{:1$}<{2}", "", 2 * depth, self.name);
        for (name, value) in &self.attributes {
            let _ = write!(out, " {name}=\"{value}\"");
        }
        if self.children.is_empty() {
            out.push_str("/>\n");
            return;
        }
        out.push_str(">\n");
        self.children.iter().for_each(|child| child.write(depth + 1, out));
        let _ = writeln!(out, "{:1$}</{2}>", "", 2 * depth, self.name);
    }
}

/// A set of numbers as hwloc writes it: words of 32 bits in hexadecimal, the highest first, an empty one
/// for 0; None where it is none, or has no end.
pub(crate) fn parse_set(text: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for (word, digits) in (0u32..).zip(text.rsplit(',')) {
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let bits = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).ok()? };
        let first = word.checked_mul(32).filter(|first| *first < MOST_CPUS)?;
        (0..32).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| set.insert(CpuId(first + bit)));
    }
    Some(set)
}

fn set_text(set: &CpuSet) -> String {
    let halves = set.words().iter().rev().flat_map(|word| [word >> 32, word & u64::from(u32::MAX)]);
    let mut text = String::new();
    for half in halves.skip_while(|half| *half == 0) {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}0x{half:08x}");
    }
    if text.is_empty() { String::from("0x0") } else { text }
}

fn shifted(set: &CpuSet, by: u32) -> CpuSet {
    set.iter().map(|n| CpuId(n.0 + by)).collect()
}

/// Sets of CPUs, and of nodes.
const CPU_SETS: [&str; 3] = ["cpuset", "complete_cpuset", "allowed_cpuset"];
const NODE_SETS: [&str; 3] = ["nodeset", "complete_nodeset", "allowed_nodeset"];

/// Puts hosts together; the error names the host. `memory_ns` is kept in it, where it is known
/// ([`MEMORY_NS`]).
pub(crate) fn merge(hosts: &[HostXml<'_>], memory_ns: Option<f64>) -> Result<Merged, String> {
    let mut whole = Whole::default();
    let mut groups = Vec::new();
    for host in hosts {
        let group = whole.take(host);
        groups.push(group.map_err(|what| format!("host {}: {what}", host.name))?);
    }
    let mut machine = Element {
        name: String::from("object"),
        attributes: vec![
            (String::from("type"), String::from("Machine")),
            (String::from("os_index"), String::from("0")),
        ],
        children: memory_ns
            .map(|ns| Element::info(MEMORY_NS, &ns.to_string()))
            .into_iter()
            .collect(),
    };
    for (attribute, set) in CPU_SETS.iter().chain(&NODE_SETS).zip(&whole.sets) {
        machine.set(attribute, set_text(set));
    }
    machine.set("gp_index", (whole.objects + 1).to_string());
    machine.children.extend(groups);
    let mut children = vec![machine];
    for mut kind in whole.kinds {
        kind.element.set("cpuset", set_text(&kind.cpus));
        children.push(kind.element);
    }
    let topology = Element {
        name: String::from("topology"),
        attributes: vec![(String::from("version"), String::from("2.0"))],
        children,
    };
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n",
    );
    topology.write(0, &mut xml);
    Ok(Merged { xml, node_offsets: whole.node_offsets })
}

/// CPUs of a kind, without which the element is the same for all that are alike.
struct CpuKinds {
    cpus: CpuSet,
    element: Element,
}

/// What has been put together so far.
#[derive(Default)]
struct Whole {
    /// As [`CPU_SETS`] and [`NODE_SETS`], in this order.
    sets: [CpuSet; 6],
    kinds: Vec<CpuKinds>,
    node_offsets: Vec<u32>,
    /// Numbers that objects have, which all must be different.
    objects: u64,
    cpus: u32,
    nodes: u32,
}

impl Whole {
    /// The group of a host.
    fn take(&mut self, host: &HostXml<'_>) -> Result<Element, String> {
        let topology = Element::parse(host.xml)?;
        let machine = topology.children.iter().find(|e| e.is_object("Machine"));
        let mut group = machine.ok_or("there is no machine in its XML")?.clone();
        let (cpus, nodes) = (self.cpus, self.nodes);
        let past = |set: &CpuSet| set.iter().last().map_or(0, |n| n.0 + 1);
        self.cpus = cpus
            .checked_add(past(&group.numbers("complete_cpuset")?))
            .filter(|cpus| *cpus <= MOST_CPUS)
            .ok_or_else(|| format!("all hosts together have more than {MOST_CPUS} CPUs"))?;
        self.nodes = nodes
            .checked_add(past(&group.numbers("complete_nodeset")?))
            .filter(|nodes| *nodes <= MOST_CPUS)
            .ok_or("all hosts together have too many NUMA nodes")?;
        self.node_offsets.push(nodes);
        let (before, mut most) = (self.objects, self.objects);
        group.each(&mut |e| {
            for (sets, by) in [(&CPU_SETS, cpus), (&NODE_SETS, nodes)] {
                for attribute in sets.iter().filter(|a| e.get(a).is_some()).collect::<Vec<_>>() {
                    let set = shifted(&e.numbers(attribute)?, by);
                    e.set(attribute, set_text(&set));
                }
            }
            let number = |e: &Element, attribute: &str| e.get(attribute)?.parse::<u64>().ok();
            if let Some(own) = number(e, "gp_index") {
                most = most.max(before.saturating_add(own));
                e.set("gp_index", before.saturating_add(own).to_string());
            }
            let by = if e.is_object("PU") {
                cpus
            } else if e.is_object("NUMANode") {
                nodes
            } else {
                return Ok(());
            };
            if let Some(own) = number(e, "os_index") {
                e.set("os_index", (own + u64::from(by)).to_string());
            }
            Ok(())
        })?;
        self.objects = most;
        for (all, attribute) in self.sets.iter_mut().zip(CPU_SETS.iter().chain(&NODE_SETS)) {
            *all = all.or(&group.numbers(attribute)?);
        }
        for kind in topology.children.iter().filter(|e| e.name == "cpukind") {
            self.add_kind(kind, cpus)?;
        }
        group.attributes.retain(|(name, _)| !name.starts_with("allowed_") && name != "os_index");
        group.set("type", String::from("Group"));
        group.set("subtype", SUBTYPE.to_owned());
        // A user's group, which is not to be left out where the host has one package only.
        for (attribute, value) in [("kind", "0"), ("subkind", "0"), ("dont_merge", "1")] {
            group.set(attribute, value.to_owned());
        }
        group.children.retain(|e| !e.is_info(NAME));
        group.children.insert(0, Element::info(NAME, host.name));
        Ok(group)
    }

    fn add_kind(&mut self, kind: &Element, by: u32) -> Result<(), String> {
        let cpus = shifted(&kind.numbers("cpuset")?, by);
        let mut element = kind.clone();
        element.attributes.retain(|(name, _)| name != "cpuset");
        match self.kinds.iter_mut().find(|k| k.element == element) {
            Some(same) => same.cpus = same.cpus.or(&cpus),
            None => self.kinds.push(CpuKinds { cpus, element }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_as_hwloc_writes_them() {
        for (text, list) in [
            ("0x00000003", "0-1"),
            ("0x0", ""),
            ("0x00000001,,0x80000000", "31,64"),
            ("0x0000000f,0xffffffff", "0-35"),
        ] {
            let set = parse_set(text).unwrap();
            assert_eq!(set, list.parse().unwrap(), "{text}");
            assert_eq!(parse_set(&set_text(&set)).unwrap(), set, "{text}");
        }
        let one = CpuSet::single(CpuId(64));
        assert_eq!(set_text(&one), "0x00000001,0x00000000,0x00000000");
        assert_eq!(shifted(&one, 3), CpuSet::single(CpuId(67)));
        for bad in ["0xf...f", "0xf...f,0x1", "x", "0x1ffffffff"] {
            assert_eq!(parse_set(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_not_hwlocs_is_refused_with_the_host() {
        for bad in [
            "",
            "<topology",
            "<topology></nothing>",
            "<topology/>",
            "<topology><object type=\"Machine\"/></topology>",
            "<topology><object type=\"Machine\" complete_cpuset=\"0xf...f\"/></topology>",
        ] {
            let error = merge(&[HostXml { name: "h", xml: bad }], Some(80.0)).unwrap_err();
            assert!(error.starts_with("host h: ") && error.lines().count() == 1, "{bad}: {error}");
        }
    }

    #[test]
    fn escapes_stay_as_they_are() {
        let text = "<a b=\"x &amp; &quot;y&quot;\"><c d=\"&lt;\"/></a>";
        let mut out = String::new();
        Element::parse(text).unwrap().write(0, &mut out);
        assert_eq!(out, "<a b=\"x &amp; &quot;y&quot;\">\n  <c d=\"&lt;\"/>\n</a>\n");
        assert_eq!(Element::info("n", "a<\"b\"").get("value"), Some("a&lt;&quot;b&quot;"));
    }
}
