//! The program's workloads: reports, rejected arguments, and clean-up.

mod common;
mod compare;
mod interrupt;
mod refusals;
mod single;
