//! Trees with all kinds of files, copied in and out by tar and cp.

use std::fs;
use std::path::Path;

use testkit::{Ignore, Sample, Tree, assert_same, sample_tree};

use crate::place::{Format, Place, has_compiler, prove_on_both, shell};

fn sample(place: &Place) -> Sample {
    let sample = if place.format() == Format::Xfs { Sample::for_xfs() } else { Sample::default() };
    Sample { wide_names: 1500, depth: 40, ..sample }
}

/// Creates a tree with hard links, sparse files, ACLs, attributes, devices and names that an
/// archive must preserve.
fn make(place: &Place) -> std::path::PathBuf {
    let source = place.home().join("source");
    fs::create_dir(&source).unwrap();
    let skipped = sample_tree(&source, &sample(place));
    assert!(skipped.is_empty(), "{skipped:?}");
    source
}

/// Properties that kernels do not preserve, and those that the kernel's XFS shows twice.
fn usual() -> Ignore {
    Ignore {
        paths: vec![b"times/-2147483648.000000001", b"times/15032385535.999999999"],
        xattr_prefixes: vec![b"trusted.SGI_ACL_"],
        ..Ignore::default()
    }
}

fn compare(expected: &Path, found: &Path, ignore: &Ignore) {
    assert_same(&Tree::of(expected), &Tree::of(found), ignore);
}

const TAR: &str = "tar --xattrs --xattrs-include='*' --acls --sparse --format=posix";

fn tar_brings_trees_in_and_out(place: &mut Place) {
    let source = make(place);
    let home = place.home().to_owned();
    shell(&home, &format!("{TAR} -C source -cf all.tar ."));
    fs::create_dir(place.join("in")).unwrap();
    shell(place.path(), &format!("{TAR} --same-owner -p -C in -xf {}/all.tar", home.display()));
    let mut ignore = Ignore { holes: true, root: true, ..usual() };
    // tar does not store sockets or hard links of special files.
    let sockets = shell(&source, "find . -type s -printf '%P\\n'");
    ignore.paths.extend(sockets.lines().map(|path| &*path.to_owned().into_bytes().leak()));
    ignore.paths.extend([b"links/fifo".as_slice(), b"links/other/fifo"]);
    compare(&source, &place.join("in"), &ignore);
    place.remount();
    compare(&source, &place.join("in"), &ignore);
    // And out again, read through the mount.
    fs::create_dir(home.join("out")).unwrap();
    let command =
        format!("{TAR} -C in -cf - . | {TAR} --same-owner -p -C {}/out -xf -", home.display());
    shell(place.path(), &command);
    compare(&source, &home.join("out"), &ignore);
    shell(place.path(), "rm -rf in");
}

fn cp_copies_trees_within(place: &mut Place) {
    let source = make(place);
    shell(place.path(), &format!("cp -a {} first", source.display()));
    shell(place.path(), "cp -a first second; mv first third");
    let ignore = Ignore { holes: true, ..usual() };
    compare(&source, &place.join("second"), &ignore);
    place.remount();
    compare(&source, &place.join("second"), &ignore);
    compare(&source, &place.join("third"), &ignore);
    // Without dirty data in a cache, holes are those of the source.
    place.unmount();
    place.mount_read_only();
    compare(&source, &place.join("second"), &Ignore { root: true, ..usual() });
}

/// An existing tree of the system: thousands of small files.
fn many_small_files_are_copied(place: &mut Place) {
    if !has_compiler("many_small_files_are_copied") {
        return;
    }
    let source = Path::new("/usr/include");
    shell(
        place.path(),
        "tar --format=posix -C /usr/include -cf - . | (mkdir include && tar -C include -xf -)",
    );
    shell(place.path(), "diff -r --no-dereference /usr/include include");
    place.remount();
    let ignore = Ignore { holes: true, root: true, xattrs: true, ..Ignore::default() };
    compare(source, &place.join("include"), &ignore);
}

prove_on_both!(tar_brings_trees_in_and_out, cp_copies_trees_within, many_small_files_are_copied,);
