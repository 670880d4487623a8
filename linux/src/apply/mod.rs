//! What is changed on a plan's behalf: masks by [`machine`], shares of the machine by [`share`], code of programs by
//! [`breakpoints`]; `beats` change nothing of a program.
//!
//! Invariant: every change of a mask or a share is in the journal before it is made (promise P4).

pub(crate) mod beats;
pub mod breakpoints;
pub mod machine;
pub mod share;
