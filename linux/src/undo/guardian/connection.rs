//! The connection of evenly and its guardian: a pair of sockets that keep messages apart.
//!
//! evenly sends journals, each with its descriptor and its name, and never anything else; the guardian says
//! once that it watches. A message that has been sent is received even when its sender is dead, and before
//! the end of the connection: so the guardian has the newest journal whenever evenly is gone.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the guardian says when it watches.
const READY: [u8; 1] = *b"R";
/// The longest name of a file (PATH_MAX).
const LONGEST_PATH: usize = 4096;

/// One end of the connection: evenly's own, or that of its guardian.
#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

/// What came from the other end.
#[derive(Debug)]
pub(super) enum Received {
    /// A journal, with its name.
    Journal(OwnedFd, PathBuf),
    /// There is no other end any more.
    End,
}

impl Connection {
    /// Makes both ends: evenly's own, and the descriptor that its guardian gets.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// Sends a journal, without waiting: the guardian may be stopped.
    pub(super) fn send_journal(&self, file: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // There is room for one.
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let name = [IoSlice::new(path.as_os_str().as_bytes())];
        // A guardian that has been killed must not kill evenly with SIGPIPE.
        sendmsg(&self.0, &name, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits for the next message.
    pub(super) fn receive(&self) -> io::Result<Received> {
        let mut name = [0; LONGEST_PATH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let parts = &mut [IoSliceMut::new(&mut name)];
            match recvmsg(&self.0, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                // It was reset: ended with a message that was not received.
                Ok(got) if got.bytes == 0 => return Ok(Received::End),
                Err(Errno::CONNRESET) => return Ok(Received::End),
                got => break got?.bytes,
            }
        };
        let mut file = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last();
            }
        }
        let file = file.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Received::Journal(file, PathBuf::from(OsStr::from_bytes(&name[..got]))))
    }

    /// Reports to evenly that the guardian watches. It fails where evenly is dead already: what is received
    /// then says so.
    pub(super) fn say_ready(&self) {
        let _ = rustix::net::send(&self.0, &READY, SendFlags::NOSIGNAL);
    }

    /// Waits until the guardian says that it watches.
    pub(super) fn wait_until_ready(&self, most: Timespec) -> io::Result<()> {
        if !self.wait(most)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut word = READY;
        word[0] = 0;
        match rustix::io::read(&self.0, &mut word)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ if word == READY => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Whether there is something to receive, or the end, within this time.
    pub(super) fn wait(&self, time: Timespec) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(e) => Err(e),
        }
    }
}

impl From<OwnedFd> for Connection {
    fn from(end: OwnedFd) -> Self {
        Self(end)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
