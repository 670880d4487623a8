//! Instructions, what they do to memory, and loops of them.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpAccess, Register, UsedMemory};

/// All instructions of this code, as if its first byte were at 0; from one that is invalid on they mean nothing.
pub(super) fn decode(code: &[u8]) -> impl Iterator<Item = Instruction> {
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter()
}

pub(super) fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

pub(super) fn is_written(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether it is on the stack of the thread, as counters are where nothing is optimised. A frame pointer may also be any
/// other pointer, then with no displacement below it.
pub(super) fn is_own(memory: &UsedMemory) -> bool {
    match memory.base() {
        Register::RSP => true,
        Register::RBP => (memory.displacement() as i64) < 0,
        _ => false,
    }
}
