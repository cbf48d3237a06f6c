//! Extraction from an image and building a new one.

use std::fs;
use std::path::Path;

use testkit::{Ignore, Tree, assert_same, scratch};

use crate::build::common::{
    EPOCH, FORMATS, build, build_command, common_sample, judge, sample_in, small_sample, succeed,
    without_sockets,
};

use crate::build::sources::clamped;
use crate::program::diskwright;

fn extract(image: &Path, to: &Path) {
    succeed(diskwright().arg("extract").arg(image).arg(to));
}

#[test]
fn a_directory_comes_out_as_it_went_in() {
    crate::require_all_formats!(Root);
    let cases = [
        ("", small_sample(1024)),
        ("--block-size 1K -O inline_data", small_sample(1024)),
        ("--block-size 2K -O ^extent,^64bit", small_sample(1024)),
        ("--fs xfs", common_sample()),
        ("--fs xfs --block-size 1K", common_sample()),
        ("--fs xfs --block-size 2K --dir-block-size 16K --inode-size 1K", common_sample()),
    ];
    for (options, sample) in cases {
        let directory = scratch();
        let (source, tree) = sample_in(directory.path(), &sample);
        let image = directory.path().join("image");
        build(&source, &image, options);
        let out = directory.path().join("out");
        extract(&image, &out);
        assert_same(&tree, &Tree::of(&out), &Ignore::default());
        // The extracted files produce the same tree.
        build(&out, &image, &format!("{options} --force"));
        judge(&image, &tree);
        if options.contains("--fs xfs") {
            testkit::scrub(&image);
        }
    }
}

#[test]
fn an_archive_comes_out_as_it_went_in() {
    crate::require_all_formats!(Root);
    FORMATS.into_iter().for_each(archive_round_trip);
}

fn archive_round_trip(format: &str) {
    let directory = scratch();
    let at = |name: &str| directory.path().join(name);
    let (source, tree) = sample_in(directory.path(), &common_sample());
    // Archives cannot contain sockets.
    for (path, node) in &tree.nodes {
        if node.kind == testkit::NodeKind::Socket {
            let file = source.join(std::str::from_utf8(path).unwrap());
            let parent = file.parent().unwrap();
            let time = fs::metadata(parent).unwrap().modified().unwrap();
            fs::remove_file(&file).unwrap();
            fs::File::open(parent).unwrap().set_modified(time).unwrap();
        }
    }
    let tree = clamped(without_sockets(&tree));
    let make = |from: &Path, image: &Path| {
        let mut command = build_command(from, image, format);
        succeed(command.env("SOURCE_DATE_EPOCH", EPOCH.to_string()));
    };
    make(&source, &at("first"));
    extract(&at("first"), &at("first.tar"));
    make(&at("first.tar"), &at("second"));
    judge(&at("second"), &tree);
    extract(&at("second"), &at("second.tar"));
    make(&at("second.tar"), &at("third"));
    assert!(fs::read(at("first.tar")).unwrap() == fs::read(at("second.tar")).unwrap());
    assert!(fs::read(at("second")).unwrap() == fs::read(at("third")).unwrap());
}
