//! `xfs_growfs` and `xfs_info`, on images.

use std::ffi::OsString;
use std::path::Path;

use diskwright::resize::grow;
use diskwright::{Image, ImageInfo, OpenImage};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::words::{Word, Words};

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES);
    let (mut image, mut blocks, mut only_look) = (None, None, false);
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('D') => blocks = Some(words.parsed::<u64>()?),
            Word::Option('n') => only_look = true,
            // The data is what grows.
            Word::Option('d') => {}
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option('e' | 'i' | 'l' | 'L' | 'm' | 'p' | 'r' | 'R' | 't' | 'x') => {
                return Err(words.refused("only the data of an image grows"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    let image = words.named(image)?;
    let before = look(&image)?;
    tell(&image, &before);
    if only_look {
        return Ok(0);
    }
    let bytes = blocks.map(|blocks| {
        let bytes = blocks.checked_mul(before.block_size.into());
        bytes.ok_or_else(|| STATUSES.usage("the size is too large"))
    });
    let report = grow(&image, &OpenImage::default(), bytes.transpose()?);
    let report = report.map_err(|e| STATUSES.of(&e))?;
    if report.is_nothing() {
        say(format_args!("data size unchanged, skipping"));
    } else {
        say(format_args!(
            "data blocks changed from {} to {}",
            report.before.blocks, report.after.blocks
        ));
    }
    Ok(0)
}

/// Shows the geometry of an image.
pub(crate) fn info(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    if matches!(&*arguments, [only] if only == "-V") {
        return Ok(invoked.version());
    }
    let [image] = &*arguments else { return Err(STATUSES.usage("name an image")) };
    let image = Path::new(image);
    tell(image, &look(image)?);
    Ok(0)
}

fn look(image: &Path) -> Result<ImageInfo, Failure> {
    let opened = Image::open_rootless(image, &OpenImage::default()).map_err(|e| STATUSES.of(&e))?;
    let info = opened.info().clone();
    if info.format == "xfs" {
        return Ok(info);
    }
    Err(STATUSES.failed(format_args!("{} holds {}, not XFS", image.display(), info.format)))
}

/// Says what an image is like, in the words of xfs_info(8).
pub(crate) fn tell(image: &Path, info: &ImageInfo) {
    let value = |name: &str| {
        let (title, name) = name.split_once(": ").unwrap_or(("layout", name));
        let sections = info.sections.iter().filter(|section| section.title == title);
        let mut values = sections.flat_map(|section| &section.values);
        values.find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    };
    let has = |name: &str| {
        let mut names = info.features.iter().flat_map(|group| &group.names);
        u8::from(names.any(|known| known == name))
    };
    let block = info.block_size;
    say(format_args!(
        "meta-data={:<22} isize={:<6} agcount={}, agsize={} blks",
        image.display().to_string(),
        info.inode_size,
        value("allocation groups"),
        value("blocks per group")
    ));
    say(format_args!(
        "         ={:<22} sectsz={:<5} attr=2, projid32bit=1",
        "",
        value("sector size")
    ));
    say(format_args!(
        "         ={:<22} crc={:<8} finobt={}, sparse={}, rmapbt={}",
        "",
        has("crc"),
        has("finobt"),
        has("sparse"),
        has("rmapbt")
    ));
    say(format_args!(
        "         ={:<22} reflink={:<4} bigtime={} inobtcount={} nrext64={}",
        "",
        has("reflink"),
        has("bigtime"),
        has("inobtcount"),
        has("nrext64")
    ));
    say(format_args!(
        "         ={:<22} exchange={:<3} metadir={}",
        "",
        has("exchange"),
        has("metadir")
    ));
    say(format_args!(
        "data     ={:<22} bsize={:<6} blocks={}, imaxpct={}",
        "",
        block,
        info.blocks,
        value("inode space limit, percent")
    ));
    say(format_args!(
        "naming   =version 2              bsize={:<6} ascii-ci={}, ftype=1, parent={}",
        value("directory block size"),
        has("ascii-ci"),
        has("parent")
    ));
    say(format_args!(
        "log      ={:<22} bsize={:<6} blocks={}, version=2",
        value("log: place"),
        block,
        value("log: blocks")
    ));
}
