"""Tables that line up, and the lines that say what was measured where."""

from follmer.tools.tables import header, machine, markdown


def test_named_columns_are_flush_left_and_the_others_flush_right():
    rows = [{"name": "a", "value": "1.0"}, {"name": "longer", "value": "-10.0"}]
    assert markdown(rows, left={"name"}).splitlines() == [
        "| name   | value |",
        "| ------ | ----: |",
        "| a      |   1.0 |",
        "| longer | -10.0 |",
    ]


def test_columns_with_nothing_to_say_are_left_out():
    rows = [{"a": "1", "b": "", "c": ""}, {"a": "", "b": "", "c": "2"}]
    assert markdown(rows, left=()).splitlines()[0] == "| a | c |"


def test_a_cell_cannot_break_its_row():
    lines = markdown([{"a": "x|y\nz", "b": "1"}], left={"a"}).splitlines()
    assert lines[2] == "| x\\|y z | 1 |"
    assert len({len(line) for line in lines}) == 1


def test_no_rows_are_an_empty_table():
    assert markdown([], left=()) == ""


def test_the_header_says_when_where_and_with_what():
    lines = header(machine("follmer bench")).splitlines()
    names = [line.split(":")[0] for line in lines]
    assert names == ["command", "commit", "date", "cores", "platform", "precision", "versions"]
    assert lines[0].endswith("follmer bench")
    assert "jax " in lines[-1]
