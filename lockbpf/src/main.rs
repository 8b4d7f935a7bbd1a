//! The `lockbpf` command: see `lockbpf --help`.

fn main() -> std::process::ExitCode {
    lockbpf::cli::main()
}
