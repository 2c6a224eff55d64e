"""The guide to the command line names commands, options and exit codes that there are."""

import re
import shlex
from pathlib import Path

import pandas
import pytest
import typer

from follmer.cli import app
from follmer.cli.app import FAILED, INTERRUPTED, UNUSABLE
from follmer.columns import learn_outcome, learn_schema, read_table

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "command_line.md").read_text()
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("follmer ")
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_of_the_guide_can_be_read(words):
    command = typer.main.get_command(app).commands[words[0]]
    # Raises where an option is unknown or an argument is missing.
    command.make_context(words[0], words[1:])


def test_every_option_that_the_guide_names_is_there():
    commands = typer.main.get_command(app).commands
    known = {option for name in commands for one in commands[name].params for option in one.opts}
    named = set(re.findall(r"`(--[a-z-]+)", GUIDE))
    assert len(named) > 8
    assert named <= known


def test_the_exit_codes_are_those_of_the_commands():
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", GUIDE, re.MULTILINE)}
    assert told == {0, FAILED, 2, UNUSABLE, INTERRUPTED}


def test_the_table_of_the_guide_is_read_as_the_guide_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(block, {})
    table = read_table("houses.csv")
    outcome = learn_outcome(table, "price")
    assert f"{outcome.task} ({outcome.why})" in GUIDE
    schema, remarks = learn_schema(table, target="price")
    for one in schema.dropped:
        assert f"left out    {one.name}: {one.why}" in GUIDE
    for remark in remarks:
        assert f"note        {remark}" in GUIDE
    told = schema.encode(read_table("new.csv"))[1]
    assert f"note: {told[0]}" in GUIDE
    assert pandas.isna(read_table("new.csv").frame["area"].iloc[2])  # of h902
