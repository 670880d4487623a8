//! The modules of each crate and their arrows, read from the sources: no arrow goes round in a circle, and in
//! `linux` none goes from a room up to another one.
//!
//! A module is a file or a folder beside the root of its crate, in `linux` beside that of its room. What a root
//! names again (`pub use`) counts as of the module that it comes from; what a root defines is a module as well,
//! `crate`. Code that is for tests alone is left out, as are comments. What a macro is given counts.
#![allow(clippy::unwrap_used, reason = "a failure here is the test's own")]

mod workspace;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use workspace::metadata;

/// The rooms of `linux`. Each may use those that follow.
const ROOMS: [&str; 5] = ["run", "apply", "undo", "read", "sys"];

/// What stands for all that the root of a crate defines.
const ROOT: &str = "crate";

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
    /// By what name `use` knows which path. Of a root alone.
    aliases: BTreeMap<String, Names>,
    /// Words of a root that may name modules, or what it has by `use`: types, functions, beginnings of paths.
    words: BTreeSet<String>,
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
            let is_root = here.is_empty();
            at += if is_for_tests(rest) {
                self.skip_item(here, rest)
            } else if is_root && is_word(&rest[0], "use") {
                let end = rest.iter().position(|t| is_punct(t, ';')).unwrap_or(rest.len());
                self.alias(&[], &rest[1..end]);
                end
            } else if is_root
                && is_word(&rest[0], "mod")
                && rest.len() > 2
                && is_punct(&rest[2], ';')
            {
                3
            } else if let Some((name, body)) = inline_module(rest) {
                self.read(&[here, &[name]].concat(), body);
                3
            } else if is_path(&tokens, at) {
                self.path(here, rest)
            } else {
                match &rest[0] {
                    TokenTree::Group(group) => self.read(here, group.stream()),
                    TokenTree::Ident(word) if is_root && is_name(&tokens, at) => {
                        self.words.insert(word.to_string());
                    }
                    _ => {}
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

    /// Adds what a tree such as `a::{b, c as d}` makes known by another name; `names` is what stands before it.
    fn alias(&mut self, names: &[String], tree: &[TokenTree]) {
        let mut names = names.to_vec();
        for (at, token) in tree.iter().enumerate() {
            match token {
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "crate" => names.clear(),
                    "self" => {}
                    "as" => {
                        self.aliases.insert(tree[at + 1].to_string(), names);
                        return;
                    }
                    name => names.push(name.to_owned()),
                },
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in inner.split(|t| is_punct(t, ',')).filter(|b| !b.is_empty()) {
                        self.alias(&names, branch);
                    }
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if let Some(last) = names.last().cloned() {
            self.aliases.insert(last, names);
        }
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

/// Whether a word there may name an item: no field, no variable, and nothing that is defined there.
fn is_name(tokens: &[TokenTree], at: usize) -> bool {
    let is_defined = at > 0 && (is_punct(&tokens[at - 1], '.') || is_word(&tokens[at - 1], "fn"));
    let is_type = tokens[at].to_string().starts_with(char::is_uppercase);
    let is_call = matches!(tokens.get(at + 1), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis);
    !is_defined && (is_type || is_call || is_separator(&tokens[at + 1..]))
}

/// Whether the next is `#[cfg(test)]`, or asks for more besides.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let condition = || tokens[1].to_string().split_whitespace().collect::<String>();
    tokens.len() > 1
        && is_punct(&tokens[0], '#')
        && ["[cfg(test)]", "[cfg(all(test,"].iter().any(|test| condition().starts_with(test))
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

/// The module of the graph in which something is: the file or folder beside the root, or in its room. None for
/// what is in a root or a room itself, which only lists its modules.
fn module(names: &[String], rooms: &[&str]) -> Option<String> {
    match names {
        [room, rest @ ..] if rooms.contains(&room.as_str()) => {
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
            let is_folder = ["mod.rs", "lib.rs", "main.rs"].iter().any(|n| path.ends_with(n));
            let names = if is_folder { here.to_vec() } else { names };
            found.push((names, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The graph of these sources.
fn graph(sources: &[(Names, String)], rooms: &[&str]) -> Graph {
    let parsed = sources.iter().map(|(names, text)| (names, Source::parse(names, text)));
    let parsed: Vec<_> = parsed.collect();
    let tests: BTreeSet<&Names> = parsed.iter().flat_map(|(_, s)| &s.tests).collect();
    let kept = |names: &Names| !tests.iter().any(|t| names.starts_with(t));
    let all: BTreeSet<String> =
        sources.iter().filter_map(|(names, _)| module(names, rooms)).collect();
    let roots = parsed.iter().filter(|(names, _)| names.is_empty());
    let aliases: BTreeMap<&String, &Names> = roots.flat_map(|(_, root)| &root.aliases).collect();
    // With rooms, a crate's root has every module under its name alone.
    let by_name = |name: &String| all.iter().find(|m| m.rsplit('/').next() == Some(name));
    let known = |path: &[String]| {
        let whole = module(path, rooms).filter(|m| all.contains(m));
        whole.or_else(|| by_name(path.first()?).cloned())
    };
    let find = |path: &Names| {
        known(path).or_else(|| match aliases.get(path.first()?) {
            // It may be of another crate.
            Some(from) => known(from),
            None => Some(String::from(ROOT)),
        })
    };
    let mut graph: Graph = all.iter().map(|m| (m.clone(), BTreeSet::new())).collect();
    for (names, source) in parsed.iter().filter(|(names, _)| kept(names)) {
        let is_root = names.is_empty();
        let from = if is_root { Some(String::from(ROOT)) } else { module(names, rooms) };
        let Some(from) = from else { continue };
        let words = source.words.iter().filter(|w| all.contains(*w) || aliases.contains_key(w));
        let words = words.map(|word| vec![word.clone()]);
        for to in source.used.iter().cloned().chain(words).filter_map(|path| find(&path)) {
            if to != from {
                graph.entry(from.clone()).or_default().insert(to);
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
fn faults(graph: &Graph, rooms: &[&str]) -> Vec<String> {
    let rank = |m: &String| rooms.iter().position(|room| m.split('/').next() == Some(room));
    let mut faults = Vec::new();
    for (from, to) in graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        if rank(to) < rank(from) {
            faults.push(format!("{from} uses {to}, which is in a room above it"));
        }
    }
    let outside = graph.keys().filter(|m| !rooms.is_empty() && *m != ROOT && rank(m).is_none());
    faults.extend(outside.map(|m| format!("{m} is in no room")));
    faults.extend(cycle(graph).map(|c| format!("a circle: {}", c.join(" -> "))));
    faults
}

/// The crates of the workspace, each with the folder of its sources.
fn crates() -> Vec<(String, PathBuf)> {
    let metadata = metadata(&["--no-deps"]);
    let of = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        (package["name"].as_str().unwrap().to_owned(), manifest.with_file_name("src"))
    };
    metadata["packages"].as_array().unwrap().iter().map(of).collect()
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
    let crates = crates();
    assert!(crates.len() > 25, "{crates:?}");
    let mut wrong = Vec::new();
    for (name, src) in crates {
        let mut found = Vec::new();
        sources(&src, &[], &mut found);
        let rooms = if name == "evenly-linux" { &ROOMS[..] } else { &[] };
        let graph = graph(&found, rooms);
        // What was read is the crate: arrows of each kind that are known to be there.
        for (of, from, to) in [
            ("evenly-linux", "apply/share", "undo/journal"),
            ("evenly-linux", "run/agents", "apply/machine"),
            ("evenly-linux", "undo/restore", "undo/journal"),
            ("evenly-cli", "top", "output"),
            ("evenly-map", "front", "case"),
        ] {
            let is_there = graph.get(from).is_some_and(|all| all.contains(to));
            assert!(of != name || is_there, "{from} -> {to}: {graph:?}");
        }
        wrong.extend(faults(&graph, rooms).iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Would catch: a circle that goes by what a root names again or defines.
#[test]
fn circles_by_way_of_the_root_are_seen() {
    let circle = |root: &str, a: &str, b: &str| {
        let source = |path: &str, text: &str| {
            let names = if path.is_empty() { Vec::new() } else { names(path) };
            (names, text.to_owned())
        };
        let all = [source("", root), source("a", a), source("b::inner", b)];
        cycle(&graph(&all, &[])).map(|c| c.join(" "))
    };
    let root = "mod a; mod b; pub use a::{A, Other as Named}; use elsewhere::tell;";
    let to_b = "use crate::b::B;";
    assert_eq!(circle(root, to_b, ""), None);
    assert_eq!(circle(root, to_b, "use crate::tell; use crate::b::C;"), None);
    for back in ["use crate::a::A;", "use crate::A;", "use crate::Named;", "fn f(_: crate::A) {}"] {
        assert_eq!(circle(root, to_b, back).as_deref(), Some("a b a"), "{back}");
    }
    // What the root defines, and calls.
    let own = "mod a; mod b; pub enum End { It } fn main() { a::run() }";
    assert_eq!(circle(own, "use crate::End;", "").as_deref(), Some("a crate a"));
    assert_eq!(circle(own, "", "use crate::End;"), None);
    let by_use = "mod a; mod b; use b::inner::run; pub enum End { It } fn main() { run() }";
    assert_eq!(circle(by_use, "", "use crate::End;").as_deref(), Some("b crate b"));
    let for_tests = "#[cfg(all(test, not(loom)))] mod tests { use crate::a; }";
    assert_eq!(circle(root, to_b, for_tests), None);
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
    let found = faults(&graph, &ROOMS);
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), wanted.map(String::from).iter().collect());
    assert!(faults(&graph_of(&[("run/a", "sys/b"), ("run/a", "run/c")]), &ROOMS).is_empty());
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
