//! Barriers that are observed, and barriers that are replaced: programs whose answers depend on every barrier run as they do
//! without the probe.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[macro_use]
mod common;

use common::built;
use evenly_linux::proc::status_number;
use evenly_model::{Nanos, ThreadId, Tid};
use evenly_phase::Openings;
use evenly_probe::layout::waiting::header;
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::{Cooperation, Mapping};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output};

/// Lines of the mapping (waiting.h).
const LINES: u32 = 65_535;

/// What is done with the program's barriers.
const OBSERVED: Cooperation = Cooperation::Never;
const REPLACED: Cooperation = Cooperation::Always;

/// Lets a command run with the probe and this mapping.
fn probed<'a>(command: &'a mut Command, calls: Calls, mapping: &Mapping) -> &'a mut Command {
    let library = keep(calls, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let (name, value) = mapping.variable();
    command.env(name, value).env("LD_PRELOAD", preload(&library, None).unwrap())
}

/// A thread that was started before it had a line.
fn thread(tid: i32) -> ThreadId {
    ThreadId { tid: Tid(tid), start: 0 }
}

/// What a command prints without the probe and with it, its barriers observed or replaced and so many lines left in the
/// mapping: the same.
fn same_output(
    command: &[&OsStr],
    variables: &[(&str, &str)],
    calls: Calls,
    ways: &[Cooperation],
    lines: u32,
) {
    let run = |way: Option<Cooperation>| {
        let mapping = Mapping::new().unwrap();
        let mut run = Command::new("timeout");
        common::as_root(&mut run).args(["120"]).args(command).envs(variables.iter().copied());
        if let Some(way) = way {
            mapping.set_cooperation(way).unwrap();
            let file = File::options().write(true).open(mapping.path()).unwrap();
            file.write_all_at(&(LINES - lines).to_ne_bytes(), header::HIGH as u64).unwrap();
            probed(&mut run, calls, &mapping);
        }
        let output = run.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let plain = run(None);
    assert!(plain.0 == Some(0) && !plain.1.is_empty(), "{plain:?}");
    for way in ways {
        assert_eq!(run(Some(*way)), plain, "{way:?}");
    }
}

/// What `barriers` prints with so many threads.
fn same(compiler: &str, options: &[&str], threads: &str, variables: &[(&str, &str)]) {
    let program = built("barriers", compiler, options);
    let command = [program.as_os_str(), threads.as_ref()];
    same_output(&command, variables, Calls::None, &[OBSERVED, REPLACED], LINES);
}

/// The same where only so many lines are left in the mapping.
fn same_with_lines(compiler: &str, options: &[&str], threads: &str, lines: u32) {
    let program = built("barriers", compiler, options);
    let command = [program.as_os_str(), threads.as_ref()];
    same_output(&command, &[], Calls::None, &[OBSERVED, REPLACED], lines);
}

/// Loops that are cancelled, targets, old regions, barriers that are made at once.
mod unusual {
    use super::*;

    fn same(compiler: &str) {
        let program = built("unusual", compiler, &["-fopenmp"]);
        let variables = [("OMP_CANCELLATION", "true")];
        same_output(&[program.as_os_str()], &variables, Calls::None, &[OBSERVED, REPLACED], LINES);
    }

    #[test]
    fn libgomp() {
        same("gcc");
    }

    #[test]
    fn libomp() {
        if common::has("clang") {
            same("clang");
        }
    }
}

#[test]
fn posix_barriers() {
    same("gcc", &[], "5", &[]);
}

/// Would catch: a thread that takes no part in a barrier, for want of a line, while the others wait for it.
#[test]
fn posix_barriers_of_threads_without_a_line() {
    same_with_lines("gcc", &[], "5", 2);
}

mod libgomp {
    use super::*;

    /// Of twelve regions each is observed once. The first stays plain in all six instances; each of the others does in its
    /// third what is not modelled, and is left to the runtime from then on.
    #[test]
    fn only_regions_that_were_plain_are_replaced() {
        let program = built("plain", "gcc", &["-fopenmp"]);
        for (way, replaced) in [(REPLACED, 5 + 11 * 2), (Cooperation::WhileMoved, 0), (OBSERVED, 0)]
        {
            let mapping = Mapping::new().unwrap();
            mapping.set_cooperation(way).unwrap();
            let mut run = Command::new("timeout");
            run.arg("120").arg(&program).arg("3");
            let output = probed(&mut run, Calls::None, &mapping).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && said.lines().count() == 12, "{way:?}: {said}");
            let mut reader = mapping.reader().unwrap();
            reader.read(Nanos::ZERO, &mut Vec::new()).unwrap();
            assert_eq!(reader.replaced(), replaced, "{way:?}");
        }
    }

    #[test]
    fn regions_that_are_plain_at_first() {
        for threads in ["2", "3", "5"] {
            let program = built("plain", "gcc", &["-fopenmp"]);
            let command = [program.as_os_str(), threads.as_ref()];
            let ways = [OBSERVED, Cooperation::WhileMoved, REPLACED];
            same_output(&command, &[], Calls::None, &ways, LINES);
        }
    }

    /// The output of `program`, and of how many regions the barriers were replaced.
    fn replaced(program: &str, argument: &[&str], variable: (&str, &str)) -> (Output, u64) {
        let program = built(program, "gcc", &["-fopenmp"]);
        let mapping = Mapping::new().unwrap();
        mapping.set_cooperation(REPLACED).unwrap();
        let mut run = Command::new("timeout");
        run.arg("60").arg(&program).args(argument).env(variable.0, variable.1);
        let output = probed(&mut run, Calls::None, &mapping).output().unwrap();
        let mut reader = mapping.reader().unwrap();
        reader.read(Nanos::ZERO, &mut Vec::new()).unwrap();
        (output, reader.replaced())
    }

    fn printed(output: &Output) -> Vec<&str> {
        std::str::from_utf8(&output.stdout).unwrap().lines().collect()
    }

    /// libgomp is told not to spin itself.
    const PATIENT: (&str, &str) = ("GOMP_SPINCOUNT", "0");
    const SLEEP: [&str; 3] =
        ["members sleep", "members of a larger team sleep", "members after tasks sleep"];

    /// Would catch: spinning without end for members that have not come yet, new ones of a larger team, and in the first
    /// region after one with tasks.
    #[test]
    fn who_waits_for_long_sleeps() {
        let (output, replaced) = replaced("waits", &[], PATIENT);
        assert_eq!(printed(&output), SLEEP, "{output:?}");
        assert!(replaced > 0, "no barrier was replaced");
    }

    /// Would catch: a real-time thread that spins, and lets no other thread have its CPU. It would be ended by its limit.
    #[test]
    fn barriers_of_real_time_threads_are_not_replaced() {
        // From the first round on, and where a region has been replaced before.
        for (round, expected) in [("0", false), ("2", true), ("3", true)] {
            let (output, replaced) = replaced("waits", &["real-time", round], PATIENT);
            if output.status.code() == Some(77) {
                return evenly_testing::skip("realtime", "real-time threads are not permitted");
            }
            assert_eq!(printed(&output), ["real-time threads sleep"], "{round}: {output:?}");
            assert_eq!(replaced > 0, expected, "{round}: {replaced}");
        }
    }

    #[test]
    fn barriers_of_a_forked_process_are_not_replaced() {
        let (output, replaced) = replaced("waits", &["forked"], PATIENT);
        assert_eq!(printed(&output), SLEEP, "{output:?}");
        assert_eq!(replaced, 0);
    }

    /// Would catch: a thread that is still in a run of tasks which are not seen, and so does not leave the barriers of a later region
    /// to the runtime, which executes tasks there.
    #[test]
    fn tasks_are_done_at_the_barrier_after_short_ones() {
        let (output, replaced) = replaced("regions", &["before"], PATIENT);
        assert_eq!(printed(&output), ["sum 200000, 1 before the barrier"], "{output:?}");
        assert!(replaced > 0, "no barrier was replaced");
    }

    #[test]
    fn barriers_that_can_be_cancelled_are_not_replaced() {
        let (output, replaced) = replaced("plain", &["3"], ("OMP_CANCELLATION", "true"));
        assert_eq!(printed(&output).len(), 12, "{output:?}");
        assert_eq!(replaced, 0);
    }

    #[test]
    fn one_thread() {
        same("gcc", &["-fopenmp"], "1", &[]);
    }

    #[test]
    fn two_threads() {
        same("gcc", &["-fopenmp"], "2", &[]);
    }

    #[test]
    fn more_threads_than_cpus() {
        same("gcc", &["-fopenmp"], "7", &[]);
    }

    #[test]
    fn threads_without_a_line() {
        same_with_lines("gcc", &["-fopenmp"], "4", 3);
    }

    #[test]
    fn with_cancellation() {
        same("gcc", &["-fopenmp"], "3", &[("OMP_CANCELLATION", "true")]);
    }

    #[test]
    fn that_spins() {
        same("gcc", &["-fopenmp"], "2", &[("OMP_WAIT_POLICY", "active")]);
    }
}

mod libomp {
    use super::*;
    use common::has;

    #[test]
    fn two_threads() {
        if has("clang") {
            same("clang", &["-fopenmp"], "2", &[]);
        }
    }

    #[test]
    fn more_threads_than_cpus() {
        if has("clang") {
            same("clang", &["-fopenmp"], "5", &[]);
        }
    }

    #[test]
    fn threads_without_a_line() {
        if has("clang") {
            same_with_lines("clang", &["-fopenmp"], "4", 3);
        }
    }
}

/// Would catch: a function that is looked up as the probe itself sees it, which is the probe's own.
mod tail_calls {
    use super::*;

    const OPTIONS: &[&str] = &["-fopenmp", "-O2"];

    pub(super) fn same(command: &[&OsStr], calls: Calls) {
        same_output(command, &[], calls, &[OBSERVED, REPLACED], LINES);
    }

    #[test]
    fn of_libgomp() {
        same(&[built("tails", "gcc", OPTIONS).as_os_str()], Calls::None);
    }

    #[test]
    fn of_libomp() {
        if common::has("clang") {
            same(&[built("tails", "clang", OPTIONS).as_os_str()], Calls::None);
        }
    }

    /// With a libgomp that only the module sees.
    #[test]
    fn of_a_module() {
        let options = [OPTIONS, &["-DMODULE", "-shared", "-fPIC"]].concat();
        let module = built("tails", "gcc", &options);
        let program = built("module", "gcc", &[]);
        same(&[program.as_os_str(), module.as_os_str(), "run".as_ref()], Calls::None);
    }

    /// Two modules, each with a libgomp of its own.
    #[test]
    fn of_a_module_beside_another() {
        beside("gcc", "libgomp.so.1", b"libgomp.so.9\0");
    }

    /// The other has libomp, which reports what its threads do.
    #[test]
    fn of_a_module_beside_one_with_libomp() {
        if common::has("clang") {
            beside("clang", "libomp.so.5", b"libomp.so.5\0\0");
        }
    }

    /// A module with libgomp, and a copy with this runtime, which the compiler finds, under this name.
    fn beside(compiler: &str, runtime: &str, name: &[u8; 13]) {
        let options = [OPTIONS, &["-DMODULE", "-shared", "-fPIC"]].concat();
        let module = built("tails", "gcc", &options);
        let program = built("module", "gcc", &[]);
        let dir = tempfile::tempdir().unwrap();
        let asked = Command::new(compiler).arg(format!("-print-file-name={runtime}")).output();
        let library = String::from_utf8(asked.unwrap().stdout).unwrap();
        let file = std::str::from_utf8(name).unwrap().trim_end_matches('\0');
        let bytes = std::fs::read(library.trim()).unwrap();
        std::fs::write(dir.path().join(file), renamed(bytes, name)).unwrap();
        let other = dir.path().join("other.so");
        std::fs::write(&other, renamed(std::fs::read(&module).unwrap(), name)).unwrap();
        for modules in [[&module, &other], [&other, &module]] {
            let [first, second] = modules.map(|m| m.as_os_str());
            let command = [program.as_os_str(), first, "run".as_ref(), second];
            let variables = [("LD_LIBRARY_PATH", dir.path().to_str().unwrap())];
            same_output(&command, &variables, Calls::None, &[OBSERVED, REPLACED], LINES);
        }
    }

    /// A copy that knows libgomp by another name, if it does: the loader takes it for another library.
    fn renamed(mut bytes: Vec<u8>, as_now: &[u8; 13]) -> Vec<u8> {
        let name = b"libgomp.so.1\0";
        let at: Vec<usize> =
            (0..bytes.len() - name.len()).filter(|&i| bytes[i..].starts_with(name)).collect();
        for i in at {
            bytes[i..i + name.len()].copy_from_slice(as_now);
        }
        bytes
    }
}

each_mpi! {
    a_region_that_ends_in_a_call_of_mpi, ranks_announce_openings_with_what_they_compute,
    an_exchange_of_ranks_opens_once, ranks_that_do_not_exchange_alike_are_left_alone_while_they_do_not,
}

fn a_region_that_ends_in_a_call_of_mpi(mpi: &str) {
    let program = built("tails", &format!("mpicc.{mpi}"), &["-fopenmp", "-O2", "-DMPI"]);
    let launcher = format!("mpirun.{mpi}");
    let command = [launcher.as_ref(), "-n".as_ref(), "2".as_ref(), program.as_os_str()];
    tail_calls::same(&command, common::calls_of(mpi));
}

fn ranks_announce_openings_with_what_they_compute(mpi: &str) {
    announces(&mut ranks_that_meet(mpi, &[]), common::calls_of(mpi), OBSERVED);
}

/// `phases` in two ranks. They end by themselves where a test fails.
fn ranks_that_meet(mpi: &str, options: &[&str]) -> Command {
    let program = built("phases", &format!("mpicc.{mpi}"), &[&["-DRANKS"], options].concat());
    let mut command = Command::new("timeout");
    let launch = ["120", &format!("mpirun.{mpi}"), "-n", "2"];
    common::as_root(&mut command).args(launch).arg(program);
    command
}

/// Two ranks that exchange three messages after each phase; one of them one more as long as `apart`.
fn exchanging(mpi: &str, apart: &str, options: &[&str]) -> Command {
    let apart = format!("-DAPART={apart}");
    ranks_that_meet(mpi, &[&["-DEXCHANGES", &apart], options].concat())
}

/// Waits until such ranks have that many messages in all for an opening, first of the first kind and then of the others.
fn messages_of_an_opening(mpi: &str, apart: &str, wanted: &[std::ops::Range<f64>]) {
    let mut command = exchanging(mpi, apart, &["-DMS=0.2"]);
    waits_of_an_opening(&mut command, common::calls_of(mpi), Waits::Said, wanted);
}

/// How waits are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// By the probe.
    Said,
    /// By the kernel: threads went to sleep.
    Slept,
}

/// How often the threads of a process, and of all that it has started, have gone to sleep.
fn times_slept(child: &Child) -> u32 {
    let of = |tid| {
        let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
        u32::try_from(status_number(&status, "voluntary_ctxt_switches")?).ok()
    };
    tids_below(child.id()).into_iter().filter_map(of).sum()
}

/// Waits until threads wait that many times in all for an opening, first of the first kind and then of the others.
fn waits_of_an_opening(
    command: &mut Command,
    calls: Calls,
    counted: Waits,
    wanted: &[std::ops::Range<f64>],
) {
    use evenly_phase::Measured;
    use evenly_testing::wait_for;
    let mapping = Mapping::new().unwrap();
    let (barriers, mut reader) = (mapping.openings().unwrap(), mapping.reader().unwrap());
    let mut child = probed(command, calls, &mapping).spawn().unwrap();
    wait_for("the team", || barriers.follow(&threads_below(&child)));
    let mut counts = || {
        // Again and again, as it holds for some seconds only.
        barriers.measure(Measured::Phases);
        let mut seen = Vec::new();
        reader.read(Nanos::ZERO, &mut seen).unwrap();
        let waits = match counted {
            Waits::Said => seen.iter().map(|s| s.waits).sum(),
            Waits::Slept => times_slept(&child),
        };
        (f64::from(waits), f64::from(barriers.last().phase))
    };
    let (mut waits, mut openings) = counts();
    for wanted in wanted {
        wait_for("openings, or none", || {
            let now = counts();
            if now.0 - waits < 2000.0 {
                return None;
            }
            let found = (now.0 - waits) / (now.1 - openings).max(1.0);
            (waits, openings) = now;
            wanted.contains(&found).then_some(())
        });
    }
    end(&mut child);
}

/// Would catch: an opening at each message; none, as ranks count differently; phases that are cut where one waits.
fn an_exchange_of_ranks_opens_once(mpi: &str) {
    announces(&mut exchanging(mpi, "0", &[]), common::calls_of(mpi), OBSERVED);
    messages_of_an_opening(mpi, "0", &[5.4..7.2]);
}

/// Would catch: openings at calls that have nothing to do with each other, as the first ones after each call for all; ranks that
/// are left alone for ever, or each at another time.
fn ranks_that_do_not_exchange_alike_are_left_alone_while_they_do_not(mpi: &str) {
    // A call for all comes behind 189 messages.
    messages_of_an_opening(mpi, "turn < 10000", &[340.0..2000.0, 5.4..7.2]);
}

#[test]
fn libgomp_announces_openings_with_what_threads_compute() {
    openings_are_announced("gcc", &["-fopenmp"], OBSERVED);
}

/// Would catch: an opening that is announced at the first region only; one at the end of each, before the thread that
/// begins regions has done what it does in between.
#[test]
fn regions_of_libgomp_announce_openings_with_what_threads_compute() {
    openings_are_announced("gcc", &["-fopenmp", "-DREGIONS"], OBSERVED);
}

#[test]
fn replaced_barriers_announce_openings_with_what_threads_compute() {
    openings_are_announced("gcc", &["-fopenmp", "-DREGIONS"], REPLACED);
}

#[test]
fn libomp_announces_openings_with_what_threads_compute() {
    if common::has("clang") {
        openings_are_announced("clang", &["-fopenmp"], OBSERVED);
    }
}

#[test]
fn regions_of_libomp_announce_openings_with_what_threads_compute() {
    if common::has("clang") {
        openings_are_announced("clang", &["-fopenmp", "-DREGIONS"], OBSERVED);
    }
}

#[test]
fn posix_barriers_announce_openings_with_what_threads_compute() {
    openings_are_announced("gcc", &[], OBSERVED);
}

/// Would catch: a wait that is not seen; openings at each wait, or at each wake.
fn own_barriers_open_once(how: &str, counted: Waits) {
    openings_are_announced("gcc", &[how], OBSERVED);
    let program = built("phases", "gcc", &[how, "-DMS=0.2"]);
    // It ends by itself where this fails.
    let mut run = Command::new("timeout");
    waits_of_an_opening(run.arg("120").arg(program), Calls::None, counted, &[0.8..1.2]);
}

#[test]
fn barriers_of_conditions_open_once() {
    own_barriers_open_once("-DCONDITION", Waits::Said);
}

#[test]
fn barriers_of_futexes_open_once() {
    own_barriers_open_once("-DFUTEX", Waits::Slept);
}

/// Both the work that is given and its end are openings, and a wait comes before each.
#[test]
fn threads_that_are_given_work_begin_a_phase() {
    own_barriers_open_once("-DPOOL", Waits::Said);
}

fn openings_are_announced(compiler: &str, options: &[&str], way: Cooperation) {
    announces(&mut Command::new(built("phases", compiler, options)), Calls::None, way);
}

/// Ends a program; a launcher ends its ranks.
fn end(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process};
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

/// The threads of a process and of all that it has started.
fn threads_below(child: &Child) -> Vec<ThreadId> {
    tids_below(child.id()).into_iter().map(thread).collect()
}

fn tids_below(pid: u32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut all = Vec::new();
    for task in tasks.filter_map(Result::ok) {
        all.extend(task.file_name().to_str().and_then(|tid| tid.parse::<i32>().ok()));
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().flat_map(|c| tids_below(c.parse().unwrap())));
    }
    all
}

/// Would catch: threads that are not found, or of which nothing is reported; an opening that wakes nobody.
fn announces(command: &mut Command, calls: Calls, way: Cooperation) {
    use evenly_model::CpuId;
    use evenly_phase::{Measured, Opening};
    use evenly_testing::wait_for;
    let mapping = Mapping::new().unwrap();
    mapping.set_cooperation(way).unwrap();
    let barriers = mapping.openings().unwrap();
    let mut child = probed(command, calls, &mapping).spawn().unwrap();
    wait_for("the team", || barriers.follow(&threads_below(&child)));
    // The second of them computes twice as long.
    let cpu = CpuId(0);
    let mut seen = Opening::default();
    wait_for("phases that are measured", || {
        // Again and again, as it holds for some seconds only.
        barriers.measure(Measured::Phases);
        barriers.arm(&[cpu], Nanos::ZERO);
        let opening = barriers.wait(cpu, seen)?;
        assert!(opening.phase > seen.phase && opening.at > seen.at, "{opening:?} after {seen:?}");
        seen = opening;
        let reports = threads_below(&child).into_iter().filter_map(|id| barriers.reported(id));
        let mut expected: Vec<Nanos> = reports.map(|r| r.expected).collect();
        expected.sort();
        let [short, long] = expected[..] else { return None };
        // Either may lose its CPU to others, which is no CPU time.
        (short > Nanos::ZERO && long > short.scale(1.5) && long < short.scale(2.5)).then_some(())
    });
    assert!(barriers.reported(thread(1)).is_none());
    end(&mut child);
}

/// Would catch: phases of different lengths that are taken for one, as their barriers have the same place in a table.
fn each_of_thirty_phases_is_foreseen(compiler: &str) {
    use evenly_model::CpuId;
    use evenly_phase::{Measured, Opening};
    use evenly_testing::wait_for;
    let mapping = Mapping::new().unwrap();
    let barriers = mapping.openings().unwrap();
    let program = built("phases", compiler, &["-fopenmp", "-O2", "-DSITES"]);
    // It ends by itself where this fails.
    let mut run = Command::new("timeout");
    let mut child = probed(run.arg("120").arg(program), Calls::None, &mapping).spawn().unwrap();
    // After `timeout` itself.
    let first = || threads_below(&child).get(1).copied();
    wait_for("the team", || barriers.follow(&threads_below(&child)));
    let mut seen = Opening::default();
    // Which phases were foreseen as they are; what a thread loses to the hypervisor in one is gone in its next.
    let mut foreseen = std::collections::BTreeSet::new();
    wait_for("thirty phases that are foreseen", || {
        // Again and again, as it holds for some seconds only.
        barriers.measure(Measured::Phases);
        barriers.arm(&[CpuId(0)], Nanos::ZERO);
        seen = barriers.wait(CpuId(0), seen)?;
        let number = barriers.reported(first()?)?.expected.0 as f64 / 2e5 - 5.0;
        if (-0.4..29.5).contains(&number) && (number - number.round()).abs() < 0.4 {
            foreseen.insert(number.round() as u32);
        }
        (foreseen.len() == 30).then_some(())
    });
    end(&mut child);
}

#[test]
fn each_of_thirty_phases_of_libgomp_is_foreseen() {
    each_of_thirty_phases_is_foreseen("gcc");
}

#[test]
fn each_of_thirty_phases_of_libomp_is_foreseen() {
    if common::has("clang") {
        each_of_thirty_phases_is_foreseen("clang");
    }
}

/// Would catch: a program that measures for ever for an evenly that was killed; one that stops although it is asked anew.
#[test]
#[ignore = "takes long: ./dev test --all"]
fn measuring_ends_where_nobody_asks_for_it_any_more() {
    use evenly_phase::Measured;
    use evenly_testing::wait_for;
    use std::time::{Duration, Instant};
    let mapping = Mapping::new().unwrap();
    let barriers = mapping.openings().unwrap();
    let mut command = Command::new(built("phases", "gcc", &["-fopenmp", "-DREGIONS"]));
    let mut child = probed(&mut command, Calls::None, &mapping).spawn().unwrap();
    wait_for("the team", || barriers.follow(&threads_below(&child)));
    barriers.measure(Measured::Openings);
    let began = Instant::now();
    let mut asked = began;
    // The time of an opening is kept all the same.
    let mut last = (barriers.last().phase, began);
    let ended = wait_for("no more openings", || {
        std::thread::sleep(Duration::from_millis(10));
        // For 7 s once a second.
        if began.elapsed() < Duration::from_secs(7) && asked.elapsed() > Duration::from_secs(1) {
            barriers.measure(Measured::Openings);
            asked = Instant::now();
        }
        if barriers.last().phase != last.0 {
            last = (barriers.last().phase, Instant::now());
        }
        (last.1.elapsed() > Duration::from_secs(1)).then_some(last.1)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // As asked, and the 5 s after that, in whole seconds.
    let held = ended - asked;
    assert!(ended - began > Duration::from_secs(9), "{:?}", ended - began);
    assert!(held > Duration::from_secs(3) && held < Duration::from_secs(8), "{held:?}");
}
