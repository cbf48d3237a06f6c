//! Fields of the superblock by the names that debugfs has for them, and times as it writes them.

use std::time::{SystemTime, UNIX_EPOCH};

use ext4::format::superblock::RawSuperblock;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use zerocopy::little_endian::{U16, U32, U64};

/// A field that may be set.
enum Field<'a> {
    Small(&'a mut U16),
    Number(&'a mut U32),
    Large(&'a mut U64),
    Text(&'a mut [u8]),
    Uuid(&'a mut [u8; 16]),
    Time(&'a mut U32, &'a mut u8),
}

/// Sets the field of this name. What is part of the layout is not there, nor is the seed that all indexes of directories
/// follow from.
pub(crate) fn set(raw: &mut RawSuperblock, name: &str, value: &str) -> Result<(), String> {
    let field = find(raw, name).ok_or_else(|| format!("no field called {name} can be set"))?;
    let wrong = || format!("{name} cannot be {value:?}");
    match field {
        Field::Small(field) => {
            // A count of mounts may be negative.
            let small = number(value).and_then(|n| u16::try_from(n).ok());
            let small = small.or_else(|| value.parse().ok().map(i16::cast_unsigned));
            *field = small.ok_or_else(wrong)?.into();
        }
        Field::Number(field) => {
            let small = number(value).and_then(|n| u32::try_from(n).ok());
            *field = small.ok_or_else(wrong)?.into();
        }
        Field::Large(field) => *field = number(value).ok_or_else(wrong)?.into(),
        Field::Text(field) => {
            if value.len() > field.len() {
                return Err(format!("{name} has at most {} bytes", field.len()));
            }
            field.fill(0);
            field[..value.len()].copy_from_slice(value.as_bytes());
        }
        Field::Uuid(field) => {
            *field = match value {
                "null" | "clear" => [0; 16],
                "random" | "time" => crate::making::random_uuid(),
                _ => uuid::Uuid::try_parse(value).map_err(|_| wrong())?.into_bytes(),
            };
        }
        Field::Time(low, high) => set_time(low, high, parse_time(value)?),
    }
    Ok(())
}

fn find<'a>(raw: &'a mut RawSuperblock, name: &str) -> Option<Field<'a>> {
    Some(match name {
        "mnt_count" => Field::Small(&mut raw.mnt_count),
        "max_mnt_count" => Field::Small(&mut raw.max_mnt_count),
        "state" => Field::Small(&mut raw.state),
        "errors" => Field::Small(&mut raw.errors),
        "minor_rev_level" => Field::Small(&mut raw.minor_rev_level),
        "def_resuid" => Field::Small(&mut raw.def_resuid),
        "def_resgid" => Field::Small(&mut raw.def_resgid),
        "raid_stride" => Field::Small(&mut raw.raid_stride),
        "checkinterval" => Field::Number(&mut raw.checkinterval),
        "creator_os" => Field::Number(&mut raw.creator_os),
        "default_mount_opts" => Field::Number(&mut raw.default_mount_opts),
        "raid_stripe_width" => Field::Number(&mut raw.raid_stripe_width),
        "error_count" => Field::Number(&mut raw.error_count),
        "first_error_ino" => Field::Number(&mut raw.first_error_ino),
        "last_error_ino" => Field::Number(&mut raw.last_error_ino),
        "lpf_ino" => Field::Number(&mut raw.lpf_ino),
        "first_error_block" => Field::Large(&mut raw.first_error_block),
        "last_error_block" => Field::Large(&mut raw.last_error_block),
        "kbytes_written" => Field::Large(&mut raw.kbytes_written),
        "volume_name" => Field::Text(&mut raw.volume_name),
        "last_mounted" => Field::Text(&mut raw.last_mounted),
        "mount_opts" => Field::Text(&mut raw.mount_opts),
        "first_error_func" => Field::Text(&mut raw.first_error_func),
        "last_error_func" => Field::Text(&mut raw.last_error_func),
        "uuid" => Field::Uuid(&mut raw.uuid),
        "journal_uuid" => Field::Uuid(&mut raw.journal_uuid),
        "mkfs_time" => Field::Time(&mut raw.mkfs_time, &mut raw.mkfs_time_hi),
        "mtime" => Field::Time(&mut raw.mtime, &mut raw.mtime_hi),
        "wtime" => Field::Time(&mut raw.wtime, &mut raw.wtime_hi),
        "lastcheck" => Field::Time(&mut raw.lastcheck, &mut raw.lastcheck_hi),
        "first_error_time" => Field::Time(&mut raw.first_error_time, &mut raw.first_error_time_hi),
        "last_error_time" => Field::Time(&mut raw.last_error_time, &mut raw.last_error_time_hi),
        _ => return None,
    })
}

/// Sets a time, of which 40 bits are kept.
pub(crate) fn set_time(low: &mut U32, high: &mut u8, seconds: i64) {
    *low = (seconds as u32).into();
    *high = (seconds >> 32) as u8;
}

/// A number in decimal, or in hexadecimal after `0x`, or in octal after `0`.
pub(crate) fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// `now`, `@` and seconds since 1970, hexadecimal seconds after `0x`, or a date in UTC as `YYYYMMDD`, with `HH`, `HHMM` or `HHMMSS` after it. What is
/// too short for a date is seconds, too, and so are zeros alone, which genimage writes for none.
pub(crate) fn parse_time(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no time: write now, @SECONDS or YYYYMMDDHHMMSS");
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
    }
}
