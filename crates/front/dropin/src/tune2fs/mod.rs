//! `tune2fs` and `e2label`.

mod suboptions;

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::build::FeatureChange;
use diskwright::tune::{Request, tune};
use ext4::format::features::{Compat, Feature, Incompat, RoCompat};
use ext4::format::superblock::RawSuperblock;
use ext4::tune::can_change;

use crate::dumpe2fs;
use crate::failure::{Ended, Failure, STATUSES};
use crate::fields;
use crate::invoked::{Invoked, say};
use crate::journal_device;
use crate::lists;
use crate::mke2fs::{UuidWish, errors_behaviour, features, uuid};
use crate::size;
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

/// Features that mark a state of the image.
const INTERNAL: [Feature; 2] =
    [Feature::Incompat(Incompat::RECOVER), Feature::RoCompat(RoCompat::ORPHAN_PRESENT)];
/// Default journal modes: values of the mount options field.
const JOURNAL_MODES: [(u32, &str); 3] = [
    (0x0020, "journal_data"),
    (0x0040, "journal_data_ordered"),
    (0x0060, "journal_data_writeback"),
];

/// Change of a superblock; the error is the reason for a refusal.
type SuperblockEdit = Box<dyn Fn(&mut RawSuperblock) -> Result<(), &'static str>>;

#[derive(Default)]
struct Args {
    /// Changes of features and others that affect more than the superblock.
    request: Request,
    changes: Vec<SuperblockEdit>,
    shows: bool,
    /// `-j` or `-J`: create a journal. An error if one exists.
    makes_journal: bool,
    /// `-J device`: device of a new journal, or of the one that the image has.
    journal_device: Option<PathBuf>,
    /// `-f`.
    is_forced: bool,
    /// `-z`.
    undo: Option<PathBuf>,
}

impl Args {
    fn add(&mut self, change: impl Fn(&mut RawSuperblock) + 'static) {
        self.try_add(move |raw| {
            change(raw);
            Ok(())
        });
    }

    fn try_add(
        &mut self,
        change: impl Fn(&mut RawSuperblock) -> Result<(), &'static str> + 'static,
    ) {
        self.changes.push(Box::new(change));
    }
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    #[cfg(target_os = "linux")]
    if let Some(ended) = crate::online::tune(&arguments, invoked) {
        return ended;
    }
    let mut words = Words::new(arguments, STATUSES, &supported::TUNE2FS);
    let mut args = Args::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option(letter) => option(&mut args, letter, &mut words)?,
        }
    }
    let mut image = words.target(image)?;
    args.name_journal(&mut image)?;
    if args.changes_nothing() && !args.shows {
        return Err(STATUSES.usage("no action given: add a change, or -l to show the superblock"));
    }
    if !args.changes_nothing() {
        args.check(&image)?;
        let undo = args.undo.as_deref();
        if let Some(undo) = undo {
            image.begin_undo(undo, STATUSES)?;
        }
        let applied = apply(&image, &args.request, &args.changes);
        image.finish_undo(undo, STATUSES)?;
        applied?;
    }
    if args.shows {
        dumpe2fs::show(&dumpe2fs::superblock(&image)?);
    }
    Ok(0)
}

/// Shows or sets the label.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "only Linux handles mounted file systems")
)]
pub(crate) fn label(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    match &*arguments {
        [image] => {
            let image = ImageTarget::parse(image.clone(), STATUSES)?;
            let raw = dumpe2fs::superblock(&image)?.raw;
            say(format_args!("{}", dumpe2fs::text(&raw.volume_name)));
        }
        [image, label] => {
            let name = name::<16>(label.as_encoded_bytes());
            #[cfg(target_os = "linux")]
            if let Some(ended) = crate::online::label(&arguments, &name, invoked) {
                return ended;
            }
            apply(
                &ImageTarget::parse(image.clone(), STATUSES)?,
                &Request::default(),
                &[Box::new(move |raw| {
                    raw.volume_name = name;
                    Ok(())
                })],
            )?;
        }
        _ => return Err(STATUSES.usage("no image given: add its name, and a label to set one")),
    }
    Ok(0)
}

fn apply(
    image: &ImageTarget,
    request: &Request,
    changes: &[SuperblockEdit],
) -> Result<(), Failure> {
    let mut all = |raw: &mut RawSuperblock| changes.iter().try_for_each(|change| change(raw));
    tune(&image.path, &image.open(), request, &mut all).map_err(|e| STATUSES.of(&e))
}

impl Args {
    fn changes_nothing(&self) -> bool {
        self.request == Request::default() && self.changes.is_empty()
    }

    /// Rejects requests that do not apply to the image.
    fn check(&self, image: &ImageTarget) -> Result<(), Failure> {
        if self.request.clears_mmp && !self.is_forced {
            return Err(STATUSES.usage("Error in using clear_mmp. It must be used with -f"));
        }
        let journal = Feature::Compat(Compat::HAS_JOURNAL);
        if !self.request.features.contains(&(journal, true)) {
            return Ok(());
        }
        let has_journal = dumpe2fs::superblock(image)?.features.compat(Compat::HAS_JOURNAL);
        if has_journal && self.makes_journal {
            return Err(STATUSES.failed("The filesystem already has a journal."));
        }
        Ok(())
    }

    /// Names the device of a new journal, or of the journal that the image has.
    fn name_journal(&mut self, image: &mut ImageTarget) -> Result<(), Failure> {
        if self.request == Request::default() {
            return Ok(());
        }
        let sb = dumpe2fs::superblock(image)?;
        let journal = Feature::Compat(Compat::HAS_JOURNAL);
        if sb.has_external_journal() {
            image.journal = self.journal_device.take().or_else(|| journal_device::find(image));
            if image.journal.is_some() && self.makes_journal {
                // `-J device` names the journal that the image has.
                self.makes_journal = false;
                self.request.features.retain(|change| *change != (journal, true));
            }
            let is_removed = self.request.features.contains(&(journal, false));
            self.request.forgets_journal = image.journal.is_none() && is_removed && self.is_forced;
        } else if let Some(device) = self.journal_device.take() {
            if self.request.journal.bytes.is_some() {
                return Err(STATUSES.usage("-J size and -J device exclude each other"));
            }
            self.request.journal_device = Some(diskwright::device_number(&device));
            image.journal = Some(device);
        }
        Ok(())
    }

    /// Requests a journal.
    fn add_journal(&mut self) {
        self.request.features.push((Feature::Compat(Compat::HAS_JOURNAL), true));
        self.makes_journal = true;
    }
}

fn option(args: &mut Args, letter: char, words: &mut Words) -> Result<(), Failure> {
    match letter {
        'l' => args.shows = true,
        'L' => {
            let name = name::<16>(&words.bytes()?);
            args.add(move |raw| raw.volume_name = name);
        }
        'M' => {
            let place = name::<64>(&words.bytes()?);
            args.add(move |raw| raw.last_mounted = place);
        }
        'c' => {
            let count: i16 = words.by(mount_count)?;
            // 0 means never, like negative numbers.
            let count = if count == 0 { -1 } else { count };
            args.add(move |raw| raw.max_mnt_count = count.cast_unsigned().into());
        }
        'C' => {
            let count: u16 = words.parsed()?;
            args.add(move |raw| raw.mnt_count = count.into());
        }
        'i' => {
            let seconds = words.by(interval)?;
            args.add(move |raw| raw.checkinterval = seconds.into());
        }
        'T' => {
            let time = words.by(fields::parse_time)?;
            args.add(move |raw| fields::set_time(&mut raw.lastcheck, &mut raw.lastcheck_hi, time));
        }
        'e' => {
            let behaviour = words.by(errors_behaviour)?;
            args.add(move |raw| raw.errors = behaviour.into());
        }
        'm' | 'r' => reserved(args, letter, words)?,
        'u' | 'g' => {
            let id: u16 =
                words.parsed().map_err(|_| words.wrong("must be a number below 65536"))?;
            args.add(move |raw| {
                let field = if letter == 'u' { &mut raw.def_resuid } else { &mut raw.def_resgid };
                *field = id.into();
            });
        }
        'o' => mount_options(args, words)?,
        'O' => words.by(features)?.iter().try_for_each(|change| feature(args, change))?,
        'U' => set_uuid(args, words)?,
        'E' => {
            let list = words.text()?;
            for item in lists::items(&list, 'E', STATUSES) {
                suboptions::extended(args, &item)?;
            }
        }
        'f' => args.is_forced = true,
        'j' => args.add_journal(),
        'J' => suboptions::journal(args, &words.text()?)?,
        'I' => return Err(words.refused("the inode size cannot be changed")),
        'Q' => suboptions::quota(args, &words.text()?)?,
        's' => return Err(words.refused("backup superblocks cannot be moved")),
        'z' => args.undo = Some(words.path()?),
        _ => return Err(words.unknown()),
    }
    Ok(())
}

/// Parses the number of mounts between two checks: a number, or `random` for 20 to 39.
fn mount_count(text: &str) -> Result<i16, String> {
    const USUAL: u8 = 20;
    if text == "random" {
        return Ok(i16::from(USUAL + crate::making::random_uuid()[0] % USUAL));
    }
    text.parse().map_err(|_| "write a number or random".into())
}

/// Pads text with NULs to the size of a field.
fn name<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text[..len]);
    field
}

/// Parses a number of days, or of the unit given by a letter: days, months or weeks.
fn interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 24 * 60 * 60;
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], DAY),
        Some((at, 'w')) => (&text[..at], 7 * DAY),
        Some((at, 'm')) => (&text[..at], 30 * DAY),
        Some((at, 's')) => (&text[..at], 1),
        _ => (text, DAY),
    };
    let seconds = number.parse().ok().and_then(|number: u32| number.checked_mul(unit));
    seconds.ok_or_else(|| "write a number followed by d, w or m".into())
}

fn reserved(args: &mut Args, letter: char, words: &mut Words) -> Result<(), Failure> {
    let (percent, blocks) = if letter == 'm' {
        (words.parsed::<f64>()?, 0)
    } else {
        (0.0, words.by(|text| size::parse(text)?.bytes(1).ok_or_else(|| "it is too large".into()))?)
    };
    if !(0.0..=50.0).contains(&percent) {
        return Err(words.wrong(format_args!("must be 0 to 50 percent, not {percent}")));
    }
    args.try_add(move |raw| {
        let all = u64::from(raw.blocks_count_hi.get()) << 32 | u64::from(raw.blocks_count_lo.get());
        let count = if letter == 'm' { (all as f64 * percent / 100.0) as u64 } else { blocks };
        if count > all / 2 {
            return Err("at most half of the blocks can be reserved");
        }
        raw.r_blocks_count_lo = (count as u32).into();
        raw.r_blocks_count_hi = ((count >> 32) as u32).into();
        Ok(())
    });
    Ok(())
}

/// Returns the names in the values of `-O` and `-o`, as the parser accepts them.
pub(crate) fn supported_names() -> impl Iterator<Item = String> {
    const SIGNS: [&str; 2] = ["", "^"];
    let features = Feature::names().flat_map(|name| SIGNS.map(|sign| (name, sign)));
    let features = features.filter(|(name, sign)| {
        let feature = Feature::from_name(name).filter(|feature| !INTERNAL.contains(feature));
        feature.is_some_and(|feature| can_change(feature, sign.is_empty()))
    });
    let names = dumpe2fs::MOUNT_OPTIONS.iter().map(|(_, name)| *name);
    let options = JOURNAL_MODES.iter().map(|(_, name)| *name).chain(names);
    let options = options.flat_map(|name| SIGNS.map(|sign| format!("-o {sign}{name}")));
    features.map(|(name, sign)| format!("-O {sign}{name}")).chain(options)
}

fn mount_options(args: &mut Args, words: &mut Words) -> Result<(), Failure> {
    for word in words.text()?.split(',').filter(|word| !word.is_empty()) {
        let (word, is_on) = word.strip_prefix('^').map_or((word, true), |word| (word, false));
        let mode = JOURNAL_MODES.iter().find(|(_, name)| *name == word).map(|(mode, _)| *mode);
        let named = dumpe2fs::MOUNT_OPTIONS.iter().find(|(_, name)| *name == word);
        match (mode, named) {
            (Some(mode), _) => args.add(move |raw| {
                let others = raw.default_mount_opts.get() & !dumpe2fs::DATA_MODES;
                raw.default_mount_opts = (others | if is_on { mode } else { 0 }).into();
            }),
            (None, Some(&(bit, _))) => args.add(move |raw| {
                let others = raw.default_mount_opts.get() & !bit;
                raw.default_mount_opts = (others | if is_on { bit } else { 0 }).into();
            }),
            (None, None) => return Err(words.wrong(format_args!("has no suboption {word}"))),
        }
    }
    Ok(())
}

fn feature(args: &mut Args, change: &FeatureChange) -> Result<(), Failure> {
    let Some(feature) = Feature::from_name(&change.name) else {
        return Err(STATUSES.usage(format_args!("-O: unknown feature {}", change.name)));
    };
    if INTERNAL.contains(&feature) {
        let name = &change.name;
        return Err(
            STATUSES.refused(format_args!("-O {name}"), "only e2fsck and mounts set this flag")
        );
    }
    args.request.features.push((feature, change.is_on));
    Ok(())
}

fn set_uuid(args: &mut Args, words: &mut Words) -> Result<(), Failure> {
    args.request.uuid = Some(match words.by(uuid)? {
        Some(UuidWish::Given(uuid)) => uuid,
        Some(UuidWish::Random) | None => crate::making::random_uuid(),
    });
    Ok(())
}
