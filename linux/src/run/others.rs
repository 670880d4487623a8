//! Whether other programs compute on the CPUs that one may use: what all used of them, less what its threads had.
//!
//! The kernel counts in clock ticks, so it takes some hundred milliseconds to tell. Threads that end meanwhile, or do not
//! belong to the program, count as others.

use crate::proc::Proc;
use evenly_model::{CpuSet, Nanos};

/// For how long it is counted.
const WINDOW: Nanos = Nanos::from_millis(400);
/// Others are there that use this part of a CPU; evenly itself uses less.
const PART: f64 = 0.1;

/// What is known of them.
#[derive(Debug)]
pub(crate) struct Others {
    cpus: CpuSet,
    /// When the window began, and what the CPUs had been used for; None where that cannot be read.
    since: Nanos,
    busy: Option<Nanos>,
    /// What the program's own threads had in it.
    own: Nanos,
    are_there: bool,
}

impl Others {
    /// Beside a program that may use these CPUs. Nothing is known yet.
    pub(crate) fn new(cpus: CpuSet, proc: &Proc, now: Nanos) -> Self {
        let busy = proc.busy(&cpus);
        Self { cpus, since: now, busy, own: Nanos::ZERO, are_there: false }
    }

    /// Whether there are some.
    pub(crate) fn are_there(&self) -> bool {
        self.are_there
    }

    /// Looks, after the program's threads had so much since the last look.
    pub(crate) fn look(&mut self, proc: &Proc, own: Nanos, now: Nanos) {
        self.own += own;
        let elapsed = now - self.since;
        if elapsed < WINDOW {
            return;
        }
        let busy = proc.busy(&self.cpus);
        let used = busy.zip(self.busy).map(|(busy, before)| busy - before);
        // Where that cannot be seen they may be there. Of many CPUs the kernel's own threads use more, too.
        let part = PART * (self.cpus.len() as f64 / 2.0).sqrt().max(1.0);
        self.are_there = used.is_none_or(|used| used - self.own > elapsed.scale(part));
        (self.since, self.busy, self.own) = (now, busy, Nanos::ZERO);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::fs;

    /// CPU time of two CPUs, in hundredths of a second, and of another one that the program may not use.
    fn used(dir: &tempfile::TempDir, ticks: [u64; 2]) {
        let [a, b] = ticks;
        let text = format!(
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 {a} 0 0 7 0 0 0 0 0 0\ncpu1 0 0 {b} 7 0 0 0 0 0 0\n\
             cpu2 99999 0 0 7 0 0 0 0 0 0\n"
        );
        fs::write(dir.path().join("stat"), text).unwrap();
    }

    /// Would catch: threads that are taken for others' because they are many, and others that are not seen beside them.
    #[test]
    fn others_are_who_uses_what_is_not_the_programs_own() {
        let dir = tempfile::tempdir().unwrap();
        let proc = Proc::at(dir.path());
        let ms = Nanos::from_millis;
        used(&dir, [1_000, 500]);
        let mut others = Others::new("0-1".parse().unwrap(), &proc, ms(5_000));
        let mut at = 5_000;
        let mut after = |busy: [u64; 2], own: u64| {
            used(&dir, busy);
            at += 500;
            // In two looks.
            others.look(&proc, ms(own / 2), ms(at - 250));
            others.look(&proc, ms(own / 2), ms(at));
            others.are_there()
        };
        // All of both CPUs, and all its own.
        assert!(!after([1_050, 550], 990));
        assert!(after([1_100, 600], 500));
        assert!(!after([1_150, 650], 980));
        assert!(after([1_150, 660], 0), "a tenth of a CPU, of which it has nothing");
        fs::remove_file(dir.path().join("stat")).unwrap();
        others.look(&proc, Nanos::ZERO, ms(60_000));
        assert!(others.are_there());
    }
}
