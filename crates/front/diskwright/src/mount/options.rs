//! Mount options and their `-o` syntax.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use vfs::hint::{Advice, Hint, Setting};

use fuse::{AccessTimes, OnDamage};

use crate::OtherDevices;
use crate::build::Owner;

/// Default time between two syncs (`commit=`), as for ext4 in the kernel.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum number of threads for remote images, which is the number of concurrent requests to the server.
const THREADS_OF_PLACES: usize = 32;
/// Maximum number of threads.
const THREADS_MAX: usize = 256;

/// `/etc/fstab` options for mount(8) and other programs, which are ignored here.
const FSTAB_WORDS: &[&str] = &[
    "defaults", "auto", "noauto", "user", "users", "nouser", "nousers", "group", "nogroup",
    "noowner", "nofail", "_netdev",
];

/// Options of mount(8) and kernel file systems that describe the fixed behaviour of these mounts.
const ALWAYS_SO: &[&str] = &[
    // The kernel checks permissions and ACLs, and attributes are supported.
    "default_permissions",
    "acl",
    "user_xattr",
    // Times are written together with other changes, within `commit`.
    "lazytime",
    "nolazytime",
    // Caches are always flushed where required, and discard is never used.
    "barrier",
    "barrier=1",
    "nodiscard",
    "data=ordered",
    "inode64",
    "attr2",
    "noquota",
    // The opposites are rejected.
    "noiversion",
    "nomand",
];

/// Options of mount(8) that are not supported, with the reasons.
const REFUSED: &[(&str, Advice)] = &[
    ("remount", Advice::text("a mount cannot be changed; unmount it and mount it again")),
    ("bind", Advice::text("only images are mounted; to show a mount elsewhere, use mount --bind")),
    (
        "rbind",
        Advice::text("only images are mounted; to show a mount elsewhere, use mount --rbind"),
    ),
    ("move", Advice::text("only images are mounted; to move a mount, use mount --move")),
    ("loop", Advice::text("images need no loop device here; leave the option out")),
    ("mand", Advice::text("Linux removed mandatory locks in 5.15")),
    ("iversion", Advice::text("the kernel does not request inode versions from FUSE servers")),
    ("discard", Advice::text("freed space is not discarded on the device")),
    (
        "noload",
        Advice::before(
            "to read an image without its journal, use ro and ",
            Hint::Use(Setting::NORECOVERY),
        ),
    ),
    (
        "norecovery",
        Advice::before(
            "to read an image without its log, use ro and ",
            Hint::Use(Setting::NORECOVERY),
        ),
    ),
];

/// Options of a mount. The defaults are those of `diskwright mount` without `-o`.
///
/// The kernel always checks permissions (`default_permissions`) and ACLs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Mount read-only, without writing to the image.
    pub read_only: bool,
    /// Recover an image that was not cleanly closed even if the mount is read-only, as kernels do.
    pub recover: bool,
    /// Allow access by other users. Requires root, or `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Owner reported for all files.
    pub uid: Option<u32>,
    /// Group reported for all files.
    pub gid: Option<u32>,
    /// Allow ID-mapped mounts of this mount, if the kernel supports them (`X-mount.idmap` of mount(8)). Excludes `uid`
    /// and `gid`.
    pub idmap: bool,
    /// Stored owner of new files, instead of the caller.
    pub owner: Option<Owner>,
    /// Policy for access time updates.
    pub access_times: AccessTimes,
    /// Do not update the access time of a directory when it is listed.
    pub keep_directory_times: bool,
    /// Make every write durable before it returns.
    pub sync: bool,
    /// Make every directory change durable before it returns.
    pub dirsync: bool,
    /// Defer creates in large directories. The order of changes is then weaker, see
    /// [`ImageOptions::defer_creates`](crate::ImageOptions::defer_creates); the caller opens the image with that option.
    pub defer_creates: bool,
    /// Honour set-user-ID bits and capabilities. Requires root.
    pub suid: bool,
    /// Honour device nodes. Requires root.
    pub dev: bool,
    /// Allow execution of programs.
    pub exec: bool,
    /// Do not follow symbolic links. Requires root.
    pub nosymfollow: bool,
    /// Suppress messages that are not errors.
    pub silent: bool,
    /// Interval of automatic syncs; `None` disables them.
    pub sync_interval: Option<Duration>,
    /// Behaviour when damage is found.
    pub on_damage: OnDamage,
    /// Number of threads that answer requests. `None` selects one per processor, at least two, or at least 32 for
    /// remote images.
    pub threads: Option<usize>,
    /// Communicate with the kernel over io_uring, if permitted. Unless the mount is read-only, files then report no
    /// holes.
    pub io_uring: bool,
    /// Direct writes (`O_DIRECT`) of different parts of a file run at the same time. Each open(2) then takes longer, and
    /// `stat` shows the times of such a write only after the kernel has dropped the inode from its cache.
    pub parallel_direct: bool,
    /// Source name in `/proc/mounts`, instead of the path of the image. [`unmount`](super::unmount()) and messages
    /// about images in use then cannot identify the image.
    pub fs_name: Option<OsString>,
    /// Other devices of the image. The caller opens the image with them.
    pub devices: OtherDevices,
}

setters!(MountOptions {
    read_only: bool,
    recover: bool,
    allow_other: bool,
    uid: u32 = Some(uid),
    gid: u32 = Some(gid),
    idmap: bool,
    owner: Owner = Some(owner),
    access_times: AccessTimes,
    keep_directory_times: bool,
    sync: bool,
    dirsync: bool,
    defer_creates: bool,
    suid: bool,
    dev: bool,
    exec: bool,
    nosymfollow: bool,
    silent: bool,
    sync_interval: Option<Duration>,
    on_damage: OnDamage,
    threads: usize = Some(threads),
    io_uring: bool,
    parallel_direct: bool,
    fs_name: impl Into<OsString> = Some(fs_name.into()),
    devices: OtherDevices,
});

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            recover: false,
            allow_other: false,
            uid: None,
            gid: None,
            idmap: false,
            owner: None,
            access_times: AccessTimes::default(),
            keep_directory_times: false,
            sync: false,
            dirsync: false,
            defer_creates: false,
            suid: false,
            dev: false,
            exec: true,
            nosymfollow: false,
            silent: false,
            sync_interval: Some(SYNC_INTERVAL),
            on_damage: OnDamage::default(),
            threads: None,
            io_uring: false,
            parallel_direct: false,
            fs_name: None,
            devices: OtherDevices::default(),
        }
    }
}

impl MountOptions {
    /// Applies options in `-o` syntax: `ro,noatime,commit=30`. Later options override earlier ones.
    ///
    /// # Errors
    /// A message that names the first unknown option or invalid value. Options before it are applied.
    pub fn apply(&mut self, words: &str) -> Result<(), String> {
        words.split(',').filter(|word| !word.is_empty()).try_for_each(|word| self.set(word))?;
        if self.idmap && (self.uid.is_some() || self.gid.is_some()) {
            return Err("idmap: it cannot be combined with uid= or gid=".into());
        }
        Ok(())
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == word) {
            return Err(format!("{word}: {why}"));
        }
        if ALWAYS_SO.contains(&word) || FSTAB_WORDS.contains(&word) {
            return Ok(());
        }
        match word.split_once('=') {
            Some((name, value)) => self.set_value(word, name, value),
            None => self.set_flag(word),
        }
    }

    fn set_flag(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "recover" => self.recover = true,
            "norecover" => self.recover = false,
            "allow_other" => self.allow_other = true,
            "idmap" => self.idmap = true,
            "noidmap" => self.idmap = false,
            "noatime" => self.access_times = AccessTimes::Never,
            // These are the default.
            "relatime" | "atime" | "norelatime" | "nostrictatime" => {
                self.access_times = AccessTimes::Relative;
            }
            "strictatime" => self.access_times = AccessTimes::Always,
            "nodiratime" => self.keep_directory_times = true,
            "diratime" => self.keep_directory_times = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "defer_creates" => self.defer_creates = true,
            "no_defer_creates" => self.defer_creates = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "symfollow" => self.nosymfollow = false,
            "nosymfollow" => self.nosymfollow = true,
            "silent" => self.silent = true,
            "loud" => self.silent = false,
            "io_uring" => self.io_uring = true,
            "no_io_uring" => self.io_uring = false,
            "parallel_direct" => self.parallel_direct = true,
            "no_parallel_direct" => self.parallel_direct = false,
            "uid" | "gid" | "owner" | "commit" | "errors" | "threads" | "fsname" | "logdev"
            | "journal_path" | "journal_dev" | "rtdev" => {
                return Err(format!("{word} needs a value: {word}=..."));
            }
            _ if is_private(word) => {}
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    fn set_value(&mut self, word: &str, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{word}: {expected}");
        match name {
            "uid" => self.uid = Some(parse_id(value).ok_or_else(|| wrong("write a number"))?),
            "gid" => self.gid = Some(parse_id(value).ok_or_else(|| wrong("write a number"))?),
            "owner" => {
                let owner = parse_owner(value);
                self.owner = Some(owner.ok_or_else(|| wrong("write two numbers: 1000:1000"))?);
            }
            "logdev" | "journal_path" => self.devices.log = Some(value.into()),
            "journal_dev" => {
                let path = block_device(value);
                self.devices.log = Some(path.ok_or_else(|| wrong("there is no such device"))?);
            }
            "rtdev" => self.devices.realtime = Some(value.into()),
            "commit" => {
                let seconds: u32 =
                    value.parse().map_err(|_| wrong("write seconds, 0 for never"))?;
                self.sync_interval = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "errors" => {
                self.on_damage = match value {
                    "remount-ro" => OnDamage::ReadOnly,
                    "continue" => OnDamage::Continue,
                    _ => return Err(wrong("write remount-ro or continue")),
                }
            }
            "threads" => {
                let threads =
                    value.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
                let expected = || wrong(&format!("write a number from 1 to {THREADS_MAX}"));
                self.threads = Some(threads.ok_or_else(expected)?);
            }
            "fsname" if value.is_empty() => return Err(wrong("the option has no name")),
            "fsname" => self.fs_name = Some(value.into()),
            "user" | "comment" => {}
            _ if is_private(name) => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Returns the number of threads that answer requests.
    pub(super) fn thread_count(&self, is_place: bool) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        // With a single thread, a request that waits for the device would block all others.
        let fewest = if is_place { THREADS_OF_PLACES } else { 2 };
        self.threads.unwrap_or_else(|| processors().clamp(fewest, THREADS_MAX)).max(1)
    }

    /// Returns the options of the request handler.
    pub(super) fn adapter(&self, read_only: bool) -> fuse::Options {
        fuse::Options {
            read_only,
            access_times: self.access_times,
            keep_directory_times: self.keep_directory_times,
            on_damage: self.on_damage,
            uid: self.uid,
            gid: self.gid,
            idmap: self.idmap,
            parallel_direct: self.parallel_direct,
            owner: self.owner.map(|Owner { uid, gid }| (uid, gid)),
        }
    }
}

/// Returns the path of the block device with this number, which is hexadecimal after `0x`.
fn block_device(number: &str) -> Option<PathBuf> {
    let number = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(Path::new("/dev").join(link.file_name()?))
}

/// Returns whether an option is private to other programs in `/etc/fstab`, for example `x-systemd.automount`.
fn is_private(word: &str) -> bool {
    word.starts_with("x-") || word.starts_with("X-")
}

fn unknown(name: &str) -> String {
    format!("unknown option {name}; {}", Hint::MountOptions)
}

/// Parses an ID. The maximum value is reserved for "none".
fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

fn parse_owner(text: &str) -> Option<Owner> {
    let (uid, gid) = text.split_once(':')?;
    Some(Owner { uid: parse_id(uid)?, gid: parse_id(gid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> MountOptions {
        let mut options = MountOptions::default();
        options.apply(words).unwrap();
        options
    }

    fn refused(words: &str) -> String {
        MountOptions::default().apply(words).unwrap_err()
    }

    #[test]
    fn every_word_does_what_it_says() {
        let options = parsed(
            "ro,recover,allow_other,uid=1,gid=2,owner=3:4,noatime,sync,dirsync,suid,dev,noexec,commit=30,\
             errors=continue,threads=7,io_uring,parallel_direct,fsname=root.img",
        );
        assert!(
            options.read_only
                && options.recover
                && options.allow_other
                && options.sync
                && options.dirsync
        );
        assert!(options.suid && options.dev && !options.exec && options.io_uring);
        assert_eq!((options.uid, options.gid), (Some(1), Some(2)));
        assert_eq!(options.owner, Some(Owner { uid: 3, gid: 4 }));
        assert_eq!(options.access_times, AccessTimes::Never);
        assert_eq!(options.sync_interval, Some(Duration::from_secs(30)));
        assert_eq!(options.on_damage, OnDamage::Continue);
        assert_eq!(options.thread_count(true), 7);
        assert_eq!(options.fs_name, Some("root.img".into()));
        assert_eq!(parsed("strictatime").access_times, AccessTimes::Always);
        assert_eq!(parsed("commit=0").sync_interval, None);
        assert!(parsed("idmap").adapter(false).idmap && !parsed("idmap,noidmap").idmap);
        assert!(
            options.parallel_direct
                && !parsed("parallel_direct,no_parallel_direct").parallel_direct
        );
    }

    #[test]
    fn the_adapter_gets_what_concerns_it() {
        let adapter =
            parsed("uid=1,owner=3:4,errors=continue,strictatime,parallel_direct").adapter(true);
        assert!(adapter.parallel_direct);
        assert!(adapter.read_only);
        assert_eq!((adapter.uid, adapter.gid), (Some(1), None));
        assert_eq!(adapter.owner, Some((3, 4)));
        assert_eq!(adapter.on_damage, OnDamage::Continue);
        assert_eq!(adapter.access_times, AccessTimes::Always);
    }

    #[test]
    fn defaults_are_safe_and_writable() {
        let options = parsed("");
        assert!(!options.read_only && !options.suid && !options.dev && options.exec);
        assert!(!options.allow_other && !options.sync && !options.dirsync);
        assert_eq!(options.access_times, AccessTimes::Relative);
        assert_eq!(options.on_damage, OnDamage::ReadOnly);
        assert_eq!(options.sync_interval, Some(Duration::from_secs(5)));
        assert!(options.thread_count(false) >= 2 && options.thread_count(true) >= 32);
    }

    #[test]
    fn the_last_of_contradicting_words_counts() {
        let options = parsed("ro,suid,dev,noexec,sync,noatime,io_uring,errors=continue,,uid=5");
        let mut options = options;
        let back = "rw,nosuid,nodev,exec,async,relatime,no_io_uring,errors=remount-ro,uid=6,";
        options.apply(back).unwrap();
        assert!(!options.read_only && !options.suid && !options.dev && options.exec);
        assert!(!options.sync && !options.io_uring);
        assert_eq!(options.access_times, AccessTimes::Relative);
        assert_eq!(options.on_damage, OnDamage::ReadOnly);
        assert_eq!(options.uid, Some(6));
    }

    #[test]
    fn words_of_fstab_are_accepted() {
        let words = "defaults,noauto,user,nofail,_netdev,x-systemd.automount,x-gvfs-name=a b,\
                     X-mount.mkdir,user=alice,comment=why,default_permissions";
        assert!(!parsed(words).read_only);
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        for (words, named) in [
            ("ro,frobnicate", "frobnicate"),
            ("Ro", "Ro"),
            ("data=journal", "data"),
            ("ro=1", "ro"),
            ("subtype=ext4", "subtype"),
        ] {
            let said = refused(words);
            assert!(said.starts_with(&format!("unknown option {named};")), "{words}: {said}");
        }
    }

    #[test]
    fn words_of_mount_8_have_their_meaning_or_are_refused_with_a_reason() {
        let all = "nodiratime,nosymfollow,silent,lazytime,noiversion,nomand,acl,barrier=1";
        let mut options = parsed(all);
        assert!(options.keep_directory_times && options.nosymfollow && options.silent);
        assert!(options.adapter(false).keep_directory_times);
        options.apply("diratime,symfollow,loud,nolazytime").unwrap();
        assert!(!options.keep_directory_times && !options.nosymfollow && !options.silent);
        for word in ["atime", "norelatime", "nostrictatime"] {
            let options = parsed(&format!("noatime,{word}"));
            assert_eq!(options.access_times, AccessTimes::Relative, "{word}");
        }
        for word in ["remount", "bind", "loop", "mand", "iversion", "discard", "norecovery"] {
            let said = refused(&format!("ro,{word},noatime"));
            assert!(said.starts_with(&format!("{word}: ")), "{said}");
        }
    }

    #[test]
    fn invalid_values_are_refused_with_valid_ones() {
        for words in [
            "uid=root",
            "uid=-1",
            "uid=4294967295",
            "gid=",
            "owner=1",
            "owner=1:",
            "owner=a:b",
            "commit=-1",
            "commit=5s",
            "commit=",
            "errors=panic",
            "threads=0",
            "threads=257",
            "fsname=",
        ] {
            let said = refused(words);
            assert!(said.starts_with(&format!("{words}: ")), "{words}: {said}");
        }
        for words in ["idmap,uid=0", "gid=5,idmap"] {
            assert!(refused(words).starts_with("idmap: "), "{words}");
        }
        for word in ["uid", "gid", "owner", "commit", "errors", "threads", "fsname"] {
            assert!(refused(word).contains(&format!("{word}=...")), "{word}");
        }
    }
}
