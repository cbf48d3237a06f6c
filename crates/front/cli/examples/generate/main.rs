//! Generates man pages and completions of the program `diskwright` from its own help, for packages.
//!
//! It is a separate program, so that the main program does not contain the generators.
#![forbid(unsafe_code)]

mod after_help;
mod page;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, Parser};
use clap_complete::Shell;

/// Write the man pages and the completions of diskwright
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory that gets share/man and the completions of bash, zsh and fish, where /usr has them
    directory: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match write_all(&arguments.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {}: {error}", arguments.directory.display());
            ExitCode::from(4)
        }
    }
}

/// Directories in which shells search for completions, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/diskwright"),
    (Shell::Zsh, "zsh/site-functions/_diskwright"),
    (Shell::Fish, "fish/vendor_completions.d/diskwright.fish"),
];

fn write_all(directory: &Path) -> io::Result<()> {
    let share = directory.join("share");
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    for command in page::commands(diskwright_cli::command()) {
        page::Page::new(command).write(&pages)?;
    }
    for (shell, path) in COMPLETIONS {
        let mut file = create(&share.join(path))?;
        complete(shell, &mut diskwright_cli::command(), &mut file)?;
    }
    Ok(())
}

fn complete(shell: Shell, command: &mut Command, file: &mut File) -> io::Result<()> {
    // Generated in memory first, because the generator cannot report write errors.
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "diskwright", &mut text);
    io::Write::write_all(file, &text)
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path)
}
