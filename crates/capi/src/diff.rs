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

/// Modification times do not count.
pub const DW_IGNORE_TIMES: u32 = 1;
/// Owners and groups do not count.
pub const DW_IGNORE_OWNER: u32 = 2;
/// Permission bits do not count.
pub const DW_IGNORE_MODE: u32 = 4;
/// Extended attributes do not count.
pub const DW_IGNORE_XATTRS: u32 = 8;
/// Flags of inodes do not count.
pub const DW_IGNORE_FLAGS: u32 = 16;
/// Which names lead to the same file does not count.
pub const DW_IGNORE_LINKS: u32 = 32;

/// Only the second tree has the path.
pub const DW_ADDED: u32 = 1;
/// Only the first tree has the path. What is in a directory is gone with it, and not told.
pub const DW_REMOVED: u32 = 2;
/// Both have it, and it is not the same.
pub const DW_MODIFIED: u32 = 3;

/// What is different about a path. Texts end with NUL and live until the function that is told returns.
#[repr(C)]
pub struct dw_change {
    /// The path from the root, without leading "/"; empty for the root itself.
    pub path: *const c_char,
    /// All of it as one line for people, such as "M /etc/motd: size 3 → 5, contents".
    pub line: *const c_char,
    /// DW_ADDED, DW_REMOVED or DW_MODIFIED.
    pub kind: u32,
    /// The type bits of st_mode of Linux: in the second tree, or in the first, if it is gone.
    pub mode: u32,
}

/// Hears of a difference, and says whether to go on: 0 if so, anything else ends it with DW_STOPPED.
pub type dw_on_change =
    Option<unsafe extern "C" fn(context: *mut c_void, change: *const dw_change) -> c_int>;

/// How to compare. All zero but struct_size compares everything.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_diff_options {
    /// sizeof(dw_diff_options).
    pub struct_size: usize,
    /// Any of DW_IGNORE_TIMES and its like.
    pub ignored: u32,
    /// Threads that compare contents. 0 for one.
    pub threads: u32,
    /// What the function gets.
    pub context: *mut c_void,
    /// Hears of each path that is different, in their order: parents before what is in them. NULL if nobody does.
    pub change: dw_on_change,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_diff_options {}

/// What was compared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_diff_report {
    /// Paths that only the second tree has.
    pub added: u64,
    /// Paths that only the first tree has, but for what is below them.
    pub removed: u64,
    /// Paths of both that are not the same.
    pub modified: u64,
    /// Bytes that were read to compare contents.
    pub bytes_read: u64,
}

/// One of the two trees.
enum Tree<'a> {
    Image(Box<Image>),
    Directory(&'a Path),
}

impl<'a> Tree<'a> {
    /// # Safety
    /// As for the functions of the border.
    unsafe fn open(path: *const c_char, open: *const dw_open_options) -> Result<Self> {
        // SAFETY: as above.
        let (path, place) = unsafe { (host_path(path)?, place(open)?) };
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        Ok(Self::Image(Box::new(Image::open(path, &place)?)))
    }

    fn side(&self) -> Side<'_> {
        match self {
            Self::Image(image) => Side::Image(image),
            Self::Directory(path) => Side::Directory(path),
        }
    }
}

/// Tells of a change, and says whether to go on.
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
    // SAFETY: the caller's function, as the header says.
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

/// Compares two trees by what is in them: `a` and `b` are images, or directories of the host. `open_a`, `open_b` (of which the
/// place and DW_NORECOVERY count), `how` and `report` may be NULL.
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
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let (a, b) = (Tree::open(a, open_a)?, Tree::open(b, open_b)?);
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
