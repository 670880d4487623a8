//! What is to be known when a thread of the program ends, so that nobody waits for it.

use crate::process::at_thread_end;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Weak;

/// What threads of the program are in, each by a number.
pub(crate) trait HasThreads {
    /// The calling thread ends, which was given this number. That may belong to another one by now.
    fn thread_ends(&self, thread: usize);
}

/// What the thread is in, in the order in which it came there. Nothing drops that: it would be done at the end of the process, too.
type Joined = RefCell<ManuallyDrop<Vec<(Weak<dyn HasThreads>, usize)>>>;

thread_local! {
    static JOINED: Joined = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// The calling thread is in it from now on.
pub(crate) fn joins(what: Weak<dyn HasThreads>, thread: usize) {
    JOINED.with(|joined| {
        let mut all = joined.borrow_mut();
        // What was freed meanwhile is kept no longer.
        all.retain(|(known, number)| {
            known.strong_count() > 0 && !(known.ptr_eq(&what) && *number == thread)
        });
        all.push((what, thread));
    });
    at_thread_end(ends);
}

extern "C" fn ends(_: *mut c_void) {
    let all = JOINED.with(|joined| std::mem::take(&mut **joined.borrow_mut()));
    // A loop that it leaves in the middle is given up before its team is told.
    for (what, thread) in all.into_iter().rev() {
        if let Some(what) = what.upgrade() {
            what.thread_ends(thread);
        }
    }
}
