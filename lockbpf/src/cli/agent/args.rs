//! How the service is called.

use super::super::http::Listen;
use clap::Args;
use std::path::PathBuf;

/// How the service is set up.
#[derive(Debug, Args)]
#[command(
    after_help = "It serves /metrics (Prometheus and OpenMetrics text), /debug/pprof/block and /debug/pprof/mutex (cumulative pprof profiles),
/dump (what the flight recorder has kept) and /healthz; and it pushes to where its configuration says. SIGHUP has it read its configuration again, SIGTERM and Ctrl-C end it. docs/agent.md tells the rest.

Examples:
  lockbpf agent                                             the whole system, at 127.0.0.1:9948
  lockbpf agent --config /etc/lockbpf/agent.toml --check    are there mistakes in it?
  lockbpf agent --config /etc/lockbpf/agent.toml            as lockbpf.service does
  systemctl enable --now lockbpf                            start the service, now and at each boot"
)]
pub struct AgentArgs {
    /// The configuration, in TOML (deploy/agent.toml names all there is). Without it: the whole system, on 127.0.0.1:9948.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say whether the configuration is right, and end.
    #[arg(long)]
    pub check: bool,
    /// Serve at this address, whatever the configuration says: HOST:PORT with numbers, or unix:/PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Listen>,
    /// Serve metrics and profiles only to whoever knows the token in this file.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}
