//! The command line: arguments in, exit status out. What commands do is in the library.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use diskwright::Outcome;

fn main() -> ExitCode {
    if let Some((program, arguments)) = namesake() {
        terminal::show_messages_of_libraries();
        return ExitCode::from(program.run(arguments));
    }
    let cli = cli::Cli::parse();
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
