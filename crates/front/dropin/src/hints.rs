//! Hints of library messages, in the options of the running program.
//!
//! Libraries name options of most commands of `diskwright`. Other programs have other options, or none.

/// Options in library messages, with a command of `diskwright` that has each.
const OPTIONS: [(&str, &str); 6] = [
    ("--allow-data-files", "ls"),
    ("--log-device", "ls"),
    ("--norecovery", "ls"),
    ("--offset", "ls"),
    ("--overlay", "mount"),
    ("--partition", "ls"),
];

/// Commands that messages name before an option.
const COMMANDS: [&str; 4] = ["ls", "mount", "extract", "check"];

/// Hints for programs without an option for a partition.
const ATTACH: [(&str, &str); 3] = [
    ("choose one with --partition N", "attach the partition first (losetup -P)"),
    ("choose a partition with --partition N", "attach the partition first (losetup -P)"),
    ("use --partition or --offset", "attach the partition first (losetup -P)"),
];

/// Hints in the options of mount(8).
const MOUNT: [(&str, &str); 9] = [
    ("with --partition N", "with -o partition=N"),
    ("use --partition or --offset", "use -o partition=N or -o offset=BYTES"),
    ("leave --partition out", "leave partition= out"),
    ("--offset is past", "offset= is past"),
    ("use --offset with", "use -o offset=BYTES with"),
    ("--offset ", "-o offset="),
    ("--norecovery", "-o norecovery"),
    ("--log-device FILE", "-o logdev=FILE"),
    ("--rt-device FILE", "-o rtdev=FILE"),
];

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

/// Replaces the hints of a message by those of a drop-in program.
pub fn of_program(program: &str, message: &str) -> String {
    if !message.contains("--") {
        return message.into();
    }
    let is_helper = matches!(program, "mount.diskwright" | "mount.fuse.diskwright");
    let mut text = message.to_owned();
    let attach = if is_helper { &[][..] } else { &ATTACH };
    let mount = if is_helper || program == "fuse2fs" { &MOUNT[..] } else { &[] };
    for (hint, own) in attach.iter().chain(mount) {
        text = text.replace(hint, own);
    }
    if let Some(own) = log_device(program) {
        text = text.replace("--log-device FILE", own);
        if let Some(option) = own.split_whitespace().next().filter(|word| word.starts_with('-')) {
            text = text.replace("--log-device", option);
        }
    }
    qualify(&text, |_| false)
}

/// Names a command of `diskwright` before each option that the running program does not have.
pub fn qualify(message: &str, has: impl Fn(&str) -> bool) -> String {
    let mut text = message.to_owned();
    for (option, command) in OPTIONS.into_iter().filter(|(option, _)| !has(option)) {
        let mut qualified = String::new();
        let mut rest = &*text;
        while let Some((before, after)) = rest.split_once(option) {
            qualified.push_str(before);
            let last = qualified.split_whitespace().next_back().unwrap_or_default();
            let is_longer = after.starts_with(|next: char| next == '-' || next.is_alphanumeric());
            if !is_longer && !COMMANDS.contains(&last) {
                qualified.push_str("diskwright ");
                qualified.push_str(command);
                qualified.push(' ');
            }
            qualified.push_str(option);
            rest = after;
        }
        qualified.push_str(rest);
        text = qualified;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: &str = "a disk with partitions; choose one with --partition N";
    const WHOLE: &str = "if it is inside a disk image, use --partition or --offset";
    const LOG: &str = "an external log; name its device with --log-device FILE";
    const LOCKED: &str = "wait for it, or read the current state with --norecovery";

    #[test]
    fn hints_are_in_options_of_the_program() {
        for (program, message, own) in [
            ("mount.diskwright", DISK, "choose one with -o partition=N"),
            ("mount.diskwright", WHOLE, "use -o partition=N or -o offset=BYTES"),
            ("mount.fuse.diskwright", LOCKED, "state with -o norecovery"),
            ("mount.diskwright", "so try --offset 8192", "so try -o offset=8192"),
            ("mount.diskwright", "--offset is past the end", "offset= is past the end"),
            ("fuse2fs", DISK, "attach the partition first (losetup -P)"),
            ("fuse2fs", LOCKED, "state with -o norecovery"),
            ("e2fsck", DISK, "attach the partition first (losetup -P)"),
            ("e2fsck", LOCKED, "state with diskwright ls --norecovery"),
            ("e2fsck", LOG, "name its device with -j FILE"),
            ("xfs_repair", LOG, "name its device with -l FILE"),
            ("tune2fs", LOG, "name its device with -J device=FILE"),
            ("mount.diskwright", LOG, "name its device with -o logdev=FILE"),
            ("e2fsck", "leave --log-device out", "leave -j out"),
            ("dumpe2fs", LOG, "name its device with diskwright ls --log-device FILE"),
        ] {
            let text = of_program(program, message);
            assert!(text.ends_with(own), "{program}: {text}");
        }
    }

    #[test]
    fn options_of_another_command_are_named_with_it() {
        assert_eq!(qualify(LOCKED, |_| true), LOCKED);
        let there = "name an overlay that mount --overlay made; see --partition-type";
        assert_eq!(qualify(there, |_| false), there);
        let both = "use --partition or --offset";
        assert_eq!(
            qualify(both, |option| option == "--partition"),
            "use --partition or diskwright ls --offset"
        );
    }
}
