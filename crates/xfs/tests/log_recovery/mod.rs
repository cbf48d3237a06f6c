//! Logs that kernels left, replayed by us and by the kernel: whole ones, torn ones, damaged ones.

mod damage;
mod kernel;
mod made;
pub(crate) mod support;
mod torn;
