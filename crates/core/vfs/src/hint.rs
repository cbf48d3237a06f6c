//! Hints in messages: options of the running program.
//!
//! An error contains a [`Setting`] or a [`Hint`], not the name of an option. Their text is that of the command line of
//! `diskwright` unless the program [provides](provide) its own, so a message can be reworded without losing its hint.

use std::fmt::{self, Display, Formatter};
use std::sync::OnceLock;

/// A setting of the user: an option of the command line, or an argument of a function.
///
/// `{}` formats its name, and `{:#}` also a placeholder for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    name: &'static str,
    value: &'static str,
}

impl Setting {
    /// Access by programs of all users of the host.
    pub const ALL_USERS: Self = Self::new("all-users");
    /// Use of a file named by a disk image.
    pub const ALLOW_DATA_FILES: Self = Self::new("allow-data-files");
    /// File with a key of encrypted files and directories.
    pub const FSCRYPT_KEY_FILE: Self = Self::with_value("fscrypt-key-file", "FILE");
    /// Replacement of existing files.
    pub const FORCE: Self = Self::new("force");
    /// Unmounting of a mount in use.
    pub const LAZY: Self = Self::new("lazy");
    /// Device of the log or journal.
    pub const LOG_DEVICE: Self = Self::with_value("log-device", "FILE");
    /// Reading without recovery.
    pub const NORECOVERY: Self = Self::new("norecovery");
    /// Start of the image in its file.
    pub const OFFSET: Self = Self::new("offset");
    /// File for the changes of a mounted image.
    pub const OVERLAY: Self = Self::with_value("overlay", "FILE");
    /// Partition of the image.
    pub const PARTITION: Self = Self::with_value("partition", "N");
    /// Device of realtime files.
    pub const REALTIME_DEVICE: Self = Self::with_value("rt-device", "FILE");
    /// Size of the image.
    pub const SIZE: Self = Self::new("size");
    /// Number of inodes.
    pub const INODES: Self = Self::new("inodes");
    /// Permission for small XFS images.
    pub const SMALL: Self = Self::new("small");
    /// Format of the image.
    pub const FORMAT: Self = Self::with_value("fs", "xfs");

    /// Creates the setting of an option, named without dashes.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: "" }
    }

    const fn with_value(name: &'static str, value: &'static str) -> Self {
        Self { name, value }
    }

    /// Returns the placeholder for its value, or nothing.
    #[must_use]
    pub const fn value(self) -> &'static str {
        self.value
    }

    /// Returns the name of the option, without dashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// Advice that names settings or commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Choose one of the partitions that the message lists.
    ChooseListed,
    /// Choose a partition.
    ChoosePartition,
    /// Choose the part of a disk that contains the image.
    ChoosePart,
    /// Choose the start of the partition.
    ChooseStart,
    /// Use this offset.
    Offset(u64),
    /// Omit the setting.
    LeaveOut(Setting),
    /// Use the setting, with a value.
    Use(Setting),
    /// Name the device of the log or journal, or read without it. The field is the term for it.
    NameLog(&'static str),
    /// Read the image without recovery, or repair it.
    NoRecoveryOrRepair,
    /// Check the image, or read its files by salvage.
    CheckOrSalvage,
    /// Read the files of a damaged image.
    Salvage,
    /// The image is damaged: a check and salvage search for superblock copies.
    SearchCopies,
    /// The image is part of a disk, or damaged.
    PartOrDamaged,
    /// List of the mount options.
    MountOptions,
}

/// Advice of an error: text, followed by a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    text: &'static str,
    hint: Option<Hint>,
}

impl Advice {
    /// Creates advice without a hint.
    #[must_use]
    pub const fn text(text: &'static str) -> Self {
        Self { text, hint: None }
    }

    /// Creates advice that is a hint.
    #[must_use]
    pub const fn hint(hint: Hint) -> Self {
        Self::before("", hint)
    }

    /// Creates advice that ends in a hint.
    #[must_use]
    pub const fn before(text: &'static str, hint: Hint) -> Self {
        Self { text, hint: Some(hint) }
    }

    /// Returns whether the advice is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty() && self.hint.is_none()
    }
}

impl From<&'static str> for Advice {
    fn from(text: &'static str) -> Self {
        Self::text(text)
    }
}

impl From<Hint> for Advice {
    fn from(hint: Hint) -> Self {
        Self::hint(hint)
    }
}

impl Display for Advice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)?;
        self.hint.map_or(Ok(()), |hint| hint.fmt(f))
    }
}

/// Words of a program for settings and hints. `None` selects those of `diskwright`.
#[derive(Clone, Copy)]
pub struct Dialect {
    /// Returns the text of a setting, with a placeholder for its value if the second argument is true.
    pub setting: fn(Setting, bool) -> Option<String>,
    /// Returns the text of a hint.
    pub hint: fn(Hint) -> Option<String>,
}

static DIALECT: OnceLock<Dialect> = OnceLock::new();

/// Sets the words of this program for all messages. Returns false if they were set before.
pub fn provide(dialect: Dialect) -> bool {
    DIALECT.set(dialect).is_ok()
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let with_value = f.alternate() && !self.value.is_empty();
        match DIALECT.get().and_then(|dialect| (dialect.setting)(*self, with_value)) {
            Some(text) => f.write_str(&text),
            None if with_value => write!(f, "--{} {}", self.name, self.value),
            None => write!(f, "--{}", self.name),
        }
    }
}

impl Display for Hint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(text) = DIALECT.get().and_then(|dialect| (dialect.hint)(*self)) {
            return f.write_str(&text);
        }
        let (partition, offset) = (Setting::PARTITION, Setting::OFFSET);
        match self {
            Self::ChooseListed => write!(f, "choose one with {partition:#}"),
            Self::ChoosePartition => write!(f, "choose a partition with {partition:#}"),
            Self::ChoosePart => write!(f, "use {partition} or {offset}"),
            Self::ChooseStart => write!(f, "use {offset} with the start of the partition"),
            Self::Offset(bytes) => write!(f, "{offset} {bytes}"),
            Self::LeaveOut(setting) => write!(f, "leave {setting} out"),
            Self::Use(setting) => write!(f, "{setting:#}"),
            Self::NameLog(log) => write!(
                f,
                "name its device with {:#}, or read the image without its {log}: {}",
                Setting::LOG_DEVICE,
                Setting::NORECOVERY
            ),
            Self::NoRecoveryOrRepair => write!(
                f,
                "use {} to read the image anyway, or diskwright repair to repair it",
                Setting::NORECOVERY
            ),
            Self::CheckOrSalvage => f.write_str(
                "run diskwright check for the damage, or diskwright extract --salvage to read the files",
            ),
            Self::Salvage => f.write_str("diskwright extract --salvage"),
            Self::SearchCopies => f.write_str(
                "diskwright check and extract --salvage search for superblock copies",
            ),
            Self::PartOrDamaged => write!(
                f,
                "if it is inside a disk image, {}; if it is damaged, {}",
                Self::ChoosePart,
                Self::SearchCopies
            ),
            Self::MountOptions => f.write_str("diskwright mount --help lists all options"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_in_the_words_of_the_command_line_by_default() {
        for (hint, text) in [
            (Hint::ChooseListed, "choose one with --partition N"),
            (Hint::LeaveOut(Setting::LOG_DEVICE), "leave --log-device out"),
            (Hint::Offset(8192), "--offset 8192"),
            (Hint::Use(Setting::REALTIME_DEVICE), "--rt-device FILE"),
        ] {
            assert_eq!(hint.to_string(), text);
        }
        let advice = Advice::before("read it without its log: ", Hint::Use(Setting::NORECOVERY));
        assert_eq!(advice.to_string(), "read it without its log: --norecovery");
        assert_eq!(Advice::from("build it again").to_string(), "build it again");
    }
}
