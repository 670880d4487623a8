//! Finds in the machine code of a module where threads wait by spinning, without running it; and says what the table of
//! such places is ([`Places`]) that evenly shares with programs.
//!
//! A thread that spins executes `pause` once a turn (on aarch64 `yield`, `isb` or `wfe`): compilers emit it only where a program
//! says that it waits (`_mm_pause`, `spin_loop`, `__builtin_ia32_pause`, the macros of OpenMP runtimes and BLAS libraries). To be
//! held up there changes nothing but time. What is left out is a pause whose turn neither reads memory nor calls anything: such
//! a loop counts how long it waits, and would take longer than it means to.
//!
//! Others wait without (`while (!flag);`). There it has to be proved that a turn leaves nothing behind, and the place is the
//! jump back. Of a loop that calls functions that cannot be said: it is found only around places at which threads were
//! seen ([`Module::doubtful`]), and tried.
//!
//! Bytes are instructions only from the beginning of a function on, so functions are taken from the table by which exceptions
//! are unwound (`.eh_frame`), which stripped programs have as well, and each is decoded from its first byte to its last.
//!
//! The code of x86-64 and of aarch64 is known; in that of others nothing is found.

#![forbid(unsafe_code)]

mod arm;
mod hunt;
mod machine;
mod module;
mod names;
mod patience;
mod places;
mod seen;
mod tempo;
mod wait;
mod worth;
mod x86;

pub use hunt::{Doing, Found, Hunt};
pub use machine::Machine;
pub use module::{Functions, Module, Spin, SpinsError, innermost, is_go};
pub use names::place;
pub use places::{Handed, Place, Places, Taking};
pub use seen::Seen;
pub use tempo::{Tempo, Wish};
pub use wait::Wait;
pub use worth::{Act, Worth};
