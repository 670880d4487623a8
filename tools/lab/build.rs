//! Compiles the guest's own programs, statically, so that they need no library in
//! the guest: `busy` for every lab, `masks` for tests.

use std::path::PathBuf;
use std::{env, process};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for program in ["busy", "masks"] {
        let source = format!("guest/{program}.c");
        println!("cargo::rerun-if-changed={source}");
        let mut compile = cc::Build::new().opt_level(2).warnings(true).get_compiler().to_command();
        compile
            .args(["-std=gnu11", "-static", "-pthread", "-o"])
            .arg(out.join(program))
            .arg(source);
        match compile.status() {
            Ok(status) if status.success() => {}
            Ok(status) => fail(&format!("{compile:?} ended with {status}")),
            Err(error) => fail(&format!("{compile:?} did not start: {error}")),
        }
    }
}

fn fail(what: &str) -> ! {
    println!(
        "cargo::error=the guest's programs did not compile: {what}; needed: a C compiler and \
         a static C library (Debian: apt-get install gcc libc6-dev)"
    );
    process::exit(1)
}
