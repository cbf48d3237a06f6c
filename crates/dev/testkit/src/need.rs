//! Skips tests if the machine does not meet their needs.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::sync::{Mutex, OnceLock};

use crate::requirement::{self, Oldest, RIGHTS};
use crate::{guest, skip, tool};

/// A need of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A program, found as by [`program`](crate::program), in the version required by the table of needs.
    Tool(&'static str),
    /// Like `Tool`, with at least this major and minor version.
    Version(&'static str, u32, u32),
    /// Linux of at least this major and minor version.
    Kernel(u32, u32),
    /// The rights of the administrator, which root of a container may lack.
    Root,
    /// The right to create user namespaces, which does not exist in a chroot.
    UserNamespace,
    /// A free loop device, and the right to set it up.
    Loop,
    /// Everything needed to mount this type of file system from an image.
    Mount(&'static str),
    /// An openable `/dev/fuse`, and the right to mount it or a `fusermount3` that has it.
    Fuse,
    /// The guest with the newest kernel, built with this option (without `CONFIG_`).
    Guest(&'static str),
    /// The guest with the kernel of Debian's stable release, built with this option.
    StableGuest(&'static str),
    /// The program that reads trees in the guest.
    GuestTree,
}

/// Returns from the calling test, with a message, unless every need is met.
///
/// The calling function must return `()`. With `DISKWRIGHT_REQUIRE_TOOLS=1` in the environment a missing need panics
/// instead, so that CI cannot skip tests silently.
///
/// ```
/// # fn some_test() {
/// diskwright_testkit::require!(Tool("mke2fs"), Mount("ext4"));
/// # }
/// ```
#[macro_export]
macro_rules! require {
    ($($need:ident $(($($argument:expr),+))?),+ $(,)?) => {{
        fn here() {}
        let name = ::std::any::type_name_of_val(&here);
        let needs = [$($crate::Need::$need $(($($argument),+))?),+];
        if !$crate::satisfied(name.trim_end_matches("::here"), &needs) {
            return;
        }
    }};
}

/// Returns whether all needs are met; prints the missing one to standard error.
///
/// # Panics
/// If one is missing and `DISKWRIGHT_REQUIRE_TOOLS` is `1`.
pub fn satisfied(test: &str, needs: &[Need]) -> bool {
    let Some(reason) = needs.iter().find_map(|&need| missing(need)) else { return true };
    // The body of a test may be a closure of its function.
    let test = test.replace("::{{closure}}", "");
    assert!(!skip::is_required(), "{}", skip::refusal(&test, &reason));
    skip::announce(&test, &reason);
    false
}

/// Returns the reason why a need is not met, or `None` if it is. Cached for the process.
pub fn missing(need: Need) -> Option<String> {
    static ANSWERS: OnceLock<Mutex<HashMap<Need, Option<String>>>> = OnceLock::new();
    let answers = ANSWERS.get_or_init(Mutex::default);
    // `probe` evaluates other needs, so the lock must not be held during the call.
    if let Some(answer) = answers.lock().expect("no probe panics").get(&need) {
        return answer.clone();
    }
    let answer = probe(need);
    answers.lock().expect("no probe panics").insert(need, answer.clone());
    answer
}

fn probe(need: Need) -> Option<String> {
    match need {
        Need::Tool(name) => tool::find(name).err(),
        Need::Version(name, major, minor) => probe_version(name, (major, minor)),
        Need::Kernel(major, minor) => probe_release((major, minor)),
        Need::Root => probe_root(),
        Need::UserNamespace => missing(Need::Tool("unshare")).or_else(probe_user_namespace),
        Need::Loop => probe_loop(),
        Need::Mount(fs_type) => missing(Need::Loop)
            .or_else(|| missing(Need::Tool("mount")))
            .or_else(|| probe_file_system(fs_type)),
        Need::Fuse => probe_fuse(),
        Need::Guest(feature) => guest::missing(guest::Kernel::Newest, feature),
        Need::StableGuest(feature) => guest::missing(guest::Kernel::Stable, feature),
        Need::GuestTree => guest::tree_missing(),
    }
}

fn probe_root() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".into());
    }
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    lacking_rights(&read("status"), &read("uid_map"))
}

/// Returns the reason why the set-user-ID program `fusermount3` has no rights here.
fn confines_others(status: &str) -> Option<String> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    if field("NoNewPrivs:") == "1" {
        return Some("fusermount3 gets no rights here (no_new_privs)".into());
    }
    let bound = u64::from_str_radix(field("CapBnd:"), 16).unwrap_or(u64::MAX);
    let (number, name) = RIGHTS[0];
    (bound >> number & 1 == 0).then(|| format!("fusermount3 cannot have {name} here"))
}

/// Returns the rights that root lacks with this status and user ID map.
fn lacking_rights(status: &str, uid_map: &str) -> Option<String> {
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if let Some((_, name)) = RIGHTS.iter().find(|(number, _)| held >> number & 1 == 0) {
        return Some(format!("it needs root with {name}"));
    }
    let is_whole = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!is_whole).then(|| "it needs root of the machine, not of a user name space".into())
}

fn probe_fuse() -> Option<String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    let for_users = |_| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        missing(Need::Tool("fusermount3")).or_else(|| confines_others(&status))
    };
    probe_kernel("fuse").or_else(|| missing(Need::Root).and_then(for_users))
}

fn probe_version(name: &'static str, version: (u32, u32)) -> Option<String> {
    let path = match tool::find(name) {
        Ok(path) => path,
        Err(reason) => return Some(reason),
    };
    let oldest = Oldest { version, why: "for this test" };
    let reason = tool::check_version(&path, name, oldest).err()?;
    let install = requirement::package(name).map_or("", |package| package.install);
    Some(format!("{reason}; {install}"))
}

/// Returns the reason why this kernel is too old for a test.
fn probe_release(wanted: (u32, u32)) -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (found, (major, minor)) = (tool::first_version(&release)?, wanted);
    (found < wanted)
        .then(|| format!("the kernel is {}, older than {major}.{minor}", release.trim()))
}

/// Returns the reason why this kernel's driver is unsuitable, according to its version.
fn probe_kernel(driver: &str) -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    too_old(&release, driver)
}

fn too_old(release: &str, driver: &str) -> Option<String> {
    let Oldest { version, why } = requirement::kernel(driver)?;
    let found = tool::first_version(release)?;
    let ((major, minor), release) = (version, release.trim());
    (found < version)
        .then(|| format!("the kernel is {release}, {driver} needs {major}.{minor} ({why})"))
}

fn probe_user_namespace() -> Option<String> {
    let made = tool::finish(tool::command("unshare").args(["--user", "true"]));
    (made.code != Some(0)).then(|| format!("it needs user namespaces: {}", made.text.trim()))
}

fn probe_loop() -> Option<String> {
    let reason = missing(Need::Root).or_else(|| missing(Need::Tool("losetup")));
    if reason.is_some() {
        return reason;
    }
    let finished = tool::finish(tool::command("losetup").arg("--find"));
    (finished.code != Some(0)).then(|| format!("no loop device: {}", finished.text.trim()))
}

fn probe_file_system(fs_type: &str) -> Option<String> {
    let known = || {
        fs::read_to_string("/proc/filesystems")
            .is_ok_and(|list| list.lines().any(|line| line.split('\t').nth(1) == Some(fs_type)))
    };
    if !known() && tool::find("modprobe").is_ok() {
        tool::finish(tool::command("modprobe").arg(fs_type));
    }
    if known() {
        probe_kernel(fs_type)
    } else {
        Some(format!("this kernel does not mount {fs_type}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Need, confines_others, lacking_rights, missing, too_old};

    #[test]
    fn a_missing_tool_is_named() {
        let reason = missing(Need::Tool("no-such-tool-anywhere")).unwrap();
        assert_eq!(reason, "no-such-tool-anywhere is not installed");
        assert!(
            missing(Need::Version("sh", 0, 0)).is_some() || missing(Need::Tool("sh")).is_none()
        );
    }

    #[test]
    fn kernels_that_are_too_old_are_named_with_both_versions() {
        let reason = too_old("6.1.0-44-amd64\n", "xfs").unwrap();
        assert!(reason.starts_with("the kernel is 6.1.0-44-amd64, xfs needs 6.10 ("), "{reason}");
        assert_eq!(too_old("6.1.0-44-amd64\n", "ext4"), None);
        assert_eq!(too_old("6.12.41+deb13-amd64\n", "xfs"), None);
        assert!(too_old("5.10.0", "fuse").unwrap().contains("5.14"));
        // No known problem.
        assert_eq!(too_old("5.10.0", "vfat"), None);
    }

    #[test]
    fn users_of_a_container_cannot_mount_where_root_cannot() {
        let status = |bound, none| format!("Name:\tx\nCapBnd:\t{bound}\nNoNewPrivs:\t{none}\n");
        assert_eq!(confines_others(&status("000001ffffffffff", 0)), None);
        let confined = confines_others(&status("00000000a80425fb", 0));
        assert_eq!(confined.unwrap(), "fusermount3 cannot have CAP_SYS_ADMIN here");
        assert!(confines_others(&status("000001ffffffffff", 1)).unwrap().contains("no_new_privs"));
    }

    #[test]
    fn root_of_a_container_is_informed_of_missing_rights() {
        const WHOLE: &str = "         0          0 4294967295\n";
        let with = |mask: &str| format!("Name:\tx\nCapEff:\t{mask}\nCapBnd:\t0\n");
        assert_eq!(lacking_rights(&with("000001ffffffffff"), WHOLE), None);
        let by_default = lacking_rights(&with("00000000a80425fb"), WHOLE);
        assert_eq!(by_default.unwrap(), "it needs root with CAP_SYS_ADMIN");
        let mapped =
            lacking_rights(&with("000001ffffffffff"), "         0       1000          1\n");
        assert!(mapped.unwrap().contains("user name space"));
    }
}
