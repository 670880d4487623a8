//! Elements of pictures are written here only: a source of another crate that has one in it fails. Its
//! folders of tests, which look at pictures, may.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// The elements that pictures are made of.
const ELEMENTS: [&str; 16] = [
    "svg", "style", "title", "defs", "g", "rect", "line", "path", "polygon", "polyline", "circle",
    "ellipse", "text", "tspan", "use", "marker",
];

/// The first element that a text begins.
fn element(text: &str) -> Option<&str> {
    text.split('<').skip(1).find_map(|after| {
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        ELEMENTS.contains(&&after[..end]).then_some(&after[..end])
    })
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy();
        let left_out = ["target", "tests"].contains(&&*name) || name.starts_with('.');
        if path.is_dir() && !left_out && !path.ends_with("reports/draw") {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_other_crate_writes_elements() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut found);
    assert!(found.len() > 300, "{}", found.len());
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let element = element(&text);
        assert!(element.is_none(), "{} has <{}>; draw it", path.display(), element.unwrap());
    }
}

/// That the test above can fail.
#[test]
fn elements_are_recognised() {
    for text in ["<g>", "x<rect class=\"row\"/>", "\"<line\"", "a < b <path d="] {
        assert!(element(text).is_some(), "{text}");
    }
    for text in ["Vec<String>", "a < path", "<lines>", "</svg>", "<table><tr>"] {
        assert_eq!(element(text), None, "{text}");
    }
}
