//! The program's workloads: what they report, what they refuse, and what they leave behind.

mod common;
mod compare;
mod interrupt;
mod refusals;
mod single;
