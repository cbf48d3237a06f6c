//! Generates man pages and completions of the programs `diskwright` and `diskwright-bench` from their own help, for
//! packages.
//!
//! It is a separate program, so that these do not contain the generators.
#![forbid(unsafe_code)]

mod after_help;
mod page;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, Parser};
use clap_complete::Shell;

/// Write the man pages and the completions of diskwright and diskwright-bench
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

/// Returns the arguments of a program.
type CommandOf = fn() -> Command;

/// The programs: their names and arguments.
const PROGRAMS: [(&str, CommandOf); 2] =
    [("diskwright", diskwright_cli::command), ("diskwright-bench", bench::command)];

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Returns the file in which a shell searches for completions of a program, below `share`.
fn completions(shell: Shell, program: &str) -> String {
    match shell {
        Shell::Zsh => format!("zsh/site-functions/_{program}"),
        Shell::Fish => format!("fish/vendor_completions.d/{program}.fish"),
        _ => format!("bash-completion/completions/{program}"),
    }
}

fn write_all(directory: &Path) -> io::Result<()> {
    let share = directory.join("share");
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    for (name, program) in PROGRAMS {
        for command in page::commands(program()) {
            page::Page::new(command).write(&pages)?;
        }
        for shell in SHELLS {
            let mut file = create(&share.join(completions(shell, name)))?;
            complete(shell, name, &mut program(), &mut file)?;
        }
    }
    Ok(())
}

fn complete(shell: Shell, name: &str, command: &mut Command, file: &mut File) -> io::Result<()> {
    // Generated in memory first, because the generator cannot report write errors.
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    io::Write::write_all(file, &text)
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path)
}
