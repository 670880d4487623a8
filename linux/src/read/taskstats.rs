//! The taskstats interface of the kernel: a second source for the times of threads, the one that
//! the papers use. It needs CAP_NET_ADMIN, where `/proc/<pid>/task/<tid>/schedstat` needs nothing.
//!
//! Invariant: a value is returned only where its place in the kernel's structure is known for
//! certain. The structure grows at its end from version to version, except that version 15 put
//! fields between others (and version 16 moved them out again).
//!
//! The family's number is looked up through `neli`. Readings do not go through its message types,
//! which allocate: requests for several threads are laid out in one buffer and sent by one call,
//! and their replies are received by one call into buffers that are kept. The kernel answers within
//! the sending call, so a reply that is not there afterwards has been lost, and nothing ever waits.
//!
//! CPU time and waiting time come from the counters that `schedstat` shows too. The delays of block
//! I/O and swapping are counted only where `kernel.task_delayacct` is 1. Kernels before 5.14 that
//! were booted with `nodelayacct` give no times at all; [`TaskStats::open`] finds that out.

use evenly_engine::Times;
use evenly_model::{Nanos, Tid};
use neli::consts::genl::{CtrlAttr, CtrlCmd};
use neli::consts::nl::{GenlId, NlmF};
use neli::consts::socket::{Msg, NlFamily};
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder};
use neli::nl::{NlPayload, NlmsghdrBuilder};
use neli::socket::NlSocket;
use neli::socket::synchronous::NlSocketHandle;
use neli::types::GenlBuffer;
use neli::utils::Groups;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

/// Requests that go out in one call: their replies fit the socket's default receive buffer with
/// much to spare.
const BATCH: usize = 32;
/// Room for one reply: version 17 takes about 700 bytes.
const REPLY: usize = 2048;
/// Length of one request: netlink header, generic netlink header, one attribute of four bytes.
const REQUEST: usize = 28;

/// What a thread has used and waited for since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskTimes {
    /// CPU time, as the scheduler counts it.
    pub ran: Nanos,
    /// Time spent runnable but waiting for a CPU.
    pub waited: Nanos,
    /// Number of time slices in which it has run.
    pub slices: u64,
    /// Time spent waiting for block I/O; 0 where delays are not counted.
    pub block_io: Nanos,
    /// Time spent waiting for pages to be swapped in; 0 where delays are not counted.
    pub swap_in: Nanos,
    /// CPU time in the program, to a microsecond at best.
    pub user: Nanos,
    /// CPU time in the kernel, to a microsecond at best.
    pub system: Nanos,
    /// Page faults that needed no page from disk.
    pub minor_faults: u64,
    /// Page faults that loaded a page from disk.
    pub major_faults: u64,
    /// Context switches of its own accord: it blocked.
    pub voluntary_switches: u64,
    /// Context switches because another thread had to run.
    pub involuntary_switches: u64,
    /// How long ago the thread started, to a microsecond, which distinguishes it from an earlier one
    /// of the same id. None where the kernel does not report it (built without CONFIG_TASK_XACCT).
    pub age: Option<Nanos>,
}

impl TaskTimes {
    /// Whether this can be of a thread that was there at the time `seen`, where the reading was asked
    /// for at the time `asked`, both of the monotonic clock. A thread that has got its id since has
    /// started since. None where the kernel does not report it.
    #[must_use]
    pub fn is_of_thread_seen(&self, seen: Nanos, asked: Nanos) -> Option<bool> {
        // The kernel looked at its clock after `asked`, and rounded down to a microsecond.
        self.age.map(|age| age + Nanos::from_micros(1) >= asked - seen)
    }

    /// The part that `schedstat` has too.
    #[must_use]
    pub fn times(&self) -> Times {
        Times { ran: self.ran, waited: self.waited, slices: self.slices }
    }

    /// Reads the kernel's `struct taskstats`. None where version and length are not those of a
    /// layout that is known.
    #[must_use]
    pub fn parse(structure: &[u8]) -> Option<Self> {
        // Up to the context switch counters, in version 8 (Linux 2.6.31).
        const KNOWN: usize = 328;
        // Up to the end of version 14, and of version 15.
        const END_14: usize = 432;
        const END_15: usize = END_14 + 16 * 8;
        let version = u16::from_ne_bytes(*structure.first_chunk()?);
        // Version 15 has a maximum and a minimum, 16 bytes, after each kind of delay.
        let extra = match (version, structure.len()) {
            (8..=14, KNOWN..=END_14) | (16.., END_15..) => 0,
            (15, END_15) => 16,
            _ => return None,
        };
        let at = |offset: usize, kinds: usize| -> Option<u64> {
            let bytes = structure.get(offset + kinds * extra..)?;
            Some(u64::from_ne_bytes(*bytes.first_chunk()?))
        };
        let micros = |n: u64| Nanos(n.saturating_mul(1000));
        Some(Self {
            slices: at(16, 0)?,
            waited: Nanos(at(24, 0)?),
            block_io: Nanos(at(40, 1)?),
            swap_in: Nanos(at(56, 2)?),
            ran: Nanos(at(72, 3)?),
            user: micros(at(152, 3)?),
            system: micros(at(160, 3)?),
            minor_faults: at(168, 3)?,
            major_faults: at(176, 3)?,
            voluntary_switches: at(272, 3)?,
            involuntary_switches: at(280, 3)?,
            // ac_etime; where ac_pid is 0 none of these fields has been filled in.
            age: (at(128, 3)? as u32 != 0).then_some(micros(at(144, 3)?)),
        })
    }
}

/// What the kernel answers to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The times of the thread.
    Times(TaskTimes),
    /// Times in a structure whose layout is not known.
    UnknownLayout {
        /// The version that the structure names; 0 where it is too short for one.
        version: u16,
        /// Its length in bytes.
        length: usize,
    },
    /// An error number, positive.
    Error(i32),
}

/// Reads one netlink message: the request's sequence number and the answer. None where it is
/// neither a reply with statistics nor an error.
#[must_use]
pub fn parse_answer(message: &[u8]) -> Option<(u32, Answer)> {
    let length = u32_at(message, 0)? as usize;
    let message = message.get(..length)?;
    let kind = u16_at(message, 4)?;
    let sequence = u32_at(message, 8)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let error = u32_at(message, 16)?.cast_signed();
        return Some((sequence, Answer::Error(error.checked_neg()?)));
    }
    if i32::from(kind) < libc::NLMSG_MIN_TYPE {
        return None;
    }
    // TASKSTATS_TYPE_AGGR_PID holds TASKSTATS_TYPE_PID and TASKSTATS_TYPE_STATS.
    let whole = attribute(message.get(20..)?, 4)?;
    let stats = attribute(whole, 3)?;
    let answer = TaskTimes::parse(stats).map_or(
        Answer::UnknownLayout { version: u16_at(stats, 0).unwrap_or(0), length: stats.len() },
        Answer::Times,
    );
    Some((sequence, answer))
}

/// The payload of the first attribute of a type.
fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(list, 0)?);
        let payload = list.get(4..length)?;
        // The two highest bits are flags: nested, and byte order.
        if u16_at(list, 2)? & 0x3fff == wanted {
            return Some(payload);
        }
        list = list.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Why taskstats cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskStatsError {
    /// A generic netlink socket cannot be opened.
    #[error("taskstats: no generic netlink socket ({0}); use --source schedstat")]
    Socket(String),
    /// The kernel has no such family, or not in this network namespace.
    #[error(
        "taskstats: this kernel, or this network namespace, has no TASKSTATS family ({0}); needed \
         are CONFIG_TASKSTATS and the first network namespace; --source schedstat needs neither"
    )]
    Family(String),
    /// The capability is missing.
    #[error(
        "taskstats: permission denied; needed is CAP_NET_ADMIN in the first user namespace (sudo \
         evenly, or systemd: AmbientCapabilities=CAP_NET_ADMIN); --source schedstat needs no permission"
    )]
    Permission,
    /// The kernel counts no times.
    #[error(
        "taskstats: this kernel gives no times, because it was booted with nodelayacct; boot \
         without it, or use --source schedstat, which does not depend on it"
    )]
    NoTimes,
    /// The structure is of a layout that is not known.
    #[error(
        "taskstats: version {version} with {length} bytes is a layout that is not known (known are \
         versions 8 to 17); use --source schedstat"
    )]
    Layout {
        /// The version that the structure names.
        version: u16,
        /// Its length in bytes.
        length: usize,
    },
    /// The first reading failed.
    #[error("taskstats: the first reading failed ({0}); use --source schedstat")]
    Reading(io::Error),
}

/// A connection to the taskstats family.
pub struct TaskStats {
    socket: NlSocket,
    family: u16,
    sequence: u32,
    requests: [u8; BATCH * REQUEST],
    replies: Vec<[u8; REPLY]>,
}

impl fmt::Debug for TaskStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStats").field("family", &self.family).finish_non_exhaustive()
    }
}

impl TaskStats {
    /// Connects, and takes one reading of the calling thread to see that it works.
    ///
    /// # Errors
    /// [`TaskStatsError`]; each says what is missing.
    pub fn open() -> Result<Self, TaskStatsError> {
        let family = resolve()?;
        let socket = NlSocket::connect(NlFamily::Generic, None, Groups::empty())
            .map_err(|e| TaskStatsError::Socket(e.to_string()))?;
        let mut stats = Self {
            socket,
            family,
            sequence: 0,
            requests: [0; BATCH * REQUEST],
            replies: vec![[0; REPLY]; BATCH],
        };
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut answer = None;
        stats.ask(&[Tid(own)], |_, a| answer = Some(a)).map_err(TaskStatsError::Reading)?;
        match answer {
            // The calling thread is in a time slice, its first at least. Its CPU time would not do:
            // that of a new thread may be 0 until the first tick.
            Some(Answer::Times(t)) if t.slices > 0 => Ok(stats),
            Some(Answer::Times(_)) => Err(TaskStatsError::NoTimes),
            Some(Answer::UnknownLayout { version, length }) => {
                Err(TaskStatsError::Layout { version, length })
            }
            Some(Answer::Error(libc::EPERM)) => Err(TaskStatsError::Permission),
            Some(Answer::Error(e)) => Err(TaskStatsError::Reading(io::Error::from_raw_os_error(e))),
            None => Err(TaskStatsError::Reading(lost())),
        }
    }

    /// So that a test can provoke that replies are lost.
    #[cfg(test)]
    pub(crate) fn set_room_for_replies(&self, bytes: libc::c_int) {
        // SAFETY: the kernel only reads the integer, which is live and of the size stated.
        let r = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            )
        };
        assert_eq!(r, 0);
    }

    /// The times of one thread. None where it has ended.
    ///
    /// # Errors
    /// As netlink(7), and where the reply was lost.
    pub fn read(&mut self, tid: Tid) -> io::Result<Option<TaskTimes>> {
        let mut times = None;
        self.read_many(&[tid], |_, t| times = t)?;
        Ok(times)
    }

    /// The times of several threads, in batches: `each` is called once per thread with its index
    /// in `tids`, with None where the thread has ended. Nothing is allocated.
    ///
    /// # Errors
    /// As netlink(7), and where a reply was lost (ENOBUFS where the socket had no room for it).
    /// Threads for which `each` was not called have not been read; they need not have ended.
    pub fn read_many(
        &mut self,
        tids: &[Tid],
        mut each: impl FnMut(usize, Option<TaskTimes>),
    ) -> io::Result<()> {
        let mut failed = None;
        self.ask(tids, |i, answer| match answer {
            Answer::Times(t) => each(i, Some(t)),
            Answer::Error(libc::ESRCH) => each(i, None),
            Answer::Error(e) => failed = Some(io::Error::from_raw_os_error(e)),
            Answer::UnknownLayout { .. } => failed = Some(io::ErrorKind::InvalidData.into()),
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn ask(&mut self, tids: &[Tid], mut each: impl FnMut(usize, Answer)) -> io::Result<()> {
        for (batch, chunk) in tids.chunks(BATCH).enumerate() {
            let first = self.sequence;
            for (slot, tid) in self.requests.chunks_exact_mut(REQUEST).zip(chunk) {
                slot.copy_from_slice(&request(self.family, self.sequence, *tid));
                self.sequence = self.sequence.wrapping_add(1);
            }
            self.socket.send(&self.requests[..chunk.len() * REQUEST], Msg::empty())?;
            let mut missing = chunk.len();
            while missing > 0 {
                let fd = self.socket.as_raw_fd();
                let lengths = match receive(fd, &mut self.replies[..missing]) {
                    Ok(lengths) => lengths,
                    Err(e) => {
                        // What is left would take the room of the next replies.
                        while receive(fd, &mut self.replies).is_ok() {}
                        return Err(e);
                    }
                };
                for (reply, length) in self.replies.iter().zip(lengths).take_while(|r| r.1 > 0) {
                    let Some((sequence, answer)) = reply.get(..length).and_then(parse_answer)
                    else {
                        continue;
                    };
                    // A reply to an earlier batch, one that failed half-way, is of no use now.
                    let index = sequence.wrapping_sub(first) as usize;
                    if index < chunk.len() {
                        missing = missing.saturating_sub(1);
                        each(batch * BATCH + index, answer);
                    }
                }
            }
        }
        Ok(())
    }
}

fn lost() -> io::Error {
    io::Error::other("the reply was lost")
}

/// One request: TASKSTATS_CMD_GET with TASKSTATS_CMD_ATTR_PID, which is a thread id.
fn request(family: u16, sequence: u32, tid: Tid) -> [u8; REQUEST] {
    let mut r = [0; REQUEST];
    r[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    r[4..6].copy_from_slice(&family.to_ne_bytes());
    r[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    r[8..12].copy_from_slice(&sequence.to_ne_bytes());
    r[16] = 1;
    r[17] = 1;
    r[20..22].copy_from_slice(&8u16.to_ne_bytes());
    r[22..24].copy_from_slice(&1u16.to_ne_bytes());
    r[24..].copy_from_slice(&tid.0.to_ne_bytes());
    r
}

/// Receives what is there, one message a buffer; the lengths, 0 from the first that is unused.
fn receive(fd: i32, buffers: &mut [[u8; REPLY]]) -> io::Result<[usize; BATCH]> {
    // SAFETY: all zero bytes are a valid value of these C structures: null pointers, no lengths.
    let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let count = buffers.len().min(BATCH);
    for ((buffer, vector), header) in buffers.iter_mut().zip(&mut vectors).zip(&mut headers) {
        vector.iov_base = buffer.as_mut_ptr().cast();
        vector.iov_len = buffer.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` headers each point to one vector, and that to a buffer of the
    // length it states; all of them live until the call has returned.
    let n = unsafe {
        libc::recvmmsg(
            fd,
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let n = usize::try_from(n).map_err(|_| match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => lost(),
        e => e,
    })?;
    let mut lengths = [0; BATCH];
    for (length, header) in lengths.iter_mut().zip(&headers).take(n) {
        *length = header.msg_len as usize;
    }
    if n == 0 { Err(lost()) } else { Ok(lengths) }
}

/// Looks up the number of the family.
fn resolve() -> Result<u16, TaskStatsError> {
    let socket = NlSocketHandle::connect(NlFamily::Generic, None, Groups::empty())
        .map_err(|e| TaskStatsError::Socket(e.to_string()))?;
    let lookup = || -> Result<Option<u16>, Box<dyn std::error::Error>> {
        let name = NlattrBuilder::default()
            .nla_type(AttrTypeBuilder::default().nla_type(CtrlAttr::FamilyName).build()?)
            .nla_payload("TASKSTATS")
            .build()?;
        let payload = GenlmsghdrBuilder::default()
            .cmd(CtrlCmd::Getfamily)
            .version(2)
            .attrs(std::iter::once(name).collect::<GenlBuffer<_, _>>())
            .build()?;
        let message = NlmsghdrBuilder::default()
            .nl_type(GenlId::Ctrl)
            .nl_flags(NlmF::REQUEST)
            .nl_payload(NlPayload::Payload(payload))
            .build()?;
        socket.send(&message)?;
        let (replies, _) = socket.recv::<GenlId, Genlmsghdr<CtrlCmd, CtrlAttr>>()?;
        for reply in replies {
            let reply = reply?;
            if let Some(payload) = reply.get_payload() {
                let attributes = payload.attrs().get_attr_handle();
                return Ok(Some(attributes.get_attr_payload_as::<u16>(CtrlAttr::FamilyId)?));
            }
        }
        Ok(None)
    };
    match lookup() {
        Ok(Some(family)) => Ok(family),
        Ok(None) => Err(TaskStatsError::Family("no such family".to_owned())),
        Err(e) => Err(TaskStatsError::Family(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A structure whose every 8-byte word holds its own offset, of the given version.
    fn structure(version: u16, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..length as u64 / 8).flat_map(|i| (i * 8).to_ne_bytes()).collect();
        bytes[..2].copy_from_slice(&version.to_ne_bytes());
        bytes
    }

    #[test]
    fn fields_are_where_the_version_has_them() {
        // Lengths after include/uapi/linux/taskstats.h of Linux 4.19, 6.1, 6.12, 6.15 and 6.18.
        for (version, length) in [(8, 328), (13, 416), (14, 432), (16, 560), (17, 688), (18, 700)] {
            let t = TaskTimes::parse(&structure(version, length)).unwrap();
            assert_eq!(
                (t.waited, t.block_io, t.swap_in, t.ran),
                (Nanos(24), Nanos(40), Nanos(56), Nanos(72))
            );
            assert_eq!((t.user, t.system), (Nanos(152_000), Nanos(160_000)));
            assert_eq!((t.voluntary_switches, t.involuntary_switches), (272, 280));
            assert_eq!(t.age, Some(Nanos(144_000)));
        }
        // Two words after each of the three kinds of delay at the start.
        let t = TaskTimes::parse(&structure(15, 560)).unwrap();
        assert_eq!(
            (t.slices, t.waited, t.block_io, t.swap_in),
            (16, Nanos(24), Nanos(56), Nanos(88))
        );
        assert_eq!((t.ran, t.minor_faults, t.involuntary_switches), (Nanos(120), 216, 328));
        assert_eq!(t.age, Some(Nanos(192_000)));
        // A kernel that does not fill in these fields.
        let mut bytes = structure(16, 560);
        bytes[128..136].fill(0);
        assert_eq!(TaskTimes::parse(&bytes).unwrap().age, None);
    }

    #[test]
    fn unknown_layouts_are_refused() {
        for (version, length) in
            [(7, 328), (8, 320), (14, 496), (15, 496), (15, 688), (16, 552), (0, 688)]
        {
            assert_eq!(TaskTimes::parse(&structure(version, length)), None, "{version} {length}");
        }
        assert_eq!(TaskTimes::parse(&[]), None);
    }

    #[test]
    fn a_thread_that_started_since_is_another_one() {
        let us = Nanos::from_micros;
        let of = |age, seen, asked| {
            TaskTimes { age, ..TaskTimes::default() }.is_of_thread_seen(seen, asked)
        };
        // Seen at 1000 us, asked for at 5000 us: one that is the same has lived for 4000 us.
        for (age, same) in [(9_000, true), (4_000, true), (3_999, true), (3_998, false), (0, false)]
        {
            assert_eq!(of(Some(us(age)), us(1_000), us(5_000)), Some(same), "{age}");
        }
        // Seen a moment ago, or after it was asked for.
        assert_eq!(of(Some(us(0)), us(5_000), us(5_000)), Some(true));
        assert_eq!(of(Some(us(0)), us(6_000), us(5_000)), Some(true));
        assert_eq!(of(None, us(1_000), us(5_000)), None);
    }

    /// Replies that there is no room for are lost, which is no end of any thread; and the next
    /// reading is none the worse for it.
    #[test]
    fn without_room_for_replies_reading_fails_and_then_works_again() {
        let mut stats = match TaskStats::open() {
            Ok(stats) => stats,
            Err(e) => return evenly_testing::skip("taskstats", e),
        };
        let own = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        for _ in 0..3 {
            stats.set_room_for_replies(1);
            let (mut read, mut ended) = (0, 0);
            let e = stats
                .read_many(&[own; 2 * BATCH], |_, t| match t {
                    Some(_) => read += 1,
                    None => ended += 1,
                })
                .unwrap_err();
            assert_eq!((e.raw_os_error(), ended), (Some(libc::ENOBUFS), 0), "{e}");
            assert!(read < 2 * BATCH);
            stats.set_room_for_replies(100_000);
            assert!(stats.read(own).unwrap().is_some());
            assert!(stats.read(Tid(i32::MAX)).unwrap().is_none());
        }
    }

    #[test]
    fn answers() {
        // An error message to request 7: no such process; as the kernel sends it, with the request.
        let mut error = vec![0u8; 36];
        error[..4].copy_from_slice(&36u32.to_ne_bytes());
        error[4..6].copy_from_slice(&2u16.to_ne_bytes());
        error[8..12].copy_from_slice(&7u32.to_ne_bytes());
        error[16..20].copy_from_slice(&(-libc::ESRCH).to_ne_bytes());
        assert_eq!(parse_answer(&error), Some((7, Answer::Error(libc::ESRCH))));
        error[16..20].copy_from_slice(&i32::MIN.to_ne_bytes());
        assert_eq!(parse_answer(&error), None);

        let mut reply = vec![0u8; 20];
        let stats = structure(16, 560);
        reply.extend((stats.len() as u16 + 16).to_ne_bytes());
        reply.extend((4u16 | 0x8000).to_ne_bytes());
        reply.extend([8u16, 1].iter().flat_map(|n| n.to_ne_bytes()));
        reply.extend(77u32.to_ne_bytes());
        reply.extend([stats.len() as u16 + 4, 3].iter().flat_map(|n| n.to_ne_bytes()));
        reply.extend(&stats);
        let length = reply.len() as u32;
        reply[..4].copy_from_slice(&length.to_ne_bytes());
        reply[4..6].copy_from_slice(&30u16.to_ne_bytes());
        reply[8..12].copy_from_slice(&9u32.to_ne_bytes());
        let Some((9, Answer::Times(t))) = parse_answer(&reply) else { panic!() };
        assert_eq!(t.ran, Nanos(72));
        for end in 0..reply.len() {
            assert_eq!(parse_answer(&reply[..end]), None, "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = parse_answer(&bytes);
            let _ = TaskTimes::parse(&bytes);
        }
    }
}
