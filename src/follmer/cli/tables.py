"""Models of data files: `follmer fit`, `predict`, `info` and `report`."""

import enum
import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from follmer.cli.app import UNUSABLE, app, check_writable, errors_told, tell
from follmer.errors import FileError, InputError


class Task(enum.StrEnum):
    """What the target column is."""

    AUTO = "auto"
    REGRESSION = "regression"
    BINARY = "binary"
    MULTICLASS = "multiclass"
    COUNT = "count"


class Model(enum.StrEnum):
    """What predicts."""

    NETWORK = "network"
    LINEAR = "linear"


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing but errors and, where asked for, JSON.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, not text.")]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="The encoding of a text table, where it is told wrongly.", show_default=False
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=KIND: what a column is (numeric, boolean, categorical, date, ignore), where its "
        "cells do not say it. May be given several times.",
        show_default=False,
    ),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        help="The share of rows to judge by, which the fit does not see. By default a tenth, 20 to "
        "1000 rows; none of fewer than 100.",
        show_default=False,
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(help="The file that `follmer fit` wrote.", show_default=False)
]


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(help="A table: .csv, .tsv or .parquet.", show_default=False)
    ],
    target: Annotated[
        str, typer.Option(help="The column to predict from the others.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The file to write the model to.", show_default=False)],
    task: Annotated[
        Task, typer.Option(help="What the target is; auto tells it from its cells.")
    ] = Task.AUTO,
    model: Annotated[
        Model, typer.Option(help="A Bayesian network or linear model.")
    ] = Model.NETWORK,
    column: Columns = None,
    held_out: HeldOut = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    max_seconds: Annotated[
        float | None,
        typer.Option(help="Begin nothing new after so many seconds.", show_default=False),
    ] = None,
    encoding: Encoding = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Fit a model to a table: which column, how sure, judged on rows that were held out."""
    from follmer.columns import read_table
    from follmer.tabular import described, fit_table, header_of, save_model
    from follmer.tools.programs import enable_compilation_cache

    with errors_told(json):
        check_writable(out)
        enable_compilation_cache()
        fitted = fit_table(
            read_table(data, encoding=encoding),
            target,
            task=task.value,
            model=model.value,
            kinds=_kinds(column or []),
            held_out=held_out,
            seed=seed,
            max_seconds=max_seconds,
            progress=not quiet,
            tell=(lambda line: None) if quiet else tell,
        )
        save_model(fitted, out)
    header = header_of(fitted)
    if json:
        _tell_json({"model": str(out), **header})
    elif not quiet:
        typer.echo(f"{described(header)}\n\n{out}: the model, in {fitted.facts['seconds']} s")
    if not fitted.is_usable:
        raise typer.Exit(UNUSABLE)


@app.command()
def predict(
    model: ModelFile,
    data: Annotated[
        Path, typer.Argument(help="A table with the model's columns.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(help="The table to write: .csv, .tsv or .parquet.", show_default=False),
    ],
    level: Annotated[float, typer.Option(help="The probability that an interval holds.")] = 0.9,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of the table to write beside the predictions. May be given several "
            "times.",
            show_default=False,
        ),
    ] = None,
    encoding: Encoding = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Predict the rows of a table: mean, sd and interval, or the probability of each class."""
    from follmer.columns import check_format, read_table, write_table
    from follmer.tabular import header_of, load_model, verdict
    from follmer.tools.programs import enable_compilation_cache

    with errors_told(json):
        check_format(out)
        check_writable(out)
        enable_compilation_cache()
        loaded = load_model(model, progress=not quiet)
        table = read_table(data, encoding=encoding)
        kept = _kept(table, keep or [])
        predicted, remarks = loaded.predict(table, level=level)
        for name in reversed(kept):
            _check_free(name, predicted)
            predicted.insert(0, name, table.frame[name].to_numpy())
        write_table(predicted, out)
    remarks = (*table.remarks, *remarks)
    if json:
        names = list(predicted.columns)
        told = {"predictions": str(out), "rows": len(predicted), "columns": names}
        usable = loaded.is_usable
        _tell_json({**told, "remarks": list(remarks), "verdict": loaded.verdict, "usable": usable})
    elif not quiet:
        lines = [f"note: {remark}" for remark in remarks]
        typer.echo("\n".join([*lines, f"{out}: {len(predicted)} rows of predictions"]))
        if not loaded.is_usable:
            typer.echo(verdict(header_of(loaded)))


@app.command()
def info(model: ModelFile, json: AsJson = False) -> None:
    """What a model was fitted to, how it predicts rows that were held out, and its verdict."""
    from follmer.tabular import described, read_header

    with errors_told(json):
        header = read_header(model)
    if json:
        _tell_json({"model": str(model), **header})
    else:
        typer.echo(described(header))


@app.command()
def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="The file of a model, or the folder of a run of the experiments.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; by default beside the model, in the folder of a run.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """One page for the browser, which needs no network: of a model, or of a run's results."""
    with errors_told(json):
        if not source.exists():
            raise FileError(
                f"there is no file or folder {source}.",
                hint="the file that follmer fit wrote, or the folder that follmer reproduce wrote",
            )
        page = _run_page(source, out) if source.is_dir() else _model_page(source, out, quiet)
    if json:
        _tell_json({"page": str(page.resolve())})
    elif not quiet:
        typer.echo(page.resolve())


def _run_page(folder: Path, out: Path | None) -> Path:
    from follmer.paper.report import write_page

    if out is not None:
        raise InputError("the page of a run is written to its folder.", hint="no --out")
    return write_page(folder)


def _model_page(file: Path, out: Path | None, quiet: bool) -> Path:
    from follmer.tabular import load_model, write_page
    from follmer.tools.programs import enable_compilation_cache

    page = file.with_suffix(".html") if out is None else out
    check_writable(page)
    enable_compilation_cache()
    model = load_model(file, progress=not quiet)
    return write_page(model, page, tell=(lambda line: None) if quiet else tell)


def _kinds(options: Sequence[str]) -> dict[str, str]:
    """Names and kinds from NAME=KIND; names may hold an equals sign."""
    found = {}
    for option in options:
        name, equals, kind = option.rpartition("=")
        if not equals:
            raise InputError(
                f"--column {option!r} is not NAME=KIND.", hint="--column zip=categorical"
            )
        found[name.strip()] = kind.strip()
    return found


def _kept(table: Any, names: Sequence[str]) -> list[str]:
    from follmer.tools.checks import known_names

    known_names("column", names, table.names)
    return list(dict.fromkeys(names))


def _check_free(name: str, predicted: Any) -> None:
    if name in predicted:
        raise InputError(f"a column of the predictions is called {name!r} too.", hint="no --keep")


def _tell_json(content: dict[str, Any]) -> None:
    typer.echo(json_format.dumps(content, ensure_ascii=False, indent=2))
