//! `dumpe2fs -h`: what the superblock says.

use std::ffi::OsString;
use std::fmt::{Display, Write};
use std::fs::File;
use std::path::{Path, PathBuf};

use blockdev::{BlockDevice, FileDevice};
use ext4::format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use jiff::tz::Offset;

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say_all};
use crate::words::{Word, Words};

/// Values of `def_hash_version`.
const HASHES: [&str; 7] = [
    "legacy",
    "half_md4",
    "tea",
    "legacy_unsigned",
    "half_md4_unsigned",
    "tea_unsigned",
    "siphash",
];
/// Values of `creator_os`.
const SYSTEMS: [&str; 5] = ["Linux", "GNU/Hurd", "Masix", "FreeBSD", "Lites"];
/// Bits of `default_mount_opts` that say how data is journaled; 0x20 is `journal_data`.
pub(crate) const DATA_MODES: u32 = 0x0060;
/// Its other bits, as tune2fs calls them.
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

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES);
    let mut image: Option<PathBuf> = None;
    let mut only_header = false;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('h') => only_header = true,
            // How numbers would be written that -h does not write, and what it would not stop at.
            Word::Option('x' | 'f') => {}
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option('b' | 'g' | 'i' | 'm' | 'o') => {
                return Err(words.refused("only the superblock is shown, by -h"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    let image = words.named(image)?;
    if !only_header {
        return Err(
            STATUSES.refused("what dumpe2fs shows without -h", "diskwright dump shows groups")
        );
    }
    show(&superblock(&image)?.raw);
    Ok(0)
}

/// Reads the superblock as it lies.
pub(crate) fn superblock(image: &Path) -> Result<Superblock, Failure> {
    let at = |e: &dyn Display| STATUSES.failed(format_args!("{}: {e}", image.display()));
    let device = File::open(image).and_then(FileDevice::new).map_err(|e| at(&e))?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|e| at(&e))?;
    Superblock::parse(&bytes, device.len()).map_err(|e| at(&e))
}

/// Adds a line.
fn line(out: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(out, "{:<25} {value}", format!("{name}:"));
}

/// Adds a line, unless the value is zero.
fn positive(out: &mut String, name: &str, value: impl Into<u32>) {
    let value = value.into();
    if value > 0 {
        line(out, name, value);
    }
}

/// Shows it in the words of dumpe2fs.
pub(crate) fn show(raw: &RawSuperblock) {
    let mut out = String::with_capacity(4096);
    names(&mut out, raw);
    counts(&mut out, raw);
    times(&mut out, raw);
    rest(&mut out, raw);
    out.push('\n');
    say_all(&out);
}

fn names(out: &mut String, raw: &RawSuperblock) {
    line(out, "Filesystem volume name", or(text(&raw.volume_name), "<none>"));
    line(out, "Last mounted on", or(text(&raw.last_mounted), "<not available>"));
    line(out, "Filesystem UUID", or(uuid_text(&raw.uuid), "<none>"));
    line(
        out,
        "Filesystem magic number",
        format_args!("{:#06X}", raw.magic.get()).to_string().replace("0X", "0x"),
    );
    let revision = raw.rev_level.get();
    line(
        out,
        "Filesystem revision #",
        format_args!("{revision} ({})", if revision == 0 { "original" } else { "dynamic" }),
    );
    line(out, "Filesystem features", or(raw.features().names().join(" "), "(none)"));
    let flags =
        [(1, "signed_directory_hash"), (2, "unsigned_directory_hash"), (4, "test_filesystem")];
    line(out, "Filesystem flags", bits(raw.flags.get(), &flags));
    line(out, "Default mount options", or(mount_options(raw.default_mount_opts.get()), "(none)"));
    line(out, "Filesystem state", state(raw.state.get()));
    let behaviour = match raw.errors.get() {
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Continue",
    };
    line(out, "Errors behavior", behaviour);
    let system = SYSTEMS.get(raw.creator_os.get() as usize);
    line(out, "Filesystem OS type", system.unwrap_or(&"(unknown os)"));
}

fn counts(out: &mut String, raw: &RawSuperblock) {
    let block_size = 1024_u64 << raw.log_block_size.get().min(6);
    let inodes_per_group = raw.inodes_per_group.get();
    let inode_blocks = u64::from(inodes_per_group) * u64::from(raw.inode_size.get()) / block_size;
    line(out, "Inode count", raw.inodes_count);
    line(
        out,
        "Block count",
        u64::from(raw.blocks_count_hi.get()) << 32 | u64::from(raw.blocks_count_lo.get()),
    );
    line(out, "Reserved block count", raw.reserved_blocks());
    positive(out, "Overhead clusters", raw.overhead_clusters);
    line(out, "Free blocks", raw.free_blocks());
    line(out, "Free inodes", raw.free_inodes_count);
    line(out, "First block", raw.first_data_block);
    line(out, "Block size", block_size);
    line(out, "Fragment size", block_size);
    if raw.desc_size.get() > 32 {
        line(out, "Group descriptor size", raw.desc_size);
    }
    positive(out, "Reserved GDT blocks", raw.reserved_gdt_blocks);
    line(out, "Blocks per group", raw.blocks_per_group);
    line(out, "Fragments per group", raw.clusters_per_group);
    line(out, "Inodes per group", inodes_per_group);
    line(out, "Inode blocks per group", inode_blocks);
    positive(out, "RAID stride", raw.raid_stride);
    positive(out, "RAID stripe width", raw.raid_stripe_width);
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
    line(out, "Check interval", format_args!("{interval} ({})", or(in_words(interval), "<none>")));
}

fn rest(out: &mut String, raw: &RawSuperblock) {
    let owner = |id: u16, kind| match id {
        0 => format!("0 ({kind} root)"),
        id => format!("{id} ({kind} unknown)"),
    };
    line(out, "Reserved blocks uid", owner(raw.def_resuid.get(), "user"));
    line(out, "Reserved blocks gid", owner(raw.def_resgid.get(), "group"));
    line(out, "First inode", raw.first_ino);
    // The only one with a tab.
    let _ = writeln!(out, "Inode size:\t          {}", raw.inode_size.get());
    if raw.min_extra_isize.get() > 0 {
        line(out, "Required extra isize", raw.min_extra_isize);
        line(out, "Desired extra isize", raw.want_extra_isize);
    }
    positive(out, "Journal inode", raw.journal_inum);
    let hash = HASHES.get(usize::from(raw.def_hash_version));
    line(out, "Default directory hash", hash.unwrap_or(&"unknown"));
    line(out, "Directory Hash Seed", uuid_text(&raw.hash_seed));
    if raw.features().metadata_csum() {
        line(out, "Checksum type", "crc32c");
        line(out, "Checksum", format_args!("{:#010x}", raw.checksum.get()));
    }
    positive(out, "Orphan file inode", raw.orphan_file_inum);
}

/// How data is journaled comes first.
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

/// Seconds as months of 30 days, weeks, days and less.
fn in_words(seconds: u32) -> String {
    const UNITS: [(u32, &str); 6] = [
        (2_592_000, "month"),
        (604_800, "week"),
        (86400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
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
    words.join(", ")
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

/// Empty for one that is all zeros.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let uuid = uuid::Uuid::from_bytes(*bytes);
    if uuid.is_nil() { String::new() } else { uuid.hyphenated().to_string() }
}

/// Text up to a NUL; bytes that are not text are replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    diskwright::text::escaped(&bytes[..len]).to_string()
}

/// A time in UTC as ctime(3) writes it.
fn time(low: u32, high: u8) -> String {
    let seconds = i64::from(high) << 32 | i64::from(low);
    if seconds == 0 {
        return "n/a".into();
    }
    let time = jiff::Timestamp::from_second(seconds).map(|time| Offset::UTC.to_datetime(time));
    time.map_or_else(
        |_| seconds.to_string(),
        |time| time.strftime("%a %b %e %H:%M:%S %Y").to_string(),
    )
}
