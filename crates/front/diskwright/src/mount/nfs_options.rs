//! Options of mounts by NFS, and their `-o` syntax.

/// Words for the behaviour of all these mounts, and words of `/etc/fstab` for other programs.
const WITHOUT_EFFECT: &[&str] =
    &["defaults", "nosuid", "nodev", "auto", "noauto", "user", "nouser", "nofail", "_netdev"];

/// Options of a mount by NFS. The defaults are those of `diskwright mount --via nfs`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NfsMountOptions {
    /// Mount read-only, without writing to the image.
    pub read_only: bool,
    /// Recover an image that was not cleanly closed even if the mount is read-only, as kernels do.
    pub recover: bool,
    /// Allow access by other users, with the permissions in the image. Otherwise only the user of this process and root
    /// have access.
    pub allow_other: bool,
    /// Show all files as files of the user of this process, with all rights. Changes keep the owners in the image.
    pub map_user: bool,
    /// Make every change durable before it returns. Otherwise changes become durable within some seconds.
    pub sync: bool,
    /// Allow execution of programs.
    pub exec: bool,
    /// Suppress messages that are not errors.
    pub silent: bool,
}

setters!(NfsMountOptions {
    read_only: bool,
    recover: bool,
    allow_other: bool,
    map_user: bool,
    sync: bool,
    exec: bool,
    silent: bool,
});

impl Default for NfsMountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            recover: false,
            allow_other: false,
            map_user: crate::serve::MAPS_USER,
            sync: false,
            exec: true,
            silent: false,
        }
    }
}

impl NfsMountOptions {
    /// Applies options in `-o` syntax: `ro,noexec`. Later options override earlier ones.
    ///
    /// # Errors
    /// A message that names the first unknown option. Options before it are applied.
    pub fn apply(&mut self, words: &str) -> Result<(), String> {
        words.split(',').filter(|word| !word.is_empty()).try_for_each(|word| self.set(word))
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" | "rw" => self.read_only = word == "ro",
            "recover" | "norecover" => self.recover = word == "recover",
            "sync" | "async" => self.sync = word == "sync",
            "exec" | "noexec" => self.exec = word == "exec",
            "silent" | "loud" => self.silent = word == "silent",
            "allow_other" => self.allow_other = true,
            word if WITHOUT_EFFECT.contains(&word) || word.starts_with("x-") => {}
            _ => {
                return Err(format!(
                    "unknown option {word} of a mount by NFS; use ro, rw, recover, norecover, sync, async, exec, noexec, \
                     silent, loud or allow_other"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_applied_in_their_order() {
        let mut options = NfsMountOptions::default();
        options.apply("ro,noexec,sync,,nofail,x-systemd.requires=a").unwrap();
        assert!(options.read_only && !options.exec && options.sync);
        options.apply("rw,exec,async").unwrap();
        assert!(!options.read_only && options.exec && !options.sync);
        let refused = options.apply("ro,threads=4").unwrap_err();
        assert!(options.read_only && refused.contains("unknown option threads=4"), "{refused}");
    }
}
