//! The command line: arguments in, exit status out. What commands do is in the library.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod terminal;

use std::alloc::System;
use std::process::ExitCode;

use alloc_tracker::Allocator;
use clap::Parser;
use diskwright::Outcome;

/// The usual allocator, and counters of each thread, which `workload find` reads. They cost a few
/// instructions per allocation, and threads do not meet there.
#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::system();

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let outcome = commands::run(&cli).unwrap_or_else(|error| {
        if error.is_broken_pipe() {
            return Outcome::Done;
        }
        terminal::message(&error.with_advice());
        error.outcome()
    });
    ExitCode::from(outcome as u8)
}
