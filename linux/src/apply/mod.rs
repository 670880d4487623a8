//! What is changed on a plan's behalf: masks by [`machine`], shares of the machine by [`share`].
//!
//! Invariant: every change is in the journal before it is made (promise P4).

pub mod machine;
pub mod share;
