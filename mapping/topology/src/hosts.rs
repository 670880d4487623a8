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

use crate::element::{CPU_SETS, Element, MOST_CPUS, NODE_SETS, set_text};
use evenly_model::{CpuId, CpuSet};

/// The subtype of the group that is a host.
pub(crate) const SUBTYPE: &str = "Host";
/// The info that has its name; hwloc names the machine so, too.
pub(crate) const NAME: &str = "HostName";
/// The info of the whole that says how long a load from local memory takes, in nanoseconds: the median
/// of the hosts. Factors are over it, and so it makes seconds of them.
pub(crate) const MEMORY_NS: &str = "EvenlyMemoryLatencyNs";

/// A host, to be put beside others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostXml<'a> {
    /// The name of the host.
    pub(crate) name: &'a str,
    /// hwloc's XML of it.
    pub(crate) xml: &'a str,
}

/// Several hosts in one description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The description, as XML of hwloc.
    pub(crate) xml: String,
    /// What has to be added to the number of a node of each host to get its number here.
    pub(crate) node_offsets: Vec<u32>,
}

fn shifted(set: &CpuSet, by: u32) -> CpuSet {
    set.iter().map(|n| CpuId(n.0 + by)).collect()
}

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
}
