//! The working directories, and the search for a name.

use ext4::debug::DirectoryPart;
use ext4::format::dirent;

use super::phrases::words;
use super::request::{Request, host_path, shown};
use super::session::{DebugSession, WorkingDirectory};
use crate::failure::Failure;
use crate::invoked::{say, say_bytes};

/// `cd DIR`.
pub(super) fn change(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    session.current = session.directory(path)?;
    Ok(())
}

/// `chroot DIR`.
pub(super) fn change_root(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    session.root = session.directory(path)?;
    Ok(())
}

/// `pwd`.
pub(super) fn print(session: &mut DebugSession, _: &Request) -> Result<(), Failure> {
    session.fs()?;
    let line = |label: &str, directory: &WorkingDirectory| {
        let head = format!("{label}INODE: {:6}  PATH: /", directory.ino);
        let path = directory.path.strip_prefix(b"/").unwrap_or(&directory.path);
        say_bytes(&[head.as_bytes(), path, b"\n"].concat());
    };
    line("[pwd]   ", &session.current);
    line("[root]  ", &session.root);
    Ok(())
}

/// `lcd DIR`: changes the working directory of the host.
pub(super) fn change_native(_: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    std::env::set_current_dir(host_path(path)).map_err(|e| {
        let why = format_args!("{e} while trying to change native directory to {}", shown(path));
        request.failed(why)
    })
}

/// `dirsearch DIR NAME`: prints the block that contains a name.
pub(super) fn search(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path, name] = request.exactly()?;
    let dir = session.ino(path)?;
    let mut found = None;
    let searched = session.fs()?.directory_parts(dir, &mut |part| {
        if let DirectoryPart::Block(file, block, bytes) = part
            && found.is_none()
        {
            found = dirent::find(bytes, name).map(|record| (file, block, record.offset));
        }
    });
    match searched {
        // The original prints nothing for other files.
        Ok(()) | Err(vfs::Error::NotADirectory) => {}
        Err(error) => return Err(request.failed(words(&error))),
    }
    if let Some((file, block, offset)) = found {
        say(format_args!("Entry found at logical block {file}, phys {block}, offset {offset}"));
        say(format_args!("offset {offset}"));
    }
    Ok(())
}
