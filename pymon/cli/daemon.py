"""`pymon daemon`: watches this node."""

from __future__ import annotations

from pathlib import Path

import click

_EPILOG = """
\b
Examples:
  pymon daemon                                  on 127.0.0.1:9409, socket in /run/pymon
  pymon daemon --config /etc/pymon.toml
  pymon daemon --socket /tmp/me/agent.sock --state-dir /tmp/me/state --http off

SIGHUP reloads the configuration, SIGUSR1 captures all attached processes, SIGTERM ends the daemon.
"""


@click.command("daemon", epilog=_EPILOG)
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="TOML file (docs/config.md)."
)
@click.option(
    "--socket", type=click.Path(path_type=Path), help="Where probes and commands connect."
)
@click.option(
    "--state-dir", type=click.Path(path_type=Path), help="Captures, reports and the journal."
)
@click.option(
    "--http", metavar="HOST:PORT|off", help="Where /metrics is served; port 0 takes a free one."
)
@click.option("--kineto/--no-kineto", default=None, help="Answer processes with KINETO_USE_DAEMON.")
@click.option("--private", is_flag=True, help="For one run: ends after its last client.")
@click.option(
    "--run-id", default="", help="The run a private daemon is for, as it shows in process lists."
)
@click.option("--nvml-library", default="", hidden=True, help="For tests: a double of NVML.")
def command(
    config_path: Path | None,
    socket: Path | None,
    state_dir: Path | None,
    http: str | None,
    kineto: bool | None,
    private: bool,
    run_id: str,
    nvml_library: str,
) -> None:
    """Watch this node: metrics, anomalies, captures, diagnoses."""
    from pymon.daemon.main import Options, run  # here, so that --help is quick

    run(
        Options(
            config_path=config_path,
            socket=socket,
            state_dir=state_dir,
            http=http,
            kineto=kineto,
            private=private,
            nvml_library=nvml_library,
        )
    )
