//! Name of the called program, and its output.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Name under which a program was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invoked {
    /// Program name.
    pub(crate) name: &'static str,
}

impl Invoked {
    /// Prints the version in the format of the original, because callers parse it, and returns the exit status. The
    /// number is the release of the original that this program follows.
    pub(crate) fn version(&self) -> u8 {
        let ours = concat!("Diskwright ", env!("CARGO_PKG_VERSION"));
        match self.original() {
            // e2fsprogs prints it on standard error.
            Some(Original::E2fsprogs(name)) => {
                let _ = writeln!(io::stderr(), "{name} {E2FSPROGS} ({ours})");
            }
            Some(Original::Xfsprogs(name)) => {
                say(format_args!("{name} version {XFSPROGS} ({ours})"));
            }
            None => say(format_args!("{} by {ours}", self.name)),
        }
        0
    }

    /// Returns the suite of the original and its own name.
    fn original(&self) -> Option<Original> {
        Some(match self.name {
            "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => Original::E2fsprogs("mke2fs"),
            "e2fsck" | "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => Original::E2fsprogs("e2fsck"),
            "resize2fs" | "dumpe2fs" | "tune2fs" | "debugfs" => Original::E2fsprogs(self.name),
            "mkfs.xfs" | "xfs_repair" | "xfs_growfs" | "xfs_info" | "xfs_admin" => {
                Original::Xfsprogs(self.name)
            }
            _ => return None,
        })
    }
}

/// Release of e2fsprogs that options and output follow.
const E2FSPROGS: &str = "1.47.4";
/// Release of xfsprogs that options and output follow.
const XFSPROGS: &str = "6.18.0";

/// Original of a program.
enum Original {
    E2fsprogs(&'static str),
    Xfsprogs(&'static str),
}

/// Prints a line on standard output. Errors of standard output are ignored.
pub(crate) fn say(text: Arguments<'_>) {
    let text = text.to_string();
    // Remove secrets from addresses. Other text is printed like in the originals.
    let text = if text.contains("://") { diskwright::text::safe(&text) } else { text };
    write_out(|out| writeln!(out, "{text}"));
}

/// Prints raw bytes.
pub(crate) fn say_bytes(bytes: &[u8]) {
    write_out(|out| out.write_all(bytes));
}

/// Prints several lines, the last one with its newline.
pub(crate) fn say_all(lines: &str) {
    write_out(|out| out.write_all(lines.as_bytes()));
}

/// First error of writing to standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output. The first error is reported when the program ends.
pub(crate) fn write_out(write: impl FnOnce(&mut io::Stdout) -> io::Result<()>) {
    if let Err(error) = write(&mut io::stdout()) {
        let _ = LOST.set(error);
    }
}

/// Flushes standard output and returns the first error of writing to it. A closed pipe is ignored.
pub(crate) fn lost_output() -> Option<&'static io::Error> {
    write_out(|out| out.flush());
    LOST.get().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}
