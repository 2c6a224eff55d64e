"""Tables from files: encodings, delimiters, and errors that name the place."""

import numpy as np
import pandas
import pytest

from follmer import FileError, InputError
from follmer.columns import read_table, write_table

TEXT = "größe;stadt\n1,5;Åre\n2;Köln\n"


@pytest.fixture
def written(tmp_path):
    """A file of these bytes or this text."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_names_and_cells_are_the_same_in_every_encoding(written, encoding):
    table = read_table(written(TEXT.encode(encoding)))
    assert table.names == ["größe", "stadt"]
    assert table.frame["stadt"].tolist() == ["Åre", "Köln"]
    assert bool(table.remarks) == (encoding == "cp1252")


def test_an_encoding_can_be_named(written):
    path = written("a,b\nщ,1\n".encode("cp1251"))
    assert read_table(path, encoding="cp1251").frame["a"].tolist() == ["щ"]
    with pytest.raises(InputError, match="not an encoding"):
        read_table(path, encoding="klingon")
    with pytest.raises(InputError, match="not text in ascii"):
        read_table(path, encoding="ascii")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_told_from_the_lines(written, delimiter):
    rows = [["a", "b, c", "d"], ["1", "x; y", "2"], ["3", "z", "4"]]
    lines = [delimiter.join(f'"{cell}"' for cell in row) for row in rows]
    table = read_table(written("\n".join(lines)))
    assert table.names == rows[0]
    assert table.frame.to_numpy().tolist() == rows[1:]


def test_one_column_needs_no_delimiter(written):
    assert read_table(written("y\n1\n2\n")).frame["y"].tolist() == ["1", "2"]


def test_a_tsv_has_tabs_whatever_else_it_holds(written):
    table = read_table(written("a,b\tc\n1,2\t3\n", "table.tsv"))
    assert table.names == ["a,b", "c"]


def test_cells_in_quotes_may_hold_delimiters_and_lines(written):
    table = read_table(written('a,b\n"x, ""y""","two\nlines"\n'))
    assert table.frame.iloc[0].tolist() == ['x, "y"', "two\nlines"]


def test_many_spellings_of_missing_are_missing(written):
    table = read_table(written("a,b\n,1\nNA,2\n nan ,3\n?,4\nnull,5\nx,6\n"))
    assert table.frame["a"].isna().tolist() == [True] * 5 + [False]


def test_nameless_columns_are_numbered(written):
    assert read_table(written(",x\n0,1\n1,2\n")).names == ["column 1", "x"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        ("a,b\n", "no rows"),
        ("a,a\n1,2\n", "several columns named 'a'"),
        ("a,b\n1,2\n3,4,5\n", "row 2 of .* has 3 cells; the header has 2"),
        ("a,b\n1,2\n3\n", "row 2 of .* has 1 cells; the header has 2"),
        (b"PK\x03\x04\x00\x00\x00", "bytes of value 0"),
    ],
)
def test_what_is_no_table_is_told(written, content, says):
    with pytest.raises(InputError, match=says):
        read_table(written(content))


def test_files_that_are_not_there_or_of_another_kind_are_told(tmp_path, written):
    with pytest.raises(FileError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="cannot read"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(InputError, match=r"\.parquet"):
        read_table(written("a\n1\n", "table.xlsx"))
    with pytest.raises(FileError, match="Parquet"):
        read_table(written("a\n1\n", "table.parquet"))


def test_parquet_keeps_its_types_and_refuses_lists(tmp_path):
    path = tmp_path / "table.parquet"
    frame = pandas.DataFrame(
        {
            "n": [1, 2],
            "b": [True, None],
            "d": pandas.to_datetime(["2024-01-01", None]),
            "c": pandas.Categorical(["u", "v"]),
        }
    )
    frame.to_parquet(path)
    read = read_table(path).frame
    assert read["n"].dtype.kind == "i"
    assert read["d"].dtype.kind == "M"
    assert read["c"].tolist() == ["u", "v"]
    pandas.DataFrame({"n": [[1], [2, 3]]}).to_parquet(path)
    with pytest.raises(InputError, match="row 1, column 'n'"):
        read_table(path)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_a_table_that_was_written_is_read_again(tmp_path, name):
    frame = pandas.DataFrame({"mean": [1.25, np.pi], "label": ["a, b", "c\td"]})
    write_table(frame, tmp_path / name)
    read = read_table(tmp_path / name).frame
    assert read["label"].tolist() == frame["label"].tolist()
    np.testing.assert_allclose(read["mean"].astype(float), frame["mean"], rtol=1e-6)
