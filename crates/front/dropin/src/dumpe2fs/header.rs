//! Lines of `dumpe2fs -h` and `tune2fs -l` from the superblock, in order.

use std::fmt::{Display, Write};

use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use jiff::tz::TimeZone;

/// Values of `def_hash_version`.
pub(crate) const HASHES: [&str; 7] = [
    "legacy",
    "half_md4",
    "tea",
    "legacy_unsigned",
    "half_md4_unsigned",
    "tea_unsigned",
    "siphash",
];
/// Values of `creator_os`.
const SYSTEMS: [&str; 5] = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
/// Values of `first_error_errcode` and `last_error_errcode`, from 1 on.
const ERROR_CODES: [&str; 17] = [
    "UNKNOWN",
    "EIO",
    "ENOMEM",
    "EFSBADCRC",
    "EFSCORRUPTED",
    "ENOSPC",
    "ENOKEY",
    "EROFS",
    "EFBIG",
    "EEXIST",
    "ERANGE",
    "EOVERFLOW",
    "EBUSY",
    "ENOTDIR",
    "ENOTEMPTY",
    "ESHUTDOWN",
    "EFAULT",
];
/// Bits of `flags`.
const FLAGS: [(u32, &str); 3] =
    [(1, "signed_directory_hash"), (2, "unsigned_directory_hash"), (4, "test_filesystem")];
/// Bits of `default_mount_opts` that select the data journalling mode.
pub(crate) const DATA_MODES: u32 = 0x0060;
/// Other bits of `default_mount_opts` with the names of tune2fs.
pub(crate) const MOUNT_OPTIONS: [(u32, &str); 9] = [
    (0x0001, "debug"),
    (0x0002, "bsdgroups"),
    (0x0004, "user_xattr"),
    (0x0008, "acl"),
    (0x0010, "uid16"),
    (0x0100, "nobarrier"),
    (0x0200, "block_validity"),
    (0x0400, "discard"),
    (0x0800, "nodelalloc"),
];

/// Returns all lines, each with a newline.
pub(super) fn lines(raw: &RawSuperblock) -> String {
    let mut out = String::with_capacity(4096);
    names(&mut out, raw);
    counts(&mut out, raw);
    sizes(&mut out, raw);
    times(&mut out, raw);
    owners_and_inodes(&mut out, raw);
    journal(&mut out, raw);
    errors(&mut out, raw);
    features(&mut out, raw);
    out
}

/// Adds a line.
pub(super) fn line(out: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(out, "{:<25} {value}", format!("{name}:"));
}

/// Adds a line, unless the value is zero.
fn positive(out: &mut String, name: &str, value: impl Into<u64>) {
    let value = value.into();
    if value > 0 {
        line(out, name, value);
    }
}

/// Adds a line, unless the value is empty.
fn filled(out: &mut String, name: &str, value: String) {
    if !value.is_empty() {
        line(out, name, value);
    }
}

fn names(out: &mut String, raw: &RawSuperblock) {
    line(out, "Filesystem volume name", or(text(&raw.volume_name), "<none>"));
    line(out, "Last mounted on", or(text(&raw.last_mounted), "<not available>"));
    line(out, "Filesystem UUID", or(uuid_text(&raw.uuid), "<none>"));
    line(out, "Filesystem magic number", format_args!("0x{:04X}", raw.magic.get()));
    let revision = raw.rev_level.get();
    let revision_name = if revision == 0 { "original" } else { "dynamic" };
    line(out, "Filesystem revision #", format_args!("{revision} ({revision_name})"));
    line(out, "Filesystem features", or(raw.features().names().join(" "), "(none)"));
    if raw.flags.get() != 0 {
        let flags = bits(raw.flags.get(), &FLAGS);
        line(out, "Filesystem flags", format_args!("{flags} "));
    }
    line(out, "Default mount options", or(mount_options(raw.default_mount_opts.get()), "(none)"));
    filled(out, "Mount options", text(&raw.mount_opts));
    line(out, "Filesystem state", state(raw.state.get()));
    let behaviour = match raw.errors.get() {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    };
    line(out, "Errors behavior", behaviour);
    let system = SYSTEMS.get(raw.creator_os.get() as usize);
    line(out, "Filesystem OS type", system.unwrap_or(&"(unknown os)"));
}

fn counts(out: &mut String, raw: &RawSuperblock) {
    let blocks = u64::from(raw.blocks_count_hi.get()) << 32 | u64::from(raw.blocks_count_lo.get());
    line(out, "Inode count", raw.inodes_count);
    line(out, "Block count", blocks);
    line(out, "Reserved block count", raw.reserved_blocks());
    positive(out, "Overhead clusters", raw.overhead_clusters.get());
    line(out, "Free blocks", raw.free_blocks());
    line(out, "Free inodes", raw.free_inodes_count);
}

fn sizes(out: &mut String, raw: &RawSuperblock) {
    let block_size = 1024_u64 << raw.log_block_size.get().min(6);
    let inodes_per_group = raw.inodes_per_group.get();
    let inode_blocks = u64::from(inodes_per_group) * u64::from(raw.inode_size.get()) / block_size;
    let has_clusters = raw.features().ro_compat.contains(RoCompat::BIGALLOC);
    let cluster_size = 1024_u64 << raw.log_cluster_size.get().min(20);
    let unit = if has_clusters { "Cluster" } else { "Fragment" };
    line(out, "First block", raw.first_data_block);
    line(out, "Block size", block_size);
    line(out, &format!("{unit} size"), cluster_size);
    if raw.features().incompat(Incompat::BIT64) {
        line(out, "Group descriptor size", raw.desc_size);
    }
    positive(out, "Reserved GDT blocks", raw.reserved_gdt_blocks.get());
    line(out, "Blocks per group", raw.blocks_per_group);
    line(out, &format!("{unit}s per group"), raw.clusters_per_group);
    line(out, "Inodes per group", inodes_per_group);
    line(out, "Inode blocks per group", inode_blocks);
    positive(out, "RAID stride", raw.raid_stride.get());
    positive(out, "RAID stripe width", raw.raid_stripe_width.get());
    positive(out, "First meta block group", raw.first_meta_bg.get());
    if raw.log_groups_per_flex > 0 {
        line(out, "Flex block group size", 1_u64 << raw.log_groups_per_flex.min(31));
    }
}

fn times(out: &mut String, raw: &RawSuperblock) {
    line(out, "Filesystem created", time(raw.mkfs_time.get(), raw.mkfs_time_hi));
    line(out, "Last mount time", time(raw.mtime.get(), raw.mtime_hi));
    line(out, "Last write time", time(raw.wtime.get(), raw.wtime_hi));
    line(out, "Mount count", raw.mnt_count);
    line(out, "Maximum mount count", raw.max_mnt_count.get() as i16);
    line(out, "Last checked", time(raw.lastcheck.get(), raw.lastcheck_hi));
    let interval = raw.checkinterval.get();
    line(out, "Check interval", format_args!("{interval} ({})", or(duration(interval), "<none>")));
    if interval > 0 {
        let checked = i64::from(raw.lastcheck_hi) << 32 | i64::from(raw.lastcheck.get());
        line(out, "Next check after", local_time(checked + i64::from(interval)));
    }
    if raw.kbytes_written.get() > 0 {
        line(out, "Lifetime writes", scaled(raw.kbytes_written.get(), " kB"));
    }
}

fn owners_and_inodes(out: &mut String, raw: &RawSuperblock) {
    let owner = |id: u16, kind| match id {
        0 => format!("0 ({kind} root)"),
        id => format!("{id} ({kind} unknown)"),
    };
    line(out, "Reserved blocks uid", owner(raw.def_resuid.get(), "user"));
    line(out, "Reserved blocks gid", owner(raw.def_resgid.get(), "group"));
    if raw.rev_level.get() == 0 {
        return;
    }
    line(out, "First inode", raw.first_ino);
    // The only line with a tab besides the journal device.
    let _ = writeln!(out, "Inode size:\t          {}", raw.inode_size.get());
    positive(out, "Required extra isize", raw.min_extra_isize.get());
    positive(out, "Desired extra isize", raw.want_extra_isize.get());
}

fn journal(out: &mut String, raw: &RawSuperblock) {
    filled(out, "Journal UUID", uuid_text(&raw.journal_uuid));
    positive(out, "Journal inode", raw.journal_inum.get());
    if raw.journal_dev.get() > 0 {
        let _ = writeln!(out, "Journal device:\t          0x{:04x}", raw.journal_dev.get());
    }
    positive(out, "First orphan inode", raw.last_orphan.get());
    let version = usize::from(raw.def_hash_version);
    if raw.features().compat.contains(Compat::DIR_INDEX) || !uuid_text(&raw.hash_seed).is_empty() {
        let name = HASHES.get(version).map(|name| (*name).to_owned());
        line(out, "Default directory hash", name.unwrap_or_else(|| format!("HASHALG_{version}")));
    }
    filled(out, "Directory Hash Seed", uuid_text(&raw.hash_seed));
    match raw.jnl_backup_type {
        0 => {}
        1 => line(out, "Journal backup", "inode blocks"),
        other => line(out, "Journal backup", format_args!("type {other}")),
    }
    let copies = raw.backup_bgs.iter().filter(|group| group.get() > 0);
    let copies = copies.fold(String::new(), |list, group| format!("{list}{group} "));
    filled(out, "Backup block groups", copies);
    positive(out, "Snapshot inode", raw.snapshot_inum.get());
    positive(out, "Snapshot ID", raw.snapshot_id.get());
    positive(out, "Snapshot reserved blocks", raw.snapshot_r_blocks_count.get());
    positive(out, "Snapshot list head", raw.snapshot_list.get());
}

/// First or last error stored in a superblock.
struct Error<'a> {
    which: &'a str,
    time: (u32, u8),
    function: &'a [u8],
    line: u32,
    inode: u32,
    block: u64,
    code: u8,
}

fn errors(out: &mut String, raw: &RawSuperblock) {
    positive(out, "FS Error count", raw.error_count.get());
    let first = Error {
        which: "First",
        time: (raw.first_error_time.get(), raw.first_error_time_hi),
        function: &raw.first_error_func,
        line: raw.first_error_line.get(),
        inode: raw.first_error_ino.get(),
        block: raw.first_error_block.get(),
        code: raw.first_error_errcode,
    };
    let last = Error {
        which: "Last",
        time: (raw.last_error_time.get(), raw.last_error_time_hi),
        function: &raw.last_error_func,
        line: raw.last_error_line.get(),
        inode: raw.last_error_ino.get(),
        block: raw.last_error_block.get(),
        code: raw.last_error_errcode,
    };
    for error in [first, last].iter().filter(|error| error.time.0 != 0) {
        let name = |field: &str| format!("{} error {field}", error.which);
        line(out, &name("time"), time(error.time.0, error.time.1));
        line(out, &name("function"), text(error.function));
        line(out, &name("line #"), error.line);
        positive(out, &name("inode #"), error.inode);
        positive(out, &name("block #"), error.block);
        if let Some(index) = usize::from(error.code).checked_sub(1) {
            let code = ERROR_CODES.get(index).map(|code| (*code).to_owned());
            let code = code.unwrap_or_else(|| format!("UNKNOWN_ERRCODE_{}", error.code));
            line(out, &name("err"), code);
        }
    }
}

fn features(out: &mut String, raw: &RawSuperblock) {
    let features = raw.features();
    if features.incompat(Incompat::MMP) {
        line(out, "MMP block number", raw.mmp_block);
        line(out, "MMP update interval", raw.mmp_interval);
    }
    positive(out, "User quota inode", raw.usr_quota_inum.get());
    positive(out, "Group quota inode", raw.grp_quota_inum.get());
    positive(out, "Project quota inode", raw.prj_quota_inum.get());
    if features.metadata_csum() {
        line(out, "Checksum type", "crc32c");
        line(out, "Checksum", format_args!("{:#010x}", raw.checksum.get()));
    }
    filled(out, "Encryption PW Salt", uuid_text(&raw.encrypt_pw_salt));
    if features.incompat(Incompat::CSUM_SEED) {
        line(out, "Checksum seed", format_args!("{:#010x}", raw.checksum_seed.get()));
    }
    if features.incompat(Incompat::CASEFOLD) {
        match raw.encoding.get() {
            1 => line(out, "Character encoding", "utf8-12.1"),
            other => line(out, "Character encoding", format_args!("UNKNOWN_ENCODING_{other}")),
        }
    }
    positive(out, "Orphan file inode", raw.orphan_file_inum.get());
}

/// Returns the mount options by name, the data journalling mode first.
fn mount_options(value: u32) -> String {
    let data = match value & DATA_MODES {
        0x0020 => "journal_data",
        0x0040 => "journal_data_ordered",
        0x0060 => "journal_data_writeback",
        _ => "",
    };
    let words = [data.to_owned(), bits(value, &MOUNT_OPTIONS)];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Formats seconds as months of 30 days, weeks, days and a time of day.
fn duration(seconds: u32) -> String {
    const DAY: u32 = 24 * 60 * 60;
    const UNITS: [(u32, &str); 3] = [(30 * DAY, "month"), (7 * DAY, "week"), (DAY, "day")];
    let mut rest = seconds;
    let mut words = Vec::new();
    for (unit, name) in UNITS {
        let count = rest / unit;
        rest %= unit;
        match count {
            0 => {}
            1 => words.push(format!("1 {name}")),
            _ => words.push(format!("{count} {name}s")),
        }
    }
    if rest > 0 {
        words.push(format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60));
    }
    words.join(", ")
}

/// Formats a size in KiB with the largest unit that gives at least eight. `unit` is the suffix for KiB; for other units
/// its `k` is replaced by their letter.
pub(super) fn scaled(kbytes: u64, unit: &str) -> String {
    const LETTERS: [&str; 5] = ["k", "M", "G", "T", "P"];
    let shift = (0..4).find(|power| kbytes >> (10 * power) < 8192).unwrap_or(4);
    let half = (1_u64 << (10 * shift)) / 2;
    let amount = kbytes.saturating_add(half) >> (10 * shift);
    format!("{amount}{}", unit.replace('k', LETTERS[shift]))
}

fn state(bits: u16) -> String {
    let mut state = String::from(if bits & STATE_VALID == 0 { "not clean" } else { "clean" });
    if bits & STATE_ERROR != 0 {
        state.push_str(" with errors");
    }
    state
}

fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let set = names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name);
    set.collect::<Vec<_>>().join(" ")
}

fn or(value: String, nothing: &str) -> String {
    if value.is_empty() { nothing.to_owned() } else { value }
}

/// Formats a UUID; empty if it is all zeros.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let uuid = uuid::Uuid::from_bytes(*bytes);
    if uuid.is_nil() { String::new() } else { uuid.hyphenated().to_string() }
}

/// Returns the text before the first NUL, with control characters escaped. Backslashes are not doubled, as in the
/// original.
pub(crate) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    diskwright::text::escaped(&bytes[..len]).to_string().replace(r"\\", r"\")
}

fn time(low: u32, high: u8) -> String {
    match i64::from(high) << 32 | i64::from(low) {
        0 => "n/a".into(),
        seconds => local_time(seconds),
    }
}

/// Formats a time in the local zone (`TZ`) like ctime(3).
pub(super) fn local_time(seconds: i64) -> String {
    local(seconds, "%a %b %e %H:%M:%S %Y")
}

/// Formats a time in the local zone with strftime(3) directives.
pub(crate) fn local(seconds: i64, format: &str) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(
        |_| seconds.to_string(),
        |time| time.to_zoned(TimeZone::system()).strftime(format).to_string(),
    )
}
