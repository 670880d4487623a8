//! Virtual CPUs take turns on the host's CPUs.
//!
//! The CPUs of a shared host differ: over some seconds one does a tenth more work
//! in the same CPU time than another, then it is the other way round (measured: the
//! virtual CPUs on one host CPU agree to 2 to 3 %, those on two differed by 12 %).
//! Pinned for good, half of the guest would be faster; free to wander, each
//! virtual CPU would be fast or slow at its own moments. So all move on by one
//! host CPU every few quota periods, and each gets the mean of all host CPUs.
//!
//! Invariant: at any moment the host's CPUs hold equally many virtual CPUs, to
//! within one.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{LabError, Result};

/// How long a virtual CPU stays: well below the balancing periods that the lab is
/// for, and some quota periods, so that moving costs about a hundredth at most.
const TURN: Duration = Duration::from_millis(20);

/// Moves the virtual CPUs until it is dropped.
pub(crate) struct Turns {
    stop: Option<Sender<()>>,
    mover: Option<JoinHandle<()>>,
}

impl Turns {
    /// Deals the virtual CPUs out to the host's CPUs, and lets them take turns
    /// where there are several.
    ///
    /// # Errors
    /// When a virtual CPU cannot be bound to a host CPU.
    pub(crate) fn start(threads: &[Pid], host: &[usize]) -> Result<Turns> {
        deal(threads, host, 0).map_err(LabError::system("pinning a virtual CPU"))?;
        if host.len() < 2 {
            return Ok(Turns { stop: None, mover: None });
        }
        let (threads, host) = (threads.to_vec(), host.to_vec());
        let (stop, stopped) = mpsc::channel();
        let mover = std::thread::Builder::new()
            .name("lab-turns".into())
            .spawn(move || {
                let mut turn = 0;
                // A failure means that QEMU has ended; what waits for the guest says so.
                while stopped.recv_timeout(TURN) == Err(RecvTimeoutError::Timeout) {
                    turn += 1;
                    if deal(&threads, &host, turn).is_err() {
                        break;
                    }
                }
            })
            .map_err(LabError::system("a thread for the virtual CPUs' turns"))?;
        Ok(Turns { stop: Some(stop), mover: Some(mover) })
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(mover) = self.mover.take() {
            // It cannot panic, and there would be no reader.
            let _ = mover.join();
        }
    }
}

/// The host CPU of a virtual CPU in a turn.
fn place(virtual_cpu: usize, turn: usize, host: &[usize]) -> usize {
    host[(virtual_cpu + turn) % host.len()]
}

fn deal(threads: &[Pid], host: &[usize], turn: usize) -> io::Result<()> {
    for (number, thread) in threads.iter().enumerate() {
        let mut mask = CpuSet::new();
        mask.set(place(number, turn, host));
        sched_setaffinity(Some(*thread), &mask)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_virtual_cpu_is_equally_often_on_every_host_cpu() {
        let host = [2, 5, 7];
        for virtual_cpu in 0..8 {
            for cpu in host {
                let times = (0..30).filter(|t| place(virtual_cpu, *t, &host) == cpu).count();
                assert_eq!(times, 10);
            }
        }
        for turn in 0..5 {
            for cpu in host {
                let held = (0..8).filter(|v| place(*v, turn, &host) == cpu).count();
                assert!((2..=3).contains(&held));
            }
        }
    }

    #[test]
    fn the_mover_ends_with_its_owner() {
        let own = rustix::thread::gettid();
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
        drop(Turns::start(&[own], &cpus).unwrap());
        let held = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!(held.count(), 1);
        sched_setaffinity(None, &before).unwrap();
        evenly_testing::wait_until("the mover has ended", || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap();
            let names = threads.map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")));
            // One that has ended meanwhile has no name.
            names.flatten().all(|name| name != "lab-turns\n")
        });
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }
}
