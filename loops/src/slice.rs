//! When a thread that waits yields: as its slice of the CPU is about to end, and not in the middle of a task in the next instance, for
//! which all others would wait.
//!
//! A thread that yields earlier gives away the rest of its slice, which the kernel does not give back. How long slices are depends on
//! the kernel, its clock, and who else is there; so it is learnt from how long the thread ran before it was kept from its CPU.

use crate::clock::time;
use evenly_model::Nanos;
use rustix::time::ClockId;
use std::cell::Cell;

/// A thread that was without its CPU for longer than this was kept from it.
const KEPT: Nanos = Nanos::from_micros(200);
/// What slices are taken to be at first, and at most.
const FIRST: Nanos = Nanos::from_millis(3);
const LONGEST: Nanos = Nanos::from_millis(100);

/// Of a thread's CPU time.
#[derive(Debug, Clone, Copy)]
struct Slice {
    /// When it was looked last, by the clock and of the thread's CPU time.
    looked: [Nanos; 2],
    /// CPU time when its slice began; None before it is looked first.
    began: Option<Nanos>,
    /// How long slices are taken to be.
    length: Nanos,
}

thread_local! {
    static SLICE: Cell<Slice> = const { Cell::new(Slice::NEW) };
}

impl Slice {
    const NEW: Self = Self { looked: [Nanos::ZERO; 2], began: None, length: FIRST };

    /// At this moment. Whether the slice would end within so much more CPU time.
    fn look(&mut self, now: [Nanos; 2], next: Nanos) -> bool {
        let had = now[1] - self.began.unwrap_or(now[1]);
        // In the middle of a task.
        if self.was_kept(now) && self.began.is_some() {
            self.length = had.min(self.length).scale(0.75);
            self.began = None;
        }
        let began = *self.began.get_or_insert(now[1]);
        now[1] - began + next >= self.length
    }

    /// It has yielded since it was looked last.
    fn yielded(&mut self, now: [Nanos; 2]) {
        if self.was_kept(now) {
            self.length = (self.length + self.length.scale(1.0 / 16.0)).min(LONGEST);
        }
        self.began = Some(now[1]);
    }

    /// Whether the thread was without its CPU since it was looked last.
    fn was_kept(&mut self, now: [Nanos; 2]) -> bool {
        let [clock, cpu] = [0, 1].map(|i| now[i] - self.looked[i]);
        self.looked = now;
        clock - cpu > KEPT
    }
}

fn now() -> [Nanos; 2] {
    [ClockId::Monotonic, ClockId::ThreadCPUTime].map(time)
}

/// Yields if the slice of this thread would end within so much CPU time.
pub(crate) fn yield_before(next: Nanos) {
    SLICE.with(|slice| {
        let mut own = slice.get();
        if own.look(now(), next) {
            std::thread::yield_now();
            own.yielded(now());
        }
        slice.set(own);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Nanos = Nanos::from_micros(700);

    /// A thread and one of others, which have a CPU in turn for so long. It has a task of 0.7 ms in each instance, and waits for a
    /// moment after it. For how long it had the CPU each time on average, and in which part of all times it was kept from it in the
    /// middle of a task.
    fn runs(turn: Nanos) -> (Nanos, f64) {
        let (mut slice, mut now, mut run) = (Slice::NEW, [Nanos::from_millis(1); 2], Nanos::ZERO);
        let (mut times, mut kept, mut cpu) = (0_u32, 0_u32, Nanos::ZERO);
        for instance in 0..5_000 {
            let counts = instance >= 500;
            now = now.map(|time| time + TASK);
            run += TASK;
            if run > turn {
                now[0] += turn;
                run = run - turn;
                (times, kept) = (times + u32::from(counts), kept + u32::from(counts));
            }
            cpu += if counts { TASK } else { Nanos::ZERO };
            if slice.look(now, TASK) {
                now[0] += turn;
                slice.yielded(now);
                run = Nanos::ZERO;
                times += u32::from(counts);
            }
        }
        (Nanos(cpu.0 / u64::from(times)), f64::from(kept) / f64::from(times))
    }

    /// Would catch: a thread that yields after each task, and so has a fifth of its CPU; one that is kept from it in the middle of a
    /// task each time.
    #[test]
    fn a_thread_uses_most_of_its_slice_and_yields_before_it_ends() {
        for turn_ms in [3, 4, 8, 20] {
            let turn = Nanos::from_millis(turn_ms);
            let (run, kept) = runs(turn);
            assert!(run > turn.scale(0.7) && kept < 0.25, "{turn_ms} ms: {run:?}, {kept}");
        }
    }

    /// Would catch: a thread alone on its CPU that asks the kernel in each instance.
    #[test]
    fn who_is_alone_yields_once_in_a_slice() {
        let (mut slice, mut now, mut yields) = (Slice::NEW, [Nanos::from_millis(1); 2], 0);
        for _ in 0..1_000 {
            now = now.map(|time| time + TASK);
            if slice.look(now, TASK) {
                slice.yielded(now);
                yields += 1;
            }
        }
        // Four tasks in 3 ms.
        assert!((240..=260).contains(&yields) && slice.length == FIRST, "{yields}");
    }
}
