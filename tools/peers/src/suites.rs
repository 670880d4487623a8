//! The tests in a folder, of whichever kind of suite, and how each is built and run.

use crate::lit::{Marks, Script, Substitutions};
use crate::shell::{DIR, quote};
use crate::{commands, dejagnu, lit, posix};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders are searched so deep.
const DEPTH: usize = 24;
/// For the shell: a program that was built, after what is to run it.
const RUN: &str = "%arm \"$EVENLY_PEERS_DIR\"/test";

/// A compiler of C, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Its name: `gcc`, `clang-14`.
    pub cc: String,
    /// Its version, as it prints it.
    pub version: String,
}

impl Compiler {
    /// Asks a compiler for its version. None where it is not there.
    #[must_use]
    pub fn find(cc: &str) -> Option<Self> {
        let output = Command::new(cc).arg("-dumpfullversion").arg("-dumpversion").output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !version.is_empty())
            .then(|| Self { cc: cc.to_owned(), version })
    }

    fn is_clang(&self) -> bool {
        self.cc.contains("clang")
    }

    fn cxx(&self) -> String {
        if self.is_clang() {
            self.cc.replacen("clang", "clang++", 1)
        } else {
            self.cc.replacen("gcc", "g++", 1)
        }
    }

    fn fortran(&self) -> Option<String> {
        (!self.is_clang()).then(|| self.cc.replacen("gcc", "gfortran", 1))
    }

    /// lit's names of it: `clang`, `clang-14`, `clang-14.0`, `clang-14.0.6`.
    fn is(&self, feature: &str) -> bool {
        let name = if self.is_clang() { "clang" } else { "gcc" };
        feature == name
            || feature.strip_prefix(name).and_then(|f| f.strip_prefix('-')).is_some_and(|version| {
                self.version == version || self.version.starts_with(&format!("{version}."))
            })
    }
}

/// What this machine offers to tests.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    /// Flags of the first CPU (`/proc/cpuinfo`).
    pub flags: BTreeSet<String>,
    /// More than one CPU.
    pub several_cpus: bool,
    /// Whether `FileCheck` and `not` are found.
    pub checkers: bool,
}

impl Offers {
    /// The machine that this runs on.
    #[must_use]
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find_map(|l| l.strip_prefix("flags")?.split_once(':'));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = |name: &str| std::env::split_paths(&path).any(|d| d.join(name).is_file());
        Self {
            flags: flags
                .into_iter()
                .flat_map(|(_, f)| f.split_whitespace())
                .map(str::to_owned)
                .collect(),
            several_cpus: std::thread::available_parallelism().is_ok_and(|n| n.get() > 1),
            checkers: found("FileCheck") && found("not"),
        }
    }

    /// Whether a word of DejaGnu's targets holds, for tests in this language.
    fn targets(&self, word: &str, language: Language) -> bool {
        const EVERYWHERE: [&str; 16] = [
            "*-*-*",
            "*-*-linux*",
            "alias",
            "fpic",
            "int128",
            "large_long_double",
            "lp64",
            "lto",
            "pthread",
            "shared",
            "size32plus",
            "sync_char_short",
            "sync_int_long",
            "sync_long_long",
            "tls",
            "tls_runtime",
        ];
        match word {
            "c" => language == Language::C,
            "c++" => language == Language::Cxx,
            "sse2_runtime" => self.flags.contains("sse2"),
            "avx_runtime" => self.flags.contains("avx"),
            "x86_64-*-*" => cfg!(target_arch = "x86_64"),
            other => EVERYWHERE.contains(&other),
        }
    }

    /// Whether a feature of lit is there.
    fn features(&self, feature: &str, compiler: &Compiler) -> bool {
        match feature {
            "linux" | "affinity" => true,
            "multicpu" => self.several_cpus,
            "ompt" => compiler.is_clang() && self.checkers,
            other => compiler.is(other),
        }
    }
}

/// What a run has to do to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passes {
    /// End with another status than 0.
    pub fails: bool,
    /// Write what this regular expression matches.
    pub output: String,
}

/// A test in one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The suite that is run.
    pub suite: String,
    /// The test in it.
    pub name: String,
    /// The compiler, or nothing where its makefile knows it.
    pub compiler: String,
    /// Its number of threads, where that is for us to say.
    pub threads: Option<u32>,
    /// A shell command that builds it, in the folder [`DIR`]; empty where nothing is built.
    pub build: String,
    /// A shell command that runs it, with `%arm` before the program.
    pub run: String,
    /// Where it runs, if not in a scratch directory.
    pub dir: Option<PathBuf>,
    /// Variables of the environment in which tests run.
    pub environment: Vec<(String, String)>,
    /// When it has passed.
    pub passes: Passes,
}

/// What a folder contains.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Tests, each for all configurations.
    pub cases: Vec<Case>,
    /// Tests that are of no use here, and why.
    pub left_out: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cxx,
    Fortran,
}

/// All that is asked of a folder.
#[derive(Debug)]
pub struct Search<'a> {
    /// The folder of the suites.
    pub dir: &'a Path,
    /// The numbers of threads with which tests run.
    pub threads: &'a [u32],
    /// The compilers that build the tests.
    pub compilers: &'a [Compiler],
    /// What the machine offers.
    pub machine: &'a Offers,
}

impl Search<'_> {
    /// Finds all tests, in the order of their names.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn run(&self) -> anyhow::Result<Found> {
        let mut found = Found::default();
        self.folder(self.dir, 0, &mut found)?;
        // The same for each compiler and driver.
        found.left_out.sort();
        found.left_out.dedup();
        Ok(found)
    }

    fn folder(&self, dir: &Path, depth: usize, found: &mut Found) -> anyhow::Result<()> {
        let files = sorted(dir)?;
        let driver =
            files.iter().find(|f| extension(f) == "exp").filter(|_| dir.parent().is_some());
        if files.iter().any(|f| f.ends_with("lit.cfg")) {
            return self.lit(dir, dir, depth, found);
        }
        if let Some(driver) = driver {
            self.dejagnu(dir, driver, found)?;
        }
        for file in &files {
            let name = name(file);
            if file.is_dir() && !file.is_symlink() && depth < DEPTH {
                self.folder(file, depth + 1, found)?;
            } else if name == commands::FILE {
                self.commands(dir, file, found)?;
            } else if driver.is_none() && posix::is_test(&name) {
                self.posix(file, found)?;
            }
        }
        Ok(())
    }

    /// The suite's name: its folder, from the one that was given.
    fn suite(&self, dir: &Path) -> String {
        let inner = dir.strip_prefix(self.dir).unwrap_or(dir);
        let shown = if inner.as_os_str().is_empty() {
            Path::new(dir.file_name().unwrap_or_default())
        } else {
            inner
        };
        shown.to_string_lossy().into_owned()
    }

    fn dejagnu(&self, dir: &Path, driver: &Path, found: &mut Found) -> anyhow::Result<()> {
        let parent = dir.parent().unwrap_or(dir);
        let driver = dejagnu::Driver::parse(&text(driver)?);
        let own = sorted(dir)?.into_iter();
        let also = driver.also.iter().flat_map(|(folder, extension_of_tests)| {
            let files = sorted(&parent.join(folder)).unwrap_or_default().into_iter();
            files.filter(move |f| extension(f) == extension_of_tests.as_str())
        });
        for source in own.chain(also) {
            let (language, flags) = match extension(&source) {
                "C" | "cc" | "cpp" => (Language::Cxx, ""),
                "c" if driver.as_cxx => (Language::Cxx, "-x c++ "),
                "c" => (Language::C, ""),
                "f" | "f90" | "f95" | "f03" | "f08" | "F" | "F90" => (Language::Fortran, ""),
                _ => continue,
            };
            let shown = source.strip_prefix(parent).unwrap_or(&source).to_string_lossy();
            let known = |word: &str| self.machine.targets(word, language);
            let header = dejagnu::Header::parse(&text(&source)?, &known);
            if let Some(why) = header.left_out {
                found.left_out.push((shown.into_owned(), why));
                continue;
            }
            for compiler in self.compilers {
                let driven = match language {
                    Language::C => compiler.cc.clone(),
                    Language::Cxx => compiler.cxx(),
                    Language::Fortran => match compiler.fortran() {
                        Some(fortran) => fortran,
                        None => continue,
                    },
                };
                let mut build = format!("{driven} {flags}{}", quote(&source.to_string_lossy()));
                for more in &header.sources {
                    let more = source.with_file_name(more);
                    let _ = write!(build, " {}", quote(&more.to_string_lossy()));
                }
                for include in [parent.join("../../include"), parent.join("..")] {
                    let _ = write!(build, " -I{}", quote(&include.to_string_lossy()));
                }
                let options = header.options.as_ref().unwrap_or(&driver.default);
                for flag in driver.flags.iter().chain(options).chain(&header.more) {
                    let _ = write!(build, " {}", quote(flag));
                }
                let language = if flags.is_empty() { "" } else { " -x none" };
                let _ = write!(build, "{language} -lm -o {DIR}/test");
                let case = Case {
                    compiler: compiler.cc.clone(),
                    build,
                    environment: header.environment.clone(),
                    passes: Passes { fails: header.should_fail, output: header.output.clone() },
                    ..self.case(dir, &shown, RUN)
                };
                found.cases.extend(self.with_threads(&case));
            }
        }
        Ok(())
    }

    fn lit(&self, root: &Path, dir: &Path, depth: usize, found: &mut Found) -> anyhow::Result<()> {
        for source in sorted(dir)? {
            if source.is_dir() && !source.is_symlink() && depth < DEPTH {
                self.lit(root, &source, depth + 1, found)?;
                continue;
            }
            if !matches!(extension(&source), "c" | "cpp") {
                continue;
            }
            let marks = Marks::parse(&text(&source)?);
            let shown = source.strip_prefix(root).unwrap_or(&source).to_string_lossy();
            for compiler in self.compilers {
                let known = |feature: &str| self.machine.features(feature, compiler);
                let checks =
                    marks.run.iter().any(|r| r.contains("FileCheck") || r.contains("%not"));
                let script = Script::of(&marks);
                let unknown = script
                    .as_ref()
                    .and_then(|s| lit::unknown(&s.build).or_else(|| lit::unknown(&s.run)));
                let why = match (&script, marks.reason_to_leave_out(&known), unknown) {
                    (None, ..) => Some("runs nothing".to_owned()),
                    (_, Some(why), _) => Some(why),
                    (_, _, Some(word)) => Some(format!("unknown: {word}")),
                    _ if checks && !self.machine.checkers => Some("needs FileCheck".to_owned()),
                    _ => None,
                };
                let (Some(script), None) = (script.as_ref(), &why) else {
                    found.left_out.push((shown.to_string(), why.unwrap_or_default()));
                    continue;
                };
                let (cc, cxx) = (&compiler.cc, &compiler.cxx());
                let with = Substitutions { cc, cxx, root, source: &source };
                let case = Case {
                    compiler: compiler.cc.clone(),
                    build: with.in_text(&script.build),
                    ..self.case(root, &shown, &with.in_text(&script.run))
                };
                found.cases.extend(self.with_threads(&case));
            }
        }
        Ok(())
    }

    /// A test of the suite in a folder: nothing is built, and it passes with status 0.
    fn case(&self, of: &Path, name: &str, run: &str) -> Case {
        Case {
            suite: self.suite(of),
            name: name.to_owned(),
            compiler: String::new(),
            threads: None,
            build: String::new(),
            run: run.to_owned(),
            dir: None,
            environment: Vec::new(),
            passes: Passes { fails: false, output: String::new() },
        }
    }

    fn posix(&self, source: &Path, found: &mut Found) -> anyhow::Result<()> {
        let Some(root) = posix::root(source) else { return Ok(()) };
        let shown = source.strip_prefix(&root).unwrap_or(source).to_string_lossy();
        let mut sources = vec![source.to_owned()];
        // In newer versions the entry is there, in older ones in the test.
        if text(source)?.contains(posix::ENTRY) {
            let library = sorted(&root.join("lib")).unwrap_or_default();
            sources.extend(library.into_iter().filter(|f| extension(f) == "c"));
        }
        let sources: Vec<String> = sources.iter().map(|s| quote(&s.to_string_lossy())).collect();
        // No compiler changes what the C library does.
        for compiler in self.compilers.iter().take(1) {
            let build = format!(
                "{} -D_XOPEN_SOURCE=700 -D_GNU_SOURCE -O2 -w -I{} {} -o {DIR}/test -lpthread -lrt -lm",
                compiler.cc,
                quote(&root.join("include").to_string_lossy()),
                sources.join(" "),
            );
            found.cases.push(Case {
                compiler: compiler.cc.clone(),
                build,
                ..self.case(&root, &shown, RUN)
            });
        }
        Ok(())
    }

    fn commands(&self, dir: &Path, list: &Path, found: &mut Found) -> anyhow::Result<()> {
        for line in commands::lines(&text(list)?) {
            let case = Case { dir: Some(dir.to_owned()), ..self.case(dir, line, line) };
            found.cases.extend(self.with_threads(&case));
        }
        Ok(())
    }

    fn with_threads(&self, case: &Case) -> impl Iterator<Item = Case> {
        self.threads.iter().map(|threads| {
            let mut case = case.clone();
            case.threads = Some(*threads);
            // What the test asks for comes later, and has the last word.
            case.environment.insert(0, ("OMP_NUM_THREADS".into(), threads.to_string()));
            case
        })
    }
}

fn sorted(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let what = || format!("{} cannot be read", dir.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(what)? {
        files.push(entry.with_context(what)?.path());
    }
    files.sort();
    Ok(files)
}

fn text(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|e| e.to_str()).unwrap_or_default()
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Compiler, Found, Offers, Search};
    use std::fs;
    use std::path::Path;

    fn search(files: &[(&str, &str)]) -> Found {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let compiler =
            |cc: &str, version: &str| Compiler { cc: cc.into(), version: version.into() };
        let compilers = [compiler("gcc", "12.2.0"), compiler("clang-14", "14.0.6")];
        let machine = Offers { checkers: true, ..Offers::default() };
        let search =
            Search { dir: dir.path(), threads: &[2, 3], compilers: &compilers, machine: &machine };
        let mut found = search.run().unwrap();
        for case in &mut found.cases {
            case.build = case.build.replace(dir.path().to_str().unwrap(), "");
        }
        found
    }

    #[test]
    fn every_test_is_there_with_every_compiler_and_number_of_threads() {
        let found = search(&[("a/peers.list", "%arm ./x\n"), ("s.c/c.exp", ""), ("s.c/t.c", "")]);
        let of = |suite: &str| found.cases.iter().filter(|c| c.suite == suite).count();
        assert_eq!((of("a"), of("s.c"), found.cases.len()), (2, 4, 6));
        let threads = &found.cases[0].environment;
        assert_eq!(*threads, [("OMP_NUM_THREADS".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn dejagnu_drivers_share_folders() {
        let found = search(&[
            ("s.c/c.exp", "\"additional_flags=-fopenmp\"\n[find $srcdir/$subdir/../both *.c]"),
            (
                "s.c++/c.exp",
                "\"additional_flags=-fopenmp\" -x c++ [find $srcdir/$subdir/../both *.c]",
            ),
            (
                "both/t.c",
                "/* { dg-additional-options \"-g\" { target c++ } } */\n\
                 /* { dg-additional-sources \"v.c\" } */",
            ),
            ("both/u.c", "/* { dg-do compile } */"),
        ]);
        let gcc: Vec<&str> = found
            .cases
            .iter()
            .filter(|c| c.compiler == "gcc" && c.threads == Some(2))
            .map(|c| c.build.as_str())
            .collect();
        assert_eq!(
            gcc,
            [
                "gcc '/both/t.c' '/both/v.c' -I'/../../include' -I'/..' '-fopenmp' '-O2' -lm -o \"$EVENLY_PEERS_DIR\"/test",
                "g++ -x c++ '/both/t.c' '/both/v.c' -I'/../../include' -I'/..' '-fopenmp' '-O2' '-g' -x none -lm -o \"$EVENLY_PEERS_DIR\"/test",
            ]
        );
        assert_eq!(found.left_out, [("both/u.c".to_owned(), "dg-do compile".to_owned())]);
    }

    #[test]
    fn lit_tests_are_below_their_configuration() {
        let found = search(&[
            ("lit/lit.cfg", ""),
            ("lit/a/t.c", "// RUN: %libomp-compile-and-run\n"),
            ("lit/a/u.c", "// RUN: %libarcher-compile-and-run\n"),
            ("lit/a/v.c", "// UNSUPPORTED: gcc-12\n// RUN: %libomp-compile-and-run\n"),
        ]);
        let names: Vec<_> =
            found.cases.iter().map(|c| (c.name.as_str(), c.compiler.as_str())).collect();
        let (gcc, clang) = (("a/t.c", "gcc"), ("a/t.c", "clang-14"));
        let only_clang = ("a/v.c", "clang-14");
        assert_eq!(names, [gcc, gcc, clang, clang, only_clang, only_clang]);
        assert!(
            found.cases[2].build.starts_with("clang-14 -fopenmp -I"),
            "{}",
            found.cases[2].build
        );
    }

    #[test]
    fn posix_tests_do_not_depend_on_threads() {
        let found = search(&[
            ("p/include/posixtest.h", ""),
            ("p/lib/common.c", ""),
            ("p/c/f/1-1.c", "int main(void) { return 0; }"),
            ("p/c/f/1-2.c", "int test_main(void) { return 0; }"),
            ("p/c/f/x.c", ""),
        ]);
        let names: Vec<&str> = found.cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["c/f/1-1.c", "c/f/1-2.c"]);
        let with_library: Vec<bool> =
            found.cases.iter().map(|c| c.build.contains("/p/lib/common.c")).collect();
        assert_eq!(with_library, [false, true]);
    }

    #[test]
    fn compilers_belong_together() {
        let clang = Compiler { cc: "clang-14".into(), version: "14.0.6".into() };
        assert_eq!((clang.cxx().as_str(), clang.fortran()), ("clang++-14", None));
        assert!(clang.is("clang") && clang.is("clang-14") && clang.is("clang-14.0.6"));
        assert!(!clang.is("clang-1") && !clang.is("gcc"));
        let gcc = Compiler { cc: "gcc-12".into(), version: "12.2.0".into() };
        assert_eq!(gcc.cxx(), "g++-12");
        assert_eq!(gcc.fortran().as_deref(), Some("gfortran-12"));
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_an_error() {
        let machine = Offers::default();
        let dir = Path::new("/nonexistent");
        assert!(Search { dir, threads: &[], compilers: &[], machine: &machine }.run().is_err());
    }
}
