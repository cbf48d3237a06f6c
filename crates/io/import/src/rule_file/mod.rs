//! Files of rules, which correct attributes of a source: their lines, values and faults.

pub(crate) mod capability;
pub(crate) mod fault;
pub(crate) mod lines;
pub(crate) mod names;
