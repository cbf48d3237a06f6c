//! What repairs of both formats share. Knows no format.
//!
//! A repair is tried out first: all its changes go into a [`Staging`], a view of the image that nothing is written
//! below, and the image is checked there again until nothing is found. What came of that is a list of [`Step`]s,
//! the plan. Only then is anything written, step by step.
#![forbid(unsafe_code)]

mod carry_out;
mod levels;
mod staging;
mod trial;
mod undo;
mod writer;

pub use carry_out::{fits, pages_of, write_in_place, write_through_log};
pub use levels::{Fix, mend_lowest};
pub use staging::{Action, PAGE_BYTES, Page, Staging, Step};
pub use trial::{Plan, Repairer, make_plan, try_out};
pub use undo::{RestoreError, Restored, UndoDevice, UndoSink, restore};
pub use writer::StepWriter;
