//! Places under realistic faults: servers that are slow, busy, wrong, or replace an object while it is read.

mod faults;
mod hostile;
mod lazy;
mod qcow2;
