//! The tree of a machine as data.
//!
//! Invariant: nothing here asks the system or hwloc; a tree that was read once can be kept, compared
//! and drawn.

use evenly_model::CpuSet;
use serde::Serialize;

/// What an object of the tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The whole machine: the root. Of several hosts: all of them.
    Machine,
    /// A host, where there are several.
    Host,
    /// A package: what sits in a socket.
    Package,
    /// A die of a package.
    Die,
    /// Something between that has no name of its own.
    Group,
    /// A NUMA node: memory.
    Node,
    /// A cache in front of a NUMA node's memory.
    MemoryCache,
    /// Level 1 cache (data or unified), next to the core.
    L1,
    /// A cache of level 2.
    L2,
    /// A cache of level 3.
    L3,
    /// A cache of level 4.
    L4,
    /// A cache of level 5.
    L5,
    /// A core, with one hardware thread or several.
    Core,
    /// A CPU: a hardware thread of a core.
    Cpu,
}

impl Kind {
    /// Caches between cores and memory, from the innermost.
    pub const CACHES: [Self; 5] = [Self::L1, Self::L2, Self::L3, Self::L4, Self::L5];

    /// Its name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Host => "host",
            Self::Package => "package",
            Self::Die => "die",
            Self::Group => "group",
            Self::Node => "node",
            Self::MemoryCache => "memory cache",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L4 => "L4",
            Self::L5 => "L5",
            Self::Core => "core",
            Self::Cpu => "CPU",
        }
    }

    /// Whether it is a cache between cores and memory.
    #[must_use]
    pub fn is_cache(self) -> bool {
        Self::CACHES.contains(&self)
    }
}

/// An object of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Object {
    /// What kind of object it is.
    pub kind: Kind,
    /// Its number among those of its kind, as hwloc counts (its logical index).
    pub index: u32,
    /// Its number for the system, where it has one: of a CPU, a NUMA node, a package.
    pub number: Option<u32>,
    /// The CPUs that belong to it (of a node: that are next to it), those included that may not be
    /// used.
    pub cpus: CpuSet,
    /// Bytes of a cache, or of a node's memory; None where that is not known.
    pub bytes: Option<u64>,
    /// What else is known of it: the model of a package, the kind of a node's memory, the name of a
    /// host.
    pub name: Option<String>,
    /// Memory that is attached to it: nodes, and caches in front of them.
    pub memory: Vec<Object>,
    /// What it consists of.
    pub children: Vec<Object>,
}

impl Object {
    /// The object and all below it, memory included, parents first.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            let next = open.pop()?;
            open.extend(next.children.iter().rev());
            open.extend(next.memory.iter().rev());
            Some(next)
        })
    }

    /// The objects of a kind, in hwloc's order.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Vec<&Self> {
        let mut found: Vec<&Self> = self.all().filter(|o| o.kind == kind).collect();
        found.sort_by_key(|o| o.index);
        found
    }

    /// Its number for people: the system's where there is one.
    #[must_use]
    pub fn shown(&self) -> u32 {
        self.number.unwrap_or(self.index)
    }

    /// The NUMA node of the cores below this object, if memory is attached to it: the first that is
    /// ordinary memory. High-bandwidth and far memory beside it is for programs that ask for it.
    pub(crate) fn home(&self) -> Option<&Self> {
        const SPECIAL: [&str; 6] = ["HBM", "MCDRAM", "SPM", "NVM", "CXL", "GPUMemory"];
        let special =
            |o: &Self| o.name.as_deref().is_some_and(|n| SPECIAL.iter().any(|s| n.starts_with(s)));
        let nodes = self.memory.iter().flat_map(Self::all).filter(|o| o.kind == Kind::Node);
        nodes.min_by_key(|o| (special(o), o.shown(), o.index))
    }

    /// Whether memory is attached to it or to anything below.
    pub(crate) fn has_memory(&self) -> bool {
        self.all().any(|o| !o.memory.is_empty())
    }

    /// What two objects have in common that look alike, numbers aside.
    pub(crate) fn shape(&self) -> String {
        let mut text = format!("{:?}:{:?}:{:?}", self.kind, self.bytes, self.name);
        for (open, parts) in [("{", &self.memory), ("[", &self.children)] {
            text.push_str(open);
            parts.iter().for_each(|p| text.push_str(&p.shape()));
        }
        text
    }
}

/// A kind of CPUs, where a machine has several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuKind {
    /// The CPUs that are in it.
    pub cpus: CpuSet,
    /// Rank by hwloc: 0 is the slowest and thriftiest.
    pub efficiency: Option<u32>,
    /// What is known of it, such as `CoreType` and `FrequencyMaxMHz`.
    pub infos: Vec<(String, String)>,
}

impl CpuKind {
    fn number(&self, key: &str) -> Option<f64> {
        let value = self.infos.iter().find(|(k, _)| k == key)?.1.parse().ok();
        value.filter(|v: &f64| v.is_finite() && *v > 0.0)
    }
}

/// How fast each kind computes; 1 is the fastest. By the capacity that Linux gives its CPUs where
/// hwloc knows it, else by the highest frequency (which makes small cores look faster than they are),
/// else all are equal.
pub(crate) fn speeds(kinds: &[CpuKind]) -> Vec<f64> {
    let by = |key: &str| -> Option<Vec<f64>> {
        let values: Vec<f64> = kinds.iter().map(|k| k.number(key)).collect::<Option<_>>()?;
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        Some(values.into_iter().map(|v| v / most).collect())
    };
    by("LinuxCapacity").or_else(|| by("FrequencyMaxMHz")).unwrap_or_else(|| vec![1.0; kinds.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32, name: Option<&str>) -> Object {
        Object {
            kind: Kind::Node,
            index: number,
            number: Some(number),
            cpus: CpuSet::new(),
            bytes: None,
            name: name.map(Into::into),
            memory: vec![],
            children: vec![],
        }
    }

    #[test]
    fn home_is_ordinary_memory() {
        let mut package = node(0, None);
        package.kind = Kind::Package;
        assert_eq!(package.home(), None);
        package.memory = vec![node(1, Some("HBM")), node(3, None), node(2, Some("DRAM"))];
        assert_eq!(package.home().unwrap().number, Some(2));
        package.memory = vec![node(1, Some("MCDRAM"))];
        assert_eq!(package.home().unwrap().number, Some(1));
        let cache =
            Object { kind: Kind::MemoryCache, memory: vec![node(0, None)], ..node(9, None) };
        package.memory.push(cache);
        assert_eq!(package.home().unwrap().number, Some(0));
    }

    #[test]
    fn kinds_are_compared_by_what_all_have() {
        let kind = |infos: &[(&str, &str)]| CpuKind {
            cpus: CpuSet::new(),
            efficiency: None,
            infos: infos.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        };
        let mhz = |v| ("FrequencyMaxMHz", v);
        let both = kind(&[mhz("4000"), ("LinuxCapacity", "1024")]);
        assert_eq!(
            speeds(&[kind(&[mhz("3000"), ("LinuxCapacity", "512")]), both.clone()]),
            [0.5, 1.0]
        );
        assert_eq!(speeds(&[kind(&[mhz("3000")]), both.clone()]), [0.75, 1.0]);
        assert_eq!(speeds(&[kind(&[mhz("x")]), both]), [1.0, 1.0]);
        assert!(speeds(&[]).is_empty());
    }
}
