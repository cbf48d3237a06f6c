//! Tar archives as sources, written by GNU tar and the `tar` crate.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use crate::common::{TreeItem, acl, by_path, collect, make_tree, run, set_xattr};
use import::{Damage, Options, Source, SourceError, TarSource, Unsupported};
use proptest::prelude::*;

fn open(path: &Path) -> Result<Vec<TreeItem>, SourceError> {
    collect(&mut *import::open(path, &Options::default())?)
}

fn stream(bytes: Vec<u8>) -> Result<Vec<TreeItem>, SourceError> {
    collect(&mut TarSource::from_stream(Cursor::new(bytes), "test")?)
}

/// Archives a tree with GNU tar and compares the stream with the tree itself.
fn round_trip(tree: &Path, args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    let mut tar = testkit::command("tar");
    tar.args(["--create", "--sort=name", "--numeric-owner", "--file"]).arg(&archive).args(args);
    run(tar.arg("--directory").arg(tree).arg("."));
    let expected = by_path(open(tree).unwrap());
    let bytes = fs::read(&archive).unwrap();
    for found in [by_path(open(&archive).unwrap()), by_path(stream(bytes).unwrap())] {
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{args:?}"
        );
        for (path, item) in &found {
            assert_eq!(item, &expected[path], "{args:?}");
        }
    }
}

#[test]
fn gnu_tar_round_trips() {
    testkit::require!(Tool("tar"), Tool("gzip"), Tool("zstd"));
    let dir = tempfile::tempdir().unwrap();
    let (plain, full) = (dir.path().join("plain"), dir.path().join("full"));
    make_tree(&plain, false);
    make_tree(&full, true);
    round_trip(&plain, &["--format=gnu", "--sparse"]);
    let posix = ["--format=posix", "--sparse", "--xattrs", "--xattrs-include=*"];
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        round_trip(&full, &[&posix[..], &[&version]].concat());
    }
    for compression in ["--gzip", "--zstd"] {
        round_trip(&full, &[&posix[..], &[compression]].concat());
    }
}

#[test]
fn text_acls_become_attributes() {
    testkit::require!(Tool("tar"));
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("f"), b"").unwrap();
    if !set_xattr(&tree.join("f"), "system.posix_acl_access", &acl())
        || !set_xattr(&tree.join("d"), "system.posix_acl_default", &acl())
    {
        return;
    }
    round_trip(&tree, &["--format=posix", "--acls"]);
    round_trip(&tree, &["--format=posix", "--acls", "--xattrs", "--xattrs-include=*"]);
}

/// A small archive: a directory, a file with a long name, a link.
fn small_archive() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    builder.append_data(&mut header, "dir/", &b""[..]).unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(700);
    header.set_mtime(77);
    builder.append_data(&mut header, format!("dir/{}", "n".repeat(200)), &[5; 700][..]).unwrap();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link", "target").unwrap();
    builder.append_pax_extensions([("mtime", &b"1.5"[..]), ("SCHILY.xattr.user.a", b"b")]).unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(3);
    builder.append_data(&mut header, "last", &b"end"[..]).unwrap();
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    structured_zstd::encoding::compress_to_vec(
        bytes,
        structured_zstd::encoding::CompressionLevel::Fastest,
    )
}

#[test]
fn compressed_pieces_may_follow_each_other() {
    let archive = small_archive();
    let expected = stream(archive.clone()).unwrap();
    assert_eq!(expected.len(), 4);
    for compress in [gzip, zstd] {
        let mut pieces: Vec<u8> = archive.chunks(700).flat_map(compress).collect();
        assert_eq!(stream(pieces.clone()).unwrap(), expected);
        assert_eq!(stream([compress(b""), pieces.clone()].concat()).unwrap(), expected);
        pieces.truncate(pieces.len() - 1);
        assert!(stream(pieces).is_err());
    }
    let skippable = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    assert_eq!(stream([&skippable, &zstd(&archive)[..]].concat()).unwrap(), expected);
    assert_eq!(stream([&gzip(&archive)[..], &[0; 100]].concat()).unwrap(), expected);
}

#[test]
fn damage_behind_the_archive_is_found() {
    let mut bytes = gzip(&small_archive());
    let crc = bytes.len() - 8;
    bytes[crc] ^= 1;
    let error = stream(bytes).unwrap_err();
    assert!(
        matches!(error, SourceError::Damaged { damage: Damage::Compression(_), .. }),
        "{error}"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let archive = small_archive();
    let file = tempfile::NamedTempFile::new().unwrap();
    for len in 0..archive.len() - 512 {
        let bytes = &archive[..len];
        let error = stream(bytes.to_vec()).unwrap_err();
        assert!(error.is_archive_fault(), "{len}: {error}");
        if len % 97 == 0 || len % 512 == 0 {
            fs::write(file.path(), bytes).unwrap();
            assert!(open(file.path()).unwrap_err().is_archive_fault(), "{len}");
        }
    }
    for compressed in [gzip(&archive), zstd(&archive)] {
        for len in 0..compressed.len() {
            let error = stream(compressed[..len].to_vec()).unwrap_err();
            assert!(error.is_archive_fault(), "{len}: {error}");
        }
    }
}

fn damage(bytes: Vec<u8>) -> (u64, Option<String>, Damage) {
    match stream(bytes).unwrap_err() {
        SourceError::Damaged { offset, entry, damage, .. } => {
            (offset, entry.map(|path| path.display().to_string()), damage)
        }
        error => panic!("{error}"),
    }
}

/// Returns an archive of one header modified by `edit`, and `data`.
fn archive_of(edit: impl Fn(&mut tar::GnuHeader), data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    edit(header.as_gnu_mut().unwrap());
    header.set_cksum();
    let padding = vec![0; data.len().next_multiple_of(512) - data.len() + 1024];
    [header.as_bytes(), data, &padding].concat()
}

fn name(header: &mut tar::GnuHeader, name: &str) {
    header.name[..name.len()].copy_from_slice(name.as_bytes());
}

#[test]
fn damage_is_named_precisely() {
    assert_eq!(damage(b"hello".to_vec()).2, Damage::NotTar);
    assert_eq!(damage(vec![b'x'; 5000]).2, Damage::NotTar);
    let escape = archive_of(|h| name(h, "a/../../b"), b"");
    assert_eq!(damage(escape), (0, Some("a/../../b".into()), Damage::ParentComponent));

    let mut archive = small_archive();
    let second = 512;
    archive[second] ^= 1;
    let (offset, _, found) = damage(archive);
    assert_eq!(offset, 512);
    assert!(matches!(found, Damage::Checksum { .. }));

    let huge = archive_of(
        |h| {
            name(h, "huge");
            h.size = [b'7'; 12];
        },
        b"abc",
    );
    let (offset, entry, found) = damage(huge);
    assert_eq!((offset, entry, found), (2048, Some("huge".into()), Damage::Truncated));
    let huge_pax = archive_of(
        |h| {
            h.typeflag = *b"x";
            h.size = [b'7'; 12];
        },
        b"",
    );
    assert!(matches!(damage(huge_pax).2, Damage::TooLarge { limit: 0x400_0000, .. }));
    let bad_uid = archive_of(
        |h| {
            name(h, "a");
            h.uid = *b"12x\0\0\0\0\0";
        },
        b"",
    );
    assert_eq!(damage(bad_uid).2, Damage::Number { field: "uid" });
    let mut endless = small_archive();
    endless.truncate(endless.len() - 1024);
    assert_eq!(damage(endless).2, Damage::NoEndMarker);

    let unknown = archive_of(
        |h| {
            name(h, "odd");
            h.typeflag = *b"M";
        },
        b"",
    );
    let error = stream(unknown).unwrap_err();
    let is_type = |f: &Unsupported| matches!(f, Unsupported::EntryType(b'M'));
    assert!(
        matches!(&error, SourceError::Unsupported { feature, .. } if is_type(feature)),
        "{error}"
    );
    let xz = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 0];
    let error = stream(xz.to_vec()).unwrap_err();
    assert!(error.to_string().contains("xz compression"), "{error}");
}

#[test]
fn contents_that_are_not_read_are_skipped() {
    let archive = gzip(&small_archive());
    let mut source = TarSource::from_stream(Cursor::new(archive.clone()), "test").unwrap();
    let mut names = Vec::new();
    while let Some(entry) = source.next_entry().unwrap() {
        source.read(&mut [0; 7]).unwrap();
        names.push(entry.path);
    }
    assert_eq!(names.len(), 4);
    assert_eq!(names[3], b"last");
    assert_eq!(source.progress().done, archive.len() as u64);
}

#[test]
fn negative_times_and_large_numbers_are_read() {
    let archive = archive_of(
        |h| {
            name(h, "./old");
            h.mtime = [0xff; 12];
            h.uid = [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xfe];
        },
        b"data",
    );
    let items = stream(archive).unwrap();
    assert_eq!(items[0].path, "old");
    assert_eq!(items[0].metadata.mtime, import::Time { sec: -1, nsec: 0 });
    assert_eq!(items[0].metadata.uid, u32::MAX - 1);
}

fn sparse_archive() -> Option<Vec<u8>> {
    if !testkit::satisfied("hostile archives of GNU tar", &[testkit::Need::Tool("tar")]) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    make_tree(&dir.path().join("tree"), true);
    let out = testkit::command("tar")
        .args(["-cSf", "-", "--format=posix", "--sort=name", "--xattrs", "--directory"])
        .arg(dir.path())
        .args(["tree/sparse", "tree/dir", "tree/long link"])
        .output()
        .unwrap();
    assert!(out.status.success());
    Some(out.stdout)
}

#[test]
fn zstd_windows_are_limited() {
    // A frame header that announces a window of 2^40 bytes.
    let error = stream(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 30 << 3, 1, 0, 0]).unwrap_err();
    assert!(error.is_archive_fault() && error.to_string().contains("indow"), "{error}");
}

/// Updates the checksum of the header at `at`, so that the code behind it is reached.
fn repair(archive: &mut [u8], at: usize) {
    let Some(header) = archive.get_mut(at..at + 512) else { return };
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[test]
fn no_mutation_panics_or_hangs() {
    let archives: Vec<_> =
        [Some(small_archive()), sparse_archive()].into_iter().flatten().collect();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(
        testkit::effort(200, 600, 50_000),
    ));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let strategy = (0..archives.len(), edits);
    runner
        .run(&strategy, |(which, edits)| {
            let mut archive = archives[which].clone();
            for (index, byte) in edits {
                // Damage in headers has more effect, and most of them are near the start.
                let at = index.index(archive.len().min(8192));
                archive[at] = byte;
                repair(&mut archive, at / 512 * 512);
            }
            if let Err(error) = stream(archive) {
                prop_assert!(error.is_archive_fault(), "{error}");
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_mutation_of_compressed_bytes_panics() {
    let archive = sparse_archive().unwrap_or_else(small_archive);
    let start = &archive[..archive.len().min(40_000)];
    let compressed = [gzip(start), zstd(start)];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(
        testkit::effort(100, 300, 25_000),
    ));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    runner
        .run(&(0..compressed.len(), edits), |(which, edits)| {
            let mut bytes = compressed[which].clone();
            for (index, byte) in edits {
                let at = 4 + index.index(bytes.len() - 4);
                bytes[at] = byte;
            }
            if let Err(error) = stream(bytes) {
                prop_assert!(error.is_archive_fault(), "{error}");
            }
            Ok(())
        })
        .unwrap();
}
