//! What the tests that boot a guest share: when to skip, one lab at a time, and when to try again.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenly_lab::{Lab, LabError, Output};

/// Two labs at a time disturb each other.
static ONE_LAB: Mutex<()> = Mutex::new(());

/// Taken by each test that boots a guest.
pub(crate) fn one_lab() -> MutexGuard<'static, ()> {
    ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the tests that need QEMU, a kernel and control groups were asked for.
pub(crate) fn wanted() -> bool {
    let wanted = std::env::var_os("EVENLY_LAB").is_some_and(|value| value == "1");
    if !wanted {
        skipped("set EVENLY_LAB=1");
    }
    wanted
}

/// Says why there is no result.
pub(crate) fn skipped(why: &str) {
    evenly_testing::skip("lab", why);
}

/// The test harness hides what `eprintln` prints.
fn told(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// How many guests the checks may take.
const BOOTS: usize = 2;

/// The payload of a panic: the guest gave no answer to this command.
struct StoodStill(String);

/// Runs a command in the guest. One that does not end in time ends the attempt: see [`in_a_lab`].
pub(crate) fn run(lab: &mut Lab, command: &str, patience: Duration) -> Output {
    match lab.run(command, patience) {
        Ok(output) if output.timed_out => panic_any(StoodStill(command.to_owned())),
        other => answered(other, command),
    }
}

/// The answer to something else that was asked of the guest.
pub(crate) fn answered<T>(result: Result<T, LabError>, asked: &str) -> T {
    match result {
        Err(LabError::NoAnswer { .. }) => panic_any(StoodStill(asked.to_owned())),
        other => other.unwrap(),
    }
}

/// Boots a guest and runs checks in it. A host that is busy enough can make any guest late, so that
/// the checks begin once more, in another guest, where one gave no answer; that is told. The second
/// time it is a failure: what is tested may be what hangs.
pub(crate) fn in_a_lab(boot: impl Fn() -> Result<Lab, LabError>, checks: impl Fn(&mut Lab)) {
    for left in (0..BOOTS).rev() {
        let mut lab = match boot() {
            Err(LabError::NoAnswer { when, waited, .. }) if left > 0 => {
                told(&format!("one boot: {when}, no answer within {waited:?}; booting again"));
                continue;
            }
            other => match or_skip(other) {
                Some(lab) => lab,
                None => return,
            },
        };
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| checks(&mut lab))) else {
            lab.shutdown().unwrap();
            return;
        };
        match panic.downcast::<StoodStill>() {
            Ok(at) if left > 0 => told(&format!("no answer to: {}; booting again", at.0)),
            Ok(at) => panic!("{BOOTS} guests gave no answer, the last to: {}", at.0),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// None where something that the lab needs is missing: that is a skip.
pub(crate) fn or_skip<T>(result: Result<T, LabError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.is_unavailable() => {
            skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
