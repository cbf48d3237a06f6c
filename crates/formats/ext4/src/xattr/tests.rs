//! Releasing the attributes of whole inodes within operations.

use operations::RunOperations;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use rustix::fs::{XattrFlags, lsetxattr};
use testkit::{Mke2fs, e2fsck, populate_with_kernel, require, scratch};
use vfs::path::LastLink;
use vfs::{Error, FileSystem, Paths, Result};

use crate::format::xattr::{AttributeName, NewAttribute, NewValue, encode_in_inode};
use crate::inode::Handle;
use crate::op::Op;
use crate::xattr;
use crate::{Ext4, OpenOptions};

/// Creates four files that share a block, whose entries refer to a value that a fifth file has too.
fn make(image: &Path) {
    let mke2fs = Mke2fs::new("ext4").block_size(1024).features("^has_journal,ea_inode");
    mke2fs.create(image, 8 << 20);
    populate_with_kernel(image, "ext4", |root| {
        for file in ["a", "b", "c", "d", "other"] {
            let path = root.join(file);
            File::create(&path).unwrap();
            let set = |name: &str, value: &[u8]| {
                lsetxattr(&path, name, value, XattrFlags::empty()).unwrap();
            };
            if file != "other" {
                set("user.fills-inode", &[1; 40]);
                set("user.block", &[2; 500]);
            }
            set("user.apart", &[3; 5000]);
        }
    });
}

fn open(image: &Path) -> Ext4 {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Ext4::open_writable(device, &OpenOptions::default()).unwrap()
}

/// Returns the totals of a closed image.
fn totals(image: &Path) -> vfs::StatFs {
    let device = Arc::new(FileDevice::new(File::open(image).unwrap()).unwrap());
    Ext4::open(device, &OpenOptions::default()).unwrap().statfs().unwrap()
}

fn load(fs: &Ext4, path: &str) -> Handle {
    fs.load(Paths::new(fs).resolve(path.as_bytes(), LastLink::Keep).unwrap()).unwrap()
}

/// Releases the attributes of files in one operation. The files stay, so their slots are cleared and the space of the
/// large value is subtracted.
fn release(fs: &Ext4, files: &[&str], expect_values: bool) -> Result<()> {
    let handles: Vec<_> = files.iter().map(|file| load(fs, file)).collect();
    let inodes: Vec<_> = handles.iter().map(Handle::ino).collect();
    let _locks = fs.locks.exclusive(&inodes);
    let values = fs.attributes_guard(&handles.iter().collect::<Vec<_>>())?;
    let values = values.filter(|_| expect_values);
    fs.atomically(|op: &mut Op<'_>| {
        for handle in &handles {
            let mut handle = *handle;
            op.release_attributes(&mut handle, values.as_ref())?;
            op.subtract_clusters(&mut handle, 5)?;
            let tail = vec![0; xattr::slot_tail(fs, &handle)?.len()];
            op.stage_with_tail(handle, tail);
        }
        Ok(())
    })
}

fn has_value(fs: &Ext4, file: &str) -> bool {
    match fs.get_xattr(load(fs, file).ino(), b"user.apart") {
        Ok(value) => value == [3; 5000],
        Err(Error::NoAttribute) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn shared_blocks_and_values_go_with_the_last_inode() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    make(&image);
    // One at a time, two at a time, and all together: the block is then freed within one operation.
    let ways: [&[&[&str]]; 4] = [
        &[&["a"], &["b"], &["c"], &["d"], &["other"]],
        &[&["a", "b"], &["other"], &["c", "d"]],
        &[&["d", "other", "b"], &["a", "c"]],
        &[&["a", "b", "c", "d", "other"]],
    ];
    for way in ways {
        let copy = scratch.path().join("copy");
        std::fs::copy(&image, &copy).unwrap();
        let before = totals(&copy);
        let mut gone = Vec::new();
        for files in way {
            let fs = open(&copy);
            assert!(release(&fs, files, false).is_err(), "values need the guard");
            release(&fs, files, true).unwrap();
            gone.extend_from_slice(files);
            for file in ["a", "b", "c", "d", "other"] {
                assert_eq!(has_value(&fs, file), !gone.contains(&file), "{way:?}, {file}");
            }
            fs.close().unwrap();
            e2fsck(&copy);
        }
        let after = totals(&copy);
        assert_eq!(after.blocks_free - before.blocks_free, 1 + 5, "{way:?}");
        assert_eq!(after.inodes_free - before.inodes_free, 1, "{way:?}");
    }
}

#[test]
fn one_block_of_two_inodes_that_counts_one_is_refused() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    make(&image);
    let fs = open(&image);
    for file in ["b", "c", "d"] {
        release(&fs, &[file], true).unwrap();
    }
    // A value of this field that occurs only in a damaged image.
    let mut other = load(&fs, "other");
    other.inode.set_file_acl(load(&fs, "a").inode.file_acl());
    fs.atomically(|op| {
        op.stage(other);
        Ok(())
    })
    .unwrap();
    let before = fs.statfs().unwrap();
    let refused = release(&fs, &["a", "other"], true);
    assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    assert_eq!(fs.statfs().unwrap(), before);
    assert!(has_value(&fs, "a") && has_value(&fs, "other"));
}

#[test]
fn the_attribute_of_inline_data_goes_alone() {
    require!(Tool("mke2fs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").features("^has_journal,inline_data").create(&image, 8 << 20);
    let fs = open(&image);
    let handle = fs.load(fs.root()).unwrap();
    let other = NewAttribute {
        name: AttributeName { index: 1, suffix: b"stays" },
        value: NewValue::Here(b"value"),
    };
    let inline = NewAttribute { name: AttributeName::INLINE_DATA, value: NewValue::Here(b"rest") };
    let written = |all: &mut [NewAttribute<'_>]| {
        let mut tail = vec![0; 96];
        assert!(encode_in_inode(&mut tail, all));
        tail
    };
    for (with, without) in [
        (written(&mut [inline, other]), written(&mut [other])),
        (written(&mut [inline]), vec![0; 96]),
        (written(&mut [other]), written(&mut [other])),
        (vec![0; 96], vec![0; 96]),
    ] {
        fs.atomically(|op| {
            op.stage_with_tail(handle, with.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(fs.tail_without_inline_data(&handle).unwrap(), without);
    }
}
