//! `set_inode_field`: changes inode fields by name.

use ext4::format::inode::{GOOD_OLD_INODE_SIZE, stored_extra_isize};

use super::phrases::words;
use super::request::Request;
use super::session::DebugSession;
use crate::failure::{Failure, STATUSES};
use crate::fields::{self, FieldPart};
use crate::invoked::say;

/// Offset and number of the bytes of a field in an inode.
type FieldBytes = (usize, usize);

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldType {
    Number,
    /// Seconds, with the epoch in the lower two bits of the upper part.
    Time,
    /// A field that this program does not set, and the reason.
    Refused(&'static str),
}

/// Inode field, as the original lists it.
struct Field {
    name: &'static str,
    kind: FieldType,
    low: FieldBytes,
    /// Upper part of the field, if there is one.
    high: Option<FieldBytes>,
}

const fn number(name: &'static str, low: FieldBytes) -> Field {
    Field { name, kind: FieldType::Number, low, high: None }
}

const fn wide(name: &'static str, low: FieldBytes, high: FieldBytes) -> Field {
    Field { name, kind: FieldType::Number, low, high: Some(high) }
}

const fn time(name: &'static str, low: usize, high: usize) -> Field {
    Field { name, kind: FieldType::Time, low: (low, 4), high: Some((high, 4)) }
}

const fn refused(name: &'static str, why: &'static str) -> Field {
    Field { name, kind: FieldType::Refused(why), low: (0, 0), high: None }
}

/// Offset of `i_block`.
const BLOCK: usize = 40;
/// Reason why checksums cannot be set.
const CHECKSUM: &str = "it is computed with every change; \"calc\" is accepted";

/// Fields in the order of the original. Source of the offsets: kernel Documentation/filesystems/ext4/inodes.rst.
const FIELDS: &[Field] = &[
    number("mode", (0, 2)),
    wide("uid", (2, 2), (120, 2)),
    wide("size", (4, 4), (108, 4)),
    time("atime", 8, 140),
    time("ctime", 12, 132),
    time("mtime", 16, 136),
    Field { name: "dtime", kind: FieldType::Time, low: (20, 4), high: None },
    wide("gid", (24, 2), (122, 2)),
    number("links_count", (26, 2)),
    wide("blocks", (28, 4), (116, 2)),
    number("flags", (32, 4)),
    wide("version", (36, 4), (152, 4)),
    number("translator", (36, 4)),
    number("block[IND]", (BLOCK + 48, 4)),
    number("block[DIND]", (BLOCK + 52, 4)),
    number("block[TIND]", (BLOCK + 56, 4)),
    number("generation", (100, 4)),
    wide("file_acl", (104, 4), (118, 2)),
    number("faddr", (112, 4)),
    number("frag", (116, 1)),
    number("fsize", (117, 1)),
    refused("checksum", CHECKSUM),
    refused("author", "its location contains the checksum in Linux"),
    number("extra_isize", (128, 2)),
    number("ctime_extra", (132, 4)),
    number("mtime_extra", (136, 4)),
    number("atime_extra", (140, 4)),
    time("crtime", 144, 148),
    number("crtime_extra", (148, 4)),
    number("projid", (156, 4)),
    refused("bmap", "block[N] sets pointers; use write, punch or fallocate for extents"),
];

/// `set_inode_field FILE FIELD VALUE`, or `-l` for the list of fields.
pub(super) fn set(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    if matches!(&*request.words, [only] if only == b"-l") {
        list();
        return Ok(());
    }
    let [path, field, value] = request.exactly()?;
    let ino = session.ino(path)?;
    let (field, value) = (request.text(field)?, request.text(value)?);
    let fs = session.fs()?;
    let mut slot = fs.inode_slot(ino).map_err(|e| request.failed(words(&e)))?;
    let set = change(&mut slot, field, value).map_err(|why| match why {
        Problem::Value(why) => STATUSES.failed(why),
        Problem::Field(why) => request.failed(why),
    })?;
    if set {
        session.replace_slot(ino, &slot)?;
    }
    Ok(())
}

/// Reason why a field is not set.
enum Problem {
    /// The value is invalid.
    Value(String),
    /// The field cannot be set.
    Field(String),
}

/// Changes a field of an inode. Returns false if there is nothing to change.
fn change(slot: &mut [u8], name: &str, value: &str) -> Result<bool, Problem> {
    let name = name.strip_prefix("i_").unwrap_or(name);
    let unknown = || Problem::Field(format!("invalid field specifier: {name}"));
    if let Some(index) = name.strip_prefix("block[").and_then(|rest| rest.strip_suffix(']'))
        && let Some(index) = fields::number(index)
    {
        // Later blocks have names of their own.
        let index = usize::try_from(index).ok().filter(|index| *index < 12).ok_or_else(unknown)?;
        return store(slot, name, parse_number(name, value)?, ((BLOCK + index * 4, 4), None));
    }
    let (base, part) = match (name.strip_suffix("_lo"), name.strip_suffix("_hi")) {
        (Some(base), _) => (base, FieldPart::Low),
        (_, Some(base)) => (base, FieldPart::High),
        _ => (
            name.split('[').next().filter(|base| *base == "bmap").unwrap_or(name),
            FieldPart::Whole,
        ),
    };
    let field = FIELDS.iter().find(|field| field.name == base).ok_or_else(unknown)?;
    if part != FieldPart::Whole
        && field.high.is_none()
        && !matches!(field.kind, FieldType::Refused(_))
    {
        return Err(unknown());
    }
    match (field.kind, part) {
        (FieldType::Refused(_), _) if base == "checksum" && value == "calc" => Ok(true),
        (FieldType::Refused(why), _) => {
            Err(Problem::Field(format!("the field {name} is not supported: {why}")))
        }
        (_, FieldPart::High) => {
            let high = field.high.unwrap_or_default();
            store(slot, name, parse_number(name, value)?, (high, None))
        }
        (FieldType::Number, part) => {
            let high = field.high.filter(|_| part == FieldPart::Whole);
            store(slot, name, parse_number(name, value)?, (field.low, high))
        }
        (FieldType::Time, part) => {
            let time = fields::parse_time(value).map_err(|_| unparsed(name, value))?;
            set_time(slot, field, time, part == FieldPart::Whole);
            Ok(true)
        }
    }
}

fn unparsed(name: &str, value: &str) -> Problem {
    Problem::Value(format!("Couldn't parse '{value}' for field {name}."))
}

fn parse_number(name: &str, value: &str) -> Result<u64, Problem> {
    fields::number(value).ok_or_else(|| unparsed(name, value))
}

/// Stores a number in a field of one or two parts.
fn store(
    slot: &mut [u8],
    name: &str,
    number: u64,
    (low, high): (FieldBytes, Option<FieldBytes>),
) -> Result<bool, Problem> {
    // If the inode has no upper part (128 bytes), the field is the lower part only.
    let high = high.filter(|(at, len)| at + len <= slot.len());
    let bytes = low.1 + high.map_or(0, |(_, len)| len);
    let most = if bytes >= 8 { u64::MAX } else { (1 << (bytes * 8)) - 1 };
    if number > most {
        return Err(Problem::Value(format!(
            "Value '{number:#x}' exceeds field {name} maximum {most}."
        )));
    }
    let mut rest = number;
    for (at, len) in std::iter::once(low).chain(high) {
        let Some(field) = slot.get_mut(at..at + len) else {
            return Err(Problem::Field(format!(
                "{name}: the inodes of this file system are too small for this field"
            )));
        };
        field.copy_from_slice(&rest.to_le_bytes()[..len]);
        rest = rest.checked_shr(len as u32 * 8).unwrap_or_default();
    }
    Ok(true)
}

/// Stores a time. For a whole field, also stores the epoch bits in the upper part and preserves its nanoseconds.
fn set_time(slot: &mut [u8], field: &Field, time: i64, is_whole: bool) {
    let low = time as i32;
    let (at, len) = field.low;
    if let Some(bytes) = slot.get_mut(at..at + len) {
        bytes.copy_from_slice(&low.to_le_bytes());
    }
    let Some((at, len)) = field.high.filter(|_| is_whole) else { return };
    let end = GOOD_OLD_INODE_SIZE + usize::from(stored_extra_isize(slot));
    if at + len > end {
        return;
    }
    let Some(bytes) = slot.get_mut(at..at + len).and_then(<[u8]>::first_chunk_mut::<4>) else {
        return;
    };
    let epoch = (time - i64::from(low)) >> 32 & 3;
    *bytes = (u32::from_le_bytes(*bytes) & !3 | epoch as u32).to_le_bytes();
}

fn list() {
    say(format_args!("Inode fields supported by the set_inode command:"));
    for field in FIELDS {
        let kind = match field.kind {
            FieldType::Number => "unsigned integer",
            FieldType::Time => "date/time",
            FieldType::Refused(_) => continue,
        };
        let suffix = if field.high.is_some() { "[_hi|_lo]" } else { "" };
        let name = format!("{}{suffix}", field.name);
        if field.name == "block[IND]" {
            say(format_args!("\t{:25}\t{kind}", "block[12]"));
        }
        say(format_args!("\t{name:25}\t{kind}"));
    }
}

#[cfg(test)]
mod tests {
    use ext4::format::inode::Inode;

    use super::*;

    fn set(slot: &mut [u8], name: &str, value: &str) -> Result<(), String> {
        match change(slot, name, value) {
            Ok(_) => Ok(()),
            Err(Problem::Value(why) | Problem::Field(why)) => Err(why),
        }
    }

    #[test]
    fn fields_have_lower_and_upper_parts() {
        let mut slot = vec![0; 256];
        slot[128] = 32;
        for (name, value) in [
            ("i_mode", "0100644"),
            ("uid", "0x30002"),
            ("size_hi", "1"),
            ("mtime_extra", "0xfffffffe"),
        ] {
            set(&mut slot, name, value).unwrap();
        }
        let inode = Inode::from_slot(&slot);
        assert_eq!((inode.mode(), inode.uid(), inode.size()), (0o100_644, 0x3_0002, 1 << 32));
        set(&mut slot, "mtime", "@0x80000000").unwrap();
        assert_eq!(slot[136..140], 0xffff_fffd_u32.to_le_bytes());
        set(&mut slot, "block[TIND]", "7").unwrap();
        assert_eq!(slot[96..100], [7, 0, 0, 0]);
    }

    #[test]
    fn wrong_names_and_values_are_reported() {
        let mut slot = vec![0; 128];
        for (name, value, why) in [
            ("mode", "0x1ffff", "exceeds field mode maximum 65535"),
            ("mode", "010x", "Couldn't parse '010x' for field mode."),
            ("atime", "junk", "Couldn't parse 'junk' for field atime."),
            ("foo", "1", "invalid field specifier: foo"),
            ("block[15]", "1", "invalid field specifier: block[15]"),
            ("mode_hi", "1", "invalid field specifier: mode_hi"),
            ("checksum", "1", "not supported"),
            ("bmap[3]", "1", "not supported"),
            ("crtime_extra", "1", "too small for this field"),
        ] {
            let found = set(&mut slot, name, value).unwrap_err();
            assert!(found.contains(why), "{name}: {found}");
        }
    }
}
