//! A third source for the times of threads, `--source bpf`: small programs inside the kernel
//! (`linux/bpf/threads.c`) keep an account for each thread that is watched whenever it is switched in or out,
//! woken, or its CPU time is counted, in an array that is mapped here. Reading a thread is then reading one
//! cache line, where each other source takes a system call; and it is right at this moment, where
//! `schedstat` shows of a running thread what it had at the last tick.
//!
//! Invariants:
//! - The mapping is for reading only. What is read is believed only where the account was not being
//!   written: its number says so, before and after. Where that fails again and again (a hypervisor
//!   may have taken away the CPU of the writer) the account is as good as none, and
//!   `/proc` is read instead.
//! - Times are those of `schedstat`, so both can be compared; until a thread has been seen by the kernel's
//!   side, which for one that sleeps is when it is woken, there is no account of it.
//! - An account is that of one thread: it ends with it, before its number can be given to another.
//! - Nothing is left in the kernel when this process ends, however it does: programs, maps and what attaches
//!   them live as long as descriptors of this process, which no child inherits (bpf(2)).
//!
//! Accounts are of threads by their numbers in the first PID namespace, as no others are known in the
//! kernel's structures without looking for the namespace in each switch; so evenly must be in that one. The
//! program may be in another.
//!
//! The loader is `aya`, in Rust: with libbpf, evenly would need a C library's sources, make and libelf to
//! be built, and libelf to be run, also by users that never ask for this source.

use crate::clock::now;
use aya::maps::{Array, HashMap as KernelMap, Map, MapData, MapError};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use evenly_engine::{RunState, Times};
use evenly_model::{CpuId, Nanos, ThreadId, Tid};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CapabilitySet, capabilities};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// linux/bpf/threads.c as clang made it; empty where there was none.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/threads.o"));

/// The programs, and what of the scheduler calls each.
const PROGRAMS: [(&str, &str); 6] = [
    ("evenly_switch", "sched_switch"),
    ("evenly_wakeup", "sched_wakeup"),
    ("evenly_wakeup_new", "sched_wakeup_new"),
    ("evenly_runtime", "sched_stat_runtime"),
    ("evenly_exit", "sched_process_exit"),
    ("evenly_exec", "sched_process_exec"),
];

/// How many threads can be watched at once: with 64 bytes for each account, and about as much for its entry
/// in a table, 2 MiB of the kernel's memory. Others are read from `/proc`.
pub const SLOTS: u32 = 16_384;
/// A slot is given to another thread no earlier than this: by then no CPU that had looked it up
/// writes for the one before.
const REST: Nanos = Nanos::from_millis(1_000);
/// How often an account is looked at that is just being written, which takes some ten nanoseconds.
const LOOKS: usize = 100;
/// The first kernel on which all that is needed is there: `task_struct.__state` came last.
const FIRST_KERNEL: (u32, u32) = (5, 14);
/// The number of the first PID namespace (PROC_PID_INIT_INO).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why there is no such source here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BpfError {
    /// Evenly was built without the programs.
    #[error(
        "this evenly was built without it, because there was no clang that compiles for BPF; install \
         clang and build evenly again (cargo clean -p evenly-linux first)"
    )]
    NotBuilt,
    /// Too old a kernel.
    #[error("this kernel is Linux {0}; needed is 5.14 or newer")]
    Kernel(String),
    /// The kernel does not describe its structures.
    #[error(
        "this kernel does not describe its structures: there is no /sys/kernel/btf/vmlinux (needed: \
         CONFIG_DEBUG_INFO_BTF)"
    )]
    NoTypes,
    /// Numbers of threads here are not those of the kernel.
    #[error(
        "evenly runs in a PID namespace of its own (a container), and the kernel's numbers of threads \
         are not those seen here; run it on the host, or in a container with --pid=host"
    )]
    Namespace,
    /// A capability is missing.
    #[error(
        "not permitted: evenly lacks {0}; run it as root (sudo evenly), or give \
         it ambient capabilities (systemd: AmbientCapabilities=CAP_BPF CAP_PERFMON)"
    )]
    Capability(String),
    /// The kernel refuses although nothing is missing that is known of.
    #[error(
        "the kernel forbids it although CAP_BPF and CAP_PERFMON are there: in a user namespace they do \
         not count, and the seccomp filter of a container usually forbids bpf()"
    )]
    Forbidden,
    /// Anything else.
    #[error("the kernel does not take the programs: {0}")]
    Refused(String),
}

impl BpfError {
    /// What the library reports, in one line: below it may be pages of the verifier's.
    fn of(e: &(dyn Error + 'static)) -> Self {
        let (mut cause, mut said) = (Some(e), Vec::new());
        while let Some(e) = cause {
            if let Some(io) = e.downcast_ref::<std::io::Error>()
                && io.kind() == std::io::ErrorKind::PermissionDenied
            {
                return Self::Forbidden;
            }
            said.push(one_line(&e.to_string()));
            cause = e.source();
        }
        said.dedup();
        Self::Refused(said.join(": "))
    }
}

/// What the library says, and of the verifier's log, which follows it, the end: what it does not like.
fn one_line(text: &str) -> String {
    let account = ["verification time", "stack depth", "processed "];
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.rfind(|l| !account.iter().any(|a| l.starts_with(a))) {
        Some(last) => {
            let what = first.split(". Verifier output").next().unwrap_or(first);
            format!("{what}: {last}")
        }
        None => first.to_owned(),
    }
}

/// Whether everything is there that is needed, as far as that can be seen without trying.
///
/// # Errors
/// [`BpfError`]: what is missing, the first of several.
pub fn check() -> Result<(), BpfError> {
    if OBJECT.is_empty() {
        return Err(BpfError::NotBuilt);
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    // What cannot be read is left to the kernel.
    if version(&release).is_some_and(|v| v < FIRST_KERNEL) {
        return Err(BpfError::Kernel(release));
    }
    if !Path::new(BTF).exists() {
        return Err(BpfError::NoTypes);
    }
    if std::fs::read_link("/proc/self/ns/pid").is_ok_and(|n| n != Path::new(FIRST_NAMESPACE)) {
        return Err(BpfError::Namespace);
    }
    let own = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    lacks(own).map_or(Ok(()), |names| Err(BpfError::Capability(names)))
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Which capabilities are missing, in words.
fn lacks(own: CapabilitySet) -> Option<String> {
    // It was all of them before there were others.
    if own.contains(CapabilitySet::SYS_ADMIN) {
        return None;
    }
    let needed = [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
    let missing: Vec<&str> =
        needed.iter().filter(|(c, _)| !own.contains(*c)).map(|(_, name)| *name).collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// The account of one thread, as the kernel's side writes it (`struct slot` of linux/bpf/threads.c).
#[repr(C, align(64))]
struct Slot {
    seq: AtomicU32,
    tid: AtomicU32,
    state: AtomicU32,
    cpu: AtomicU32,
    ended: AtomicU32,
    unused: AtomicU32,
    since: AtomicU64,
    ran: AtomicU64,
    waited: AtomicU64,
    slices: AtomicU64,
    blocked: AtomicU64,
}

const WORDS: usize = 8;
const _: () = assert!(size_of::<Slot>() == 8 * WORDS);

/// What a thread does; the numbers of linux/bpf/threads.c.
const UNSEEN: u32 = 0;
const RUNNING: u32 = 1;
const QUEUED: u32 = 2;
const BLOCKED: u32 = 3;
/// On no CPU so far.
const NO_CPU: u32 = u32::MAX;

/// The account of a thread at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Its times.
    pub times: Times,
    /// For how long it has been blocked since the kernel's side saw it first.
    pub blocked: Nanos,
    /// The CPU that it ran on last; None where it has not been switched since it is watched.
    pub cpu: Option<CpuId>,
    /// Whether it wants one.
    pub state: RunState,
}

/// What is known of a thread that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing yet, or nothing that could be read just now.
    Nothing,
    /// It has ended, or goes by another number.
    Ended,
    /// Its account.
    Account(Account),
}

impl Slot {
    fn look(&self, now: Nanos) -> Seen {
        // An account that has ended stays so.
        if self.ended.load(Ordering::Relaxed) != 0 {
            return Seen::Ended;
        }
        for _ in 0..LOOKS {
            // Acquire: what is read below is not read before. The kernel's side makes the number odd, and
            // even again, with full barriers before and after what it writes.
            let before = self.seq.load(Ordering::Acquire);
            let account = self.account(now);
            // What was read above is not read after this.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.seq.load(Ordering::Relaxed) == before {
                return account.map_or(Seen::Nothing, Seen::Account);
            }
            std::hint::spin_loop();
        }
        Seen::Nothing
    }

    /// What is written there now, whole or not.
    fn account(&self, now: Nanos) -> Option<Account> {
        let time = |n: &AtomicU64| Nanos(n.load(Ordering::Relaxed));
        let (mut ran, mut waited, mut blocked) =
            (time(&self.ran), time(&self.waited), time(&self.blocked));
        // Nothing where it was written after `now`: subtracting times stops at 0.
        let passed = now - time(&self.since);
        let state = match self.state.load(Ordering::Relaxed) {
            RUNNING => {
                ran += passed;
                RunState::Runnable
            }
            QUEUED => {
                waited += passed;
                RunState::Runnable
            }
            BLOCKED => {
                blocked += passed;
                RunState::Blocked
            }
            _ => return None,
        };
        let slices = self.slices.load(Ordering::Relaxed);
        let cpu = Some(self.cpu.load(Ordering::Relaxed)).filter(|c| *c != NO_CPU).map(CpuId);
        Some(Account { times: Times { ran, waited, slices }, blocked, cpu, state })
    }
}

/// The array of accounts, mapped.
struct Mapped {
    at: NonNull<Slot>,
    slots: u32,
}

// SAFETY: it is memory that only the kernel's side writes, read through atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(array: &MapData, slots: u32) -> Result<Self, BpfError> {
        let length = slots as usize * size_of::<Slot>();
        // SAFETY: a new mapping where the kernel likes to have it, which overlaps nothing.
        let at = unsafe {
            let fd = array.fd().as_fd();
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, fd, 0)
        };
        let at = at.map_err(|e| BpfError::Refused(format!("mapping the accounts: {e}")))?;
        let at = NonNull::new(at.cast::<Slot>());
        at.map(|at| Self { at, slots })
            .ok_or_else(|| BpfError::Refused(String::from("the accounts are mapped at 0")))
    }

    fn slot(&self, index: u32) -> &Slot {
        assert!(index < self.slots);
        // SAFETY: inside of the mapping, which lives as long as self and begins with a page; all that is
        // in a slot are atomics, for which any bytes are a value.
        unsafe { self.at.add(index as usize).as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: what was mapped; no reference into it outlives self.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.slots as usize * size_of::<Slot>()) };
    }
}

/// A thread that has a slot, which others may have after it.
struct Entry {
    id: ThreadId,
    slot: u32,
    watched: Weak<Owner>,
}

/// Which thread has which slot.
struct Registry {
    /// Initial contents of slots are written through this.
    slots: Array<MapData, [u64; WORDS]>,
    /// Where the kernel's side looks for them.
    slot_of: KernelMap<MapData, u32, u32>,
    entries: HashMap<Tid, Entry>,
    /// The first that was never used.
    unused: u32,
    /// Others, and when they were given back.
    free: VecDeque<(u32, Nanos)>,
    /// Threads for which there was none.
    left_out: u64,
}

/// The programs in the kernel, and the accounts that they keep. One for all domains of a program.
pub struct Switches {
    /// Before what keeps the programs, so that it is unmapped first.
    accounts: Mapped,
    registry: Mutex<Registry>,
    /// Keeps the programs attached.
    programs: Ebpf,
    slots: u32,
}

impl std::fmt::Debug for Switches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switches").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Switches {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// [`BpfError`]: what is missing.
    pub fn open() -> Result<Self, BpfError> {
        Self::with_slots(SLOTS)
    }

    /// With room for so many threads.
    ///
    /// # Errors
    /// [`BpfError`].
    pub fn with_slots(slots: u32) -> Result<Self, BpfError> {
        check()?;
        let types = Btf::from_sys_fs().map_err(|e| BpfError::of(&e))?;
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .set_max_entries("slots", slots)
            .set_max_entries("slot_of", slots)
            .load(OBJECT)
            .map_err(|e| BpfError::of(&e))?;
        let missing = |what: &str| BpfError::Refused(format!("linux/bpf/threads.c has no {what}"));
        let array = programs.take_map("slots").ok_or_else(|| missing("slots"))?;
        let accounts = match &array {
            Map::Array(data) => Mapped::new(data, slots)?,
            _ => return Err(missing("array of slots")),
        };
        let slot_of = programs.take_map("slot_of").ok_or_else(|| missing("slot_of"))?;
        let of = |e: MapError| BpfError::of(&e);
        let registry = Registry {
            slots: Array::try_from(array).map_err(of)?,
            slot_of: KernelMap::try_from(slot_of).map_err(of)?,
            entries: HashMap::new(),
            unused: 0,
            free: VecDeque::new(),
            left_out: 0,
        };
        for (name, event) in PROGRAMS {
            let program = programs.program_mut(name).ok_or_else(|| missing(name))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(|e| BpfError::of(&e))?;
            program.load(event, &types).map_err(|e| BpfError::of(&e))?;
            // What it returns is a name for what is attached, which is kept with the programs.
            program.attach().map_err(|e| BpfError::of(&e))?;
        }
        Ok(Self { accounts, registry: Mutex::new(registry), programs, slots })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an account kept of this thread as long as what is returned lives. None where no slot is free, or
    /// the kernel refuses. The caller makes sure afterwards that the thread with this number is still
    /// the one that is meant.
    #[must_use]
    pub fn watch(self: &Arc<Self>, id: ThreadId) -> Option<Watched> {
        let mut registry = self.lock();
        let registry = &mut *registry;
        let known = registry.entries.get(&id.tid).filter(|e| e.id == id);
        if let Some(owner) = known.and_then(|e| e.watched.upgrade()) {
            return Some(Watched(owner));
        }
        let Some(slot) = registry.take(now(), self.slots) else {
            registry.left_out += 1;
            return None;
        };
        let number = id.tid.0.cast_unsigned();
        let mut fresh = [0u64; WORDS];
        // Sequence number and thread, state and CPU: not seen, and on none.
        fresh[0] = pair(0, number);
        fresh[1] = pair(UNSEEN, NO_CPU);
        let given = (registry.slots.set(slot, fresh, 0))
            .and_then(|()| registry.slot_of.insert(number, slot, 0));
        if given.is_err() {
            registry.free.push_back((slot, now()));
            registry.left_out += 1;
            return None;
        }
        let owner = Arc::new(Owner { switches: self.clone(), tid: id.tid, slot });
        let watched = Arc::downgrade(&owner);
        registry.entries.insert(id.tid, Entry { id, slot, watched });
        Some(Watched(owner))
    }

    /// How often a thread was to be watched for which there was no slot.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    /// The numbers of the programs in the kernel.
    #[must_use]
    pub fn program_ids(&self) -> Vec<u32> {
        self.programs.programs().filter_map(|(_, p)| Some(p.info().ok()?.id())).collect()
    }
}

/// Two words of 32 bits as they are in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

impl Registry {
    fn take(&mut self, now: Nanos, slots: u32) -> Option<u32> {
        if self.unused < slots {
            self.unused += 1;
            return Some(self.unused - 1);
        }
        let (slot, since) = *self.free.front()?;
        (now - since >= REST).then(|| {
            self.free.pop_front();
            slot
        })
    }
}

/// A thread of which the kernel's side keeps an account: several may look at it.
pub struct Watched(Arc<Owner>);

struct Owner {
    switches: Arc<Switches>,
    tid: Tid,
    slot: u32,
}

impl Watched {
    /// Its account, as it is at the time `now`, which must be that of a moment ago at most.
    #[must_use]
    pub fn look(&self, now: Nanos) -> Seen {
        self.0.switches.accounts.slot(self.0.slot).look(now)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut registry = self.switches.lock();
        // Another may have its number, or the same thread another slot, since.
        if registry.entries.get(&self.tid).is_some_and(|e| e.slot == self.slot) {
            registry.entries.remove(&self.tid);
            // Where the thread has ended it is gone already.
            let _ = registry.slot_of.remove(&self.tid.0.cast_unsigned());
        }
        registry.free.push_back((self.slot, now()));
    }
}
