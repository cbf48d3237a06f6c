//! Table of programs and their names.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use crate::failure::Ended;
use crate::invoked::{Invoked, lost_output, say};
#[cfg(target_os = "linux")]
use crate::mount;
use crate::supported::{self, Options};
use crate::{
    android, blkid, debugfs, dumpe2fs, e2fsck, hints, mke2fs, mkfs_xfs, resize2fs, tune2fs,
    xfs_admin, xfs_growfs, xfs_repair,
};

/// Argument that lists the supported options.
const SUPPORTED: &str = "--supported";

/// Program that replaces one of e2fsprogs, xfsprogs or others.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    run: fn(Vec<OsString>, &Invoked) -> Ended,
    options: &'static Options,
}

/// All programs.
static PROGRAMS: &[Program] = &[
    Program { name: "mke2fs", run: mke2fs::run, options: &supported::MKE2FS },
    Program { name: "mkfs.ext2", run: mke2fs::run, options: &supported::MKE2FS },
    Program { name: "mkfs.ext3", run: mke2fs::run, options: &supported::MKE2FS },
    Program { name: "mkfs.ext4", run: mke2fs::run, options: &supported::MKE2FS },
    Program { name: "mkfs.xfs", run: mkfs_xfs::run, options: &supported::MKFS_XFS },
    Program { name: "e2fsck", run: e2fsck::run, options: &supported::E2FSCK },
    Program { name: "fsck.ext2", run: e2fsck::run, options: &supported::E2FSCK },
    Program { name: "fsck.ext3", run: e2fsck::run, options: &supported::E2FSCK },
    Program { name: "fsck.ext4", run: e2fsck::run, options: &supported::E2FSCK },
    Program { name: "xfs_repair", run: xfs_repair::run, options: &supported::XFS_REPAIR },
    Program { name: "fsck.xfs", run: xfs_repair::fsck, options: &supported::NONE },
    Program { name: "resize2fs", run: resize2fs::run, options: &supported::RESIZE2FS },
    Program { name: "xfs_growfs", run: xfs_growfs::run, options: &supported::XFS_GROWFS },
    Program { name: "dumpe2fs", run: dumpe2fs::run, options: &supported::DUMPE2FS },
    Program { name: "tune2fs", run: tune2fs::run, options: &supported::TUNE2FS },
    Program { name: "e2label", run: tune2fs::label, options: &supported::NONE },
    Program { name: "debugfs", run: debugfs::run, options: &supported::DEBUGFS },
    Program { name: "xfs_info", run: xfs_growfs::info, options: &supported::XFS_INFO },
    Program { name: "xfs_admin", run: xfs_admin::run, options: &supported::XFS_ADMIN },
    Program { name: "blkid", run: blkid::run, options: &supported::BLKID },
    Program { name: "make_ext4fs", run: android::make_ext4fs, options: &supported::MAKE_EXT4FS },
    Program { name: "e2fsdroid", run: android::e2fsdroid, options: &supported::E2FSDROID },
    #[cfg(target_os = "linux")]
    Program { name: "fuse2fs", run: mount::fuse2fs, options: &supported::FUSE2FS },
    #[cfg(target_os = "linux")]
    Program { name: "mount.diskwright", run: mount::helper, options: &supported::MOUNT },
    #[cfg(target_os = "linux")]
    Program { name: "mount.fuse.diskwright", run: mount::helper, options: &supported::MOUNT },
];

impl Program {
    /// Returns all programs.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROGRAMS.iter()
    }

    /// Returns the program for a name: the last component of the path by which it was called.
    pub fn called(path: &OsStr) -> Option<&'static Self> {
        let name = Path::new(path).file_name()?;
        PROGRAMS.iter().find(|program| name == program.name)
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the supported options and, for debugfs, requests.
    pub fn supported(&self) -> Vec<String> {
        let mut lines = self.options.written().collect::<Vec<_>>();
        if self.name == "debugfs" {
            lines.extend(debugfs::supported_requests());
        }
        if self.name == "tune2fs" {
            lines.extend(tune2fs::supported_names());
        }
        lines
    }

    /// Runs the program with arguments that do not include its name, and returns the exit status. Writes to standard
    /// output and standard error.
    pub fn run(&self, arguments: impl IntoIterator<Item = OsString>) -> u8 {
        hints::speak_as(self.name);
        let invoked = Invoked { name: self.name };
        let arguments = arguments.into_iter().collect::<Vec<_>>();
        if matches!(&*arguments, [only] if only == SUPPORTED) {
            self.supported().iter().for_each(|line| say(format_args!("{line}")));
            return self.check_output(0, true);
        }
        let is_report = self.is_report(&arguments);
        let ended = (self.run)(arguments, &invoked);
        let status = ended.unwrap_or_else(|failure| {
            let message = diskwright::text::safe(&failure.message);
            let _ = writeln!(io::stderr(), "{}: {message}", self.name);
            failure.status
        });
        self.check_output(status, is_report)
    }

    /// Returns whether the output is the result, rather than comments on a change or a check.
    fn is_report(&self, arguments: &[OsString]) -> bool {
        let has = |options: &[&str]| arguments.iter().any(|it| options.iter().any(|o| it == o));
        match self.name {
            "dumpe2fs" | "blkid" | "debugfs" | "xfs_info" => true,
            "e2label" => arguments.len() == 1,
            "tune2fs" => has(&["-l", "-V"]),
            "xfs_admin" => has(&["-l", "-u", "-V"]),
            "resize2fs" => has(&["-P", "-V"]),
            "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => has(&["-n", "-V"]),
            "mkfs.xfs" => has(&["-N", "-V"]),
            _ => has(&["-V"]),
        }
    }

    /// Reports lost output. The status of a change or a check is kept: the originals do not fail, and their callers
    /// would take an image for damaged.
    fn check_output(&self, status: u8, is_report: bool) -> u8 {
        let Some(error) = lost_output() else { return status };
        let reason = diskwright::closed_output::reason(error);
        let _ = writeln!(io::stderr(), "{}: cannot write the output: {reason}", self.name);
        if status == 0 && is_report { 1 } else { status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supported::List;

    #[test]
    fn programs_are_found_by_the_end_of_the_path() {
        let name = |path: &str| Program::called(OsStr::new(path)).map(Program::name);
        assert_eq!(name("/usr/sbin/mkfs.ext4"), Some("mkfs.ext4"));
        assert_eq!(name("e2fsck"), Some("e2fsck"));
        assert_eq!(name("diskwright"), None);
        assert_eq!(name("/mke2fs/x"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn each_name_is_there_once() {
        let mut names = Program::all().map(Program::name).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
    }

    /// Programs that execute others if their arguments are valid.
    const STARTS_OTHERS: [&str; 4] =
        ["blkid", "fuse2fs", "mount.diskwright", "mount.fuse.diskwright"];

    #[test]
    fn parsers_and_tables_agree() {
        let programs = Program::all().filter(|program| !STARTS_OTHERS.contains(&program.name));
        for program in programs.filter(|program| !program.options.works.is_empty()) {
            let invoked = Invoked { name: program.name };
            let name = program.name;
            for letter in ('a'..='z').chain('A'..='Z').filter(|letter| *letter != 'V') {
                let arguments = [format!("-{letter}"), "v".into(), "/nonexistent/image".into()];
                let ended = (program.run)(arguments.map(OsString::from).to_vec(), &invoked);
                let message = ended.map_or_else(|failure| failure.message, |_| String::new());
                let is_unknown = message.contains("unknown option");
                assert_eq!(is_unknown, !program.options.has(letter), "{name} -{letter}: {message}");
                let is_refused = message.contains(&format!("-{letter} is not supported"));
                // Some supported options reject this value.
                let must_be = program.options.refused.contains(letter);
                assert!(is_refused || !must_be, "{name} -{letter}: {message}");
            }
        }
    }

    #[test]
    fn parsers_and_lists_agree() {
        let names = || Program::all().flat_map(|program| program.options.lists);
        let mut all = names()
            .flat_map(|list| list.works.iter().chain(list.refused).copied())
            .collect::<Vec<_>>();
        all.extend(["sparkle", "^discard", "usrquota2"]);
        for program in Program::all() {
            let (invoked, name) = (Invoked { name: program.name }, program.name);
            for List { letter, works, refused } in program.options.lists {
                // Features are refused when the image is made: tests of the programs compare them.
                for item in all.iter().filter(|_| *letter != 'O') {
                    // The value of -p starts with a path.
                    let before = if *letter == 'p' { "file=p," } else { "" };
                    let list = format!("{before}{item}=v");
                    let arguments = [format!("-{letter}"), list, "/nonexistent/image".into()];
                    let ended = (program.run)(arguments.map(OsString::from).to_vec(), &invoked);
                    let message = ended.map_or_else(|failure| failure.message, |_| String::new());
                    let what = format!("{name} -{letter} {item}: {message}");
                    let is_known = works.contains(item) || refused.contains(item);
                    assert_eq!(message.contains("has no suboption"), !is_known, "{what}");
                    // Some supported names reject this value.
                    let is_refused = message.contains(&format!("{item} is not supported"));
                    assert!(is_refused || !refused.contains(item), "{what}");
                }
            }
        }
    }

    #[test]
    fn names_in_lists_are_listed_with_their_options() {
        for (name, lines) in [
            ("mke2fs", &["-E offset", "-J size"][..]),
            ("mkfs.xfs", &["-d agcount", "-l su", "-m reflink"]),
            ("tune2fs", &["-E hash_alg", "-Q ^usrquota"]),
        ] {
            let listed = Program::called(OsStr::new(name)).unwrap().supported();
            assert!(lines.iter().all(|line| listed.iter().any(|listed| listed == line)), "{name}");
            let refused = ["-O shared_blocks", "-r start"];
            assert!(!listed.iter().any(|line| refused.contains(&&**line)), "{name}");
        }
    }

    #[test]
    fn mount_options_of_tune2fs_match_its_parser() {
        let program = Program::called(OsStr::new("tune2fs")).unwrap();
        let lines = program.supported();
        let listed = |item: &str| lines.iter().any(|line| line == &format!("-o {item}"));
        for item in ["acl", "^acl", "journal_data", "^journal_data_writeback", "sparkle", "^quota"]
        {
            let arguments = ["-o", item, "/nonexistent/image"].map(OsString::from).to_vec();
            let message =
                (program.run)(arguments, &Invoked { name: "tune2fs" }).unwrap_err().message;
            assert_eq!(listed(item), !message.contains("has no suboption"), "{item}: {message}");
        }
        assert_eq!(lines.iter().filter(|line| line.starts_with("-o ")).count(), 24);
    }

    #[test]
    fn requests_are_listed_with_the_options() {
        let listed = Program::called(OsStr::new("debugfs")).unwrap().supported();
        for line in ["-w", "--strict", "set_inode_field", "sif", "logdump", "q"] {
            assert!(listed.iter().any(|listed| listed == line), "{line}");
        }
        assert!(!listed.iter().any(|line| line == "journal_write" || line == "-n"));
    }
}
