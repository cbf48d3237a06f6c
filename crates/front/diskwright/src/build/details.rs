//! Inode properties that only file system images have (flags, project IDs, extent size hints, creation times), and the
//! losses if the target format cannot store them.

use std::collections::BTreeMap;

use import::InodeDetails;
use vfs::{FileAttributesChange, FileSystem, Ino, InodeFlags, Result, SetAttributes, Timestamp};

/// Lost properties by kind, with the number of affected files.
pub type LeftOut = BTreeMap<String, u64>;

/// Flags that describe storage. Each format sets its own.
const OF_STORAGE: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INDEXED)
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::PREALLOCATED)
    .union(InodeFlags::HASATTR)
    .union(InodeFlags::REALTIME)
    .union(InodeFlags::RTINHERIT)
    .union(InodeFlags::EXTSIZE)
    .union(InodeFlags::EXTSZINHERIT)
    .union(InodeFlags::COWEXTSIZE);

/// Flags that prevent later changes.
const PROTECTING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Applies the properties of source inodes to new inodes.
pub(super) struct SourceDetails<'a> {
    fs: &'a dyn FileSystem,
    /// True if inodes have a creation time and 64-bit times.
    keeps_times: bool,
    /// Changes to apply last, because directories pass them on to new files or because they prevent further changes.
    later: Vec<(Ino, FileAttributesChange)>,
    left_out: LeftOut,
}

impl<'a> SourceDetails<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem) -> Self {
        let keeps_times = fs.attributes(fs.root()).is_ok_and(|root| root.crtime.is_some());
        Self { fs, keeps_times, later: Vec::new(), left_out: LeftOut::new() }
    }

    /// Applies properties that must be set before a file has contents.
    pub(super) fn before_contents(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        let bytes = details.attributes.extent_size_bytes;
        if bytes == 0 {
            return Ok(());
        }
        let extent_size_bytes = Some(bytes);
        let change = FileAttributesChange { extent_size_bytes, ..FileAttributesChange::default() };
        self.change(ino, &change, "extent size hint")
    }

    /// Applies all other properties except times to a file that has its contents.
    pub(super) fn of_file(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        let wanted = details.attributes;
        let flags = wanted.flags - OF_STORAGE;
        self.change_flags(ino, flags - PROTECTING)?;
        self.other(ino, details)?;
        self.put_off(ino, flags & PROTECTING, 0);
        Ok(())
    }

    /// Applies properties to a directory. Those inherited by new files are deferred to the end.
    pub(super) fn of_directory(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        self.other(ino, details)?;
        let wanted = details.attributes;
        self.put_off(ino, wanted.flags - OF_STORAGE, wanted.extent_size_bytes);
        Ok(())
    }

    /// Applies the project ID and the hint for copies.
    fn other(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        let wanted = details.attributes;
        if wanted.project_id != 0 {
            let project_id = Some(wanted.project_id);
            let change = FileAttributesChange { project_id, ..FileAttributesChange::default() };
            self.change(ino, &change, "project")?;
        }
        if wanted.cow_extent_size_bytes != 0 {
            let cow_extent_size_bytes = Some(wanted.cow_extent_size_bytes);
            let change =
                FileAttributesChange { cow_extent_size_bytes, ..FileAttributesChange::default() };
            self.change(ino, &change, "copy-on-write extent size hint")?;
        }
        Ok(())
    }

    fn put_off(&mut self, ino: Ino, flags: InodeFlags, extent_size_bytes: u32) {
        if !flags.is_empty() || extent_size_bytes != 0 {
            let extent_size_bytes = (extent_size_bytes != 0).then_some(extent_size_bytes);
            let set = flags;
            let change =
                FileAttributesChange { set, extent_size_bytes, ..FileAttributesChange::default() };
            self.later.push((ino, change));
        }
    }

    /// Records times that an inode cannot store.
    pub(super) fn check_times(&mut self, ino: Ino, wanted: &SetAttributes) -> Result<()> {
        let is_narrow = |time: Option<Timestamp>| {
            time.is_none_or(|time| i32::try_from(time.sec).is_ok() && time.sec >= 0)
        };
        let all = [wanted.atime, wanted.mtime, wanted.ctime, wanted.crtime];
        if self.keeps_times && all.into_iter().all(is_narrow) {
            return Ok(());
        }
        let found = self.fs.attributes(ino)?;
        let differs = |wanted: Option<Timestamp>, found| wanted.is_some_and(|time| time != found);
        if wanted.crtime.is_some() && found.crtime.is_none() {
            self.lose("creation time");
        }
        let is_other = differs(wanted.atime, found.atime)
            || differs(wanted.mtime, found.mtime)
            || differs(wanted.ctime, found.ctime)
            || found.crtime.is_some_and(|crtime| differs(wanted.crtime, crtime));
        if is_other {
            self.lose("exact times");
        }
        Ok(())
    }

    /// Sets an extended attribute, or records the loss if the format does not support its name.
    pub(super) fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        match self.fs.set_xattr(ino, name, value) {
            Err(vfs::Error::Unsupported(_)) => {
                let class = name.split(|&byte| byte == b'.').next().unwrap_or(name);
                self.lose(&format!("extended attribute of {}", String::from_utf8_lossy(class)));
                Ok(())
            }
            other => other,
        }
    }

    fn change_flags(&mut self, ino: Ino, flags: InodeFlags) -> Result<()> {
        if flags.is_empty() {
            return Ok(());
        }
        // These flags cannot be set, and would be wrong without their associated data.
        for (name, _) in (flags & InodeFlags::DESCRIBING).iter_names() {
            self.lose(&flag(name));
        }
        let set = flags - InodeFlags::DESCRIBING;
        let all = FileAttributesChange { set, ..FileAttributesChange::default() };
        match self.fs.set_file_attributes(ino, &all) {
            Err(e) if is_refusal(&e) => {}
            other => return other,
        }
        for (name, set) in set.iter_names() {
            let one = FileAttributesChange { set, ..FileAttributesChange::default() };
            self.change(ino, &one, &flag(name))?;
        }
        Ok(())
    }

    /// Applies one change, or records that the format does not support it.
    fn change(&mut self, ino: Ino, change: &FileAttributesChange, what: &str) -> Result<()> {
        match self.fs.set_file_attributes(ino, change) {
            Err(e) if is_refusal(&e) => {
                self.lose(what);
                Ok(())
            }
            other => other,
        }
    }

    fn lose(&mut self, what: &str) {
        match self.left_out.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                self.left_out.insert(what.to_owned(), 1);
            }
        }
    }

    /// Applies deferred changes. Returns the losses.
    pub(super) fn finish(mut self) -> Result<LeftOut> {
        for (ino, change) in std::mem::take(&mut self.later) {
            if let Some(extent_size_bytes) = change.extent_size_bytes {
                let extent_size_bytes = Some(extent_size_bytes);
                let hint =
                    FileAttributesChange { extent_size_bytes, ..FileAttributesChange::default() };
                self.change(ino, &hint, "extent size hint")?;
            }
            self.change_flags(ino, change.set)?;
        }
        Ok(self.left_out)
    }
}

/// Returns whether the format does not support the request.
fn is_refusal(error: &vfs::Error) -> bool {
    matches!(error, vfs::Error::Unsupported(_) | vfs::Error::Invalid(_))
}

fn flag(name: &str) -> String {
    format!("flag {}", name.to_ascii_lowercase())
}
