"""Recipes: each loads, its runs can be built, and its numbers are those of the paper's text, read
anew here."""

import re

import pytest

from capgrade.losses import LossTerms
from capgrade.measures import choose
from capgrade.metrics.catalogue import find_metric
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import configure
from capgrade.trainer.stages.train import TrainParams
from research.reproduce.recipe import list_recipes, load_recipe, recipe_names, settings_of
from tests.conftest import ROOT

PAPERS = ROOT.parent / "shared" / "papers"
TEXTS = {"SAM": "000", "SemanticMap": "001", "DAA": "002", "BCLS": "003", "TERAN": "004"}
UNREADABLE = {("bcls-4", "VSRN*")}  # the text has 8l1.1 for 81.1


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_has_what_its_rows_need(name: str) -> None:
    recipe = load_recipe(name)
    for small in (False, True):
        settings = settings_of(recipe, None, [], small)
        for run in settings.runs.values():
            LossTerms([{**term, "alpha": 0.2} if "alpha" in term else term for term in run.loss])
            configure(run.model.name, run.model.options, 2048, 10)
            choose([run.measure], settings.measures)
    choose(recipe.relevance, settings.measures)
    for column in (column for section in recipe.sections for column in section.parsed_columns):
        if column.metric != "pearson":
            assert all(find_metric(one) for one in column.metrics)
    assert {row.measure for row in recipe.rows} == {None} or not recipe.runs


def test_runs_of_one_name_are_one_run() -> None:
    """Recipes may share an --out: a run's name stands for the same parameters in all of them."""
    known: dict[str, TrainParams] = {}
    for name in recipe_names():
        for run, params in settings_of(load_recipe(name), None, [], False).runs.items():
            assert known.setdefault(run, params) == params, (name, run)


def test_every_table_of_the_papers_has_a_recipe() -> None:
    found = {(one["paper"], one["table"]) for one in list_recipes().values()}
    sam = {("SAM", str(k)) for k in range(1, 6)}
    semantic = {("SemanticMap", str(k)) for k in (1, 2, 3, 4, 6)}
    # I is words alone
    bcls = {("BCLS", k) for k in ("II", "III", "IV", "V", "VI", "VII", "VIII", "IX")}
    others = {("DAA", "1"), ("DAA", "2"), ("TERAN", "1"), ("TERAN", "2"), ("TERAN", "3")}
    assert found == sam | semantic | bcls | others


TABLES = {"SAM": 5, "SemanticMap": 6, "DAA": 2, "BCLS": 9, "TERAN": 3}
FIGURES = {"SAM": 3, "SemanticMap": 6, "DAA": 1, "BCLS": 7, "TERAN": 5}


def test_the_page_of_papers_has_every_table_and_figure() -> None:
    page = (ROOT / "research" / "README.md").read_text(encoding="utf-8")
    lines = [
        line
        for line in page.splitlines()
        if re.match(rf"\| ({'|'.join(TABLES)}) \| (table|figure) ", line)
    ]
    roman = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9}
    recipes = {(one["paper"], one["table"]) for one in list_recipes().values()}
    said = {(f"{paper} table", str(roman.get(table, table))) for paper, table in recipes}
    for line in lines:
        paper, what, how = (cell.strip() for cell in line.strip("|").split(" | "))
        assert how, line
        kind, _, numbers = what.partition(" ")
        for part in numbers.split(", "):
            first, _, last = part.partition("-")
            said |= {(f"{paper} {kind}", str(k)) for k in range(int(first), int(last or first) + 1)}
    kinds = {"table": TABLES, "figure": FIGURES}
    assert said == {
        (f"{p} {k}", str(n))
        for k, of in kinds.items()
        for p, m in of.items()
        for n in range(1, m + 1)
    }


def _numbers(text: str) -> list[str]:
    """Digits of each number of a line; recognised text loses points now and then."""
    return [
        found.replace(".", "").lstrip("0") or "0" for found in re.findall(r"\d+(?:\.\d+)?", text)
    ]


def _forms(value: float) -> set[str]:
    return {
        text.replace(".", "").lstrip("0") or "0"
        for text in (f"{value:g}", *(f"{value:.{k}f}" for k in (1, 2, 3)))
    }


@pytest.mark.parametrize("name", recipe_names())
def test_published_numbers_are_in_the_paper_in_their_order(name: str) -> None:
    recipe = load_recipe(name)
    files = sorted(PAPERS.glob(f"{TEXTS[recipe.paper]}_*.txt"))
    if not files:
        pytest.skip("the papers' texts are not here")
    lines = [_numbers(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    for row in recipe.rows:
        forms = [_forms(value) for value in row.published if value is not None]
        found = any(
            all(line[at + k] in form for k, form in enumerate(forms))
            for line in lines
            for at in range(len(line) - len(forms) + 1)
        )
        assert found != ((name, row.row) in UNREADABLE), row.row


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("shards.top=3", "a recipe's other parameters are the paper's"),
        ("presets.f30k-scan.epochs=1", "no run 'f30k-scan'"),
        ("train.epochs=0", "epochs"),
        ("presets.f30k-sgr=3", "'presets.f30k-sgr' is 3"),
    ],
)
def test_settings_that_do_not_fit(key: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings_of(load_recipe("sam-3-f30k"), None, [key], False)


def test_settings_lie_upon_each_other() -> None:
    sets = ["train.lr=3", "presets.f30k-sgr.epochs=4", "measures.cider.sigma=5"]
    found = settings_of(load_recipe("sam-3-f30k"), None, sets, True)
    assert (found.runs["f30k-vsrn"].epochs, found.runs["f30k-sgr"].epochs) == (1, 4)
    assert {run.lr for run in found.runs.values()} == {3}
    assert found.runs["f30k-sgr"].model.options["embed"] == 16 and found.measures.cider.sigma == 5


def test_an_unknown_recipe_names_its_parts() -> None:
    with pytest.raises(InputError, match="sam-3-coco, sam-3-f30k"):
        load_recipe("sam-3")
