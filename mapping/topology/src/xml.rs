//! Looks at XML before hwloc does.
//!
//! hwloc trusts XML: a set that is missing, a number that is too large or a document type without an
//! address ends in a crash or in a loop without end. What it cannot stand is refused here, by line.
//!
//! Invariant: what passes has the objects, sets and numbers that hwloc takes for granted; whatever
//! hwloc and evenly wrote passes.

use crate::element::{MOST_CPUS, parse_set};
use evenly_model::{CpuId, CpuSet};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeSet;

/// Most elements within each other. A tree of hwloc has some 20 levels, and it is walked by recursion.
const MOST_LEVELS: usize = 128;
/// Most objects of a matrix of distances, as hwloc multiplies numbers of 32 bits.
const MOST_IN_MATRIX: u32 = 32_768;
/// What hwloc says of a matrix, as bits: what made it, and what the numbers are.
const ALL_KINDS: u32 = 31;
/// Most bytes of a cache or of a node's memory: sums of them have to stay numbers.
const MOST_BYTES: u64 = 1 << 50;
/// The sets that an object has, each within its complete one.
const SETS: [(&str, &str); 2] = [("cpuset", "complete_cpuset"), ("nodeset", "complete_nodeset")];

/// What hwloc makes of the type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A part of the tree that has CPUs.
    Normal,
    Cpu,
    Node,
    /// A cache in front of memory.
    MemoryCache,
    /// Devices and remarks, which have no CPUs of their own.
    Special,
}

impl Class {
    /// None where hwloc has no such type. Names as hwloc writes them, those of hwloc 1 included.
    fn of(kind: &str) -> Option<Self> {
        Some(match kind.to_ascii_lowercase().as_str() {
            "machine" | "system" | "package" | "socket" | "die" | "tile" | "module" | "core"
            | "group" | "cache" | "l1cache" | "l2cache" | "l3cache" | "l4cache" | "l5cache"
            | "l1icache" | "l2icache" | "l3icache" => Self::Normal,
            "pu" => Self::Cpu,
            "numanode" | "node" => Self::Node,
            "memcache" => Self::MemoryCache,
            "bridge" | "pcidev" | "osdev" | "misc" => Self::Special,
            _ => return None,
        })
    }

    const fn is_memory(self) -> bool {
        matches!(self, Self::Node | Self::MemoryCache)
    }

    /// Whether hwloc has such below such. In hwloc 1 nodes were a part of the tree.
    fn fits_below(self, parent: Self, old: bool) -> bool {
        match parent {
            Self::Normal => true,
            Self::Node if old => true,
            Self::Cpu | Self::Node => self == Self::Special,
            Self::MemoryCache => self.is_memory() || self == Self::Special,
            Self::Special => self == Self::Special,
        }
    }
}

/// A set of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Set {
    These(CpuSet),
    /// All numbers from some one on.
    NoEnd,
}

impl Set {
    fn parse(text: &str) -> Option<Self> {
        if text.starts_with("0xf...f") {
            // What follows shows which are in it before it goes on without end.
            let rest = text.strip_prefix("0xf...f")?.strip_prefix(',').unwrap_or("0x0");
            return parse_set(rest).map(|_| Self::NoEnd);
        }
        parse_set(text).map(Self::These)
    }

    fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::NoEnd) => true,
            (Self::NoEnd, Self::These(_)) => false,
            (Self::These(a), Self::These(b)) => a.is_subset(b),
        }
    }
}

/// An object that is open.
struct Open {
    class: Class,
    /// The complete sets, where it has them.
    complete: [Option<Set>; 2],
    /// Which CPUs its parts have completely, of which no two have the same.
    taken: CpuSet,
    /// Its own CPUs, and those of its parts, where it has parts with CPUs.
    own: Option<Set>,
    parts: Option<CpuSet>,
}

impl Open {
    /// What it consists of has to be all that it has.
    fn ended(self) -> Result<(), String> {
        let parts = match self.class {
            Class::Normal => Some(self.parts.unwrap_or_default()),
            _ => self.parts,
        };
        match (self.own, parts) {
            (Some(Set::These(own)), Some(parts)) if own != parts => {
                Err(String::from("the cpuset of an object is not that of all that is in it"))
            }
            _ => Ok(()),
        }
    }
}

/// An element that is open.
enum Level {
    Topology,
    Object(Open),
    /// One that may have text.
    Text,
    Other,
}

/// What has been seen so far.
#[derive(Default)]
struct Seen {
    /// Whether it is in the form of hwloc 1.
    old: bool,
    roots: usize,
    cpus: BTreeSet<u32>,
    nodes: BTreeSet<u32>,
    /// The numbers that all objects have, of hwloc 2, and how many have none.
    globals: BTreeSet<u64>,
    without_global: usize,
    /// The nodes that the machine says it has.
    root_nodes: Option<Set>,
}

/// The error is why it is no XML of hwloc, and in which line.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let line = |at: u64| {
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        1 + text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count()
    };
    let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if let Some(at) = text.find(|c| !plain(c)) {
        return Err(format!("line {} has a character that no XML has", line(at as u64)));
    }
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Level> = Vec::new();
    let mut seen = Seen::default();
    let mut topologies = 0_usize;
    loop {
        let event = reader.read_event();
        let event = event.map_err(|e| format!("line {}: {e}", line(reader.error_position())))?;
        let at = || line(reader.buffer_position());
        let here = |why: String| format!("line {}: {why}", at());
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                let attributes = attributes(element).map_err(here)?;
                topologies += usize::from(open.is_empty());
                if topologies > 1 {
                    return Err(here(String::from("it has a second document")));
                }
                let level = seen.take(element, &attributes, &mut open).map_err(here)?;
                match level {
                    level if matches!(event, Event::Start(_)) => open.push(level),
                    Level::Object(object) => object.ended().map_err(here)?,
                    _ => {}
                }
                if open.len() > MOST_LEVELS {
                    return Err(here(format!("it has more than {MOST_LEVELS} levels")));
                }
            }
            Event::End(_) => {
                if let Some(Level::Object(object)) = open.pop() {
                    object.ended().map_err(here)?;
                }
            }
            Event::DocType(doctype) => plain_doctype(doctype).map_err(here)?,
            Event::Eof if !open.is_empty() => {
                return Err(format!("it ends within an element, in line {}", at()));
            }
            Event::Eof if topologies == 0 => return Err(String::from("it has no element")),
            Event::Eof => return seen.whole(),
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Text(words) if words.iter().all(u8::is_ascii_whitespace) => {}
            Event::Text(_) if matches!(open.last(), Some(Level::Text)) => {}
            _ => {
                return Err(here(String::from("there is text where only elements may be")));
            }
        }
    }
}

/// The attributes of an element, without escapes.
fn attributes(element: &BytesStart<'_>) -> Result<Vec<(String, String)>, String> {
    let attribute = |a: Result<quick_xml::events::attributes::Attribute<'_>, _>| {
        let a = a.map_err(|e: quick_xml::events::attributes::AttrError| e.to_string())?;
        let value = a.unescape_value().map_err(|e| e.to_string())?;
        Ok((String::from_utf8_lossy(a.key.as_ref()).into_owned(), value.into_owned()))
    };
    element.attributes().map(attribute).collect()
}

/// hwloc takes it that a document type has an address; entities are of no use here and dangerous.
fn plain_doctype(doctype: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(doctype);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [_, "SYSTEM", address] if !address.contains(['[', '<', '>', '&', '%']) => Ok(()),
        _ => Err(String::from(
            "the document type is not of the form <!DOCTYPE topology SYSTEM \"hwloc2.dtd\">",
        )),
    }
}

fn get<'a>(attributes: &'a [(String, String)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl Seen {
    /// Takes an element in; what it is, should it have others in it.
    fn take(
        &mut self,
        element: &BytesStart<'_>,
        attributes: &[(String, String)],
        open: &mut [Level],
    ) -> Result<Level, String> {
        let name = String::from_utf8_lossy(element.name().as_ref()).into_owned();
        for (attribute, text) in attributes {
            if attribute.ends_with("cpuset") || attribute.ends_with("nodeset") {
                Set::parse(text).ok_or_else(|| {
                    format!("the {attribute} is no set of numbers below {MOST_CPUS}")
                })?;
            }
        }
        match (name.as_str(), open.last_mut()) {
            ("topology", None) => {
                self.old = get(attributes, "version").is_none_or(|v| v.starts_with("1."));
                Ok(Level::Topology)
            }
            (_, None) => Err(format!("the outermost element is '{name}', not 'topology'")),
            ("object", Some(Level::Topology)) => {
                self.roots += 1;
                if self.roots > 1 {
                    return Err(String::from("there is a second machine"));
                }
                self.object(attributes, None).map(Level::Object)
            }
            (_, Some(Level::Topology)) if self.roots == 0 => {
                Err(format!("there is an element '{name}' before the machine"))
            }
            ("object", Some(Level::Object(parent))) => {
                self.object(attributes, Some(parent)).map(Level::Object)
            }
            ("object", _) => Err(String::from("an object is in an element that is none")),
            ("distances2" | "distances2hetero", _) => {
                for (attribute, most) in [("nbobjs", MOST_IN_MATRIX), ("kind", ALL_KINDS)] {
                    let number = get(attributes, attribute).and_then(|n| n.parse().ok());
                    if !number.is_some_and(|n| (1..=most).contains(&n)) {
                        return Err(format!("{name} has no {attribute} from 1 to {most}"));
                    }
                }
                Ok(Level::Other)
            }
            ("indexes" | "u64values" | "userdata", _) => Ok(Level::Text),
            _ => Ok(Level::Other),
        }
    }

    fn object(
        &mut self,
        attributes: &[(String, String)],
        parent: Option<&mut Open>,
    ) -> Result<Open, String> {
        let kind = match attributes.first() {
            Some((name, kind)) if name == "type" => kind,
            _ => return Err(String::from("the first attribute of an object is not its type")),
        };
        let class = Class::of(kind).ok_or_else(|| format!("hwloc has no objects '{kind}'"))?;
        let is_root = ["machine", "system"].contains(&kind.to_ascii_lowercase().as_str());
        if parent.is_none() && !is_root {
            return Err(format!("the outermost object is a {kind}, not a Machine"));
        }
        if let Some(parent) = &parent
            && !class.fits_below(parent.class, self.old)
        {
            return Err(format!("a {kind} is in an object that cannot have one"));
        }
        let mut complete = [None, None];
        for (i, (own, whole)) in SETS.into_iter().enumerate() {
            let set = |name| get(attributes, name).and_then(Set::parse);
            complete[i] = match (set(own), set(whole)) {
                (Some(own), Some(whole)) if own.is_within(&whole) => Some(whole),
                (Some(_), Some(_)) => {
                    return Err(format!("the {own} of a {kind} is not within its {whole}"));
                }
                (Some(_), None) => return Err(format!("a {kind} has no {whole}")),
                (None, Some(_)) => return Err(format!("a {kind} has no {own}")),
                // Devices have none. With hwloc 1 a machine has nodes only where it is a NUMA one.
                (None, None) if class == Class::Special => None,
                (None, None) if self.old && own == "nodeset" && class != Class::Node => None,
                (None, None) => return Err(format!("a {kind} has no {own}")),
            };
            let above = parent.as_ref().map(|p| &p.complete[i]);
            match (&complete[i], above) {
                // In the form of hwloc 1 one of several nodes may have what belongs to all of them.
                (Some(_), _) if self.old && own == "nodeset" => {}
                (Some(inner), Some(Some(outer))) if !inner.is_within(outer) => {
                    return Err(format!("the {whole} of a {kind} is not within that around it"));
                }
                (Some(_), Some(None)) => {
                    return Err(format!("a {kind} has a {own}, and the object around it has none"));
                }
                _ => {}
            }
        }
        let own = SETS.map(|(own, _)| get(attributes, own).and_then(Set::parse));
        self.number(kind, class, attributes, [&own, &complete])?;
        self.global(kind, attributes)?;
        for name in ["local_memory", "cache_size"] {
            let bytes = get(attributes, name).map(|text| text.parse().unwrap_or(u64::MAX));
            if bytes.is_some_and(|bytes| bytes > MOST_BYTES) {
                return Err(format!("the {name} of a {kind} is no number up to {MOST_BYTES}"));
            }
        }
        if parent.is_none() {
            self.root_nodes = get(attributes, "nodeset").and_then(Set::parse);
        }
        let [cpus, _] = own;
        let is_part =
            matches!(class, Class::Normal | Class::Cpu) || self.old && class == Class::Node;
        if let (Some(parent), true, Some(Set::These(own))) = (parent, is_part, &complete[0]) {
            if !parent.taken.and(own).is_empty() {
                return Err(format!("a {kind} has CPUs of another object beside it"));
            }
            parent.taken = parent.taken.or(own);
            if let Some(Set::These(cpus)) = &cpus {
                parent.parts = Some(parent.parts.take().unwrap_or_default().or(cpus));
            }
        }
        Ok(Open { class, complete, taken: CpuSet::new(), own: cpus, parts: None })
    }

    /// CPUs and nodes have numbers, which only one has, and which are those of their sets.
    fn number(
        &mut self,
        kind: &str,
        class: Class,
        attributes: &[(String, String)],
        sets: [&[Option<Set>; 2]; 2],
    ) -> Result<(), String> {
        let (all, which) = match class {
            Class::Cpu => (&mut self.cpus, 0),
            Class::Node => (&mut self.nodes, 1),
            _ => return Ok(()),
        };
        let number = get(attributes, "os_index").and_then(|n| n.parse::<u32>().ok());
        let number = number
            .filter(|n| *n < MOST_CPUS)
            .ok_or_else(|| format!("a {kind} has no os_index below {MOST_CPUS}"))?;
        if !all.insert(number) {
            return Err(format!("there are two {kind}s {number}"));
        }
        let one = CpuSet::single(CpuId(number));
        let old = self.old;
        let fits = sets.iter().all(|set| match &set[which] {
            // With hwloc 1 all the nodes there may be were one set without end, and CPUs that were
            // switched off had no set.
            Some(Set::NoEnd) => class == Class::Node && old,
            Some(Set::These(set)) => *set == one || old && which == 0 && set.is_empty(),
            None => false,
        });
        if fits { Ok(()) } else { Err(format!("the set of {kind} {number} is another's")) }
    }

    /// hwloc gives numbers to those that have none, from 1 on, which others may have.
    fn global(&mut self, kind: &str, attributes: &[(String, String)]) -> Result<(), String> {
        match get(attributes, "gp_index") {
            None => self.without_global += 1,
            Some(text) => {
                let number = text.parse().map_err(|_| {
                    format!("the gp_index of a {kind} is '{text}', not a number from 0")
                })?;
                if !self.globals.insert(number) {
                    return Err(format!("there are two objects with gp_index {number}"));
                }
            }
        }
        if self.without_global > 0 && !self.globals.is_empty() {
            return Err(String::from("some objects have a gp_index and others none"));
        }
        Ok(())
    }

    fn node_set(&self) -> Set {
        Set::These(self.nodes.iter().map(|n| CpuId(*n)).collect())
    }

    fn whole(&self) -> Result<(), String> {
        let what = match () {
            () if self.roots == 0 => "machine",
            () if self.cpus.is_empty() => "PU (CPU)",
            () if self.nodes.is_empty() && !self.old => "NUMA node",
            () if !self.old && self.root_nodes != Some(self.node_set()) => {
                let what = "the nodeset of the machine is not that of the NUMA nodes in it";
                return Err(String::from(what));
            }
            () => return Ok(()),
        };
        Err(format!("it has no {what}"))
    }
}
