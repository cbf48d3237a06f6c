//! Repairing images.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use diskwright::repair::{Repair, restore};

use crate::border::{
    Options, as_host_path, call, check_flags, host_path, optional_text, options, put_if_wanted,
};
use crate::check::{Hearer, dw_on_finding, with_threads};
use crate::error::dw_error;
use crate::failure::{Failure, Result};
use crate::opening::{dw_open_options, place};
use crate::progress::dw_progress;

/// dw_repair finds out what would be done, and changes nothing.
pub const DW_REPAIR_PLAN_ONLY: u32 = 1;

/// How to repair. All zero but struct_size is fine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_repair_options {
    /// sizeof(dw_repair_options).
    pub struct_size: usize,
    /// DW_REPAIR_PLAN_ONLY or 0.
    pub flags: u32,
    /// Most threads. 0 takes as many as there are processors, at most 8.
    pub threads: u32,
    /// A new file for what was there before. NULL keeps it only if the image has no journal or log that the repair can be
    /// written through, in a file beside the image with ".undo" behind its name.
    pub undo: *const c_char,
    /// What the functions get.
    pub context: *mut c_void,
    /// Hears of each thing that is wrong. NULL if nobody does.
    pub finding: dw_on_finding,
    /// Asked often, with so much done of so much of a part of the work. NULL goes on.
    pub progress: dw_progress,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_repair_options {}

/// What a repair found, and did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_repair_report {
    /// Things that were wrong.
    pub findings: u64,
    /// Steps that were carried out, or would be.
    pub steps: u64,
    /// Things that are still wrong then.
    pub left: u64,
    /// 1 if nothing is known to be wrong then, and everything was looked at.
    pub is_clean: u64,
    /// 1 if each step was a transaction of the image's own journal or log.
    pub through_log: u64,
    /// 1 if an undo file was made.
    pub has_undo: u64,
}

/// Repairs an image with all that `how` says.
fn run(repair: &Repair, how: &dw_repair_options, undo: Option<&Path>) -> Result<dw_repair_report> {
    let hearer = Hearer::new(how.context, how.finding, how.progress);
    let plan = repair.plan(&with_threads(how.threads), &hearer)?;
    if hearer.is_stopped() {
        return Err(Failure::stopped());
    }
    let mut report = dw_repair_report {
        findings: plan.findings.len() as u64,
        steps: plan.steps.len() as u64,
        left: plan.left.len() as u64,
        is_clean: (plan.left.is_empty() && plan.summary.is_complete).into(),
        ..dw_repair_report::default()
    };
    if how.flags & DW_REPAIR_PLAN_ONLY == 0 && !plan.steps.is_empty() {
        let prepared = repair.prepare(&plan, undo)?;
        let done = prepared.carry_out(&mut |done, total| hearer.goes_on(done, total));
        if hearer.is_stopped() {
            return Err(Failure::stopped());
        }
        let done = done?;
        (report.through_log, report.has_undo) =
            (done.through_log.into(), done.undo.is_some().into());
    }
    Ok(report)
}

/// Repairs an image. The repair is tried out in memory first, and then written through the image's own journal or log, or
/// in place with an undo file. If it is ended on the way (DW_STOPPED, DW_IO, a kill), the image can be repaired again, or
/// restored where there is an undo file. That not all can be repaired is no error: `report` says so. `open`, `how` and
/// `report` may be NULL; of `open`, the place counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_repair(
    image: *const c_char,
    open: *const dw_open_options,
    how: *const dw_repair_options,
    report: *mut dw_repair_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            check_flags(how.flags, DW_REPAIR_PLAN_ONLY)?;
            let (image, place) = (host_path(image)?, place(open)?);
            let undo = optional_text(how.undo).map(as_host_path).transpose()?;
            let repair = match how.flags & DW_REPAIR_PLAN_ONLY {
                0 => Repair::open(image, &place)?,
                _ => Repair::open_to_plan(image, &place)?,
            };
            put_if_wanted(report, run(&repair, &how, undo)?);
            Ok(())
        })
    }
}

/// Brings an image back to what it was before a repair that made this undo file, byte by byte. It may be done again if it
/// was interrupted. Nothing is written if the file is none, or of another image, or the image was changed since. `open` may
/// be NULL; its place counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_restore(
    undo: *const c_char,
    image: *const c_char,
    open: *const dw_open_options,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            restore(host_path(undo)?, host_path(image)?, &place(open)?)?;
            Ok(())
        })
    }
}
