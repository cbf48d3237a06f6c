//! The command line: arguments in, exit status out. What commands do is in the library.
//!
//! It is a library of its own so that man pages and completions can be made of [`command`] by another program: nothing
//! else of it is for others.
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

/// The arguments that the program takes, with its help.
pub fn command() -> clap::Command {
    cli::Cli::command()
}

/// All that the program does.
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

/// Prints the help that was asked for, or why the arguments are wrong. An argument may be an address with secrets, or have
/// control characters.
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

/// The program that this one is called as, by its own name or after the word `as`, and its arguments: all of them are
/// its own, `-h` too.
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
