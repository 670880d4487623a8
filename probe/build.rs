//! Builds the libraries which evenly carries with it (probe/c/waiting.c, probe/c/handover.c): they know no
//! MPI, so that they need not be built where they are used. And asks the compiler how the structures are laid out that programs
//! share with evenly, for the module `layout`.
#![allow(missing_docs, clippy::expect_used, reason = "a build script fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How it is compiled. Unwinding has to pass: a thread can be cancelled where it waits. Its variables of a
/// thread are where they can be reached without a call, and without allocating.
const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fexceptions",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-Wall",
    "-Wextra",
    "-Werror",
];

fn main() {
    let sources = Path::new("c");
    println!("cargo:rerun-if-changed={}", sources.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let layouts = ["waiting", "messages", "handover"].map(|header| layout(sources, header, &out));
    fs::write(out.join("layout.rs"), layouts.concat()).expect("OUT_DIR can be written");
    let (mpi, large) = ("-DEVENLY_MPI_CALLS", "-DEVENLY_MPI_LARGE");
    for (name, source, defines) in [
        ("waiting.so", "waiting.c", &[][..]),
        ("waiting-mpi.so", "waiting.c", &[mpi]),
        ("waiting-mpi-large.so", "waiting.c", &[mpi, large]),
        ("handover.so", "handover.c", &[]),
    ] {
        let mut compile = compiler();
        let script = format!("-Wl,--version-script={}", sources.join("waiting.map").display());
        compile.args(FLAGS).args(defines).arg(script).arg("-o").arg(out.join(name));
        compile.arg(sources.join(source));
        let status = compile.status().expect("the C compiler cannot be run");
        assert!(status.success(), "the C compiler could not build probe/c/{source}: {status}");
    }
}

/// Always optimised: what the probe costs is paid by the program that is watched.
fn compiler() -> Command {
    cc::Build::new().opt_level(2).get_compiler().to_command()
}

/// A module for a header, in it one for each structure: where its fields are and how long, and how long it is.
fn layout(sources: &Path, header: &str, out: &Path) -> String {
    let path = sources.join(header).with_extension("h");
    let text = fs::read_to_string(path).expect("the headers can be read");
    let text = without_comments(&text);
    // What is in the quotes goes into the assembly as it is, with the numbers: so the compiler may be one for
    // another machine.
    let mut asked =
        format!("#include <stddef.h>\n#include \"{header}.h\"\nvoid layout(void)\n{{\n");
    let mut ask = |what: &str, at: String, bytes: String| {
        asked += &format!("__asm__(\"\\n->{what} %c0 %c1\" :: \"i\"({at}), \"i\"({bytes}));\n");
    };
    for (structure, fields) in structures(&text) {
        ask(structure, "0".into(), format!("sizeof(struct {structure})"));
        for field in fields {
            let at = format!("offsetof(struct {structure}, {field})");
            ask(field, at, format!("sizeof(((struct {structure} *)0)->{field})"));
        }
    }
    asked += "}\n";
    let source = out.join(header).with_extension("c");
    fs::write(&source, asked).expect("OUT_DIR can be written");
    let mut compile = compiler();
    compile.args(["-std=gnu11", "-S", "-o", "-", "-I"]).args([sources, &source]);
    let output = compile.output().expect("the C compiler cannot be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let assembled = String::from_utf8(output.stdout).expect("assembly is text");

    let mut module = format!("/// Of `probe/c/{header}.h`.\npub mod {header} {{\n");
    let mut within = "";
    for answer in assembled.lines().filter_map(|line| line.strip_prefix("->")) {
        let [what, at, bytes] = answer.split(' ').collect::<Vec<_>>()[..] else {
            panic!("the compiler says {answer}");
        };
        let _ = if let Some(structure) = what.strip_prefix("evenly_") {
            // The header of the file is called as the file.
            let name = if structure == header { "header" } else { structure };
            let module_begins = format!("/// Of `struct {what}`.\npub mod {name} {{\n");
            let whole = format!("/// How long it is.\npub const SIZEOF: usize = {bytes};\n");
            write!(module, "{within}{module_begins}{whole}")
        } else {
            let name = what.to_uppercase();
            let place = format!("/// Where `{what}` is.\npub const {name}: usize = {at};\n");
            let length =
                format!("/// How long it is.\npub const SIZEOF_{name}: usize = {bytes};\n");
            write!(module, "{place}{length}")
        };
        within = "}\n";
    }
    module + "}\n}\n"
}

fn without_comments(text: &str) -> String {
    let mut pieces = text.split("/*");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.filter_map(|piece| piece.split_once("*/")).fold(first, |text, (_, rest)| text + rest)
}

/// The structures of a header, and of each the fields.
fn structures(header: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    header.split("\nstruct ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(" {")?;
        let (body, _) = rest.split_once("\n};")?;
        let declarators = body.split([';', ',']).map(|d| d.split('[').next().unwrap_or(d));
        let fields =
            declarators.filter_map(|d| Some(d.split_whitespace().last()?.trim_start_matches('*')));
        Some((name, fields.collect()))
    })
}
