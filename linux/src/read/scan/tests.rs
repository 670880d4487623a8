use super::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

fn scan(scanner: &mut Scanner, now: Nanos) -> Vec<Candidate> {
    while !scanner.search(now) {}
    while !scanner.look(now) {}
    scanner.candidates().to_vec()
}

#[test]
fn children_of_children_are_found_and_lost() {
    let mut shell =
        Command::new("sh").args(["-c", "sh -c 'sleep 60 & wait' & wait"]).spawn().unwrap();
    let mut scanner = Scanner::new(Proc::default(), Pid(shell.id() as i32), 100);
    // A process has its number before it is to be seen.
    for pass in 0.. {
        while !scanner.find_processes(Nanos(pass * NONE_NEW.0)) {}
        scan(&mut scanner, Nanos::ZERO);
        if scanner.processes() >= 3 {
            break;
        }
    }
    assert_eq!(scanner.threads(), 3);
    scanner.look_at_root();
    assert_eq!(scanner.processes(), 3);
    for pid in scanner.processes.keys().copied().collect::<Vec<_>>() {
        // SAFETY: kill(2) takes two integers and touches no memory of ours.
        unsafe { libc::kill(pid.0, libc::SIGKILL) };
    }
    shell.wait().unwrap();
    scanner.look_at_root();
    assert_eq!(scanner.processes(), 2);
    while scanner.processes() + scanner.threads() > 0 {
        scan(&mut scanner, Nanos::ZERO);
    }
    assert_eq!((scanner.threads(), scanner.files), (0, 0));
}

#[test]
fn threads_come_and_go_with_and_without_descriptors() {
    for most_files in [100, 0] {
        let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(4)));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (stop, started) = (stop.clone(), started.clone());
                std::thread::Builder::new()
                    .name("scan) me".into())
                    .spawn(move || {
                        started.wait();
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    })
                    .unwrap()
            })
            .collect();
        started.wait();
        let me = Pid(std::process::id() as i32);
        let mut scanner = Scanner::new(Proc::default(), me, most_files);
        scanner.add(me, Proc::default().process_stat(me).unwrap().start);
        let count = |s: &mut Scanner, now| {
            let found = scan(s, Nanos::from_millis(now));
            found.iter().filter(|c| c.name == "scan) me").count()
        };
        let mut now = 0;
        while count(&mut scanner, now) != 3 {
            now += 2_000;
        }
        assert!(scanner.files <= most_files);
        stop.store(true, Ordering::Relaxed);
        for t in threads {
            t.join().unwrap();
        }
        while count(&mut scanner, now) != 0 {
            now += 2_000;
        }
    }
}

#[test]
fn sleepers_are_counted_and_nothing_more() {
    let stop = Arc::new(Barrier::new(21));
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let stop = stop.clone();
            std::thread::Builder::new().name("sleeper".into()).spawn(move || stop.wait()).unwrap()
        })
        .collect();
    let me = Pid(std::process::id() as i32);
    let proc = Proc::default();
    let asleep = || {
        let stats = proc.threads(me).into_iter().filter_map(|t| proc.thread_stat(t));
        let mut sleepers = stats.filter(|s| s.comm.as_slice() == b"sleeper");
        sleepers.by_ref().filter(|s| s.state == b'S').count() == 20
    };
    while !asleep() {}
    let mut scanner = Scanner::new(Proc::default(), me, 100);
    scanner.add(me, Proc::default().process_stat(me).unwrap().start);
    let found = scan(&mut scanner, Nanos::ZERO);
    assert!(scanner.threads() > 20);
    // All of them, once; threads of other tests come and go meanwhile.
    let newcomers = scanner.take_newcomers();
    assert_eq!(newcomers.iter().collect::<HashSet<_>>().len(), newcomers.len());
    // On a busy machine some have waited for long to get to where they sleep, and count.
    let is_sleeper =
        |t: &Tid| proc.thread_stat(*t).is_some_and(|s| s.comm.as_slice() == b"sleeper");
    let named = |t: &Thread| is_sleeper(&t.tid);
    assert_eq!(newcomers.iter().filter(|t| is_sleeper(t)).count(), 20);
    let times = |t: &Thread| read_times(&proc, None, t, &mut Work::default()).unwrap();
    let little = |t: &Thread| times(t).ran + times(t).waited < SLEEPS;
    let quiet = scanner.sleepers.iter().filter(|t| named(t)).inspect(|t| assert!(little(t)));
    let busy = scanner.known.iter().filter(|t| named(t)).inspect(|t| assert!(!little(t)));
    let busy = busy.count();
    assert_eq!(quiet.count() + busy, 20);
    assert_eq!(found.iter().filter(|c| c.name == "sleeper").count(), busy);
    stop.wait();
    for t in threads {
        t.join().unwrap();
    }
}

/// Would catch: a name that is never seen, as a thread that computes is looked at no more; one that is looked at all the time.
#[test]
fn a_thread_that_computes_is_looked_at_now_and_then() {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let ends = stop.clone();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        while !ends.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let tid = Tid(told.recv().unwrap());
    let me = Pid(std::process::id() as i32);
    let mut scanner = Scanner::new(Proc::default(), me, 100);
    scanner.add(me, Proc::default().process_stat(me).unwrap().start);
    let ran = || {
        let file = File::open(Proc::default().thread_file(tid, "schedstat")).unwrap();
        read_schedstat(&file).unwrap().ran
    };
    // The time is ours: to the scanner it computes without a break.
    let mut name_at = |ms| {
        let before = ran();
        while ran() < before + Nanos::from_millis(10) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let found = scan(&mut scanner, Nanos::from_millis(ms));
        found.iter().find(|c| c.id.tid == tid).map(|c| c.name.clone())
    };
    let called = |name: &str| {
        std::fs::write(Proc::default().thread_file(tid, "comm"), name).unwrap();
        Some(String::from(name))
    };
    let first = called("first");
    assert_eq!(name_at(5_000), first);
    let second = called("second");
    assert_eq!(name_at(5_010), second, "while it is new");
    assert_eq!(name_at(8_000), second);
    let third = called("third");
    assert_eq!(name_at(8_010), second);
    assert_eq!(name_at(9_000), third);
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

/// Would catch: all processes of the machine that are gone over although none has begun; one that has begun and is not found.
#[test]
fn processes_are_looked_for_when_one_has_begun() {
    let machine = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = machine.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let begins = |pid: u32, parent: u32| {
        let zeros = "0 ".repeat(40);
        let stat = format!("{pid} (a) S {parent} 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 7 {zeros}");
        write(&format!("{pid}/task/{pid}/stat"), &stat);
    };
    let last = |pid: u32| write("loadavg", &format!("0.00 0.00 0.00 1/9 {pid}\n"));
    let mut scanner = Scanner::new(Proc::at(machine.path()), Pid(1_000_001), 100);
    let mut found = |ms| {
        while !scanner.find_processes(Nanos::from_millis(ms)) {}
        (scanner.processes(), scanner.last_piece() > 2 * LIST)
    };
    begins(1_000_001, 1);
    assert_eq!(found(5_000).0, 1, "nobody says which number was the last");
    last(1_000_001);
    assert_eq!((found(5_500).0, found(6_000)), (1, (1, false)));
    begins(1_000_002, 1_000_001);
    assert_eq!(found(6_500), (1, false));
    last(1_000_002);
    assert_eq!((found(7_000), found(7_500)), ((2, true), (2, false)));
    // Who says so is late.
    begins(1_000_003, 1_000_002);
    assert_eq!((found(8_500), found(9_000).0), ((2, false), 3));
}

/// However many threads there are, no piece of work is longer than is promised, and together
/// they come to every thread.
#[test]
fn many_threads_are_scanned_in_pieces() {
    const THREADS: usize = 1_000;
    // An entry of a directory takes 24 bytes at least.
    const MOST_AT_ONCE: usize = LIST + LIST_BYTES / 24 * (OPEN + STAT);
    let stop = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let stop = stop.clone();
            let builder = std::thread::Builder::new().stack_size(64 * 1024);
            builder.spawn(move || stop.wait()).unwrap()
        })
        .collect();
    let me = Pid(std::process::id() as i32);
    for most_files in [usize::MAX, 0] {
        let mut scanner = Scanner::new(Proc::default(), me, most_files);
        scanner.add(me, Proc::default().process_stat(me).unwrap().start);
        let (mut pieces, mut longest) = (0, 0);
        let mut piece = |s: &Scanner| {
            pieces += 1;
            longest = longest.max(s.last_piece());
        };
        // New threads are opened, then read again and again.
        for round in 1..=3 {
            let now = Nanos::from_millis(2_000 * round);
            while !scanner.find_processes(now) {
                piece(&scanner);
            }
            while !scanner.search(now) {
                piece(&scanner);
            }
            while !scanner.look(now) {
                piece(&scanner);
            }
        }
        assert!(scanner.threads() >= THREADS);
        assert!(pieces >= 3 * THREADS / PIECE, "{pieces}");
        assert!(longest <= PIECE + MOST_AT_ONCE, "{longest}");
        assert!(scanner.take_newcomers().len() >= THREADS);
    }
    stop.wait();
    for t in threads {
        t.join().unwrap();
    }
}
