//! Names in mke2fs.conf(5).

/// Sections of the file.
pub(super) const SECTIONS: [&str; 4] = ["options", "defaults", "fs_types", "devices"];
/// Names in `[options]`.
pub(super) const OPTIONS: [&str; 2] = ["proceed_delay", "sync_kludge"];
/// Names in `[defaults]` in addition to those of types.
pub(super) const DEFAULTS: [&str; 3] = ["creator_os", "fs_type", "undo_dir"];
/// Names in a device of `[devices]`.
pub(super) const DEVICES: [&str; 2] = ["fs_type", "usage_types"];
/// Names in a type of `[fs_types]`, and in `[defaults]` for all types.
const TYPES: [&str; 28] = [
    "auto_64-bit_support",
    "base_features",
    "blocksize",
    "cluster_size",
    "default_features",
    "default_mntopts",
    "discard",
    "enable_periodic_fsck",
    "encoding",
    "encoding_flags",
    "errors",
    "features",
    "flex_bg_size",
    "force_undo",
    "hash_alg",
    "inode_ratio",
    "inode_size",
    "journal_location",
    "lazy_itable_init",
    "lazy_journal_init",
    "make_hugefiles",
    "num_backup_sb",
    "num_hugefiles",
    "options",
    "packed_meta_blocks",
    "reserved_ratio",
    "warn_y2038_dates",
    "zero_hugefiles",
];
/// Prefix of settings for `make_hugefiles`.
const HUGE_FILES: &str = "hugefiles_";
const OF_HUGE_FILES: [&str; 10] =
    ["align", "align_disk", "digits", "dir", "gid", "name", "size", "slack", "uid", "umask"];

/// Returns whether types have a setting of this name.
pub(super) fn is_of_type(name: &str) -> bool {
    let of_huge_files = name.strip_prefix(HUGE_FILES);
    TYPES.contains(&name) || of_huge_files.is_some_and(|rest| OF_HUGE_FILES.contains(&rest))
}

/// Parses a boolean.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "yes" | "y" | "true" | "t" | "1" | "on" => Ok(true),
        "no" | "n" | "false" | "f" | "nil" | "0" | "off" => Ok(false),
        _ => Err("write true or false".into()),
    }
}
