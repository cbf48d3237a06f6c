//! Options of a mount.

/// Update policy of access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    Never,
    /// If the time is not later than the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`), except for reads from the kernel's cache.
    Always,
}

/// Behaviour after the image was found damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Stop writing: changes return `EROFS`.
    #[default]
    ReadOnly,
    /// Return an error to the affected request only.
    Continue,
}

/// Options of an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Changes are not permitted.
    pub read_only: bool,
    /// Update policy of access times.
    pub access_times: AccessTimes,
    /// Listing a directory does not update its access time, independent of `access_times` (`nodiratime`).
    pub keep_directory_times: bool,
    /// Behaviour after damage.
    pub on_damage: OnDamage,
    /// Owner reported for all inodes.
    pub uid: Option<u32>,
    /// Group reported for all inodes.
    pub gid: Option<u32>,
    /// Bind mounts of this mount may map IDs (`mount_setattr(2)`), if the kernel supports it. Not together with `uid`
    /// or `gid`.
    pub idmap: bool,
    /// Direct writes of different parts of a file run at the same time. Each open(2) then needs a request, and the kernel
    /// does not see the times that such writes change.
    pub parallel_direct: bool,
    /// Owner (user and group) of new files instead of the caller.
    pub owner: Option<(u32, u32)>,
}
