//! Loops of a C program carried out by rayon (`workloads/loops/for_each.h`): a reference for those of evenly.
//!
//! Invariant: each thread is bound to one CPU, as `OMP_PROC_BIND` does.

#![deny(unsafe_code)]

use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::ffi::c_int;
use std::sync::OnceLock;

/// Of the C program, which has one number of threads.
static POOL: OnceLock<ThreadPool> = OnceLock::new();

/// Calls `body` for parts of a loop, from `lower` to below `upper`, in as many threads, the caller among them.
#[allow(unsafe_code, reason = "the name that C calls")]
#[unsafe(no_mangle)]
pub extern "C" fn for_each(
    threads: c_int,
    _loop: c_int,
    lower: i64,
    upper: i64,
    body: extern "C" fn(i64, i64),
) {
    use rayon::prelude::*;
    let pool = POOL.get_or_init(|| {
        bound_pool(threads).unwrap_or_else(|error| {
            eprintln!("no threads of rayon: {error}");
            std::process::exit(1)
        })
    });
    pool.install(|| (lower..upper).into_par_iter().for_each(|i| body(i, i + 1)));
}

/// As many threads, the calling one among them, each bound to one of the CPUs that are allowed.
fn bound_pool(threads: c_int) -> Result<ThreadPool, Box<dyn Error>> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let bind = move |thread: usize| -> io::Result<()> {
        let mut own = CpuSet::new();
        own.set(cpus[thread % cpus.len()]);
        sched_setaffinity(None, &own)
    };
    // The caller is the first thread, and rayon's handler is not called for it.
    bind(0)?;
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads.try_into()?)
        .use_current_thread()
        .start_handler(move |thread| {
            if let Err(error) = bind(thread) {
                eprintln!("a thread of rayon cannot be bound: {error}");
                std::process::exit(1);
            }
        })
        .build()?;
    Ok(pool)
}
