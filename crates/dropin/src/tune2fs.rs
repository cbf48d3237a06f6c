//! `tune2fs` and `e2label`.

use std::ffi::OsString;
use std::path::Path;

use diskwright::OpenImage;
use diskwright::build::FeatureChange;
use diskwright::tune::change_superblock;
use ext4::format::checksum::file_system_seed;
use ext4::format::features::Incompat;
use ext4::format::superblock::RawSuperblock;

use crate::dumpe2fs;
use crate::failure::{Ended, Failure, STATUSES};
use crate::fields;
use crate::invoked::{Invoked, say};
use crate::lists;
use crate::mke2fs::{TEST_FILE_SYSTEM, UuidWish, errors_behaviour, features, uuid};
use crate::size;
use crate::words::{Word, Words};

/// A change of a superblock, or why it cannot be.
type Change = Box<dyn Fn(&mut RawSuperblock) -> Result<(), &'static str>>;

#[derive(Default)]
struct Wish {
    /// Changes of features, which come before all others: a new UUID may need one of them.
    features: Vec<Change>,
    changes: Vec<Change>,
    shows: bool,
}

impl Wish {
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
    let mut words = Words::new(arguments, STATUSES);
    let mut wish = Wish::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option(letter) => option(&mut wish, letter, &mut words)?,
        }
    }
    let image = words.named(image)?;
    let changes = wish.features.into_iter().chain(wish.changes).collect::<Vec<_>>();
    if changes.is_empty() && !wish.shows {
        return Err(STATUSES.usage("name a change, or -l to show the superblock"));
    }
    if !changes.is_empty() {
        apply(&image, &changes)?;
    }
    if wish.shows {
        dumpe2fs::show(&dumpe2fs::superblock(&image)?);
    }
    Ok(0)
}

/// Shows the label, or sets it.
pub(crate) fn label(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    match &*arguments {
        [image] => {
            let raw = dumpe2fs::superblock(Path::new(image))?.raw;
            say(format_args!("{}", dumpe2fs::text(&raw.volume_name)));
        }
        [image, label] => {
            let name = name::<16>(label.as_encoded_bytes());
            #[cfg(target_os = "linux")]
            if let Some(ended) = crate::online::label(&arguments, &name, invoked) {
                return ended;
            }
            apply(
                Path::new(image),
                &[Box::new(move |raw| {
                    raw.volume_name = name;
                    Ok(())
                })],
            )?;
        }
        _ => return Err(STATUSES.usage("name an image, and a label after it to set one")),
    }
    Ok(0)
}

fn apply(image: &Path, changes: &[Change]) -> Result<(), Failure> {
    let mut all = |raw: &mut RawSuperblock| changes.iter().try_for_each(|change| change(raw));
    change_superblock(image, &OpenImage::default(), &mut all).map_err(|e| STATUSES.of(&e))
}

fn option(wish: &mut Wish, letter: char, words: &mut Words) -> Result<(), Failure> {
    match letter {
        'l' => wish.shows = true,
        'L' => {
            let name = name::<16>(&words.bytes()?);
            wish.add(move |raw| raw.volume_name = name);
        }
        'M' => {
            let place = name::<64>(&words.bytes()?);
            wish.add(move |raw| raw.last_mounted = place);
        }
        'c' => {
            let count: i16 = words.parsed()?;
            // 0 means never, as a negative one does.
            let count = if count == 0 { -1 } else { count };
            wish.add(move |raw| raw.max_mnt_count = count.cast_unsigned().into());
        }
        'C' => {
            let count: u16 = words.parsed()?;
            wish.add(move |raw| raw.mnt_count = count.into());
        }
        'i' => {
            let seconds = words.by(interval)?;
            wish.add(move |raw| raw.checkinterval = seconds.into());
        }
        'T' => {
            let time = words.by(fields::parse_time)?;
            wish.add(move |raw| fields::set_time(&mut raw.lastcheck, &mut raw.lastcheck_hi, time));
        }
        'e' => {
            let behaviour = words.by(errors_behaviour)?;
            wish.add(move |raw| raw.errors = behaviour.into());
        }
        'm' | 'r' => reserved(wish, letter, words)?,
        'u' | 'g' => {
            let id: u16 = words.parsed().map_err(|_| words.wrong("is a number below 65536"))?;
            wish.add(move |raw| {
                let field = if letter == 'u' { &mut raw.def_resuid } else { &mut raw.def_resgid };
                *field = id.into();
            });
        }
        'o' => mount_options(wish, words)?,
        'O' => words.by(features)?.iter().try_for_each(|change| feature(wish, change))?,
        'U' => set_uuid(wish, words)?,
        'E' => {
            let list = words.text()?;
            for item in lists::items(&list, 'E', STATUSES) {
                extended(wish, &item)?;
            }
        }
        // A file system that needs it is refused all the same, or needs it no more.
        'f' => {}
        'j' | 'J' => return Err(words.refused("a journal is made with the file system: mke2fs -j")),
        'I' => return Err(words.refused("inodes are as large as they were made")),
        'Q' => return Err(words.refused("the feature quota is not made")),
        's' => return Err(words.refused("copies of the superblock stay where they are")),
        'z' => return Err(words.refused("nothing is to be undone: one block is written")),
        _ => return Err(words.unknown()),
    }
    Ok(())
}

/// The hash that directories get from now on.
fn hash_version(text: &str) -> Result<u8, String> {
    let names = ["legacy", "half_md4", "tea"];
    let found = (0..).zip(names).find(|(_, name)| *name == text);
    found.map(|(version, _)| version).ok_or_else(|| "it is legacy, half_md4 or tea".into())
}

/// Text in a field that NULs fill up.
fn name<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text[..len]);
    field
}

/// A number of days, or with a letter of days, months or weeks.
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
    seconds.ok_or_else(|| "write a number and d, w or m after it".into())
}

fn reserved(wish: &mut Wish, letter: char, words: &mut Words) -> Result<(), Failure> {
    let (percent, blocks) = if letter == 'm' {
        (words.parsed::<f64>()?, 0)
    } else {
        (0.0, words.by(|text| size::parse(text)?.bytes(1).ok_or_else(|| "it is too large".into()))?)
    };
    if !(0.0..=50.0).contains(&percent) {
        return Err(words.wrong(format_args!("is 0 to 50 per cent, not {percent}")));
    }
    wish.try_add(move |raw| {
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

fn mount_options(wish: &mut Wish, words: &mut Words) -> Result<(), Failure> {
    for word in words.text()?.split(',').filter(|word| !word.is_empty()) {
        let (word, is_on) = word.strip_prefix('^').map_or((word, true), |word| (word, false));
        let mode = match word {
            "journal_data" => Some(0x0020),
            "journal_data_ordered" => Some(0x0040),
            "journal_data_writeback" => Some(0x0060),
            _ => None,
        };
        let named = dumpe2fs::MOUNT_OPTIONS.iter().find(|(_, name)| *name == word);
        match (mode, named) {
            (Some(mode), _) => wish.add(move |raw| {
                let others = raw.default_mount_opts.get() & !dumpe2fs::DATA_MODES;
                raw.default_mount_opts = (others | if is_on { mode } else { 0 }).into();
            }),
            (None, Some(&(bit, _))) => wish.add(move |raw| {
                let others = raw.default_mount_opts.get() & !bit;
                raw.default_mount_opts = (others | if is_on { bit } else { 0 }).into();
            }),
            (None, None) => return Err(words.wrong(format_args!("has nothing called {word}"))),
        }
    }
    Ok(())
}

/// Features that nothing on disk has to be changed for, when they come.
const COMING: [&str; 9] = [
    "metadata_csum_seed",
    "dir_index",
    "large_dir",
    "dir_nlink",
    "huge_file",
    "ea_inode",
    "verity",
    "large_file",
    "ext_attr",
];

fn feature(wish: &mut Wish, change: &FeatureChange) -> Result<(), Failure> {
    let name = change.name.clone();
    let is_known = ext4::format::features::Feature::from_name(&name);
    let Some(feature) = is_known else {
        return Err(STATUSES.usage(format_args!("-O: there is no feature {name}")));
    };
    let is_on = change.is_on;
    let may = is_on && COMING.contains(&&*name);
    wish.features.push(Box::new(move |raw| {
        let mut features = raw.features();
        let had = features;
        features.set(feature, is_on);
        if had.names() == features.names() {
            return Ok(());
        }
        if !may {
            return Err("-O: only features that change nothing on disk come, and none goes: diskwright convert makes \
                        the file system anew with others");
        }
        if features.incompat(Incompat::CSUM_SEED) && !had.incompat(Incompat::CSUM_SEED) {
            if !features.metadata_csum() {
                return Err("-O metadata_csum_seed: needs metadata_csum");
            }
            raw.checksum_seed = file_system_seed(&raw.uuid).into();
        }
        raw.set_features(&features);
        Ok(())
    }));
    Ok(())
}

fn set_uuid(wish: &mut Wish, words: &mut Words) -> Result<(), Failure> {
    let uuid = match words.by(uuid)? {
        Some(UuidWish::Given(uuid)) => uuid,
        Some(UuidWish::Random) | None => crate::making::random_uuid(),
    };
    wish.try_add(move |raw| {
        let features = raw.features();
        let uses_seed = features.metadata_csum() || features.incompat(Incompat::EA_INODE);
        if uses_seed && !features.incompat(Incompat::CSUM_SEED) {
            return Err("-U: all checksums depend on the UUID; add -O metadata_csum_seed, which keeps them valid (Linux \
                        4.4, e2fsprogs 1.43)");
        }
        raw.uuid = uuid;
        Ok(())
    });
    Ok(())
}

fn extended(wish: &mut Wish, item: &lists::Item<'_>) -> Result<(), Failure> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| "write a number".to_owned());
    match item.name {
        "stride" => {
            let blocks =
                u16::try_from(item.by(number)?).map_err(|_| item.wrong("is at most 65535"))?;
            wish.add(move |raw| raw.raid_stride = blocks.into());
        }
        "stripe_width" | "stripe-width" => {
            let blocks = item.by(number)?;
            wish.add(move |raw| raw.raid_stripe_width = blocks.into());
        }
        "mount_opts" => {
            let options = name::<64>(item.text()?.as_bytes());
            wish.add(move |raw| raw.mount_opts = options);
        }
        "hash_alg" => {
            let version = item.by(hash_version)?;
            wish.add(move |raw| raw.def_hash_version = version);
        }
        "test_fs" | "^test_fs" => {
            let is_on = item.name == "test_fs";
            wish.add(move |raw| {
                let others = raw.flags.get() & !TEST_FILE_SYSTEM;
                raw.flags = (others | if is_on { TEST_FILE_SYSTEM } else { 0 }).into();
            });
        }
        "force_fsck" => return Err(item.refused("e2fsck -f checks at any time")),
        "clear_mmp"
        | "mmp_update_interval"
        | "encoding"
        | "encoding_flags"
        | "orphan_file_size"
        | "revision" => {
            return Err(item.refused("it is set when a file system is made"));
        }
        _ => return Err(item.unknown()),
    }
    Ok(())
}
