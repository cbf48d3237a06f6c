//! Programs that create ext4 images for Android and OpenWrt: `make_ext4fs` and `e2fsdroid`.

mod blocks;
mod e2fsdroid;
mod make_ext4fs;
mod sparse;

use std::path::{Path, PathBuf};

use diskwright::build::{BuildOptions, Owner};
use diskwright::output::OutputFormat;
use import::Time;
use import::correct::{AttributeChange, Glob, Rule};

use crate::failure::{Failure, STATUSES};
use crate::making::{self, TargetFile};
use crate::words::Words;

pub(crate) use e2fsdroid::run as e2fsdroid;
pub(crate) use make_ext4fs::run as make_ext4fs;

/// Common options for files.
#[derive(Clone, Debug, Default)]
struct FileOptions {
    /// Mount point of the image, without surrounding slashes.
    mount_point: Option<Vec<u8>>,
    fs_config: Option<PathBuf>,
    file_contexts: Option<PathBuf>,
    /// Time of all files, in seconds since 1970.
    time: Option<i64>,
    block_list: Option<PathBuf>,
}

impl FileOptions {
    /// Parses an option that both programs have. Returns whether it was one.
    fn option(&mut self, letter: char, words: &mut Words) -> Result<bool, Failure> {
        match letter {
            'a' => {
                let place = words.bytes()?;
                let name = |byte: &u8| *byte != b'/';
                let start = place.iter().position(name).unwrap_or(place.len());
                let end = place.iter().rposition(name).map_or(start, |last| last + 1);
                self.mount_point = Some(place[start..end].to_vec());
            }
            'C' => self.fs_config = Some(words.path()?),
            'S' => self.file_contexts = Some(words.path()?),
            'T' => self.time = Some(words.parsed()?).filter(|sec| *sec != -1),
            'B' => self.block_list = Some(words.path()?),
            'd' | 'D' => {
                return Err(words.refused(
                    "the order of the files determines their blocks; the same tree always gives \
                     the same blocks",
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the corrections of a build. Without a list, all files belong to `owner`.
    fn correct(&self, options: &mut BuildOptions, owner: Option<Owner>) -> Result<(), Failure> {
        let corrections = &mut options.corrections;
        corrections.fs_config.clone_from(&self.fs_config);
        corrections.file_contexts.clone_from(&self.file_contexts);
        corrections.mount_point = self.mount_point.clone().unwrap_or_default();
        options.owner = owner;
        making::set_times(options, STATUSES)?;
        if let Some(sec) = self.time {
            options.time = Some(sec);
            // The root, and all other files.
            for pattern in ["/", "*"] {
                let glob = Glob::parse(pattern).map_err(|why| STATUSES.failed(why))?;
                options
                    .corrections
                    .rules
                    .push(Rule { glob, change: AttributeChange::Time(Time { sec, nsec: 0 }) });
            }
        }
        Ok(())
    }

    /// Builds the image, and writes the block list if requested.
    fn make(&self, options: &BuildOptions, file: &TargetFile) -> Result<(), Failure> {
        if let Some(list) = &self.block_list {
            self.list(options, list)?;
        }
        making::make(options, file, STATUSES).map(drop)
    }

    /// Writes the block list of an equal temporary image, because the output may have a format in which blocks are
    /// stored elsewhere.
    fn list(&self, options: &BuildOptions, list: &Path) -> Result<(), Failure> {
        let beside = options.image.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = tempfile::tempdir_in(beside.unwrap_or(Path::new(".")));
        let directory = directory.map_err(|e| STATUSES.failed(e))?;
        let mut raw = options.clone();
        raw.image = directory.path().join("image");
        raw.output.format = OutputFormat::Raw;
        making::make_shipped(&raw, STATUSES)?;
        blocks::list(&raw.image, self.mount_point.as_deref().unwrap_or_default(), list)
    }
}
