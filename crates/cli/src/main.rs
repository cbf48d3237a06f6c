//! The command line: arguments in, exit status out. What commands do is in the library.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use diskwright::Outcome;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(program) = words.next().as_deref().and_then(dropin::Program::called) {
        terminal::show_messages_of_libraries();
        return ExitCode::from(program.run(words));
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
