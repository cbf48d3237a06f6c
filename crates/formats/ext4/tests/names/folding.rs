//! Case-insensitive directories: a name has several spellings, and one is stored.

use ext4::Ext4;
use testkit::{Mke2fs, require};
use vfs::{Error, FileAttributesChange, FileSystem, Ino, InodeFlags, RenameMode};

use super::common::{ImageFile, NEW, entries, later};

/// Creates an image with an empty case-insensitive directory. The directory passes through several formats, the inline
/// one if `features` enables it.
fn folding(features: &str, encoding: &str) -> (ImageFile, Ext4, Ino) {
    let mke2fs = Mke2fs::new("ext4").block_size(1024).features(&format!("casefold{features}"));
    let image = ImageFile::new(&mke2fs.arguments(["-I", "256", "-E", encoding]), 16);
    let fs = image.open();
    let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
    let change =
        FileAttributesChange { set: InodeFlags::CASEFOLD, ..FileAttributesChange::default() };
    fs.set_file_attributes(dir, &change).unwrap();
    (image, fs, dir)
}

fn spellings(fs: &Ext4, dir: Ino) -> Vec<String> {
    let name = |(name, _)| String::from_utf8(name).unwrap();
    entries(fs, dir).into_iter().map(name).collect()
}

/// Renames between spellings, in a directory with `others` further names.
fn respell(features: &str, others: usize) {
    let (image, fs, dir) = folding(features, "encoding=utf8");
    for number in 0..others {
        fs.create(dir, format!("another file {number}").as_bytes(), &NEW).unwrap();
    }
    let [new_file, new_dir] = ["Foo", "\u{c4}rger"];
    let file = fs.create(dir, new_file.as_bytes(), &NEW).unwrap();
    let below = fs.mkdir(dir, new_dir.as_bytes(), &NEW).unwrap();
    let rename = |from: &str, to: &str, mode| {
        fs.rename((dir, from.as_bytes()), (dir, to.as_bytes()), mode, later(1))
    };
    let is_there = |name: &str| spellings(&fs, dir).contains(&name.to_owned());
    for (ino, old, new) in [(file, new_file, "FOO"), (below, new_dir, "a\u{308}RGER")] {
        let links = fs.attributes(ino).unwrap().links;
        rename(old, new, RenameMode::Replace).unwrap();
        assert!(is_there(new) && !is_there(old), "{new}");
        assert_eq!(fs.lookup(dir, old.as_bytes()).unwrap(), ino);
        // As on Linux, nothing is moved if the name exists, or if both names are the same entry.
        assert!(matches!(rename(new, old, RenameMode::NoReplace), Err(Error::Exists)));
        rename(new, old, RenameMode::Exchange).unwrap();
        fs.rename_with_whiteout(
            (dir, new.as_bytes()),
            (dir, old.as_bytes()),
            RenameMode::Replace,
            &NEW,
            later(1),
        )
        .unwrap();
        rename(new, new, RenameMode::Replace).unwrap();
        // The old name may be given in a third spelling.
        rename(&old.to_lowercase(), old, RenameMode::Replace).unwrap();
        assert!(is_there(old) && !is_there(new), "{old}");
        rename(old, new, RenameMode::Replace).unwrap();
        assert!(is_there(new));
        assert_eq!(fs.attributes(ino).unwrap().links, links);
    }
    assert_eq!(entries(&fs, dir).len(), others + 2);
    // A replaced entry keeps its spelling.
    fs.create(dir, b"bar", &NEW).unwrap();
    rename("BAR", "foo", RenameMode::Replace).unwrap();
    assert!(is_there("FOO") && !is_there("bar"));
    assert!(matches!(fs.create(dir, b"fOO", &NEW), Err(Error::Exists)));
    fs.rename((dir, b"foo"), (fs.root(), b"Out"), RenameMode::Replace, later(1)).unwrap();
    assert!(matches!(fs.lookup(fs.root(), b"out"), Err(Error::NotFound)), "the root does not fold");
    assert!(fs.is_same_name(dir, b"Foo", b"fOO").unwrap());
    assert!(!fs.is_same_name(fs.root(), b"Foo", b"fOO").unwrap());
    image.close(fs);
}

#[test]
fn another_spelling_of_a_name_becomes_its_own() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (features, others) in [(",inline_data", 0), ("", 0), ("", 8), ("", 600)] {
        respell(features, others);
    }
}

#[test]
fn a_strict_encoding_takes_utf_8_only() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let odd = b"odd \xff name";
    for (encoding, is_strict) in
        [("encoding=utf8", false), ("encoding=utf8,encoding_flags=strict", true)]
    {
        let (image, fs, dir) = folding("", encoding);
        let made = [
            fs.create(dir, odd, &NEW).map(drop),
            fs.rename((fs.root(), b"lost+found"), (dir, odd), RenameMode::NoReplace, None),
            fs.create(fs.root(), odd, &NEW).map(drop),
        ];
        let as_expected = if is_strict {
            matches!(made, [Err(Error::Invalid(_)), Err(Error::Invalid(_)), Ok(())])
        } else {
            matches!(made, [Ok(()), Err(Error::Exists), Ok(())])
        };
        assert!(as_expected, "{encoding}: {made:?}");
        image.close(fs);
    }
}
