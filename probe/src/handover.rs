//! Where threads that spin hand over their CPU: the table that evenly and programs share (`probe/c/handover.h` is its
//! layout, `probe/c/handover.c` what is loaded into programs).
//!
//! Invariants: it is read and written, and not mapped, so that nothing in it can harm evenly; what programs write is
//! only counted. Its length is sealed, as programs do map it. A place that was given is never another one.

use crate::layout::handover::{header, place, space};
use crate::shared::sealed;
use crate::waiting::{u32_at, u64_at};
use evenly_model::{Nanos, Pid};
use evenly_spins::{Handed, Place, Places, Taking};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The variable that names the file to programs.
pub const VARIABLE: &str = "EVENLY_HANDOVER";
const MAGIC: u64 = u64::from_le_bytes(*b"handover");
const VERSION: u32 = 7;
/// What a place is that is doubted, and one of which it turned out that nobody waits there.
const DOUBTED: u32 = 1;
const REFUTED: u32 = 2;
/// How the file is called in `/proc`.
const NAME: &str = "evenly-handover";
/// How many processes there is room for.
const SPACES: usize = header::SIZEOF_SPACES / space::SIZEOF;
/// How many places.
const PLACES: u32 = (header::SIZEOF_PLACES / place::SIZEOF) as u32;
/// How many of them are looked through for an address.
const NEAR: u32 = 32;

/// The table of a run: for programs that are started with [`Table::variable`] in their environment. It lives as long as
/// this or a program that has it.
#[derive(Debug)]
pub struct Table {
    file: File,
    /// Numbers of places and how the instructions begin there, by space and address.
    given: HashMap<(u32, u64), (u32, u32)>,
    taken: Vec<bool>,
}

impl Table {
    /// A new one.
    ///
    /// # Errors
    /// Where the system has no place for it.
    pub fn new() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        let file = sealed(NAME, header::SIZEOF as u64).map_err(|(_, e)| e)?;
        let boot = boot.trim().as_bytes();
        let boot = boot.get(..header::SIZEOF_BOOT - 1).unwrap_or(boot);
        file.write_all_at(&VERSION.to_ne_bytes(), header::VERSION as u64)?;
        file.write_all_at(&(header::SIZEOF as u32).to_ne_bytes(), header::SIZE as u64)?;
        file.write_all_at(boot, header::BOOT as u64)?;
        file.write_all_at(&namespace.to_ne_bytes(), header::PID_NAMESPACE as u64)?;
        file.write_all_at(&MAGIC.to_ne_bytes(), header::MAGIC as u64)?;
        Ok(Self { file, given: HashMap::new(), taken: vec![false; PLACES as usize] })
    }

    /// The variable to be set for programs.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        (VARIABLE.into(), path.into())
    }
}

impl Places for Table {
    fn taking(&self) -> Vec<Taking> {
        let mut bytes = [0; header::SIZEOF_SPACES];
        if self.file.read_exact_at(&mut bytes, header::SPACES as u64).is_err() {
            return Vec::new();
        }
        let of = |entry: &[u8]| {
            let who = u64_at(entry, space::WHO);
            let (pid, space) = (who as u32, (who >> 32) as u32);
            let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0 && space > 0)?;
            let is_left_alone = u32_at(entry, space::TAKEN) != 0;
            Some(Taking { pid: Pid(pid), space, is_left_alone })
        };
        bytes.chunks_exact(space::SIZEOF).take(SPACES).filter_map(of).collect()
    }

    fn place(&mut self, space: u32, at: u64, hidden: u32, is_doubted: bool) -> Option<Place> {
        if let Some(&(number, before)) = self.given.get(&(space, at)) {
            // Other code was loaded there meanwhile.
            return (before == hidden).then_some(Place(number));
        }
        let first = first_place(space, at);
        let number = (0..NEAR).map(|i| (first + i) % PLACES).find(|&n| !self.taken[n as usize])?;
        // Nobody looks for it before a breakpoint is written, and that is after this.
        let begin = offset(number);
        self.file.write_all_at(&space.to_ne_bytes(), begin + place::SPACE as u64).ok()?;
        self.file.write_all_at(&hidden.to_ne_bytes(), begin + place::FIRST as u64).ok()?;
        let doubt = if is_doubted { DOUBTED } else { 0 }.to_ne_bytes();
        self.file.write_all_at(&doubt, begin + place::DOUBT as u64).ok()?;
        self.file.write_all_at(&at.to_ne_bytes(), begin + place::AT as u64).ok()?;
        self.taken[number as usize] = true;
        self.given.insert((space, at), (number, hidden));
        Some(Place(number))
    }

    fn changes(&mut self, place: Place, changes: bool) -> bool {
        let begin = offset(place.0);
        let own = begin + place::CHANGED_OUTSIDE as u64;
        let says = |who: u32| self.file.write_all_at(&who.to_ne_bytes(), own).is_ok();
        if !changes {
            return says(0);
        }
        // Each side says first that it does, and looks then: calls of the kernel are not carried out in another order.
        let mut inside = [0; 4];
        let free = says(std::process::id())
            && self.file.read_exact_at(&mut inside, begin + place::CHANGED_INSIDE as u64).is_ok()
            && !is_there(u32::from_ne_bytes(inside));
        if !free {
            says(0);
        }
        free
    }

    fn want(&mut self, place: Place, wanted: bool) -> io::Result<()> {
        let at = offset(place.0) + place::WANTED as u64;
        self.file.write_all_at(&u32::from(wanted).to_ne_bytes(), at)
    }

    fn refute(&mut self, place: Place) -> io::Result<()> {
        let at = offset(place.0) + place::DOUBT as u64;
        self.file.write_all_at(&REFUTED.to_ne_bytes(), at)?;
        self.want(place, false)
    }

    fn is_refuted(&self, place: Place) -> bool {
        let mut doubt = [0; 4];
        let at = offset(place.0) + place::DOUBT as u64;
        self.file.read_exact_at(&mut doubt, at).is_ok() && u32::from_ne_bytes(doubt) == REFUTED
    }

    fn until(&mut self, second: u32) -> io::Result<()> {
        self.file.write_all_at(&second.to_ne_bytes(), header::UNTIL as u64)
    }

    fn others(&mut self, second: u32) -> io::Result<()> {
        self.file.write_all_at(&second.to_ne_bytes(), header::OTHERS as u64)
    }

    fn handed(&self) -> Vec<(Place, Handed)> {
        let of = |place, at| {
            let mut bytes = [0; place::SIZEOF];
            self.file.read_exact_at(&mut bytes, at).ok()?;
            let handed = Handed {
                traps: u64_at(&bytes, place::TRAPS),
                given: Nanos(u64_at(&bytes, place::GIVEN)),
                slept: Nanos(u64_at(&bytes, place::SLEPT)),
            };
            Some((place, handed))
        };
        let in_code =
            self.given.values().filter_map(|&(number, _)| of(Place(number), offset(number)));
        let calls = [(Place::MPI, header::PROGRESS), (Place::YIELDS, header::YIELDS)];
        in_code.chain(calls.into_iter().filter_map(|(place, at)| of(place, at as u64))).collect()
    }
}

/// Whether a process is there that says something, if it is any.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Where a place is in the file.
fn offset(number: u32) -> u64 {
    header::PLACES as u64 + u64::from(number % PLACES) * place::SIZEOF as u64
}

/// As `evenly_first_place`.
fn first_place(space: u32, at: u64) -> u32 {
    ((at.wrapping_add(u64::from(space) * 64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32)
        % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;

    #[test]
    fn the_layout_is_that_of_the_c_header() {
        let mut header = Header::of("handover.h");
        header.holds(format_args!("EVENLY_HANDOVER_MAGIC == UINT64_C({MAGIC})"));
        header.holds(format_args!("EVENLY_HANDOVER_VERSION == {VERSION}"));
        header.holds(format_args!("EVENLY_NEAR == {NEAR} && EVENLY_PLACES == {PLACES}"));
        header.holds(format_args!("EVENLY_SPACES == {SPACES}"));
        header.holds(format_args!("EVENLY_DOUBTED == {DOUBTED} && EVENLY_REFUTED == {REFUTED}"));
        header.check(
            "EVENLY_HANDOVER_VARIABLE EVENLY_HANDOVER_NAME",
            "EVENLY_HANDOVER/memfd:evenly-handover",
        );
    }
}
