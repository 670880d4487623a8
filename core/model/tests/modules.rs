//! The modules of `linux` and their arrows, read from the sources: no arrow goes from a room up to
//! another one, and none goes round in a circle.
//!
//! Code that is for tests alone is left out, as are comments. What a macro is given counts.
#![allow(clippy::unwrap_used, reason = "a failure here is the test's own")]

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms. Each may use those that follow.
const ROOMS: [&str; 5] = ["run", "apply", "undo", "read", "sys"];

/// From each module to those that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// A module or an item by its whole path, without `crate`.
type Names = Vec<String>;

/// What a source says of modules.
#[derive(Debug, Default, PartialEq)]
struct Source {
    /// Paths that begin with `crate`, `self` or `super`.
    used: BTreeSet<Names>,
    /// Modules in files of their own that are compiled for tests alone.
    tests: BTreeSet<Names>,
}

impl Source {
    fn parse(here: &[String], text: &str) -> Self {
        let mut source = Self::default();
        source.read(here, text.parse().unwrap());
        source
    }

    fn read(&mut self, here: &[String], tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += if is_for_tests(rest) {
                self.skip_item(here, rest)
            } else if let Some((name, body)) = inline_module(rest) {
                self.read(&[here, &[name]].concat(), body);
                3
            } else if is_path(&tokens, at) {
                self.path(here, rest)
            } else {
                if let TokenTree::Group(group) = &rest[0] {
                    self.read(here, group.stream());
                }
                1
            };
        }
    }

    /// Passes over attributes and the item that follows, to its semicolon or the end of its body.
    fn skip_item(&mut self, here: &[String], tokens: &[TokenTree]) -> usize {
        let is_end = |t: &TokenTree| match t {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_punct(other, ';'),
        };
        let end = tokens.iter().position(is_end).unwrap_or(tokens.len() - 1);
        if let Some(at) = tokens[..end].iter().position(|t| is_word(t, "mod"))
            && is_punct(&tokens[end], ';')
        {
            self.tests.insert([here, &[tokens[at + 1].to_string()]].concat());
        }
        end + 1
    }

    /// Adds the paths of a tree such as `a::{b, c::d}`; `names` is what stands before it. Returns how many
    /// tokens it takes.
    fn path(&mut self, names: &[String], tokens: &[TokenTree]) -> usize {
        let mut names = names.to_vec();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(word) => {
                    match word.to_string().as_str() {
                        "crate" => names.clear(),
                        "self" => {}
                        "super" => drop(names.pop()),
                        name => names.push(name.to_owned()),
                    }
                    at += 1;
                    if !is_separator(&tokens[at..]) {
                        break;
                    }
                    at += 2;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in inner.split(|t| is_punct(t, ',')).filter(|b| !b.is_empty()) {
                        self.path(&names, branch);
                    }
                    return at + 1;
                }
                // A glob, or the arguments of a generic type.
                _ => break,
            }
        }
        self.used.insert(names);
        at.max(1)
    }
}

fn is_punct(token: &TokenTree, of: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == of)
}

fn is_word(token: &TokenTree, of: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == of)
}

/// Whether the next is `::`.
fn is_separator(tokens: &[TokenTree]) -> bool {
    let first = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
    tokens.len() > 1 && first(&tokens[0]) && is_punct(&tokens[1], ':')
}

/// Whether a path begins there that says where it begins.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let begins = ["crate", "self", "super"].iter().any(|word| is_word(&tokens[at], word));
    begins && is_separator(&tokens[at + 1..])
}

/// Whether the next is `#[cfg(test)]`.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    tokens.len() > 1
        && is_punct(&tokens[0], '#')
        && tokens[1].to_string().split_whitespace().collect::<String>() == "[cfg(test)]"
}

/// The next, where that is a module with its body.
fn inline_module(tokens: &[TokenTree]) -> Option<(String, TokenStream)> {
    match tokens {
        [word, TokenTree::Ident(name), TokenTree::Group(body), ..] if is_word(word, "mod") => {
            Some((name.to_string(), body.stream()))
        }
        _ => None,
    }
}

/// The module of the graph in which something is: the file or folder in its room. None for what is in a
/// room itself, which only lists its modules.
fn module(names: &[String]) -> Option<String> {
    match names {
        [room, rest @ ..] if ROOMS.contains(&room.as_str()) => {
            Some(format!("{room}/{}", rest.first()?))
        }
        [name, ..] => Some(name.clone()),
        [] => None,
    }
}

/// All sources below a directory, each with the path of its module.
fn sources(dir: &Path, here: &[String], found: &mut Vec<(Names, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let names = [here, &[name]].concat();
        if path.is_dir() {
            sources(&path, &names, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_folder = path.ends_with("mod.rs") || path.ends_with("lib.rs");
            let names = if is_folder { here.to_vec() } else { names };
            found.push((names, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The graph of these sources.
fn graph(sources: &[(Names, String)]) -> Graph {
    let parsed = sources.iter().map(|(names, text)| (names, Source::parse(names, text)));
    let parsed: Vec<_> = parsed.collect();
    let tests: BTreeSet<&Names> = parsed.iter().flat_map(|(_, s)| &s.tests).collect();
    let kept = |names: &Names| !tests.iter().any(|t| names.starts_with(t));
    let all: BTreeSet<String> = sources.iter().filter_map(|(names, _)| module(names)).collect();
    // The crate's root has every module under its name alone.
    let by_name = |name: &String| all.iter().find(|m| m.rsplit('/').next() == Some(name));
    let mut graph: Graph = all.iter().map(|m| (m.clone(), BTreeSet::new())).collect();
    for (names, source) in parsed.iter().filter(|(names, _)| kept(names)) {
        let Some(from) = module(names) else { continue };
        for used in &source.used {
            let whole = module(used).filter(|m| all.contains(m));
            let to = whole.as_ref().or_else(|| by_name(used.first()?));
            if let Some(to) = to.filter(|to| **to != from) {
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    graph
}

/// A circle in which modules depend on each other. None where there is none.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    fn visit(
        graph: &Graph,
        at: &String,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(first) = way.iter().position(|m| m == at) {
            way.drain(..first);
            way.push(at.clone());
            return true;
        }
        way.push(at.clone());
        let round = !done.contains(at)
            && graph.get(at).into_iter().flatten().any(|to| visit(graph, to, way, done));
        if !round {
            way.pop();
            done.insert(at.clone());
        }
        round
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    graph.keys().any(|m| visit(graph, m, &mut way, &mut done)).then_some(way)
}

/// What is wrong with a graph.
fn faults(graph: &Graph) -> Vec<String> {
    let rank = |m: &String| ROOMS.iter().position(|room| m.split('/').next() == Some(room));
    let mut faults = Vec::new();
    for (from, to) in graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        if rank(to) < rank(from) {
            faults.push(format!("{from} uses {to}, which is in a room above it"));
        }
    }
    let outside = graph.keys().filter(|m| rank(m).is_none());
    faults.extend(outside.map(|m| format!("{m} is in no room")));
    faults.extend(cycle(graph).map(|c| format!("a circle: {}", c.join(" -> "))));
    faults
}

fn names(path: &str) -> Names {
    path.split("::").map(String::from).collect()
}

fn graph_of(arrows: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in arrows {
        graph.entry(String::from(*from)).or_default().insert(String::from(*to));
        graph.entry(String::from(*to)).or_default();
    }
    graph
}

#[test]
fn arrows_go_down_and_never_round() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../linux/src"), &[], &mut found);
    let graph = graph(&found);
    // What was read is the crate: one arrow of each kind that is known to be there.
    for (from, to) in [
        ("apply/share", "undo/journal"),
        ("run/agents", "apply/machine"),
        ("undo/restore", "undo/journal"),
    ] {
        assert!(graph.get(from).is_some_and(|all| all.contains(to)), "{from} -> {to}: {graph:?}");
    }
    let faults = faults(&graph);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn faults_are_named() {
    let graph = graph_of(&[
        ("run/a", "sys/b"),
        ("sys/b", "apply/c"),
        ("undo/d", "undo/e"),
        ("undo/e", "undo/f"),
        ("undo/f", "undo/e"),
        ("read/g", "h"),
    ]);
    let wanted = [
        "sys/b uses apply/c, which is in a room above it",
        "read/g uses h, which is in a room above it",
        "h is in no room",
        "a circle: undo/e -> undo/f -> undo/e",
    ];
    let found = faults(&graph);
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), wanted.map(String::from).iter().collect());
    assert!(faults(&graph_of(&[("run/a", "sys/b"), ("run/a", "run/c")])).is_empty());
}

#[test]
fn paths_of_all_forms_are_seen() {
    let text = r##"
        //! crate::comment
        /* crate::comment */
        /// [`crate::comment`]
        use crate::{a, b::{C, self}, d::*};
        use super::{e::F, super::g};
        pub(in crate::h) const X: &str = "crate::text";
        fn f() { println!("{}", crate::i::j()); x.map(self::k::l); }
        mod inner { use super::m; }
        macro_rules! n { () => { $crate::o::p() } }
        #[cfg(test)]
        #[path = "elsewhere.rs"]
        mod tests;
        #[cfg(test)]
        mod more { use crate::test; }
        #[cfg(test)]
        use crate::test;
        struct After(crate::q::R<crate::s::T>);
    "##;
    let source = Source::parse(&names("room::here"), text);
    let used = [
        "a",
        "b::C",
        "b",
        "d",
        "room::e::F",
        "g",
        "h",
        "i::j",
        "room::here::k::l",
        "room::here::m",
        "o::p",
        "q::R",
        "s::T",
    ];
    assert_eq!(source.used, used.map(names).into_iter().collect());
    assert_eq!(source.tests, BTreeSet::from([names("room::here::tests")]));
}
