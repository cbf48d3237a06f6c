//! Start of a program: arguments, messages and the exit status.

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgMatches, Command, CommandFactory, Parser};
use diskwright::{Outcome, Result};

use crate::terminal;

/// Parses the arguments of the program `name`, runs it, and prints its error. Returns its exit status.
pub fn run<P: Parser + CommandFactory>(
    name: &'static str,
    body: impl FnOnce(&P) -> Result<Outcome>,
) -> ExitCode {
    terminal::speak_for(name);
    terminal::provide_hints();
    let mut program = P::command();
    let parsed = program.try_get_matches_from_mut(std::env::args_os()).and_then(|mut matches| {
        terminal::hint_for(running(&program, &matches).clone());
        P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut program))
    });
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(answer(&error) as u8),
    };
    terminal::show_messages_of_libraries();
    let outcome = body(&arguments).unwrap_or_else(|error| {
        if error.is_broken_pipe() {
            return Outcome::Done;
        }
        terminal::message(&error.with_advice());
        error.outcome()
    });
    ExitCode::from(outcome as u8)
}

/// Returns the command that parsed arguments select, or the program if it has no commands.
fn running<'a>(program: &'a Command, matches: &ArgMatches) -> &'a Command {
    let (mut command, mut matches) = (program, matches);
    while let Some((name, of_command)) = matches.subcommand()
        && let Some(found) = command.find_subcommand(name)
    {
        (command, matches) = (found, of_command);
    }
    command
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
