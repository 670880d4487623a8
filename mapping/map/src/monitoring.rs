//! What Open MPI's monitoring component writes.
//!
//! The format: `ompi/mca/common/monitoring` in Open MPI's sources, `README.md` ("Output format") and
//! `mca_common_monitoring_output` in `common_monitoring.c`. A line for each pair of ranks, separated
//! by tabs:
//!
//! ```text
//! E  0  1  1012 bytes  30 msgs sent  0,0,30,...
//! ```
//!
//! The letter is the kind: E point to point; I messages that a collective or Open MPI itself was made
//! into; S and R one-sided, sent (put) and received (get); C collectives as they were called. Then
//! rank, peer, bytes, messages, and sometimes a histogram of sizes. With R the data goes from the peer
//! to the rank. C says again what I lines say, so C is taken only where there is neither E nor I.
//! Lines about whole communicators (D, O2A, A2O, A2A), comments and what the program itself wrote to
//! the same place are not looked at.

use crate::edges::{Edges, MOST_TASKS};
use crate::error::{InputError, amount, quoted};
use crate::lines::Lines;
use evenly_model::Edge;
use std::collections::HashSet;
use std::io::Read;

/// What all files together say.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Monitoring {
    /// The highest rank, and one more.
    pub ranks: usize,
    messages: Edges,
    collectives: Edges,
    others: u64,
    /// Of each file the rank that wrote it.
    writers: Vec<Writer>,
}

/// Which ranks wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// The rank of this number alone.
    One(u64),
    /// One that sent nothing, and whose number its name does not give.
    Silent,
    /// Several: a launcher's output.
    Several,
}

/// Most ranks that are named where some are missing.
const MOST_NAMED: usize = 8;

/// Adds a file to what others have said. `known` says whether there is such a rank.
///
/// # Errors
/// The first thing that is wrong, with its line; and where there is nothing of Open MPI's
/// monitoring in the file. A rank that sent nothing leaves a file with comments only, which is right.
pub fn read_monitoring(
    input: impl Read,
    file: &str,
    known: &dyn Fn(u64) -> bool,
    all: &mut Monitoring,
) -> Result<(), InputError> {
    let mut lines = Lines::new(file, input);
    let mut any = false;
    let mut writer = Writer::Silent;
    while let Some((_, text)) = lines.next()? {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default();
        match kind {
            "E" | "I" | "S" | "R" | "C" => {
                any = true;
                let added = record(words, kind).and_then(|(edge, from, rank)| {
                    all.ranks = all.ranks.max(rank + 1);
                    writer = match writer {
                        Writer::Silent => Writer::One(from),
                        Writer::One(one) if one != from => Writer::Several,
                        as_before => as_before,
                    };
                    let to = if kind == "C" { &mut all.collectives } else { &mut all.messages };
                    to.add(edge, known)
                });
                added.map_err(|what| lines.wrong(what))?;
            }
            "" | "D" | "O2A" | "A2O" | "A2A" => {}
            "#" => any |= ["# POINT TO POINT", "# OSC", "# COLLECTIVES"].contains(&text),
            _ => all.others += 1,
        }
    }
    if any {
        if writer == Writer::Silent {
            writer = named_after(file).map_or(Writer::Silent, Writer::One);
        }
        all.writers.push(writer);
        return Ok(());
    }
    Err(InputError::new(
        file,
        "no line of Open MPI's monitoring was found, such as 'E 0 1 1012 bytes 30 msgs sent'; mpirun's \
         standard output has them with pml_monitoring_enable 2 and pml_monitoring_enable_output 1, its \
         standard error with 2 for the latter",
    ))
}

/// The rank in the name of a file that Open MPI writes for it: `NAME.RANK.prof`.
fn named_after(file: &str) -> Option<u64> {
    file.strip_suffix(".prof")?.rsplit_once('.')?.1.parse().ok()
}

/// What stands behind the letter: an edge, the rank that says it, and the higher of the edge's ranks.
fn record<'a>(
    mut words: impl Iterator<Item = &'a str>,
    kind: &str,
) -> Result<(Edge, u64, usize), String> {
    let mut next = || words.next().unwrap_or_default();
    let (rank, peer) = (rank(next(), "the rank")?, rank(next(), "the peer")?);
    let bytes = amount(next(), "the number of bytes")?;
    let unit = next();
    let messages = amount(next(), "the number of messages")?;
    if unit != "bytes" || next() != "msgs" {
        return Err(format!(
            "this is no line such as '{kind} 0 1 1012 bytes 30 msgs sent', which is needed"
        ));
    }
    let (from, to) = if kind == "R" { (peer, rank) } else { (rank, peer) };
    let edge = Edge { from: from as u64, to: to as u64, messages, bytes };
    Ok((edge, rank as u64, rank.max(peer)))
}

fn rank(text: &str, what: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(r) if r < MOST_TASKS => Ok(r),
        _ => Err(format!("{what} is {}; a number below {MOST_TASKS} is needed", quoted(text))),
    }
}

impl Monitoring {
    /// What was left out, in words.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.has_messages() && !self.collectives.list.is_empty() {
            notes.push(format!(
                "{} lines about collectives (C) left out: the messages that they were made into are \
                 counted (I)",
                self.collectives.list.len()
            ));
        }
        if self.others > 0 {
            notes.push(format!("{} lines that are not of the monitoring left out", self.others));
        }
        notes
    }

    /// Whether the files are those of each rank, and all are there. Every rank writes one, also one that
    /// sent nothing; `ranks` are those that there are.
    ///
    /// # Errors
    /// In words, which ranks' are not there.
    pub fn whole(&self, ranks: impl Iterator<Item = u64>) -> Result<(), String> {
        let several = self.writers.contains(&Writer::Several);
        // What a launcher with one rank that sends wrote cannot be distinguished from that rank's own.
        if several || self.writers.len() < 2 {
            return Ok(());
        }
        let ones = self.writers.iter().filter_map(|w| match w {
            Writer::One(rank) => Some(*rank),
            _ => None,
        });
        let there: HashSet<u64> = ones.collect();
        let missing: Vec<u64> = ranks.filter(|rank| !there.contains(rank)).collect();
        let silent = self.writers.iter().filter(|w| **w == Writer::Silent).count();
        if missing.len() <= silent {
            return Ok(());
        }
        let named: Vec<String> = missing.iter().take(MOST_NAMED).map(u64::to_string).collect();
        let more = match missing.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let s = if missing.len() == 1 { "" } else { "s" };
        let of = self.writers.len();
        Err(format!(
            "the {of} files have nothing by rank{s} {}{more}, and each rank writes its own; give them all, \
             each with --monitoring",
            named.join(", ")
        ))
    }

    /// What each has sent to each.
    #[must_use]
    pub fn into_edges(self) -> Edges {
        if self.has_messages() { self.messages } else { self.collectives }
    }

    fn has_messages(&self) -> bool {
        !self.messages.list.is_empty() || self.messages.to_itself > 0
    }
}
