//! The program `evenly` from the outside: that the program it runs notices nothing, that what it
//! says is honest, that what it cannot do is said in one line, and that its interfaces are as
//! documented. Tests wait for conditions, never for times.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod bad_input;
mod budget;
mod efficiency;
mod foreign;
#[cfg(target_arch = "x86_64")]
mod handover;
mod help;
mod invisible;
mod json;
mod limits;
mod loops;
mod map;
mod map_bounds;
mod messages;
#[path = "../common/mpi.rs"]
mod mpi;
mod network;
mod printable;
mod privileges;
mod probe;
#[path = "../common/processes.rs"]
mod processes;
mod profile;
mod reports;
#[path = "../common/schema.rs"]
mod schema;
mod signals;
mod support;
mod threads;
mod top;
mod topology;
mod tune;
