//! Superblock fields with their debugfs names, and the syntax of times.

use std::fmt::Write;
use std::mem::offset_of;
use std::time::{SystemTime, UNIX_EPOCH};

use ext4::format::superblock::RawSuperblock;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::dumpe2fs::HASHES;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldType {
    Unsigned,
    Signed,
    Time,
    Text,
    Uuid,
    Hash,
    /// Field that cannot be set, with the reason.
    Refused(&'static str),
}

/// Superblock field.
#[derive(Debug)]
struct Field {
    name: &'static str,
    kind: FieldType,
    /// Offset and number of bytes.
    low: (usize, usize),
    /// Offset and number of bytes of the upper part, if there is one.
    high: Option<(usize, usize)>,
    /// Number of array elements; 1 for other fields.
    count: usize,
}

/// Generates the table: a line for each field with its name in [`RawSuperblock`], its type, and its upper part or
/// count.
macro_rules! fields {
    ($($name:ident $kind:ident $(+ $high:ident)? $([$count:literal])?;)*) => {
        &[$(Field {
            name: stringify!($name),
            kind: FieldType::$kind,
            low: place!($name $([$count])?),
            high: fields!(@high $($high)?),
            count: fields!(@count $($count)?),
        }),*]
    };
    (@high) => { None };
    (@high $high:ident) => { Some(place!($high)) };
    (@count) => { 1 };
    (@count $count:literal) => { $count };
}

/// Bytes of a field of [`RawSuperblock`], or of the first element of an array.
macro_rules! place {
    ($name:ident) => {
        (offset_of!(RawSuperblock, $name), size_of_field(|raw: &RawSuperblock| &raw.$name))
    };
    ($name:ident [$count:literal]) => {
        (offset_of!(RawSuperblock, $name), size_of_field(|raw: &RawSuperblock| &raw.$name) / $count)
    };
}

/// Returns the size of what a function of a superblock returns.
const fn size_of_field<T>(_: fn(&RawSuperblock) -> &T) -> usize {
    size_of::<T>()
}

/// Settable fields, in the order of the original.
static FIELDS: &[Field] = fields! {
    free_inodes_count Unsigned;
    mtime Time + mtime_hi;
    wtime Time + wtime_hi;
    mnt_count Unsigned;
    max_mnt_count Signed;
    state Unsigned;
    errors Unsigned;
    minor_rev_level Unsigned;
    lastcheck Time + lastcheck_hi;
    checkinterval Unsigned;
    creator_os Unsigned;
    def_resuid Unsigned;
    def_resgid Unsigned;
    first_ino Unsigned;
    block_group_nr Unsigned;
    uuid Uuid;
    volume_name Text;
    last_mounted Text;
    algorithm_usage_bitmap Unsigned;
    prealloc_blocks Unsigned;
    prealloc_dir_blocks Unsigned;
    journal_uuid Uuid;
    journal_inum Unsigned;
    journal_dev Unsigned;
    last_orphan Unsigned;
    hash_seed Uuid;
    def_hash_version Hash;
    jnl_backup_type Unsigned;
    default_mount_opts Unsigned;
    mkfs_time Time + mkfs_time_hi;
    jnl_blocks Unsigned [17];
    min_extra_isize Unsigned;
    want_extra_isize Unsigned;
    flags Unsigned;
    raid_stride Unsigned;
    mmp_interval Unsigned;
    mmp_block Unsigned;
    raid_stripe_width Unsigned;
    log_groups_per_flex Unsigned;
    kbytes_written Unsigned;
    snapshot_inum Unsigned;
    snapshot_id Unsigned;
    snapshot_r_blocks_count Unsigned;
    snapshot_list Unsigned;
    mount_opts Text;
    usr_quota_inum Unsigned;
    grp_quota_inum Unsigned;
    prj_quota_inum Unsigned;
    overhead_clusters Unsigned;
    backup_bgs Unsigned [2];
    encryption_level Unsigned;
    error_count Unsigned;
    first_error_time Time + first_error_time_hi;
    first_error_ino Unsigned;
    first_error_block Unsigned;
    first_error_func Text;
    first_error_line Unsigned;
    last_error_time Time + last_error_time_hi;
    last_error_ino Unsigned;
    last_error_block Unsigned;
    last_error_func Text;
    last_error_line Unsigned;
    encrypt_algos Unsigned [4];
    encrypt_pw_salt Uuid;
    lpf_ino Unsigned;
    encoding Unsigned;
    orphan_file_inum Unsigned;
};

/// Counts whose upper halves have different names.
static COUNTS: &[Field] = &[
    Field {
        name: "r_blocks_count",
        kind: FieldType::Unsigned,
        low: place!(r_blocks_count_lo),
        high: Some(place!(r_blocks_count_hi)),
        count: 1,
    },
    Field {
        name: "free_blocks_count",
        kind: FieldType::Unsigned,
        low: place!(free_blocks_count_lo),
        high: Some(place!(free_blocks_count_hi)),
        count: 1,
    },
];

/// Fields of the original that cannot be set, with the reasons.
static REFUSED: &[(&str, FieldType)] = &[
    ("inodes_count", LAYOUT),
    ("blocks_count", LAYOUT),
    ("first_data_block", LAYOUT),
    ("log_block_size", LAYOUT),
    ("log_cluster_size", LAYOUT),
    ("blocks_per_group", LAYOUT),
    ("clusters_per_group", LAYOUT),
    ("inodes_per_group", LAYOUT),
    ("rev_level", LAYOUT),
    ("inode_size", LAYOUT),
    ("reserved_gdt_blocks", LAYOUT),
    ("desc_size", LAYOUT),
    ("first_meta_bg", LAYOUT),
    ("feature_compat", FEATURES),
    ("feature_incompat", FEATURES),
    ("feature_ro_compat", FEATURES),
    ("checksum", CHECKSUMS),
    ("checksum_type", CHECKSUMS),
    ("checksum_seed", CHECKSUMS),
];

const LAYOUT: FieldType = FieldType::Refused("it belongs to the layout");
const FEATURES: FieldType =
    FieldType::Refused("tune2fs -O changes features with the structures that belong to them");
const CHECKSUMS: FieldType = FieldType::Refused("checksums are computed with every change");

/// Sets the field of this name. Layout fields, features and checksums are rejected.
pub(crate) fn set(raw: &mut RawSuperblock, name: &str, value: &str) -> Result<(), String> {
    let name = name.strip_prefix("s_").unwrap_or(name);
    let (base, index) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((base, index)) => (base, number(index)),
        None => (name, None),
    };
    let base = base.strip_suffix("_lo").or_else(|| base.strip_suffix("_hi")).unwrap_or(base);
    if let Some((_, FieldType::Refused(why))) = REFUSED.iter().find(|(name, _)| *name == base) {
        return Err(format!("the field {name} is not supported: {why}"));
    }
    let unknown = || format!("invalid field specifier: {name}");
    let found = FIELDS.iter().chain(COUNTS).find(|field| field.name == base || field.name == name);
    let field = found.ok_or_else(unknown)?;
    let index = match (field.count, index) {
        (1, None) => 0,
        (count, Some(index)) if index < count as u64 => index as usize,
        _ => return Err(unknown()),
    };
    let part = match (name.strip_suffix("_lo"), name.strip_suffix("_hi")) {
        _ if field.name == name => FieldPart::Whole,
        (Some(_), _) if field.high.is_some() => FieldPart::Low,
        (_, Some(_)) if field.high.is_some() => FieldPart::High,
        (None, None) => FieldPart::Whole,
        _ => return Err(unknown()),
    };
    field.set(raw.as_mut_bytes(), (name, value), index, part)
}

/// Part of a field selected by a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldPart {
    Whole,
    Low,
    High,
}

impl Field {
    fn set(
        &self,
        raw: &mut [u8],
        (name, value): (&str, &str),
        index: usize,
        part: FieldPart,
    ) -> Result<(), String> {
        let (at, len) = self.low;
        let low = (at + index * len, len);
        let places = match part {
            FieldPart::Whole => [Some(low), self.high],
            FieldPart::Low => [Some(low), None],
            FieldPart::High => [self.high, None],
        };
        let unparsed = || format!("Couldn't parse '{value}' for field {name}.");
        let bytes = match self.kind {
            FieldType::Unsigned => number(value).ok_or_else(unparsed)?,
            FieldType::Signed => match value.strip_prefix('-').map(str::parse::<i16>) {
                Some(Ok(negative)) => negative.wrapping_neg().cast_unsigned().into(),
                Some(Err(_)) => return Err(unparsed()),
                None => number(value).ok_or_else(unparsed)?,
            },
            FieldType::Time if part == FieldPart::High => number(value).ok_or_else(unparsed)?,
            // The superblock stores 40 bits of a time.
            FieldType::Time => {
                parse_time(value).map_err(|_| unparsed())?.cast_unsigned() & ((1 << 40) - 1)
            }
            FieldType::Hash => {
                let found = (0_u64..).zip(HASHES).find(|(_, hash)| *hash == value);
                let hash = found.map(|(hash, _)| hash).or_else(|| number(value));
                hash.ok_or_else(|| format!("Invalid hash algorithm: {value}"))?
            }
            FieldType::Text | FieldType::Uuid => {
                return set_bytes(&mut raw[at..at + len], self.kind, name, value);
            }
            FieldType::Refused(why) => {
                return Err(format!("the field {name} is not supported: {why}"));
            }
        };
        let total = places.iter().flatten().map(|(_, len)| len * 8).sum::<usize>() as u32;
        let most = 1_u64.checked_shl(total).map_or(u64::MAX, |end| end - 1);
        if bytes > most && self.kind != FieldType::Time {
            return Err(format!("Value '{value}' exceeds field {name} maximum {most}."));
        }
        let mut rest = bytes;
        for (at, len) in places.into_iter().flatten() {
            raw[at..at + len].copy_from_slice(&rest.to_le_bytes()[..len]);
            rest = rest.checked_shr(len as u32 * 8).unwrap_or_default();
        }
        Ok(())
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            FieldType::Unsigned => "unsigned integer",
            FieldType::Signed => "integer",
            FieldType::Time => "date/time",
            FieldType::Text => "string",
            FieldType::Uuid => "UUID",
            FieldType::Hash => "hash algorithm",
            FieldType::Refused(_) => "unknown",
        }
    }
}

fn set_bytes(field: &mut [u8], kind: FieldType, name: &str, value: &str) -> Result<(), String> {
    if kind == FieldType::Uuid {
        let uuid = match value {
            "null" | "clear" => [0; 16],
            "random" | "time" => crate::making::random_uuid(),
            _ => uuid::Uuid::try_parse(value)
                .map_err(|_| format!("Invalid UUID format: {value}"))?
                .into_bytes(),
        };
        field.copy_from_slice(&uuid);
        return Ok(());
    }
    if value.len() > field.len() {
        return Err(format!("Error maximum size for {name} is {}.", field.len()));
    }
    field.fill(0);
    field[..value.len()].copy_from_slice(value.as_bytes());
    Ok(())
}

/// Returns a line for each settable field in the format of the original.
pub(crate) fn list() -> String {
    let mut lines = String::new();
    for field in COUNTS.iter().chain(FIELDS) {
        let name = match field {
            Field { kind: FieldType::Unsigned, high: Some(_), .. } => {
                format!("{}[_hi|_lo]", field.name)
            }
            Field { count: 1, .. } => field.name.to_owned(),
            Field { count, .. } => format!("{}[{count}]", field.name),
        };
        let _ = writeln!(lines, "\t{name:25}\t{}", field.kind_name());
    }
    lines
}

/// Stores the lower 40 bits of a time.
pub(crate) fn set_time(low: &mut U32, high: &mut u8, seconds: i64) {
    *low = (seconds as u32).into();
    *high = (seconds >> 32) as u8;
}

/// Parses a number in decimal, hexadecimal (`0x`) or octal (`0`).
pub(crate) fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Parses a time: `now`, `@` and seconds since 1970, hexadecimal seconds after `0x`, or a UTC date `YYYYMMDD`,
/// optionally followed by `HH`, `HHMM` or `HHMMSS`. Numbers too short for a date are seconds, and so are zeros alone,
/// which genimage uses for "none".
pub(crate) fn parse_time(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a time: write now, @SECONDS or YYYYMMDDHHMMSS");
    if text == "now" {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        return Ok(now.map_or(0, |since| since.as_secs().cast_signed()));
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = number(seconds).and_then(|n| i64::try_from(n).ok());
        return seconds.ok_or_else(wrong);
    }
    if text.starts_with("0x") {
        return number(text).and_then(|n| i64::try_from(n).ok()).ok_or_else(wrong);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.is_empty() {
        return Err(wrong());
    }
    let is_none = text.bytes().all(|byte| byte == b'0');
    if is_none || !matches!(text.len(), 8 | 10 | 12 | 14) {
        return text.parse().map_err(|_| wrong());
    }
    let part =
        |at: usize, len: usize| text.get(at..at + len).map_or(Some(0), |t| t.parse::<i16>().ok());
    let date = || {
        let small = |at| part(at, 2).and_then(|n| i8::try_from(n).ok());
        let date =
            DateTime::new(part(0, 4)?, small(4)?, small(6)?, small(8)?, small(10)?, small(12)?, 0)
                .ok()?;
        Offset::UTC.to_timestamp(date).ok()
    };
    date().map(jiff::Timestamp::as_second).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        assert_eq!(parse_time("@1600000000"), Ok(1_600_000_000));
        assert_eq!(parse_time("20200913122640"), Ok(1_600_000_000));
        assert_eq!(parse_time("20200913"), Ok(1_599_955_200));
        assert_eq!(parse_time("00000000"), Ok(0));
        assert_eq!(parse_time("0x65000000"), Ok(0x6500_0000));
        for wrong in ["", "@", "yesterday", "20201399", "-5"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_have_their_base_before_them() {
        assert_eq!(
            ["17", "0x11", "021", "0", "08", "x"].map(number),
            [Some(17), Some(17), Some(17), Some(0), None, None]
        );
    }

    #[test]
    fn fields_are_set_by_name() {
        let mut raw = RawSuperblock::zeroed();
        set(&mut raw, "volume_name", "root").unwrap();
        set(&mut raw, "max_mnt_count", "-1").unwrap();
        set(&mut raw, "mkfs_time", "@4294967296").unwrap();
        assert_eq!(&raw.volume_name[..5], b"root\0");
        assert_eq!(raw.max_mnt_count, 0xffff);
        assert_eq!((raw.mkfs_time.get(), raw.mkfs_time_hi), (0, 1));
        assert!(set(&mut raw, "blocks_count", "5").unwrap_err().contains("blocks_count"));
        assert!(set(&mut raw, "errors", "70000").is_err());
        assert!(set(&mut raw, "volume_name", "seventeen letters").is_err());
        set(&mut raw, "s_jnl_blocks[16]", "0x12345678").unwrap();
        assert_eq!(raw.jnl_blocks[16], 0x1234_5678);
        assert!(set(&mut raw, "jnl_blocks[17]", "1").is_err());
        set(&mut raw, "r_blocks_count", "0x100000002").unwrap();
        set(&mut raw, "wtime_hi", "3").unwrap();
        assert_eq!((raw.r_blocks_count_hi.get(), raw.wtime_hi), (1, 3));
        set(&mut raw, "def_hash_version", "tea").unwrap();
        assert_eq!(raw.def_hash_version, 2);
        assert!(set(&mut raw, "hash_seed", "junk").unwrap_err().contains("Invalid UUID format"));
        assert!(list().contains("\tbackup_bgs[2]            \tunsigned integer\n"));
    }
}
