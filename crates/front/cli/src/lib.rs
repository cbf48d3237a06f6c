//! The command line: parses arguments and returns an exit status. The commands' work is done by the
//! `diskwright` library.
//!
//! This crate is a library so that another program can generate man pages and completions from
//! [`command`]. The rest is not for other crates.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod guide;
mod terminal;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use diskwright::Outcome;

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
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(answer(&error) as u8),
    };
    terminal::show_messages_of_libraries();
    let outcome = commands::run(&cli).unwrap_or_else(|error| {
        if error.is_broken_pipe() {
            return Outcome::Done;
        }
        terminal::message(&error.with_advice());
        error.outcome()
    });
    ExitCode::from(outcome as u8)
}

/// Prints the requested help, or the error in the arguments. Removes secrets of addresses and
/// control characters, which arguments may contain.
fn answer(error: &clap::Error) -> Outcome {
    let plain = error.render().to_string();
    let safe = diskwright::text::safe(&plain);
    let printed = match error.use_stderr() {
        true if safe != plain => {
            terminal::lines(safe.as_bytes());
            Ok(())
        }
        _ => error.print().and_then(|()| std::io::stdout().flush()),
    };
    match printed {
        _ if error.use_stderr() => Outcome::Usage,
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            terminal::message(&diskwright::Error::Output(error));
            Outcome::Io
        }
        _ => Outcome::Done,
    }
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
