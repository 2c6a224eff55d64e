"""What the README and the examples say runs."""

import functools
import re
import runpy
from pathlib import Path

import pytest

import follmer

ROOT = Path(__file__).parent.parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_of_the_readme_runs(snippet, monkeypatch):
    short = functools.partial(
        follmer.fit, num_iterations=20, num_steps=4, precondition="identity", audit=False
    )
    monkeypatch.setattr(follmer, "fit", short)
    exec(snippet, {})


def test_the_readme_has_snippets():
    assert len(SNIPPETS) == 4


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_an_example_runs(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_relative_links_of_the_documentation_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
