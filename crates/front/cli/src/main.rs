//! The program `diskwright`.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
mod closed_output;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    closed_output::replace();
    diskwright_cli::main()
}
