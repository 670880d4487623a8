//! The tree as a picture: boxes in boxes, from the machine down to its CPUs.
//!
//! Invariant: the picture of a large machine stays small: of neighbours that look alike, those past a
//! limit are counted instead of drawn.

use crate::machine::MachineTopology;
use crate::text::{alone, label};
use crate::tree::{Kind, Object};
use evenly_draw::{Anchor, Canvas, Paint};
use evenly_model::CpuSet;

const GAP: f64 = 6.0;
/// What the style sheet of all pictures does not have.
const RULES: &str = ".box{fill:none;stroke:#888;stroke-width:1}.mem{fill:#0072b2;opacity:.25}\
                     .cache{fill:#e69f00;opacity:.25}.off{fill:#d55e00;opacity:.45}";
const LINE: f64 = 16.0;
const CPU: (f64, f64) = (34.0, 20.0);
/// Width of a letter, about.
const LETTER: f64 = 6.6;
/// Most children that are drawn of one object.
const MOST: usize = 64;
/// Most boxes of a picture; what comes after is counted.
const MOST_BOXES: usize = 6_000;

/// A part of the picture, at its own origin.
struct Part {
    width: f64,
    height: f64,
    body: Canvas,
}

struct Drawing<'a> {
    allowed: &'a CpuSet,
    left: usize,
}

/// Draws a machine as nested boxes.
#[must_use]
pub fn svg(machine: &MachineTopology) -> String {
    let allowed = machine.allowed();
    let mut drawing = Drawing { allowed: &allowed, left: MOST_BOXES };
    let tree = drawing.draw(machine.root());
    let title = machine.title();
    let width = (tree.width + 32.0).max(title.chars().count() as f64 * 9.0 + 32.0).max(320.0);
    let mut body = Canvas::default();
    body.text("title", Anchor::Start, (16.0, 26.0), &title);
    body.group((16.0, 40.0), &tree.body);
    let mut y = tree.height + 40.0 + 20.0;
    let mut notes = vec!["blue: memory; yellow: caches; each small box is a CPU".to_owned()];
    if !machine.disallowed().is_empty() {
        notes.push(format!("red: CPUs {}, outside of the cpuset", machine.disallowed()));
    }
    if !machine.offline().is_empty() {
        notes.push(format!("not drawn: CPUs {}, switched off", machine.offline()));
    }
    for note in notes {
        body.text("dim", Anchor::Start, (16.0, y), &note);
        y += LINE;
    }
    body.document(width, y, RULES)
}

/// A line of text that is as wide as it needs to be.
fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER + 2.0 * GAP
}

impl Drawing<'_> {
    fn draw(&mut self, o: &Object) -> Part {
        self.left = self.left.saturating_sub(1);
        if o.kind == Kind::Cpu {
            return self.cpu(o);
        }
        // Bars of text on top, children below.
        let mut bars: Vec<(&str, String)> = Vec::new();
        match o.kind {
            kind if kind.is_cache() => bars.push(("cache", label(o))),
            // All that a core has is CPUs.
            Kind::Core => bars.push(("", format!("core {}", o.shown()))),
            _ => bars.push(("", alone(o))),
        }
        for node in &o.memory {
            bars.push(("mem", alone(node)));
        }
        let head = LINE * bars.len() as f64 + GAP;
        let inner = self.children(o);
        let text = bars.iter().map(|(_, t)| wide(t)).fold(0.0, f64::max);
        let width = (inner.width + 2.0 * GAP).max(text + 2.0 * GAP);
        let height = head + inner.height + if inner.height > 0.0 { GAP } else { 0.0 };
        let mut body = Canvas::default();
        let whole = Paint::from("box").titled(format!("{}: CPUs {}", alone(o), o.cpus));
        body.rect(whole, (0.0, 0.0), (width, height));
        for (i, (class, text)) in bars.iter().enumerate() {
            let y = LINE * i as f64;
            if !class.is_empty() {
                body.rect(*class, (2.0, y + 2.0), (width - 4.0, LINE - 2.0));
            }
            body.text("", Anchor::Start, (GAP, y + 13.0), text);
        }
        body.group(((width - inner.width) / 2.0, head), &inner.body);
        Part { width, height, body }
    }

    fn cpu(&self, o: &Object) -> Part {
        let usable = !o.cpus.and(self.allowed).is_empty();
        let class = if usable { "row" } else { "off" };
        let (width, height) = CPU;
        let mut body = Canvas::default();
        body.rect(class, (0.0, 0.0), CPU);
        body.text("", Anchor::Middle, (width / 2.0, 14.0), &o.shown().to_string());
        Part { width, height, body }
    }

    /// All children in rows, so that the whole is somewhat wider than high.
    fn children(&mut self, o: &Object) -> Part {
        let mut parts = Vec::new();
        for child in &o.children {
            if parts.len() >= MOST || self.left == 0 {
                break;
            }
            parts.push(self.draw(child));
        }
        let missing = o.children.len() - parts.len();
        let n = parts.len();
        let columns = if n <= 4 { n } else { (n as f64 * 1.8).sqrt().ceil() as usize };
        let (mut body, mut width, mut y) = (Canvas::default(), 0.0_f64, 0.0);
        for row in parts.chunks(columns.max(1)) {
            let mut x = 0.0;
            for part in row {
                body.group((x, y), &part.body);
                x += part.width + GAP;
            }
            width = width.max(x - GAP);
            y += row.iter().map(|p| p.height).fold(0.0, f64::max) + GAP;
        }
        if missing > 0 {
            let text = format!("and {missing} more");
            body.text("dim", Anchor::Start, (0.0, y + 10.0), &text);
            width = width.max(wide(&text));
            y += LINE + GAP;
        }
        Part { width, height: (y - GAP).max(0.0), body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use crate::text::bytes;

    #[test]
    fn a_small_picture() {
        let machine = synthetic("pack:1 numa:2 l3:1(size=8MiB) core:2 pu:2").unwrap();
        let picture = svg(&machine);
        let body = picture.split("</style>").nth(1).unwrap();
        insta::assert_snapshot!(body.replace("><", ">\n<"));
    }

    #[test]
    fn large_machines_stay_small_and_say_what_is_left_out() {
        let machine = synthetic("pack:4 numa:2 core:80 pu:4").unwrap();
        let picture = svg(&machine);
        assert!(picture.len() < 2_000_000, "{}", picture.len());
        assert!(picture.contains("more<") && picture.ends_with("</svg>\n"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn bytes_are_shown() {
        let picture = svg(&synthetic("numa:1(memory=3GiB) l2:1(size=512KiB) pu:1").unwrap());
        assert!(picture.contains(&bytes(3 << 30)) && picture.contains("L2 512 KiB"), "{picture}");
    }
}
