//! What other policies are compared with: threads that are placed once, threads that are only watched, and threads that are
//! moved when others block.

#![forbid(unsafe_code)]

mod fixed;
mod reactive;

pub use fixed::{OBSERVE, STATIC};
pub use reactive::{REACTIVE, Reactive};
