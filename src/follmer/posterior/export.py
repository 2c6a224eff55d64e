"""Draws as files that other programs read: netCDF and Parquet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from follmer.errors import InputError, optional_module
from follmer.tools.storage import replacing

if TYPE_CHECKING:
    import xarray

_NETCDF, _PARQUET = (".nc", ".netcdf", ".h5"), (".parquet", ".pq")


def check_export(path: Path) -> None:
    """Raise unless the path's suffix is known and the package to write it is there."""
    if path.suffix.lower() in _NETCDF:
        optional_module("h5netcdf", extra="export", purpose="a netCDF file")
    elif path.suffix.lower() in _PARQUET:
        optional_module("pyarrow", extra="export", purpose="a Parquet file")
    else:
        raise InputError(
            f"{path.name} does not say in which format the draws shall be.",
            hint=f"a name that ends in {', '.join((*_NETCDF, *_PARQUET))}",
        )


def write_draws(tree: "xarray.DataTree", path: Path) -> None:
    """Write the tree, whole or not at all, in the format of the path's suffix."""
    if path.suffix.lower() in _NETCDF:
        content = tree.to_netcdf(engine="h5netcdf")
        with replacing(path) as file:
            file.write(content)
        return
    table = _table(tree)
    parquet = optional_module("pyarrow.parquet", extra="export", purpose="a Parquet file")
    with replacing(path) as file:
        parquet.write_table(table, file)


def _table(tree: "xarray.DataTree") -> Any:
    """One row per draw, one column per number; diagnostics as JSON in the metadata."""
    pyarrow = optional_module("pyarrow", extra="export", purpose="a Parquet file")
    draws = tree["posterior"].to_dataset()
    chains, length = draws.sizes["chain"], draws.sizes["draw"]
    columns = {
        "chain": np.repeat(np.arange(chains), length),
        "draw": np.tile(np.arange(length), chains),
    }
    groups = [draws]
    if "sample_stats" in tree.children:
        groups.append(tree["sample_stats"].to_dataset())
    facts: dict[str, Any] = {}
    for group in groups:
        facts |= {
            name: value for name, value in group.attrs.items() if not name.startswith("creat")
        }
        for name, variable in group.data_vars.items():
            columns |= dict(_columns(str(name), variable))
    return pyarrow.table(columns).replace_schema_metadata({"follmer": json.dumps(facts)})


def _columns(name: str, variable: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of a variable, named by its places: `level[a]`, `w[0,1]`."""
    values = np.asarray(variable)
    labels = [
        variable.coords[axis].values if axis in variable.coords else np.arange(size)
        for axis, size in zip(variable.dims[2:], values.shape[2:], strict=True)
    ]
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    for i, place in enumerate(np.ndindex(values.shape[2:])):
        names = ",".join(str(axis[j]) for axis, j in zip(labels, place, strict=True))
        yield (f"{name}[{names}]" if names else name), flat[:, i]
