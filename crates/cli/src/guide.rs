//! Text for a call without a command.

/// Suggested first commands, one per line.
const FIRST_STEPS: &str = "\
Diskwright builds and reads images of ext4 and XFS, and changes them, without root.

  diskwright build rootfs/ root.img --size 2G        make an image of a directory, an archive or a container image
  diskwright ls -l root.img /etc                     see what is in it
  diskwright cp app.conf root.img:/etc/app.conf      change a file in it
  diskwright extract root.img - | tar -t             get the files out again
  diskwright mount root.img /mnt                     use it as a directory
  diskwright check root.img                          see whether it is sound; diskwright repair mends it

diskwright --help names all commands, diskwright COMMAND --help has the options and examples of one, and the
cookbook (docs/cookbook.md, or /usr/share/doc/diskwright where a package was installed) has recipes.";

/// Returns the lines that apply to this host.
pub(crate) fn first_steps() -> String {
    let has = |line: &&str| cfg!(target_os = "linux") || !line.contains("diskwright mount");
    FIRST_STEPS.lines().filter(has).collect::<Vec<_>>().join("\n")
}

/// Returns a message if `word` is a command that is not part of this build, otherwise `None`.
#[cfg(not(feature = "anywhere"))]
pub(crate) fn not_built_in(word: Option<std::ffi::OsString>) -> Option<String> {
    let word = word?;
    let word = ["commit", "gc", "publish", "volume"].into_iter().find(|name| *name == word)?;
    Some(format!(
        "this build does not have {word}; one with the feature anywhere does (cargo install diskwright-cli --features \
         anywhere)"
    ))
}
