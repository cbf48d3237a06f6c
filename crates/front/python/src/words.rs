//! Translation of engine messages for Python: command-line options become keyword arguments.

use std::borrow::Cow;

/// Phrases with their translations, in order of application.
const PHRASES: [(&str, &str); 17] = [
    (
        "run diskwright check for the damage, or diskwright extract --salvage to read the files",
        "run diskwright.check for the damage, or diskwright.open(..., salvage=True) to read the files",
    ),
    (
        "diskwright check and extract --salvage search for superblock copies",
        "diskwright.check and diskwright.open(..., salvage=True) search for superblock copies",
    ),
    ("use --partition or --offset", "use partition= or offset="),
    ("--partition N", "partition=N"),
    ("--offset is past", "offset is past"),
    ("try --offset ", "try offset="),
    ("that --offset ", "that offset="),
    ("--fs xfs", "fs=\"xfs\""),
    ("--size and --inodes", "size= and inodes="),
    ("such a --size", "such a size="),
    ("leave --partition out", "leave partition= out"),
    ("use --force", "use force=True"),
    ("--norecovery", "norecovery=True"),
    ("--salvage", "salvage=True"),
    ("--small", "small=True"),
    ("--lazy", "a lazy unmount"),
    ("diskwright mount --help lists", "docs/mount.md lists"),
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
