//! Waiting for what is expected: a test never sleeps for a time that should be enough.

use std::thread;
use std::time::{Duration, Instant};

/// Only what is broken lasts as long as this: tests run beside each other on few and busy CPUs.
const DEADLINE: Duration = Duration::from_secs(180);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until there is something.
///
/// # Panics
/// Where it does not come.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(DEADLINE, look) {
        Some(found) => found,
        None => panic!("waited in vain: {what}"),
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

fn within<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        let found = look();
        if found.is_some() || began.elapsed() > deadline {
            return found;
        }
        thread::sleep(PAUSE);
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
        assert_eq!(within(Duration::from_millis(2), || None::<u8>), None);
    }
}
