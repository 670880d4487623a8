//! Tests of the module above.

use super::barriers::{COUNTED, TIMED, UNMEASURED};
use super::*;
use crate::header::Header;
use evenly_model::CpuId;
use evenly_phase::{NAP, Opening, Openings};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the compiler of C makes of `probe/c/waiting.h`, but for where fields are.
#[test]
fn the_numbers_are_those_of_the_header() {
    let mut c = Header::of("waiting.h");
    let mut say = |what: String| c.holds(what);
    say(format!("EVENLY_NOTES == {NOTES} && EVENLY_SIZE == {SIZE}"));
    say(format!("EVENLY_HEADER == {HEADER} && EVENLY_LINES == {LINES}"));
    say(format!("EVENLY_MAGIC == {MAGIC} && EVENLY_VERSION == {VERSION}"));
    say(format!(
        "EVENLY_THREAD == {THREAD} && EVENLY_TEAM == {TEAM} && EVENLY_RANK == {RANK} && EVENLY_OWN == {OWN}"
    ));
    say(format!("EVENLY_UNMEASURED == {UNMEASURED} && EVENLY_COUNTED == {COUNTED}"));
    say(format!("EVENLY_TIMED == {TIMED}"));
    say(format!("EVENLY_CALL_BITS == {CALL_BITS} && EVENLY_PEER_BITS == {PEER_BITS}"));
    say(format!("EVENLY_ALL == {ALL} && EVENLY_UNSEEN_TASKS == {UNSEEN_TASKS}"));
    say(format!("EVENLY_CLOCKS == {CLOCKS}"));
    for (name, peer) in
        [("WORLD", Peer::World(5)), ("OTHER", Peer::Other(5)), ("ANYONE", Peer::Anyone)]
    {
        let object = |kind: u32| 5 << (CALL_BITS + PEER_BITS) | kind << CALL_BITS | 7;
        let number = (0..4).find(|&n| Peer::of(object(n)) == Some(peer)).unwrap();
        say(format!("EVENLY_PEER_{name} == {number}"));
    }
    for (name, state) in [
        ("COMPUTING", Activity::Computing),
        ("BARRIER", Activity::Barrier),
        ("LOCK", Activity::Lock),
        ("MPI", Activity::Mpi),
        ("COLLECTIVE", Activity::Collective),
        ("END", Activity::RegionEnd),
        ("OUTSIDE", Activity::Outside),
    ] {
        let number = (0..=u8::MAX).find(|&n| Activity::of(n) == Some(state)).unwrap();
        say(format!("EVENLY_{name} == {number}"));
    }
    c.check("EVENLY_VARIABLE EVENLY_NAME", &format!("{VARIABLE}/memfd:{NAME}"));
}

/// A line of a thread.
fn thread(state: u8, entered: u64, waited: u64, team: u16, region: u32) -> [u8; LINE] {
    let mut bytes = [0; LINE];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(line::TID, &7u32.to_ne_bytes());
    put(line::PID, &5u32.to_ne_bytes());
    put(line::ENTERED, &entered.to_ne_bytes());
    put(line::WAITED, &waited.to_ne_bytes());
    put(line::TEAM, &team.to_ne_bytes());
    put(line::REGION, &region.to_ne_bytes());
    put(line::SEQ, &4u32.to_ne_bytes());
    put(line::STATE, &[state]);
    put(line::KIND, &[THREAD]);
    bytes
}

fn team(goes_on: bool, ended: u64, region: u32) -> [u8; LINE] {
    let mut bytes = thread(if goes_on { 5 } else { 0 }, ended, 0, 0, region);
    bytes[line::KIND] = TEAM;
    bytes
}

/// What is seen of a thread and its team at 1000.
fn seen(thread: [u8; LINE], team: [u8; LINE]) -> (Activity, u64, u64) {
    let lines = [thread, team].concat();
    let all: Vec<Observed> = observed((&lines, &lines), &[], Nanos(1000)).collect();
    assert_eq!(all.len(), 1);
    (all[0].activity, all[0].waited.0, all[0].outside.0)
}

/// Would catch: a thread that was woken, and has to wait for a CPU, taken for one that waits for others.
#[test]
fn waiting_ends_when_all_are_there() {
    use Activity::{Barrier, Computing, Outside, RegionEnd};
    let mut own = [0; LINE];
    own[note::MEETS..][..4].copy_from_slice(&2u32.to_ne_bytes());
    let notes = |opened: u64, ended: u64, object: u32| {
        let mut team = [0; LINE];
        team[note::OPENED..][..8].copy_from_slice(&opened.to_ne_bytes());
        team[note::BASE..][..8].copy_from_slice(&ended.to_ne_bytes());
        team[note::FINISHED..][..4].copy_from_slice(&object.to_ne_bytes());
        [own, team].concat()
    };
    // In us, of one that came at 60.
    let us = |n: u64| n * 1_000;
    let at = |state, team| [thread(state, us(60), us(5), 2, 3), team].concat();
    let seen = |lines: &[u8], notes: &[u8]| {
        let all: Vec<Observed> = observed((lines, lines), notes, Nanos(us(100))).collect();
        (all[0].activity, all[0].waited.0 / us(1), all[0].outside.0 / us(1))
    };
    let barrier = at(1, team(true, us(10), 3));
    assert_eq!(seen(&barrier, &notes(us(50), 0, 0)), (Barrier, 45, 0));
    assert_eq!(seen(&barrier, &notes(us(70), 0, 0)), (Computing, 15, 0));
    // As near as that clocks may differ.
    assert_eq!(seen(&barrier, &notes(us(61), 0, 0)), (Barrier, 45, 0));
    // Another barrier for as many has opened.
    assert_eq!(seen(&barrier, &notes(us(70), 0, 9)), (Barrier, 45, 0));
    // Tasks that are executed at a barrier have to be over, too.
    let mut tasks = barrier.clone();
    tasks[LINE + line::OBJECT] = 2;
    assert_eq!(seen(&tasks, &notes(us(70), 0, 0)), (Barrier, 45, 0));
    // Who began the region waits until all have ended their parts.
    let end = at(5, team(true, us(10), 3));
    assert_eq!(seen(&end, &notes(us(50), us(20), 0)), (RegionEnd, 45, 0));
    assert_eq!(seen(&end, &notes(us(50), us(70), 0)), (Computing, 15, 0));
    // It has gone on, later, as the others see.
    let over = at(5, team(false, us(80), 3));
    assert_eq!(seen(&over, &notes(us(50), us(70), 0)), (Outside, 15, 30));
    assert_eq!(seen(&over, &notes(us(50), us(20), 0)), (Outside, 25, 20));
    // Programs may write what they like.
    assert_eq!(seen(&barrier, &notes(u64::MAX, 0, 0)), (Computing, 45, 0));
    let mut nowhere = notes(us(70), 0, 0);
    nowhere[note::MEETS..][..4].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(seen(&barrier, &nowhere), (Barrier, 45, 0));
}

#[test]
fn waiting_ends_with_the_region() {
    use Activity::{Barrier, Computing, Outside, RegionEnd};
    let waits = thread(5, 600, 50, 2, 3);
    assert_eq!(seen(waits, team(true, 100, 3)), (RegionEnd, 450, 0));
    assert_eq!(seen(waits, team(false, 700, 3)), (Outside, 150, 300));
    // The next one was begun, without it so far.
    assert_eq!(seen(waits, team(true, 700, 4)), (Outside, 150, 300));
    // When it was over is not known any more: it is not said to have waited.
    assert_eq!(seen(waits, team(false, 900, 5)), (Outside, 50, 400));
    assert_eq!(seen(thread(1, 600, 50, 2, 3), team(false, 700, 3)), (Outside, 150, 300));
    assert_eq!(seen(thread(1, 600, 50, 0, 0), team(false, 700, 3)), (Barrier, 450, 0));
    assert_eq!(seen(thread(0, 600, 50, 2, 3), team(false, 700, 3)), (Computing, 50, 0));
    // With tasks no thread is reported as waiting.
    let mut tasks = team(true, 100, 3);
    tasks[line::OBJECT] = 1;
    assert_eq!(seen(waits, tasks), (Computing, 50, 0));
    tasks = team(false, 700, 3);
    tasks[line::OBJECT] = 1;
    assert_eq!(seen(waits, tasks), (Outside, 50, 300));
    // The team of another line, or none.
    assert_eq!(seen(thread(5, 600, 50, 99, 3), team(false, 700, 3)), (RegionEnd, 450, 0));
    // Later than now, or overflowing: programs may write what they like.
    assert_eq!(seen(thread(1, 2000, 50, 0, 0), team(false, 0, 0)), (Barrier, 50, 0));
    assert_eq!(seen(thread(1, 0, u64::MAX, 0, 0), team(false, 0, 0)).1, u64::MAX);
}

#[test]
fn whom_a_rank_waits_for() {
    let object = |mut bytes: [u8; LINE], kind: u8, value: u32| {
        bytes[line::KIND] = kind;
        bytes[line::OBJECT..line::OBJECT + 4].copy_from_slice(&value.to_ne_bytes());
        bytes
    };
    let of = |waits: u32, lines: &[[u8; LINE]]| {
        let mut all = vec![object(thread(3, 600, 50, 0, 0), THREAD, waits)];
        all.extend(lines);
        let all = all.concat();
        let seen: Vec<Observed> = observed((&all, &all), &[], Nanos(1000)).collect();
        assert_eq!(seen.len(), 1);
        (seen[0].object, seen[0].peer, seen[0].rank)
    };
    let rank = |pid: u32, registered: u64, rank: u32| {
        let mut bytes = object(thread(0, 1, 0, 0, 4), RANK, rank);
        bytes[line::PID..line::PID + 4].copy_from_slice(&pid.to_ne_bytes());
        bytes[line::REGISTERED..line::REGISTERED + 8].copy_from_slice(&registered.to_ne_bytes());
        bytes
    };
    let waits = |peer: u32, rank: u32| 7 | peer << 9 | rank << 11;
    assert_eq!(of(waits(0, 0), &[]), (7, None, None));
    assert_eq!(of(waits(1, 2_097_151), &[]), (7, Some(Peer::World(2_097_151)), None));
    assert_eq!(of(waits(2, 3), &[rank(4, 1, 1)]), (7, Some(Peer::Other(3)), None));
    let ranks = [rank(6, 1, 9), rank(5, 2, 3), rank(5, 1, 4), rank(4, 1, 8)];
    assert_eq!(of(waits(3, 0), &ranks), (7, Some(Peer::Anyone), Some(3)));
    assert_eq!(of(waits(3, 1), &ranks), (7, Some(Peer::All), Some(3)));
    // The root of a broadcast.
    assert_eq!(of(waits(1, 3), &ranks), (7, None, Some(3)));
    let words = [Peer::World(2), Peer::Other(2), Peer::Anyone, Peer::All].map(|p| p.to_string());
    assert_eq!(words, ["rank 2", "rank 2 of another communicator", "any rank", "all ranks"]);
    // Elsewhere it is an address.
    let barrier = object(thread(1, 600, 50, 0, 0), THREAD, waits(1, 2));
    let seen: Vec<Observed> = observed((&barrier, &barrier), &[], Nanos(1000)).collect();
    assert_eq!((seen[0].object, seen[0].peer), (waits(1, 2), None));
}

#[test]
fn what_is_torn_is_left_out() {
    let line = thread(1, 600, 50, 0, 0);
    let count = |a: &[u8], b: &[u8]| observed((a, b), &[], Nanos(1000)).count();
    assert_eq!(count(&line, &line), 1);
    let mut other = line;
    other[line::WAITED] += 1;
    assert_eq!(count(&line, &other), 0);
    other = line;
    other[line::SEQ] += 1;
    assert_eq!((count(&other, &other), count(&line, &other)), (0, 0));
    for (at, value) in [(line::KIND, 0), (line::STATE, 9)] {
        other = line;
        other[at] = value;
        assert_eq!(count(&other, &other), 0);
    }
    assert_eq!(count(&line[..40], &line[..40]), 0);
}

#[test]
fn what_is_no_mapping() {
    let opened = |path: &Path| Reader::of(File::open(path).unwrap(), path.to_owned());
    let said = |path: &Path| opened(path).unwrap_err().to_string();
    let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).unwrap());
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    assert!(said(&path).starts_with("cannot read /proc/self/fd/"), "{}", said(&path));
    file.set_len(5000).unwrap();
    assert!(said(&path).ends_with("it begins with something else"));
    let mapping = Mapping::new().unwrap();
    let mut reader = opened(&mapping.path()).unwrap();
    let mut out = Vec::new();
    reader.read(Nanos(0), &mut out).unwrap();
    assert_eq!((out.len(), reader.counts()), (0, Counts::default()));
    mapping.file.write_all_at(&1u32.to_ne_bytes(), header::VERSION as u64).unwrap();
    assert!(said(&mapping.path()).ends_with(&format!("its version is 1, not {VERSION}")));
    // A program that writes nonsense.
    mapping.file.write_all_at(&u32::MAX.to_ne_bytes(), header::HIGH as u64).unwrap();
    reader.read(Nanos(0), &mut out).unwrap();
    assert_eq!(out, []);
}

#[test]
fn nobody_changes_its_length() {
    let mapping = Mapping::new().unwrap();
    let length = mapping.file.metadata().unwrap().len();
    let other = File::options().write(true).open(mapping.path()).unwrap();
    for wanted in [0, 200, length - 1, length + 1] {
        let error = other.set_len(wanted).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{wanted}: {error}");
    }
    // Nor takes the seals away, or adds one that keeps programs from writing.
    let error = fcntl_add_seals(&other, SealFlags::WRITE).unwrap_err();
    assert_eq!(error, rustix::io::Errno::PERM);
    assert_eq!(other.metadata().unwrap().len(), length);
}

/// Would catch: a process that has inherited a mask of evenly's just before evenly let go, and keeps it.
#[test]
fn masks_are_hidden_for_a_moment_after_evenly_has_let_go() {
    let seconds = || clock_gettime(ClockId::Monotonic).tv_sec;
    let mapping = Mapping::new().unwrap();
    let barriers = mapping.openings().unwrap();
    let until = || {
        let mut word = [0; 4];
        mapping.file.read_exact_at(&mut word, header::PINS as u64).unwrap();
        i64::from(u32::from_ne_bytes(word))
    };
    barriers.hold(false);
    assert_eq!(until(), 0);
    barriers.hold(true);
    let began = seconds();
    barriers.hold(false);
    let lingers = until();
    assert!((began + 1..=seconds() + 1).contains(&lingers), "{lingers}, {began}");
    barriers.hold(false);
    assert_eq!(until(), lingers);
}

/// Would catch: evenly ending as much as a [`NAP`] after its program, since helpers of a program without barriers sleep on.
#[test]
fn a_helper_without_a_barrier_hears_a_call() {
    let mapping = Mapping::new().unwrap();
    let barriers = mapping.openings().unwrap();
    let cpu = CpuId(40);
    let heard = |_| {
        std::thread::scope(|scope| {
            let began = Instant::now();
            let helper = scope.spawn(|| barriers.wait(cpu, Opening::default()));
            while !helper.is_finished() {
                barriers.call(cpu);
            }
            assert_eq!(helper.join().unwrap(), None);
            began.elapsed() < Duration::from(NAP)
        })
    };
    // A pause of the machine is as long, but not every time.
    assert!((0..50).any(heard), "it slept on every time");
}
