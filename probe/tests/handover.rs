//! Programs that spin, with breakpoints where they wait: each goes on as it would without, and hands over its CPU.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![cfg(target_arch = "x86_64")]

mod common;

use common::{HEADERS, built, has};
use evenly_linux::breakpoints::{Memory, Unfit, hidden, unfit};
use evenly_linux::modules::{Code, parse_code};
use evenly_linux::proc::Proc;
use evenly_model::{Nanos, Pid, Tid};
use evenly_probe::handover::Table;
use evenly_probe::load::{handover, preload};
use evenly_spins::{Handed, Module, Places, Spin, Taking};
use evenly_testing::{is_installed, wait_for, wait_until};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

const FOR_EVER: u32 = u32::MAX;

/// Loops with `pause`, and without: there the place is a jump of two bytes or of six, and values are on the stack.
const WAYS: [&[&str]; 4] = [&["-O2"], &["-O2", "-DPLAIN"], &["-O2", "-DFAR"], &["-O0", "-DPLAIN"]];

/// A program with the library in it.
struct Spinning {
    program: PathBuf,
    table: Table,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Spinning {
    fn start(what: &str) -> Self {
        Self::start_as(WAYS[0], what)
    }

    fn start_as(way: &[&str], what: &str) -> Self {
        Self::start_program(built("spins", "gcc", way), what)
    }

    /// Until it says that it is ready.
    fn start_program(program: PathBuf, what: &str) -> Self {
        let table = Table::new().unwrap();
        let library = handover(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let (name, value) = table.variable();
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "60"]).arg(&program).arg(what).env(name, value);
        command.env("LD_PRELOAD", preload(&library, None).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut it = Self { program, table, child, stdin, stdout: BufReader::new(stdout) };
        it.until_ready();
        it
    }

    fn until_ready(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    /// The program, which `timeout` has started.
    fn process(&self) -> Taking {
        let is_it = |p: &Taking| {
            fs::read_link(format!("/proc/{}/exe", p.pid)).ok().as_ref() == Some(&self.program)
        };
        wait_for("the program in the table", || self.table.taking().into_iter().find(is_it))
    }

    /// Loops of a function that may wait.
    fn doubtful(&self, function: &str) -> Vec<(u64, Vec<u8>)> {
        let bytes = fs::read(&self.program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let symbol = file.symbols().find(|s| s.name() == Ok(function)).unwrap();
        // The linker places code in the file as in memory, but for whole pages.
        let text = file.section_by_name(".text").unwrap();
        let shift = text.address() - text.file_range().unwrap().0;
        let places: Vec<u64> = (0..symbol.size()).map(|i| symbol.address() - shift + i).collect();
        self.in_memory(self.process(), &Module::doubtful(&bytes, &places).unwrap())
    }

    /// Where it waits, and how the instructions there begin.
    fn spins(&self, process: Taking) -> Vec<(u64, Vec<u8>)> {
        self.in_memory(process, &Module::of(&fs::read(&self.program).unwrap()).unwrap().spins)
    }

    fn in_memory(&self, process: Taking, found: &[Spin]) -> Vec<(u64, Vec<u8>)> {
        let maps = fs::read(format!("/proc/{}/maps", process.pid)).unwrap();
        let code = parse_code(&maps).into_iter().filter(|c| c.path == self.program);
        let at = |c: Code| {
            let of = move |s: &Spin| Some((c.address(s.offset)?, s.bytes.clone()));
            found.iter().filter_map(of).collect::<Vec<_>>()
        };
        let all: Vec<(u64, Vec<u8>)> = code.flat_map(at).collect();
        assert!(!all.is_empty());
        all
    }

    /// Breakpoints wherever it waits.
    fn arm(&mut self) -> Vec<(u64, Vec<u8>)> {
        let all = self.spins(self.process());
        self.arm_at(&all, false);
        all
    }

    fn arm_at(&mut self, all: &[(u64, Vec<u8>)], is_doubted: bool) {
        let process = self.process();
        // The C library blocks all signals while a thread begins.
        wait_until("it can have breakpoints", || unfit(&Proc::default(), process.pid).is_none());
        let memory = Memory::of(&Proc::default(), process.pid).unwrap();
        self.table.until(FOR_EVER).unwrap();
        for (at, bytes) in all {
            let place = self.table.place(process.space, *at, hidden(bytes), is_doubted).unwrap();
            self.table.want(place, true).unwrap();
            assert!(memory.set_breakpoint(*at, bytes).unwrap());
            assert!(
                !memory.set_breakpoint(*at, bytes).unwrap(),
                "there is one: it has a guard now"
            );
        }
    }

    /// Whether an instruction is there again.
    fn is_restored(&self, all: &[(u64, Vec<u8>)]) -> bool {
        let memory = fs::File::open(format!("/proc/{}/mem", self.process().pid)).unwrap();
        all.iter().any(|(at, bytes)| {
            let mut found = vec![0; bytes.len()];
            memory.read_exact_at(&mut found, *at).unwrap();
            found == *bytes
        })
    }

    fn wait_until_restored(&self, all: &[(u64, Vec<u8>)]) {
        wait_until("the instruction is there again", || self.is_restored(all));
    }

    fn go(&mut self) {
        self.stdin.write_all(b"x").unwrap();
    }

    fn traps(&self) -> u64 {
        self.table.handed().iter().map(|(_, handed)| handed.traps).sum()
    }

    /// What it says from here on, and how it ends.
    fn end(mut self) -> (String, ExitStatus, u64) {
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        (said, status, self.traps())
    }

    /// It says that all was as it should be.
    fn finishes(self) -> u64 {
        let (said, status, traps) = self.end();
        assert_eq!((said.as_str(), status.code()), ("done\n", Some(0)));
        traps
    }
}

/// The program with breakpoints does what it does without, and comes to them.
fn goes_on(what: &str) {
    for way in WAYS {
        let mut it = Spinning::start_as(way, what);
        it.arm();
        it.go();
        assert!(it.finishes() > 0, "{what} {way:?}");
    }
}

#[test]
fn threads_meet_at_a_barrier_of_their_own() {
    goes_on("barrier");
}

#[test]
fn threads_that_block_all_signals_spin_as_well() {
    goes_on("masks");
}

#[test]
fn older_calls_that_block_signals_are_seen_as_well() {
    goes_on("old_masks");
}

#[test]
fn a_handler_of_the_trap_that_blocks_all_signals_spins() {
    goes_on("late_handler");
}

/// Would catch: a handler that calls what is a place to be cancelled at.
#[test]
fn no_thread_is_cancelled_where_it_spins() {
    let mut it = Spinning::start("deferred");
    let all = it.arm();
    wait_until("it comes to a breakpoint", || it.traps() > 3);
    // It puts the instructions back.
    it.table.until(1).unwrap();
    it.wait_until_restored(&all);
    it.go();
    it.finishes();
}

/// Would catch: breakpoints that are there when system calls of the handler end the process.
#[test]
fn a_process_that_filters_system_calls_has_no_breakpoints_any_longer() {
    let mut it = Spinning::start("late_filter");
    it.arm();
    assert!(!it.process().is_left_alone);
    it.go();
    it.finishes();
}

#[test]
fn handlers_that_block_all_signals_spin_and_interrupt_threads_that_spin() {
    goes_on("handlers");
}

#[test]
fn handlers_on_a_stack_of_their_own_spin() {
    goes_on("alternative");
}

#[test]
fn handlers_that_interrupt_themselves_spin() {
    goes_on("reentered");
}

#[test]
fn a_profiler_interrupts_threads_that_spin() {
    goes_on("profiled");
}

#[test]
fn signals_are_accepted_while_all_threads_block_all() {
    goes_on("accepted");
}

#[test]
fn a_process_that_is_stopped_goes_on() {
    goes_on("stopped");
}

#[test]
fn routines_on_stacks_of_their_own_spin() {
    goes_on("contexts");
}

#[test]
fn a_thread_without_storage_of_its_own_spins() {
    goes_on("cloned");
}

#[test]
#[ignore = "needs g++: ./dev test --all"]
fn exceptions_leave_threads_that_spin() {
    if !has("g++") {
        return;
    }
    let program = built("throws.cc", "g++", &["-O2", "-fnon-call-exceptions"]);
    let mut it = Spinning::start_program(program, "throws");
    it.arm();
    it.go();
    assert!(it.finishes() > 0);
}

#[test]
fn handlers_jump_out_of_threads_that_spin() {
    goes_on("jumps");
}

#[test]
fn threads_that_spin_are_cancelled() {
    goes_on("cancelled");
}

#[test]
fn a_thread_with_the_smallest_stack_spins() {
    goes_on("small");
}

#[test]
fn no_call_of_another_thread_is_interrupted() {
    goes_on("calls");
}

#[test]
fn forked_processes_have_the_breakpoints_of_their_parent() {
    goes_on("forks");
}

/// The table knows the process as another one then, whose mask does not block the trap.
#[test]
fn a_process_that_executes_another_program_begins_anew() {
    let mut it = Spinning::start("executes");
    let before = it.process();
    it.arm();
    it.go();
    it.until_ready();
    let after = it.process();
    assert!(after.pid == before.pid && after.space != before.space, "{before:?} {after:?}");
    it.arm();
    it.go();
    assert!(it.finishes() > 0);
}

#[test]
fn traps_of_the_program_are_its_own() {
    // As the handlers of Fortran's library are, it was set before there was a breakpoint.
    goes_on("own_handler");
    for what in ["dies", "dies_if_sent"] {
        let mut it = Spinning::start(what);
        it.arm();
        it.go();
        let (said, status, _) = it.end();
        // `timeout` ends as what it has started.
        let died = status.signal() == Some(5) || status.code() == Some(128 + 5);
        assert!(said.is_empty() && died, "{what}: {said} {status}");
    }
}

/// Would catch: threads that go on in the middle of a jump, as a debugger has taken the trap over it.
#[test]
fn a_debugger_that_takes_each_trap_harms_no_thread() {
    goes_on("debugged");
}

#[test]
fn the_signal_of_the_guard_is_the_programs_own() {
    let mut it = Spinning::start("illegal");
    it.arm();
    it.go();
    it.finishes();
    for what in ["dies_of_an_instruction", "dies_of_being_sent_one"] {
        let mut it = Spinning::start(what);
        it.go();
        let (said, status, _) = it.end();
        let died = status.signal() == Some(4) || status.code() == Some(128 + 4);
        assert!(said.is_empty() && died, "{what}: {said} {status}");
    }
}

/// Whether a loop waits that calls a function is seen by the registers of those that come to its end.
#[test]
fn a_loop_that_may_wait_is_kept_where_threads_come_with_the_same_registers() {
    for way in [["-O2", "-DCALLS"], ["-O0", "-DCALLS"]] {
        let mut it = Spinning::start_as(&way, "waits");
        let all = it.doubtful("spin_while");
        assert_eq!(all.len(), 1, "{all:?}");
        it.arm_at(&all, true);
        let slept = |it: &Spinning| it.table.handed().iter().any(|(_, h)| h.slept.0 > 0);
        wait_until("it hands over", || it.traps() > 1_000 && slept(&it));
        it.go();
        it.finishes();
        let mut it = Spinning::start_as(&way, "barrier");
        it.arm_at(&it.doubtful("spin_while"), true);
        it.go();
        assert!(it.finishes() > 0);
    }
}

/// Would catch: a loop of work that traps at each of its turns.
#[test]
fn a_loop_that_may_wait_is_given_up_where_registers_change() {
    for way in [["-O2"], ["-O0"]] {
        let mut it = Spinning::start_as(&way, "works");
        let all = it.doubtful("work");
        assert_eq!(all.len(), 1, "{all:?}");
        it.arm_at(&all, true);
        let (at, bytes) = &all[0];
        let place = it.table.place(it.process().space, *at, hidden(bytes), true).unwrap();
        assert!(!it.table.is_refuted(place));
        it.go();
        let mut said = String::new();
        it.stdout.read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), it.table.is_refuted(place)), ("done\n", true));
        let handed = it.table.handed();
        let (_, handed) = handed.iter().find(|(p, _)| *p == place).unwrap();
        // With the one that takes it out.
        assert!((64..=66).contains(&handed.traps) && handed.slept.0 == 0, "{handed:?}");
    }
}

/// Would catch: a loop in which threads wait for long, that is given up as they mostly find what they look for at once; one that
/// traps each time though nobody waits there; and two, one within what the other calls, that are not known for each other.
#[test]
fn a_loop_that_threads_go_past_is_kept_where_others_have_much_of_the_waits() {
    for (what, functions) in [
        ("passes", &["spin_while"][..]),
        ("waits", &["spin_while"]),
        ("waits", &["spin_while", "each"]),
    ] {
        let mut it = Spinning::start_program(built("passes", "gcc", &["-O2"]), what);
        let all: Vec<_> = functions.iter().flat_map(|name| it.doubtful(name)).collect();
        assert_eq!(all.len(), functions.len(), "{all:?}");
        it.arm_at(&all, true);
        it.go();
        let mut said = String::new();
        it.stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "done\n");
        let handed = it.table.handed();
        let kept = handed.iter().filter(|(p, h)| h.traps > 0 && !it.table.is_refuted(*p)).count();
        let (traps, given) =
            handed.iter().fold((0, 0), |(t, g), (_, h)| (t + h.traps, g + h.given.0));
        if what == "passes" {
            // Each thread may come once more until the instruction is put back.
            assert!(kept == 0 && (1_024..1_030).contains(&traps) && given == 0, "{handed:?}");
        } else {
            assert!(kept > 0 && traps > 10_000 && given > 50_000_000, "{handed:?}");
        }
    }
}

/// Would catch: breakpoints that stay when evenly was killed.
#[test]
fn instructions_come_back_when_nobody_wants_to_hand_over_any_longer() {
    let ways = WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]);
    for (way, by_place) in ways {
        let mut it = Spinning::start_as(way, "waits");
        let all = it.arm();
        wait_until("it comes to a breakpoint", || it.traps() > 3);
        if by_place {
            for (at, bytes) in &all {
                let place = it.table.place(it.process().space, *at, hidden(bytes), false).unwrap();
                it.table.want(place, false).unwrap();
            }
        } else {
            it.table.until(1).unwrap();
        }
        it.wait_until_restored(&all);
        it.go();
        it.finishes();
    }
}

/// Would catch: an instruction that both sides change at the same time, of which half is the one and half the other.
#[test]
fn no_instruction_is_put_back_while_evenly_changes_it() {
    let mut it = Spinning::start_as(WAYS[1], "waits");
    let all = it.arm();
    wait_until("it comes to a breakpoint", || it.traps() > 3);
    let space = it.process().space;
    let changes = |it: &mut Spinning, is| {
        for (at, bytes) in &all {
            let place = it.table.place(space, *at, hidden(bytes), false).unwrap();
            assert!(it.table.changes(place, is));
        }
    };
    changes(&mut it, true);
    it.table.until(1).unwrap();
    let traps = it.traps();
    wait_until("it comes to the breakpoint again and again", || it.traps() > traps + 1_000);
    assert!(!it.is_restored(&all));
    changes(&mut it, false);
    it.wait_until_restored(&all);
    it.go();
    it.finishes();
}

/// As evenly takes them away.
#[test]
fn breakpoints_are_taken_away_from_outside() {
    let mut it = Spinning::start("waits");
    let all = it.arm();
    wait_until("it comes to a breakpoint", || it.traps() > 3);
    let memory = Memory::of(&Proc::default(), it.process().pid).unwrap();
    for (at, bytes) in &all {
        memory.clear_breakpoint(*at, bytes).unwrap();
        memory.clear_breakpoint(*at, bytes).unwrap();
    }
    for (at, bytes) in &all {
        assert!(memory.set_breakpoint(*at, bytes).unwrap(), "the instruction is there again");
    }
    it.go();
    it.finishes();
}

#[test]
fn processes_that_would_not_survive_a_trap_are_left_alone() {
    let proc = Proc::default();
    let it = Spinning::start("blocked");
    let pid = it.process().pid;
    assert_eq!(unfit(&proc, pid), Some(Unfit::Blocked(Tid(pid.0))));
    goes_to_its_end(it);
    let it = Spinning::start("filtered");
    assert_eq!(unfit(&proc, it.process().pid), Some(Unfit::Filtered));
    goes_to_its_end(it);
    let it = Spinning::start("traced");
    assert_eq!(unfit(&proc, it.process().pid), Some(Unfit::Traced));
    goes_to_its_end(it);
    // Nobody has loaded the library into this process.
    assert_eq!(unfit(&proc, Pid(std::process::id() as i32)), Some(Unfit::Unhandled));
    assert_eq!(unfit(&proc, Pid(i32::MAX)), Some(Unfit::Unreadable));
}

fn goes_to_its_end(mut it: Spinning) {
    it.go();
    it.finishes();
}

/// A library, and one that is linked with it: named by its whole path, as it has no other name.
fn linked(source: &str, flags: &[&str], of_library: &[&str]) -> PathBuf {
    let library = built(source, "gcc", &[&["-shared", "-fPIC", "-DLIBRARY"], of_library].concat());
    let with = ["-Wl,--no-as-needed", library.to_str().unwrap()];
    built(source, "gcc", &[flags, &with].concat())
}

/// Ranks of MPI wait by calling a function again and again. While nobody wants to hand over it only calls; where they yield
/// by themselves, be it not at each look, they are not asked to once more; and where they work between looks they do not wait.
#[test]
fn ranks_that_look_for_messages_hand_over() {
    let tried: [(u32, &[&str], &str, bool); 5] = [
        (0, &[], "-DWAITS", false),
        (FOR_EVER, &[], "-DWAITS", true),
        (FOR_EVER, &["-DYIELDS=3"], "-DWAITS", false),
        (FOR_EVER, &["-DYIELDS=2"], "-DWAITS", false),
        (FOR_EVER, &[], "-DWAITS -DWORKS", false),
    ];
    for (until, of_library, waiter, hands_over) in tried {
        let flags: Vec<&str> = waiter.split(' ').chain(["-shared", "-fPIC"]).collect();
        let waits = linked("progress", &flags, of_library);
        let program = built("progress", "gcc", &[]);
        let mut it = Spinning::start_program(program, waits.to_str().unwrap());
        it.table.until(until).unwrap();
        it.go();
        // Of 20,000 looks. One in which it loses its CPU may look like a wait.
        let traps = it.finishes();
        assert_eq!(traps > 1_000, hands_over, "{until} {of_library:?} {waiter}: {traps}");
        assert!(hands_over || traps < 100, "{until} {of_library:?} {waiter}: {traps}");
    }
}

/// A thread whose calls of sched_yield cost it a slice each time sleeps instead, while others are seen to compute, unless it
/// works for long in between.
#[test]
fn threads_that_lose_slices_by_yielding_sleep_instead() {
    for (others, what) in [(0, ""), (FOR_EVER, ""), (FOR_EVER, "works")] {
        let mut it = Spinning::start_program(linked("yields", &[], &[]), what);
        it.table.others(others).unwrap();
        it.go();
        let (said, status, slept) = it.end();
        assert_eq!(status.code(), Some(0));
        let slices: u64 = said.trim().parse().unwrap();
        assert_eq!(slices + slept, 20);
        assert_eq!(slept > 0, others > 0 && what.is_empty(), "{slices} slices");
    }
}

/// The same of a thread that spins: would catch one that gives a slice to whoever computes on its CPU, again and again.
#[test]
fn threads_that_lose_slices_by_handing_over_sleep_instead() {
    let mut it = Spinning::start_program(linked("yields", &["-O2"], &[]), "spins");
    it.table.others(FOR_EVER).unwrap();
    it.arm();
    it.go();
    wait_until("it has ended", || it.child.try_wait().unwrap().is_some());
    // Others could run for all of the time, though nobody is seen to do so.
    let handed: Vec<Handed> = it.table.handed().into_iter().map(|(_, handed)| handed).collect();
    assert!(handed.iter().all(|h| h.slept == Nanos::ZERO), "{handed:?}");
    let (said, status, _) = it.end();
    assert_eq!(status.code(), Some(0));
    let slices: u64 = said.trim().parse().unwrap();
    let given: Nanos = handed.iter().fold(Nanos::ZERO, |sum, h| sum + h.given);
    assert!(given > Nanos::from_millis(6 * slices), "{given:?} {slices}");
}

/// What the processor does at each jump, for all flags.
#[test]
fn jumps_are_carried_out_as_the_processor_does() {
    let output = Command::new(built("jumps", "gcc", &["-mno-red-zone"])).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

/// The same of aarch64, by an emulator; and the libraries are built for it without a warning.
#[test]
#[ignore = "needs a compiler and an emulator for aarch64: ./dev test --all"]
fn jumps_of_aarch64_are_carried_out_as_the_processor_does() {
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    if ![COMPILER, "qemu-aarch64"].into_iter().all(|tool| is_installed(tool, "aarch64")) {
        return;
    }
    let program = built("jumps_arm", COMPILER, &["-static", "-O2"]);
    let output = Command::new("qemu-aarch64").arg(program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    for (source, flags) in
        [("handover.c", &[][..]), ("waiting.c", &[]), ("waiting.c", &["-DEVENLY_MPI_CALLS"])]
    {
        let mut compile = Command::new(COMPILER);
        compile.args([
            "-std=gnu11",
            "-O2",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-S",
            "-o",
            "/dev/null",
        ]);
        assert!(
            compile.args(flags).arg(sources.join(source)).status().unwrap().success(),
            "{source}"
        );
    }
}

/// A table that is full of other addresses has no more room, and says so.
#[test]
fn a_place_is_found_again_and_room_ends() {
    let mut table = Table::new().unwrap();
    let first = table.place(1, 0x1000, 0xf3, false).unwrap();
    assert_eq!(table.place(1, 0x1000, 0xf3, false), Some(first));
    assert_ne!(table.place(2, 0x1000, 0xf3, false), Some(first));
    let more = (0..20_000u64)
        .filter(|i| table.place(3, 0x40_0000 + i * 16, 0xf3, false).is_some())
        .count();
    assert!((4_000..8_192).contains(&more), "{more}");
    assert_eq!(table.place(1, 0x1000, 0xf3, false), Some(first));
    // And the calls.
    assert_eq!(table.handed().len(), more + 4);
}

/// Runs what checks a part of the library by itself, without a kernel.
fn model(name: &str) {
    let output =
        Command::new(built(name, "cc", &["-std=gnu11", "-Werror", HEADERS])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Would catch: a wait that is shorter than those before and is slept through; sleeps that are taken for waits, for ever.
#[test]
fn a_thread_is_expected_to_wait_as_long_as_before() {
    model("waits_model");
}

/// Would catch: threads that work for long between slices that they lose, and sleep; others that lose all of them.
#[test]
fn slices_are_kept_where_they_are_lost_soon_after_one_another() {
    model("keeping_model");
}
