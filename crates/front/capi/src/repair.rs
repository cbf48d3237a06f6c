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

/// dw_repair only plans the repair and changes nothing.
pub const DW_REPAIR_PLAN_ONLY: u32 = 1;

/// Options of dw_repair. All fields but struct_size may be zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_repair_options {
    /// sizeof(dw_repair_options).
    pub struct_size: usize,
    /// DW_REPAIR_PLAN_ONLY or 0.
    pub flags: u32,
    /// Maximum number of threads. 0 for the number of processors, at most 8.
    pub threads: u32,
    /// Path of a new undo file with the old contents. With NULL, an undo file is created only if the repair cannot be
    /// written through the image's journal or log: next to the image, with ".undo" appended to its name.
    pub undo: *const c_char,
    /// Passed to the callbacks.
    pub context: *mut c_void,
    /// Receives each finding. May be NULL.
    pub finding: dw_on_finding,
    /// Called often with the completed and total units of a phase. May be NULL.
    pub progress: dw_progress,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_repair_options {}

/// Result of dw_repair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_repair_report {
    /// Number of findings before the repair.
    pub findings: u64,
    /// Number of steps that were carried out, or planned.
    pub steps: u64,
    /// Number of findings after the repair.
    pub left: u64,
    /// 1 if a complete check after the repair has no findings.
    pub is_clean: u64,
    /// 1 if each step was a transaction of the image's own journal or log.
    pub through_log: u64,
    /// 1 if an undo file was created.
    pub has_undo: u64,
}

/// Repairs an image with the options `how`.
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

/// Repairs an image. The repair is first tried out in memory, and then written through the image's own journal or log,
/// or in place with an undo file. After an interruption (DW_STOPPED, DW_IO, a kill), the image can be repaired again,
/// or restored if there is an undo file. Damage that cannot be repaired is not an error; `report` contains it. `open`,
/// `how` and `report` may be NULL. Of `open`, only the location is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_repair(
    image: *const c_char,
    open: *const dw_open_options,
    how: *const dw_repair_options,
    report: *mut dw_repair_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
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

/// Restores an image to its state before the repair that created this undo file, byte by byte. Can be repeated after an
/// interruption. Nothing is written if the undo file is invalid or belongs to another image, or the image was changed
/// since. `open` may be NULL; only its location is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_restore(
    undo: *const c_char,
    image: *const c_char,
    open: *const dw_open_options,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            restore(host_path(undo)?, host_path(image)?, &place(open)?)?;
            Ok(())
        })
    }
}
