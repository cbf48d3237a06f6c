//! An image with a computed size is usually written in one pass and is nearly as small as possible.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use diskwright::Image;
use diskwright::build::{BuildOptions, Format, Progress, build};
use testkit::{require, scratch};

/// Records the progress values of a build.
#[derive(Default)]
struct Steps(Mutex<Vec<u64>>);

impl Progress for Steps {
    fn made(&self, entries: u64, _: u64) {
        self.0.lock().unwrap().push(entries);
    }
}

/// Creates about 7,000 files in directories of all sizes, with holes, attributes and links.
fn tree(home: &Path) -> PathBuf {
    let (source, mut rng) = (home.join("source"), fastrand::Rng::with_seed(7));
    for (number, files) in [1, 3, 20, 70, 400, 900, 5_000].into_iter().enumerate() {
        let directory = source.join(format!("directory-{number}"));
        std::fs::create_dir_all(directory.join("empty")).unwrap();
        for file in 0..files {
            let name = format!("{file}{}", "n".repeat(rng.usize(..30)));
            let bytes = vec![1; [0, 0, 10, 6_000, 40_000][rng.usize(..5)]];
            std::fs::write(directory.join(&name), bytes).unwrap();
            if file % 50 == 0 {
                let link = directory.join(format!("link-{file}"));
                std::os::unix::fs::symlink("t".repeat(rng.usize(1..300)), link).unwrap();
                std::fs::hard_link(directory.join(&name), directory.join(format!("hard-{file}")))
                    .unwrap();
            }
        }
    }
    source
}

fn options(source: &Path, format: Format, block_size: Option<u32>) -> BuildOptions {
    let options = BuildOptions::new(source, source.with_extension("image"), format)
        .small(format == Format::Xfs)
        .threads(2)
        .force(true)
        .source_date_epoch(1_600_000_000);
    match block_size {
        Some(bytes) => options.block_size(bytes),
        None => options,
    }
}

#[test]
fn a_source_of_many_kinds_is_made_once() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let source = tree(home.path());
    for format in [Format::Ext4, Format::Xfs] {
        for block_size in [None, Some(1024)] {
            for free in [0, 10 << 20] {
                let options = options(&source, format, block_size).free(free);
                let what = format!("{format:?} {block_size:?} {free}");
                let steps = Steps::default();
                let report = build(&options, &steps).unwrap_or_else(|e| panic!("{what}: {e}"));
                testkit::judge(&options.image);
                let expected: Vec<u64> = (1..=report.entries / 1024).map(|n| n * 1024).collect();
                assert_eq!(*steps.0.lock().unwrap(), expected, "{what}: made more than once");
                let image = Image::open(&options.image).unwrap();
                let info = image.info().unwrap();
                let spare = info.blocks_free * u64::from(info.block_size);
                let part = if format == Format::Xfs { 12 } else { 50 };
                let most = report.image_bytes / part + (256 << 10);
                assert!(free > 0 || spare < most, "{what}: {spare} bytes are free");
                drop(image);
                // The result does not depend on the threads that read and copy.
                let first = std::fs::read(&options.image).unwrap();
                let alone = options.threads(1);
                build(&alone, &Steps::default()).unwrap();
                assert!(std::fs::read(&alone.image).unwrap() == first, "{what}: other bytes");
            }
        }
    }
}
