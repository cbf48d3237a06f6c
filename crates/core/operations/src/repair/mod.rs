//! Shared parts of the repairs of both formats. Independent of on-disk formats.
//!
//! A repair is first tried out: all its changes go into a [`Staging`], a copy-on-write view of the image, and the image
//! is checked there again until nothing is found. The result is a list of [`Step`]s, the plan. Only then are the steps
//! written to the image, one after the other.

mod carry_out;
mod levels;
mod staging;
mod trial;
mod undo;
mod writer;

pub use carry_out::{fits, pages_of, write_in_place, write_through_log};
pub use levels::{Fix, repair_lowest};
pub use staging::{Action, PAGE_BYTES, Page, Staging, Step};
pub use trial::{Plan, Repairer, make_plan, try_out};
pub use undo::{RestoreError, Restored, UndoDevice, UndoSink, restore};
pub use writer::StepWriter;
