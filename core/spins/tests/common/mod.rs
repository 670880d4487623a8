//! Libraries of the tests' own sources.
#![allow(dead_code, reason = "shared by several tests")]

use evenly_spins::Machine;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// A library of this source, as it is compiled so.
pub(crate) fn library(dir: &Path, compiler: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let made = dir.join("made.so");
    let mut compile = Command::new(compiler);
    compile.args(["-shared", "-fPIC"]).args(flags).arg("-o").arg(&made).arg(source);
    assert!(compile.status().unwrap().success());
    std::fs::read(made).unwrap()
}

/// Its functions, with where they are in the file.
pub(crate) fn functions(bytes: &[u8]) -> Vec<(String, Range<u64>)> {
    let file = object::File::parse(bytes).unwrap();
    let text = file.sections().find(|s| s.kind() == SectionKind::Text && s.name() == Ok(".text"));
    let text = text.unwrap();
    let (at, offset) = (text.address(), text.file_range().unwrap().0);
    file.symbols()
        .filter(|s| s.kind() == object::SymbolKind::Text && s.address() >= at && s.size() > 0)
        .map(|s| {
            let begin = s.address() - at + offset;
            (s.name().unwrap().to_owned(), begin..begin + s.size())
        })
        .collect()
}

/// Where a function waits.
pub(crate) fn spins(code: &[u8]) -> Vec<usize> {
    let all = Machine::X86.waits(code);
    assert!(all.iter().all(|wait| wait.turn.contains(&wait.at) && wait.turn.end <= code.len()));
    all.iter().map(|wait| wait.at).collect()
}
