//! `diskwright repair`: output, effects, undo, and the state after a kill. The tests of the formats
//! check that all damage is repaired.

mod conditions;
mod crash;
mod kill;
mod program;
mod salvage;
