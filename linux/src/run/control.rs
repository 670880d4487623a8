//! What ends a running balancer, and wakes those of its threads that sleep.

use crate::clock::now;
use evenly_model::Nanos;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Ends a running balancer, or wakes its threads, from any thread.
#[derive(Clone, Default)]
pub struct Control(Arc<(Mutex<End>, Condvar)>);

/// Whether it has been asked for.
#[derive(Default)]
struct End(bool);

impl Control {
    /// Asks all threads of the balancer to end, and does not wait for them.
    pub fn end(&self) {
        self.lock().0 = true;
        self.0.1.notify_all();
    }

    /// Whether it is time to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().0
    }

    /// Wakes the threads that sleep, so that they look into their mailboxes.
    pub(crate) fn wake(&self) {
        // With the lock, so that no thread is between looking and sleeping.
        let _state = self.lock();
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a time, or until there is something to do when woken. Returns true when it is time
    /// to end.
    pub(crate) fn sleep_until(&self, deadline: Nanos, to_do: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        loop {
            let left = deadline - now();
            if state.0 || left == Nanos::ZERO || to_do() {
                return state.0;
            }
            let waited = self.0.1.wait_timeout(state, Duration::from(left));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
