//! Whatever libgomp exports is listed in `gomp_calls.h` or followed by a wrapper, so that nothing that its barriers have to do
//! with passes them by where they are replaced.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Functions for compiled code, for plugins and for programs.
const PREFIXES: [&str; 5] = ["GOMP_PLUGIN_", "GOMP_", "GOACC_", "omp_", "acc_"];

/// The names within parentheses behind a word, in a macro of `gomp_calls.h`.
fn listed(list: &str, word: &str) -> BTreeSet<&'static str> {
    let header = include_str!("../c/gomp_calls.h");
    let body = header.split(&format!("#define {list}({word})")).nth(1).unwrap();
    let lines: Vec<&str> = body.lines().skip(1).take_while(|l| !l.is_empty()).collect();
    let calls = lines.into_iter().flat_map(str::split_whitespace);
    let name = |call: &'static str| call.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')');
    calls.filter_map(name).map(|n| n.trim_matches('"')).collect()
}

/// Functions that `waiting_openmp.h` defines, itself or by a macro.
fn followed() -> BTreeSet<&'static str> {
    let lines = include_str!("../c/waiting_openmp.h").lines();
    let defines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    // What is within quotes is called.
    let code = defines.flat_map(|l| l.split('"').step_by(2));
    let words = code.flat_map(|l| l.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    // The names of macros have no small letters.
    let is_function = |w: &&str| w.starts_with("GOMP_") && w.contains(char::is_lowercase);
    words.filter(is_function).collect()
}

/// All that is listed.
struct Lists {
    versions: BTreeSet<&'static str>,
    leaving: BTreeSet<&'static str>,
    known: BTreeSet<&'static str>,
    followed: BTreeSet<&'static str>,
}

impl Lists {
    fn new() -> Self {
        Self {
            versions: listed("GOMP_VERSIONS", "VERSION"),
            leaving: listed("GOMP_LEAVING", "CALL"),
            known: listed("GOMP_KNOWN", "CALL"),
            followed: followed(),
        }
    }

    /// Whether what a function means to barriers is known, by its name and version.
    fn know(&self, name: &str, version: &str) -> bool {
        let class = PREFIXES.iter().find(|p| name.starts_with(**p));
        let makes_tasks = name.starts_with("omp_target_") && name.ends_with("_async");
        self.versions.contains(version)
            && match class {
                Some(&("GOMP_" | "GOACC_")) => {
                    let lists = [&self.known, &self.leaving, &self.followed];
                    lists.iter().filter(|l| l.contains(name)).count() == 1
                }
                Some(_) => makes_tasks == self.leaving.contains(name),
                None => false,
            }
    }
}

/// The functions of gcc 16.
#[test]
fn all_functions_of_gcc_16_are_known() {
    let symbols = include_str!("golden/libgomp-16.txt").lines();
    let all: Vec<(&str, &str)> = symbols.map(|s| s.split_once("@@").unwrap()).collect();
    assert!(all.len() > 480, "{}", all.len());
    let lists = Lists::new();
    assert_eq!(listed("GOMP_FOLLOWED", "CALL"), lists.followed);
    let unknown: Vec<_> = all.iter().filter(|(name, version)| !lists.know(name, version)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for (name, version) in
        [("GOMP_new", "GOMP_1.0"), ("GOMP_barrier", "GOMP_99"), ("new", "OMP_1.0")]
    {
        assert!(!lists.know(name, version), "{name}");
    }
}

#[test]
fn all_functions_of_the_installed_libgomp_are_known() {
    let output = Command::new("gcc").arg("-print-file-name=libgomp.so.1").output().unwrap();
    let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    let bytes = std::fs::read(path).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let golden: BTreeSet<&str> = include_str!("golden/libgomp-16.txt")
        .lines()
        .map(|s| s.split_once("@@").unwrap().0)
        .collect();
    let functions = file.dynamic_symbols().filter(|s| s.is_definition() && s.is_global());
    let names: BTreeSet<&str> = functions.map(|s| s.name().unwrap()).collect();
    assert!(names.contains("GOMP_barrier"), "{names:?}");
    let versions = Lists::new().versions;
    let unknown: Vec<_> =
        names.iter().filter(|n| !golden.contains(**n) && !versions.contains(**n)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
