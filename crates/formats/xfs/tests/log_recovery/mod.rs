//! Logs left by kernels, replayed by this implementation and by the kernel: complete, torn and damaged ones.

mod damage;
mod guest;
mod kernel;
mod made;
mod old;
pub(crate) mod support;
mod torn;
