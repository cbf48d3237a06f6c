//! The command line: parses arguments and returns an exit status. The commands' work is done by the
//! `diskwright` library.
//!
//! This crate is a library so that other programs can generate man pages and completions from
//! [`command`], and so that `diskwright-bench` has the same options, messages and exit status. The
//! rest is not for other crates.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod guide;
mod passphrase;
mod program;
#[doc(hidden)]
pub mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use diskwright::Outcome;

#[doc(hidden)]
pub use commands::places::PlacesArgs;
#[doc(hidden)]
pub use program::run;

/// Returns the definition of the program's arguments, with help.
pub fn command() -> clap::Command {
    cli::Cli::command()
}

/// Records that standard output was closed when the program started, for its messages.
pub fn output_was_closed() {
    diskwright::closed_output::was_closed();
}

/// Runs the program.
pub fn main() -> ExitCode {
    if let Some((program, arguments)) = namesake() {
        terminal::show_messages_of_libraries();
        return ExitCode::from(program.run(arguments));
    }
    if std::env::args_os().len() < 2 {
        terminal::lines(format!("{}\n", guide::first_steps()).as_bytes());
        return ExitCode::from(Outcome::Usage as u8);
    }
    #[cfg(not(feature = "anywhere"))]
    if let Some(message) = guide::not_built_in(std::env::args_os().nth(1)) {
        terminal::message(&message);
        return ExitCode::from(Outcome::Usage as u8);
    }
    program::run("diskwright", commands::run)
}

/// Returns the drop-in program to run, chosen by the name of this program or by the word after
/// `as`, with its arguments. All arguments belong to it, including `-h`.
fn namesake() -> Option<(&'static dropin::Program, Vec<OsString>)> {
    let words = std::env::args_os().collect::<Vec<_>>();
    let called = |word: &OsString| dropin::Program::called(word);
    match &*words {
        [name, arguments @ ..] if called(name).is_some() => {
            Some((called(name)?, arguments.to_vec()))
        }
        [_, word, name, arguments @ ..] if word == "as" => {
            Some((called(name)?, arguments.to_vec()))
        }
        _ => None,
    }
}
