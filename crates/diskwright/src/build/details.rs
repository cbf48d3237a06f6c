//! What only images of file systems say of their inodes: flags, projects, hints and times of creation; and what of
//! that another format cannot keep.

use std::collections::BTreeMap;

use source::InodeDetails;
use vfs::{FileAttributesChange, FileSystem, Ino, InodeFlags, Result, SetAttributes, Timestamp};

/// What was not kept, by kind: how many files lost it.
pub type LeftOut = BTreeMap<String, u64>;

/// Flags that say where or how a format keeps an inode: another one decides that for itself.
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

/// Flags that keep what is yet to be done from being done.
const PROTECTING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Gives new inodes what others had.
pub(super) struct Details<'a> {
    fs: &'a dyn FileSystem,
    /// Whether inodes have a time of creation and times of any size.
    keeps_times: bool,
    /// What comes last, because what is made in directories would get it, or because it protects from changes.
    later: Vec<(Ino, FileAttributesChange)>,
    left_out: LeftOut,
}

impl<'a> Details<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem) -> Self {
        let keeps_times = fs.attributes(fs.root()).is_ok_and(|root| root.crtime.is_some());
        Self { fs, keeps_times, later: Vec::new(), left_out: LeftOut::new() }
    }

    /// What has to be there before a file has contents.
    pub(super) fn before_contents(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        let bytes = details.attributes.extent_size_bytes;
        if bytes == 0 {
            return Ok(());
        }
        let extent_size_bytes = Some(bytes);
        let change = FileAttributesChange { extent_size_bytes, ..FileAttributesChange::default() };
        self.change(ino, &change, "hint for the size of extents")
    }

    /// Everything else but times, for a file that has its contents.
    pub(super) fn of_file(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        let wanted = details.attributes;
        let flags = wanted.flags - OF_STORAGE;
        self.change_flags(ino, flags - PROTECTING)?;
        self.other(ino, details)?;
        self.put_off(ino, flags & PROTECTING, 0);
        Ok(())
    }

    /// The same for a directory: nothing that goes over to what is made in it happens before the end.
    pub(super) fn of_directory(&mut self, ino: Ino, details: &InodeDetails) -> Result<()> {
        self.other(ino, details)?;
        let wanted = details.attributes;
        self.put_off(ino, wanted.flags - OF_STORAGE, wanted.extent_size_bytes);
        Ok(())
    }

    /// Project and hint for copies.
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
            self.change(ino, &change, "hint for the size of copies")?;
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

    /// Notes which times an inode did not keep.
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
            self.lose("time of creation");
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

    /// Gives an inode an extended attribute. Whether there is a name for it is the format's to say.
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
        // Nobody sets these, and without what belongs to them they would be untrue.
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

    /// Makes one change, or notes that it cannot be.
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

    /// Does what was put off; what was not kept.
    pub(super) fn finish(mut self) -> Result<LeftOut> {
        for (ino, change) in std::mem::take(&mut self.later) {
            if let Some(extent_size_bytes) = change.extent_size_bytes {
                let extent_size_bytes = Some(extent_size_bytes);
                let hint =
                    FileAttributesChange { extent_size_bytes, ..FileAttributesChange::default() };
                self.change(ino, &hint, "hint for the size of extents")?;
            }
            self.change_flags(ino, change.set)?;
        }
        Ok(self.left_out)
    }
}

/// Whether the format does not have what was asked for.
fn is_refusal(error: &vfs::Error) -> bool {
    matches!(error, vfs::Error::Unsupported(_) | vfs::Error::Invalid(_))
}

fn flag(name: &str) -> String {
    format!("flag {}", name.to_ascii_lowercase())
}
