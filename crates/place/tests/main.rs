//! Places as programs meet them: servers that are slow, busy, wrong, or replace what is read.

mod faults;
mod lazy;
mod qcow2;
