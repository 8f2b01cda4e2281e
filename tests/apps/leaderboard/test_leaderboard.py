"""The leaderboard: numbers of `evaluate`, groups of a paired test, one error for a wrong entry, and
a page that sorts."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from playwright.sync_api import Browser

from capgrade.apps.leaderboard.entries import CARD
from capgrade.lists import LikelyList, write_list
from capgrade.schemas.captions import read_captions
from capgrade.trainer.evaluation.stored import METRICS_FILE, PER_QUERY_FILE
from tests.conftest import (
    ROOT,
    call,
    caption_table,
    printed,
    random_sets,
    refusal,
    valued_pairs,
    write_captions_folder,
)
from tests.pipelines.publish.conftest import hub  # noqa: F401  # a stand-in for the hub
from tests.pipelines.publish.stand_in import File, Hub, Repo
from tests.tools.browser import opened_file, problems_of

IMAGES = 60
HOSTILE = "<script>document.title='owned'</script> a model with quite a long name"
EXAMPLE = ROOT / "examples" / "leaderboard"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions, relevance, likely positives, and four entries: two alike, one worse as embeddings,
    one of chance."""
    folder = tmp_path_factory.mktemp("board")
    sets = random_sets(IMAGES, seed=2, least=3, most=3)
    write_captions_folder(folder / "captions", [caption_table(sets)])
    line = ("--captions", folder / "captions", "--measures", "cider")
    assert call("relevance", *line, "--out", folder / "relevance") == 0
    table, random = read_captions(folder / "captions"), np.random.default_rng(0)
    lists = dict(zip(table.image_ids, table.caption_ids[1:], strict=False))
    own = {
        image: [table.caption_ids[c] for c in table.rows_of(k)]
        for k, image in enumerate(table.image_ids)
    }
    content = {
        "captions": table.digest,
        "split": table.split,
        "image_to_caption": {k: [*own[k], one] for k, one in lists.items()},
    }
    (folder / "positives.json").write_text(json.dumps(content))
    truth = (np.asarray(table.owner) == np.arange(IMAGES)[:, None]).astype(np.float32)
    noise = random.normal(size=(3, *truth.shape))
    card: dict[str, Any] = {"name": "first", "by": "us", "model": "a model"}
    entry(folder, "a", card, similarity=truth + 0.3 * noise[0])
    card = {"name": HOSTILE, "link": "https://example.org/b"}
    entry(folder, "b", card, similarity=truth + 0.31 * noise[1])
    vectors = random.normal(size=(IMAGES, 32))
    texts = vectors[table.owner] + 2.2 * random.normal(size=(table.n_captions, 32))
    card = {"captions": table.digest[:12], "date": "2026-11-29"}
    entry(folder, "c", card, images=vectors, captions=texts)
    entry(folder, "d", {}, similarity=noise[2])
    return folder


def entry(world: Path, at: str, card: dict[str, Any], **arrays: np.ndarray) -> None:
    """An entry's folder with its card and arrays."""
    (folder := world / "entries" / at).mkdir(parents=True)
    (folder / CARD).write_text(yaml.safe_dump(card))
    for what, array in arrays.items():
        np.save(folder / f"{what}.npy", array.astype(np.float32))


def labels(world: Path) -> list[object]:
    given = ["--captions", world / "captions", "--relevance", world / "relevance"]
    return [*given, "--set", f"evaluate.positives={world}/positives.json"]


@pytest.fixture(scope="module")
def board(world: Path) -> dict[str, Any]:
    """What the command prints, with its page `board.html`."""
    return printed("leaderboard", world / "entries", *labels(world), "--out", world / "board.html")


def test_numbers_are_those_of_evaluate(world: Path, board: dict[str, Any]) -> None:
    """Also of embeddings, with intervals; metrics are those that the labels give."""
    vectors = [world / "entries" / "c" / f"{what}.npy" for what in ("images", "captions")]
    sources = {
        "first": ["--similarity", world / "entries" / "a" / "similarity.npy"],
        "c": ["--embeddings", vectors[0], "--embeddings", vectors[1]],
    }
    assert list(board["entries"]) == ["first", HOSTILE, "c", "d"] and board["evaluated"] == 4
    names = ["recall@1", "recall@5", "recall@10", "ndcg@25", "accepted_recall@1"]
    for name, source in sources.items():
        found = board["entries"][name]
        wanted = printed("evaluate", *labels(world), *source)
        columns = [(way, metric) for way in ("i2t", "t2i") for metric in names]
        keys = [f"{way}/{metric}".replace("@25", "@25[cider]") for way, metric in columns]
        assert {*found["values"]} == {*keys, "rsum"}
        for key, (way, metric) in zip(keys, columns, strict=True):
            assert found["values"][key] == pytest.approx(wanted[way][metric], abs=1e-12)
            assert found["intervals"][key] == pytest.approx(wanted["intervals"][way][metric])
        assert found["values"]["rsum"] == pytest.approx(wanted["rsum"])
        assert found["intervals"]["rsum"] == pytest.approx(wanted["intervals"]["rsum"])
    digest = board["inputs"]["captions"]
    assert {"captions", "relevance", "positives"} == {*board["inputs"]} and len(digest) == 64


def test_groups_are_what_compare_does_not_tell_apart(
    world: Path, board: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {name: one["groups"] for name, one in board["entries"].items()}
    assert [groups[name]["rsum"] for name in ("first", HOSTILE, "c", "d")] == [1, 1, 2, 3]
    evaluations = world / "board-evaluations"
    for other, told in (("b", False), ("c", True), ("d", True)):
        pair = [evaluations / "a", evaluations / other]
        test = printed("compare", *pair, "--metric", "rsum")["rsum"]
        assert (test["p_value"] < 0.05) == told
    assert call("compare", evaluations, "--metric", "rsum") == 0  # each entry by its folder
    assert "rsum" in capsys.readouterr().out


def test_what_was_evaluated_is_not_evaluated_again(
    world: Path, board: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But an entry with other scores is, and every one by other labels."""
    out = ["--out", world / "board.html", "--force"]
    line = ["leaderboard", world / "entries", *labels(world), *out]
    with monkeypatch.context() as patch:  # nor is anything tested again
        patch.delattr("capgrade.apps.leaderboard.groups_of")
        again = printed(*line)
    assert again["evaluated"] == 0 and again["entries"] == board["entries"]
    scores = world / "entries" / "d" / "similarity.npy"
    before = scores.read_bytes()
    np.save(scores, np.load(scores)[:, ::-1])
    assert printed(*line)["evaluated"] == 1
    scores.write_bytes(before)
    other = ["--out", world / "other.html"]
    named = [*line[:-3], *other, "--set", "evaluate.metric=[recall@5]"]
    assert printed(*named)["evaluated"] == 4
    assert {*printed(*named, "--force")["entries"]["d"]["values"]} == {
        "i2t/recall@5",
        "t2i/recall@5",
    }
    assert "a file is there -> give --force" in refusal(*named)
    assert printed(*line)["entries"] == board["entries"]


CARDS = {
    "nmae: x": "entry.yaml: unknown parameter 'nmae' -> near it: name",
    "link: javascript:x()": "entry.yaml: parameter 'link' is 'javascript:x()'",
    "date: soon": "entry.yaml: parameter 'date' is 'soon'",
    "name: first": "entry.yaml: 'first' is the name of a too -> give each entry its own name",
    "captions: 0123456789ab": "entry.yaml: of captions 0123456789ab, not ",
}


@pytest.mark.parametrize("card", CARDS)
def test_a_wrong_card_is_one_line(card: str, world: Path, tmp_path: Path) -> None:
    copied = entries_of(world, tmp_path)
    (copied / "d" / CARD).write_text(card)
    line = refusal("leaderboard", copied, *labels(world), "--out", tmp_path / "board.html")
    assert CARDS[card] in line and not (tmp_path / "board.html").exists()


def entries_of(world: Path, folder: Path) -> Path:
    """The first entry and the last, in another folder."""
    for name in ("a", "d"):
        (folder / "entries" / name).mkdir(parents=True)
        for path in (world / "entries" / name).iterdir():
            (folder / "entries" / name / path.name).write_bytes(path.read_bytes())
    return folder / "entries"


def test_a_wrong_entry_is_one_line(world: Path, tmp_path: Path) -> None:
    """One without a card, with too many files or none, or of other captions."""
    copied = entries_of(world, tmp_path)
    line = ["leaderboard", copied, *labels(world), "--out", tmp_path / "board.html"]
    scores, card = (copied / "d" / name for name in ("similarity.npy", CARD))
    text = card.read_text()
    card.unlink()
    assert f"{copied / 'd'}: an entry without a card -> write entry.yaml there" in refusal(*line)
    card.write_text(text)
    np.save(scores, np.zeros((3, 9), np.float32))
    said = refusal(*line)
    assert f"{scores}: (3, 9) scores, not (60, 180) (images x captions) -> score the same" in said
    np.savez(copied / "d" / "similarity.npz", similarity=np.zeros((60, 180)),
             image_ids=[f"x{k}" for k in range(60)])  # fmt: skip
    assert "an entry with similarity.npy, similarity.npz -> put similarity.npy there" in refusal(
        *line
    )
    scores.unlink()
    assert f"{scores.with_suffix('.npz')}: " in refusal(*line)
    (copied / "d" / "similarity.npz").unlink()
    assert "an entry with no scores" in refusal(*line)
    np.save(copied / "d" / "images.npy", np.zeros((60, 2)))
    assert "an entry with images.npy -> put" in refusal(*line)
    assert "no entries here -> give a folder" in refusal(
        "leaderboard", world / "captions", *line[2:]
    )
    assert "nothing to evaluate by -> give --captions" in refusal("leaderboard", world / "entries")
    fold = [*labels(world), "--set", "evaluate.fold=[5]"]
    assert "evaluate.fold with a leaderboard" in refusal("leaderboard", world / "entries", *fold)
    assert "the page's name does not end in .html" in refusal(*line[:-1], tmp_path / "board")


def test_a_list_is_in_place_of_captions(world: Path, tmp_path: Path) -> None:
    owner = np.repeat(np.arange(IMAGES), 3)
    pairs = valued_pairs(np.array([0]), np.array([5]), np.array([50], np.uint8), np.ones(1))
    write_list(
        tmp_path / "few.parquet", LikelyList(np.arange(IMAGES), np.arange(len(owner)), owner, pairs)
    )
    line = ["--set", f"evaluate.lists={tmp_path}/few.parquet", "--out", tmp_path / "board.html"]
    copied = entries_of(world, tmp_path)
    found = printed("leaderboard", copied, *line)["entries"]["first"]
    assert {"i2t/recall@1", "t2i/accepted_recall@1", "rsum"} <= {*found["values"]}
    assert "takes similarities alone -> give --captions" in refusal(
        "leaderboard", world / "entries", *line, "--force"
    )


def test_entries_of_a_repository_of_the_hub(
    hub: Hub,  # noqa: F811
    world: Path,
    board: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    root = world / "entries"
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    (repo := Repo()).add({name: File.of(path.read_bytes()) for name, path in files.items()})
    hub.repos["someone/entries"] = repo
    line = [*labels(world), "--out", tmp_path / "board.html"]
    assert printed("leaderboard", "someone/entries", *line)["entries"] == board["entries"]
    hub.change("someone/entries", f"e/{CARD}", b"name: new\n")
    assert call("leaderboard", "someone/entries", *line, "--force") == 2
    assert "an entry with no scores" in capsys.readouterr().err
    assert "Repository Not Found" in refusal("leaderboard", "someone/nothing", *line, "--force")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_sorts_and_parts_groups(
    width: int, world: Path, board: dict[str, Any], browser: Browser
) -> None:
    page, heard = opened_file(
        browser, world / "board.html", viewport={"width": width, "height": 900}
    )
    assert page.title() == "Leaderboard: 4 entries on 60 images, 180 captions"
    head = page.locator("header").inner_text()
    assert re.search(r"By rsum .+ is first \(\d+\.\d\); .+ is not told from it\.", head)
    tables = page.locator("#board figure:has(.cg-number)")
    assert tables.locator("figcaption").all_inner_texts() == [
        "Both directions", "Image to text", "Text to image",
    ]  # fmt: skip
    table = tables.nth(1)

    def parted() -> list[bool]:
        rows = table.locator("tbody tr").all()
        return ["cg-apart" in (row.get_attribute("class") or "") for row in rows]

    def groups(metric: str) -> list[int]:
        names = table.locator("tbody th").all_inner_texts()
        return [board["entries"][name]["groups"][f"i2t/{metric}"] for name in names]

    at = groups("recall@1")
    assert at == sorted(at), "the best first"
    assert parted() == [False, *(a != b for a, b in zip(at, at[1:], strict=False))]
    button = table.get_by_role("button", name="ndcg@25[cider]")
    button.click()
    by = groups("ndcg@25[cider]")
    assert by == sorted(by) and parted() == [
        False,
        *(a != b for a, b in zip(by, by[1:], strict=False)),
    ]
    button.click()
    assert groups("ndcg@25[cider]") == by[::-1] and any(parted())
    first = board["entries"]["first"]
    cell = table.locator("tbody tr", has_text="first").locator("td").first
    low, high = (f"{100 * end:.1f}" for end in first["intervals"]["i2t/recall@1"])
    value = f"{100 * first['values']['i2t/recall@1']:.1f}%"
    assert cell.inner_text().split() == [
        value,
        str(first["groups"]["i2t/recall@1"]),
        f"{low}–{high}",
    ]
    link = tables.first.get_by_role("link", name=HOSTILE)
    assert link.get_attribute("href") == "https://example.org/b"
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert board["inputs"]["captions"][:12] in page.locator("#evaluated").inner_text()
    assert "\n".join(problems_of(page)) == "" and heard == []
    page.close()


def test_a_file_of_another_program_is_not_written_over(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "entries" / "a", tmp_path / "entries" / "a")
    (groups := tmp_path / "board-evaluations" / "groups.json").parent.mkdir()
    groups.write_text('{"mine": 1}')
    given = ("leaderboard", tmp_path / "entries", *labels(world), "--out", tmp_path / "board.html")
    assert "a file that no leaderboard wrote -> move it away" in refusal(*given)
    assert groups.read_text() == '{"mine": 1}'


def test_one_entry_has_a_page_too(world: Path, tmp_path: Path) -> None:
    (copied := entries_of(world, tmp_path) / "d" / CARD).unlink()
    (copied.parent / "similarity.npy").unlink()
    out = tmp_path / "board.html"
    found = printed("leaderboard", copied.parents[1], *labels(world), "--out", out)
    assert found["entries"]["first"]["groups"]["rsum"] == 1
    assert "By rsum first is first" in out.read_text(encoding="utf-8")
    assert {METRICS_FILE, PER_QUERY_FILE} <= {
        p.name for p in (tmp_path / "board-evaluations" / "a").iterdir()
    }


def test_the_space_makes_the_board_of_a_repository(
    world: Path, board: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands, but those of other programs, on a folder as its README has it."""
    _, front, _ = (EXAMPLE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    space = yaml.safe_load(front)
    assert space["sdk"] == "docker"
    text = (EXAMPLE / "Dockerfile").read_text(encoding="utf-8")
    _, _, typed = text.replace("\\\n", " ").partition("\nCMD ")
    fetch, make, serve = (shlex.split(one) for one in typed.split("&&"))
    assert fetch[:3] == ["hf", "download", "$ENTRIES"] and str(space["app_port"]) in serve
    shutil.copytree(world / "entries", tmp_path / "entries")
    for name in ("captions", "relevance"):
        (tmp_path / "entries" / name).symlink_to(world / name)
    positives = f"evaluate: {{positives: {world}/positives.json}}\n"
    (tmp_path / "entries" / "params.yaml").write_text(positives)
    monkeypatch.chdir(tmp_path)
    assert make[0] == "capgrade" and printed(*make[1:])["entries"] == board["entries"]
    assert (tmp_path / serve[-1] / "index.html").is_file()
