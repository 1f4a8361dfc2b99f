"""Every command: its options, and which module does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobqueue_operator.plugin.options import (
    Aim,
    Classes,
    Context,
    Detour,
    Host,
    Kubeconfig,
    Name,
    Namespace,
    Output,
    Port,
    SecretName,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OVERVIEW = """Why a JobQueue has the workers it has, what holds it back, and what to do about it.

All is done with your own login to the cluster, and asks for no other rights than you have.
"""


def build() -> Callable[..., Any]:
    """Return the command."""
    app = typer.Typer(
        name="kubectl jobqueue",
        help=OVERVIEW,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, command in (
        ("status", status),
        ("explain", explain),
        ("pause", pause),
        ("resume", resume),
        ("restart", restart),
        ("jobs", jobs),
    ):
        app.command(name)(command)
    return typer.main.get_command(app)


def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of the JobQueue; all of the namespace unless said.", show_default=False
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Say why there are this many workers, and what holds them and the jobs back.

    From the JobQueue's status, its Deployments and pods, and the downstreams
    that its classes lean on. What you may not read is left out, and said.

    Example: kubectl jobqueue status shop
    """
    from jobqueue_operator.plugin import telling  # noqa: PLC0415 - heavy; --help needs none

    aim = Aim(namespace, context, kubeconfig)
    if name is None:
        telling.all_(aim, as_json=output == "json")
    else:
        telling.one(aim, name, as_json=output == "json")


def explain(
    name: Name,
    class_: Annotated[str | None, typer.Argument(metavar="CLASS", help="Only this class.", show_default=False)] = None,
    secret: SecretName = None,
    host: Host = None,
    port: Port = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Show a decision's numbers in full: what was seen, the law's terms, what bound it, what would change it.

    It asks the queue's database, with the login of the Secret NAME-queue-support
    or else the operator's, and decides as the operator would. When you may read
    neither, it shows what the status says, and says so.

    Example: kubectl jobqueue explain shop email
    """
    from jobqueue_operator.plugin import explaining  # noqa: PLC0415 - heavy; --help needs none

    explaining.explain(
        Aim(namespace, context, kubeconfig), name, class_, secret, Detour(host, port), as_json=output == "json"
    )


def pause(
    name: Name,
    classes: Classes = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Stop claims: jobs wait, running ones finish, workers stay. Sets spec.classes[].paused.

    A manifest that is applied again from elsewhere, as by GitOps, undoes it.

    Example: kubectl jobqueue pause shop email
    """
    from jobqueue_operator.plugin import changing  # noqa: PLC0415 - heavy; --help needs none

    aim = Aim(namespace, context, kubeconfig)
    changing.pause(aim, name, classes or [], paused=True, as_json=output == "json")


def resume(
    name: Name,
    classes: Classes = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Let paused classes claim again.

    Example: kubectl jobqueue resume shop email
    """
    from jobqueue_operator.plugin import changing  # noqa: PLC0415 - heavy; --help needs none

    aim = Aim(namespace, context, kubeconfig)
    changing.pause(aim, name, classes or [], paused=False, as_json=output == "json")


def restart(
    name: Name,
    class_: Annotated[str, typer.Argument(metavar="CLASS", help="The class.", show_default=False)],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = "text",
) -> None:
    """Replace a class's workers, one by one: each is drained, and no job is lost.

    Sets the annotation restart.jobqueue.dev/CLASS to the time now.

    Example: kubectl jobqueue restart shop email
    """
    from jobqueue_operator.plugin import changing  # noqa: PLC0415 - heavy; --help needs none

    changing.restart(Aim(namespace, context, kubeconfig), name, class_, as_json=output == "json")


def jobs(
    name: Name,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGS", help="What `jobqueue` is told: list, show, redrive, …", show_default=False),
    ] = None,
    secret: SecretName = None,
    host: Host = None,
    port: Port = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run the queue's own command line, with a login that you may read from a Secret.

    The login is fetched with your own rights, kept in a private folder while the
    command runs, and removed. Exit status and answer are those of `jobqueue`.

    A database that only the cluster can reach: run kubectl port-forward beside it,
    and say where with --host and --port.

    Example: kubectl jobqueue jobs shop -- list --status dead
    """
    from jobqueue_operator.plugin import passing  # noqa: PLC0415 - heavy; --help needs none

    raise typer.Exit(
        passing.jobs(Aim(namespace, context, kubeconfig), name, arguments or [], secret, Detour(host, port))
    )
