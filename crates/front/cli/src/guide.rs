//! Text for a call without a command.

/// Suggested first commands, one per line.
const FIRST_STEPS: &str = "\
Diskwright builds, reads, edits, mounts, checks and repairs ext4 and XFS images, without root.

  diskwright build rootfs/ root.img --size 2G        make an image from a directory, an archive or a container image
  diskwright ls -l root.img /etc                     list a directory
  diskwright cp app.conf root.img:/etc/app.conf      copy a file into it
  diskwright extract root.img - | tar -t             copy its files out
  diskwright mount root.img /mnt                     mount it
  diskwright check root.img                          check it for damage; diskwright repair fixes it

Run diskwright --help for a list of commands, and diskwright COMMAND --help for the options and examples of a
command. The cookbook has recipes: docs/cookbook.md, or /usr/share/doc/diskwright in an installed package.";

/// Returns the lines that apply to this host.
pub(crate) fn first_steps() -> String {
    let has = |line: &&str| cfg!(target_os = "linux") || !line.contains("diskwright mount");
    FIRST_STEPS.lines().filter(has).collect::<Vec<_>>().join("\n")
}

/// Returns a message if `word` is a command that is not part of this build, otherwise `None`.
#[cfg(not(feature = "anywhere"))]
pub(crate) fn not_built_in(word: Option<std::ffi::OsString>) -> Option<String> {
    let word = word?;
    let word = ["gc", "publish", "volume"].into_iter().find(|name| *name == word)?;
    Some(format!(
        "this build does not support {word}; install it with: cargo install diskwright-cli \
         --features anywhere"
    ))
}
