//! A trace for the Perfetto viewer (ui.perfetto.dev): TrackEvent protobuf.
//!
//! Tracks: one group with a track per CPU (slices: which thread ran there in a period; several at
//! once where several shared it) and a counter of its speed; one process track per process, with a
//! track per thread (instants: its moves, with the reason) and a counter of its lag (its progress
//! less the mean progress of the domain's threads, negative when behind).
//!
//! The messages are the part that is needed of Perfetto's `protos/perfetto/trace`: trace.proto,
//! trace_packet.proto and track_event/*.proto. Field numbers and types are theirs.

use crate::reader::Recording;
use crate::timeline::{Cast, Stretches};
use evenly_engine::{Event, MoveRecord, PointRecord};
use evenly_model::{CpuId, DomainId, Pid};
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// All packets come from one sequence.
const SEQUENCE: u32 = 1;
/// Track of the group of CPUs. Other tracks count on from here.
const CPUS_TRACK: u64 = 1;
/// Track of what evenly says of itself.
const NOTES_TRACK: u64 = 2;

/// trace.proto
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

/// trace_packet.proto
#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// track_event/track_event.proto
#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
}

/// TrackEvent.Type
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// track_event/debug_annotation.proto
#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(double, optional, tag = "5")]
    double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// track_event/track_descriptor.proto
#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

/// track_event/process_descriptor.proto
#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, repeated, tag = "2")]
    cmdline: Vec<String>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

/// track_event/thread_descriptor.proto
#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

/// track_event/counter_descriptor.proto
#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    /// 1 is UNIT_TIME_NS.
    #[prost(int32, optional, tag = "3")]
    unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

fn text(name: &str, value: impl Into<String>) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        string_value: Some(value.into()),
        ..DebugAnnotation::default()
    }
}

fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: Some(value),
        ..DebugAnnotation::default()
    }
}

fn millis(name: &str, nanos: u64) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(format!("{name}_ms")),
        double_value: Some(nanos as f64 / 1e6),
        ..DebugAnnotation::default()
    }
}

/// The tracks of one thread.
#[derive(Clone, Copy)]
struct ThreadTracks {
    moves: u64,
    lag: u64,
}

struct Export<'a, W: Write> {
    out: W,
    buffer: Vec<u8>,
    cast: &'a Cast,
    next_track: u64,
    /// Track of each CPU and lane: slices of one track must not overlap.
    lanes: HashMap<(CpuId, usize), u64>,
    speeds: HashMap<CpuId, u64>,
    /// Track of the pauses of each domain.
    pauses: HashMap<DomainId, u64>,
    threads: Vec<ThreadTracks>,
    /// Until when the lanes of a domain are taken.
    until: HashMap<DomainId, u64>,
}

/// Writes the trace. Memory needed does not grow with the length of the recording.
///
/// # Errors
/// Where `out` cannot be written.
pub fn export(recording: &Recording, out: impl Write) -> io::Result<()> {
    let cast = Cast::of(recording);
    let mut export = Export {
        out: io::BufWriter::new(out),
        buffer: Vec::new(),
        cast: &cast,
        next_track: NOTES_TRACK + 1,
        lanes: HashMap::new(),
        speeds: HashMap::new(),
        pauses: HashMap::new(),
        threads: Vec::new(),
        until: HashMap::new(),
    };
    export.describe(recording)?;
    let mut stretches = Stretches::of(recording);
    for event in &recording.events {
        match event {
            Event::Point(p) => {
                if let Some((start, end)) = stretches.of_point(p) {
                    export.point(p, start, end)?;
                }
                for m in &p.moves {
                    export.a_move(p, m)?;
                }
            }
            Event::Note { at, text } => export.instant(at.0, NOTES_TRACK, text, Vec::new())?,
            Event::Domain { at, domain, cpus } => {
                let says = format!("domain {domain} has CPUs {cpus}");
                export.instant(at.0, NOTES_TRACK, &says, Vec::new())?;
            }
            Event::Joined { at, domain, thread } => {
                let joins = vec![number("domain", u64::from(domain.0))];
                export.on_thread(at.0, cast.index_of(thread.id), "joins", joins)?;
            }
            Event::Left { at, id, ended, to } => {
                let says = match to {
                    _ if *ended => "ends",
                    Some(_) => "goes to another domain",
                    None => "no longer computes",
                };
                export.on_thread(at.0, cast.index_of(*id), says, Vec::new())?;
            }
        }
    }
    for t in &recording.thinning {
        export.instant(t.at.0, NOTES_TRACK, &t.text, Vec::new())?;
    }
    export.out.flush()
}

impl<W: Write> Export<'_, W> {
    /// A trace is a sequence of traces with one packet each: that is what its encoding amounts to.
    fn put(&mut self, packet: TracePacket) -> io::Result<()> {
        self.buffer.clear();
        Trace { packet: vec![packet] }.encode(&mut self.buffer)?;
        self.out.write_all(&self.buffer)
    }

    fn new_track(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track - 1
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.put(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        })
    }

    fn event(&mut self, at: u64, event: TrackEvent) -> io::Result<()> {
        self.put(TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn named(&mut self, uuid: u64, parent: Option<u64>, name: &str) -> io::Result<()> {
        self.track(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: parent,
            ..TrackDescriptor::default()
        })
    }

    /// Everything that is known before the first event.
    fn describe(&mut self, recording: &Recording) -> io::Result<()> {
        // SEQ_INCREMENTAL_STATE_CLEARED: without it, readers of a stream may wait for one.
        self.put(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(1),
            ..TracePacket::default()
        })?;
        self.named(CPUS_TRACK, None, "CPUs, as evenly saw them")?;
        self.named(NOTES_TRACK, None, "evenly")?;
        let mut processes: HashMap<Pid, u64> = HashMap::new();
        let cast = self.cast;
        for actor in &cast.actors {
            let parent = match actor.pid {
                None => None,
                Some(pid) => Some(match processes.get(&pid) {
                    Some(&track) => track,
                    None => {
                        let track = self.new_track();
                        processes.insert(pid, track);
                        // The command is that of the first process; of the others it is not known.
                        let command = if processes.len() == 1 {
                            recording.header.command.clone()
                        } else {
                            Vec::new()
                        };
                        self.track(TrackDescriptor {
                            uuid: Some(track),
                            process: Some(ProcessDescriptor {
                                pid: Some(pid.0),
                                process_name: Some(command.first().unwrap_or(&actor.name).clone()),
                                cmdline: command,
                            }),
                            ..TrackDescriptor::default()
                        })?;
                        track
                    }
                }),
            };
            let tracks = ThreadTracks { moves: self.new_track(), lag: self.new_track() };
            self.threads.push(tracks);
            self.track(TrackDescriptor {
                uuid: Some(tracks.moves),
                name: actor.pid.is_none().then(|| actor.label()),
                thread: actor.pid.map(|pid| ThreadDescriptor {
                    pid: Some(pid.0),
                    tid: Some(i64::from(actor.id.tid.0)),
                    thread_name: Some(actor.name.clone()),
                }),
                parent_uuid: parent,
                ..TrackDescriptor::default()
            })?;
            self.track(TrackDescriptor {
                uuid: Some(tracks.lag),
                name: Some(format!("{} progress relative to mean", actor.label())),
                parent_uuid: parent,
                counter: Some(CounterDescriptor { unit: Some(1), unit_name: None }),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    fn lane(&mut self, cpu: CpuId, lane: usize) -> io::Result<u64> {
        if let Some(&track) = self.lanes.get(&(cpu, lane)) {
            return Ok(track);
        }
        let track = self.new_track();
        self.lanes.insert((cpu, lane), track);
        // The viewer shows tracks of the same name and parent as one.
        self.named(track, Some(CPUS_TRACK), &format!("CPU {cpu}"))?;
        Ok(track)
    }

    fn speed(&mut self, cpu: CpuId) -> io::Result<u64> {
        if let Some(&track) = self.speeds.get(&cpu) {
            return Ok(track);
        }
        let track = self.new_track();
        self.speeds.insert(cpu, track);
        self.track(TrackDescriptor {
            uuid: Some(track),
            name: Some(format!("CPU {cpu} speed")),
            parent_uuid: Some(CPUS_TRACK),
            counter: Some(CounterDescriptor {
                unit: None,
                unit_name: Some("share of a CPU".to_owned()),
            }),
            ..TrackDescriptor::default()
        })?;
        Ok(track)
    }

    fn slice(
        &mut self,
        (start, end): (u64, u64),
        track: u64,
        name: &str,
        annotations: Vec<DebugAnnotation>,
    ) -> io::Result<()> {
        self.event(
            start,
            TrackEvent {
                debug_annotations: annotations,
                r#type: Some(EventType::SliceBegin.into()),
                track_uuid: Some(track),
                categories: vec!["evenly".to_owned()],
                name: Some(name.to_owned()),
                ..TrackEvent::default()
            },
        )?;
        self.event(
            end,
            TrackEvent {
                r#type: Some(EventType::SliceEnd.into()),
                track_uuid: Some(track),
                ..TrackEvent::default()
            },
        )
    }

    fn instant(
        &mut self,
        at: u64,
        track: u64,
        name: &str,
        annotations: Vec<DebugAnnotation>,
    ) -> io::Result<()> {
        self.event(
            at,
            TrackEvent {
                debug_annotations: annotations,
                r#type: Some(EventType::Instant.into()),
                track_uuid: Some(track),
                categories: vec!["evenly".to_owned()],
                name: Some(name.to_owned()),
                ..TrackEvent::default()
            },
        )
    }

    fn on_thread(
        &mut self,
        at: u64,
        thread: Option<usize>,
        name: &str,
        annotations: Vec<DebugAnnotation>,
    ) -> io::Result<()> {
        match thread.and_then(|i| self.threads.get(i)).copied() {
            Some(tracks) => self.instant(at, tracks.moves, name, annotations),
            None => Ok(()),
        }
    }

    fn point(&mut self, p: &PointRecord, start: u64, end: u64) -> io::Result<()> {
        // Periods are read at slightly different moments; slices of a track must not overlap.
        let start = start.max(self.until.get(&p.domain).copied().unwrap_or(0));
        if start < end {
            self.until.insert(p.domain, end);
            self.who_ran(p, (start, end))?;
        }
        let mean = p.threads.iter().map(|t| t.progress as f64).sum::<f64>()
            / p.threads.len().max(1) as f64;
        for t in &p.threads {
            let tracks = self.cast.index_of(t.id).and_then(|i| self.threads.get(i)).copied();
            if let Some(tracks) = tracks {
                self.event(
                    end,
                    TrackEvent {
                        r#type: Some(EventType::Counter.into()),
                        track_uuid: Some(tracks.lag),
                        counter_value: Some((t.progress as f64 - mean) as i64),
                        ..TrackEvent::default()
                    },
                )?;
            }
        }
        for c in &p.cpus {
            if let Some(speed) = c.speed {
                let track = self.speed(c.id)?;
                self.event(
                    end,
                    TrackEvent {
                        r#type: Some(EventType::Counter.into()),
                        track_uuid: Some(track),
                        double_counter_value: Some(speed),
                        ..TrackEvent::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    fn who_ran(&mut self, p: &PointRecord, stretch: (u64, u64)) -> io::Result<()> {
        if p.paused {
            let track = match self.pauses.get(&p.domain) {
                Some(&track) => track,
                None => {
                    let track = self.new_track();
                    self.pauses.insert(p.domain, track);
                    self.named(track, Some(NOTES_TRACK), "balancing paused")?;
                    track
                }
            };
            let name = format!("domain {} paused", p.domain);
            self.slice(stretch, track, &name, Vec::new())?;
        }
        let mut used: HashMap<CpuId, usize> = HashMap::new();
        let cast = self.cast;
        for t in p.threads.iter().filter(|t| t.ran.0 > 0) {
            let Some(actor) = cast.index_of(t.id).and_then(|i| cast.actors.get(i)) else {
                continue;
            };
            let lane = used.entry(t.cpu).or_default();
            let track = self.lane(t.cpu, *lane)?;
            *lane += 1;
            let annotations = vec![
                millis("ran", t.ran.0),
                millis("waited", t.waited.0),
                millis("blocked", t.blocked.0),
                number("minor_faults_so_far", t.minor_faults),
                number("major_faults_so_far", t.major_faults),
                number("point", p.point),
            ];
            self.slice(stretch, track, &actor.label(), annotations)?;
        }
        Ok(())
    }

    fn a_move(&mut self, p: &PointRecord, m: &MoveRecord) -> io::Result<()> {
        let mut annotations = vec![
            text("reason", m.reason.text()),
            number("from_cpu", u64::from(m.from.0)),
            number("to_cpu", u64::from(m.to.0)),
            number("point", p.point),
        ];
        let name = match &m.error {
            Some(error) => {
                annotations.push(text("error", error));
                format!("not moved to CPU {}", m.to)
            }
            None => format!("moved to CPU {}", m.to),
        };
        self.on_thread(p.at.0, self.cast.index_of(m.id), &name, annotations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;
    use std::fmt::Write as _;

    fn decoded(recording: &Recording) -> Trace {
        let mut bytes = Vec::new();
        export(recording, &mut bytes).unwrap();
        Trace::decode(bytes.as_slice()).unwrap()
    }

    #[test]
    fn a_small_trace() {
        let mut shown = String::new();
        for p in decoded(&testdata::small()).packet {
            if let Some(d) = &p.track_descriptor {
                let _ = write!(shown, "track {} in {:?}", d.uuid(), d.parent_uuid);
                let _ = write!(shown, " {:?}", d.name.as_deref().unwrap_or(""));
                if let Some(x) = &d.process {
                    let _ = write!(shown, " process {} {:?}", x.pid(), x.cmdline);
                }
                if let Some(x) = &d.thread {
                    let _ = write!(shown, " thread {}/{} {}", x.pid(), x.tid(), x.thread_name());
                }
                if d.counter.is_some() {
                    shown.push_str(" counter");
                }
            } else if let Some(e) = &p.track_event {
                let _ = write!(shown, "{} {:?} on {}", p.timestamp(), e.r#type(), e.track_uuid());
                if let Some(name) = &e.name {
                    let _ = write!(shown, " {name}");
                }
                if let Some(v) = e.counter_value {
                    let _ = write!(shown, " {v}");
                }
                if let Some(v) = e.double_counter_value {
                    let _ = write!(shown, " {v}");
                }
                for a in &e.debug_annotations {
                    let _ = write!(shown, " {}=", a.name());
                    match (a.uint_value, a.double_value, &a.string_value) {
                        (Some(v), ..) => write!(shown, "{v}").unwrap(),
                        (_, Some(v), _) => write!(shown, "{v}").unwrap(),
                        (_, _, v) => write!(shown, "{v:?}").unwrap(),
                    }
                }
            } else {
                let _ = write!(shown, "flags {:?}", p.sequence_flags);
            }
            shown.push('\n');
        }
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn slices_of_a_track_do_not_overlap_and_tracks_are_described_first() {
        let bytes = testdata::bytes(
            &testdata::header(),
            &testdata::events(50, true),
            &serde_json::Value::Null,
        );
        let mut open: HashMap<u64, u64> = HashMap::new();
        let mut described = std::collections::HashSet::new();
        for p in decoded(&Recording::parse(&bytes).unwrap()).packet {
            if let Some(d) = &p.track_descriptor {
                assert!(described.insert(d.uuid()));
                assert!(d.parent_uuid.is_none_or(|parent| described.contains(&parent)));
            }
            let Some(e) = &p.track_event else { continue };
            assert!(described.contains(&e.track_uuid()));
            let last = open.entry(e.track_uuid()).or_default();
            match e.r#type() {
                EventType::SliceBegin => assert!(p.timestamp() >= *last),
                EventType::SliceEnd => *last = p.timestamp(),
                _ => {}
            }
        }
    }

    /// The bytes of one counter event, as the encoding rules of protobuf and the field numbers of
    /// trace_packet.proto and track_event.proto give them by hand.
    #[test]
    fn bytes_are_those_of_the_format() {
        let packet = TracePacket {
            timestamp: Some(300),
            trusted_packet_sequence_id: Some(1),
            track_event: Some(TrackEvent {
                r#type: Some(EventType::Counter.into()),
                track_uuid: Some(7),
                counter_value: Some(-1),
                ..TrackEvent::default()
            }),
            ..TracePacket::default()
        };
        let event = [&[0x48, 4, 0x58, 7, 0xf0, 0x01][..], &[0xff; 9], &[0x01]].concat();
        let packet_head = [0x0a, 23, 0x40, 0xac, 0x02, 0x50, 0x01, 0x5a, 16];
        let expected = [&packet_head[..], &event].concat();
        let encoded = Trace { packet: vec![packet] }.encode_to_vec();
        assert_eq!(encoded, expected);
    }
}
