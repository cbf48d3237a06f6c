//! The program `diskwright`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    diskwright_cli::main()
}
