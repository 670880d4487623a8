//! The programs: what each needs, its input, its command, and how its time and its answer are read.
//!
//! All have the same work for any number of threads. Inputs are texts of ours; what is made of them once, by a program's own
//! tools, is made before all runs.

use crate::commands::PRODUCTS;
use crate::measure::result_in;
use crate::mpi::ENVIRONMENT;
use anyhow::Context;
use evenly_model::stats::Random;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The generated C program: so many files, with so many functions each.
const PARTS: u32 = 24;
const FUNCTIONS: u32 = 40;
/// How often HPL solves its system, and of how many equations.
const SYSTEMS: (usize, u32) = (20, 1_500);
/// RAxML's alignment: so many sequences, of so many bases.
const ALIGNED: (usize, usize) = (4, 60_000);
/// OpenBLAS shall not start threads in each rank.
const ONE_THREAD: (&str, &str) = ("OPENBLAS_NUM_THREADS", "1");

/// What a run is made of.
pub(super) struct Words {
    pub(super) argv: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
}

/// Where the programs are that are no commands of Debian's.
pub(super) struct Places {
    pub(super) python: &'static str,
    pub(super) loops: PathBuf,
    /// Where NPB's are, which Debian does not have.
    pub(super) npb: PathBuf,
}

/// What a run has left.
pub(super) struct Left<'a> {
    pub(super) stdout: &'a str,
    /// Where it ran.
    pub(super) folder: &'a Path,
    pub(super) wall_s: f64,
}

/// What it says: its time in seconds, and what is the same in all runs with so many threads.
pub(super) type Answer = (f64, String);

/// What must be there for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// These commands, and the packages of Debian that have them.
    Commands(&'static [(&'static str, &'static str)]),
    /// A Python with NumPy.
    NumPy,
    /// This workload.
    Workload(&'static str),
    /// This program of NPB.
    Npb(&'static str),
}

/// A program with an input.
#[derive(Clone, Copy)]
pub(super) struct Real {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) needs: Needs,
    /// Files of its input, for so many threads.
    pub(super) files: fn(u32) -> Vec<(String, String)>,
    /// What makes the rest of its input of these.
    pub(super) prepare: &'static [&'static str],
    pub(super) words: fn(&Places, u32) -> Words,
    pub(super) answer: fn(&Left<'_>) -> anyhow::Result<Answer>,
}

/// A program of the NAS Parallel Benchmarks, with OpenMP and of this class.
macro_rules! npb {
    ($name:literal, $class:literal) => {
        Real {
            name: concat!("npb-", $name),
            what: concat!("NPB ", $name, ", class ", $class, ", OpenMP"),
            needs: Needs::Npb(concat!($name, ".", $class, ".x")),
            files: |_| Vec::new(),
            prepare: &[],
            words: |places, n| Words {
                argv: vec![places.npb.join(concat!($name, ".", $class, ".x")).into()],
                env: variables(&[("OMP_NUM_THREADS", &n.to_string())]),
            },
            answer: of_npb,
        }
    };
}

/// Those of NPB that run for 1 to 25 s on two CPUs. Threads of `lu` wait for each other by flags in memory.
pub(super) fn of_npb_all() -> Vec<Real> {
    vec![
        npb!("bt", "A"),
        npb!("cg", "B"),
        npb!("ft", "A"),
        npb!("lu", "W"),
        npb!("mg", "B"),
        npb!("sp", "A"),
        npb!("ua", "W"),
    ]
}

/// Those that Debian has.
pub(super) fn programs() -> Vec<Real> {
    let numpy = |name, what, words, files| Real {
        name,
        what,
        needs: Needs::NumPy,
        files,
        prepare: &[],
        words,
        answer: printed,
    };
    vec![
        Real {
            name: "lammps",
            what: "LAMMPS, Open MPI",
            needs: Needs::Commands(&[("lmp", "lammps"), ("mpirun.openmpi", "openmpi-bin")]),
            files: |_| vec![file("in.melt", include_str!("inputs/in.melt"))],
            prepare: &[],
            words: |_, n| ranks(n, &["lmp", "-in", "in.melt", "-log", "none"]),
            answer: of_lammps,
        },
        numpy("numpy-products", "NumPy, products of matrices", products, |_| Vec::new()),
        numpy("numpy-solve", "NumPy, systems of equations", solutions, |_| {
            vec![file("solve.py", include_str!("inputs/solve.py"))]
        }),
        gromacs("gromacs", "GROMACS, thread-MPI", |_, n| mdrun(n, 1, "off")),
        gromacs("gromacs-pinned", "GROMACS, thread-MPI, pinned by itself", |_, n| {
            mdrun(n, 1, "on")
        }),
        gromacs("gromacs-openmp", "GROMACS, OpenMP", |_, n| mdrun(1, n, "off")),
        Real {
            name: "hpcc",
            what: "HPCC with HPL, Open MPI",
            needs: Needs::Commands(&[("hpcc", "hpcc"), ("mpirun.openmpi", "openmpi-bin")]),
            files: |n| vec![file("hpccinf.txt", &hpcc_input(n))],
            prepare: &[],
            words: |_, n| ranks(n, &["hpcc"]),
            answer: of_hpcc,
        },
        Real {
            name: "raxml",
            what: "RAxML, threads",
            needs: Needs::Commands(&[("raxmlHPC-PTHREADS", "raxml")]),
            files: |_| vec![file("aligned.phy", &alignment())],
            prepare: &[],
            words: |_, n| {
                plain(&format!(
                    "raxmlHPC-PTHREADS -T {n} -H -m GTRGAMMA -s aligned.phy -n tree -p 1"
                ))
            },
            answer: of_raxml,
        },
        Real {
            name: "tbb",
            what: "oneTBB, Jacobi",
            needs: Needs::Workload("loops-tbb"),
            files: |_| Vec::new(),
            prepare: &[],
            words: |places, n| {
                let words = ["jacobi", &n.to_string(), "omp", "2048", "3500"].map(OsString::from);
                let argv = std::iter::once(places.loops.clone().into()).chain(words).collect();
                Words { argv, env: vec![("OMP_PROC_BIND".into(), "false".into())] }
            },
            answer: printed,
        },
        Real {
            name: "make",
            what: "make, cc",
            needs: Needs::Commands(&[("make", "make"), ("cc", "gcc")]),
            files: |_| generated(),
            prepare: &[],
            words: |_, n| Words {
                argv: ["make", "-s", &format!("-j{n}"), "check"].map(OsString::from).into(),
                env: Vec::new(),
            },
            answer: |left| Ok((left.wall_s, left.stdout.trim().to_owned())),
        },
    ]
}

fn file(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

fn variables(of: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    of.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// A command of these words.
fn plain(line: &str) -> Words {
    Words { argv: line.split(' ').map(OsString::from).collect(), env: Vec::new() }
}

/// A command in so many ranks of Open MPI.
fn ranks(n: u32, command: &[&str]) -> Words {
    let n = n.to_string();
    let argv = ["mpirun.openmpi", "-n", &n].into_iter().chain(command.iter().copied());
    let mut env = variables(&ENVIRONMENT);
    env.extend(variables(&[ONE_THREAD, ("OMP_NUM_THREADS", "1")]));
    Words { argv: argv.map(OsString::from).collect(), env }
}

/// Python with OpenBLAS of so many threads.
fn python(places: &Places, n: u32, words: [&str; 3]) -> Words {
    let argv = std::iter::once(places.python).chain(words).filter(|word| !word.is_empty());
    Words {
        argv: argv.map(OsString::from).collect(),
        env: variables(&[("OPENBLAS_NUM_THREADS", &n.to_string())]),
    }
}

fn products(places: &Places, n: u32) -> Words {
    python(places, n, ["-c", PRODUCTS, "5000"])
}

fn solutions(places: &Places, n: u32) -> Words {
    python(places, n, ["solve.py", "250", ""])
}

fn gromacs(name: &'static str, what: &'static str, words: fn(&Places, u32) -> Words) -> Real {
    Real {
        name,
        what,
        needs: Needs::Commands(&[("gmx", "gromacs")]),
        files: |_| {
            vec![
                file("water.mdp", include_str!("inputs/water.mdp")),
                file("water.top", include_str!("inputs/water.top")),
            ]
        },
        prepare: &[
            "gmx -quiet solvate -cs spc216 -box 3.72412 3.72412 3.72412 -p water.top -o water.gro",
            "gmx -quiet grompp -f water.mdp -c water.gro -p water.top -o water.tpr",
        ],
        words,
        answer: of_gromacs,
    }
}

/// GROMACS in so many ranks of its own MPI, of so many threads.
fn mdrun(ranks: u32, threads: u32, pin: &str) -> Words {
    plain(&format!(
        "gmx -quiet mdrun -s water.tpr -ntmpi {ranks} -ntomp {threads} -pin {pin} -noconfout -cpt -1"
    ))
}

fn hpcc_input(ranks: u32) -> String {
    let (count, size) = SYSTEMS;
    let sizes = vec![size.to_string(); count].join(" ");
    include_str!("inputs/hpccinf.txt")
        .replace("COUNT", &count.to_string())
        .replace("SIZES", &sizes)
        .replace("RANKS", &ranks.to_string())
}

/// Sequences of which each two have come of one, with a quarter of its bases changed.
fn alignment() -> String {
    let (count, bases) = ALIGNED;
    let mut random = Random::new(1);
    let mut base = |of: &u8| if random.below(3) == 0 { b"ACGT"[random.below(4)] } else { *of };
    let mut sequences = vec![vec![b'A'; bases]];
    while sequences.len() < count {
        let of: Vec<u8> = sequences.remove(0);
        sequences.extend([(); 2].map(|()| of.iter().map(&mut base).collect()));
    }
    let mut text = format!("{count} {bases}\n");
    for (i, sequence) in sequences.iter().enumerate() {
        let _ = writeln!(text, "t{i} {}", String::from_utf8_lossy(sequence));
    }
    text
}

/// A program in C of many files that take a while to compile, and its makefile.
fn generated() -> Vec<(String, String)> {
    let objects: Vec<String> = (0..PARTS).map(|part| format!("part{part}.o")).collect();
    let makefile = include_str!("inputs/makefile")
        .replace("OBJECTS", &format!("main.o {}", objects.join(" ")));
    let mut main = String::from("#include <stdio.h>\n");
    let mut sum = String::from("0u");
    for part in 0..PARTS {
        let _ = writeln!(main, "unsigned part{part}(unsigned);");
        let _ = write!(sum, " + part{part}({part}u)");
    }
    let _ = writeln!(main, "int main(void) {{ printf(\"%u\\n\", {sum}); return 0; }}");
    let mut files = vec![file("Makefile", &makefile), file("main.c", &main)];
    files.extend((0..PARTS).map(|part| (format!("part{part}.c"), generated_part(part))));
    files
}

fn generated_part(part: u32) -> String {
    let mut text = String::new();
    let mut calls = String::new();
    for f in 0..FUNCTIONS {
        let (odd, shift) = (2 * (part * FUNCTIONS + f) + 3, f % 13 + 1);
        let _ = write!(
            text,
            "unsigned p{part}f{f}(unsigned a, unsigned b) {{
    unsigned t[32], s = a;
    for (unsigned i = 0; i < 32; i++)
        t[i] = (a * (i + {odd}u)) ^ (b >> (i % {shift}u + 1u));
    for (unsigned i = 0; i < 32; i++)
        switch (t[i] % 7u) {{
        case 0: s += t[(i + 5) % 32] * {odd}u; break;
        case 1: s ^= t[(i + 11) % 32] >> {shift}; break;
        case 2: for (unsigned j = 0; j < 8; j++) s = s * 31u + t[(i + j) % 32]; break;
        case 3: s -= t[i] / {odd}u; break;
        default: s = s << 3 | s >> 29; break;
        }}
    return s;
}}
"
        );
        let _ = writeln!(calls, "    x = p{part}f{f}(x, {f}u);");
    }
    let _ = write!(text, "unsigned part{part}(unsigned x) {{\n{calls}    return x;\n}}\n");
    text
}

/// The number that follows these words in the first line that begins with them and has one.
fn number_after(words: &str, text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(words)?.split(' ').next()?.parse().ok())
}

/// Of programs that print both as the workloads do.
fn printed(left: &Left<'_>) -> anyhow::Result<Answer> {
    result_in(left.stdout)
}

/// What is printed last: the time, and that the answer was verified.
fn of_npb(left: &Left<'_>) -> anyhow::Result<Answer> {
    let field = |name: &str| {
        let mut lines = left.stdout.lines().filter(|line| line.trim_start().starts_with(name));
        lines.find_map(|line| Some(line.split_once('=')?.1.trim()))
    };
    let seconds = field("Time in seconds").and_then(|s| s.parse().ok()).context("no time")?;
    let verified = field("Verification").context("it does not say whether its answer is right")?;
    anyhow::ensure!(verified == "SUCCESSFUL", "its answer is wrong: {verified}");
    Ok((seconds, verified.to_owned()))
}

/// The time of its loop; the energies, and all else that it prints of steps.
fn of_lammps(left: &Left<'_>) -> anyhow::Result<Answer> {
    let loop_time = number_after("Loop time of ", left.stdout);
    let steps: Vec<&str> = left
        .stdout
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Step "))
        .take_while(|line| !line.starts_with("Loop time"))
        .collect();
    anyhow::ensure!(steps.len() > 2, "LAMMPS printed no steps");
    Ok((loop_time.context("LAMMPS printed no `Loop time`")?, steps.join("\n")))
}

/// The time in its log; the potential energy at the beginning, to four digits, as sums are made in any order.
fn of_gromacs(left: &Left<'_>) -> anyhow::Result<Answer> {
    let log = fs::read_to_string(left.folder.join("md.log")).context("GROMACS wrote no md.log")?;
    gromacs_log(&log)
}

fn gromacs_log(log: &str) -> anyhow::Result<Answer> {
    anyhow::ensure!(log.contains("Finished mdrun"), "GROMACS did not finish");
    let time = log.lines().find_map(|line| {
        line.trim_start().strip_prefix("Time:")?.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    let energies = log.lines().skip_while(|line| !line.contains("Energies (kJ/mol)"));
    let mut energies = energies.skip_while(|line| !line.contains("Potential"));
    let at = energies.next().and_then(|heads| {
        // Columns of fifteen characters.
        Some(heads.find("Potential")? / 15)
    });
    let potential = at.and_then(|at| {
        let value = energies.next()?.split_whitespace().nth(at)?.parse::<f64>().ok()?;
        Some(format!("{value:.3e}"))
    });
    Ok((
        time.context("GROMACS wrote no time")?,
        potential.context("GROMACS wrote no potential energy")?,
    ))
}

/// The time of all; that every answer has passed, with how many systems.
fn of_hpcc(left: &Left<'_>) -> anyhow::Result<Answer> {
    let text =
        fs::read_to_string(left.folder.join("hpccoutf.txt")).context("HPCC wrote nothing")?;
    let solved = passed_by_hpcc(&text)?;
    Ok((left.wall_s, solved))
}

/// The time of all, and the likelihood of its tree, to three digits behind the point.
fn of_raxml(left: &Left<'_>) -> anyhow::Result<Answer> {
    let number = |before| number_after(before, left.stdout);
    let score = number("Final GAMMA-based Score of best tree ").context("RAxML found no tree")?;
    let seconds = number("Overall execution time: ").context("RAxML printed no time")?;
    Ok((seconds, format!("{score:.3}")))
}

fn passed_by_hpcc(text: &str) -> anyhow::Result<String> {
    let residuals = text.lines().filter(|line| line.starts_with("||Ax-b||"));
    let passed = residuals.filter(|line| line.ends_with("PASSED")).count();
    anyhow::ensure!(
        passed == SYSTEMS.0 && text.contains("Success=1"),
        "HPCC: {passed} of {} systems solved, or another part has failed",
        SYSTEMS.0
    );
    Ok(format!("{passed} passed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_name_an_input_and_a_command() {
        let all: Vec<Real> = programs().into_iter().chain(of_npb_all()).collect();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), all.len());
        let places = Places { python: "python3", loops: "loops-tbb".into(), npb: "npb".into() };
        for program in &all {
            for threads in [2, 3, 4] {
                let words = (program.words)(&places, threads);
                assert!(words.argv.iter().all(|word| !word.is_empty()), "{}", program.name);
                let files = (program.files)(threads);
                assert!(files.iter().all(|(_, text)| text.ends_with('\n')), "{}", program.name);
            }
        }
    }

    #[test]
    fn what_raxml_prints() {
        let stdout = "Final GAMMA-based Score of best tree -295129.523010\n\n\
                      Overall execution time: 80.105996 secs or 0.022252 hours or 0.000927 days\n";
        let of = |stdout| of_raxml(&Left { stdout, folder: Path::new(""), wall_s: 9.0 });
        assert_eq!(of(stdout).unwrap(), (80.105996, "-295129.523".to_owned()));
        assert!(of("Overall execution time: 1.0 secs\n").is_err());
    }

    #[test]
    fn what_programs_of_npb_print() {
        let of = |verified: &str| {
            let stdout = format!(
                " Verification being performed for class W\n Iterations      =                      300\n Time in seconds = \
                 \x20                   2.96\n Verification    =               {verified}\n"
            );
            of_npb(&Left { stdout: &stdout, folder: Path::new(""), wall_s: 9.0 })
        };
        assert_eq!(of("SUCCESSFUL").unwrap(), (2.96, "SUCCESSFUL".to_owned()));
        assert!(of("UNSUCCESSFUL").is_err());
    }

    #[test]
    fn what_lammps_prints() {
        let of = |stdout| of_lammps(&Left { stdout, folder: Path::new("."), wall_s: 9.0 });
        let text = "Step Temp \n 0 1.44\n 100 0.7\nLoop time of 4.25 on 2 procs\nmore\n";
        assert_eq!(of(text).unwrap(), (4.25, "Step Temp \n 0 1.44\n 100 0.7".to_owned()));
        for bad in ["", "Step\n 0\nLoop time of 1 on", "Step \n 0\n 1\n"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_gromacs_writes() {
        let log = "   Energies (kJ/mol)
        LJ (SR)   Coulomb (SR)      Potential    Kinetic En.   Total Energy
    1.60781e+04   -1.22346e+05   -1.06268e+05    1.61980e+04   -9.00697e+04
       Time:        6.930        3.465      200.0
Finished mdrun on rank 0
";
        assert_eq!(gromacs_log(log).unwrap(), (3.465, "-1.063e5".to_owned()));
        assert!(gromacs_log(&log.replace("Finished", "")).is_err());
        assert!(gromacs_log(&log.replace("Potential", "")).is_err());
    }

    #[test]
    fn what_hpcc_writes() {
        let line = "||Ax-b||_oo/(eps)= 0.0043012 ...... PASSED\n";
        let all = line.repeat(SYSTEMS.0) + "Success=1\n";
        assert_eq!(passed_by_hpcc(&all).unwrap(), "20 passed");
        assert!(passed_by_hpcc(&all.replacen("PASSED", "FAILED", 1)).is_err());
        assert!(passed_by_hpcc(&all.replace("=1", "=0")).is_err());
        let input = hpcc_input(3);
        assert!(input.contains("3            Qs") && input.contains("1500 1500"), "{input}");
    }

    #[test]
    fn what_is_compiled_is_the_same_each_time() {
        let files = generated();
        assert_eq!(files.len(), PARTS as usize + 2);
        assert_eq!(files, generated());
        assert!(files[0].1.contains("part23.o\n"), "{}", files[0].1);
    }
}
