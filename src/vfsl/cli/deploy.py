"""The ``vfsl deploy`` commands, as a typer app that says its results through a passed function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfsl.errors import ConfigError

if TYPE_CHECKING:
    from vfsl.deploy.config import Project

Say = Callable[[str], None]

_FOLDER = Annotated[Path, typer.Argument(help="The party's own folder.")]
_FROM = Annotated[Path, typer.Option("--from", help="The party's own folder.")]


def deploy_app(say: Say) -> typer.Typer:
    """The commands; ``say`` gets every line that a person should read."""
    app = typer.Typer(help="Run across organisations.", no_args_is_help=True)

    @app.command()
    def init(
        name: Annotated[str, typer.Argument(help="The project's name.")],
        relay: Annotated[str, typer.Option(help="HOST:PORT of the relay.")],
        party: Annotated[list[str], typer.Option(help="A party with a table; give each.")],
        submitter: Annotated[list[str], typer.Option(help="A party that may start runs.")],
        to: Annotated[Path, typer.Option("--out", help="The authority's own new folder.")],
        key_holder: Annotated[str, typer.Option(help="Who holds keys and no data.")] = "K",
    ) -> None:
        """The authority: make the root key and the project file that goes to everybody."""
        from vfsl.deploy.provision import init_project

        project = init_project(_project(name, relay, party, key_holder, submitter), to)
        say(f"Send to everybody: {to / 'project.toml'}")
        say(f"Read out to everybody: {project.authority}")
        say(f"Never leaves here: {to / 'authority'}")

    @app.command()
    def request(
        project: Annotated[Path, typer.Argument(help="The project.toml of the authority.")],
        name: Annotated[str, typer.Option("--as", help="Which site you are; or relay.")],
        to: Annotated[Path, typer.Option("--out", help="The site's own new folder.")],
    ) -> None:
        """A site: make its private keys here, and a request without them for the authority."""
        from vfsl.deploy.provision import request_site

        for made in request_site(project, name, to):
            say(f"Send to the authority: {made}")
        if (to / "pin.txt").exists():
            say(f"Read out to every party, as your pin: {(to / 'pin.txt').read_text().strip()}")
        say(f"Fill in: {to / 'party.toml'}")
        say(f"Never leaves here: everything else in {to}")

    @app.command()
    def sign(
        requests: Annotated[list[Path], typer.Argument(help="Requests that sites have sent.")],
        authority: Annotated[Path, typer.Option(help="The authority's own folder.")],
    ) -> None:
        """The authority: sign requests, after making sure whom they came from."""
        from vfsl.deploy.provision import sign_requests

        for made in sign_requests(authority, requests):
            say(f"Send back: {made}")

    @app.command()
    def join(
        folder: _FOLDER,
        signed: Annotated[list[Path], typer.Argument(help="What the authority sent back.")],
    ) -> None:
        """A site: build its start-up kit from the signed request and its own keys."""
        from vfsl.deploy.provision import join_site

        join_site(folder, signed)
        say(f"Ready: vfsl deploy start {folder}")

    @app.command()
    def start(folder: _FOLDER) -> None:
        """A site: take part in runs until it is stopped; its log is in its folder."""
        from vfsl.deploy.sites import LOG_FILE, check_site, start_site

        say(f"Starts {check_site(folder)}; log: {folder / LOG_FILE}")
        start_site(folder)

    @app.command()
    def submit(
        folder: _FROM,
        job: Annotated[Path | None, typer.Argument(help="The job file.")] = None,
        resume: Annotated[str | None, typer.Option(help="A run that did not end well.")] = None,
        wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: none.")] = 0.0,
    ) -> None:
        """Start a run of a job, or a further attempt of a run, from a submitter's folder."""
        from vfsl.deploy.submit import resume_run, status_lines, submit_job, wait_for

        if (job is None) == (resume is None):
            raise ConfigError("submit needs either a job file or --resume RUN.")
        run = resume_run(folder, resume) if resume else submit_job(folder, job or Path())
        say(f"Run: {run}")
        if wait > 0:
            ended = wait_for(folder, run, wait)
            for line in status_lines(folder, run):
                say(line)
            if ended.state != "finished":
                raise typer.Exit(1)  # a scheduler takes notice

    @app.command()
    def status(
        folder: _FOLDER,
        run: Annotated[str | None, typer.Argument(help="One run; all by default.")] = None,
    ) -> None:
        """How this party's runs stand."""
        from vfsl.deploy.submit import status_lines

        for line in status_lines(folder, run) or ["No runs yet."]:
            say(line)

    @app.command()
    def fetch(
        run: Annotated[str, typer.Argument(help="The run.")],
        folder: _FROM,
        to: Annotated[Path, typer.Option("--out", help="A new folder.")],
    ) -> None:
        """Copy this party's own results of a run."""
        from vfsl.deploy.submit import fetch_results

        for name in fetch_results(folder, run, to):
            say(name)

    return app


def _project(
    name: str, relay: str, parties: list[str], key_holder: str, submitters: list[str]
) -> Project:
    from vfsl.deploy.config import Project, checked
    from vfsl.deploy.provision import address

    content = {"name": name, "relay": address(relay).model_dump(), "parties": parties}
    return checked(Project, content | {"key_holder": key_holder, "submitters": submitters})
