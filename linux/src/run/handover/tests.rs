#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::breakpoints::FIT;
use evenly_spins::Module;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Mutex;

/// Larger than any that there is, as samples are asked for.
const PID: i32 = 5_000_000;

/// What was asked of the table.
#[derive(Default)]
struct Asked {
    until: u32,
    others: u32,
    handed: Handed,
}

#[derive(Default, Clone)]
struct Fake(Arc<Mutex<Asked>>);

impl Places for Fake {
    fn taking(&self) -> Vec<Taking> {
        vec![Taking { pid: Pid(PID), space: 1, is_left_alone: false }]
    }
    fn place(&mut self, _: u32, at: u64, _: u32, _: bool) -> Option<Place> {
        Some(Place(at as u32))
    }
    fn refute(&mut self, _: Place) -> io::Result<()> {
        Ok(())
    }
    fn is_refuted(&self, _: Place) -> bool {
        false
    }
    fn changes(&mut self, _: Place, _: bool) -> bool {
        true
    }
    fn want(&mut self, _: Place, _: bool) -> io::Result<()> {
        Ok(())
    }
    fn until(&mut self, second: u32) -> io::Result<()> {
        self.0.lock().unwrap().until = second;
        Ok(())
    }
    fn others(&mut self, second: u32) -> io::Result<()> {
        self.0.lock().unwrap().others = second;
        Ok(())
    }
    fn handed(&self) -> Vec<(Place, Handed)> {
        vec![(Place(0), self.0.lock().unwrap().handed)]
    }
}

/// A program with threads that have run and waited for so many ms.
struct Program {
    proc: tempfile::TempDir,
    times: Vec<(u64, u64)>,
    now_ms: u64,
    table: Fake,
    hand_over: HandOver<Fake>,
}

impl Program {
    fn new(threads: usize, cpus: f64) -> Self {
        let proc = tempfile::tempdir().unwrap();
        let (table, now_ms) = (Fake::default(), 5_000);
        let (at, now) = (Proc::at(proc.path()), Nanos::from_millis(now_ms));
        let hand_over = HandOver::new(at, table.clone(), ("0-1".parse().unwrap(), cpus), now);
        Self { proc, times: vec![(0, 0); threads], now_ms, table, hand_over }
    }

    /// `status` of a thread.
    fn says(&self, tid: i32, status: &str) {
        let dir = self.proc.path().join(format!("{tid}/task/{tid}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("status"), status).unwrap();
    }

    /// After 20 ms in which each thread ran and waited for so long. Whether CPUs are handed over then.
    fn passes(&mut self, of_each: (u64, u64)) -> bool {
        self.passes_for(self.times.len(), of_each)
    }

    /// The same, while all others than the first wait for a moment, and hardly run.
    fn passes_for(&mut self, first: usize, of_each: (u64, u64)) -> bool {
        self.now_ms += 20;
        for (i, (ran, waited)) in self.times.iter_mut().enumerate() {
            let of_each = if i < first { of_each } else { (0, 1) };
            (*ran, *waited) = (*ran + of_each.0, *waited + of_each.1);
            let tid = PID + i as i32;
            let task = self.proc.path().join(format!("{PID}/task/{tid}"));
            let own = self.proc.path().join(format!("{tid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::create_dir_all(&own).unwrap();
            let text = format!("{} {} 1\n", *ran * 1_000_000, *waited * 1_000_000);
            fs::write(own.join("schedstat"), text).unwrap();
        }
        self.hand_over.look(Nanos::from_millis(self.now_ms));
        // This program is a large file, and time stands still here while it is gone through.
        while self.hand_over.modules.is_searching() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.table.0.lock().unwrap().until > 0
    }
}

/// The memory of a program whose code is that of this test, where loops of the standard library wait.
struct Code {
    memory: fs::File,
    /// Addresses of instructions at which it waits, and how they begin.
    instructions: Vec<(u64, Vec<u8>)>,
}

impl Code {
    fn of(p: &Program) -> Self {
        const BASE: u64 = 0x40_0000;
        let path = std::env::current_exe().unwrap();
        let bytes = fs::read(&path).unwrap();
        let spins = Module::of(&bytes).unwrap().spins;
        let instructions: Vec<(u64, Vec<u8>)> =
            spins.into_iter().map(|spin| (BASE + spin.offset, spin.bytes)).collect();
        assert!(!instructions.is_empty());
        let dir = p.proc.path().join(PID.to_string());
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("/", dir.join("root")).unwrap();
        let (end, inode) = (BASE + bytes.len() as u64, fs::metadata(&path).unwrap().ino());
        let maps = format!(
            "{BASE:x}-{end:x} r-xp 00000000 fe:00 {inode} {}\n\
             7f0000000000-7f0000100000 rw-s 00000000 00:01 5 /memfd:evenly-handover (deleted)\n",
            path.display()
        );
        fs::write(dir.join("maps"), maps).unwrap();
        let memory = fs::File::create_new(dir.join("mem")).unwrap();
        memory.set_len(end).unwrap();
        for (at, bytes) in &instructions {
            memory.write_all_at(bytes, *at).unwrap();
        }
        p.says(std::process::id() as i32, FIT);
        Self { memory, instructions }
    }

    /// Over how many of the instructions there is a breakpoint.
    fn breakpoints(&self) -> usize {
        let is_changed = |(at, bytes): &&(u64, Vec<u8>)| {
            let mut found = vec![0; bytes.len()];
            self.memory.read_exact_at(&mut found, *at).unwrap();
            found != *bytes
        };
        self.instructions.iter().filter(is_changed).count()
    }
}

/// Would catch: breakpoints that stay where nobody crowds any longer, or where the signal would end the process.
#[test]
fn breakpoints_are_there_while_threads_crowd_and_the_signal_reaches_the_handler() {
    let mut p = Program::new(3, 2.0);
    let code = Code::of(&p);
    let all = code.instructions.len();
    (PID..PID + 3).for_each(|tid| p.says(tid, FIT));
    let crowds = |p: &mut Program| assert!((0..60).filter(|_| p.passes((13, 7))).count() > 50);
    crowds(&mut p);
    assert_eq!(code.breakpoints(), all);
    // A thread blocks the signal by a system call of its own.
    p.says(PID + 1, &FIT.replace("SigBlk:\t0000000000000000", "SigBlk:\t0000000000000010"));
    crowds(&mut p);
    assert_eq!(code.breakpoints(), 0);
    assert!(matches!(p.hand_over.refused(), Some(Refused::Unfit(_, Unfit::Blocked(_)))));
    p.says(PID + 1, FIT);
    crowds(&mut p);
    assert_eq!(code.breakpoints(), all);
    assert!(p.hand_over.refused().is_none());
    // Nobody crowds.
    assert!((0..200).any(|_| !p.passes((8, 0))));
    (0..10).for_each(|_| assert!(!p.passes((8, 0))));
    assert_eq!(code.breakpoints(), 0);
    crowds(&mut p);
    assert_eq!(code.breakpoints(), all);
    p.hand_over.end();
    assert_eq!(code.breakpoints(), 0);
}

#[test]
fn cpus_are_handed_over_only_where_more_threads_want_to_run_than_there_are() {
    // As many threads as CPUs, one of them beside another program; more, most of them asleep; more of them.
    assert!(![(20, 0), (10, 10)].iter().any(|&t| {
        let mut p = Program::new(2, 2.0);
        p.passes(t) | p.passes(t) | p.passes(t)
    }));
    let mut asleep = Program::new(5, 2.0);
    assert!(!(0..5).any(|_| asleep.passes((8, 1))));
    let mut crowded = Program::new(3, 2.0);
    assert!(!crowded.passes((13, 7)), "nothing is known of the time before the first look");
    assert!(crowded.passes((13, 7)));
    // Two threads that a quota keeps from both CPUs at the same time.
    let mut limited = Program::new(2, 1.5);
    assert!(!limited.passes((15, 5)));
    assert!(limited.passes((15, 5)));
}

/// Would catch: two programs, each with as many threads as there are CPUs, that spin in each other's way.
#[test]
fn cpus_are_handed_over_where_another_program_has_a_use_for_them() {
    let state = tempfile::tempdir().unwrap();
    let dir = crate::journal::StateDir::at(&state.path().join("state")).unwrap();
    let journal = Arc::new(crate::journal::Journal::create(&dir, None).unwrap());
    let with = |wanted| {
        let mut p = Program::new(2, 2.0);
        let beside = Beside::with_demand(journal.clone(), wanted);
        p.hand_over.cooperate_with(beside);
        p
    };
    assert!(!(0..5).any(|_| with(0.0).passes((10, 10))));
    let mut shared = with(2.0);
    shared.passes((10, 10));
    assert!(shared.passes((10, 10)));
    // It says that its threads want both CPUs, whatever they have.
    let said = crate::journal::JournalView::open(&journal.path()).unwrap().header.demand;
    assert_eq!(said.wanted_milli, 2_000);
    // One thread has nobody to wait for, and threads that are not kept waiting need no help.
    let mut alone = Program::new(1, 2.0);
    alone.hand_over.cooperate_with(Beside::with_demand(journal.clone(), 2.0));
    assert!(!(0..5).any(|_| alone.passes((10, 10))));
    let mut free = with(2.0);
    assert!(!(0..5).any(|_| free.passes((20, 0))));
}

/// Would catch: threads that sleep instead of yielding to others of their own program.
#[test]
fn programs_know_until_when_others_compute_also_where_nobody_crowds() {
    let mut p = Program::new(2, 2.0);
    let mut ticks = 100;
    // Each CPU is used for so many hundredths of a second in 20 ms; the program has one of them.
    let mut after = |p: &mut Program, more: u64| {
        for _ in 0..50 {
            ticks += more;
            let text = format!("cpu0 {ticks} 0 0 7 0 0 0 0\ncpu1 0 0 {ticks} 7 0 0 0 0\n");
            fs::write(p.proc.path().join("stat"), text).unwrap();
            assert!(!p.passes((10, 0)));
        }
        p.hand_over.looks_again(Nanos::from_millis(7_000));
        p.table.0.lock().unwrap().others
    };
    assert_eq!([1, 1, 2, 1, 2].map(|n| after(&mut p, n)), [0, 0, 7 + SECONDS, 0, 7 + SECONDS]);
    p.hand_over.end();
    p.hand_over.looks_again(Nanos::from_millis(8_000));
    assert_eq!(p.table.0.lock().unwrap().others, 0);
}

#[test]
fn it_ends_some_time_after_there_was_a_reason_last() {
    let mut p = Program::new(3, 2.0);
    p.passes((13, 7));
    assert!(p.passes((13, 7)));
    let until = p.table.0.lock().unwrap().until;
    assert_eq!(until, 5 + SECONDS);
    // It goes on as long as others have a use for the CPUs; not for threads that sleep, which none needs.
    for _ in 0..300 {
        p.table.0.lock().unwrap().handed.slept += Nanos::from_millis(3);
        p.table.0.lock().unwrap().handed.given += Nanos::from_millis(3);
        assert!(p.passes((8, 0)));
    }
    let sleeps = |p: &mut Program| {
        p.table.0.lock().unwrap().handed.slept += Nanos::from_millis(9);
        p.passes((8, 0))
    };
    let ends = (0..300).take_while(|_| sleeps(&mut p)).count();
    assert_eq!(ends as u64, HOLD.0 / 20_000_000 - 1);
}

/// Would catch: two threads that yield to another program for ever, as that has a use for their CPUs.
#[test]
fn it_ends_where_there_is_a_cpu_for_each_thread() {
    let mut p = Program::new(3, 2.0);
    p.passes((13, 7));
    assert!(p.passes((13, 7)));
    let mut goes_on = |threads| {
        p.table.0.lock().unwrap().handed.given += Nanos::from_millis(10);
        p.passes_for(threads, (7, 7))
    };
    assert!((0..300).all(|_| goes_on(3)));
    assert_eq!((0..300).take_while(|_| goes_on(2)).count() as u64, HOLD.0 / 20_000_000 - 1);
}
