//! The lines of `evenly.record/1`, as they are written and as they are read.
//!
//! Invariant: what [`Encoder`] writes, [`Decoder`] reads back as the same events, save that speeds
//! and weights keep four decimals. A thread is named by its number, and the line that gives the number its
//! thread stands before the first line that uses it.

use evenly_engine::{CpuRecord, Event, MoveRecord, PointRecord, ThreadMeta, ThreadRecord};
use evenly_model::{CpuId, CpuSet, DomainId, Nanos, Pid, Reason, ThreadId, Tid, Turns};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;

/// Name and version of the format.
pub const SCHEMA: &str = "evenly.record/1";

/// The longest line, in bytes, that is written or read: a point of some 60,000 threads.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// Bytes of command line that a header keeps.
const MAX_COMMAND_BYTES: usize = 4_096;
/// Entries that each table of a header keeps, and bytes of each value.
const MAX_FACTS: usize = 32;
const MAX_FACT_BYTES: usize = 192;
/// Bytes of a note or an error that are kept.
const MAX_TEXT_BYTES: usize = 4_096;

/// What stands at the head of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of evenly that wrote it.
    pub evenly: String,
    /// The program and its arguments, as observed. Cut after 4,096 bytes.
    #[serde(default)]
    pub command: Vec<String>,
    /// Facts about the machine, by name: `hostname`, `kernel`, `cpu`, ...
    #[serde(default)]
    pub host: BTreeMap<String, String>,
    /// How evenly was set, by name: `policy`, `period`, ...
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Wall-clock time at which balancing began, in milliseconds since 1970-01-01 UTC.
    #[serde(default)]
    pub started_unix_ms: u64,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            evenly: env!("CARGO_PKG_VERSION").to_owned(),
            command: Vec::new(),
            host: BTreeMap::new(),
            settings: BTreeMap::new(),
            started_unix_ms: 0,
        }
    }
}

impl Header {
    /// The same, with everything that has no natural bound cut to one.
    pub(crate) fn bounded(&self) -> Self {
        let mut left = MAX_COMMAND_BYTES;
        let mut command = Vec::new();
        for (i, arg) in self.command.iter().enumerate() {
            let kept = cut(arg, left);
            left -= kept.len();
            command.push(kept.to_owned());
            if kept.len() < arg.len() || (left < 16 && i + 1 < self.command.len()) {
                command.push("\u{2026}".to_owned());
                break;
            }
            left = left.saturating_sub(1);
        }
        let table = |t: &BTreeMap<String, String>| {
            t.iter()
                .take(MAX_FACTS)
                .map(|(k, v)| {
                    (cut(k, MAX_FACT_BYTES).to_owned(), cut(v, MAX_FACT_BYTES).to_owned())
                })
                .collect()
        };
        Self {
            evenly: cut(&self.evenly, MAX_FACT_BYTES).to_owned(),
            command,
            host: table(&self.host),
            settings: table(&self.settings),
            started_unix_ms: self.started_unix_ms,
        }
    }
}

/// The longest beginning of `text` that has at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A speed or a weight with four decimals: finer than any clock that it was measured with.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HeaderLine<'a> {
    #[serde(borrow)]
    pub(crate) schema: Cow<'a, str>,
    #[serde(flatten)]
    pub(crate) header: Header,
}

/// One row of an array of arrays. Elements behind those that are known are ignored, as unknown
/// fields of an object are, so that later versions can add some.
struct Row<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Row<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct RowVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for RowVisitor<T> {
            type Value = Row<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array with the values of one row")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Row<T>, A::Error> {
                let row = T::deserialize(SeqAccessDeserializer::new(&mut seq))?;
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Row(row))
            }
        }
        d.deserialize_seq(RowVisitor(PhantomData))
    }
}

/// A row of a thread, as it is read.
#[derive(Deserialize)]
#[serde(expecting = "a row of 8, 9 or 15 elements")]
struct ThreadRow {
    thread: u32,
    cpu: CpuId,
    progress: i64,
    ran: Nanos,
    waited: Nanos,
    blocked: Nanos,
    minor: u64,
    major: u64,
    /// Absent where threads do not report their waiting.
    #[serde(default)]
    spinning: Option<Nanos>,
    /// Their turns: all of these, or none.
    #[serde(default)]
    phases: Option<u64>,
    #[serde(default)]
    waits: Option<u64>,
    #[serde(default)]
    runnable: Option<Nanos>,
    #[serde(default)]
    waited_for_others: Option<Nanos>,
    #[serde(default)]
    computed: Option<Nanos>,
    #[serde(default)]
    spun: Option<Nanos>,
}

impl ThreadRow {
    fn turns(&self) -> Option<Turns> {
        Some(Turns {
            phases: self.phases?,
            waits: self.waits?,
            runnable: self.runnable?,
            waited: self.waited_for_others?,
            computed: self.computed?,
            spun: self.spun?,
        })
    }
}

/// The same in this order, as it is written.
type PlainRow = (u32, CpuId, i64, Nanos, Nanos, Nanos, u64, u64);
/// With what is known of its waiting and of its turns.
#[rustfmt::skip]
type TurnsRow = (
    u32, CpuId, i64, Nanos, Nanos, Nanos, u64, u64, Option<Nanos>,
    u64, u64, Nanos, Nanos, Nanos, Nanos,
);

#[derive(Serialize)]
#[serde(untagged)]
enum ThreadRowOut {
    Plain(PlainRow),
    #[allow(clippy::type_complexity, reason = "a row as it stands in the file")]
    Spinning(u32, CpuId, i64, Nanos, Nanos, Nanos, u64, u64, Nanos),
    Turns(TurnsRow),
}

impl ThreadRowOut {
    fn new(row: PlainRow, spinning: Option<Nanos>, turns: Option<Turns>) -> Self {
        let (thread, cpu, progress, ran, waited, blocked, minor, major) = row;
        match (spinning, turns) {
            (None, None) => Self::Plain(row),
            (Some(s), None) => {
                Self::Spinning(thread, cpu, progress, ran, waited, blocked, minor, major, s)
            }
            (s, Some(t)) => Self::Turns((
                thread, cpu, progress, ran, waited, blocked, minor, major, s, t.phases, t.waits,
                t.runnable, t.waited, t.computed, t.spun,
            )),
        }
    }
}

/// A CPU, how many threads it has, and its speed.
type CpuRow = (CpuId, u32, Option<f64>);
/// thread, from, to, reason, error.
type MoveRow<'a> = (u32, CpuId, CpuId, Reason, Option<Cow<'a, str>>);

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum LineOut<'a> {
    Thread {
        thread: u32,
        tid: Tid,
        start: u64,
    },
    Domain {
        at: Nanos,
        domain: DomainId,
        cpus: &'a CpuSet,
    },
    Joined {
        at: Nanos,
        domain: DomainId,
        thread: u32,
        pid: Pid,
        name: &'a str,
    },
    Left {
        at: Nanos,
        thread: u32,
        ended: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<DomainId>,
    },
    Point {
        domain: DomainId,
        point: u64,
        at: Nanos,
        elapsed: Nanos,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        paused: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        held: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        spins_progress: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        agents: bool,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        others: &'a [u32],
        #[serde(skip_serializing_if = "Option::is_none")]
        arm: Option<&'a str>,
        cost: Nanos,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        threads: &'a [ThreadRowOut],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        cpus: &'a [CpuRow],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        moves: &'a [MoveRow<'a>],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        weights: &'a [(u32, f64)],
    },
    Note {
        at: Nanos,
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        keep_every: Option<u64>,
    },
    End {
        points: u64,
        dropped: u64,
        thinned: u64,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        summary_left_out: bool,
        summary: &'a serde_json::Value,
    },
}

/// Turns events into lines.
#[derive(Default)]
pub(crate) struct Encoder {
    numbers: HashMap<ThreadId, u32>,
    next: u32,
    threads: Vec<ThreadRowOut>,
    cpus: Vec<CpuRow>,
}

/// A state of an [`Encoder`] to which it can go back when a line is not written after all.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u32);

impl Encoder {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Forgets the numbers given since the mark: the lines that define them were not written.
    pub(crate) fn go_back(&mut self, mark: Mark) {
        if self.next != mark.0 {
            self.numbers.retain(|_, number| *number < mark.0);
            self.next = mark.0;
        }
    }

    fn number(&mut self, id: ThreadId, out: &mut Vec<u8>) -> serde_json::Result<u32> {
        if let Some(&number) = self.numbers.get(&id) {
            return Ok(number);
        }
        let number = self.next;
        line(out, &LineOut::Thread { thread: number, tid: id.tid, start: id.start })?;
        self.numbers.insert(id, number);
        self.next += 1;
        Ok(number)
    }

    /// Appends the lines of one event.
    pub(crate) fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match event {
            Event::Domain { at, domain, cpus } => {
                line(out, &LineOut::Domain { at: *at, domain: *domain, cpus })
            }
            Event::Joined { at, domain, thread } => {
                let number = self.number(thread.id, out)?;
                line(
                    out,
                    &LineOut::Joined {
                        at: *at,
                        domain: *domain,
                        thread: number,
                        pid: thread.pid,
                        name: cut(&thread.name, MAX_TEXT_BYTES),
                    },
                )
            }
            Event::Left { at, id, ended, to } => {
                let thread = self.number(*id, out)?;
                line(out, &LineOut::Left { at: *at, thread, ended: *ended, to: *to })?;
                if *ended {
                    // Programs that start thousands of threads a second must not fill the memory.
                    self.numbers.remove(id);
                }
                Ok(())
            }
            Event::Point(point) => self.point(point, out),
            Event::Note { at, text } => line(
                out,
                &LineOut::Note { at: *at, text: cut(text, MAX_TEXT_BYTES), keep_every: None },
            ),
        }
    }

    fn point(&mut self, p: &PointRecord, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let mut threads = std::mem::take(&mut self.threads);
        threads.clear();
        for t in &p.threads {
            let row = (
                self.number(t.id, out)?,
                t.cpu,
                t.progress,
                t.ran,
                t.waited,
                t.blocked,
                t.minor_faults,
                t.major_faults,
            );
            threads.push(ThreadRowOut::new(row, t.spinning, t.turns));
        }
        self.cpus.clear();
        self.cpus.extend(p.cpus.iter().map(|c| (c.id, c.threads, c.speed.map(rounded))));
        let moves = self.moves(&p.moves, out)?;
        let weights: Vec<(u32, f64)> = (p.weights.iter())
            .map(|&(id, weight)| Ok((self.number(id, out)?, rounded(weight))))
            .collect::<serde_json::Result<_>>()?;
        let written = line(
            out,
            &LineOut::Point {
                domain: p.domain,
                point: p.point,
                at: p.at,
                elapsed: p.elapsed,
                paused: p.paused,
                held: p.held,
                spins_progress: p.spins_progress,
                agents: p.agents,
                others: &p.others,
                arm: p.arm.as_deref().map(|arm| cut(arm, MAX_FACT_BYTES)),
                cost: p.cost,
                threads: &threads,
                cpus: &self.cpus,
                moves: &moves,
                weights: &weights,
            },
        );
        self.threads = threads;
        written
    }

    fn moves<'a>(
        &mut self,
        moves: &'a [MoveRecord],
        out: &mut Vec<u8>,
    ) -> serde_json::Result<Vec<MoveRow<'a>>> {
        moves
            .iter()
            .map(|m| {
                let error = m.error.as_deref().map(|e| Cow::Borrowed(cut(e, MAX_TEXT_BYTES)));
                Ok((self.number(m.id, out)?, m.from, m.to, m.reason, error))
            })
            .collect()
    }

    /// Appends the line that says that from here on only every `keep_every`th point is kept.
    pub(crate) fn thinning(
        at: Nanos,
        keep_every: u64,
        out: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let text = format!(
            "the recording nears its size limit: from here on it keeps every {keep_every}th point"
        );
        let text = text.replace(" 2th ", " 2nd ");
        line(out, &LineOut::Note { at, text: &text, keep_every: Some(keep_every) })
    }
}

/// Appends the first line.
pub(crate) fn header(header: &Header, out: &mut Vec<u8>) -> serde_json::Result<()> {
    line(out, &HeaderLine { schema: Cow::Borrowed(SCHEMA), header: header.clone() })
}

/// What the last line counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) points: u64,
    pub(crate) dropped: u64,
    pub(crate) thinned: u64,
}

/// Appends the last line; without a summary where that is None because it was too long.
pub(crate) fn end(
    counts: Counts,
    summary: Option<&serde_json::Value>,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    line(
        out,
        &LineOut::End {
            points: counts.points,
            dropped: counts.dropped,
            thinned: counts.thinned,
            summary_left_out: summary.is_none(),
            summary: summary.unwrap_or(&serde_json::Value::Null),
        },
    )
}

fn line<T: Serialize>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.push(b'\n');
    Ok(())
}

/// Which kind of line it is: read first, because reading by kind is faster than buffering.
#[derive(Deserialize)]
struct KindIn<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ThreadIn {
    thread: u32,
    tid: Tid,
    start: u64,
}

#[derive(Deserialize)]
struct DomainIn {
    at: Nanos,
    domain: DomainId,
    cpus: CpuSet,
}

#[derive(Deserialize)]
struct JoinedIn {
    at: Nanos,
    domain: DomainId,
    thread: u32,
    pid: Pid,
    name: String,
}

#[derive(Deserialize)]
struct LeftIn {
    at: Nanos,
    thread: u32,
    ended: bool,
    #[serde(default)]
    to: Option<DomainId>,
}

#[derive(Deserialize)]
struct PointIn<'a> {
    domain: DomainId,
    point: u64,
    at: Nanos,
    elapsed: Nanos,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    held: bool,
    #[serde(default)]
    spins_progress: bool,
    #[serde(default)]
    agents: bool,
    #[serde(default)]
    others: Vec<u32>,
    #[serde(default)]
    arm: Option<String>,
    cost: Nanos,
    #[serde(default)]
    threads: Vec<Row<ThreadRow>>,
    #[serde(default)]
    cpus: Vec<Row<CpuRow>>,
    #[serde(default, borrow)]
    moves: Vec<Row<MoveRow<'a>>>,
    #[serde(default)]
    weights: Vec<Row<(u32, f64)>>,
}

#[derive(Deserialize)]
struct NoteIn {
    at: Nanos,
    text: String,
    #[serde(default)]
    keep_every: Option<u64>,
}

#[derive(Deserialize)]
struct EndIn {
    points: u64,
    dropped: u64,
    thinned: u64,
    #[serde(default)]
    summary: serde_json::Value,
}

/// What one line says.
pub(crate) enum Line {
    /// Something that has happened.
    Event(Event),
    /// From here on one point of `keep_every` is kept; `text` says so.
    Thinning { at: Nanos, keep_every: u64, text: String },
    /// A thread got its number.
    Numbered,
    /// The last line, with what there was in all.
    End { counts: Counts, summary: serde_json::Value },
    /// A kind that this version does not know.
    Unknown,
}

/// Why a line is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// Not the JSON that it should be.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A thread number that no line before has defined.
    #[error(
        "thread number {found} has no thread line before it (there are {known} so far); each \
         thread needs one before it is used"
    )]
    Thread { found: u32, known: usize },
    /// A thread line out of sequence.
    #[error("this thread line has number {found}, and the next number is {needed}")]
    Sequence { found: u32, needed: usize },
    /// A CPU that cannot be.
    #[error("CPU {found} is out of range, the largest that is accepted is 16383")]
    Cpu { found: u32 },
    /// Only every zeroth point was to be kept.
    #[error("keep_every is 0, and it must be at least 1")]
    KeepEvery,
}

/// Turns lines into events.
#[derive(Default)]
pub(crate) struct Decoder {
    ids: Vec<ThreadId>,
}

/// One above the largest CPU number that is read: the bound that the model sets for CPU sets.
const MAX_CPUS: u32 = 16_384;

fn checked(cpu: CpuId) -> Result<CpuId, LineError> {
    if cpu.0 < MAX_CPUS { Ok(cpu) } else { Err(LineError::Cpu { found: cpu.0 }) }
}

impl Decoder {
    fn id(&self, number: u32) -> Result<ThreadId, LineError> {
        self.ids
            .get(number as usize)
            .copied()
            .ok_or(LineError::Thread { found: number, known: self.ids.len() })
    }

    /// Reads one line, without its line end.
    pub(crate) fn line(&mut self, bytes: &[u8]) -> Result<Line, LineError> {
        let kind: KindIn<'_> = serde_json::from_slice(bytes)?;
        Ok(match kind.event.as_ref() {
            "point" => Line::Event(Event::Point(self.point(serde_json::from_slice(bytes)?)?)),
            "thread" => {
                let t: ThreadIn = serde_json::from_slice(bytes)?;
                if t.thread as usize != self.ids.len() {
                    return Err(LineError::Sequence { found: t.thread, needed: self.ids.len() });
                }
                self.ids.push(ThreadId { tid: t.tid, start: t.start });
                Line::Numbered
            }
            "domain" => {
                let d: DomainIn = serde_json::from_slice(bytes)?;
                Line::Event(Event::Domain { at: d.at, domain: d.domain, cpus: d.cpus })
            }
            "joined" => {
                let j: JoinedIn = serde_json::from_slice(bytes)?;
                let thread = ThreadMeta { id: self.id(j.thread)?, pid: j.pid, name: j.name };
                Line::Event(Event::Joined { at: j.at, domain: j.domain, thread })
            }
            "left" => {
                let l: LeftIn = serde_json::from_slice(bytes)?;
                let id = self.id(l.thread)?;
                Line::Event(Event::Left { at: l.at, id, ended: l.ended, to: l.to })
            }
            "note" => {
                let n: NoteIn = serde_json::from_slice(bytes)?;
                match n.keep_every {
                    Some(0) => return Err(LineError::KeepEvery),
                    Some(keep_every) => Line::Thinning { at: n.at, keep_every, text: n.text },
                    None => Line::Event(Event::Note { at: n.at, text: n.text }),
                }
            }
            "end" => {
                let e: EndIn = serde_json::from_slice(bytes)?;
                let counts = Counts { points: e.points, dropped: e.dropped, thinned: e.thinned };
                Line::End { counts, summary: e.summary }
            }
            _ => Line::Unknown,
        })
    }

    fn point(&self, p: PointIn<'_>) -> Result<PointRecord, LineError> {
        Ok(PointRecord {
            domain: p.domain,
            point: p.point,
            at: p.at,
            elapsed: p.elapsed,
            paused: p.paused,
            held: p.held,
            spins_progress: p.spins_progress,
            agents: p.agents,
            others: p.others,
            arm: p.arm,
            cost: p.cost,
            threads: p
                .threads
                .into_iter()
                .map(|Row(t)| {
                    let turns = t.turns();
                    let ThreadRow { progress, ran, waited, blocked, spinning, .. } = t;
                    Ok(ThreadRecord {
                        id: self.id(t.thread)?,
                        cpu: checked(t.cpu)?,
                        progress,
                        ran,
                        waited,
                        blocked,
                        spinning,
                        turns,
                        minor_faults: t.minor,
                        major_faults: t.major,
                    })
                })
                .collect::<Result<_, LineError>>()?,
            cpus: p
                .cpus
                .into_iter()
                .map(|Row((id, threads, speed))| Ok(CpuRecord { id: checked(id)?, threads, speed }))
                .collect::<Result<_, LineError>>()?,
            moves: p
                .moves
                .into_iter()
                .map(|Row((thread, from, to, reason, error))| {
                    Ok(MoveRecord {
                        id: self.id(thread)?,
                        from: checked(from)?,
                        to: checked(to)?,
                        reason,
                        error: error.map(Cow::into_owned),
                    })
                })
                .collect::<Result<_, LineError>>()?,
            weights: p
                .weights
                .into_iter()
                .map(|Row((thread, weight))| Ok((self.id(thread)?, weight)))
                .collect::<Result<_, LineError>>()?,
        })
    }
}
