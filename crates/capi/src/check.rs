//! Checking images.

use std::ffi::{CString, c_char, c_int, c_void};
use std::num::NonZero;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskwright::check::{self as checks, Finding, Observer, Phase, Severity, Subject, Summary};
use parking_lot::Mutex;

use crate::border::{Options, call, host_path, options, put_if_wanted};
use crate::device::{device, dw_device};
use crate::error::dw_error;
use crate::failure::{DW_NONE, Failure, Result, dw_place, without_nul};
use crate::opening::{dw_open_options, place};
use crate::progress::dw_progress;

/// It is wrong, and nobody loses anything.
pub const DW_HARMLESS: u32 = 0;
/// Contents, names or attributes are lost or may be, now or with the next change.
pub const DW_AT_RISK: u32 = 1;
/// The image, or the part that is named, cannot be used.
pub const DW_UNUSABLE: u32 = 2;

/// Something that is wrong in an image. All texts end with NUL and live until the function that is told returns.
#[repr(C)]
pub struct dw_finding {
    /// Its kind, a stable name: "ext4-inode-checksum". docs/check.md has all of them.
    pub code: *const c_char,
    /// The structure that is wrong, in the words of the format.
    pub structure: *const c_char,
    /// What is wrong, as a sentence.
    pub meaning: *const c_char,
    /// What a repair does about it, as a sentence.
    pub repair: *const c_char,
    /// What more there is to say, or NULL.
    pub detail: *const c_char,
    /// What must be there, or NULL.
    pub expected: *const c_char,
    /// What is there, or NULL.
    pub found: *const c_char,
    /// The field that is wrong, or NULL.
    pub field: *const c_char,
    /// The directory entry or extended attribute concerned, or NULL; NULs in it are left out.
    pub name: *const c_char,
    /// The absolute path of the file concerned, or NULL; NULs in it are left out.
    pub path: *const c_char,
    /// Where it is.
    pub place: dw_place,
    /// DW_HARMLESS, DW_AT_RISK or DW_UNUSABLE.
    pub severity: u32,
    /// 0, for later versions.
    pub reserved: u32,
}

/// Hears of a finding, and says whether the check shall go on: 0 if so, anything else ends it with DW_STOPPED. It is called
/// by any thread, by one at a time.
pub type dw_on_finding =
    Option<unsafe extern "C" fn(context: *mut c_void, finding: *const dw_finding) -> c_int>;

/// How to check. All zero but struct_size is fine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_check_options {
    /// sizeof(dw_check_options).
    pub struct_size: usize,
    /// Most threads. 0 takes as many as there are processors, at most 8.
    pub threads: u32,
    /// 0, for later versions.
    pub reserved: u32,
    /// What the functions get.
    pub context: *mut c_void,
    /// Hears of each thing that is wrong. NULL if nobody does.
    pub finding: dw_on_finding,
    /// Asked often, with so much done of so much of a part of the check. Called by any thread, by one at a time. NULL goes on.
    pub progress: dw_progress,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_check_options {}

/// What a check looked at, and found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_check_report {
    /// Things that are wrong.
    pub findings: u64,
    /// Those among them that are DW_AT_RISK or DW_UNUSABLE.
    pub serious: u64,
    /// 1 if everything was looked at: nothing that is damaged kept the check from going on.
    pub is_complete: u64,
    /// Transactions of the journal or log that were replayed in memory first.
    pub transactions_replayed: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// All blocks.
    pub blocks: u64,
}

/// Who hears of a check.
pub(crate) struct Hearer {
    context: *mut c_void,
    finding: dw_on_finding,
    progress: dw_progress,
    /// Functions of the caller's are called by one thread at a time.
    turn: Mutex<()>,
    is_stopped: AtomicBool,
    findings: AtomicU64,
    serious: AtomicU64,
}

// SAFETY: the header says that the functions are called by any thread; `turn` keeps them to one at a time.
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

    /// Calls a function of the caller's, unless one said already that it shall end.
    fn ask(&self, ask: impl FnOnce() -> c_int) {
        let _turn = self.turn.lock();
        if !self.is_stopped.load(Ordering::Relaxed) && ask() != 0 {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// What was heard, unless the caller ended it.
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

    /// The same who hears only of progress.
    pub(crate) fn goes_on(&self, done: u64, total: u64) -> bool {
        if let Some(progress) = self.progress {
            // SAFETY: the caller's function, as the header says.
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
            // SAFETY: the caller's function, as the header says.
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

/// Gives a finding as C has it.
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

fn run(subject: &Subject, how: &dw_check_options) -> Result<dw_check_report> {
    let hearer = Hearer::new(how.context, how.finding, how.progress);
    let summary = subject.check(&with_threads(how.threads), &hearer)?;
    hearer.report(summary)
}

/// Looks at everything in an image and tells of each thing that is wrong. Nothing is written. Damage is no error: `report`
/// counts it. An error says that the image cannot be checked at all. `open`, `how` and `report` may be NULL; of `open`, the
/// place and DW_NORECOVERY count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_check(
    image: *const c_char,
    open: *const dw_open_options,
    how: *const dw_check_options,
    report: *mut dw_check_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let subject = Subject::open(host_path(image)?, &place(open)?)?;
            put_if_wanted(report, run(&subject, &how)?);
            Ok(())
        })
    }
}

/// The same of what lies on a device of the caller's, which nobody changes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_check_device(
    on: *const dw_device,
    open: *const dw_open_options,
    how: *const dw_check_options,
    report: *mut dw_check_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let device = device(on)?;
            let how = options(how)?;
            let subject = Subject::on_device(Path::new("the image"), device, &place(open)?)?;
            put_if_wanted(report, run(&subject, &how)?);
            Ok(())
        })
    }
}
