//! QEMU as a child process that cannot outlive the lab.
//!
//! Invariant: QEMU is started by a thread that lives until QEMU has ended. The
//! kernel's parent-death signal goes off when the *thread* that forked ends, so
//! a lab may move between threads without harm, and any death of this process
//! takes QEMU with it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{LabError, Result};

/// The last part of a stream of text.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    const KEPT: usize = 16 << 10;

    pub(crate) fn push(&self, data: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(data);
        let excess = kept.len().saturating_sub(Self::KEPT);
        kept.drain(..excess);
    }

    pub(crate) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).replace('\r', "");
        let text = text.trim();
        if text.is_empty() { "(nothing)".into() } else { text.to_owned() }
    }

    /// Reads `source` to its end, in a thread.
    pub(crate) fn follow(&self, mut source: impl Read + Send + 'static) {
        let tail = self.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut buffer) {
                tail.push(&buffer[..length]);
            }
        });
    }
}

/// Ends QEMU from any thread; for signal handlers' threads.
#[derive(Debug, Clone)]
pub struct Killer(Arc<OwnedFd>);

impl Killer {
    /// Kills QEMU at once; the lab then reports that the guest ended.
    pub fn kill(&self) {
        // The only failure is that it has already ended.
        let _ = pidfd_send_signal(&*self.0, Signal::KILL);
    }
}

/// A QEMU process that runs.
pub(crate) struct Qemu {
    pub(crate) pid: Pid,
    killer: Killer,
    ended: mpsc::Receiver<io::Result<ExitStatus>>,
    waiter: Option<JoinHandle<()>>,
}

impl Qemu {
    /// Starts QEMU with `inherited` descriptors left open in it, under the
    /// numbers that they have here.
    pub(crate) fn start(
        program: &str,
        arguments: Vec<OsString>,
        inherited: Vec<OwnedFd>,
        messages: &Tail,
    ) -> Result<Qemu> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A Ctrl-C in the terminal is for the lab alone.
            .process_group(0);
        let descriptors: Vec<i32> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let prepare = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            for &descriptor in &descriptors {
                // SAFETY: `inherited` is owned by the waiter's thread, which
                // drops it only after the spawn, so the number is open here.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec `prepare` only makes system calls; it
        // neither allocates nor takes a lock.
        unsafe { command.pre_exec(prepare) };

        let (started_tx, started) = mpsc::channel();
        let (ended_tx, ended) = mpsc::channel();
        let waiter = std::thread::spawn(move || match command.spawn().and_then(with_pidfd) {
            Ok((mut child, pid, pidfd)) => {
                // Closed on this side, so that QEMU's end is seen as an end of file.
                drop(inherited);
                let stderr = child.stderr.take();
                let _ = started_tx.send(Ok((pid, pidfd, stderr)));
                let _ = ended_tx.send(child.wait());
            }
            Err(error) => {
                let _ = started_tx.send(Err(error));
            }
        });
        let started = started.recv().unwrap_or_else(|_| Err(io::Error::other("thread ended")));
        let (pid, pidfd, stderr) = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LabError::Unavailable(format!(
                "the program {program} is missing; needed: apt-get install qemu-system-x86"
            )),
            _ => LabError::System { what: "starting QEMU", source: error },
        })?;
        if let Some(stderr) = stderr {
            messages.follow(stderr);
        }
        Ok(Qemu { pid, killer: Killer(Arc::new(pidfd)), ended, waiter: Some(waiter) })
    }

    pub(crate) fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Whether QEMU ended by itself within `timeout`.
    pub(crate) fn ends_within(&self, timeout: std::time::Duration) -> bool {
        !matches!(self.ended.recv_timeout(timeout), Err(mpsc::RecvTimeoutError::Timeout))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.killer.kill();
        if let Some(waiter) = self.waiter.take() {
            // It cannot panic, and there would be no reader.
            let _ = waiter.join();
        }
    }
}

fn with_pidfd(mut child: Child) -> io::Result<(Child, Pid, OwnedFd)> {
    let opened = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("process id out of range"))
        .and_then(|pid| Ok((pid, pidfd_open(pid, PidfdFlags::empty())?)));
    match opened {
        Ok((pid, pidfd)) => Ok((child, pid, pidfd)),
        Err(error) => {
            // Without a descriptor it could not be ended safely later on.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}
