//! Translation of engine messages for Python: command-line options become keyword arguments.

use std::borrow::Cow;

/// Phrases with their translations, in order of application.
const PHRASES: [(&str, &str); 19] = [
    (
        "diskwright check names the damage, diskwright extract --salvage reads the files",
        "diskwright.check names the damage, diskwright.open(..., salvage=True) reads the files",
    ),
    (
        "diskwright check and extract --salvage look for copies of the superblock",
        "diskwright.check and diskwright.open(..., salvage=True) look for copies of the superblock",
    ),
    (
        "diskwright check and                      extract --salvage look",
        "diskwright.check and diskwright.open(..., salvage=True) look",
    ),
    ("use --partition or --offset", "use partition= or offset="),
    ("--partition N", "partition=N"),
    ("--offset lies", "offset lies"),
    ("try --offset ", "try offset="),
    ("that --offset ", "that offset="),
    ("--fs xfs", "fs=\"xfs\""),
    ("--size and --inodes", "size= and inodes="),
    ("such a --size", "such a size="),
    ("with --size min", "with size=\"min\""),
    ("leave --partition out", "leave partition= out"),
    ("use --force", "use force=True"),
    ("with --norecovery", "with norecovery=True"),
    ("--salvage", "salvage=True"),
    ("--small", "small=True"),
    ("--lazy", "a lazy unmount"),
    ("diskwright mount --help has", "docs/mount.md has"),
];

/// Options whose keyword argument has the same name, with underscores.
const OPTIONS: [&str; 10] = [
    "size",
    "inodes",
    "inode-size",
    "block-size",
    "label",
    "dedupe",
    "platform",
    "partition",
    "offset",
    "owner",
];

/// Translates a message for Python.
pub(crate) fn in_python(text: &str) -> Cow<'_, str> {
    if !text.contains("--") {
        return text.into();
    }
    let mut text = text.to_owned();
    for (phrase, translation) in PHRASES {
        text = text.replace(phrase, translation);
    }
    for option in OPTIONS {
        text = text.replace(&format!("--{option}"), &format!("{}=", option.replace('-', "_")));
    }
    text.into()
}
