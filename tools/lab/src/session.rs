//! The conversation with the guest's agent over serial ports (`guest/agent`).
//!
//! Invariant: the output of a command ends at a marker of 128 random bits and
//! the command's number, sent through the same stream after the output; what
//! precedes the marker is the command's, byte for byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::error::LabError;

/// A control line has to fit the guest's terminal buffers, whose limit is 64 KiB.
pub(crate) const LONGEST_COMMAND: usize = 32 << 10;
/// How long the agent may take to kill everything, on slow CPUs.
const KILL_GRACE: Duration = Duration::from_secs(60);

/// Where output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The command's standard output.
    Stdout,
    /// The command's standard error.
    Stderr,
}

enum Event {
    Control(String),
    Output(Stream, Vec<u8>),
    Ended,
}

/// What [`Session::next`] has found in the stream.
enum Next {
    Control(String),
    Output,
    Timeout,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Exited(i32),
    TimedOut,
}

/// Why the conversation stopped; the caller knows the console.
#[derive(Debug)]
pub(crate) enum Broken {
    Ended,
    Silent(Duration),
    Other(LabError),
}

impl From<LabError> for Broken {
    fn from(error: LabError) -> Self {
        Broken::Other(error)
    }
}

pub(crate) struct Session {
    control: UnixStream,
    events: Receiver<Event>,
    stdout: Splitter,
    stderr: Splitter,
    secret: u128,
    number: u64,
}

impl Session {
    pub(crate) fn new(
        control: UnixStream,
        stdout: UnixStream,
        stderr: UnixStream,
    ) -> io::Result<Session> {
        let (sender, events) = mpsc::channel();
        read_lines(control.try_clone()?, sender.clone());
        read_output(stdout, Stream::Stdout, sender.clone());
        read_output(stderr, Stream::Stderr, sender);
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        Ok(Session {
            control,
            events,
            stdout: Splitter::default(),
            stderr: Splitter::default(),
            secret: u128::from_le_bytes(secret),
            number: 0,
        })
    }

    /// Waits for the agent's first word.
    pub(crate) fn wait_ready(&mut self, timeout: Duration) -> std::result::Result<(), Broken> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.next(deadline)? {
                Next::Control(line) if line == "READY" => return Ok(()),
                Next::Control(_) | Next::Output => {}
                Next::Timeout => return Err(Broken::Silent(timeout)),
            }
        }
    }

    /// Runs a command line, handing on its output as it comes.
    pub(crate) fn run(
        &mut self,
        command: &str,
        timeout: Duration,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> std::result::Result<Outcome, Broken> {
        if command.len() > LONGEST_COMMAND {
            return Err(Broken::Other(LabError::Options(format!(
                "a command of {} bytes is too long; at most {LONGEST_COMMAND} fit, put the rest \
                 into a file",
                command.len()
            ))));
        }
        let marker = self.next_marker();
        let number = self.number;
        self.send(&format!("R {number} {marker} {}\n", BASE64.encode(command)))?;
        let exit = format!("EXIT {number} ");
        let deadline = Instant::now() + timeout;
        let mut status = None;
        let mut open = [true; 2];
        loop {
            // Left over from the last command, or from what it left running.
            for (stream, open) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&mut open) {
                if *open && self.splitter(stream).drain(marker.as_bytes(), &mut |d| sink(stream, d))
                {
                    *open = false;
                }
            }
            if let (Some(status), [false, false]) = (status, open) {
                return Ok(Outcome::Exited(status));
            }
            match self.next(deadline)? {
                Next::Timeout => return self.kill(&marker, sink),
                Next::Output => {}
                Next::Control(line) => {
                    if let Some(text) = line.strip_prefix(&exit) {
                        let unexpected = |_| LabError::Protocol {
                            from: "the guest's agent",
                            answer: line.clone(),
                        };
                        status = Some(text.parse().map_err(unexpected)?);
                    }
                }
            }
        }
    }

    /// Has the guest power off.
    pub(crate) fn power_off(&mut self) -> std::result::Result<(), Broken> {
        self.send("Q\n")
    }

    /// Ends everything that runs in the guest, after a timeout, and finds the
    /// streams' common point again.
    fn kill(
        &mut self,
        old_marker: &str,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> std::result::Result<Outcome, Broken> {
        let marker = self.next_marker();
        let killed = format!("KILLED {}", self.number);
        self.send(&format!("K {} {marker}\n", self.number))?;
        let deadline = Instant::now() + KILL_GRACE;
        let mut answered = false;
        let mut ends = [None, None];
        let mut held = [Vec::new(), Vec::new()];
        let ends = loop {
            for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
                let collect = &mut |data: &[u8]| held[at].extend_from_slice(data);
                if ends[at].is_none() && self.splitter(stream).drain(marker.as_bytes(), collect) {
                    // The command may have ended just before it was to be killed.
                    let end = find(&held[at], old_marker.as_bytes()).unwrap_or(held[at].len());
                    ends[at] = Some(end);
                }
            }
            if let (true, [Some(stdout), Some(stderr)]) = (answered, ends) {
                break [stdout, stderr];
            }
            match self.next(deadline)? {
                Next::Timeout => return Err(Broken::Silent(KILL_GRACE)),
                Next::Output => {}
                Next::Control(line) => answered |= line == killed,
            }
        };
        sink(Stream::Stdout, &held[0][..ends[0]]);
        sink(Stream::Stderr, &held[1][..ends[1]]);
        Ok(Outcome::TimedOut)
    }

    fn next_marker(&mut self) -> String {
        self.number += 1;
        format!("<evenly-lab:{:032x}:{}>", self.secret, self.number)
    }

    fn splitter(&mut self, stream: Stream) -> &mut Splitter {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn send(&mut self, line: &str) -> std::result::Result<(), Broken> {
        // A broken pipe means that QEMU has ended.
        self.control.write_all(line.as_bytes()).map_err(|_| Broken::Ended)
    }

    /// Takes the next event in, output into its splitter.
    fn next(&mut self, deadline: Instant) -> std::result::Result<Next, Broken> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(Event::Control(line)) => Ok(Next::Control(line)),
            Ok(Event::Output(stream, data)) => {
                self.splitter(stream).held.extend(data);
                Ok(Next::Output)
            }
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => Err(Broken::Ended),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Timeout),
        }
    }
}

fn read_lines(control: UnixStream, sender: Sender<Event>) {
    std::thread::spawn(move || {
        for line in BufReader::new(control).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(Event::Control(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::Ended);
    });
}

fn read_output(mut output: UnixStream, stream: Stream, sender: Sender<Event>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            if sender.send(Event::Output(stream, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Parts a stream at a marker.
#[derive(Default)]
struct Splitter {
    held: Vec<u8>,
}

impl Splitter {
    /// Hands on what is certain to precede the marker; true once it is reached.
    fn drain(&mut self, marker: &[u8], emit: &mut dyn FnMut(&[u8])) -> bool {
        let at = find(&self.held, marker);
        let end = at.unwrap_or_else(|| {
            // The end may be the marker's beginning.
            let longest = marker.len().saturating_sub(1).min(self.held.len());
            let partial = (1..=longest)
                .rev()
                .find(|length| self.held.ends_with(&marker[..*length]))
                .unwrap_or(0);
            self.held.len() - partial
        });
        if end > 0 {
            emit(&self.held[..end]);
        }
        self.held.drain(..end + at.map_or(0, |_| marker.len()));
        at.is_some()
    }
}

fn find(data: &[u8], marker: &[u8]) -> Option<usize> {
    data.windows(marker.len()).position(|window| window == marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(chunks: &[&[u8]], marker: &[u8]) -> (Vec<u8>, bool, Vec<u8>) {
        let mut splitter = Splitter::default();
        let mut out = Vec::new();
        let mut done = false;
        for chunk in chunks {
            splitter.held.extend_from_slice(chunk);
            done = done || splitter.drain(marker, &mut |data| out.extend_from_slice(data));
        }
        (out, done, splitter.held)
    }

    #[test]
    fn a_marker_is_found_wherever_the_stream_is_cut() {
        let whole = b"\0\xff<M<MARK>rest";
        for cut in 0..whole.len() {
            let (out, done, held) = feed(&[&whole[..cut], &whole[cut..]], b"<MARK>");
            assert!(done, "cut at {cut}");
            assert_eq!(out, b"\0\xff<M", "cut at {cut}");
            assert_eq!(held, b"rest", "cut at {cut}");
        }
    }

    #[test]
    fn output_is_handed_on_before_the_marker_comes() {
        let (out, done, held) = feed(&[b"hello <MA"], b"<MARK>");
        assert_eq!((out.as_slice(), done, held.as_slice()), (&b"hello "[..], false, &b"<MA"[..]));
    }

    #[test]
    fn the_streams_meet_at_the_marker() {
        let (control, mut agent_control) = UnixStream::pair().unwrap();
        let (stdout, mut agent_stdout) = UnixStream::pair().unwrap();
        let (stderr, mut agent_stderr) = UnixStream::pair().unwrap();
        let agent = std::thread::spawn(move || {
            agent_control.write_all(b"READY\n").unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(agent_control.try_clone().unwrap());
            reader.read_line(&mut line).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[0], "R");
            agent_control.write_all(format!("EXIT {} 3\n", words[1]).as_bytes()).unwrap();
            agent_stdout.write_all(b"\0out\r\n").unwrap();
            agent_stdout.write_all(words[2].as_bytes()).unwrap();
            agent_stderr.write_all(b"err").unwrap();
            agent_stderr.write_all(words[2].as_bytes()).unwrap();
            // The ends live on: a closed one would mean that the guest has ended.
            (BASE64.decode(words[3]).unwrap(), agent_control, agent_stdout, agent_stderr)
        });
        let mut session = Session::new(control, stdout, stderr).unwrap();
        let timeout = Duration::from_secs(30);
        session.wait_ready(timeout).unwrap();
        let mut seen = (Vec::new(), Vec::new());
        let outcome = session
            .run("echo 'a b'", timeout, &mut |stream, data| match stream {
                Stream::Stdout => seen.0.extend_from_slice(data),
                Stream::Stderr => seen.1.extend_from_slice(data),
            })
            .unwrap();
        assert_eq!(outcome, Outcome::Exited(3));
        assert_eq!(seen, (b"\0out\r\n".to_vec(), b"err".to_vec()));
        assert_eq!(agent.join().unwrap().0, b"echo 'a b'");
    }

    #[test]
    fn a_guest_that_ends_is_noticed() {
        let (control, agent_control) = UnixStream::pair().unwrap();
        let (stdout, _out) = UnixStream::pair().unwrap();
        let (stderr, _err) = UnixStream::pair().unwrap();
        let mut session = Session::new(control, stdout, stderr).unwrap();
        drop(agent_control);
        let outcome = session.wait_ready(Duration::from_secs(30));
        assert!(matches!(outcome, Err(Broken::Ended)), "{outcome:?}");
    }
}
