//! Mounting and unmounting by `fusermount3`, or its predecessor `fusermount`.
//!
//! The program mounts and sends the open device through a socket. The variable `_FUSE_COMMFD`
//! contains the socket's descriptor number. The program reports failures on its standard error.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::MountOptions;

/// Programs in order of preference, newest first.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];

pub(super) fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    if options.nosymfollow {
        // The program does not support this option. A mount that follows links would not be what
        // the caller requested.
        let text = "nosymfollow requires root";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut theirs = Some(theirs);
    let child = spawn(|command| {
        command.arg("-o").arg(option_list(options)).arg("--").arg(mountpoint);
        // Pass the socket as standard input. An extra inheritable descriptor could leak into other
        // programs that start at the same time.
        let socket = theirs.as_ref().expect("it is taken only below").try_clone()?;
        command.stdin(socket).env("_FUSE_COMMFD", "0");
        Ok(())
    })?;
    // With this end closed, the end of the program ends the wait.
    drop(theirs.take());
    let received = receive_fd(&ours);
    let said = finish(child);
    match (received, said) {
        (Ok(Some(fd)), Ok(())) => Ok(fd),
        (Err(error), Ok(())) => Err(error),
        (Ok(None), Ok(())) => Err(io::Error::other("fusermount3 did not send the file descriptor")),
        (_, Err(error)) => Err(error),
    }
}

/// Unmounts. If `lazy`, detaches a busy mount at once.
pub(super) fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let child = spawn(|command| {
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint).stdin(Stdio::null());
        Ok(())
    })?;
    finish(child)
}

/// Starts the first installed program.
fn spawn(prepare: impl Fn(&mut Command) -> io::Result<()>) -> io::Result<Child> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        prepare(&mut command)?;
        match command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    let text = "fusermount3 is not installed; install the package fuse3, or run as root";
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// Waits for the program to end. On failure, its standard error is the error message.
fn finish(child: Child) -> io::Result<()> {
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(match text.trim() {
        "" => format!("fusermount3 failed ({})", output.status),
        said => said.to_owned(),
    }))
}

/// Receives the descriptor through the socket. Returns `None` if the other side ends without
/// sending one.
fn receive_fd(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fds.next())
}

/// Returns the options as a comma-separated list.
fn option_list(options: &MountOptions) -> OsString {
    let mut list = options.fuse_options().into_bytes();
    let mut name = |key: &str, value: &OsStr| {
        if !value.is_empty() {
            list.extend_from_slice(key.as_bytes());
            list.extend(escaped(value.as_bytes()));
        }
    };
    name(",fsname=", &options.fs_name);
    name(",subtype=", OsStr::new(&options.subtype));
    let words = [
        (true, ",noatime"),
        (true, if options.suid { ",suid" } else { ",nosuid" }),
        (true, if options.dev { ",dev" } else { ",nodev" }),
        (options.read_only, ",ro"),
        (options.noexec, ",noexec"),
        (options.sync, ",sync"),
        (options.dirsync, ",dirsync"),
    ];
    for (_, word) in words.iter().filter(|(wanted, _)| *wanted) {
        list.extend_from_slice(word.as_bytes());
    }
    OsString::from_vec(list)
}

/// Escapes commas and backslashes with a backslash, because a comma ends an option.
fn escaped(value: &[u8]) -> impl Iterator<Item = u8> + '_ {
    value.iter().flat_map(|&byte| {
        let escape = matches!(byte, b',' | b'\\').then_some(b'\\');
        escape.into_iter().chain([byte])
    })
}

#[cfg(test)]
mod tests {
    use super::{MountOptions, option_list};

    #[test]
    fn options_are_listed_and_names_escaped() {
        let options = MountOptions {
            fs_name: r"/tmp/a,b\c.img".into(),
            subtype: "ext4".into(),
            read_only: true,
            ..MountOptions::default()
        };
        let expected = r"default_permissions,max_read=1048576,fsname=/tmp/a\,b\\c.img,subtype=ext4,noatime,nosuid,nodev,ro";
        assert_eq!(option_list(&options), expected);
        let options = MountOptions {
            allow_other: true,
            suid: true,
            dev: true,
            noexec: true,
            sync: true,
            dirsync: true,
            ..MountOptions::default()
        };
        let expected =
            "default_permissions,max_read=1048576,allow_other,noatime,suid,dev,noexec,sync,dirsync";
        assert_eq!(option_list(&options), expected);
    }
}
