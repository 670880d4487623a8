//! Plain text, for where there is no terminal: one line a second for each domain.
//!
//! Invariant: the last state is written before the end.

use crate::terminal::{Signals, drain};
use crate::{Exit, Feed, Header, View, World, render};
use std::io::{self, ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

/// How often the end is checked.
const LOOK: Duration = Duration::from_millis(100);
/// How often lines are written.
const EVERY: Duration = Duration::from_secs(1);

/// Writes one line a second for each domain until no more events will come, the reader closes the
/// pipe, or SIGINT, SIGTERM or SIGHUP arrives (which is returned, not acted upon). It writes the
/// last state before it returns.
///
/// # Errors
/// Errors of writing, except for a closed pipe, which is [`Exit::Closed`].
pub fn run_plain(
    feed: &Feed,
    header: &Header,
    world: World<'_>,
    out: &mut dyn Write,
) -> io::Result<Exit> {
    each_second(feed, header, world, &mut |view| lines(view, header, out))
}

/// Calls `write` once a second, and once more with the last state before it returns.
pub(crate) fn each_second(
    feed: &Feed,
    header: &Header,
    world: World<'_>,
    write: &mut dyn FnMut(&View) -> io::Result<()>,
) -> io::Result<Exit> {
    let signals = Signals::catch()?;
    let mut view = View::new(header.observes());
    let mut next = Instant::now() + EVERY;
    loop {
        // Checked before the events are taken: those before the end are then among them.
        let exit = match (signals.arrived(), (world.ended)()) {
            (Some(signal), _) => Some(Exit::Signal(signal)),
            (None, true) => Some(Exit::Ended),
            (None, false) => None,
        };
        drain(feed, &mut view);
        let now = Instant::now();
        if exit.is_some() || now >= next {
            view.balanced_by((world.balancer)());
            match write(&view) {
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Closed),
                other => other?,
            }
            // A late line is not repeated: each shows the current state.
            next += EVERY;
            if next <= now {
                next = now + EVERY;
            }
        }
        if let Some(exit) = exit {
            return Ok(exit);
        }
        thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
    }
}

fn lines(view: &View, header: &Header, out: &mut dyn Write) -> io::Result<()> {
    if view.domains.is_empty() {
        writeln!(
            out,
            "{:>8.1} s  pid {}: no compute threads yet{}",
            view.now.as_secs_f64(),
            header.pid,
            render::trouble(view).map(|t| format!("; {t}")).unwrap_or_default()
        )?;
    }
    for &id in view.domains.keys() {
        writeln!(out, "{}", render::plain(view, id, header))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OtherEvenly, OtherState, synthetic};
    use evenly_engine::Observer;
    use evenly_model::{Nanos, Pid};

    fn header() -> Header {
        Header { pid: Pid(41_000), command: "./spmd".into(), policy: "observe".into() }
    }

    fn fed(threads: u32, domains: u32) -> Feed {
        let feed = Feed::new();
        let mut observer = feed.clone();
        for e in synthetic::run(threads, 2, domains, 100, false) {
            observer.event(&e);
        }
        feed
    }

    #[test]
    fn the_last_state_is_written_at_the_end() {
        let mut out = Vec::new();
        let exit = run_plain(&fed(3, 1), &header(), World::alone(&|| true), &mut out).unwrap();
        assert_eq!(exit, Exit::Ended);
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn a_line_for_each_domain() {
        let mut out = Vec::new();
        run_plain(&fed(3, 2), &header(), World::alone(&|| true), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn no_threads_and_no_events_are_said_in_words() {
        let mut out = Vec::new();
        run_plain(&fed(0, 1), &header(), World::alone(&|| true), &mut out).unwrap();
        run_plain(&Feed::new(), &header(), World::alone(&|| true), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn the_state_of_the_balancer_is_written() {
        let is = |state| Some(OtherEvenly { pid: Pid(7), state, given: Nanos::ZERO });
        let written = |feed: &Feed, state| {
            let mut out = Vec::new();
            let world = World { ended: &|| true, balancer: &|| is(state) };
            run_plain(feed, &header(), world, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(written(&fed(3, 1), OtherState::Working).ends_with("(pid 7) balances it\n"));
        for threads in [0, 3] {
            let line = written(&fed(threads, 1), OtherState::Stopped);
            assert!(line.ends_with("evenly (pid 7) is STOPPED: the program is not balanced\n"));
        }
        let line = written(&Feed::new(), OtherState::Gone);
        assert!(line.ends_with("evenly (pid 7) has ENDED: the program is not balanced\n"));
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let exit = run_plain(&fed(3, 1), &header(), World::alone(&|| true), &mut writer).unwrap();
        assert_eq!(exit, Exit::Closed);
    }

    #[test]
    fn other_errors_are_returned() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let e = run_plain(&fed(3, 1), &header(), World::alone(&|| true), &mut Full).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::StorageFull);
    }
}
