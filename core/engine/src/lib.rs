//! The balancing cycle: observe, decide, apply, verify, record; generic over a [`Machine`].
//!
//! Invariant: the crate knows no system call. Clock, thread times and affinity come through the
//! [`Machine`], randomness from a seed, so that the same code runs live and in virtual time.

#![forbid(unsafe_code)]

mod account;
mod actuate;
mod admission;
pub mod agents;
mod arms;
mod balancer;
mod beside;
mod choose;
mod domains;
mod event;
mod guard;
mod handover;
mod lead;
mod ledger;
mod machine;
mod managed;
mod meetings;
mod membership;
mod memory;
mod notes;
mod observe;
mod others;
mod pauses;
mod period;
mod phases;
mod placement;
mod promise;
mod ranks;
mod rates;
#[cfg(test)]
mod scripted;
mod speed;
mod summary;
mod surroundings;
mod totals;
mod tracker;
mod trial;
mod unequal;
mod verify;
mod waiting;
mod weights;

pub use actuate::{Action, Outcome, perform};
pub use agents::{Agent, Agents, Manner, Next, Remote};
pub use balancer::{Balancer, BalancerOptions};
pub use domains::{DomainSpread, DomainThread, Transfer, home_of_newcomer, left_unused, roomiest};
pub use event::{CpuRecord, Event, MoveRecord, Observer, PointRecord, ThreadMeta, ThreadRecord};
pub use guard::{GuardOptions, Verdict};
pub use machine::{
    Actuator, ApplyError, Failure, Located, Machine, MemoryMoved, MemoryUnknown, Neighbour,
    RankActivity, Reader, Reading, RunState, Sensors, Tally, Times, Waiting, Wanted,
};
pub use period::{ADVANCE, Period, PeriodControl, PeriodOptions};
pub use promise::{Promise, Seen, is_unequal};
pub use speed::LEAST_WANTED;
pub use summary::{
    Choice, CostBreakdown, DomainSummary, Placed, SearchSummary, Summary, ThreadSummary, Untried,
    spread_of_stays,
};
pub use tracker::{Candidate, Eligible, Selection, Tracker, TrackerOptions};
pub use waiting::WaitReport;
