//! Reading a recording.
//!
//! Invariant: a [`Recording`] is consistent in itself: each thread that an event names was defined,
//! each CPU number is one that a kernel can have. What a killed writer left behind can be read; what
//! was damaged in another way is refused, with its line.

use crate::format::{Decoder, Header, HeaderLine, Line, MAX_LINE_BYTES, SCHEMA};
use evenly_engine::Event;
use evenly_model::{Nanos, printable};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file, in bytes, that is read.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// The greatest number of lines that is read.
pub const MAX_LINES: usize = 16_000_000;

/// The greatest number of thinning notes that is read; a writer makes at most 32.
const MAX_THINNINGS: usize = 64;

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refused to open or read it.
    #[error("cannot read the recording {}: {source}", path.display())]
    Read {
        /// The recording that cannot be read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused to write it.
    #[error("cannot write the recording {}: {source}", path.display())]
    Write {
        /// The recording that cannot be written.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// More bytes than are accepted.
    #[error("the recording has {found} bytes, and at most {MAX_FILE_BYTES} are read")]
    TooLong {
        /// How many bytes the file has.
        found: u64,
    },
    /// More lines than are accepted.
    #[error("the recording has more than {MAX_LINES} lines, the most that are read")]
    TooManyLines,
    /// A line longer than is accepted.
    #[error(
        "line {line} of the recording has {found} bytes, and at most {MAX_LINE_BYTES} are read"
    )]
    LineTooLong {
        /// Number of the line, from 1.
        line: usize,
        /// How many bytes the line has.
        found: usize,
    },
    /// Nothing there, or not even a whole first line.
    #[error(
        "the recording has no complete first line: its writer was stopped before it began, or it \
         is not a recording; make one with 'evenly run --record FILE'"
    )]
    Empty,
    /// The file is something else.
    #[error(
        "not a recording: line 1 must be a header with \"schema\":\"{SCHEMA}\" ({problem}); make a \
         recording with 'evenly run --record FILE'"
    )]
    NotARecording {
        /// What is wrong with that line.
        problem: String,
    },
    /// A version that is not known.
    #[error(
        "the recording has schema '{found}', and '{SCHEMA}' is needed; read it with the evenly \
             that wrote it ({evenly})"
    )]
    Schema {
        /// The schema that the file names.
        found: String,
        /// The version of evenly that wrote it.
        evenly: String,
    },
    /// A line that says something impossible.
    #[error("line {line} of the recording: {problem}; found: {found}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it, and what was needed.
        problem: String,
        /// How the line begins.
        found: String,
    },
    /// Something behind the end record.
    #[error("line {line} of the recording stands behind the end record, which must be the last")]
    BehindEnd {
        /// Number of the line, from 1.
        line: usize,
    },
}

/// From a moment on, only some points were kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thinning {
    /// Monotonic time since balancing began.
    pub at: Nanos,
    /// Only points whose number is a multiple of this were kept.
    pub keep_every: u64,
    /// The same in words.
    pub text: String,
}

/// The last line of a recording that was finished.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// Points written, those with nothing but their moves included.
    pub points: u64,
    /// Events lost because the writer could not keep up, or because the size limit was reached.
    pub dropped: u64,
    /// Points left out, or kept with their moves only, because the size limit was near.
    pub thinned: u64,
    /// What the recording program said of the run; null where it said nothing.
    pub summary: serde_json::Value,
}

/// A recording in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What the first line says.
    pub header: Header,
    /// The events, in the order in which they were written. A point without threads and CPUs is one
    /// that was thinned out: only its moves were kept.
    pub events: Vec<Event>,
    /// When points began to be left out.
    pub thinning: Vec<Thinning>,
    /// The end record; None where the writer was killed.
    pub end: Option<End>,
    /// Whether the last line was cut off.
    pub truncated: bool,
    /// Lines of a kind that this version does not know, which were passed over.
    pub unknown_lines: u64,
}

impl Recording {
    /// One of these events, which no file has held.
    #[must_use]
    pub fn of(events: Vec<Event>) -> Self {
        Self {
            header: Header::default(),
            events,
            thinning: Vec::new(),
            end: None,
            truncated: false,
            unknown_lines: 0,
        }
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    /// [`RecordError`] where the file cannot be read, is too long, or is not a recording.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let wrong = |source| RecordError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(wrong)?;
        let mut bytes = Vec::new();
        // One byte more than is accepted, so that a file that grows or a pipe is found out as well.
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(wrong)?;
        Self::parse(&bytes)
    }

    /// Reads a recording from bytes.
    ///
    /// # Errors
    /// [`RecordError`] where they are too many, or not a recording.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(RecordError::TooLong { found: bytes.len() as u64 });
        }
        let mut lines = Lines { rest: bytes, number: 0 };
        let first = lines.next_line()?.ok_or(RecordError::Empty)?;
        let mut recording = Self { header: read_header(&first)?, ..Self::of(Vec::new()) };
        let mut decoder = Decoder::default();
        while let Some(line) = lines.next_line()? {
            if recording.end.is_some() {
                return Err(RecordError::BehindEnd { line: line.number });
            }
            match decoder.line(line.bytes) {
                Ok(Line::Event(event)) => recording.events.push(event),
                Ok(Line::Thinning { at, keep_every, text }) => {
                    if recording.thinning.len() == MAX_THINNINGS {
                        return Err(RecordError::Line {
                            line: line.number,
                            problem: format!(
                                "keep_every changes more than {MAX_THINNINGS} times, the most that \
                                 is read"
                            ),
                            found: beginning(line.bytes),
                        });
                    }
                    recording.thinning.push(Thinning { at, keep_every, text });
                }
                Ok(Line::Numbered) => {}
                Ok(Line::End { counts, summary }) => {
                    recording.end = Some(End {
                        points: counts.points,
                        dropped: counts.dropped,
                        thinned: counts.thinned,
                        summary,
                    });
                }
                Ok(Line::Unknown) => recording.unknown_lines += 1,
                // A writer that is killed leaves a line without its end.
                Err(_) if !line.complete => recording.truncated = true,
                Err(e) => {
                    return Err(RecordError::Line {
                        line: line.number,
                        problem: without_position(&e.to_string()),
                        found: beginning(line.bytes),
                    });
                }
            }
        }
        Ok(recording)
    }

    /// Where the recorder did not finish it: that in a line, and what is missing therefore.
    #[must_use]
    pub fn unfinished(&self) -> Option<String> {
        if self.end.is_some() {
            return None;
        }
        let whole = if self.truncated { ", within a line" } else { "" };
        Some(format!(
            "it is not finished (its recorder was killed, had no room left, or still writes): it breaks \
             off after {:.2} s{whole}, and what came later is missing, the report of the run too",
            self.duration().as_secs_f64()
        ))
    }

    /// The time of the last event.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        let at = |e: &Event| match e {
            Event::Domain { at, .. }
            | Event::Joined { at, .. }
            | Event::Left { at, .. }
            | Event::Note { at, .. } => *at,
            Event::Point(p) => p.at,
        };
        self.events.iter().map(at).max().unwrap_or(Nanos::ZERO)
    }

    /// How many points were kept with their threads and CPUs.
    #[must_use]
    pub fn full_points(&self) -> usize {
        self.events
            .iter()
            .filter(|e| matches!(e, Event::Point(p) if !p.threads.is_empty() || !p.cpus.is_empty()))
            .count()
    }
}

struct NumberedLine<'a> {
    number: usize,
    bytes: &'a [u8],
    complete: bool,
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<Option<NumberedLine<'a>>, RecordError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.number > MAX_LINES {
            return Err(RecordError::TooManyLines);
        }
        let end = self.rest.iter().position(|&b| b == b'\n');
        let (bytes, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        if bytes.len() > MAX_LINE_BYTES {
            return Err(RecordError::LineTooLong { line: self.number, found: bytes.len() });
        }
        self.rest = rest;
        Ok(Some(NumberedLine { number: self.number, bytes, complete: end.is_some() }))
    }
}

fn read_header(line: &NumberedLine<'_>) -> Result<Header, RecordError> {
    match serde_json::from_slice::<HeaderLine<'_>>(line.bytes) {
        Ok(h) if h.schema == SCHEMA => Ok(h.header),
        Ok(h) => Err(RecordError::Schema {
            found: beginning(h.schema.as_bytes()),
            evenly: beginning(h.header.evenly.as_bytes()),
        }),
        Err(e) if e.is_eof() && !line.complete => Err(RecordError::Empty),
        Err(e) => Err(RecordError::NotARecording { problem: without_position(&e.to_string()) }),
    }
}

/// serde_json counts lines itself, and each of ours is its line 1: only the column says something.
fn without_position(message: &str) -> String {
    message.replace(" at line 1 column ", " at column ")
}

/// The first characters of a line, for a message on one line of a terminal.
fn beginning(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    let mut shown = printable(&text).into_owned();
    if bytes.len() > 80 {
        shown.push('\u{2026}');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    const HEADER: &str = r#"{"schema":"evenly.record/1","evenly":"0.1.0"}"#;

    fn parse(lines: &[&str]) -> Result<Recording, RecordError> {
        Recording::parse((lines.join("\n") + "\n").as_bytes())
    }

    #[test]
    fn every_kind_of_line_is_read() {
        let r = parse(&[
            r#"{"schema":"evenly.record/1","evenly":"0.1.0","command":["./a","b c"],"host":{"kernel":"6.1.0"},"settings":{"policy":"juggle"},"started_unix_ms":1700000000000}"#,
            r#"{"event":"domain","at":0,"domain":0,"cpus":"0-1"}"#,
            r#"{"event":"thread","thread":0,"tid":812,"start":99}"#,
            r#"{"event":"joined","at":0,"domain":0,"thread":0,"pid":811,"name":"w"}"#,
            r#"{"event":"point","domain":0,"point":3,"at":40,"elapsed":10,"paused":true,"cost":1,"threads":[[0,1,-7,9,1,0,3,0]],"cpus":[[0,0,null],[1,1,0.9]],"moves":[[0,1,0,"behind",null],[0,0,1,"ahead","the thread has ended"]]}"#,
            r#"{"event":"note","at":41,"text":"budget"}"#,
            r#"{"event":"note","at":42,"text":"every 2nd","keep_every":2}"#,
            r#"{"event":"left","at":43,"thread":0,"ended":true}"#,
            r#"{"event":"end","points":1,"dropped":2,"thinned":3,"summary":{"a":1}}"#,
        ])
        .unwrap();
        assert_eq!(r.header.command, ["./a", "b c"]);
        assert_eq!(r.header.host["kernel"], "6.1.0");
        assert_eq!((r.events.len(), r.thinning[0].keep_every, r.truncated), (5, 2, false));
        let Event::Point(p) = &r.events[2] else { panic!("{:?}", r.events[2]) };
        assert_eq!((p.threads[0].id.tid.0, p.threads[0].progress, p.paused), (812, -7, true));
        assert_eq!(p.cpus[0].speed, None);
        assert_eq!(p.moves[1].error.as_deref(), Some("the thread has ended"));
        let end = r.end.as_ref().unwrap();
        assert_eq!((end.points, end.dropped, end.thinned), (1, 2, 3));
        assert_eq!(r.duration(), Nanos(43));
    }

    #[test]
    fn unknown_fields_elements_and_kinds_are_passed_over() {
        let r = parse(&[
            r#"{"schema":"evenly.record/1","evenly":"9.0.0","colour":{"deep":[1]}}"#,
            r#"{"event":"thread","thread":0,"tid":1,"start":2,"numa":1}"#,
            r#"{"event":"point","domain":0,"point":0,"at":1,"elapsed":1,"cost":0,"energy":[1],"threads":[[0,0,1,1,0,0,0,0,1,1,2,3,4,5,6,"new",{"x":1}]],"cpus":[[0,1,1.0,55]],"moves":[[0,0,1,"spread",null,7]],"weights":[[0,0.5,{}]]}"#,
            r#"{"event":"weather","at":1}"#,
        ])
        .unwrap();
        assert_eq!((r.events.len(), r.unknown_lines), (1, 1));
        assert!(r.end.is_none());
    }

    #[test]
    fn a_recording_can_be_cut_anywhere() {
        let whole = testdata::small_bytes();
        let all = Recording::parse(&whole).unwrap();
        let header = whole.iter().position(|&b| b == b'\n').unwrap();
        for cut in header..whole.len() {
            let r = Recording::parse(&whole[..cut]).unwrap();
            assert_eq!(r.events, all.events[..r.events.len()]);
            // Only the very end is whole without its line break.
            let said = r.unfinished().map(|said| said.contains("within a line"));
            assert_eq!(said, (cut + 1 < whole.len()).then_some(r.truncated), "{cut}");
        }
        assert_eq!(all.unfinished(), None);
        for cut in 0..header - 1 {
            assert!(matches!(Recording::parse(&whole[..cut]), Err(RecordError::Empty)), "{cut}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let thread = r#"{"event":"thread","thread":0,"tid":1,"start":2}"#;
        let end = r#"{"event":"end","points":0,"dropped":0,"thinned":0}"#;
        let cases: Vec<Vec<&str>> = vec![
            vec!["hello"],
            vec![r#"{"schema":"evenly.record/2","evenly":"2.0"}"#],
            vec![r#"{"schema":"evenly.record/1"}"#],
            vec![HEADER, "{"],
            vec![HEADER, "", "x"],
            vec![HEADER, r#"{"at":1}"#],
            vec![HEADER, r#"{"event":"left","at":1,"thread":0,"ended":true}"#],
            vec![HEADER, r#"{"event":"thread","thread":4,"tid":1,"start":2}"#],
            vec![HEADER, r#"{"event":"domain","at":0,"domain":0,"cpus":"0-99999"}"#],
            vec![HEADER, r#"{"event":"domain","at":-1,"domain":0,"cpus":"0"}"#],
            vec![HEADER, r#"{"event":"note","at":0,"text":"x","keep_every":0}"#],
            vec![
                HEADER,
                thread,
                r#"{"event":"point","domain":0,"point":0,"at":1,"elapsed":1,"cost":0,"threads":[[0,70000,0,0,0,0,0,0]]}"#,
            ],
            vec![
                HEADER,
                thread,
                r#"{"event":"point","domain":0,"point":0,"at":1,"elapsed":1,"cost":0,"threads":[[0,1,0]]}"#,
            ],
            vec![
                HEADER,
                thread,
                r#"{"event":"point","domain":0,"point":0,"at":1,"elapsed":1,"cost":0,"moves":[[0,0,1,"whim",null]]}"#,
            ],
            vec![HEADER, end, r#"{"event":"note","at":0,"text":"late"}"#],
        ];
        let said: Vec<String> =
            cases.iter().map(|lines| parse(lines).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(said.join("\n"));
    }

    #[test]
    fn limits_hold() {
        let long = format!("{HEADER}\n{{\"event\":\"{}", "x".repeat(MAX_LINE_BYTES));
        let e = Recording::parse(long.as_bytes()).unwrap_err();
        assert!(matches!(e, RecordError::LineTooLong { line: 2, .. }), "{e}");
        let deep = format!("{HEADER}\n{{\"event\":\"end\",\"summary\":{}", "[".repeat(100_000));
        // Without its end it is a cut line; with one it is refused, and neither overflows the stack.
        assert!(Recording::parse(deep.as_bytes()).unwrap().truncated);
        assert!(Recording::parse(format!("{deep}\n").as_bytes()).is_err());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let e = Recording::read(Path::new("/nonexistent/x.rec")).unwrap_err().to_string();
        assert!(e.starts_with("cannot read the recording /nonexistent/x.rec: No such file"), "{e}");
    }
}
