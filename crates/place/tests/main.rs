//! Places as programs meet them: servers that are slow, busy, wrong, or replace what is read.

#[macro_use]
extern crate oracle;

mod faults;
mod hostile;
mod lazy;
mod qcow2;
