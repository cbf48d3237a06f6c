//! Conversion of the arguments to those of `diskwright mount`.

use std::ffi::OsString;

use crate::failure::{Failure, Statuses};
use crate::supported;
use crate::words::{Word, Words};

/// Requested mount.
#[derive(Debug, Default)]
pub(super) struct Args {
    operands: Vec<OsString>,
    /// `-o` options for the mount.
    options: Vec<String>,
    /// Arguments that are not `-o` options.
    others: Vec<String>,
    /// True to ignore unknown options.
    is_sloppy: bool,
    pub(super) foreground: bool,
    pub(super) is_trial: bool,
    pub(super) only_version: bool,
}

impl Args {
    /// Returns the arguments of `diskwright mount`.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = self.others.iter().map(OsString::from).collect();
        if self.foreground {
            arguments.push("--foreground".into());
        }
        if !self.options.is_empty() {
            arguments.extend(["-o".into(), self.options.join(",").into()]);
        }
        arguments.push("--".into());
        arguments.extend(self.operands.iter().cloned());
        arguments
    }

    /// Handles options of both programs that are separate arguments of `diskwright mount`.
    fn common(&mut self, word: &str) -> bool {
        match word.split_once('=').unwrap_or((word, "")) {
            ("offset", bytes) => self.others.push(format!("--offset={bytes}")),
            // A mount without recovery is read-only.
            ("norecovery" | "noload", "") => {
                self.others.push("--norecovery".into());
                self.options.push("ro".into());
            }
            _ => return false,
        }
        true
    }

    fn complete(self, statuses: Statuses) -> Result<Self, Failure> {
        if self.operands.len() == 2 || self.only_version {
            return Ok(self);
        }
        Err(statuses
            .usage("no image or directory given: add the image and the directory to mount it on"))
    }
}

/// `IMAGE DIRECTORY [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`.
pub(super) fn of_mount(arguments: Vec<OsString>, statuses: Statuses) -> Result<Args, Failure> {
    let mut args = Args::default();
    let mut words = Words::new(arguments, statuses, &supported::MOUNT);
    let mut lists = Vec::new();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => args.operands.push(operand),
            Word::Option('o') => lists.push(words.text()?),
            Word::Option('s') => args.is_sloppy = true,
            Word::Option('f') => args.is_trial = true,
            // Only the kernel's mount table is used, and the type is detected from the image.
            Word::Option('n' | 'v') => {}
            Word::Option('t') => drop(words.value()?),
            Word::Option('r') => args.options.push("ro".into()),
            Word::Option('w') => args.options.push("rw".into()),
            Word::Option('N') => {
                return Err(words.refused("enter the namespace with nsenter(1) first"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    for word in words_of(&lists) {
        args.word_of_mount(word);
    }
    args.complete(statuses)
}

/// Splits comma-separated lists into options.
fn words_of(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

impl Args {
    fn word_of_mount(&mut self, word: &str) {
        if self.common(word) {
            return;
        }
        match word.split_once('=') {
            Some(("partition", number)) => self.others.push(format!("--partition={number}")),
            Some(("log", file)) => self.others.push(format!("--log={file}")),
            // `user` mounts of /etc/fstab, which mount(8) records for umount(8).
            Some(("user" | "uhelper" | "helper", _)) => {}
            _ if self.is_sloppy && !is_known(word) => {}
            _ => self.options.push(word.into()),
        }
    }
}

/// Returns whether `diskwright mount -o` accepts the option.
fn is_known(word: &str) -> bool {
    diskwright::mount::MountOptions::default().apply(word).is_ok()
}

/// `[-dfs] [-o OPTIONS] IMAGE DIRECTORY`.
pub(super) fn of_fuse2fs(arguments: Vec<OsString>, statuses: Statuses) -> Result<Args, Failure> {
    let mut args = Args::default();
    let mut words = Words::new(arguments, statuses, &supported::FUSE2FS);
    let mut lists = Vec::new();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => args.operands.push(operand),
            Word::Option('o') => lists.push(words.text()?),
            Word::Option('f') => args.foreground = true,
            Word::Option('s') => args.options.push("threads=1".into()),
            Word::Option('V') => args.only_version = true,
            Word::Option('d') => {
                return Err(words.refused("kernel requests cannot be printed"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    for word in words_of(&lists) {
        args.word_of_fuse2fs(word, statuses)?;
    }
    args.complete(statuses)
}

impl Args {
    fn word_of_fuse2fs(&mut self, word: &str, statuses: Statuses) -> Result<(), Failure> {
        if self.common(word) {
            return Ok(());
        }
        let why = match word.split_once('=').unwrap_or((word, "")) {
            // This is the default here, and memory is allocated on demand.
            ("bsddf" | "acl" | "no_default_opts" | "cache_size" | "subtype", _) => return Ok(()),
            ("kernel", "") => {
                let like_the_kernel = ["allow_other", "default_permissions", "suid", "dev"];
                self.options.extend(like_the_kernel.map(String::from));
                return Ok(());
            }
            ("fakeroot", _) => {
                "the kernel checks permissions; use uid=N to show all files with one owner"
            }
            ("minixdf" | "noacl", _) => "it is always off",
            ("debug" | "fuse2fs_debug", _) => "kernel requests cannot be printed",
            ("lockfile", _) => "the image itself is always locked",
            ("directio", _) => "images always use the page cache of the host",
            ("errors", "panic") => "use errors=remount-ro or errors=continue",
            _ => {
                self.options.push(word.into());
                return Ok(());
            }
        };
        Err(statuses.refused(format_args!("-o {word}"), why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::STATUSES;

    fn shown(args: Result<Args, Failure>) -> String {
        let args = args.unwrap_or_else(|failure| panic!("{}", failure.message));
        let words = args.arguments();
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn arguments_of_mount_become_those_of_the_command() {
        let mount = |line: &str| shown(of_mount(words(line), STATUSES));
        assert_eq!(mount("a.img /mnt -o rw"), "-o rw -- a.img /mnt");
        assert_eq!(
            mount("a.img /mnt -n -t fuse.diskwright -o ro,partition=2,user=me,log=/l"),
            "--partition=2 --log=/l -o ro -- a.img /mnt"
        );
        assert_eq!(mount("-s a.img /mnt -o noatime,what"), "-o noatime -- a.img /mnt");
        assert_eq!(mount("a.img /mnt -o what,norecovery"), "--norecovery -o what,ro -- a.img /mnt");
        for wrong in ["a.img", "a b c", "a.img /mnt -N 1", "a.img /mnt -x", ""] {
            assert!(of_mount(words(wrong), STATUSES).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_of_fuse2fs_become_those_of_the_command() {
        let fuse2fs = |line: &str| shown(of_fuse2fs(words(line), STATUSES));
        assert_eq!(
            fuse2fs("-f -s -o offset=1048576,ro a.img /mnt -o allow_other,bsddf"),
            "--offset=1048576 --foreground -o threads=1,ro,allow_other -- a.img /mnt"
        );
        assert_eq!(
            fuse2fs("a.img /mnt -o kernel"),
            "-o allow_other,default_permissions,suid,dev -- a.img /mnt"
        );
        for word in ["fakeroot", "minixdf", "lockfile=/l", "errors=panic", "directio", "debug"] {
            let failure = of_fuse2fs(words(&format!("a /mnt -o {word}")), STATUSES).unwrap_err();
            assert!(failure.message.contains(word) && failure.message.contains("not supported"));
        }
    }
}
