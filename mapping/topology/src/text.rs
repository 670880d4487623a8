//! Objects of a machine in words: a tree in which what is alike is said once.
//!
//! Invariant: every CPU that is there is in exactly one line's range, and a line is short however large
//! the machine.

use crate::tree::{Kind, Object};
use evenly_model::CpuSet;
use std::fmt::Write;

/// Bytes with a unit, whole where they are.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        let size = 1_u64 << shift;
        if n >= size {
            let value = n as f64 / size as f64;
            return if n.is_multiple_of(size) {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
    }
    format!("{n} B")
}

/// `1 core`, `2 cores`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What it is, without its number.
pub(crate) fn label(o: &Object) -> String {
    match (o.kind, o.bytes) {
        (Kind::Node | Kind::Package | Kind::Group | Kind::Host, _) => o.kind.name().to_owned(),
        (kind, Some(n)) => format!("{} {}", kind.name(), bytes(n)),
        (kind, None) => kind.name().to_owned(),
    }
}

/// One object with its number.
pub(crate) fn alone(o: &Object) -> String {
    let mut text = label(o);
    if let (Kind::Host, Some(name)) = (o.kind, &o.name) {
        return format!("{text} {name}");
    }
    if matches!(
        o.kind,
        Kind::Package | Kind::Die | Kind::Group | Kind::Node | Kind::Core | Kind::Cpu
    ) {
        let _ = write!(text, " {}", o.shown());
    }
    if let Some(name) = &o.name {
        let _ = write!(text, " ({name})");
    }
    if let (Kind::Node, Some(n)) = (o.kind, o.bytes) {
        let _ = write!(text, " {}", bytes(n));
    }
    // Caches in front of memory stand before it.
    for node in &o.memory {
        if o.kind == Kind::MemoryCache {
            let _ = write!(text, ", {}", alone(node));
        }
    }
    text
}

/// Neighbours that look alike.
pub(crate) fn runs(objects: &[Object]) -> Vec<&[Object]> {
    let shapes: Vec<String> = objects.iter().map(Object::shape).collect();
    let (mut found, mut start) = (Vec::new(), 0);
    for i in 1..=objects.len() {
        if i == objects.len() || shapes[i] != shapes[start] {
            found.push(&objects[start..i]);
            start = i;
        }
    }
    found
}

pub(crate) fn children(o: &Object, depth: usize, out: &mut String) {
    for run in runs(&o.children) {
        let first = &run[0];
        let deep = first.has_memory() || !matches!(first.kind, Kind::Core | Kind::Cpu);
        if deep && (first.has_memory() || run.len() == 1) {
            run.iter().for_each(|o| one(o, depth, out));
            continue;
        }
        let cpus = run.iter().fold(CpuSet::new(), |all, o| all.or(&o.cpus));
        let text = inline(first);
        let text = match (run.len(), text.contains(", ")) {
            (1, _) => text,
            (n, true) => format!("{n} x ({text})"),
            (n, false) => format!("{n} x {text}"),
        };
        let _ = writeln!(out, "{:1$}{text}: {2}", "", 2 * depth, cpus.in_words());
    }
}

/// An object of its own: it and what it consists of alone in one line, the rest below.
fn one(o: &Object, depth: usize, out: &mut String) {
    let mut parts = vec![alone(o)];
    parts.extend(o.memory.iter().map(alone));
    let mut last = o;
    while let [child] = last.children.as_slice()
        && !matches!(child.kind, Kind::Core | Kind::Cpu)
    {
        parts.push(alone(child));
        parts.extend(child.memory.iter().map(alone));
        last = child;
    }
    let _ = writeln!(out, "{:1$}{2}: {3}", "", 2 * depth, parts.join(", "), o.cpus.in_words());
    children(last, depth + 1, out);
}

/// An object and all below it in one line, numbers left out.
fn inline(o: &Object) -> String {
    let mut parts = vec![label(o)];
    for run in runs(&o.children) {
        match (run[0].kind, run.len()) {
            // A core of one CPU is a core.
            (Kind::Cpu, 1) => {}
            (Kind::Cpu, n) => parts.push(count(n, "CPU")),
            (_, 1) => parts.push(inline(&run[0])),
            (_, n) => {
                let inner = inline(&run[0]);
                let inner = if inner.contains(", ") { format!("({inner})") } else { inner };
                parts.push(format!("{n} x {inner}"));
            }
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(
            [0, 1023, 48 << 10, 1_310_720, 260 << 20, 25_275_920_384].map(bytes),
            ["0 B", "1023 B", "48 KiB", "1.2 MiB", "260 MiB", "23.5 GiB"]
        );
    }
}
