//! The guest's files on this machine.

use std::fs;
use std::path::PathBuf;

use super::Kernel;
use crate::tool;

/// Memory of a guest in MiB.
pub(super) const MEMORY_MIB: u64 = 1024;

/// Memory of QEMU itself in MiB.
const OVERHEAD_MIB: u64 = 200;

/// Returns the directory of all guests.
pub(super) fn folder() -> PathBuf {
    tool::installed().join("guest")
}

/// Returns the reason why the guest cannot run here, or its kernel lacks a feature (a configuration name without
/// `CONFIG_`); `None` if nothing is missing.
pub(crate) fn missing(kernel: Kernel, feature: &str) -> Option<String> {
    const INSTALL: &str = "scripts/install-guest installs it under target/tools";
    let here = folder().join(kernel.name());
    for (what, path) in [
        ("QEMU for the guest", folder().join("root/usr/bin/qemu-system-x86_64")),
        ("the guest's kernel", here.join("vmlinux")),
        ("the guest", here.join("arguments")),
    ] {
        if !path.exists() {
            return Some(format!("{what} is not installed ({}); {INSTALL}", path.display()));
        }
    }
    let config = fs::read_to_string(here.join("config")).unwrap_or_default();
    if !has_feature(&config, feature) {
        return Some(format!("the guest's kernel ({}) is built without {feature}", kernel.name()));
    }
    let (needed, found) = (MEMORY_MIB + OVERHEAD_MIB, available_mib().unwrap_or(u64::MAX));
    (found < needed).then(|| format!("the guest needs {needed} MiB of memory, {found} are free"))
}

fn has_feature(config: &str, feature: &str) -> bool {
    let setting = |line: &str| {
        line.strip_prefix("CONFIG_").and_then(|line| line.strip_prefix(feature)).map(str::to_owned)
    };
    config.lines().filter_map(setting).any(|value| value == "=y" || value == "=m")
}

fn available_mib() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::has_feature;

    #[test]
    fn features_are_read_from_the_configuration() {
        let config = "CONFIG_XFS_FS=m\nCONFIG_XFS_QUOTA=y\n# CONFIG_XFS_DEBUG is not set\n";
        assert!(has_feature(config, "XFS_FS") && has_feature(config, "XFS_QUOTA"));
        assert!(!has_feature(config, "XFS_DEBUG") && !has_feature(config, "XFS"));
    }
}
