//! Deleted files as JSON.

use std::collections::HashMap;
use std::io::Write;

use serde::Serialize;
use vfs::deleted::{DeletedData, DeletedSource, InodeState};

use super::{DeletedFile, Found, NameOfDeleted};
use crate::text::{self, lossy, not_utf8};
use crate::{Error, Result};

#[derive(Serialize)]
struct Report<'f> {
    format: &'static str,
    block_bytes: u32,
    complete: bool,
    deleted: Vec<FileRecord<'f>>,
    remarks: &'f [String],
}

#[derive(Serialize)]
struct FileRecord<'f> {
    inode: Option<u64>,
    certainty: &'static str,
    reason: &'f str,
    #[serde(rename = "type")]
    file_type: Option<&'static str>,
    names: Vec<NameRecord>,
    #[serde(flatten)]
    own: Option<InodeRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extracted: Option<&'f str>,
}

#[derive(Serialize)]
struct InodeRecord {
    generation: u32,
    state: &'static str,
    mode: Option<String>,
    uid: u32,
    gid: u32,
    size: Option<u64>,
    atime: String,
    mtime: String,
    ctime: String,
    crtime: Option<String>,
    dtime: Option<String>,
    source: SourceRecord,
    blocks: BlocksRecord,
    inline_bytes: Option<usize>,
    extents: Vec<ExtentRecord>,
}

#[derive(Serialize)]
struct BlocksRecord {
    free: u64,
    in_use: u64,
    reused: u64,
    lost_maps: u64,
}

#[derive(Serialize)]
struct ExtentRecord {
    file_block: u64,
    block: u64,
    blocks: u64,
    unwritten: bool,
}

#[derive(Serialize)]
struct NameRecord {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    parent: Option<u64>,
    source: SourceRecord,
}

#[derive(Serialize)]
struct SourceRecord {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<u64>,
}

/// Writes all deleted files as one JSON object and a newline.
///
/// # Errors
/// If the output cannot be written.
pub fn write_json(found: &Found, out: &mut dyn Write) -> Result<()> {
    write_report(found, &HashMap::new(), out).map_err(Error::Output)
}

/// Like [`write_json`]. `extracted` has the name of each file that was extracted, by its index.
pub(super) fn write_report(
    found: &Found,
    extracted: &HashMap<usize, String>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let files = found.files.iter().enumerate();
    let deleted = files.map(|(at, file)| record(file, extracted.get(&at).map(String::as_str)));
    let report = Report {
        format: found.format,
        block_bytes: found.block_bytes,
        complete: found.is_complete,
        deleted: deleted.collect(),
        remarks: &found.remarks,
    };
    let json = serde_json::to_string(&report)?;
    out.write_all(disk::address::safe_json(json).as_bytes())?;
    out.write_all(b"\n")
}

fn record<'f>(file: &'f DeletedFile, extracted: Option<&'f str>) -> FileRecord<'f> {
    FileRecord {
        inode: file.ino().map(|ino| ino.0),
        certainty: file.certainty.word(),
        reason: &file.reason,
        file_type: file.file_type().map(text::type_word),
        names: file.names.iter().map(name).collect(),
        own: own(file),
        extracted,
    }
}

fn own(file: &DeletedFile) -> Option<InodeRecord> {
    let inode = file.inode.as_ref()?;
    let blocks = file.blocks;
    let extents = inode.data.runs().iter().map(|run| ExtentRecord {
        file_block: run.first,
        block: run.start,
        blocks: run.len,
        unwritten: run.unwritten,
    });
    Some(InodeRecord {
        generation: inode.generation,
        state: match inode.state {
            InodeState::Free => "free",
            InodeState::Orphan => "orphan",
            InodeState::Reused => "reused",
        },
        mode: inode.permissions.map(|permissions| format!("{permissions:04o}")),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        atime: text::rfc3339(inode.atime),
        mtime: text::rfc3339(inode.mtime),
        ctime: text::rfc3339(inode.ctime),
        crtime: inode.crtime.map(text::rfc3339),
        dtime: inode.dtime.map(text::rfc3339),
        source: source(&inode.source),
        blocks: BlocksRecord {
            free: blocks.free,
            in_use: blocks.in_use,
            reused: blocks.reused,
            lost_maps: blocks.lost_maps,
        },
        inline_bytes: match &inode.data {
            DeletedData::Inline(bytes) => Some(bytes.len()),
            DeletedData::Lost | DeletedData::Mapped { .. } => None,
        },
        extents: extents.collect(),
    })
}

fn name(name: &NameOfDeleted) -> NameRecord {
    NameRecord {
        name: lossy(&name.entry.name),
        name_bytes: not_utf8(&name.entry.name),
        path: name.path.as_deref().map(lossy),
        path_bytes: name.path.as_deref().and_then(not_utf8),
        parent: name.entry.dir.map(|dir| dir.0),
        source: source(&name.entry.source),
    }
}

fn source(source: &DeletedSource) -> SourceRecord {
    let (kind, block, transaction) = match *source {
        DeletedSource::Inodes => ("inode table", None, None),
        DeletedSource::Log { block, sequence } => ("journal", Some(block), Some(sequence)),
        DeletedSource::Slack { block } => ("directory slack", block, None),
        DeletedSource::Free { block } => ("free block", Some(block), None),
    };
    SourceRecord { kind, block, transaction }
}
