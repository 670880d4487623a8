//! Breakpoints over instructions of another process at which it waits, whose handler (`probe/c/handover.c`) hands the CPU over.
//!
//! They are not in the journal: a process whose evenly is gone takes them away itself, each when a thread comes to it.
//!
//! Invariant: a breakpoint is written only where the instruction is that of the file, in a process that handles SIGTRAP and in
//! which no thread blocks it.

use crate::proc::{Proc, read_all, status_field, status_number};
use evenly_model::{Pid, Tid};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// What is written over an instruction, or its first byte. Who executes the instruction meanwhile executes one of both, as with
/// debuggers and uprobes; the manual of aarch64 promises that for some instructions only.
const BREAKPOINT: &[u8] =
    if cfg!(target_arch = "aarch64") { &0xd420_0000_u32.to_le_bytes() } else { &[0xcc] };
/// What is written behind the breakpoint of a jump: an invalid instruction. A debugger that takes the trap lets the thread go on there;
/// it meets this, and goes on by the handler of SIGILL as the jump would have.
const GUARD: Option<u8> = if cfg!(target_arch = "aarch64") { None } else { Some(0xd6) };
/// How `pause` begins. Behind it there is an instruction that does nothing, which is guard enough.
const PAUSE: u8 = 0xf3;

/// What is to be known of an instruction that begins with these bytes, as a number, while a breakpoint and a guard hide it.
#[must_use]
pub fn hidden(instruction: &[u8]) -> u32 {
    let guard = usize::from(GUARD.is_some());
    let hidden = instruction.iter().take((BREAKPOINT.len() + guard).min(4)).rev();
    hidden.fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// SIGTRAP among the signals of a mask in `/proc/<pid>/status`.
const TRAP: u64 = 1 << (5 - 1);

/// Why a process has no breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It has ended, or may not be changed.
    Unreadable,
    /// A debugger has it, which would take each breakpoint for one of its own.
    Traced,
    /// It does not handle SIGTRAP: the library is not in it, or not yet.
    Unhandled,
    /// This thread blocks SIGTRAP by a system call of its own.
    Blocked(Tid),
    /// It has filters of system calls that evenly does not have, so that the handler's may end it.
    Filtered,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("cannot be looked at"),
            Self::Traced => f.write_str("has a debugger, which would take breakpoints for its own"),
            Self::Unhandled => f.write_str("has not loaded evenly's library"),
            Self::Blocked(tid) => write!(f, "blocks SIGTRAP in thread {tid}, past the C library"),
            Self::Filtered => f.write_str("filters system calls (seccomp)"),
        }
    }
}

/// Whether a process can have breakpoints. None where it can.
#[must_use]
pub fn unfit(proc: &Proc, pid: Pid) -> Option<Unfit> {
    let mask = |status: &[u8], key| {
        let text = std::str::from_utf8(status_field(status, key)?).ok()?;
        u64::from_str_radix(text, 16).ok()
    };
    let Ok(own) = proc.thread_status(Tid(std::process::id() as i32)) else {
        return Some(Unfit::Unreadable);
    };
    let threads = proc.threads(pid);
    if threads.is_empty() {
        return Some(Unfit::Unreadable);
    }
    for tid in threads {
        // One that has ended meanwhile blocks nothing.
        let Ok(status) = proc.thread_status(tid) else { continue };
        let filters = |status| status_number(status, "Seccomp_filters");
        if status_number(&status, "TracerPid") != Some(0) {
            return Some(Unfit::Traced);
        }
        if mask(&status, "SigCgt").is_none_or(|caught| caught & TRAP == 0) {
            return Some(Unfit::Unhandled);
        }
        if mask(&status, "SigBlk").is_none_or(|blocked| blocked & TRAP != 0) {
            return Some(Unfit::Blocked(tid));
        }
        if status_number(&status, "Seccomp") != status_number(&own, "Seccomp")
            || filters(&status) != filters(&own)
        {
            return Some(Unfit::Filtered);
        }
    }
    None
}

/// The memory of a process as it is when this is made: where it executes another program later, this is still that of
/// the first one.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// As open(2) of `/proc/<pid>/mem`: the rights of a debugger are needed.
    pub fn of(proc: &Proc, pid: Pid) -> io::Result<Self> {
        let path = proc.process_file(pid, "mem");
        OpenOptions::new().read(true).write(true).open(path).map(Self)
    }

    /// Writes a breakpoint over the instruction at this address that begins with these bytes, two on x86-64 and four on
    /// aarch64; behind one that is there a guard, if it lacks one: no thread has the instruction half read then, as that was
    /// written a while ago. Whether there was the instruction, and is the breakpoint now.
    ///
    /// # Errors
    /// As read(2) and write(2).
    pub fn set_breakpoint(&self, at: u64, instruction: &[u8]) -> io::Result<bool> {
        let mut found = vec![0; instruction.len()];
        self.0.read_exact_at(&mut found, at)?;
        if found == instruction {
            self.0.write_all_at(BREAKPOINT, at)?;
            return Ok(true);
        }
        let guard = GUARD.filter(|_| instruction.first() != Some(&PAUSE));
        if let Some(guard) = guard.filter(|_| found == broken(instruction)) {
            self.0.write_all_at(&[guard], at + BREAKPOINT.len() as u64)?;
        }
        Ok(false)
    }

    /// Puts the instruction back that begins with these bytes, where there is a breakpoint over it.
    ///
    /// # Errors
    /// As read(2) and write(2).
    pub fn clear_breakpoint(&self, at: u64, instruction: &[u8]) -> io::Result<()> {
        let mut found = vec![0; instruction.len()];
        self.0.read_exact_at(&mut found, at)?;
        let (hidden, behind) = instruction.split_at(BREAKPOINT.len().min(instruction.len()));
        let guard: Vec<u8> = GUARD.into_iter().collect();
        if found == [BREAKPOINT, &guard].concat() {
            // While the breakpoint is there, nobody executes what is behind it.
            self.0.write_all_at(behind, at + BREAKPOINT.len() as u64)?;
        } else if found != broken(instruction) {
            return Ok(());
        }
        self.0.write_all_at(hidden, at)
    }
}

/// An instruction that begins with these bytes, with a breakpoint over it.
fn broken(instruction: &[u8]) -> Vec<u8> {
    [BREAKPOINT, &instruction[BREAKPOINT.len().min(instruction.len())..]].concat()
}

/// Whether a debugger has stopped a thread of this process behind the breakpoint at this address: it has the trap, and the thread
/// may go on there.
#[must_use]
pub fn stands_behind(proc: &Proc, pid: Pid, at: u64) -> bool {
    let behind = at + BREAKPOINT.len() as u64;
    GUARD.is_some()
        && proc.threads(pid).into_iter().any(|tid| {
            let file = proc.process_file(pid, &format!("task/{tid}/syscall"));
            read_all(&file).is_ok_and(|text| instruction_pointer(&text) == Some(behind))
        })
}

/// Where a thread is that does not run, by `/proc/<pid>/task/<tid>/syscall`: the last number there.
fn instruction_pointer(text: &[u8]) -> Option<u64> {
    let last = std::str::from_utf8(text).ok()?.split_ascii_whitespace().next_back()?;
    u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()
}

/// What `/proc/<pid>/status` has to say of each thread.
#[cfg(test)]
pub(crate) const FIT: &str = "TracerPid:\t0\nSigBlk:\t0000000000000000\nSigCgt:\t0000000000000010\nSeccomp:\t0\n\
                              Seccomp_filters:\t0\n";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::fs;

    /// What is said of a process with this status, beside an evenly without filters.
    fn of(change: (&str, &str)) -> Option<Unfit> {
        let root = tempfile::tempdir().unwrap();
        let write = |tid: u32, status: &str| {
            let dir = root.path().join(format!("{tid}/task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("status"), status).unwrap();
        };
        write(std::process::id(), FIT);
        let (field, value) = change;
        let changed = |line: &str| match line.split_once(":\t") {
            Some((name, _)) if name == field => format!("{field}:\t{value}\n"),
            _ => format!("{line}\n"),
        };
        write(2_000_000, &FIT.lines().map(changed).collect::<String>());
        unfit(&Proc::at(root.path()), Pid(2_000_000))
    }

    #[test]
    fn what_a_breakpoint_hides_is_a_number() {
        let expected = if BREAKPOINT.len() == 1 { 0x90f3 } else { 0x0403_90f3 };
        assert_eq!((hidden(&[0xf3, 0x90, 3, 4]), hidden(&[])), (expected, 0));
    }

    #[test]
    fn who_stands_behind_a_breakpoint_is_told_by_the_kernel() {
        // As Linux 6.18 says it of a thread that runs, of one that a debugger has stopped, and of one within a call.
        let root = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            let dir = root.path().join("7/task/8");
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("syscall"), text).unwrap();
            stands_behind(&Proc::at(root.path()), Pid(7), 0x5596_ec84_c380)
        };
        let stopped = "-1 0x7f7c3d9f4e90 0x5596ec84c381\n";
        assert_eq!(says(stopped), GUARD.is_some());
        for other in [
            "running\n",
            "-1 0x7f7c3d9f4e90 0x5596ec84c380\n",
            "202 0x7f 0x80 0x2 0x0 0x0 0x0 0x7fff 0x7fae\n",
            "",
            "0x\n",
        ] {
            assert!(!says(other), "{other}");
        }
    }

    #[test]
    fn a_process_is_fit_only_if_a_trap_reaches_the_handler() {
        assert_eq!(of(("", "")), None);
        assert_eq!(of(("TracerPid", "17")), Some(Unfit::Traced));
        assert_eq!(of(("SigCgt", "ffffffffffffffef")), Some(Unfit::Unhandled));
        assert_eq!(of(("SigBlk", "0000000000000010")), Some(Unfit::Blocked(Tid(2_000_000))));
        assert_eq!(of(("Seccomp", "2")), Some(Unfit::Filtered));
        assert_eq!(of(("Seccomp_filters", "3")), Some(Unfit::Filtered));
        // What is not there is not taken for good.
        assert_eq!(of(("SigBlk", "?")), Some(Unfit::Blocked(Tid(2_000_000))));
    }
}
