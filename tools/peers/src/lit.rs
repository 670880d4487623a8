//! lit, as LLVM's OpenMP runtime uses it: `RUN:` lines are shell commands with substitutions. What they do
//! before the program first runs is done once, the rest under every arm.

use crate::expression::holds;
use crate::shell::{DIR, quote};
use std::path::Path;

/// The marks in a test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// `RUN:` lines, continued ones joined.
    pub run: Vec<String>,
    /// Conditions, all of which are needed.
    pub requires: Vec<String>,
    /// Conditions under which the test is not meant to run, or to pass.
    pub not_with: Vec<String>,
}

impl Marks {
    /// Reads the text of a test.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut marks = Self::default();
        let mut continued = false;
        for line in text.lines() {
            if let Some(command) = mark(line, "RUN:") {
                let more = command.ends_with('\\');
                let command = command.trim_end_matches('\\').trim();
                match marks.run.last_mut() {
                    Some(last) if continued => {
                        last.push(' ');
                        last.push_str(command);
                    }
                    _ => marks.run.push(command.to_owned()),
                }
                continued = more;
            } else if let Some(list) = mark(line, "REQUIRES:") {
                marks.requires.extend(conditions(list));
            } else if let Some(list) = mark(line, "UNSUPPORTED:").or_else(|| mark(line, "XFAIL:")) {
                marks.not_with.extend(conditions(list));
            }
        }
        marks
    }

    /// Why the test is of no use here, if it is not.
    #[must_use]
    pub fn reason_to_leave_out(&self, known: &dyn Fn(&str) -> bool) -> Option<String> {
        let missing = self.requires.iter().find(|c| !holds(c, known));
        let unwanted = self.not_with.iter().find(|c| c.as_str() == "*" || holds(c, known));
        missing
            .map(|c| format!("requires {c}"))
            .or_else(|| unwanted.map(|c| format!("not meant for {c}")))
    }
}

fn mark<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let (before, after) = line.split_once(mark)?;
    // `UNSUPPORTED:` is not asked for by a word that ends in it.
    let alone = !before.ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
    alone.then(|| after.trim())
}

fn conditions(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|c| c.trim().to_owned()).filter(|c| !c.is_empty())
}

/// The commands of a test, as shell commands with the short substitutions still in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What is done once.
    pub build: String,
    /// What is done under every arm.
    pub run: String,
}

impl Script {
    /// Divides the commands of a test at the first that runs the program; all belong to the run where some that
    /// build come later. None where nothing runs.
    #[must_use]
    pub fn of(marks: &Marks) -> Option<Self> {
        let all = marks.run.join(" && ");
        let all = ["", "-c99", "-cxx"].iter().fold(all, |text, kind| {
            text.replace(
                &format!("%libomp{kind}-compile-and-run"),
                &format!("%libomp{kind}-compile && %libomp-run"),
            )
        });
        let commands = split(&all);
        let builds = |command: &&str| {
            let command = command.trim_start();
            command.starts_with('%')
                && !["%libomp-run", "%t", "%preload-tool"]
                    .iter()
                    .any(|run| command.starts_with(run))
        };
        let mut first = commands.iter().position(|c| !builds(c)).unwrap_or(commands.len());
        if commands.iter().skip(first).any(builds) {
            // What is built later overwrites what the first runs need.
            first = 0;
        }
        let (build, run) = commands.split_at(first);
        run.iter()
            .any(|c| c.contains("%libomp-run") || c.contains("%t"))
            .then(|| Self { build: build.join("&&"), run: run.join("&&") })
    }
}

/// The parts between `&&`, those in quotes not counted.
fn split(commands: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote) = (0, None);
    let mut before = None;
    for (at, c) in commands.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '&') if before == Some('&') && at > start + 1 => {
                parts.extend(commands.get(start..at - 1));
                start = at + 1;
            }
            _ => {}
        }
        before = Some(c);
    }
    parts.extend(commands.get(start..));
    parts
}

/// What substitutions stand for.
#[derive(Debug, Clone, Copy)]
pub struct Substitutions<'a> {
    /// The compiler for C.
    pub cc: &'a str,
    /// The compiler for C++.
    pub cxx: &'a str,
    /// The folder of the suite, in which its headers are.
    pub root: &'a Path,
    /// The source of the test.
    pub source: &'a Path,
}

impl Substitutions<'_> {
    /// Replaces them, from the outermost; `%arm` comes before the program.
    #[must_use]
    pub fn in_text(&self, text: &str) -> String {
        let program = format!("{DIR}/test");
        let source = quote(&self.source.to_string_lossy());
        let here = self.source.parent().map(|p| quote(&p.to_string_lossy())).unwrap_or_default();
        let (root, ompt) = (self.root.to_string_lossy(), self.root.join("ompt"));
        let flags = format!("-I{} -I{}", quote(&root), quote(&ompt.to_string_lossy()));
        let pairs = [
            (
                "%libomp-cxx-compile-c",
                "%clangXX %openmp_flags %flags -std=c++14 -x c++ %s -o %t -lm",
            ),
            ("%libomp-cxx-compile", "%clangXX %openmp_flags %flags -std=c++14 %s -o %t -lm"),
            ("%libomp-c99-compile", "%clang %openmp_flags %flags -std=c99 %s -o %t -lm"),
            ("%libomp-compile", "%clang %openmp_flags %flags %s -o %t -lm"),
            ("%libomp-run", "%arm %t"),
            ("%clangXX", self.cxx),
            ("%clang", self.cc),
            ("%openmp_flags", "-fopenmp"),
            ("%flags-use-compiler-omp-h", &flags),
            ("%flags", &flags),
            ("%python", "python3"),
            ("%not", "not"),
            ("%sort-threads", "sort -n -s"),
            ("%preload-tool", &format!("env LD_PRELOAD={DIR}/tool.so")),
            ("%no-as-needed-flag", "-Wl,--no-as-needed"),
            ("%t", &program),
            ("%T", DIR),
            ("%S", &here),
            ("%s", &source),
        ];
        pairs.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// A substitution that is not known here: the tests of other suites have their own.
#[must_use]
pub fn unknown(text: &str) -> Option<&str> {
    const KNOWN: [&str; 20] = [
        "%libomp-cxx-compile-c",
        "%libomp-cxx-compile",
        "%libomp-c99-compile",
        "%libomp-compile",
        "%libomp-run",
        "%clangXX",
        "%clang",
        "%openmp_flags",
        "%flags-use-compiler-omp-h",
        "%flags",
        "%python",
        "%not",
        "%sort-threads",
        "%preload-tool",
        "%no-as-needed-flag",
        "%t",
        "%T",
        "%S",
        "%s",
        "%arm",
    ];
    text.match_indices('%').find_map(|(at, _)| {
        let rest = text.get(at..)?;
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| !(c.is_alphanumeric() || matches!(c, '-' | '_')))
            .map_or(rest.len(), |(end, _)| end);
        let word = rest.get(..end)?;
        (!KNOWN.contains(&word)).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::{Marks, Script, Substitutions, unknown};
    use std::path::Path;

    fn script(text: &str) -> Option<Script> {
        Script::of(&Marks::parse(text))
    }

    #[test]
    fn compiling_is_done_once() {
        let script = script("// RUN: %libomp-compile-and-run | FileCheck %s\n").unwrap();
        assert_eq!(script.build.trim(), "%libomp-compile");
        assert_eq!(script.run.trim(), "%libomp-run | FileCheck %s");
    }

    #[test]
    fn lines_are_joined_and_run_one_after_the_other() {
        let script = script(
            "// RUN: %libomp-compile && \\\n// RUN:   env A='x && y' %libomp-run\n\
             // RUN: env B=1 %libomp-run\n",
        )
        .unwrap();
        assert_eq!(script.build.trim(), "%libomp-compile");
        assert_eq!(script.run.trim(), "env A='x && y' %libomp-run && env B=1 %libomp-run");
    }

    #[test]
    fn what_is_built_between_runs_is_built_in_every_run() {
        let script =
            script("RUN: %clang %s -o %t\nRUN: %libomp-run\nRUN: %libomp-compile\n").unwrap();
        assert_eq!(script.build, "");
        assert_eq!(script.run, "%clang %s -o %t && %libomp-run && %libomp-compile");
    }

    #[test]
    fn a_test_that_runs_nothing_is_none() {
        assert_eq!(script("// RUN: %libomp-compile\n"), None);
        assert_eq!(script("int main;"), None);
    }

    #[test]
    fn conditions_leave_tests_out() {
        let known = |word: &str| matches!(word, "clang" | "clang-14" | "linux");
        let reason = |text: &str| Marks::parse(text).reason_to_leave_out(&known);
        assert_eq!(reason("// REQUIRES: linux\n// XFAIL: gcc, clang-3\n"), None);
        assert!(reason("// REQUIRES: hwloc").is_some());
        assert!(reason("// UNSUPPORTED: icc, clang").is_some());
        assert!(reason("// XFAIL: *").is_some());
        assert!(reason("// REQUIRES: linux && !clang-14").is_some());
    }

    #[test]
    fn substitutions_are_replaced() {
        let with = Substitutions {
            cc: "clang",
            cxx: "clang++",
            root: Path::new("/suite"),
            source: Path::new("/suite/a/b.c"),
        };
        assert_eq!(
            with.in_text("%libomp-compile && %libomp-run 2>%t.err | FileCheck %S/x.h"),
            r#"clang -fopenmp -I'/suite' -I'/suite/ompt' '/suite/a/b.c' -o "$EVENLY_PEERS_DIR"/test -lm && %arm "$EVENLY_PEERS_DIR"/test 2>"$EVENLY_PEERS_DIR"/test.err | FileCheck '/suite/a'/x.h"#
        );
    }

    #[test]
    fn other_suites_are_told_apart() {
        assert_eq!(unknown("%libomp-compile && %libomp-run | FileCheck %s"), None);
        assert_eq!(unknown("%libarcher-compile"), Some("%libarcher-compile"));
        assert_eq!(unknown("100%"), Some("%"));
    }
}
