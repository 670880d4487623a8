//! Loops that wait without saying so: those of which a turn leaves nothing behind.
//!
//! Where a turn begins with the registers of the one before, and has written nothing, it does what the one before did. So it
//! ends only if another thread, or a signal handler, changes what it reads: to be held up there changes nothing but time.
//! This is a proof, not a guess: what is not understood is left alone. It may read the clock as well, as those do that give
//! up after some time. Not found are those that count their turns: loops that go through a list look the same, where what
//! they do with an element stands elsewhere.

use super::Function;
use super::decoded::{decode, is_own, is_read, is_written};
use crate::wait::{Wait, holds};
use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The longest loop that is looked at, in bytes.
const LONGEST: usize = 512;
/// So many loops of one function are looked at: each is looked for among all of its instructions.
const MOST: usize = 1_000;

/// The loops in the code of a function that wait without `pause`, with where the jumps are that go back to their beginnings.
/// `pauses` are those that wait with.
pub(super) fn jumps(code: &[u8], pauses: &[Wait]) -> Vec<Wait> {
    let mut factory = InstructionInfoFactory::new();
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for jump in 0..code.len() {
        let Some(bytes) = back(code, jump) else { continue };
        let next = pauses.partition_point(|p| p.at < bytes.start);
        if pauses.get(next).is_some_and(|p| bytes.contains(&p.at)) {
            others.push(Wait { at: jump, turn: bytes });
        } else if let Some(turn) = Turn::of(&code[bytes.clone()], jump - bytes.start, &mut factory)
            && turn.waits_from(0)
        {
            found.push(Found { bytes, jump, turn });
        }
    }
    // No compiler makes so many.
    if found.is_empty() || found.len() + others.len() > MOST {
        return Vec::new();
    }
    // Until here any byte could have been one within an instruction. Behind one that begins a turn all others are right.
    let function = Function::decode(code);
    found.retain(|f| f.holds_in(&function.instructions));
    others.retain(|other| function.goes_round(other));
    others.extend(found.iter().map(Found::wait));
    // Where it waits for a lock elsewhere, and goes back to try once it is free: then there is no time to lose.
    let is_wait = |f: &&Found| {
        let waits_elsewhere = |Wait { turn: o, .. }: &Wait| {
            // Of a loop around all of it nothing follows.
            let is_around = o.start < f.bytes.start && f.bytes.end < o.end;
            o.start != f.bytes.start && !is_around && o.start < f.bytes.end && f.bytes.start < o.end
        };
        !f.turn.tries() || !others.iter().any(waits_elsewhere)
    };
    found.iter().filter(is_wait).map(Found::wait).collect()
}

/// A loop that waits, as far as its bytes show.
struct Found {
    bytes: Range<usize>,
    /// Where the jump back is.
    jump: usize,
    turn: Turn,
}

impl Found {
    fn wait(&self) -> Wait {
        Wait { at: self.jump, turn: self.bytes.clone() }
    }

    /// Whether a function has this loop; and it is the same where it is begun in the middle, as compilers do that check the
    /// condition last.
    fn holds_in(&self, function: &[Instruction]) -> bool {
        let begin = self.bytes.start as u64;
        let within = begin + 1..self.bytes.end as u64;
        let enters = |x: &Instruction| {
            let target = x.near_branch_target();
            let is_outside = x.ip() < begin || x.ip() >= within.end;
            (is_outside && within.contains(&target)).then(|| (x.ip(), target - begin))
        };
        let begins = |at: u64| self.turn.steps.iter().position(|s| s.instruction.ip() == at);
        // From behind, a turn that was left may come back, and have done some work meanwhile.
        function.binary_search_by_key(&begin, Instruction::ip).is_ok()
            && function.iter().filter_map(enters).all(|(from, at)| {
                from < begin && begins(at).is_some_and(|i| self.turn.waits_from(i))
            })
    }
}

/// The bytes of a loop that ends in a jump back, if one stands here.
fn back(code: &[u8], i: usize) -> Option<Range<usize>> {
    let short = || Some((2, isize::from(*code.get(i + 1)? as i8)));
    let near = |opcode: usize| {
        let bytes = code.get(i + opcode..i + opcode + 4)?;
        let distance = i32::from_le_bytes(bytes.try_into().ok()?);
        Some((opcode + 4, distance as isize))
    };
    let (length, distance) = match code[i] {
        0x70..=0x7f | 0xeb => short()?,
        0xe9 => near(1)?,
        0x0f if code.get(i + 1)? & 0xf0 == 0x80 => near(2)?,
        _ => return None,
    };
    let end = i + length;
    let is_back = distance <= -(length as isize) && distance.unsigned_abs() <= LONGEST;
    is_back.then_some(end.checked_sub(distance.unsigned_abs())?..end)
}

/// One turn of a loop, from its first instruction to the jump back.
struct Turn {
    steps: Vec<Step>,
    /// What is another value afterwards.
    changed: BTreeSet<Register>,
    /// The thread's own stack that is written: base, place from there, bytes.
    slots: BTreeSet<Slot>,
}

type Slot = (Register, i64, usize);

/// An instruction.
struct Step {
    instruction: Instruction,
    /// Registers that it reads, and writes whatever happens, with how many bytes of each.
    reads: Vec<(Register, usize)>,
    writes: Vec<(Register, usize)>,
    /// The same of the stack.
    loads: Vec<Slot>,
    stores: Vec<Slot>,
    /// It reads by a pointer.
    reads_elsewhere: bool,
    /// It reads what others can write.
    looks: bool,
    /// Indices of those that can come next within the turn.
    next: Vec<usize>,
}

/// What was written in this turn before an instruction, whichever way it came there.
#[derive(Clone, PartialEq, Eq, Default)]
struct Known {
    /// By register: bytes, and whether it is the same value in each turn whatever was read.
    registers: BTreeMap<Register, (usize, bool)>,
    slots: BTreeMap<Slot, bool>,
    flags: u32,
}

impl Turn {
    /// From its bytes, and the place of the jump back in them. None where there is an instruction of which more has to be known.
    fn of(code: &[u8], jump: usize, factory: &mut InstructionInfoFactory) -> Option<Self> {
        // Most loops work: they count, or store, near their beginning.
        let mut written = Vec::new();
        let works = |x: Instruction| {
            x.is_invalid() || !is_understood(&x) || stores(&x) || counts(&x, &mut written)
        };
        if decode(code).any(works) {
            return None;
        }
        let mut steps =
            decode(code).map(|x| Step::of(x, factory)).collect::<Option<Vec<Step>>>()?;
        if steps.last().is_none_or(|s| s.instruction.ip() != jump as u64) {
            return None;
        }
        let index: BTreeMap<u64, usize> =
            steps.iter().enumerate().map(|(i, s)| (s.instruction.ip(), i)).collect();
        let last = steps.len() - 1;
        for (i, step) in steps.iter_mut().enumerate() {
            let (x, flow) = (step.instruction, step.instruction.flow_control());
            let falls = i < last && flow != FlowControl::UnconditionalBranch;
            let target = (flow != FlowControl::Next).then(|| x.near_branch_target());
            let to = target.and_then(|t| index.get(&t).copied());
            if to.is_none() && target.is_some_and(|t| t < code.len() as u64) {
                return None;
            }
            step.next = falls.then_some(i + 1).into_iter().chain(to).collect();
        }
        let changed = steps.iter().flat_map(|s| &s.writes).map(|w| w.0).collect();
        let slots: BTreeSet<Slot> = steps.iter().flat_map(|s| s.stores.clone()).collect();
        // Where it writes to its stack, what was written could be read by a pointer as well: no sums are made of it, and none
        // leads on to another (`after`).
        let sums = |s: &Step| makes_sums(&s.instruction);
        // A delay.
        if steps.iter().any(|s| is_clock(&s.instruction)) && !steps.iter().any(|s| s.looks) {
            return None;
        }
        let turn = Self { steps, changed, slots };
        let Some(base) = turn.slots.first().map(|s| s.0) else { return Some(turn) };
        // By another base it could be the same place.
        let loads = turn.steps.iter().flat_map(|s| &s.loads);
        let fits = turn.slots.iter().chain(loads).all(|s| s.0 == base)
            && !turn.changed.contains(&base)
            && !turn.steps.iter().any(sums);
        fits.then_some(turn)
    }

    /// Whether it tries to take a lock.
    fn tries(&self) -> bool {
        let writes =
            |s: &Step| writes_memory(&s.instruction) && s.instruction.mnemonic() != Mnemonic::Or;
        self.steps.iter().any(writes)
    }

    /// Whether turns that begin here leave nothing behind.
    fn waits_from(&self, begin: usize) -> bool {
        let after = |i: usize, known| self.after(&self.steps[i], known);
        let next = |i: usize| self.steps[i].next.iter().copied();
        holds(self.steps.len(), begin, after, next, Known::and)
    }

    /// What is known after an instruction; None where it takes something over from the turn before, or leaves it to the next.
    fn after(&self, step: &Step, mut known: Known) -> Option<Known> {
        let x = &step.instruction;
        let has = |(register, bytes): &(Register, usize)| {
            !self.changed.contains(register)
                || known.registers.get(register).is_some_and(|k| k.0 >= *bytes)
        };
        let overlaps =
            |a: &Slot, b: &Slot| a.0 == b.0 && a.1 < b.1 + b.2 as i64 && b.1 < a.1 + a.2 as i64;
        let has_slot = |slot: &Slot| {
            known.slots.contains_key(slot) || !self.slots.iter().any(|s| overlaps(s, slot))
        };
        let is_same = |register: Register| {
            let full = register.full_register();
            !self.changed.contains(&full) || known.registers.get(&full).is_some_and(|k| k.1)
        };
        let comes_from_before = !step.reads.iter().all(has)
            || !step.loads.iter().all(has_slot)
            || x.rflags_read() & !known.flags != 0;
        let fixed = |r: Register| matches!(r, Register::None | Register::RIP) || is_same(r);
        let is_fixed = fixed(x.memory_base()) && fixed(x.memory_index());
        let leads_on = step.reads_elsewhere && !self.slots.is_empty() && !is_fixed;
        if comes_from_before || leads_on || !settles(x, is_same, is_fixed) {
            return None;
        }
        // A variable of which the address is known is the same until somebody writes it: in a turn that is the same value each
        // time.
        let is_own = |l: &Slot| {
            let stays = || !self.slots.iter().any(|s| overlaps(s, l));
            known.slots.get(l).copied().unwrap_or_else(stays)
        };
        let is_variable = x.op1_kind() == OpKind::Memory
            && (x.memory_base() == Register::RIP && x.memory_index() == Register::None
                || !step.loads.is_empty() && step.loads.iter().all(is_own));
        let same = gives_the_same(x, is_same, is_variable);
        let stays: Vec<Register> =
            step.writes.iter().map(|w| w.0).filter(|r| is_same(*r)).collect();
        for (register, bytes) in &step.writes {
            // What is not written stays as it was.
            let same = same && (*bytes >= 4 || stays.contains(register));
            let widest = known.registers.get(register).map_or(0, |k| k.0).max(*bytes);
            known.registers.insert(*register, (widest, same));
        }
        for slot in &step.stores {
            known.slots.iter_mut().filter(|(s, _)| overlaps(s, slot)).for_each(|(_, k)| *k = false);
            known.slots.insert(*slot, same);
        }
        known.flags |= x.rflags_written() | x.rflags_cleared() | x.rflags_set();
        known.flags &= !x.rflags_undefined();
        Some(known)
    }
}

impl Step {
    /// None where it writes memory in another way than those that are understood.
    fn of(instruction: Instruction, factory: &mut InstructionInfoFactory) -> Option<Self> {
        let info = factory.info(&instruction);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for used in info.used_registers() {
            let register = used.register();
            // The second byte of a register is never known to be written.
            let is_second =
                matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
            let (full, bytes) = (register.full_register(), register.size());
            if is_read(used.access()) {
                reads.push((full, if is_second { usize::MAX } else { bytes }));
            }
            if is_written(used.access()) {
                let whatever_happens =
                    matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite);
                writes.push((full, if is_second || !whatever_happens { 0 } else { bytes }));
            }
        }
        let (mut loads, mut stores) = (Vec::new(), Vec::new());
        let (mut reads_elsewhere, mut looks) = (false, false);
        for memory in info.used_memory() {
            let slot = slot(memory);
            if is_written(memory.access()) {
                let stores_it = instruction.mnemonic() == Mnemonic::Mov;
                match slot.filter(|_| stores_it) {
                    Some(slot) => stores.push(slot),
                    None if may_store(&instruction) => {}
                    None => return None,
                }
            }
            if is_read(memory.access()) {
                loads.extend(slot);
                // Addresses of variables are those of the next instruction, or numbers, when they are decoded.
                let is_variable =
                    memory.base() == Register::None && memory.index() == Register::None;
                reads_elsewhere |= slot.is_none() && !is_variable;
                looks |= !is_own(memory);
            }
        }
        let next = Vec::new();
        Some(Self { instruction, reads, writes, loads, stores, reads_elsewhere, looks, next })
    }
}

impl Known {
    /// What is known on both ways.
    fn and(&self, other: &Self) -> Self {
        let both = |(r, a): (&Register, &(usize, bool))| {
            let b = other.registers.get(r)?;
            Some((*r, (a.0.min(b.0), a.1 && b.1)))
        };
        Self {
            registers: self.registers.iter().filter_map(both).collect(),
            slots: self
                .slots
                .iter()
                .filter_map(|(s, a)| Some((*s, *a && *other.slots.get(s)?)))
                .collect(),
            flags: self.flags & other.flags,
        }
    }
}

/// A place on the stack of the thread, of which the address is plain.
fn slot(memory: &UsedMemory) -> Option<Slot> {
    let is_plain = memory.index() == Register::None && memory.segment() == Register::SS;
    let from_base = i64::from(memory.displacement() as i32);
    let bytes = memory.memory_size().size();
    (is_own(memory) && is_plain).then_some((memory.base(), from_base, bytes))
}

/// Whether it stores a value outside of the stack.
fn stores(x: &Instruction) -> bool {
    x.mnemonic() == Mnemonic::Mov
        && x.op0_kind() == OpKind::Memory
        && !matches!(x.memory_base(), Register::RSP | Register::RBP)
}

/// Whether it changes a register that no instruction before it in the turn has `written`.
fn counts(x: &Instruction, written: &mut Vec<Register>) -> bool {
    use Mnemonic::{Add, Cdq, Cdqe, Cmpxchg, Cqo, Dec, Inc, Sub};
    let register = |i: u32| x.op_kind(i) == OpKind::Register;
    if matches!(x.mnemonic(), Add | Dec | Inc | Sub)
        && register(0)
        && !written.contains(&x.op0_register().full_register())
    {
        return true;
    }
    let both = (0..x.op_count()).filter(|&i| register(i));
    written.extend(both.map(|i| x.op_register(i).full_register()));
    if matches!(x.mnemonic(), Cdq | Cdqe | Cqo | Cmpxchg) || is_clock(x) {
        written.extend([Register::RAX, Register::RDX]);
    }
    false
}

pub(super) fn is_clock(x: &Instruction) -> bool {
    matches!(x.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp)
}

/// Whether it is one of those that compilers put into such loops, of which the result is made of what it reads and nothing
/// else.
fn is_understood(x: &Instruction) -> bool {
    use Mnemonic as M;
    let jumps = matches!(
        x.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    if jumps {
        // Not those that count.
        return x.is_jcc_short_or_near() || x.is_jmp_short_or_near();
    }
    let usual = matches!(
        x.mnemonic(),
        M::Add
            | M::And
            | M::Bt
            | M::Bts
            | M::Cdq
            | M::Cdqe
            | M::Cmp
            | M::Cmpxchg
            | M::Comisd
            | M::Comiss
            | M::Cqo
            | M::Dec
            | M::Endbr64
            | M::Inc
            | M::Lea
            | M::Lfence
            | M::Mfence
            | M::Mov
            | M::Movd
            | M::Movq
            | M::Movsd
            | M::Movss
            | M::Movsx
            | M::Movsxd
            | M::Movzx
            | M::Neg
            | M::Nop
            | M::Not
            | M::Or
            | M::Rdtsc
            | M::Rdtscp
            | M::Sar
            | M::Sfence
            | M::Shl
            | M::Shr
            | M::Sub
            | M::Test
            | M::Ucomisd
            | M::Ucomiss
            | M::Xchg
            | M::Xor
    );
    // By none they may leave the flags as they were.
    let shifts_by_register =
        matches!(x.mnemonic(), M::Sar | M::Shl | M::Shr) && x.op1_kind() == OpKind::Register;
    let is_conditional = x.condition_code() != ConditionCode::None;
    (usual || is_conditional)
        && !shifts_by_register
        && !x.has_rep_prefix()
        && !x.has_repne_prefix()
        && x.flow_control() == FlowControl::Next
}

fn makes_sums(x: &Instruction) -> bool {
    use Mnemonic::{Add, Dec, Inc, Lea, Neg, Sar, Shl, Shr, Sub};
    let is_address = x.mnemonic() == Lea
        && x.memory_index() == Register::None
        && matches!(x.memory_base(), Register::RIP | Register::RSP | Register::RBP);
    matches!(x.mnemonic(), Add | Dec | Inc | Lea | Neg | Sar | Shl | Shr | Sub) && !is_address
}

/// Whether it may leave memory as it would be after the turn before: as locks are tried, and as compilers order memory.
pub(super) fn may_store(x: &Instruction) -> bool {
    match x.mnemonic() {
        Mnemonic::Or => x.op0_kind() == OpKind::Memory && matches!(x.try_immediate(1), Ok(0)),
        Mnemonic::Xchg | Mnemonic::Cmpxchg | Mnemonic::Bts => true,
        _ => false,
    }
}

/// Whether it is one of those, and does.
fn writes_memory(x: &Instruction) -> bool {
    may_store(x) && (x.op0_kind() == OpKind::Memory || x.op1_kind() == OpKind::Memory)
}

/// Whether what it writes to memory is the same in each turn: from the second on nothing changes then. Those that write none
/// do so, too.
fn settles(x: &Instruction, is_same: impl Fn(Register) -> bool, is_fixed: bool) -> bool {
    let register = |i: u32| x.op_kind(i) != OpKind::Register || is_same(x.op_register(i));
    let value = || match x.mnemonic() {
        Mnemonic::Xchg => register(0) && register(1),
        Mnemonic::Cmpxchg => register(1) && is_same(Register::RAX),
        Mnemonic::Bts => register(1),
        _ => true,
    };
    !writes_memory(x) || is_fixed && value()
}

/// Whether the register that it writes is made of values alone that are the same in each turn.
fn gives_the_same(x: &Instruction, is_same: impl Fn(Register) -> bool, is_variable: bool) -> bool {
    let of = |i: u32| match x.op_kind(i) {
        OpKind::Register => is_same(x.op_register(i)),
        OpKind::Memory => is_variable,
        _ => true,
    };
    match x.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => of(1),
        Mnemonic::Xor => {
            x.op0_kind() == OpKind::Register
                && x.op1_kind() == OpKind::Register
                && x.op0_register() == x.op1_register()
        }
        _ => false,
    }
}
