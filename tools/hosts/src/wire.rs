//! A wire between two network namespaces that holds each packet for a time.
//!
//! Kernels without the queueing discipline netem have nothing that delays packets. So each namespace gets
//! a TAP interface, whose packets come to us: for each direction a thread takes them from one end, and
//! puts them into the other when their time has come.
//!
//! Invariant: packets stay whole and in order, and none arrives before its time; later it may be, where
//! the machine is busy and the threads could not be made real-time ones.

use rustix::event::EventfdFlags;
use rustix::event::{PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::thread::{LinkNameSpaceType, gettid, move_into_link_name_space};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most packets that are held at a time, in each direction; those that come then are lost, as in any
/// queue.
const MOST_HELD: usize = 1 << 14;
/// Packets that are taken before it is looked whether others are due.
const MOST_AT_ONCE: usize = 64;
/// Longer than any packet.
const MOST_BYTES: usize = 1 << 16;
/// Real-time priority of the threads: below what the kernel's own threads have.
const PRIORITY: &str = "10";

/// A wire; the threads end when it is dropped, and the interfaces with them.
pub struct Wire {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    prompt: bool,
}

impl Wire {
    /// Between the network namespaces of two processes, an interface of this name on each end.
    ///
    /// # Errors
    /// Where there is no `/dev/net/tun`, or it is not to be used.
    pub fn new(pids: [u32; 2], interface: &str, delay: Duration) -> io::Result<Self> {
        let [a, b] = pids.map(|pid| tap_of(pid, interface));
        let (a, b) = (Arc::new(a?), Arc::new(b?));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (mut threads, mut prompt) = (Vec::new(), true);
        for (from, to) in [(a.clone(), b.clone()), (b, a)] {
            let (channel, stop) = (std::sync::mpsc::channel(), stop.clone());
            threads.push(thread::Builder::new().name(String::from("wire")).spawn(move || {
                // Nothing waits for it only where the wire could not be made.
                let _ = channel.0.send(gettid().as_raw_nonzero().get());
                carry(&from, &to, &stop, delay);
            })?);
            let thread = channel.1.recv().map_err(io::Error::other)?;
            prompt &= make_prompt(thread);
        }
        Ok(Self { stop, threads, prompt })
    }

    /// Whether its threads are real-time ones.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.prompt
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Adding one to a counter of 64 bits that was 0 cannot fail.
        let _ = write(&*self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // What ended it early has been said by the panic.
            let _ = thread.join();
        }
    }
}

/// Makes a thread a real-time one, which needs the right to.
fn make_prompt(thread: i32) -> bool {
    Command::new("chrt")
        .args(["--fifo", "--pid", PRIORITY, &thread.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A TAP interface in the network namespace of a process.
fn tap_of(pid: u32, interface: &str) -> io::Result<OwnedFd> {
    let interface = interface.to_owned();
    // A thread of its own goes there, and ends.
    let made = thread::spawn(move || -> io::Result<OwnedFd> {
        let namespace =
            open(format!("/proc/{pid}/ns/net"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open("/dev/net/tun", flags, Mode::empty())
            .map_err(|e| io::Error::other(format!("/dev/net/tun: {e}")))?;
        tap::set(&fd, &interface)?;
        Ok(fd)
    });
    made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The one request of the TUN driver that is needed.
#[allow(unsafe_code)]
mod tap {
    use rustix::ioctl::{Opcode, Setter, ioctl};
    use std::io;
    use std::os::fd::OwnedFd;

    /// `_IOW('T', 202, int)` (linux/if_tun.h).
    const TUNSETIFF: Opcode = 0x4004_54ca;
    /// Whole frames, without a header of the driver's own.
    const FLAGS: i16 = 0x0002 | 0x1000;
    const NAME_BYTES: usize = 16;

    /// struct ifreq (netdevice(7)), with the member that is used here.
    #[repr(C)]
    struct Request {
        name: [u8; NAME_BYTES],
        flags: i16,
        rest: [u8; 22],
    }

    /// Makes a TAP interface of this name, in the namespace in which the file was opened.
    pub(super) fn set(fd: &OwnedFd, name: &str) -> io::Result<()> {
        let mut request = Request { name: [0; NAME_BYTES], flags: FLAGS, rest: [0; 22] };
        let bytes = name.as_bytes();
        if bytes.len() >= NAME_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request.name[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: TUNSETIFF takes a pointer to a struct ifreq, which `Request` is as long as, and
        // keeps nothing of it.
        unsafe { ioctl(fd, Setter::<TUNSETIFF, Request>::new(request)) }?;
        Ok(())
    }
}

/// A packet and when it is to arrive.
struct Held {
    due: Instant,
    bytes: Vec<u8>,
}

/// Carries packets until it is to stop.
fn carry(from: &OwnedFd, to: &OwnedFd, stop: &OwnedFd, delay: Duration) {
    let mut held: VecDeque<Held> = VecDeque::new();
    let mut buffer = vec![0; MOST_BYTES];
    loop {
        let now = Instant::now();
        while held.front().is_some_and(|packet| packet.due <= now) {
            if let Some(packet) = held.pop_front() {
                // An interface that is down, or whose queue is full, loses it.
                let _ = write(to, &packet.bytes);
            }
        }
        let left = held.front().map(|packet| packet.due.saturating_duration_since(now));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(from, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        for _ in 0..MOST_AT_ONCE {
            let Ok(n) = read(from, &mut buffer[..]) else { break };
            if held.len() < MOST_HELD {
                let due = Instant::now() + delay;
                held.push_back(Held { due, bytes: buffer[..n].to_vec() });
            }
        }
    }
}
