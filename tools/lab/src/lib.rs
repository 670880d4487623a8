//! A machine with more CPUs than this one.
//!
//! The lab boots a real Linux kernel with any number of CPUs and NUMA nodes in
//! software emulation (QEMU's TCG) and runs commands in it. Emulated CPUs are
//! host threads: left alone, one gets faster when others idle, which would
//! falsify every balancing result. So each is held to an equal, steady share of
//! the host by a CPU quota, and [`Lab::equal_speed`] checks that it works.
//!
//! ```no_run
//! use std::time::Duration;
//! use evenly_lab::{Lab, LabOptions};
//!
//! let mut lab = Lab::boot(LabOptions { cpus: 8, numa: 2, ..LabOptions::default() })?;
//! let out = lab.run("cat /sys/devices/system/node/node1/cpulist", Duration::from_secs(10))?;
//! assert_eq!((out.status, out.text().as_str()), (0, "4-7"));
//! lab.shutdown()?;
//! # Ok::<(), evenly_lab::LabError>(())
//! ```

mod cgroup;
mod error;
mod exercise;
mod initramfs;
pub mod kernel;
mod lab;
mod qemu;
mod qmp;
mod session;
mod speed;
mod turns;

pub use cgroup::{CpuCaps, Quota};
pub use error::{LabError, Result};
pub use exercise::{Read, exercise};
pub use lab::{GuestFile, Include, Lab, LabOptions, Output, Share, shell_quote};
pub use qemu::Killer;
pub use session::Stream;
pub use speed::{Deviation, EqualSpeed, Verdict};
