//! Comparing images.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use diskwright::diff::{Change, ChangeKind, DiffOptions, Ignored, Side, diff, line};
use diskwright::{Error, Image};

use crate::border::{Options, call, check_flags, host_path, options, put_if_wanted};
use crate::error::dw_error;
use crate::failure::{Result, without_nul};
use crate::opening::{dw_open_options, place};
use crate::progress::Listener;

/// Ignore modification times.
pub const DW_IGNORE_TIMES: u32 = 1;
/// Ignore owners and groups.
pub const DW_IGNORE_OWNER: u32 = 2;
/// Ignore permission bits.
pub const DW_IGNORE_MODE: u32 = 4;
/// Ignore extended attributes.
pub const DW_IGNORE_XATTRS: u32 = 8;
/// Ignore inode flags.
pub const DW_IGNORE_FLAGS: u32 = 16;
/// Ignore which names lead to the same file.
pub const DW_IGNORE_LINKS: u32 = 32;

/// The path exists in the second tree only.
pub const DW_ADDED: u32 = 1;
/// The path exists in the first tree only. The entries of a removed directory are not reported.
pub const DW_REMOVED: u32 = 2;
/// The path exists in both trees and differs.
pub const DW_MODIFIED: u32 = 3;

/// A difference at a path. Strings end with NUL and are valid until the callback returns.
#[repr(C)]
pub struct dw_change {
    /// Path from the root, without leading "/"; empty for the root itself.
    pub path: *const c_char,
    /// The difference as a human-readable line, such as "M /etc/motd: size 3 → 5, contents".
    pub line: *const c_char,
    /// DW_ADDED, DW_REMOVED or DW_MODIFIED.
    pub kind: u32,
    /// Type bits as in st_mode of Linux: in the second tree, or in the first if it was removed.
    pub mode: u32,
}

/// Receives a difference. Returns 0 to continue; any other value cancels the comparison with DW_STOPPED.
pub type dw_on_change =
    Option<unsafe extern "C" fn(context: *mut c_void, change: *const dw_change) -> c_int>;

/// Options of dw_diff. If all fields but struct_size are zero, everything is compared.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_diff_options {
    /// sizeof(dw_diff_options).
    pub struct_size: usize,
    /// Any of the DW_IGNORE_ flags.
    pub ignored: u32,
    /// Number of threads that compare contents. 0 for one.
    pub threads: u32,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Receives each difference in the order of paths: parents before their entries. May be NULL.
    pub change: dw_on_change,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_diff_options {}

/// Result of dw_diff.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_diff_report {
    /// Number of paths in the second tree only.
    pub added: u64,
    /// Number of paths in the first tree only, without those below removed directories.
    pub removed: u64,
    /// Number of paths that differ.
    pub modified: u64,
    /// Number of bytes read to compare contents.
    pub bytes_read: u64,
}

/// One of the two trees.
enum DiffSide<'a> {
    Image(Box<Image>),
    Directory(&'a Path),
}

impl<'a> DiffSide<'a> {
    /// # Safety
    /// As for the functions of the border.
    unsafe fn open(path: *const c_char, open: *const dw_open_options) -> Result<Self> {
        // SAFETY: as above.
        let (path, place) = unsafe { (host_path(path)?, place(open)?) };
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        Ok(Self::Image(Box::new(place.open(path)?)))
    }

    fn side(&self) -> Side<'_> {
        match self {
            Self::Image(image) => Side::Image(image),
            Self::Directory(path) => Side::Directory(path),
        }
    }
}

/// Passes a change to the callback.
///
/// # Safety
/// As for the functions of the border.
unsafe fn tell(how: &dw_diff_options, change: &Change) -> diskwright::Result<()> {
    let Some(hear) = how.change else { return Ok(()) };
    let (path, line) = (without_nul(change.path.clone()), without_nul(line(change)));
    let told = dw_change {
        path: path.as_ptr(),
        line: line.as_ptr(),
        kind: match change.kind {
            ChangeKind::Added => DW_ADDED,
            ChangeKind::Removed => DW_REMOVED,
            ChangeKind::Modified => DW_MODIFIED,
        },
        mode: change.file_type.mode_bits().into(),
    };
    // SAFETY: the caller's function follows the rules of the header.
    match unsafe { hear(how.context, &raw const told) } {
        0 => Ok(()),
        _ => Err(Error::Stopped),
    }
}

fn ignored(flags: u32) -> Result<Ignored> {
    let all = DW_IGNORE_TIMES
        | DW_IGNORE_OWNER
        | DW_IGNORE_MODE
        | DW_IGNORE_XATTRS
        | DW_IGNORE_FLAGS
        | DW_IGNORE_LINKS;
    check_flags(flags, all)?;
    let has = |flag| flags & flag != 0;
    Ok(Ignored {
        times: has(DW_IGNORE_TIMES),
        owner: has(DW_IGNORE_OWNER),
        mode: has(DW_IGNORE_MODE),
        xattrs: has(DW_IGNORE_XATTRS),
        flags: has(DW_IGNORE_FLAGS),
        links: has(DW_IGNORE_LINKS),
    })
}

/// Compares the contents of two trees: `a` and `b` are images or host directories. `open_a`, `open_b` (of which only
/// the location and DW_NORECOVERY are used), `how` and `report` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_diff(
    a: *const c_char,
    open_a: *const dw_open_options,
    b: *const c_char,
    open_b: *const dw_open_options,
    how: *const dw_diff_options,
    report: *mut dw_diff_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let (a, b) = (DiffSide::open(a, open_a)?, DiffSide::open(b, open_b)?);
            let mut wanted = DiffOptions::default();
            wanted.ignored = ignored(how.ignored)?;
            wanted.threads = how.threads.max(1) as usize;
            let mut silent = Listener::new(how.context, None, None);
            let mut hear = |change: &Change| tell(&how, change);
            let done = diff(a.side(), b.side(), &wanted, &mut silent, &mut hear)?;
            let counts = dw_diff_report {
                added: done.added,
                removed: done.removed,
                modified: done.modified,
                bytes_read: done.bytes_read,
            };
            put_if_wanted(report, counts);
            Ok(())
        })
    }
}
