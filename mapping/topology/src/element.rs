//! hwloc's XML as a tree of elements, which can be changed and written again.
//!
//! Invariant: what was parsed and is written says the same, but for text between elements, which only
//! distances have.

use evenly_model::{CpuId, CpuSet};
use quick_xml::Reader;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesStart, Event};
use std::fmt::Write as _;

/// The highest number, exclusive, of a CPU of all hosts together.
pub(crate) const MOST_CPUS: u32 = 1 << 20;

/// Sets of CPUs, and of nodes.
pub(crate) const CPU_SETS: [&str; 3] = ["cpuset", "complete_cpuset", "allowed_cpuset"];
pub(crate) const NODE_SETS: [&str; 3] = ["nodeset", "complete_nodeset", "allowed_nodeset"];

/// An element, its attributes as they are written, with escapes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) children: Vec<Element>,
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

    pub(crate) fn info(name: &str, value: &str) -> Self {
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
    pub(crate) fn parse(xml: &str) -> Result<Self, String> {
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

    pub(crate) fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.as_str())
    }

    pub(crate) fn set(&mut self, attribute: &str, value: String) {
        match self.attributes.iter_mut().find(|(name, _)| name == attribute) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((attribute.to_owned(), value)),
        }
    }

    pub(crate) fn is_object(&self, kind: &str) -> bool {
        self.name == "object" && self.get("type") == Some(kind)
    }

    pub(crate) fn is_info(&self, name: &str) -> bool {
        self.name == "info" && self.get("name") == Some(name)
    }

    /// The set of an attribute; none of those that are looked at may be missing or unlimited.
    pub(crate) fn numbers(&self, attribute: &str) -> Result<CpuSet, String> {
        let text = self.get(attribute).ok_or_else(|| format!("there is no {attribute}"))?;
        parse_set(text).ok_or_else(|| format!("the {attribute} is '{text}', no set that ends"))
    }

    /// All elements from this one down.
    pub(crate) fn each(
        &mut self,
        change: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        change(self)?;
        self.children.iter_mut().try_for_each(|child| child.each(change))
    }

    pub(crate) fn write(&self, depth: usize, out: &mut String) {
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

pub(crate) fn set_text(set: &CpuSet) -> String {
    let halves = set.words().iter().rev().flat_map(|word| [word >> 32, word & u64::from(u32::MAX)]);
    let mut text = String::new();
    for half in halves.skip_while(|half| *half == 0) {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match half {
            0 => write!(text, "{comma}"),
            _ => write!(text, "{comma}0x{half:08x}"),
        };
    }
    // The last one is never left empty.
    if text.is_empty() || text.ends_with(',') {
        text.push_str("0x0");
    }
    text
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
        assert_eq!(set_text(&one), "0x00000001,,0x0");
        for bad in ["0xf...f", "0xf...f,0x1", "x", "0x1ffffffff"] {
            assert_eq!(parse_set(bad), None, "{bad}");
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
