//! Instructions of aarch64, and what they read, write and do.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

const YIELD: u32 = 0xd503_203f;
const WFE: u32 = 0xd503_205f;
const ISB: u32 = 0xd503_3fdf;
/// Hints that change nothing: `nop`, `wfi`, `sev`, `sevl`, and where jumps may arrive (`bti`).
const HINTS: [u32; 8] = [
    0xd503_201f,
    0xd503_207f,
    0xd503_209f,
    0xd503_20bf,
    0xd503_241f,
    0xd503_245f,
    0xd503_249f,
    0xd503_24df,
];
/// `mrs x0, cntvct_el0`: the lowest five bits are the register.
const CLOCK: u32 = 0xd53b_e040;
/// The number of the stack pointer, and of the frame pointer.
const STACK: u16 = 31;
const FRAME: u16 = 29;

/// A set of registers: general ones by number, the stack pointer as 31, those of vectors from 32 on, and the flags.
pub(super) type Registers = u128;
const VECTORS: u32 = 32;
pub(super) const FLAGS: Registers = 1 << 64;

/// What an instruction does but change registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// It reads what is on the thread's own stack: base and place from there.
    Own(u16, i32),
    /// It reads memory that others can write.
    Looks,
    /// It reads the clock.
    Clock,
    /// It writes to the thread's own stack.
    Stores(u16, i32),
    /// It calls a function.
    Calls,
    /// It does something else, or is not known; registers that it reads and writes are not known either.
    Other,
    /// As before, but it leaves memory alone.
    Computes,
}

/// An instruction.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Where it is.
    pub(super) at: usize,
    pub(super) reads: Registers,
    pub(super) writes: Registers,
    pub(super) effect: Effect,
    /// It says that the thread waits: `yield`, `wfe` or `isb`.
    pub(super) is_pause: bool,
    /// It is `isb`.
    pub(super) is_order: bool,
    /// Where it may jump to.
    pub(super) target: Option<usize>,
    /// Whether it may go on with the one behind it.
    pub(super) falls: bool,
}

impl Step {
    /// The numbers of those that can be executed after this one, which has number `i` of so many.
    pub(super) fn next(&self, i: usize, all: usize) -> impl Iterator<Item = usize> + use<> {
        let falls = (self.falls && i + 1 < all).then_some(i + 1);
        let jumps = self.target.map(|t| t / 4).filter(|&t| t < all);
        falls.into_iter().chain(jumps)
    }
}

/// All instructions of a function, as if its first byte were at 0.
pub(super) fn decode(code: &[u8]) -> Vec<Step> {
    let words = code.as_chunks::<4>().0.iter().enumerate();
    words.map(|(i, bytes)| step(4 * i, *bytes)).collect()
}

fn step(at: usize, bytes: [u8; 4]) -> Step {
    let word = u32::from_le_bytes(bytes);
    let is_pause = matches!(word, YIELD | WFE | ISB);
    let mut step = Step {
        at,
        reads: 0,
        writes: 0,
        effect: Effect::None,
        is_pause,
        is_order: word == ISB,
        target: None,
        falls: true,
    };
    if is_pause || HINTS.contains(&word) {
        return step;
    }
    if word & !0x1f == CLOCK {
        let to = (word & 0x1f) as u16;
        step.writes = if to < 31 { bit(to) } else { 0 };
        step.effect = Effect::Clock;
        return step;
    }
    let Ok(x) = InstDecoder::default().decode(&mut U8Reader::new(&bytes)) else {
        step.effect = Effect::Other;
        return step;
    };
    if !step.jumps(&x) && !step.accesses(&x) && !step.computes(&x) {
        step.effect = if accesses_memory(word) || is_of_system(word) {
            Effect::Other
        } else {
            Effect::Computes
        };
    }
    step
}

/// Loads and stores, of all kinds. Those that are exclusive are not understood: a trap between both makes the store fail, so
/// that a lock would never be taken.
fn accesses_memory(word: u32) -> bool {
    word >> 25 & 0b0101 == 0b0100
}

/// Calls of the system, and what changes more than registers, such as caches.
fn is_of_system(word: u32) -> bool {
    matches!(word >> 24, 0xd4 | 0xd5)
}

fn bit(number: u16) -> Registers {
    1 << number
}

/// Registers in an operand, and whether their numbers are known.
fn of(operand: &Operand) -> Option<Registers> {
    use Operand::{ConditionCode, Imm16, Imm64, ImmShift, Immediate, Nothing, PCOffset, RegShift};
    Some(match *operand {
        // 31 is the register that is always zero.
        Operand::Register(_, r) | RegShift(_, _, _, r) if r < 31 => bit(r),
        Operand::Register(..) | RegShift(..) => 0,
        Operand::RegisterOrSP(_, r) => bit(r),
        Operand::SIMDRegister(_, r) => 1 << (VECTORS + u32::from(r)),
        Nothing | ConditionCode(_) | Immediate(_) | Imm16(_) | Imm64(_) | ImmShift(..) => 0,
        PCOffset(_) => 0,
        _ => return None,
    })
}

/// All registers of several operands; None where one is not known.
fn all_of(operands: &[Operand]) -> Option<Registers> {
    operands.iter().try_fold(0, |all, operand| Some(all | of(operand)?))
}

/// Registers of an address, and its base and place from there where that is all; None where it changes the base.
fn address(operand: &Operand) -> Option<(Registers, Option<(u16, i32)>)> {
    match *operand {
        Operand::RegPreIndex(base, offset, false) => Some((bit(base), Some((base, offset)))),
        Operand::RegRegOffset(base, index, ..) => {
            let index = if index < 31 { bit(index) } else { 0 };
            Some((bit(base) | index, None))
        }
        Operand::PCOffset(_) => Some((0, None)),
        _ => None,
    }
}

/// On the stack of the thread; below the frame pointer, which may also be any other pointer.
fn is_own(base: u16, offset: i32) -> bool {
    base == STACK || base == FRAME && offset < 0
}

impl Step {
    /// Whether it is a jump or a call.
    fn jumps(&mut self, x: &Instruction) -> bool {
        let distance = x.operands.iter().find_map(|o| match o {
            Operand::PCOffset(by) => Some(*by),
            _ => None,
        });
        let target = distance.and_then(|by| usize::try_from(self.at as i64 + by).ok());
        match x.opcode {
            Opcode::B => self.falls = false,
            Opcode::Bcc(_) => self.reads = FLAGS,
            Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => {
                self.reads = of(&x.operands[0]).unwrap_or(Registers::MAX);
            }
            Opcode::BL
            | Opcode::BLR
            | Opcode::BLRAA
            | Opcode::BLRAB
            | Opcode::BLRAAZ
            | Opcode::BLRABZ => {
                self.effect = Effect::Calls;
                return true;
            }
            Opcode::BR
            | Opcode::BRAA
            | Opcode::BRAB
            | Opcode::BRAAZ
            | Opcode::BRABZ
            | Opcode::RET
            | Opcode::RETAA
            | Opcode::RETAB
            | Opcode::UDF => {
                (self.falls, self.effect) = (false, Effect::Other);
                return true;
            }
            _ => return false,
        }
        // One that leaves the function has none within.
        self.target = target;
        true
    }

    /// Whether it reads or writes memory in a way that is understood.
    fn accesses(&mut self, x: &Instruction) -> bool {
        use Opcode as O;
        let loaded = match x.opcode {
            O::LDR | O::LDRB | O::LDRH | O::LDRSB | O::LDRSH | O::LDRSW => 1,
            O::LDUR | O::LDURB | O::LDURH | O::LDURSB | O::LDURSH | O::LDURSW => 1,
            O::LDAR | O::LDARB | O::LDARH | O::LDAPR | O::LDAPRB | O::LDAPRH => 1,
            O::LDAPUR | O::LDAPURB | O::LDAPURH | O::LDAPURSB | O::LDAPURSH | O::LDAPURSW => 1,
            O::LDP => 2,
            O::STR | O::STRB | O::STRH | O::STUR | O::STURB | O::STURH => 0,
            _ => return false,
        };
        let values = loaded.max(1);
        let Some(registers) = all_of(&x.operands[..values]) else { return false };
        let Some((based_on, place)) = address(&x.operands[values]) else { return false };
        self.reads = based_on;
        let own = place.filter(|&(base, offset)| is_own(base, offset));
        if loaded > 0 {
            self.writes = registers;
            // What stands behind the code is a constant.
            let is_constant = matches!(x.operands[values], Operand::PCOffset(_));
            let elsewhere = if is_constant { Effect::None } else { Effect::Looks };
            self.effect = own.map_or(elsewhere, |(base, offset)| Effect::Own(base, offset));
            return true;
        }
        self.reads |= registers;
        match own {
            Some((base, offset)) => self.effect = Effect::Stores(base, offset),
            None => return false,
        }
        true
    }

    /// Whether it makes a register, or flags, of others, in a way that is understood.
    fn computes(&mut self, x: &Instruction) -> bool {
        use Opcode as O;
        let (writes_flags, reads_flags, has_result) = match x.opcode {
            O::MOVN | O::MOVZ | O::ADR | O::ADRP | O::FMOV => (false, false, true),
            O::AND | O::ORR | O::ORN | O::EOR | O::EON | O::BIC | O::ADD | O::SUB => {
                (false, false, true)
            }
            O::UBFM | O::SBFM | O::EXTR | O::LSLV | O::LSRV | O::ASRV | O::RORV => {
                (false, false, true)
            }
            O::ANDS | O::ADDS | O::SUBS | O::BICS => (true, false, true),
            O::CSEL | O::CSINC | O::CSINV | O::CSNEG => (false, true, true),
            O::CCMP | O::CCMN => (true, true, false),
            O::FCMP | O::FCMPE => (true, false, false),
            // A part of the register stays.
            O::MOVK | O::BFM => {
                self.reads = of(&x.operands[0]).unwrap_or(0);
                (false, false, true)
            }
            O::DMB(_) | O::DSB(_) | O::CLREX => return true,
            _ => return false,
        };
        let (result, sources) = x.operands.split_at(usize::from(has_result));
        let Some(result) = all_of(result) else { return false };
        let Some(sources) = all_of(sources) else { return false };
        self.reads |= sources | if reads_flags { FLAGS } else { 0 };
        self.writes = result | if writes_flags { FLAGS } else { 0 };
        true
    }
}
