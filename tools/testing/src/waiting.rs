//! Waiting for what is expected: a test never sleeps for a time that should be enough.

use std::fmt::Display;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Only what is broken lasts as long as this: tests run beside each other on few and busy CPUs.
const DEADLINE: Duration = Duration::from_secs(180);
/// Between two looks, at first and where it takes long: who waits for something is not to be what keeps it from coming.
const PAUSE: Duration = Duration::from_millis(1);
const LONG_PAUSE: Duration = Duration::from_millis(5);

/// Waits until there is something.
///
/// # Panics
/// Where it does not come.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    match within(DEADLINE, || look().ok_or(())) {
        Ok(found) => found,
        Err(()) => panic!("waited in vain: {what}"),
    }
}

/// Waits until it is true.
///
/// # Panics
/// Where it does not become so.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until it is as expected. Where it does not become so, what was found instead last is said.
///
/// # Panics
/// As [`wait_until`].
#[track_caller]
pub fn wait_for_ok<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    match within(DEADLINE, look) {
        Ok(found) => found,
        Err(instead) => panic!("waited in vain: {what}; found: {instead}"),
    }
}

/// How often the threads of a process have gone to sleep by themselves so far: evenly does once for each look at a
/// program. 0 where it has ended.
#[must_use]
pub fn sleeps(pid: impl Display) -> u64 {
    let of = |thread: fs::DirEntry| -> Option<u64> {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        count?.trim().parse().ok()
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().filter_map(|thread| of(thread.ok()?)).sum()
}

fn within<T, E>(deadline: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let began = Instant::now();
    loop {
        let found = look();
        if found.is_ok() || began.elapsed() > deadline {
            return found;
        }
        thread::sleep((began.elapsed() / 200).clamp(PAUSE, LONG_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_waited_for() {
        let mut left = 3;
        wait_until("none is left", || {
            left -= 1;
            left == 0
        });
        let mut words = ["", "", "here"].into_iter();
        assert_eq!(wait_for("a word", || words.next().filter(|w| !w.is_empty())), "here");
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        let mut looks = 0;
        let found: Result<(), u32> = within(Duration::from_millis(2), || {
            looks += 1;
            Err(looks)
        });
        assert_eq!(found, Err(looks));
    }
}
