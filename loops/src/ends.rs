//! What is to be known at the end of a thread of the program: of which teams it was one, so that nobody waits for it in a reduction.

use crate::process::at_thread_end;
use crate::team::{Shared, this_thread};
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, Weak};

/// Teams, and the number that the thread has in each. Nothing drops them: that would be done at the end of the process, too.
type Teams = RefCell<ManuallyDrop<Vec<(Weak<Shared>, usize)>>>;

thread_local! {
    static TEAMS: Teams = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// What is done first.
static FIRST: OnceLock<fn()> = OnceLock::new();

/// From now on this is done first where a thread of a team ends; the same function each time.
pub(crate) fn do_first(function: fn()) {
    FIRST.get_or_init(|| function);
}

/// The calling thread is one of this team from now on.
pub(crate) fn joins(team: &Arc<Shared>, thread: usize) {
    let joins = |all: &mut Vec<(Weak<Shared>, usize)>| {
        let team = Arc::downgrade(team);
        // What was freed meanwhile is kept no longer.
        all.retain(|(known, number)| {
            known.strong_count() > 0 && !(known.ptr_eq(&team) && *number == thread)
        });
        all.push((team, thread));
    };
    TEAMS.with(|teams| joins(&mut teams.borrow_mut()));
    at_thread_end(ends);
}

extern "C" fn ends(_: *mut c_void) {
    if let Some(first) = FIRST.get() {
        first();
    }
    let all = TEAMS.with(|teams| std::mem::take(&mut **teams.borrow_mut()));
    for (team, thread) in all {
        // The number may belong to another thread by now.
        if let Some(team) = team.upgrade().filter(|team| team.is(thread, this_thread())) {
            team.ends(thread);
        }
    }
}
