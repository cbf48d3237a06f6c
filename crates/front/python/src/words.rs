//! Words of Python for settings and hints of engine messages: keyword arguments, and functions of the package.

use diskwright::hint::{Dialect, Hint, Setting, provide};

/// Options whose keyword argument has the same name, with underscores.
const ARGUMENTS: [&str; 10] = [
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

/// Makes messages of the engine name arguments.
pub(crate) fn speak_python() {
    provide(Dialect { setting, hint });
}

fn setting(setting: Setting, with_value: bool) -> Option<String> {
    Some(match setting {
        Setting::FORCE => "force=True".to_owned(),
        Setting::NORECOVERY => "norecovery=True".to_owned(),
        Setting::SMALL => "small=True".to_owned(),
        Setting::FSCRYPT_KEY_FILE => "diskwright cat --fscrypt-key-file FILE".to_owned(),
        Setting::LAZY => "a lazy unmount".to_owned(),
        Setting::FORMAT => "fs=\"xfs\"".to_owned(),
        Setting::PARTITION if with_value => "partition=N".to_owned(),
        other if ARGUMENTS.contains(&other.name()) => {
            format!("{}=", other.name().replace('-', "_"))
        }
        _ => return None,
    })
}

fn hint(hint: Hint) -> Option<String> {
    Some(match hint {
        Hint::Offset(bytes) => format!("offset={bytes}"),
        Hint::CheckOrSalvage => "run diskwright.check for the damage, or diskwright.open(..., \
                                 salvage=True) to read the files"
            .to_owned(),
        Hint::Salvage => "diskwright.open(..., salvage=True)".to_owned(),
        Hint::SearchCopies => "diskwright.check and diskwright.open(..., salvage=True) search for \
                               superblock copies"
            .to_owned(),
        Hint::MountOptions => "docs/mount.md lists all options".to_owned(),
        _ => return None,
    })
}
