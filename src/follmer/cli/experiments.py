"""The library at work: `follmer demo`, `bench` and `reproduce`."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from follmer.cli.app import FAILED, INTERRUPTED, app, errors_told, tell

_POSTERIORDB, _VERDICTS, _NETWORKS = "posteriordb", "verdicts", "networks"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the random key.")] = 0,
) -> None:
    """Fit a banana-shaped density and a small regression, show how good the draws are."""
    from follmer.demo import run
    from follmer.tools.programs import enable_compilation_cache

    with errors_told():
        enable_compilation_cache()
        picture = run(out, seed)
    typer.echo(f"\nDraws over contours: {picture.resolve()}")


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Targets (all of them by default); or posteriordb, and which of its posteriors; "
            "networks, and which data sets; or verdicts, and which families of random targets.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas (all of them by default).")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the random key.")] = 0,
    targets: Annotated[int, typer.Option(help="How many random targets `verdicts` takes.")] = 200,
    splits: Annotated[
        int, typer.Option(min=1, help="Splits of each data set of networks into training and test.")
    ] = 1,
    first_split: Annotated[
        int, typer.Option(min=0, help="The first of these splits; defaults were chosen on 0 to 4.")
    ] = 0,
    list_names: Annotated[
        bool, typer.Option("--list", help="Print the names of targets and methods.")
    ] = False,
) -> None:
    """Known targets by the default fit and by other methods: evidence, modes, time, in a table."""
    names = names or []
    if names[:1] == [_NETWORKS] and not list_names:
        chosen_splits = range(first_split, first_split + splits)
        _bench_networks(names[1:], _listed(methods), chosen_splits, seed, json)
        return
    if names[:1] == [_VERDICTS] and not list_names:
        _bench_verdicts(names[1:], targets, seed, json)
        return
    on_posteriordb = _POSTERIORDB in names
    if on_posteriordb:
        import jax

        # Several of its models need 64-bit floats, and arrays keep the precision they began with.
        jax.config.update("jax_enable_x64", True)
    from follmer.bench import running, table
    from follmer.bench.targets import CASES

    if list_names:
        typer.echo(f"targets: {', '.join([*CASES, _POSTERIORDB, _NETWORKS, _VERDICTS])}")
        typer.echo(f"methods: {', '.join(running.METHODS)}")
        return
    chosen = _listed(methods)
    with errors_told():
        todo: Iterator[Any]
        if on_posteriordb:
            posteriors = [name for name in names if name != _POSTERIORDB] or None
            chosen = chosen or running.POSTERIORDB_METHODS
            todo = running.run_posteriordb(posteriors, seed=seed, methods=chosen, progress=tell)
        else:
            chosen = chosen or running.METHODS
            todo = running.run(names or tuple(CASES), seed=seed, methods=chosen, progress=tell)
        _tell_records(todo, json, table.table)


def _bench_networks(
    names: list[str], methods: tuple[str, ...], splits: range, seed: int, json: bool
) -> None:
    """Networks on public data sets, beside other methods."""
    from follmer.bench import networks

    sets, chosen = names or networks.SETS, methods or networks.METHODS
    with errors_told():
        todo = networks.run(sets, splits=splits, seed=seed, methods=chosen, progress=tell)
        _tell_records(todo, json, networks.table)


def _bench_verdicts(families: list[str], targets: int, seed: int, json: bool) -> None:
    """Random targets of known truth: how often the verdict is wrong."""
    from follmer.bench.verdicts import run_verdicts, verdict_table

    with errors_told():
        todo = run_verdicts(targets, families, seed=seed, progress=tell)
        _tell_records(todo, json, verdict_table)


def _tell_records(todo: Iterable[Any], as_json: bool, in_words: Callable[[list[Any]], str]) -> None:
    """All records, or those that were finished before Ctrl-C, as JSON or as a table."""
    from follmer.bench import table
    from follmer.tools.tables import header, machine

    records: list[Any] = []
    try:
        records.extend(todo)
    except KeyboardInterrupt:
        tell("interrupted: what was finished follows")
    measured_on = machine(shlex.join(["follmer", *sys.argv[1:]]))
    if as_json:
        typer.echo(table.as_json(measured_on, records))
    else:
        typer.echo(f"{header(measured_on)}\n\n{in_words(records)}")


Iterations = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Iterations in place of every method's own, to cut the authors' down for a CPU.",
        show_default=False,
    ),
]
Tiny = Annotated[
    bool,
    typer.Option("--tiny", hidden=True, help="All the way at toy size; the numbers mean nothing."),
]


@app.command()
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(help="Experiments of the paper, or all.", show_default=False),
    ],
    preset: Annotated[
        str, typer.Option(help="auto, follmer's default; or paper, the authors' setting.")
    ] = "auto",
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas (all of them by default).")
    ] = "",
    seeds: Annotated[int, typer.Option(help="How often everything is run.")] = 5,
    iterations: Iterations = None,
    out: Annotated[
        Path, typer.Option(help="The folder to write; what other runs left there stays.")
    ] = Path("results"),
    missing: Annotated[
        bool, typer.Option("--missing", help="Run only what the folder lacks.")
    ] = False,
    tiny: Tiny = False,
) -> None:
    """Run the paper's experiments: a table beside the paper's numbers, figures and a page."""
    from follmer.paper.experiments.experiment import METHODS
    from follmer.paper.experiments.running import EXPERIMENTS
    from follmer.paper.report import comparison
    from follmer.paper.report.reading import read_run
    from follmer.paper.reproduce import reproduce
    from follmer.tools.programs import enable_compilation_cache

    chosen = list(EXPERIMENTS) if names == ["all"] else names
    interrupted = False
    with errors_told():
        enable_compilation_cache()
        try:
            reproduce(
                chosen,
                preset=preset,
                methods=_listed(methods) or METHODS,
                seeds=seeds,
                iterations=iterations,
                out=out,
                missing=missing,
                tiny=tiny,
                progress=tell,
            )
        except KeyboardInterrupt:
            interrupted = True
            tell("interrupted: what was finished follows")
        records = [one for one in read_run(out).records if one["experiment"] in chosen]
    typer.echo(comparison(records))
    typer.echo(f"\nThe page: {(out / 'report.html').resolve()}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if not any(record["metrics"] for record in records):
        tell("follmer: nothing could be measured.")
        raise typer.Exit(FAILED)


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())
