//! Requests about the superblock, and about the session itself.

use std::fmt::Write;

use ext4::format::features::Feature;
use ext4::format::group::{GroupDescriptor, GroupFlags};
use ext4::format::superblock::STATE_VALID;

use super::htree::has_index;
use super::phrases::words;
use super::request::{Request, host_path};
use super::session::DebugSession;
use crate::dumpe2fs;
use crate::failure::{Failure, STATUSES};
use crate::fields;
use crate::invoked::{say, say_all};
use crate::target::ImageTarget;

/// `show_debugfs_params`.
pub(super) fn parameters(session: &mut DebugSession, _: &Request) -> Result<(), Failure> {
    match &session.image {
        Some(image) => {
            let mode = if session.is_writable { "read-write" } else { "read-only" };
            say(format_args!("Open mode: {mode}\nFilesystem in use: {}", image.path.display()));
        }
        None => say(format_args!("Filesystem in use: --none--")),
    }
    Ok(())
}

/// `open [-w] IMAGE`.
pub(super) fn open(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("wcDfie", "bsdz")?;
    let &[image] = &*rest else { return Err(request.wrong_words()) };
    if let Some(open) = &session.image {
        let open = open.path.display();
        return Err(
            request.failed(format_args!("Filesystem {open} is still open.  Close it first."))
        );
    }
    if let Some((letter, _)) = options.iter().find(|(letter, _)| "fiebsdz".contains(*letter)) {
        return Err(request.refused(&format!("-{letter}"), "use -w to open for writing"));
    }
    let is_writable = options.iter().any(|(letter, _)| *letter == 'w');
    let image = ImageTarget::parse(host_path(image).into(), STATUSES)?;
    session.open(image, is_writable)
}

/// `close`.
pub(super) fn close(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    if session.image.is_none() {
        return Err(request.failed("Filesystem not open"));
    }
    session.close()
}

/// `feature`: shows the features.
pub(super) fn features(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    if !request.words.is_empty() {
        session.check_writable(request)?;
        let why = "tune2fs -O changes features with the structures that belong to them";
        return Err(request.refused("a change", why));
    }
    let features = session.superblock()?.features;
    say(format_args!("Filesystem features: {}", features.names().join(" ")));
    Ok(())
}

/// `supported_features [FEATURE]`.
pub(super) fn supported_features(_: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let given = request.between(0, 1)?;
    match given.first() {
        Some(word) => {
            let name = request.text(word)?;
            match Feature::from_name(name) {
                Some(_) => say(format_args!("Supported feature: {name}")),
                None => return Err(request.failed(format_args!("Unknown feature: {name}"))),
            }
        }
        None => say(format_args!(
            "Supported features: {}",
            Feature::names().collect::<Vec<_>>().join(" ")
        )),
    }
    Ok(())
}

/// `dirty`: marks the file system as not cleanly closed.
pub(super) fn dirty(session: &mut DebugSession, _: &Request) -> Result<(), Failure> {
    session.change_superblock(&mut |raw| {
        raw.state = (raw.state.get() & !STATE_VALID).into();
        Ok(())
    })
}

/// `stats [-h]`: shows the superblock, and without `-h` also the groups.
pub(super) fn stats(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("h", "")?;
    if !rest.is_empty() {
        return Err(request.wrong_words());
    }
    let superblock = session.superblock()?;
    dumpe2fs::show(&superblock);
    let device = session.device()?;
    let geometry = *session.fs()?.geometry();
    let (mut out, mut dirs) = (String::new(), 0);
    for group in geometry.groups() {
        let (block, offset) = geometry.descriptor_position(group);
        let mut bytes = vec![0; usize::from(geometry.desc_size)];
        let read = device.read_at(geometry.byte_of(block) + offset as u64, &mut bytes);
        read.map_err(|e| request.failed(e))?;
        let desc = GroupDescriptor::parse(&bytes, &superblock, group);
        let desc = desc.map_err(|e| request.failed(words(&e.into())))?;
        dirs += desc.used_dirs;
        let _ = writeln!(
            out,
            " Group {group:2}: block bitmap at {}, inode bitmap at {}, inode table at {}",
            desc.block_bitmap, desc.inode_bitmap, desc.inode_table
        );
        let has_checksum = superblock.features.group_csum();
        let count = |number: u32, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let unused = match has_checksum {
            true => format!(", {}", count(desc.itable_unused, "unused inode", "unused inodes")),
            false => String::new(),
        };
        let _ = writeln!(
            out,
            "           {}, {}, {}{unused}",
            count(desc.free_blocks, "free block", "free blocks"),
            count(desc.free_inodes, "free inode", "free inodes"),
            count(desc.used_dirs, "used directory", "used directories")
        );
        if has_checksum {
            let marks = [
                (GroupFlags::INODE_UNINIT, "Inode not init, "),
                (GroupFlags::BLOCK_UNINIT, "Block not init, "),
            ];
            let marks = marks.iter().filter(|(flag, _)| desc.flags.contains(*flag));
            let marks = marks.map(|(_, text)| *text).collect::<String>();
            let checksum = u16::from_le_bytes([bytes[0x1e], bytes[0x1f]]);
            let _ = writeln!(out, "           [{marks}Checksum {checksum:#06x}]");
        }
    }
    say(format_args!("Directories:              {dirs}"));
    if options.is_empty() {
        say_all(&out);
    }
    Ok(())
}

/// `set_current_time TIME`.
pub(super) fn set_time(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [word] = request.exactly()?;
    let text = request.text(word)?;
    let seconds = fields::parse_time(text)
        .map_err(|_| request.failed(format_args!("Couldn't parse argument as a time: {text}")))?;
    session.set_now(seconds)
}

/// `set_super_value FIELD VALUE`, or `-l` for the list of fields.
pub(super) fn set(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    if matches!(&*request.words, [only] if only == b"-l") {
        say(format_args!("Superblock fields supported by the set_super_value command:"));
        say_all(&fields::list());
        return Ok(());
    }
    let [field, value] = request.exactly()?;
    let (field, value) = (request.text(field)?, request.text(value)?);
    if field.trim_start_matches("s_") == "hash_seed" && has_index(session.fs()?) {
        let why = "hash_seed: the indexes of directories depend on it; create the image again with \
                   diskwright convert, or set the seed with mke2fs -E hash_seed";
        return Err(request.failed(why));
    }
    let mut problem = None;
    let changed = session.change_superblock(&mut |raw| {
        fields::set(raw, field, value).map_err(|why| {
            problem = Some(why);
            vfs::Error::Invalid("the field does not accept this value")
        })
    });
    match problem {
        Some(why) => Err(request.failed(why)),
        None => changed,
    }
}
