//! Device tables of genext2fs and Buildroot's makedevs: device nodes, which cannot be created without root, and owners
//! and permissions of existing files.
//!
//! A line is `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, with `-` for fields that do not apply. Types: `f`
//! and `F` are regular files, which must exist or are optional; `d` is a directory, which is created if it is missing;
//! `r` is an existing directory with everything below; `c`, `b`, `p` and `s` create a character or block device, a pipe
//! and a socket. The mode -1 leaves permissions unchanged. With a COUNT, that many nodes are created: NAME followed by
//! START, START + 1, …, with minor numbers MINOR, MINOR + INC, …. A line `|xattr CAPABILITIES` sets the capabilities of
//! the files of the preceding line.

use std::path::Path;

use crate::rule_file::capability::FileCapabilities;
use crate::rule_file::fault::{RuleFault, text};
use crate::rule_file::lines::{RuleFile, fields, id, number, path, permissions};
use crate::rule_file::names::IdNames;
use crate::{EntryKind, SourceError};

/// Maximum number of nodes created by a table.
const NODES_MAX: usize = 1 << 20;

/// Expected value of the fourth and following fields.
const COUNT_EXPECTED: &str = "a number, or -";

/// A parsed table.
#[derive(Clone, Debug, Default)]
pub struct DeviceTable {
    pub(crate) rows: Vec<Row>,
}

/// One file of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// In the form of `Entry::path`.
    pub(crate) path: Vec<u8>,
    pub(crate) node: RowSubject,
    /// `None` leaves them unchanged.
    pub(crate) permissions: Option<u16>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) capabilities: Option<FileCapabilities>,
    pub(crate) line: usize,
}

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowSubject {
    File,
    OptionalFile,
    Directory,
    Recursive,
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
    Socket,
}

impl RowSubject {
    /// Returns the type of the entry to create if it is missing. `None` if it is not created.
    pub(crate) fn kind(self) -> Option<EntryKind> {
        Some(match self {
            Self::File | Self::OptionalFile | Self::Recursive => return None,
            Self::Directory => EntryKind::Directory,
            Self::CharDevice { major, minor } => EntryKind::CharDevice { major, minor },
            Self::BlockDevice { major, minor } => EntryKind::BlockDevice { major, minor },
            Self::Fifo => EntryKind::Fifo,
            Self::Socket => EntryKind::Socket,
        })
    }

    /// Returns the name of the type for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File | Self::OptionalFile => "regular file",
            Self::Directory | Self::Recursive => "directory",
            Self::CharDevice { .. } => "character device",
            Self::BlockDevice { .. } => "block device",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
        }
    }
}

impl DeviceTable {
    /// Reads a table. User and group names are looked up in the tree `root`.
    ///
    /// # Errors
    /// If it cannot be read, or a line is malformed.
    pub(crate) fn read(file: &Path, root: Option<&Path>) -> Result<Self, SourceError> {
        Self::of(&RuleFile::read(file)?, &IdNames::of_root(root)?)
    }

    /// Parses bytes that were read from `name`.
    ///
    /// # Errors
    /// Returns the errors of `Self::read`.
    pub fn parse(name: &Path, bytes: &[u8]) -> Result<Self, SourceError> {
        let file = RuleFile { name: name.to_owned(), bytes: bytes.to_vec() };
        Self::of(&file, &IdNames::default())
    }

    fn of(file: &RuleFile, names: &IdNames) -> Result<Self, SourceError> {
        let mut table = Self::default();
        // Start of the rows of the last line, for a line with capabilities.
        let mut last = 0;
        for (line, bytes) in file.lines() {
            let fault = |fault| file.fault(line, fault);
            if let Some(rest) = bytes.strip_prefix(b"|xattr") {
                capabilities(rest, &mut table.rows[last..]).map_err(fault)?;
                continue;
            }
            last = table.rows.len();
            table.add(bytes, line, names).map_err(fault)?;
        }
        let fault = RuleFault::expected("capabilities", "all or none effective", b"");
        let bad = |row: &&Row| row.capabilities.is_some_and(|found| !found.is_whole());
        match table.rows.iter().find(bad) {
            Some(row) => Err(file.fault(row.line, fault)),
            None => Ok(table),
        }
    }

    fn add(&mut self, bytes: &[u8], line: usize, names: &IdNames) -> Result<(), RuleFault> {
        let fields = fields(bytes);
        let ([name, kind, mode, user, group, numbers @ ..], true) =
            (&fields[..], fields.len() <= 10)
        else {
            let expected = "NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT";
            return Err(RuleFault::expected("line", expected, bytes));
        };
        let mut read = [0_u32; 5];
        let parts = ["major number", "minor number", "start", "increment", "count"];
        for (at, field) in numbers.iter().enumerate() {
            if *field != b"-" {
                read[at] = number(field, parts[at], COUNT_EXPECTED)?;
            }
        }
        let [major, minor, start, increment, count] = read;
        let node = node(kind, major, minor)?;
        let row = Row {
            path: path(name)?,
            node,
            permissions: if *mode == b"-1" { None } else { Some(permissions(mode)?) },
            uid: id(user, "uid").or_else(|fault| named(user, fault, |name| names.user(name)))?,
            gid: id(group, "gid").or_else(|fault| named(group, fault, |name| names.group(name)))?,
            capabilities: None,
            line,
        };
        if row.permissions.is_none() && node.kind().is_some() {
            return Err(RuleFault::expected(
                "mode",
                "permissions, which are needed if the file must be created",
                mode,
            ));
        }
        if count == 0 {
            self.rows.push(row);
            return Ok(());
        }
        if self.rows.len().saturating_add(count as usize) > NODES_MAX {
            let limit = NODES_MAX as u64;
            return Err(RuleFault::TooLarge { what: "the number of nodes", limit });
        }
        self.add_batch(&row, (start, increment, count))
    }

    /// Adds `count` numbered rows.
    fn add_batch(&mut self, row: &Row, of: (u32, u32, u32)) -> Result<(), RuleFault> {
        let (start, increment, count) = of;
        for index in 0..count {
            let nth = start.checked_add(index);
            let step = index.checked_mul(increment);
            let (Some(nth), Some(step)) = (nth, step) else {
                let found = count.to_string();
                return Err(RuleFault::expected(
                    "count",
                    "numbers below 4294967296",
                    found.as_bytes(),
                ));
            };
            let plus = |minor: u32| {
                minor.checked_add(step).ok_or_else(|| {
                    let found = minor.to_string();
                    RuleFault::expected(
                        "minor number",
                        "numbers below 4294967296",
                        found.as_bytes(),
                    )
                })
            };
            let node = match row.node {
                RowSubject::CharDevice { major, minor } => {
                    RowSubject::CharDevice { major, minor: plus(minor)? }
                }
                RowSubject::BlockDevice { major, minor } => {
                    RowSubject::BlockDevice { major, minor: plus(minor)? }
                }
                node => node,
            };
            let mut path = row.path.clone();
            path.extend_from_slice(nth.to_string().as_bytes());
            self.rows.push(Row { path, node, ..row.clone() });
        }
        Ok(())
    }
}

fn node(kind: &[u8], major: u32, minor: u32) -> Result<RowSubject, RuleFault> {
    Ok(match kind {
        b"f" => RowSubject::File,
        b"F" => RowSubject::OptionalFile,
        b"d" => RowSubject::Directory,
        b"r" => RowSubject::Recursive,
        b"c" => RowSubject::CharDevice { major, minor },
        b"b" => RowSubject::BlockDevice { major, minor },
        b"p" => RowSubject::Fifo,
        b"s" => RowSubject::Socket,
        _ => return Err(RuleFault::expected("type", "one of f F d r c b p s", kind)),
    })
}

/// Looks up a name, unless the field begins like a number.
fn named(
    field: &[u8],
    fault: RuleFault,
    find: impl Fn(&[u8]) -> Result<u32, RuleFault>,
) -> Result<u32, RuleFault> {
    let is_number = field.first().is_none_or(|byte| byte.is_ascii_digit() || *byte == b'-');
    if is_number { Err(fault) } else { find(field) }
}

/// Sets the capabilities of the rows of the preceding line.
fn capabilities(bytes: &[u8], rows: &mut [Row]) -> Result<(), RuleFault> {
    let is_file = |row: &Row| matches!(row.node, RowSubject::File | RowSubject::OptionalFile);
    if rows.is_empty() || !rows.iter().all(is_file) {
        let expected = "after the line of a regular file";
        return Err(RuleFault::expected("|xattr", expected, bytes));
    }
    let bad = || RuleFault::expected("capabilities", "such as cap_net_raw+ep", bytes);
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
    let found = FileCapabilities::parse(text).map_err(|problem| RuleFault::Expression {
        expression: self::text(bytes.trim_ascii()),
        problem,
    })?;
    for row in rows {
        row.capabilities = Some(row.capabilities.unwrap_or_default().and(found));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Vec<Row>, String> {
        let table = DeviceTable::parse(Path::new("table"), text.as_bytes());
        table.map(|table| table.rows).map_err(|e| e.to_string())
    }

    #[test]
    fn rows_are_counted() {
        let rows = table(
            "# name type mode uid gid major minor start inc count\n\
             /dev d 755 0 0 - - - - -\n\
             /dev/hda b 640 root 6 3 0 0 0 -\n\
             /dev/hda b 640 0 6 3 1 1 2 3\n\
             /bin/ping f -1 0 0\n|xattr cap_net_raw+ep\n|xattr cap_net_admin+ep\n",
        )
        .unwrap();
        let paths: Vec<_> = rows.iter().map(|row| String::from_utf8_lossy(&row.path)).collect();
        assert_eq!(paths, ["dev", "dev/hda", "dev/hda1", "dev/hda2", "dev/hda3", "bin/ping"]);
        assert_eq!(rows[4].node, RowSubject::BlockDevice { major: 3, minor: 5 });
        assert_eq!((rows[2].permissions, rows[2].uid, rows[2].gid), (Some(0o640), 0, 6));
        assert_eq!(rows[5].permissions, None);
        let both = FileCapabilities::parse("cap_net_raw,cap_net_admin+ep").unwrap();
        assert_eq!(rows[5].capabilities, Some(both));
    }

    #[test]
    fn errors_name_line_and_part() {
        let said = |text: &str| table(text).unwrap_err();
        assert!(said("/a c 755 0").contains("line 1: line: expected NAME TYPE"));
        assert!(said("\n/a x 755 0 0").contains("line 2: type: expected one of"));
        assert!(said("/a c 999 0 0 1 1").contains("octal"));
        assert!(said("/a c 644 nobody 0 1 1").contains("user \"nobody\""));
        assert!(said("/a c 644 -1 0 1 1").contains("uid"));
        assert!(said("/../a c 644 0 0 1 1").contains("without .."));
        assert!(said("/a c 644 0 0 1 1 0 1 4000000000").contains("limit"));
        assert!(said("/a c 644 0 0 1 4294967295 0 1 2").contains("minor number"));
        assert!(said("/a c -1 0 0 1 1").contains("must be created"));
        assert!(said("|xattr cap_chown+p").contains("after the line of a regular file"));
        assert!(said("/a f 644 0 0\n|xattr cap_no+p").contains("not a capability"));
        assert!(said("/a f 644 0 0\n|xattr cap_chown+p\n|xattr cap_kill+pe").contains("effective"));
    }
}
