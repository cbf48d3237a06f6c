//! Checking images.

use std::ffi::{CString, c_char, c_int, c_void};
use std::num::NonZero;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskwright::check::{self as checks, Finding, ImageCheck, Observer, Phase, Severity, Summary};
use parking_lot::Mutex;

use crate::border::{Options, call, host_path, options, put_if_wanted};
use crate::device::{device, dw_device};
use crate::error::dw_error;
use crate::failure::{DW_NONE, Failure, Result, dw_place, without_nul};
use crate::opening::{dw_open_options, place};
use crate::progress::dw_progress;

/// Wrong, but without loss.
pub const DW_HARMLESS: u32 = 0;
/// Contents, names or attributes are lost or may be lost, now or with the next change.
pub const DW_AT_RISK: u32 = 1;
/// The image, or the named part of it, is unusable.
pub const DW_UNUSABLE: u32 = 2;

/// A fault in an image. All strings end with NUL and are valid until the callback returns.
#[repr(C)]
pub struct dw_finding {
    /// Stable code of the finding: "ext4-inode-checksum". docs/check.md lists all codes.
    pub code: *const c_char,
    /// The affected structure, in the terms of the format.
    pub structure: *const c_char,
    /// Description of the fault, as a sentence.
    pub meaning: *const c_char,
    /// Description of the repair, as a sentence.
    pub repair: *const c_char,
    /// Further details, or NULL.
    pub detail: *const c_char,
    /// Expected value, or NULL.
    pub expected: *const c_char,
    /// Actual value, or NULL.
    pub found: *const c_char,
    /// The affected field, or NULL.
    pub field: *const c_char,
    /// The affected directory entry or extended attribute, or NULL. NUL bytes are omitted.
    pub name: *const c_char,
    /// Absolute path of the affected file, or NULL. NUL bytes are omitted.
    pub path: *const c_char,
    /// Location of the fault.
    pub place: dw_place,
    /// DW_HARMLESS, DW_AT_RISK or DW_UNUSABLE.
    pub severity: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
}

/// Receives a finding. Returns 0 to continue; any other value cancels the check with DW_STOPPED. Called by any thread,
/// but never concurrently.
pub type dw_on_finding =
    Option<unsafe extern "C" fn(context: *mut c_void, finding: *const dw_finding) -> c_int>;

/// Options of dw_check. All fields but struct_size may be zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_check_options {
    /// sizeof(dw_check_options).
    pub struct_size: usize,
    /// Maximum number of threads. 0 for the number of processors, at most 8.
    pub threads: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
    /// Passed to the callbacks.
    pub context: *mut c_void,
    /// Receives each finding. May be NULL.
    pub finding: dw_on_finding,
    /// Called often with the completed and total units of a phase of the check. Called by any thread, but never
    /// concurrently. May be NULL.
    pub progress: dw_progress,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_check_options {}

/// Result of dw_check.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_check_report {
    /// Number of findings.
    pub findings: u64,
    /// Number of findings with DW_AT_RISK or DW_UNUSABLE.
    pub serious: u64,
    /// 1 if everything was checked: no damage prevented the check from continuing.
    pub is_complete: u64,
    /// Number of transactions of the journal or log that were replayed in memory first.
    pub transactions_replayed: u64,
    /// Number of inodes in use.
    pub inodes: u64,
    /// Number of directories among them.
    pub directories: u64,
    /// Number of blocks in use.
    pub blocks_used: u64,
    /// Number of all blocks.
    pub blocks: u64,
}

/// Forwards a check to the caller's callbacks.
pub(crate) struct Hearer {
    context: *mut c_void,
    finding: dw_on_finding,
    progress: dw_progress,
    /// Serialises the caller's callbacks.
    turn: Mutex<()>,
    is_stopped: AtomicBool,
    findings: AtomicU64,
    serious: AtomicU64,
}

// SAFETY: the header permits calls of the callbacks by any thread; `turn` serialises them.
unsafe impl Sync for Hearer {}

impl Hearer {
    pub(crate) fn new(context: *mut c_void, finding: dw_on_finding, progress: dw_progress) -> Self {
        Self {
            context,
            finding,
            progress,
            turn: Mutex::new(()),
            is_stopped: AtomicBool::new(false),
            findings: AtomicU64::new(0),
            serious: AtomicU64::new(0),
        }
    }

    /// Runs a callback, unless one has cancelled the check before.
    fn ask(&self, ask: impl FnOnce() -> c_int) {
        let _turn = self.turn.lock();
        if !self.is_stopped.load(Ordering::Relaxed) && ask() != 0 {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the report, unless the caller cancelled the check.
    pub(crate) fn report(&self, summary: Summary) -> Result<dw_check_report> {
        if self.is_stopped() {
            return Err(Failure::stopped());
        }
        Ok(dw_check_report {
            findings: self.findings.load(Ordering::Relaxed),
            serious: self.serious.load(Ordering::Relaxed),
            is_complete: summary.is_complete.into(),
            transactions_replayed: summary.transactions_replayed,
            inodes: summary.inodes,
            directories: summary.directories,
            blocks_used: summary.blocks_used,
            blocks: summary.blocks,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Calls the progress function, if there is one. Returns whether to continue.
    pub(crate) fn goes_on(&self, done: u64, total: u64) -> bool {
        if let Some(progress) = self.progress {
            // SAFETY: the caller's function follows the rules of the header.
            self.ask(|| unsafe { progress(self.context, done, total) });
        }
        !self.is_stopped()
    }
}

impl Observer for Hearer {
    fn found(&self, finding: Finding) {
        self.findings.fetch_add(1, Ordering::Relaxed);
        if finding.code.severity > Severity::Harmless {
            self.serious.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(hear) = self.finding {
            // SAFETY: the caller's function follows the rules of the header.
            tell(&finding, |told| self.ask(|| unsafe { hear(self.context, told) }));
        }
    }

    fn progress(&self, _: Phase, done: u64, total: u64) {
        self.goes_on(done, total);
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped()
    }
}

/// Converts a finding to the C structure.
fn tell(finding: &Finding, tell: impl FnOnce(*const dw_finding)) {
    let text = |text: &str| without_nul(text);
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| without_nul(bytes.clone()));
    let optional = |given: &Option<String>| given.as_deref().map(text);
    let at = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let number = |known: Option<u64>| known.unwrap_or(DW_NONE);
    let code = finding.code;
    let [name, structure, meaning, repair] =
        [code.name, code.structure, code.meaning, code.repair].map(text);
    let [detail, expected, found] =
        [&finding.detail, &finding.expected, &finding.found].map(optional);
    let field = finding.place.field.map(text);
    let [of, path] = [&finding.place.name, &finding.path].map(bytes);
    let told = dw_finding {
        code: name.as_ptr(),
        structure: structure.as_ptr(),
        meaning: meaning.as_ptr(),
        repair: repair.as_ptr(),
        detail: at(&detail),
        expected: at(&expected),
        found: at(&found),
        field: at(&field),
        name: at(&of),
        path: at(&path),
        place: dw_place {
            group: number(finding.place.group),
            block: number(finding.place.block),
            inode: number(finding.place.inode),
        },
        severity: match code.severity {
            Severity::Harmless => DW_HARMLESS,
            Severity::AtRisk => DW_AT_RISK,
            Severity::Unusable => DW_UNUSABLE,
        },
        reserved: 0,
    };
    tell(&raw const told);
}

pub(crate) fn with_threads(threads: u32) -> checks::Options {
    let options = checks::Options::default();
    NonZero::new(threads as usize).map_or(options, |threads| options.with_threads(threads))
}

fn run(subject: &ImageCheck, how: &dw_check_options) -> Result<dw_check_report> {
    let hearer = Hearer::new(how.context, how.finding, how.progress);
    let summary = subject.check(&with_threads(how.threads), &hearer)?;
    hearer.report(summary)
}

/// Checks an image and reports each fault. Nothing is written. Damage is not an error; `report` contains the number of
/// findings. An error means that the image cannot be checked at all. `open`, `how` and `report` may be NULL. Of `open`,
/// only the location and DW_NORECOVERY are used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_check(
    image: *const c_char,
    open: *const dw_open_options,
    how: *const dw_check_options,
    report: *mut dw_check_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let subject = ImageCheck::open(host_path(image)?, &place(open)?)?;
            put_if_wanted(report, run(&subject, &how)?);
            Ok(())
        })
    }
}

/// Like dw_check, for an image on a device of the caller, which must not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_check_device(
    on: *const dw_device,
    open: *const dw_open_options,
    how: *const dw_check_options,
    report: *mut dw_check_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let device = device(on)?;
            let how = options(how)?;
            let subject = ImageCheck::on_device(Path::new("the image"), device, &place(open)?)?;
            put_if_wanted(report, run(&subject, &how)?);
            Ok(())
        })
    }
}
