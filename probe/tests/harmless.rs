//! What the probes must never do to a program: end it, make it do something else, or let another program do so
//! through what they share. Each program is run with the probes and without, and both must be the same to the user.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[macro_use]
mod common;

use common::{as_root, built, calls_of, has, mpis};
use evenly_model::Nanos;
use evenly_probe::build::{Compiler, PROBE, build};
use evenly_probe::load::{Calls, keep};
use evenly_probe::messages;
use evenly_probe::mpi::Used;
use evenly_probe::waiting::{self, Mapping};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

each_mpi! {
    an_mpi_within_another_runs_as_it_does,
    a_program_with_two_mpis_runs_as_it_does,
    errors_that_a_program_handles_are_its_own,
    what_is_not_sealed_is_not_mapped,
}

/// Where libraries are kept.
fn kept() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The library that counts messages, for this MPI.
fn counting(mpi: &str) -> PathBuf {
    let command = [OsString::from(format!("mpirun.{mpi}"))];
    let compiler = Compiler::of(&Used::of(&command).unwrap(), None).unwrap();
    build(&PROBE, &compiler, kept()).unwrap().file
}

fn waiting_for(calls: Calls) -> PathBuf {
    keep(calls, kept()).unwrap()
}

/// The functions by which a library could end a program, signal it, start something or write to its files.
const FORBIDDEN: &str = "_Exit _exit __assert __assert_fail __assert_perror_fail __chk_fail __fortify_fail \
    __fprintf_chk __printf_chk __vfprintf_chk abort alarm err errx error execl execle execlp execv execve execvp \
    exit fork fprintf fputs fputc fwrite kill killpg longjmp perror popen posix_spawn printf pthread_cancel \
    pthread_create pthread_exit pthread_kill pthread_sigmask putc putchar puts quick_exit raise setitimer sigaction \
    siglongjmp signal sigprocmask sigqueue stderr stdout syslog system tgkill timer_create verr verrx vfprintf \
    vprintf warn warnx";

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn no_probe_knows_how_to_end_a_program() {
    let forbidden: BTreeSet<&str> = FORBIDDEN.split_whitespace().collect();
    let mut libraries = vec![built("other", "gcc", &["-shared", "-fPIC"])];
    libraries.extend([Calls::None, Calls::Mpi, Calls::Large].map(waiting_for));
    libraries.extend(mpis().map(counting));
    for (i, library) in libraries.iter().enumerate() {
        let output =
            Command::new("nm").args(["-D", "--undefined-only"]).arg(library).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        // Such as `U open@GLIBC_2.2.5`.
        let names: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last()?.split('@').next())
            .collect();
        assert!(names.contains("dlsym"), "{}: {names:?}", library.display());
        let found: Vec<_> = names.intersection(&forbidden).collect();
        // The first is none of ours, and prints: this test can fail.
        assert_eq!(found.is_empty(), i > 0, "{}: {found:?}", library.display());
    }
}

/// What a user sees of a program: its status and what it says, line by line, as ranks take turns.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: Option<i32>,
    said: Vec<String>,
    complained: Vec<String>,
}

/// Runs a command with these libraries loaded.
fn run(command: &[&OsStr], libraries: &[PathBuf], variables: &[(OsString, OsString)]) -> Seen {
    let mut c = Command::new("timeout");
    as_root(&mut c).args(["-k", "5", "120"]).args(command);
    if !libraries.is_empty() {
        let names: Vec<&str> = libraries.iter().map(|l| l.to_str().unwrap()).collect();
        c.env("LD_PRELOAD", names.join(":"));
    }
    c.envs(variables.iter().cloned()).stdin(Stdio::piped());
    let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // All steps of it at once. One that ends before has read enough.
    let _ = child.stdin.take().unwrap().write_all(&[b'x'; 64]);
    let output = child.wait_with_output().unwrap();
    let lines = |bytes: &[u8]| {
        let mut all: Vec<String> =
            String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    Seen {
        status: output.status.code(),
        said: lines(&output.stdout),
        complained: lines(&output.stderr),
    }
}

/// What the probes share with evenly in a run.
struct Shared {
    waiting: Mapping,
    messages: messages::Mapping,
    profiles: tempfile::TempDir,
}

impl Shared {
    fn new() -> Self {
        Self {
            waiting: Mapping::new().unwrap(),
            messages: messages::Mapping::new().unwrap(),
            profiles: tempfile::tempdir().unwrap(),
        }
    }

    fn variables(&self) -> [(OsString, OsString); 3] {
        let profiles = ("EVENLY_PROFILE_DIR".into(), self.profiles.path().into());
        [self.waiting.variable(), self.messages.variable(), profiles]
    }

    /// Runs a command with these probes, and finds no difference to what it does without.
    fn same(&self, command: &[&OsStr], probes: &[PathBuf]) {
        let alone = run(command, &[], &[]);
        assert_eq!((alone.status, &alone.complained), (Some(0), &vec![]), "{alone:?}");
        let seen = run(command, probes, &self.variables());
        assert_eq!(seen, alone, "{command:?} with {probes:?}");
    }

    /// What ranks have left beside each other: profiles, or that they use another MPI.
    fn written(&self) -> Vec<String> {
        let entries = fs::read_dir(self.profiles.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn ranks(&self) -> usize {
        let mut ranks = Vec::new();
        self.messages.reader().unwrap().read(&|_| true, &mut ranks).unwrap();
        ranks.len()
    }

    fn attached(&self) -> u32 {
        let mut reader = self.waiting.reader().unwrap();
        reader.read(Nanos(0), &mut Vec::new()).unwrap();
        reader.counts().attached
    }
}

/// The probes that may be loaded where this MPI is thought to be used: the one, the other, and both as evenly does.
fn probes_of(mpi: &str) -> [Vec<PathBuf>; 3] {
    let (waiting, counting) = (waiting_for(calls_of(mpi)), counting(mpi));
    [vec![waiting.clone()], vec![counting.clone()], vec![waiting, counting]]
}

/// An MPI within another: a launcher starts a program of another MPI, or the launcher of another.
fn an_mpi_within_another_runs_as_it_does(outer: &str) {
    let Some(inner) = mpis().find(|mpi| *mpi != outer) else { return };
    let program = built("self", &format!("mpicc.{inner}"), &[]);
    let launchers = [outer, inner].map(|mpi| format!("mpirun.{mpi}"));
    let words: [Vec<&str>; 2] =
        [vec![&launchers[0], "-n", "2"], vec![&launchers[0], "-n", "1", &launchers[1], "-n", "2"]];
    for words in words {
        let mut command: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        command.push(program.as_os_str());
        for probes in probes_of(outer) {
            let shared = Shared::new();
            shared.same(&command, &probes);
            // It was there, has seen that it is not for this MPI, and has counted nothing.
            let counts = probes.contains(&counting(outer));
            assert_eq!(shared.written(), ["other-mpi"][..usize::from(counts)], "{probes:?}");
            assert_eq!(shared.ranks(), 0, "{probes:?}");
        }
    }
}

/// Two MPIs in one process, each for a module that was loaded for itself only.
fn a_program_with_two_mpis_runs_as_it_does(first: &str) {
    let Some(second) = mpis().find(|mpi| *mpi != first) else { return };
    let program = built("two", "gcc", &[]);
    let module = |mpi| built("self", &format!("mpicc.{mpi}"), &["-DMODULE", "-shared", "-fPIC"]);
    let modules = [module(first), module(second)];
    let command = [program.as_os_str(), modules[0].as_os_str(), modules[1].as_os_str()];
    for mpi in [first, second] {
        for probes in probes_of(mpi) {
            let shared = Shared::new();
            shared.same(&command, &probes);
            // From then on nothing is counted; what was before is not all of it.
            let counts = probes.contains(&counting(mpi));
            assert_eq!(shared.written(), ["other-mpi"][..usize::from(counts)], "{probes:?}");
        }
    }
}

/// What MPI refuses it is not asked about again: that would be an error of another communicator, which ends the
/// program.
fn errors_that_a_program_handles_are_its_own(mpi: &str) {
    let program = built("self", &format!("mpicc.{mpi}"), &[]);
    let launcher = format!("mpirun.{mpi}");
    let mut command: Vec<&OsStr> = [&launcher, "-n", "2"].map(OsStr::new).to_vec();
    command.push(program.as_os_str());
    let mut fortran = command.clone();
    let of_fortran = built("refused.F90", &format!("mpif90.{mpi}"), &[]);
    fortran[3] = of_fortran.as_os_str();
    for command in [command, fortran] {
        for probes in probes_of(mpi) {
            let shared = Shared::new();
            shared.same(&command, &probes);
            let counts = probes.contains(&counting(mpi));
            assert_eq!(shared.ranks(), if counts { 2 } else { 0 }, "{probes:?}");
        }
    }
}

/// A process that is given the name of what is shared cannot make it shorter, which would end those that have mapped it.
#[test]
fn nobody_cuts_off_what_others_have_mapped() {
    let shared = Shared::new();
    let program = built("steps", "gcc", &[]);
    let mut c = Command::new(program);
    c.arg("barriers").env("LD_PRELOAD", waiting_for(Calls::None)).envs(shared.variables());
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), shared.attached()), ("waiting\n", 1));
    for (_, file) in &shared.variables()[..2] {
        for script in ["truncate -s 0 \"$0\"", ": >\"$0\"", "truncate -s 1G \"$0\""] {
            let output = Command::new("sh").args(["-c", script]).arg(file).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{script}");
            assert!(words.contains("Operation not permitted"), "{script}: {words}");
        }
    }
    child.stdin.take().unwrap().write_all(b"xx").unwrap();
    said.read_line(&mut line).unwrap();
    assert!(child.wait().unwrap().success() && line == "waiting\nover\n", "{line}");
}

/// A file of the same name and content whose length can change is not mapped.
fn what_is_not_sealed_is_not_mapped(mpi: &str) {
    let program = built("self", &format!("mpicc.{mpi}"), &[]);
    for probes in probes_of(mpi) {
        let shared = Shared::new();
        let copies = [(&shared.variables()[0], "waiting"), (&shared.variables()[1], "messages")]
            .map(|((name, path), kind)| {
                let original = File::open(path).unwrap();
                let copy = memfd_create(format!("evenly-{kind}"), MemfdFlags::CLOEXEC).unwrap();
                let copy = File::from(copy);
                copy.set_len(original.metadata().unwrap().len()).unwrap();
                let mut header = [0; 4096];
                original.read_exact_at(&mut header, 0).unwrap();
                copy.write_all_at(&header, 0).unwrap();
                (name.clone(), copy, header)
            });
        let variable = |(name, copy, _): &(OsString, File, [u8; 4096])| {
            let path = format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd());
            (name.clone(), OsString::from(path))
        };
        let seen = run(&[program.as_os_str()], &probes, &copies.each_ref().map(variable));
        assert_eq!((seen.status, seen.said.len()), (Some(0), 1), "{seen:?}");
        for (name, copy, before) in copies {
            let mut header = [0; 4096];
            copy.read_exact_at(&mut header, 0).unwrap();
            assert!(header == before, "{name:?} was written to by {probes:?}");
        }
    }
}

/// The same numbers every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Words of all kinds: any, small ones, and those at the bounds of what is shared.
    fn fill(&mut self, bytes: &mut [u8]) {
        const BOUNDS: [u32; 8] = [0, 1, 65_534, 65_535, 65_536, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        for word in bytes.chunks_exact_mut(4) {
            let next = self.next();
            let value = match next >> 62 {
                0 => BOUNDS[(next % 8) as usize],
                1 => (next % 64) as u32,
                _ => next as u32,
            };
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

/// Writes nonsense to what is shared until the test ends it: to all of it, or from there on what programs write, as a
/// process that begins looks at the rest and takes no part where that is wrong.
fn write_nonsense(shared: &Shared, all: bool, stop: &AtomicBool) {
    let mut random = Random(1);
    let files = [(0, 72), (1, 80)].map(|(i, written)| {
        let file = File::options().write(true).open(&shared.variables()[i].1).unwrap();
        (file, if all { 0 } else { written })
    });
    let mut bytes = vec![0; 64 * 1024];
    for round in 0u64.. {
        for (file, from) in &files {
            // The header; lines or entries, the first of which are used first; and tallies.
            for (at, size) in [(*from, 256), (4096, 8192), (4096 + 128 * 16_384, 64 * 1024)] {
                if size <= 8192 || round % 16 == 0 {
                    random.fill(&mut bytes[..size]);
                    file.write_all_at(&bytes[..size], at).unwrap();
                }
            }
        }
        if stop.load(Relaxed) {
            return;
        }
    }
}

/// Reads what is shared meanwhile, as evenly does.
fn read_nonsense(
    waiting: &mut waiting::Reader,
    messages: &mut messages::Reader,
    stop: &AtomicBool,
) {
    while !stop.load(Relaxed) {
        waiting.read(Nanos(1), &mut Vec::new()).unwrap();
        messages.read(&|rank| rank.ranks <= 64, &mut Vec::new()).unwrap();
    }
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn nonsense_in_all_that_is_shared_harms_nobody() {
    nonsense_harms_nobody(true);
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn nonsense_in_what_programs_write_harms_nobody() {
    nonsense_harms_nobody(false);
}

fn nonsense_harms_nobody(all: bool) {
    let mut programs: Vec<(Vec<OsString>, Vec<PathBuf>)> = Vec::new();
    let plain = [waiting_for(Calls::None)];
    for what in ["barriers", "conditions", "cancel", "forks", "execs", "many"] {
        programs.push((vec![built("steps", "gcc", &[]).into(), what.into()], plain.to_vec()));
    }
    for compiler in ["gcc", "clang"].into_iter().filter(|c| has(c)) {
        let program = built("regions", compiler, &["-fopenmp"]);
        for what in ["regions", "nested", "tasks", "taskwait", "taskloop", "before"] {
            programs.push((vec![program.clone().into(), what.into()], plain.to_vec()));
        }
    }
    for mpi in mpis() {
        let program = built("ranks", &format!("mpicc.{mpi}"), &[]);
        let [_, _, probes] = probes_of(mpi);
        for (n, what) in [("2", "plain"), ("3", "peers")] {
            let mut command = [&format!("mpirun.{mpi}"), "-n", n].map(OsString::from).to_vec();
            command.extend([program.clone().into(), what.into()]);
            programs.push((command, probes.clone()));
        }
    }
    let (shared, stop) = (Shared::new(), AtomicBool::new(false));
    // Before the header is nonsense, too.
    let mut waiting = shared.waiting.reader().unwrap();
    let mut messages = shared.messages.reader().unwrap();
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| write_nonsense(&shared, all, &stop)),
            scope.spawn(|| read_nonsense(&mut waiting, &mut messages, &stop)),
        ];
        let each = || {
            for (command, probes) in &programs {
                let command: Vec<&OsStr> = command.iter().map(OsString::as_os_str).collect();
                shared.same(&command, probes);
            }
        };
        // The others have to end where this finds a fault, too.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(each));
        stop.store(true, Relaxed);
        for other in others {
            other.join().unwrap();
        }
        if let Err(fault) = found {
            std::panic::resume_unwind(fault);
        }
    });
}
