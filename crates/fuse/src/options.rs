//! What a mount is asked to do differently.

/// When reading changes access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    Never,
    /// If the time is not after the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`), as far as reads are not answered from the kernel's cache.
    Always,
}

/// What happens once the image has been found damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Nothing is written any more: changes get `EROFS`.
    #[default]
    ReadOnly,
    /// The request that met it gets an error, and all else goes on.
    Continue,
}

/// How requests are answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Nothing may be changed.
    pub read_only: bool,
    /// When reading changes access times.
    pub access_times: AccessTimes,
    /// Listing a directory does not change its access time, whatever is said of others (`nodiratime`).
    pub keep_directory_times: bool,
    /// What happens after damage.
    pub on_damage: OnDamage,
    /// All inodes appear to belong to this user, whatever the image says.
    pub uid: Option<u32>,
    /// All inodes appear to belong to this group, whatever the image says.
    pub gid: Option<u32>,
    /// Mounts of this mount may map ids (`mount_setattr(2)`), where the kernel has that. Not together with
    /// `uid` or `gid`.
    pub idmap: bool,
    /// New files are stored as this owner's (user and group) instead of the caller's.
    pub owner: Option<(u32, u32)>,
}
