//! `e2fsck`, and `fsck.ext2`, `fsck.ext3` and `fsck.ext4`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskwright::{Format, ImageInfo, ImageOptions, ImageState, SuperblockPlace};

use crate::completion::Completion;
use crate::dumpe2fs;
use crate::failure::{Ended, Failure, Statuses};
use crate::invoked::{Invoked, say};
use crate::journal_device;
use crate::lists;
use crate::repairing::{May, Repaired, repair};
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

/// Exit statuses of e2fsck(8).
const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const CANCELLED: u8 = 32;
const STATUSES: Statuses = Statuses { usage: 16, failed: 8 };

/// Policy for repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairPolicy {
    /// No policy was given.
    Ask,
    /// `-p`: safe repairs only.
    Preen,
    /// `-y`.
    Yes,
    /// `-n`.
    No,
}

#[derive(Debug)]
struct Args {
    image: ImageTarget,
    answer: RepairPolicy,
    is_forced: bool,
    only_journal: bool,
    undo: Option<PathBuf>,
    /// `-b` and `-B`.
    superblock: Option<u64>,
    block_bytes: Option<u32>,
    /// Descriptor for progress lines.
    completion: Option<i32>,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let Some(mut args) = read(arguments)? else {
        return Ok(invoked.version());
    };
    let undo = args.undo.take().filter(|_| args.may() != May::Look);
    if let Some(undo) = &undo {
        args.image.begin_undo(undo, STATUSES)?;
    }
    let ended = check(&args);
    args.image.finish_undo(undo.as_deref(), STATUSES)?;
    ended
}

fn check(args: &Args) -> Ended {
    let name = args.image.path.display();
    let completion = args.completion()?;
    let mut status = 0;
    let mut found = look(args)?;
    if found.as_ref().is_some_and(|info| info.needs_recovery) && args.answer != RepairPolicy::No {
        say(format_args!("{name}: recovering journal"));
        let before = counts(&args.image);
        // The repair handles a journal that cannot be replayed.
        let is_replayed = args.image.open().recover(&args.image.path).is_ok();
        // e2fsck counts the replay as a repair only if it then corrects the counts in the superblock.
        if is_replayed && counts(&args.image) != before {
            status |= CORRECTED;
        }
        found = look(args)?.or(found);
    }
    if let Some(info) = &found {
        let is_clean = info.state == ImageState::Clean && !info.needs_recovery;
        let is_forced = args.is_forced || args.superblock.is_some();
        if args.only_journal || (is_clean && !is_forced) {
            say(format_args!("{name}: {}", figures("clean", info)));
            // e2fsck counts a replayed journal as a repair only if it checks the whole image.
            return Ok(0);
        }
    }
    let repaired = repair(&args.image.path, &args.open(), args.may(), completion.as_ref());
    Ok(status | tell(args, &repaired.map_err(|e| STATUSES.of(&e))?, found)?)
}

/// Returns the free block and inode counts of the superblock as stored.
fn counts(image: &ImageTarget) -> Option<(u64, u32)> {
    let raw = dumpe2fs::superblock(image).ok()?.raw;
    let blocks = u64::from(raw.free_blocks_count_hi.get()) << 32;
    Some((blocks | u64::from(raw.free_blocks_count_lo.get()), raw.free_inodes_count.get()))
}

/// Returns the properties of the image, or `None` if it cannot be opened without recovery.
fn look(args: &Args) -> Result<Option<ImageInfo>, Failure> {
    let open = args.image.open().norecovery(true);
    match open.info(&args.image.path) {
        Ok(info) if info.format() == Format::Xfs => {
            let name = args.image.path.display();
            Err(STATUSES.failed(format_args!("{name} contains XFS; use xfs_repair")))
        }
        Ok(info) => Ok(Some(info)),
        Err(e) if e.outcome() == diskwright::Outcome::Io => Err(STATUSES.of(&e)),
        Err(_) => Ok(None),
    }
}

fn figures(state: &str, info: &ImageInfo) -> String {
    let used = |all: u64, free: u64| all.saturating_sub(free);
    format!(
        "{state}, {}/{} files, {}/{} blocks",
        used(info.inodes, info.inodes_free),
        info.inodes,
        used(info.blocks, info.blocks_free),
        info.blocks
    )
}

/// Prints the result and returns the exit status. `found` are the properties of the image before.
fn tell(args: &Args, repaired: &Repaired, found: Option<ImageInfo>) -> Ended {
    let name = args.image.path.display();
    if repaired.is_interrupted {
        say(format_args!("{name}: interrupted"));
        return Ok(CANCELLED);
    }
    if repaired.is_changed {
        say(format_args!("{name}: ***** FILE SYSTEM WAS MODIFIED *****"));
    }
    if let Some(error) = &repaired.device_error {
        say(format_args!("{name}: the check is incomplete: {error}"));
        return Ok(STATUSES.failed | if repaired.is_changed { CORRECTED } else { 0 });
    }
    if repaired.left > 0 {
        let next = match args.answer {
            RepairPolicy::Preen => "UNEXPECTED INCONSISTENCY; run e2fsck without -p or -a, with -y",
            RepairPolicy::Ask => "nothing was changed; -p repairs what is safe, -y everything",
            RepairPolicy::No | RepairPolicy::Yes => {
                "********** WARNING: Filesystem still has errors **********"
            }
        };
        say(format_args!("{name}: {next}"));
        return Ok(UNCORRECTED);
    }
    let info = if repaired.is_changed { look(args)? } else { found };
    if let Some(info) = info {
        say(format_args!(
            "{name}: {}",
            figures(if repaired.is_changed { "repaired" } else { "clean" }, &info)
        ));
    }
    Ok(if repaired.is_changed { CORRECTED } else { 0 })
}

impl Args {
    fn may(&self) -> May {
        match self.answer {
            RepairPolicy::Ask | RepairPolicy::No => May::Look,
            RepairPolicy::Preen => May::MendHarmless,
            RepairPolicy::Yes => May::Mend,
        }
    }
}

/// Parses the arguments. Returns `None` if only the version was requested.
fn read(arguments: Vec<OsString>) -> Result<Option<Args>, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::E2FSCK);
    let (mut image, mut journal) = (None, None);
    let mut args = Args {
        image: ImageTarget::default(),
        answer: RepairPolicy::Ask,
        is_forced: false,
        only_journal: false,
        undo: None,
        superblock: None,
        block_bytes: None,
        completion: None,
    };
    while let Some(word) = words.next()? {
        let letter = match word {
            Word::Operand(path) => {
                words.only(&mut image, path)?;
                continue;
            }
            Word::Option(letter) => letter,
        };
        match letter {
            'p' | 'a' => args.answer_by(RepairPolicy::Preen)?,
            'y' => args.answer_by(RepairPolicy::Yes)?,
            'n' => args.answer_by(RepairPolicy::No)?,
            'f' => args.is_forced = true,
            'z' => args.undo = Some(words.path()?),
            'E' => args.extended(&words.text()?)?,
            'V' => return Ok(None),
            'b' => args.superblock = Some(words.parsed()?),
            'B' => args.block_bytes = Some(words.parsed()?),
            'C' => args.completion = Some(words.parsed()?),
            // Repaired directories always have indexes, and the messages are always printed.
            'D' | 'v' | 'd' | 't' | 'F' | 'r' | 's' => {}
            'c' | 'k' | 'l' | 'L' => return Err(words.refused("an image has no bad blocks")),
            'j' => journal = Some(journal_device::path(&words.text()?)),
            _ => return Err(words.unknown()),
        }
    }
    args.image = words.target(image)?;
    exists(&args.image.path)?;
    // The option has no effect on an image that contains its journal, as in the original.
    journal = journal.filter(|_| journal_device::is_external(&args.image));
    args.image.journal = journal.or_else(|| journal_device::find(&args.image));
    Ok(Some(args))
}

fn exists(image: &Path) -> Result<(), Failure> {
    let found = std::fs::metadata(image);
    found.map(drop).map_err(|e| STATUSES.failed(format_args!("{}: {e}", image.display())))
}

impl Args {
    /// Returns how to open the image: with the superblock copy of `-b` and the block size of `-B`.
    fn open(&self) -> ImageOptions {
        let mut open = self.image.open();
        let block_bytes = self.block_bytes;
        open.superblock = self.superblock.map(|block| SuperblockPlace { block, block_bytes });
        open
    }

    /// Opens the descriptor of `-C`.
    fn completion(&self) -> Result<Option<Completion>, Failure> {
        let Some(number) = self.completion else { return Ok(None) };
        Completion::to_descriptor(number, &self.image.path).map_err(|e| {
            STATUSES.failed(format_args!("-C {number}: the descriptor cannot be written to: {e}"))
        })
    }

    fn answer_by(&mut self, answer: RepairPolicy) -> Result<(), Failure> {
        if self.answer != RepairPolicy::Ask && self.answer != answer {
            return Err(STATUSES.usage("only one of -p (or -a), -n and -y may be given"));
        }
        self.answer = answer;
        Ok(())
    }

    fn extended(&mut self, list: &str) -> Result<(), Failure> {
        for item in lists::items(list, 'E', STATUSES) {
            match item.name {
                "journal_only" => self.only_journal = true,
                "discard"
                | "nodiscard"
                | "readahead_kb"
                | "no_optimize_extents"
                | "optimize_extents"
                | "inode_count_fullmap"
                | "no_inode_count_fullmap"
                | "fixes_only"
                | "fragcheck"
                | "ea_ver"
                | "no_journal"
                | "expand_extra_isize" => drop(item.value()),
                "bmap2extent" | "unshare_blocks" | "check_encoding" => {
                    return Err(item.refused("it is not a repair"));
                }
                _ => return Err(item.unknown()),
            }
        }
        Ok(())
    }
}
