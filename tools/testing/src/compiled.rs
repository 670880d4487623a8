//! Programs in C, C++ and Fortran that are built against a library of ours, which lies beside the test program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library with an interface for C.
#[derive(Debug, Clone, Copy)]
pub struct Library<'a> {
    /// What the linker calls it.
    pub name: &'a str,
    /// Where its header is.
    pub include: &'a Path,
    /// What its programs are compiled with, besides warnings.
    pub flags: &'a [&'a str],
    /// Where programs are built to.
    pub into: &'a Path,
}

/// Runs a program, without the libraries that were built before, which cargo names.
///
/// # Panics
/// If it fails, with what it says.
pub fn run(program: &mut Command) -> Output {
    let output = program.env_remove("LD_LIBRARY_PATH").output();
    let output = output.unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {said}");
    output
}

impl Library<'_> {
    /// Builds a program from one file, linked with the shared or with the static library: its path.
    ///
    /// # Panics
    /// If the compiler fails, or warns.
    #[must_use]
    pub fn build(&self, file: &Path, shared: bool) -> PathBuf {
        let own = std::env::current_exe().unwrap_or_default();
        let libraries = own.parent().unwrap_or(Path::new("."));
        let form = if shared { "shared" } else { "static" };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let program = self.into.join(format!("{name}-{form}"));
        let [compiler, standard] = match file.extension().and_then(|end| end.to_str()) {
            Some("cpp") => ["c++", "-std=c++17"],
            Some("f90") => ["gfortran", "-std=f2018"],
            _ => ["cc", "-std=c11"],
        };
        let mut cc = Command::new(compiler);
        cc.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]).args(self.flags);
        cc.arg("-I").arg(self.include).arg(file).arg("-o").arg(&program);
        if shared {
            cc.arg("-L").arg(libraries).arg(format!("-l{}", self.name));
            cc.arg(format!("-Wl,-rpath,{}", libraries.display()));
        } else {
            cc.arg(libraries.join(format!("lib{}.a", self.name)));
            cc.args(["-lpthread", "-ldl", "-lm"]);
        }
        run(&mut cc);
        program
    }
}

/// The code in a manual that follows a line of its own: `<!-- mark -->`.
///
/// # Panics
/// If there is no such line.
#[must_use]
pub fn code_behind(manual: &str, mark: &str) -> String {
    let rest = manual.split_once(&format!("<!-- {mark} -->\n"));
    let (_, rest) = rest.unwrap_or_else(|| panic!("the manual has no {mark}"));
    let code = rest.lines().skip_while(|l| l.is_empty());
    let code = code.take_while(|l| l.is_empty() || l.starts_with("    "));
    code.map(|l| format!("{}\n", l.strip_prefix("    ").unwrap_or(l))).collect()
}
