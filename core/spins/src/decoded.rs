//! Instructions, what they do to memory, and loops of them.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpAccess, Register, UsedMemory};
use std::ops::Range;

/// A loop in the code of a function in which threads wait for what others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Where an instruction is that is executed once a turn.
    pub at: usize,
    /// Where the bytes of a turn are.
    pub turn: Range<usize>,
}

/// All instructions of this code, as if its first byte were at 0; from one that is invalid on they mean nothing.
pub(crate) fn decode(code: &[u8]) -> impl Iterator<Item = Instruction> {
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter()
}

pub(crate) fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

pub(crate) fn is_written(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether it is on the stack of the thread, as counters are where nothing is optimised. A frame pointer may also be any
/// other pointer, then with no displacement below it.
pub(crate) fn is_own(memory: &UsedMemory) -> bool {
    match memory.base() {
        Register::RSP => true,
        Register::RBP => (memory.displacement() as i64) < 0,
        _ => false,
    }
}
