//! Parallel loops whose iterations follow the machine: each thread of a team is given as many as it gets done in the same time as
//! the others (Rencuzogullari, Dwarkadas: *Dynamic Adaptation to Available Resources*, PPoPP 2001). The interface for C and C++ is
//! `include/evenly/loops.h`, that for Fortran `loops.f90` beside it.
//!
//! ```
//! use evenly_loops::{Access, Bounds, Load, Policy, Team};
//!
//! let team = Team::new(2)?;
//! let squares = team.region("squares").load(Load::Fixed).access(Access::Independent).build();
//! let sum = std::thread::scope(|scope| {
//!     let threads: Vec<_> = (0..2)
//!         .map(|thread| {
//!             let squares = &squares;
//!             scope.spawn(move || {
//!                 let mut turn = squares.begin(thread, Bounds { lower: 1, upper: 101, stride: 1 })?;
//!                 let mut own = 0.0;
//!                 while let Some(part) = turn.next_task()? {
//!                     own += part.values().map(|i| (i * i) as f64).sum::<f64>();
//!                 }
//!                 turn.reduce(own, |a, b| a + b)
//!             })
//!         })
//!         .collect();
//!     threads.into_iter().map(|thread| thread.join().unwrap()).next().unwrap()
//! })?;
//! assert_eq!(sum, 338_350.0);
//! # Ok::<(), evenly_loops::LoopsError>(())
//! ```

#![deny(unsafe_code)]

pub mod board;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "pointers of C")]
pub mod c;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod crowd;
#[cfg(not(loom))]
mod declare;
#[cfg(not(loom))]
mod ends;
mod error;
pub mod gate;
#[cfg(not(loom))]
mod gathering;
#[allow(unsafe_code, reason = "an instruction of the CPU")]
mod hint;
#[cfg(not(loom))]
mod pending;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "functions of C's library")]
mod process;
pub mod queue;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod shown;
#[cfg(not(loom))]
mod slice;
#[cfg(not(loom))]
mod team;
#[cfg(not(loom))]
mod telling;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
pub use declare::{Array, Declaration, Team};
pub use error::{LoopsError, Reason};
pub use evenly_iterations::{Access, Bounds, Load, Policy, Use};
#[cfg(not(loom))]
pub use region::{LINE_BYTES, Region, Report, Turn};

/// Most threads of a team.
pub const MOST_THREADS: usize = 1024;
