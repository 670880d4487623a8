//! Which processes can be watched or balanced, found before anything is begun.
//!
//! Invariant: a check only reads; it changes nothing of the process.

use crate::journal::Other;
use crate::proc::{Proc, Stat, read_all};
use evenly_model::{Pid, Tid};

/// Why a process cannot be attached to, found before anything is begun.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    /// Nothing has this id.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// It has ended, and its parent has not asked for its status yet.
    #[error("process {0} has ended already")]
    Ended(Pid),
    /// It is the id of a thread.
    #[error("{tid} is a thread of process {pid}; give the process id: {pid}")]
    Thread {
        /// The id that was given.
        tid: Pid,
        /// The process that it belongs to.
        pid: Pid,
    },
    /// It is a thread of the kernel, and no program.
    #[error("process {0} is a thread of the kernel; evenly balances programs")]
    Kernel(Pid),
    /// It is this evenly process itself.
    #[error("process {0} is this evenly itself; give the process id of the program")]
    Own(Pid),
    /// The first process, that everything is started from.
    #[error(
        "process {0} is the first one, and everything on this machine descends from it, this evenly \
         too; give the process id of the program"
    )]
    First(Pid),
    /// It is another evenly process.
    #[error("process {evenly} is an evenly; give the process id of a program")]
    Evenly {
        /// The process id that was given.
        evenly: Pid,
    },
    /// Another evenly balances it.
    #[error(
        "process {pid} is balanced by another evenly (process {by}) already; end that one first: \
         kill {by}"
    )]
    Balanced {
        /// The process id that was given.
        pid: Pid,
        /// Which process balances it.
        by: Pid,
    },
}

/// The flag of the kernel's own threads in `/proc/<pid>/stat` (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether a process is a program that can be watched or balanced.
///
/// # Errors
/// [`TargetError`] where it is not.
pub fn check_target(proc: &Proc, pid: Pid, others: &[Other]) -> Result<(), TargetError> {
    if pid.0.cast_unsigned() == std::process::id() {
        return Err(TargetError::Own(pid));
    }
    if others.iter().any(|o| o.evenly.pid == pid) {
        return Err(TargetError::Evenly { evenly: pid });
    }
    // What cannot be seen may still be there: for the system to say when it is asked for.
    let Ok(stat) = read_all(&proc.process_file(pid, "stat")) else { return Ok(()) };
    match Stat::parse(&stat) {
        // A leader that called pthread_exit looks the same, but has threads that live.
        Some(s) if matches!(s.state, b'Z' | b'X') && s.threads <= 1 => {
            return Err(TargetError::Ended(pid));
        }
        _ => {}
    }
    if flags(&stat).is_some_and(|f| f & KERNEL_THREAD != 0) {
        return Err(TargetError::Kernel(pid));
    }
    match proc.process_of(Tid(pid.0)) {
        Some(process) if process != pid => Err(TargetError::Thread { tid: pid, pid: process }),
        _ => Ok(()),
    }
}

/// As [`check_target`]; moreover no other evenly may balance it.
///
/// # Errors
/// [`TargetError`].
pub fn check_target_is_free(proc: &Proc, pid: Pid, others: &[Other]) -> Result<(), TargetError> {
    check_target(proc, pid, others)?;
    // In a container the first process may be the program; a process that comes in from outside does not descend
    // from it.
    if pid == Pid(1) && proc.descends(Pid(std::process::id().cast_signed()), pid) {
        return Err(TargetError::First(pid));
    }
    let related = |p: Pid| proc.descends(pid, p) || proc.descends(p, pid);
    match others.iter().find(|o| o.program.is_some_and(|p| related(p.pid))) {
        Some(other) => Err(TargetError::Balanced { pid, by: other.evenly.pid }),
        None => Ok(()),
    }
}

/// The evenly that balances a program which this process is a part of, if there is one.
#[must_use]
pub fn balanced_above(proc: &Proc, pid: Pid, others: &[Other]) -> Option<Pid> {
    others
        .iter()
        .find(|o| o.program.is_some_and(|p| p.pid != pid && proc.descends(pid, p.pid)))
        .map(|o| o.evenly.pid)
}

/// The flags of a process: field 9 of its `stat`, the seventh behind its name.
fn flags(stat: &[u8]) -> Option<u64> {
    let close = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Process;

    fn check(pid: i32, others: &[Other]) -> Result<(), TargetError> {
        check_target_is_free(&Proc::default(), Pid(pid), others)
    }

    fn other(evenly: i32, program: i32) -> Other {
        Other {
            evenly: Process { pid: Pid(evenly), start: 1 },
            program: Some(Process { pid: Pid(program), start: 1 }),
            counts: Vec::new(),
            demand: crate::journal::Demand::default(),
            stands_still: false,
        }
    }

    /// What becomes of attaching to the first process, where this one is a child of the process `parent`.
    fn of_the_first(parent: i32) -> Result<(), TargetError> {
        let tmp = tempfile::tempdir().unwrap();
        for (pid, parent) in [(1, 0), (std::process::id() as i32, parent)] {
            let dir = tmp.path().join(pid.to_string());
            std::fs::create_dir(&dir).unwrap();
            let stat = format!("{pid} (x) S {parent}{}\n", " 0".repeat(48));
            std::fs::write(dir.join("stat"), stat).unwrap();
        }
        check_target_is_free(&Proc::at(tmp.path()), Pid(1), &[])
    }

    #[test]
    fn the_first_process_is_not_a_program() {
        let e = of_the_first(1).unwrap_err();
        assert_eq!(e, TargetError::First(Pid(1)));
        assert!(e.to_string().contains("everything"), "{e}");
    }

    #[test]
    fn from_outside_the_first_process_of_a_container_is_a_program() {
        assert_eq!(of_the_first(0), Ok(()));
    }

    #[test]
    fn each_reason_against_attaching_is_named() {
        let me = std::process::id() as i32;
        assert_eq!(check(me, &[]), Err(TargetError::Own(Pid(me))));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(check(pid, &[]), Ok(()));
        assert_eq!(check(pid, &[other(1, 3)]), Ok(()));
        assert_eq!(check(pid, &[other(pid, 3)]), Err(TargetError::Evenly { evenly: Pid(pid) }));
        let balanced = Err(TargetError::Balanced { pid: Pid(pid), by: Pid(1) });
        assert_eq!(check(pid, &[other(1, pid)]), balanced);
        child.kill().unwrap();
        evenly_testing::wait_until("it has ended", || {
            check(pid, &[]) == Err(TargetError::Ended(Pid(pid)))
        });
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_is_no_process() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let me = std::process::id() as i32;
        let tids = Proc::default().threads(Pid(me));
        let tid = tids.iter().find(|t| t.0 != me).unwrap().0;
        let expected = Err(TargetError::Thread { tid: Pid(tid), pid: Pid(me) });
        // Another test's thread may end in between.
        assert!(
            check(tid, &[]) == expected || !Proc::default().threads(Pid(me)).contains(&Tid(tid))
        );
        drop(stop);
        let _ = thread.join();
    }

    #[test]
    fn flags_of_a_kernel_thread() {
        let stat = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 43 0 0 20 0 1 0 0 0";
        assert_eq!(flags(stat).map(|f| f & KERNEL_THREAD != 0), Some(true));
        let stat = b"77 (a) b(\nx) S 1 77 77 0 -1 1077936128 12 34 5";
        assert_eq!(flags(stat).map(|f| f & KERNEL_THREAD != 0), Some(false));
        assert_eq!(flags(b"no stat"), None);
    }
}
