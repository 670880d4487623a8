//! The figures of the Juggle paper (Hofmeyr, Iancu, Colmenares, Kubiatowicz, HPDC 2011).
//!
//! Invariant: theory comes from `model::theory`, runs from `sim`; nothing is computed twice here.

mod everywhere;
mod fine_phases;
mod machines;
mod migrations;
mod neighbours;
mod oversubscription;
mod period;
mod phases;
mod shapes;
mod short_periods;
mod three_on_two;

pub(crate) use everywhere::figure as everywhere;
pub use everywhere::sweep_map;
pub(crate) use fine_phases::figure as fine_phases;
pub(crate) use machines::figure as machines;
pub(crate) use migrations::figure as migrations;
pub(crate) use neighbours::figure as neighbours;
pub(crate) use oversubscription::figure as oversubscription;
pub(crate) use period::{many as period_many, one as period_one};
pub(crate) use phases::figure as phases;
pub(crate) use shapes::figure as shapes;
pub(crate) use short_periods::figure as short_periods;
pub(crate) use three_on_two::figure as three_on_two;
