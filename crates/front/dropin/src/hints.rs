//! Hints of library messages, in the options of the running program.
//!
//! Libraries name [settings](Setting) and [hints](Hint). Other programs than `diskwright` have other options for them,
//! or none.

use std::sync::OnceLock;

use vfs::hint::{Dialect, Hint, Setting, provide};

/// Settings with a command of `diskwright` that has each.
const COMMANDS: [(Setting, &str); 8] = [
    (Setting::ALLOW_DATA_FILES, "ls"),
    (Setting::FSCRYPT_KEY_FILE, "ls"),
    (Setting::LOG_DEVICE, "ls"),
    (Setting::NORECOVERY, "ls"),
    (Setting::OFFSET, "ls"),
    (Setting::OVERLAY, "mount"),
    (Setting::PARTITION, "ls"),
    (Setting::REALTIME_DEVICE, "ls"),
];

/// Hint of programs without an option for a partition.
const ATTACH: &str = "attach the partition first (losetup -P)";

/// The running program.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Makes messages use the options of a drop-in program.
pub(crate) fn speak_as(program: &'static str) {
    let _ = PROGRAM.set(program);
    provide(Dialect {
        setting: |setting, with_value| setting_of(running(), setting, with_value),
        hint: |hint| hint_of(running(), hint),
    });
}

fn running() -> &'static str {
    PROGRAM.get().copied().unwrap_or_default()
}

/// Returns whether a program is a helper of mount(8), and whether it has options of mounts.
fn mount_options(program: &str) -> (bool, bool) {
    let is_helper = matches!(program, "mount.diskwright" | "mount.fuse.diskwright");
    (is_helper, is_helper || program == "fuse2fs")
}

/// Returns the option of a program for the device of the log or journal, with its value.
fn log_device(program: &str) -> Option<&'static str> {
    Some(match program {
        "e2fsck" | "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => "-j FILE",
        "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" | "tune2fs" => "-J device=FILE",
        "xfs_repair" | "fsck.xfs" => "-l FILE",
        "mkfs.xfs" => "-l logdev=FILE",
        "xfs_admin" => "its name after that of the image",
        _ => return None,
    })
}

/// Returns the option of a program for the device of the realtime section, with its value.
fn realtime_device(program: &str) -> Option<&'static str> {
    Some(match program {
        "xfs_repair" | "fsck.xfs" => "-r FILE",
        "mkfs.xfs" => "-r rtdev=FILE",
        "xfs_growfs" => "--rt-device FILE",
        _ => return None,
    })
}

/// Returns the option of a program for another device of the file system, with its value.
fn other_device(program: &str, setting: Setting) -> Option<&'static str> {
    match setting {
        Setting::LOG_DEVICE => log_device(program),
        Setting::REALTIME_DEVICE => realtime_device(program),
        _ => None,
    }
}

/// Returns the text of a hint in a drop-in program, or `None` if it follows from the settings.
pub fn hint_of(program: &str, hint: Hint) -> Option<String> {
    let (is_helper, mounts) = mount_options(program);
    Some(match hint {
        Hint::ChooseListed | Hint::ChoosePartition | Hint::ChoosePart if !is_helper => {
            ATTACH.to_owned()
        }
        Hint::ChoosePart => "use -o partition=N or -o offset=BYTES".to_owned(),
        Hint::ChooseStart if mounts => {
            "use -o offset=BYTES with the start of the partition".to_owned()
        }
        Hint::Offset(bytes) if mounts => format!("-o offset={bytes}"),
        _ => return None,
    })
}

/// Returns the text of a setting in a drop-in program, with a placeholder for its value if asked for.
pub fn setting_of(program: &str, setting: Setting, with_value: bool) -> Option<String> {
    let own = match other_device(program, setting) {
        Some(own) if with_value => Some(own),
        Some(own) => own.split_whitespace().next().filter(|word| word.starts_with('-')),
        None if mount_options(program).1 => mount_option(setting, with_value),
        None => None,
    };
    own.map(str::to_owned).or_else(|| of_diskwright(setting, with_value))
}

/// Returns the option of mount(8) for a setting.
fn mount_option(setting: Setting, with_value: bool) -> Option<&'static str> {
    Some(match setting {
        Setting::NORECOVERY => "-o norecovery",
        Setting::PARTITION if with_value => "-o partition=N",
        Setting::PARTITION => "partition=",
        Setting::OFFSET => "offset=",
        Setting::LOG_DEVICE if with_value => "-o logdev=FILE",
        Setting::LOG_DEVICE => "logdev=",
        Setting::REALTIME_DEVICE if with_value => "-o rtdev=FILE",
        Setting::REALTIME_DEVICE => "rtdev=",
        _ => return None,
    })
}

/// Returns a command of `diskwright` with the setting, for programs that do not have it.
pub fn of_diskwright(setting: Setting, with_value: bool) -> Option<String> {
    let (_, command) = COMMANDS.iter().find(|(named, _)| *named == setting)?;
    let value = if with_value { setting.value() } else { "" };
    let space = if value.is_empty() { "" } else { " " };
    Some(format!("diskwright {command} --{}{space}{value}", setting.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_options_of_the_program() {
        for (program, setting, own) in [
            ("mount.diskwright", Setting::PARTITION, "-o partition=N"),
            ("mount.fuse.diskwright", Setting::NORECOVERY, "-o norecovery"),
            ("fuse2fs", Setting::NORECOVERY, "-o norecovery"),
            ("mount.diskwright", Setting::LOG_DEVICE, "-o logdev=FILE"),
            ("e2fsck", Setting::NORECOVERY, "diskwright ls --norecovery"),
            ("e2fsck", Setting::LOG_DEVICE, "-j FILE"),
            ("xfs_repair", Setting::LOG_DEVICE, "-l FILE"),
            ("xfs_repair", Setting::REALTIME_DEVICE, "-r FILE"),
            ("xfs_growfs", Setting::REALTIME_DEVICE, "--rt-device FILE"),
            ("xfs_admin", Setting::REALTIME_DEVICE, "diskwright ls --rt-device FILE"),
            ("mount.diskwright", Setting::REALTIME_DEVICE, "-o rtdev=FILE"),
            ("tune2fs", Setting::LOG_DEVICE, "-J device=FILE"),
            ("dumpe2fs", Setting::LOG_DEVICE, "diskwright ls --log-device FILE"),
            ("e2fsck", Setting::OVERLAY, "diskwright mount --overlay FILE"),
        ] {
            assert_eq!(setting_of(program, setting, true).as_deref(), Some(own), "{program}");
        }
        assert_eq!(setting_of("e2fsck", Setting::LOG_DEVICE, false).as_deref(), Some("-j"));
        assert_eq!(
            setting_of("mount.diskwright", Setting::OFFSET, false).as_deref(),
            Some("offset=")
        );
        assert_eq!(setting_of("e2fsck", Setting::FORCE, false), None);
    }

    #[test]
    fn partitions_are_chosen_by_options_or_attached() {
        for (program, hint, own) in [
            ("mount.diskwright", Hint::ChooseListed, None),
            ("mount.diskwright", Hint::ChoosePart, Some("use -o partition=N or -o offset=BYTES")),
            ("mount.diskwright", Hint::Offset(8192), Some("-o offset=8192")),
            ("fuse2fs", Hint::ChooseListed, Some(ATTACH)),
            ("e2fsck", Hint::ChoosePart, Some(ATTACH)),
            ("e2fsck", Hint::Offset(8192), None),
        ] {
            assert_eq!(hint_of(program, hint).as_deref(), own, "{program} {hint:?}");
        }
    }
}
