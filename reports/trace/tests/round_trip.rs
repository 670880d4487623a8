//! What is recorded is what is read, and no bytes make readers or exporters fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evenly_engine::{
    CpuRecord, Event, MoveRecord, Observer, PointRecord, ThreadMeta, ThreadRecord,
};
use evenly_model::{CpuId, CpuSet, DomainId, Nanos, Pid, Reason, ThreadId, Tid, Turns};
use evenly_trace::{Header, Recorder, RecorderOptions, Recording, exercise};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// Few ids, so that threads recur, and tids with several start times, so that they are re-used.
fn id() -> impl Strategy<Value = ThreadId> {
    (1..5i32, 0..3u64).prop_map(|(tid, start)| ThreadId { tid: Tid(tid), start })
}

fn cpu() -> impl Strategy<Value = CpuId> {
    prop_oneof![(0..4u32).prop_map(CpuId), (0..16_384u32).prop_map(CpuId)]
}

fn at() -> impl Strategy<Value = Nanos> {
    prop_oneof![(0..10_000_000_000u64).prop_map(Nanos), any::<u64>().prop_map(Nanos)]
}

fn turns() -> impl Strategy<Value = Turns> {
    (any::<u64>(), any::<u64>(), at(), at(), at(), at()).prop_map(
        |(phases, waits, runnable, waited, computed, spun)| Turns {
            phases,
            waits,
            runnable,
            waited,
            computed,
            spun,
        },
    )
}

fn thread() -> impl Strategy<Value = ThreadRecord> {
    let reported = (option::of(at()), option::of(turns()));
    (id(), cpu(), any::<i64>(), at(), at(), at(), reported, any::<u64>(), 0..9u64).prop_map(
        |(
            id,
            cpu,
            progress,
            ran,
            waited,
            blocked,
            (spinning, turns),
            minor_faults,
            major_faults,
        )| {
            ThreadRecord {
                id,
                cpu,
                progress,
                ran,
                waited,
                blocked,
                spinning,
                turns,
                minor_faults,
                major_faults,
            }
        },
    )
}

fn a_move() -> impl Strategy<Value = MoveRecord> {
    let reason = prop_oneof![
        Just(Reason::Spread),
        Just(Reason::Behind),
        Just(Reason::Ahead),
        Just(Reason::Evicted),
        Just(Reason::Waits),
        Just(Reason::Mapped),
        Just(Reason::Paired),
        Just(Reason::Other)
    ];
    (id(), cpu(), cpu(), reason, option::of(".{0,30}"))
        .prop_map(|(id, from, to, reason, error)| MoveRecord { id, from, to, reason, error })
}

fn point() -> impl Strategy<Value = Event> {
    // Four decimals, as the format keeps them.
    let speed = option::of((0..=10_000u32).prop_map(|s| f64::from(s) / 1e4));
    let cpus =
        (cpu(), 0..9u32, speed).prop_map(|(id, threads, speed)| CpuRecord { id, threads, speed });
    let head = (0..3u32, any::<u64>(), at(), at(), any::<[bool; 4]>(), at(), vec(0..3u32, 0..4));
    let arm = option::of("[a-z-]{1,12}");
    let weights = vec((id(), (0..=100_000u32).prop_map(|w| f64::from(w) / 1e4)), 0..4);
    (head, arm, vec(thread(), 0..6), vec(cpus, 0..4), vec(a_move(), 0..4), weights).prop_map(
        |(
            (domain, point, at, elapsed, [paused, held, spins_progress, agents], cost, others),
            arm,
            threads,
            cpus,
            moves,
            weights,
        )| {
            Event::Point(PointRecord {
                domain: DomainId(domain),
                point,
                at,
                elapsed,
                paused,
                held,
                spins_progress,
                agents,
                others,
                arm,
                cost,
                threads,
                cpus,
                moves,
                weights,
            })
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (at(), 0..3u32, vec(cpu(), 0..5)).prop_map(|(at, domain, cpus)| Event::Domain {
            at,
            domain: DomainId(domain),
            cpus: cpus.into_iter().collect::<CpuSet>(),
        }),
        (at(), 0..3u32, id(), any::<i32>(), any::<String>()).prop_map(
            |(at, domain, id, pid, name)| Event::Joined {
                at,
                domain: DomainId(domain),
                thread: ThreadMeta { id, pid: Pid(pid), name },
            }
        ),
        (at(), id(), any::<bool>(), prop::option::of(0u32..3).prop_map(|d| d.map(DomainId)))
            .prop_map(|(at, id, ended, to)| Event::Left { at, id, ended, to }),
        (at(), any::<String>()).prop_map(|(at, text)| Event::Note { at, text }),
        point(),
        point(),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let table = || btree_map("[a-z]{1,9}", any::<String>(), 0..4);
    (vec(any::<String>(), 0..4), table(), table(), any::<u64>()).prop_map(
        |(command, host, settings, started_unix_ms)| Header {
            evenly: "0.1.0".to_owned(),
            command,
            host,
            settings,
            started_unix_ms,
        },
    )
}

fn record(header: Header, events: &[Event]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.rec");
    let options = RecorderOptions { header, ..RecorderOptions::default() };
    let recorder = Recorder::create(&path, options).unwrap();
    let mut handle = recorder.handle();
    events.iter().for_each(|e| handle.event(e));
    recorder.finish(serde_json::json!({"n": events.len()})).unwrap();
    std::fs::read(&path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_recorded_is_read(header in header(), events in vec(event(), 0..25)) {
        let bytes = record(header.clone(), &events);
        let recording = Recording::parse(&bytes).unwrap();
        prop_assert_eq!(&recording.header, &header);
        prop_assert_eq!(&recording.events, &events);
        let end = recording.end.unwrap();
        prop_assert_eq!((end.dropped, end.thinned), (0, 0));
        prop_assert_eq!(end.summary["n"].as_u64(), Some(events.len() as u64));
    }

    #[test]
    fn whatever_was_recorded_can_be_exported(events in vec(event(), 0..25)) {
        exercise(&record(Header::default(), &events));
    }

    #[test]
    fn a_recording_cut_anywhere_is_a_beginning(events in vec(event(), 1..12), at in 0.0..1.0f64) {
        let bytes = record(Header::default(), &events);
        let head = bytes.iter().position(|&b| b == b'\n').unwrap() + 1;
        let cut = head + ((bytes.len() - head) as f64 * at) as usize;
        let recording = Recording::parse(&bytes[..cut]).unwrap();
        prop_assert_eq!(&recording.events[..], &events[..recording.events.len()]);
    }

    #[test]
    fn damaged_recordings_do_no_harm(
        events in vec(event(), 1..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = record(Header::default(), &events);
        for (index, byte) in damage {
            let i = index.index(bytes.len());
            bytes[i] = byte;
        }
        exercise(&bytes);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
    }
}
