//! The program `diskwright-bench`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    bench::main()
}
