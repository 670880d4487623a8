//! Writing a recording without holding up the balancer.
//!
//! A [`RecorderHandle`] copies each event into a queue and returns; a thread of its own turns the
//! queue into lines. Invariants:
//!
//! - A handle never waits. The queue is bounded in bytes; past the bound points are lost, and
//!   counted. Events that are not points are rare and identify threads, so they may use twice as much.
//! - The writer does not wake for each event: it looks into the queue a few times a second, so that
//!   it takes no CPU from the program at the very moments at which the balancer moved something.
//!   Only a queue that is half full wakes it.
//! - The file never grows past its limit. Up to half of it every point is kept. From there on every
//!   2nd, 4th, 8th... point, each stage getting a 32nd of the limit, so that each lasts twice as
//!   long as the one before it and a run of any length fits.

use crate::format::{self, Counts, Encoder, Header, MAX_LINE_BYTES};
use crate::reader::RecordError;
use evenly_engine::{Event, MoveRecord, Observer, PointRecord, ThreadRecord};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// The size of a recording where nothing else is asked for: 64 MiB.
pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

/// The smallest limit that leaves room for the longest header and something behind it: 256 KiB.
pub const MIN_LIMIT_BYTES: u64 = 256 << 10;

/// Bytes of points that may wait in the queue.
const QUEUE_BYTES: usize = 16 << 20;

/// How often the writer looks into the queue.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// From this stage on (every 16th point kept) the moves of points left out are left out as well:
/// else they alone would fill the file.
const MOVES_UP_TO: u64 = 8;

/// How a recording is made.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// The size in bytes that the file never exceeds; at least [`MIN_LIMIT_BYTES`].
    pub limit_bytes: u64,
    /// What stands at its head.
    pub header: Header,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self { limit_bytes: DEFAULT_LIMIT_BYTES, header: Header::default() }
    }
}

/// What became of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordStats {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Points written, those with nothing but their moves included.
    pub points: u64,
    /// Events lost because the writer could not keep up, or because the size limit was reached.
    pub dropped: u64,
    /// Points left out, or kept with their moves only, because the size limit was near.
    pub thinned: u64,
}

enum Message {
    Event(Event, usize),
    Finish(serde_json::Value),
    Abandon,
}

/// What handles and writer share.
#[derive(Default)]
struct Shared {
    /// Bytes of events in the queue. Relaxed suffices: it is a count, and publishes nothing; the
    /// channel orders the events themselves.
    queued: AtomicUsize,
    dropped: AtomicU64,
    /// Whether the writer has been notified that the queue fills. Relaxed: a wake-up too many or a look
    /// later does no harm.
    woken: AtomicBool,
    /// Whether writing has failed, so that points need not be built any more.
    failed: AtomicBool,
}

/// Writes the events of a run to a recording.
pub struct Recorder {
    path: PathBuf,
    sender: Sender<Message>,
    shared: Arc<Shared>,
    queue_bytes: usize,
    writer: Option<JoinHandle<io::Result<RecordStats>>>,
}

impl Recorder {
    /// Creates the file, or empties it, and writes the head of the recording.
    ///
    /// # Errors
    /// Where the file cannot be created or written, the limit is less than [`MIN_LIMIT_BYTES`], or
    /// no thread can be started.
    pub fn create(path: &Path, options: RecorderOptions) -> io::Result<Self> {
        if options.limit_bytes < MIN_LIMIT_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the size limit of the recording is {} bytes, and at least {MIN_LIMIT_BYTES} \
                     are needed",
                    options.limit_bytes
                ),
            ));
        }
        Self::start(path, File::create(path)?, &options, QUEUE_BYTES)
    }

    fn start<W: Write + Send + 'static>(
        path: &Path,
        out: W,
        options: &RecorderOptions,
        queue_bytes: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (sender, queue) = channel();
        let mut writer = Writer::new(out, options.limit_bytes, Arc::clone(&shared));
        writer.header(&options.header)?;
        let thread = thread::Builder::new()
            .name("evenly-record".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok(Self { path: path.to_owned(), sender, shared, queue_bytes, writer: Some(thread) })
    }

    /// An observer that feeds this recording. Each balancer has its own.
    #[must_use]
    pub fn handle(&self) -> RecorderHandle {
        RecorderHandle {
            sender: self.sender.clone(),
            shared: Arc::clone(&self.shared),
            queue_bytes: self.queue_bytes,
            writer: self.writer.as_ref().map(|w| w.thread().clone()),
        }
    }

    /// Writes what is queued and the end record, and closes the file. Events that handles give
    /// later are ignored.
    ///
    /// # Errors
    /// [`RecordError::Write`] where something could not be written, now or before.
    pub fn finish(mut self, summary: serde_json::Value) -> Result<RecordStats, RecordError> {
        self.stop(Message::Finish(summary))
            .map_err(|source| RecordError::Write { path: self.path.clone(), source })
    }

    fn stop(&mut self, last: Message) -> io::Result<RecordStats> {
        let Some(writer) = self.writer.take() else { return Ok(RecordStats::default()) };
        // The send fails only if the writer has ended, and joining it returns why.
        let _ = self.sender.send(last);
        writer.thread().unpark();
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer thread has panicked")))
    }
}

impl Drop for Recorder {
    /// Writes what is queued, without an end record: readers see that the run did not finish.
    fn drop(&mut self) {
        // A failure can no longer be returned.
        let _ = self.stop(Message::Abandon);
    }
}

/// Feeds a recording; made by [`Recorder::handle`].
#[derive(Clone)]
pub struct RecorderHandle {
    sender: Sender<Message>,
    shared: Arc<Shared>,
    queue_bytes: usize,
    writer: Option<Thread>,
}

impl Observer for RecorderHandle {
    fn event(&mut self, event: &Event) {
        let size = weight(event);
        let before = self.shared.queued.fetch_add(size, Ordering::Relaxed);
        let bound = match event {
            Event::Point(_) => self.queue_bytes,
            _ => self.queue_bytes.saturating_mul(2),
        };
        // An empty queue takes anything: else an event above the bound could never be recorded.
        let fits = before == 0 || before.saturating_add(size) <= bound;
        if !fits || self.sender.send(Message::Event(event.clone(), size)).is_err() {
            self.shared.queued.fetch_sub(size, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if before.saturating_add(size) > self.queue_bytes / 2
            && !self.shared.woken.swap(true, Ordering::Relaxed)
            && let Some(writer) = &self.writer
        {
            writer.unpark();
        }
    }

    fn wants_points(&self) -> bool {
        !self.shared.failed.load(Ordering::Relaxed)
    }
}

/// Bytes that an event takes in the queue.
fn weight(event: &Event) -> usize {
    let own = match event {
        Event::Point(p) => {
            p.threads.len() * size_of::<ThreadRecord>()
                + p.cpus.len() * size_of::<evenly_engine::CpuRecord>()
                + p.moves
                    .iter()
                    .map(|m| size_of::<MoveRecord>() + m.error.as_ref().map_or(0, String::len))
                    .sum::<usize>()
                + p.weights.len() * size_of::<(evenly_model::ThreadId, f64)>()
        }
        Event::Joined { thread, .. } => thread.name.len(),
        Event::Note { text, .. } => text.len(),
        Event::Domain { cpus, .. } => size_of_val(cpus.words()),
        Event::Left { .. } => 0,
    };
    size_of::<Message>() + own
}

/// What became of one event in the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Written,
    /// No reader would accept its line.
    TooLong,
    /// The file is full: nothing of its kind is tried again.
    Full,
}

struct Writer<W: Write> {
    out: BufWriter<W>,
    shared: Arc<Shared>,
    encoder: Encoder,
    line: Vec<u8>,
    limit: u64,
    written: u64,
    keep_every: u64,
    /// Whether a point, and whether another event, did no longer fit.
    points_full: bool,
    full: bool,
    counts: Counts,
}

impl<W: Write> Writer<W> {
    fn new(out: W, limit: u64, shared: Arc<Shared>) -> Self {
        Self {
            out: BufWriter::with_capacity(64 << 10, out),
            shared,
            encoder: Encoder::default(),
            line: Vec::new(),
            limit,
            written: 0,
            keep_every: 1,
            points_full: false,
            full: false,
            counts: Counts::default(),
        }
    }

    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.line.clear();
        format::header(&header.bounded(), &mut self.line)?;
        self.put()?;
        self.out.flush()
    }

    fn run(mut self, queue: &Receiver<Message>) -> io::Result<RecordStats> {
        let result = self.drain(queue);
        if result.is_err() {
            self.shared.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn drain(&mut self, queue: &Receiver<Message>) -> io::Result<RecordStats> {
        loop {
            match queue.try_recv() {
                Ok(Message::Event(event, size)) => {
                    self.shared.queued.fetch_sub(size, Ordering::Relaxed);
                    self.event(event)?;
                }
                Ok(Message::Finish(summary)) => {
                    self.end(&summary)?;
                    return self.stats();
                }
                Ok(Message::Abandon) | Err(TryRecvError::Disconnected) => return self.stats(),
                Err(TryRecvError::Empty) => {
                    // What is in the file survives a kill; what is in the buffer does not.
                    self.out.flush()?;
                    self.shared.woken.store(false, Ordering::Relaxed);
                    thread::park_timeout(LOOK_EVERY);
                }
            }
        }
    }

    fn stats(&mut self) -> io::Result<RecordStats> {
        self.out.flush()?;
        Ok(RecordStats {
            bytes: self.written,
            points: self.counts.points,
            dropped: self.counts.dropped + self.shared.dropped.load(Ordering::Relaxed),
            thinned: self.counts.thinned,
        })
    }

    /// Bytes kept free for events that are not points, and for the summary in the end record.
    fn reserve(&self) -> u64 {
        (self.limit / 8).min(4 << 20)
    }

    fn event(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Point(point) => self.point(point),
            other => {
                let limit = self.limit - self.reserve() / 2;
                let fate = if self.full { Fate::Full } else { self.write(&other, limit)? };
                self.full = fate == Fate::Full;
                self.counts.dropped += u64::from(fate != Fate::Written);
                Ok(())
            }
        }
    }

    fn point(&mut self, mut point: PointRecord) -> io::Result<()> {
        let at = point.at;
        if !point.point.is_multiple_of(self.keep_every) {
            self.counts.thinned += 1;
            let decided = !point.moves.is_empty() || !point.weights.is_empty();
            if !decided || self.keep_every > MOVES_UP_TO {
                return Ok(());
            }
            point.threads.clear();
            point.cpus.clear();
        }
        let limit = self.limit - self.reserve();
        let fate =
            if self.points_full { Fate::Full } else { self.write(&Event::Point(point), limit)? };
        self.points_full = fate == Fate::Full;
        if fate != Fate::Written {
            self.counts.dropped += 1;
            return Ok(());
        }
        self.counts.points += 1;
        self.thin(at)
    }

    /// Keeps fewer points from here on, if the next stage is reached.
    fn thin(&mut self, at: evenly_model::Nanos) -> io::Result<()> {
        let stage = u64::from(self.keep_every.trailing_zeros());
        if self.written > self.limit / 2 + stage * (self.limit / 32) && stage < 32 {
            self.keep_every *= 2;
            self.line.clear();
            Encoder::thinning(at, self.keep_every, &mut self.line)?;
            self.put()?;
        }
        Ok(())
    }

    /// Writes an event unless the file would grow past `limit`.
    fn write(&mut self, event: &Event, limit: u64) -> io::Result<Fate> {
        self.line.clear();
        let mark = self.encoder.mark();
        self.encoder.event(event, &mut self.line)?;
        let longest = self.line.split(|&b| b == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        let fate = if longest > MAX_LINE_BYTES {
            Fate::TooLong
        } else if self.written + self.line.len() as u64 > limit {
            Fate::Full
        } else {
            Fate::Written
        };
        if fate == Fate::Written {
            self.put()?;
        } else {
            self.encoder.go_back(mark);
        }
        Ok(fate)
    }

    fn end(&mut self, summary: &serde_json::Value) -> io::Result<()> {
        let counts = Counts {
            dropped: self.counts.dropped + self.shared.dropped.load(Ordering::Relaxed),
            ..self.counts
        };
        self.line.clear();
        format::end(counts, Some(summary), &mut self.line)?;
        let too_long = self.written + self.line.len() as u64 > self.limit;
        if too_long || self.line.len() > MAX_LINE_BYTES {
            self.line.clear();
            format::end(counts, None, &mut self.line)?;
        }
        self.put()
    }

    fn put(&mut self) -> io::Result<()> {
        self.out.write_all(&self.line)?;
        self.written += self.line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Recording;
    use crate::testdata;
    use evenly_model::Nanos;
    use std::sync::{Condvar, Mutex};

    fn options(limit_bytes: u64) -> RecorderOptions {
        RecorderOptions { limit_bytes, header: testdata::header() }
    }

    #[test]
    fn what_is_recorded_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let recorder = Recorder::create(&path, options(DEFAULT_LIMIT_BYTES)).unwrap();
        let events = testdata::events(40, true);
        let mut handle = recorder.handle();
        assert!(handle.wants_points());
        events.iter().for_each(|e| handle.event(e));
        let summary = serde_json::json!({"ok": true});
        let stats = recorder.finish(summary.clone()).unwrap();
        let recording = Recording::read(&path).unwrap();
        assert_eq!(recording.events, events);
        assert_eq!(recording.header, testdata::header());
        assert_eq!(recording.end.unwrap().summary, summary);
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert_eq!(stats, RecordStats { bytes, points: 40, dropped: 0, thinned: 0 });
        // A handle that is still there does no harm.
        handle.event(&events[0]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    }

    #[test]
    fn several_balancers_share_a_recording() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let recorder = Recorder::create(&path, options(DEFAULT_LIMIT_BYTES)).unwrap();
        let balancers: Vec<_> = (0..4)
            .map(|domain| {
                let mut handle = recorder.handle();
                thread::spawn(move || {
                    for mut e in testdata::events(200, true) {
                        if let Event::Point(p) = &mut e {
                            p.domain = evenly_model::DomainId(domain);
                        }
                        handle.event(&e);
                    }
                })
            })
            .collect();
        balancers.into_iter().for_each(|b| b.join().unwrap());
        let stats = recorder.finish(serde_json::Value::Null).unwrap();
        assert_eq!((stats.points, stats.dropped), (800, 0));
        let recording = Recording::read(&path).unwrap();
        for domain in 0..4 {
            let numbers: Vec<u64> = recording
                .events
                .iter()
                .filter_map(|e| match e {
                    Event::Point(p) if p.domain.0 == domain => Some(p.point),
                    _ => None,
                })
                .collect();
            assert_eq!(numbers, (0..200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_limit_holds_and_the_file_covers_the_whole_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let mut recorder = Recorder::create(&path, options(MIN_LIMIT_BYTES)).unwrap();
        // Everything may wait: what is to be seen here is the writer's choice.
        recorder.queue_bytes = usize::MAX / 4;
        let events = testdata::events(20_000, false);
        let mut handle = recorder.handle();
        events.iter().for_each(|e| handle.event(e));
        let stats = recorder.finish(serde_json::json!({"s": "x"})).unwrap();
        assert!(stats.bytes <= MIN_LIMIT_BYTES, "{stats:?}");
        assert_eq!(stats.points + stats.thinned + stats.dropped, 20_000, "{stats:?}");
        assert_eq!(stats.dropped, 0, "{stats:?}");
        let recording = Recording::read(&path).unwrap();
        assert!(!recording.thinning.is_empty());
        let every: Vec<u64> = recording.thinning.iter().map(|t| t.keep_every).collect();
        let powers: Vec<u64> = (1..=every.len() as u32).map(|i| 1 << i).collect();
        assert_eq!(every, powers);
        let last = recording.events.iter().rev().find_map(|e| match e {
            Event::Point(p) => Some(p.point),
            _ => None,
        });
        assert!(last.unwrap() > 19_000, "{last:?}");
        assert_eq!(recording.end.unwrap().summary["s"], "x");
    }

    #[test]
    fn a_full_file_still_ends_well() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let mut recorder = Recorder::create(&path, options(MIN_LIMIT_BYTES)).unwrap();
        recorder.queue_bytes = usize::MAX / 4;
        let mut handle = recorder.handle();
        let long = Event::Note { at: Nanos(1), text: "n".repeat(4_000) };
        for (i, e) in testdata::events(30_000, true).iter().enumerate() {
            handle.event(e);
            if i % 100 == 0 {
                handle.event(&long);
            }
        }
        let big = serde_json::json!({"s": "x".repeat(MIN_LIMIT_BYTES as usize)});
        let stats = recorder.finish(big).unwrap();
        assert!(stats.bytes <= MIN_LIMIT_BYTES && stats.dropped > 0, "{stats:?}");
        let recording = Recording::read(&path).unwrap();
        let end = recording.end.unwrap();
        assert_eq!((end.summary, end.dropped), (serde_json::Value::Null, stats.dropped));
    }

    /// A file that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Stuck(Arc<(Mutex<bool>, Condvar)>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (open, changed) = &*self.0;
            if !self.1.lock().unwrap().is_empty() {
                drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            }
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_is_stuck_costs_points_but_never_holds_up_the_balancer() {
        let stuck = Stuck::default();
        let options = options(DEFAULT_LIMIT_BYTES);
        let recorder =
            Recorder::start(Path::new("stuck"), stuck.clone(), &options, 64 << 10).unwrap();
        let mut handle = recorder.handle();
        let events = testdata::events(20_000, false);
        // Returns although nothing is taken: if a handle waited, this test would not end.
        events.iter().for_each(|e| handle.event(e));
        *stuck.0.0.lock().unwrap() = true;
        stuck.0.1.notify_all();
        let stats = recorder.finish(serde_json::Value::Null).unwrap();
        assert!(stats.dropped > 10_000, "{stats:?}");
        let recording = Recording::parse(&stuck.1.lock().unwrap()).unwrap();
        assert_eq!(recording.end.as_ref().unwrap().dropped, stats.dropped);
        assert_eq!(stats.points + stats.dropped, 20_000);
        // The events that identify threads got through.
        let left = recording.events.iter().filter(|e| matches!(e, Event::Left { .. })).count();
        assert_eq!(left, 3);
    }

    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end_and_points_are_no_longer_wanted() {
        let options = options(DEFAULT_LIMIT_BYTES);
        let recorder =
            Recorder::start(Path::new("/tmp/full.rec"), Full(1), &options, QUEUE_BYTES).unwrap();
        let mut handle = recorder.handle();
        testdata::events(10, false).iter().for_each(|e| handle.event(e));
        let e = recorder.finish(serde_json::Value::Null).unwrap_err().to_string();
        assert!(e.starts_with("cannot write the recording /tmp/full.rec: "), "{e}");
        assert!(!handle.wants_points());
    }

    #[test]
    fn a_recorder_that_is_dropped_leaves_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let recorder = Recorder::create(&path, options(DEFAULT_LIMIT_BYTES)).unwrap();
        let mut handle = recorder.handle();
        let events = testdata::events(5, true);
        events.iter().for_each(|e| handle.event(e));
        drop(recorder);
        let recording = Recording::read(&path).unwrap();
        assert_eq!(recording.events, events);
        assert!(recording.end.is_none() && !recording.truncated);
    }

    #[test]
    fn bad_wishes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let e = Recorder::create(&path, options(1_000)).err().unwrap().to_string();
        assert!(e.contains("1000 bytes, and at least 262144"), "{e}");
        assert!(!path.exists());
        let nowhere = dir.path().join("no/x.rec");
        let e = Recorder::create(&nowhere, RecorderOptions::default()).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_longest_header_fits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rec");
        let table: std::collections::BTreeMap<String, String> = (0..1_000)
            .map(|i| (format!("{}{i}", "\u{1}".repeat(400)), "\u{1}".repeat(400)))
            .collect();
        let header = Header {
            command: vec!["\u{1}".repeat(10_000), "z".to_owned()],
            host: table.clone(),
            settings: table,
            ..testdata::header()
        };
        let options = RecorderOptions { limit_bytes: MIN_LIMIT_BYTES, header };
        let stats = Recorder::create(&path, options).unwrap().finish(serde_json::Value::Null);
        assert!(stats.unwrap().bytes < MIN_LIMIT_BYTES);
        let command = Recording::read(&path).unwrap().header.command;
        assert_eq!((command.len(), command[0].len(), command[1].as_str()), (2, 4_096, "\u{2026}"));
    }
}
