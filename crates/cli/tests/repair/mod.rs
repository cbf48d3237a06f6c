//! `diskwright repair`: what it shows and does, how it is taken back, and what a kill leaves. That it mends what is wrong
//! is what the tests of the formats are about.

mod conditions;
mod crash;
mod kill;
mod program;
mod salvage;
