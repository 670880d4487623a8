//! A simulation that takes long says so, once, and what may be the reason.

use crate::tell;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long nothing need be said.
const LONG: Duration = Duration::from_secs(5);

/// While it lives, somebody waits.
pub(super) struct Patience(
    #[expect(dead_code, reason = "that it is dropped is the message")] Sender<()>,
);

impl Patience {
    /// From now on. `cost` is what may take so long, if anything is known to.
    pub(super) fn new(cost: Option<String>) -> Self {
        let (lives, ends) = channel::<()>();
        let watch = move || {
            if ends.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                let cost = cost.map(|cost| format!("{cost}; ")).unwrap_or_default();
                tell(&format!(
                    "evenly: still simulating, which takes longer the more points and threads there are: {cost}a longer \
                     period, fewer phases or fewer threads are faster; Ctrl-C ends it"
                ));
            }
        };
        // Without a thread to say so it only takes long.
        #[expect(
            clippy::disallowed_methods,
            reason = "no program is started, whose signals it might take"
        )]
        drop(std::thread::Builder::new().spawn(watch));
        Self(lives)
    }
}
