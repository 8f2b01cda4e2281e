"""`capgrade.score`, CaptionScores, CiderReward, and the commands, as a user types them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import capgrade
import capgrade.reward
from capgrade.coco_files import read_candidates
from capgrade.schemas.errors import InputError
from tests.conftest import call

CANDIDATES = {"1": ["a dog runs"], "2": ["Two men talk, sitting."], "3": ["a red bus"]}
REFERENCES = {
    "1": ["a dog is running", "the dog runs fast"],
    "2": ["two men are talking"],
    "3": ["a bus", "red bus!"],
}


def test_every_measure() -> None:
    found = capgrade.score(
        CANDIDATES, REFERENCES, ["bleu", "meteor", "rouge_l", "cider", "scene_graph", "sbert"]
    )
    assert found.ids == ["1", "2", "3"]
    scores = "bleu_1 bleu_2 bleu_3 bleu_4 meteor rouge_l cider scene_graph sbert"
    assert list(found.corpus) == scores.split()
    for name, values in found.sentences.items():
        assert values.shape == (3,) and values.dtype == np.float64 and (values > 0).all(), name
    for name in ("rouge_l", "cider", "scene_graph", "sbert"):
        assert found.corpus[name] == pytest.approx(found.sentences[name].mean())


def test_lists_strings_and_several_candidates() -> None:
    one = capgrade.score(["a dog", "a cat"], [["a dog runs"], "the cat"], "rouge_l")
    two = capgrade.score(
        [["a dog", "a cat"], ["a cat"]], [["a dog runs"], ["the cat"]], ["rouge_l"]
    )
    assert one.ids == [0, 1] and two.ids == [0, 0, 1]
    np.testing.assert_array_equal(one.sentences["rouge_l"], two.sentences["rouge_l"][[0, 2]])


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({"1": ["a"]}, {1: ["a"]}, "1 image.s. have no references, '1' the first"),
        ({"1": ["a"]}, {"1": ["a"], "2": ["b"]}, "have no candidates, '2'"),
        (["a"], [["a"], ["b"]], "1 candidates, but 2 reference sets"),
        ({"1": ["a"]}, [["a"]], "not both dicts or both lists"),
        ({"1": []}, {"1": ["a"]}, r"candidates\['1'\]: no list of captions"),
        ({"1": ["a"]}, {"1": []}, r"references\['1'\]: no list of captions"),
        ({"1": ["a"]}, {"1": ["b", None]}, r"references\['1'\]\[1\]: not text"),
        ([], [], "no candidates"),
        ("a dog", "a dog", "candidates are 'a dog' -> give a dict"),
        (["a"], None, "references are None -> give a dict"),
    ],
)
def test_what_is_refused(candidates: object, references: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        capgrade.score(candidates, references, ["rouge_l"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown measure 'cidre'.*cider"):
        capgrade.score(CANDIDATES, REFERENCES, ["cidre"])
    with pytest.raises(InputError, match="unknown tokenizer 'ptbb'"):
        capgrade.score(CANDIDATES, REFERENCES, ["cider"], tokenizer="ptbb")


def test_batches_are_the_whole() -> None:
    whole = capgrade.score(CANDIDATES, REFERENCES)
    halves = capgrade.CaptionScores()
    other = capgrade.CaptionScores()
    for meter, ids in ((halves, "1"), (halves, "2"), (other, "3")):
        meter.update({ids: CANDIDATES[ids]}, {ids: REFERENCES[ids]})
    halves.merge_state(other)
    assert halves.compute().corpus == whole.corpus
    with pytest.raises(InputError, match="'3' was in an earlier batch"):
        halves.update({"3": ["a"]}, {"3": ["b"]})
    halves.reset()
    with pytest.raises(InputError, match="no candidates"):
        halves.compute()
    halves.update(["a dog", "a cat"], [["a dog"], ["cat"]])
    other.reset()
    other.update(["a red bus"], [["a bus"]])
    halves.merge_state(other)
    assert halves.compute().ids == [0, 1, 2]


def test_ids_that_look_like_numbers_stay_ids() -> None:
    """Of two processes, the second with the images 0 and 1: its scores stand under 0 and 1."""
    first, second, lists = (capgrade.CaptionScores(["rouge_l"]) for _ in range(3))
    first.update({100: ["a dog"], 101: ["a cat"]}, {100: ["a dog"], 101: ["a dog"]})
    second.update({0: ["a bus"], 1: ["a red bus"]}, {0: ["a bus"], 1: ["a car"]})
    first.merge_state(second)
    found = first.compute()
    assert found.ids == [100, 101, 0, 1] and found.sentences["rouge_l"][2] == 1
    with pytest.raises(InputError, match="image 0 was in an earlier batch"):
        first.merge_state(second)
    lists.update(["a dog"], [["a dog"]])
    lists.merge_state(second)
    with pytest.raises(InputError, match="an id is also the number of an image in a list"):
        lists.compute()


def test_a_reward_of_some_images_is_that_of_all() -> None:
    """By the frequencies of all references; words that they lack count."""
    references = [
        ["a dog runs fast", "the dog"],
        ["two men talk", "men talking here"],
        ["a red bus"],
    ]
    candidates = [["a dog runs", "zebra dog"], ["two men", "two men talk"], ["a red bus", "a"]]
    reward = capgrade.CiderReward(capgrade.Frequencies.of(references, "none"))
    found = reward(candidates, references)
    assert found.shape == (3, 2)
    part = reward(candidates[1:2], references[1:2])
    np.testing.assert_allclose(part, found[1:2], atol=1e-12)
    with pytest.raises(InputError, match=r"candidates\[1\]: 1 candidates, 2 of the first image"):
        reward([["a", "b"], ["a"]], references[:2])


def test_half_a_character_does_not_stop_a_run() -> None:
    """A sampled caption may hold half of a surrogate pair, whatever the tokenizer: it is U+FFFD."""
    references = [["a dog runs", "\ufffd"], ["two men talk"]]
    for tokenizer in ("none", "ptb_py", "lower_split"):
        reward = capgrade.CiderReward(capgrade.Frequencies.of(references, tokenizer))
        found = reward([["a \ud83d", "a \ufffd"], ["two", "men"]], references)
        assert found[0, 0] == found[0, 1] > 0, tokenizer


def test_bleu_that_is_0_says_why(recwarn: pytest.WarningsRecorder) -> None:
    found = capgrade.score(CANDIDATES, REFERENCES, ["bleu", "rouge_l"])
    assert found.corpus["bleu_2"] > 0.3 and found.corpus["bleu_3"] < 1e-3
    (warned,) = recwarn.list
    assert warned.category is capgrade.CapgradeWarning and warned.filename == __file__
    assert (
        str(warned.message)
        == "bleu_3, bleu_4: 0, as no 3 words in a row of any candidate are in its references (BLEU"
        " is for larger corpora)"
    )
    recwarn.clear()
    capgrade.score(CANDIDATES, REFERENCES, ["bleu_1", "bleu_2"])
    capgrade.score(["a dog runs fast"], [["a dog runs fast"]], ["bleu"])
    assert not recwarn.list
    capgrade.score(["", ""], [["a dog"], ["a cat"]], ["bleu"])
    assert len(recwarn) == 1, "one cause, one note"


def test_token_ids_are_their_texts(tmp_path: Path) -> None:
    """Lists, arrays and tensors of ids; behind the end mark is padding; also with frequencies from
    a file."""
    rng = np.random.default_rng(0)
    references = [rng.integers(1, 8, (2 + k % 2, 7)) for k in range(6)]
    for own in references:
        own[0, 5:] = 0
    candidates = rng.integers(0, 12, (6, 3, 9))  # some unknown to the references
    candidates[2, 1, 0] = 0

    def texts(sets: object) -> list[list[str]]:
        ended = [[[*map(int, one)] for one in own] for own in sets]  # type: ignore[attr-defined]
        return [
            [" ".join(map(str, one[: one.index(0) + 1] if 0 in one else one)) for one in own]
            for own in ended
        ]

    said = capgrade.Frequencies.of(texts(references), "none")
    wanted = capgrade.CiderReward(said)(texts(candidates), texts(references))
    counted = capgrade.Frequencies.of(references, "none", end=0)
    counted.write(tmp_path / "df.arrow")
    for frequencies in (counted, capgrade.Frequencies.read(tmp_path / "df.arrow", "none"), said):
        reward = capgrade.CiderReward(frequencies, end=0)
        for form in (np.asarray, torch.tensor, lambda ids: ids.tolist()):
            found = reward(form(candidates), [form(own) for own in references])
            np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert (wanted > 0).any()


def test_reward_on_ids_refuses(tmp_path: Path) -> None:
    reward = capgrade.CiderReward(capgrade.Frequencies.of([[[1, 2]], [[3]]], "none"), end=0)
    for candidates, references, message in (
        ([[[1]], [["a"]]], [[[1]], [[2]]], r"candidates\[1\]: no token ids"),
        ([[[1]]], [["a dog"]], r"references\[0\]: no token ids"),
        ([[[1.5]]], [[[1]]], r"candidates\[0\]: no token ids"),
        ([[[-1]]], [[[1]]], "token id -1 -> ids are 0 or more"),
        ([[[1]]], [[]], r"references\[0\]: no captions"),
        ([[[1]]], [[[1]], [[1]]], "1 candidates, but 2 reference sets"),
    ):
        with pytest.raises(InputError, match=message):
            reward(candidates, references)
    with pytest.raises(InputError, match="token ids, but frequencies with tokenizer ptb_py"):
        capgrade.CiderReward(capgrade.Frequencies.of([["a"], ["b"]]))([[[1]]], [[[1]]])
    with pytest.raises(
        InputError, match='token ids with tokenizer ptb_py -> give tokenizer="none"'
    ):
        capgrade.Frequencies.of([[[1]], [[2]]])
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="mine.txt"):
        reward.frequencies.write(tmp_path / "mine.txt")


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """A command on results in another order, beside captions with an image more."""
    rows = [
        {"image_id": 10 * int(i), "caption": text} for i, own in REFERENCES.items() for text in own
    ]
    rows = [
        {"id": k, **row}
        for k, row in enumerate([*rows, {"image_id": 40, "caption": "nobody described it"}])
    ]
    (tmp_path / "captions.json").write_text(json.dumps({"annotations": rows, "images": []}))
    results = [{"image_id": 10 * int(i), "caption": own[0]} for i, own in CANDIDATES.items()]
    (tmp_path / "results.json").write_text(json.dumps(results[::-1]))
    return [
        "score",
        "--references",
        f"{tmp_path}/captions.json",
        "--candidates",
        f"{tmp_path}/results.json",
    ]


def test_command(line: list[str], capsys: pytest.CaptureFixture) -> None:
    results, line = line[-1], [*line, "--set", "score.samples=50"]
    assert call(*line, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["corpus"] == pytest.approx(capgrade.score(CANDIDATES, REFERENCES).corpus)
    assert (printed["images"], printed["of_images"]) == (3, 4)
    for name, (low, high) in printed["intervals"].items():
        assert low <= printed["corpus"][name] + 1e-9 and high >= low, name
    assert call(*line, "--candidates", results, "--json") == 0
    compared = json.loads(capsys.readouterr().out)["compare"]
    assert compared["cider"]["difference"] == 0 and compared["cider"]["p_value"] == 1
    assert call(*line, "--candidates", results) == 0
    assert "3 captions of 4 images" in capsys.readouterr().out


def test_any_number_of_systems(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Several --candidates: one table, in files too, with tests of the first
    against the others."""
    files = [line[-1]]
    for k, text in enumerate(TEXTS):
        files.append(f"{tmp_path}/system{k}.json")
        rows = [{"image_id": 10 * int(i), "caption": text} for i in CANDIDATES]
        Path(files[-1]).write_text(json.dumps(rows))
    line = [*line, "--measures", "cider,bleu_1", "--set", "score.samples=50"]
    both = [*line, "--candidates", files[1], "--candidates", files[2]]
    assert call(*both, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["systems"]) == ["results.json", "system0.json", "system1.json"]
    wanted = [capgrade.score(CANDIDATES, REFERENCES, ["cider"]).corpus["cider"]]
    wanted += [
        capgrade.score(dict.fromkeys(CANDIDATES, t), REFERENCES, ["cider"]).corpus["cider"]
        for t in TEXTS
    ]
    assert [one["corpus"]["cider"] for one in found["systems"].values()] == pytest.approx(wanted)
    assert found["compare"]["system1.json"]["cider"]["difference"] == pytest.approx(
        wanted[0] - wanted[2]
    )
    for name in ("t.md", "t.tex"):
        assert call(*both, "--out", tmp_path / name) == 0
    text = (tmp_path / "t.md").read_text().splitlines()
    assert text[0] == "| score | results.json | system0.json | system1.json |"
    assert re.fullmatch(r"\| cider \| [\d.]+ \|( [\d.]+ \(p [\d.]+\) \|){2}", text[2])
    assert (
        r"cider &" in (tmp_path / "t.tex").read_text()
        and r"bleu\_1 &" in (tmp_path / "t.tex").read_text()
    )
    assert "against each other system" in " ".join(capsys.readouterr().out.split())
    assert call(*line, "--out", tmp_path / "t.md") == 2, "it is there"
    assert call(*line, "--out", tmp_path / "t.md", "--force") == 0
    assert (tmp_path / "t.md").read_text().startswith("| score | value | 95% interval |\n")
    (tmp_path / "mine.md").write_text("my notes")
    for name, message in (
        ("t.csv", "end --out with .md or .tex"),
        ("mine.md", "a file is there -> give --force"),
    ):
        assert call(*line, "--out", tmp_path / name) == 2
        assert message in capsys.readouterr().err
    Path(files[1]).write_text(json.dumps([{"image_id": 10, "caption": "a"}]))
    assert call(*line, "--candidates", files[1]) == 2
    assert f"{files[1]}: candidates of other images than in {files[0]}" in capsys.readouterr().err


TEXTS = ("a dog", "a red bus")


def test_systems_scored_by_other_references_are_not_compared() -> None:
    """The same images, and other references or another tokenizer."""
    ours = capgrade.score({"1": "a dog runs"}, {"1": ["a dog is running"]}, "rouge_l")
    others = capgrade.score({"1": "a dog runs"}, {"1": ["a cat sleeps"]}, "rouge_l")
    plain = capgrade.score(
        {"1": "a dog runs"}, {"1": ["a dog is running"]}, "rouge_l", tokenizer="none"
    )
    for other in (others, plain):
        with pytest.raises(capgrade.InputError, match="scored by other references, or another"):
            ours.compare(other)


def test_scores_print_on_a_line() -> None:
    many = {str(k): "a dog" for k in range(500)}
    found = capgrade.score(many, dict.fromkeys(many, ["the dog"]), ["bleu_1", "rouge_l"])
    assert str(found) == repr(found) and re.fullmatch(
        r"Scores of 500 candidates: bleu_1 [\d.]+, rouge_l [\d.]+", str(found)
    )


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (
            '[{"image_id": 10, "caption": "a"}, {"image_id": 10, "caption": "b"}]',
            r"row \[1\]: image 10 has a second",
        ),
        ('[{"image_id": 99, "caption": "a"}]', "image 99 has no references"),
        ('[{"image_id": 10}]', r"row \[0\]: no text as caption"),
        ('[{"image": 10, "caption": "a"}]', r"row \[0\]: no number or text as image_id"),
        (
            "image_id,caption\n10,a dog\n",
            r"bad.json row 1: not valid JSON .* -> give COCO.s .*; a table of .* pandas",
        ),
        (
            '[{"image_id": 10, "caption": "a d',
            r"bad.json row 1: not valid JSON .* -> correct .*a file that ends early",
        ),
        ('{"annotations": []}', "no list of results"),
        ("[]", "no list of results"),
    ],
)
def test_files_that_are_refused(
    results: str, message: str, line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "bad.json").write_text(results)
    assert call(*line[:-1], f"{tmp_path}/bad.json") == 2
    assert call("score", "--candidates", f"{tmp_path}/bad.json", "--references", str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert (
        f"{tmp_path}/bad.json" in said
        and f"{tmp_path}: a folder where a file is needed -> name the file in it" in said
    )
    assert re.search(message, said)


def test_references_of_another_layout_are_refused_as_such(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Karpathy's file has no annotations; it is no file of other images."""
    (tmp_path / "dataset.json").write_text(
        '{"images": [{"filename": "1.jpg", "sentences": [{"raw": "a dog"}]}]}'
    )
    assert call("score", "--references", tmp_path / "dataset.json", *line[3:]) == 2
    assert "dataset.json: no list of annotations -> give COCO's" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java to run the peer")
def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "captions.tsv").write_text(
        "image_id\tcaption_id\tcaption\n"
        + "".join(
            f"{i}\t{i}-{k}\t{text}\n"
            for i in "123"
            for k, text in enumerate([CANDIDATES[i][0], *REFERENCES[i]])
        )
    )
    assert (
        call(
            "captions",
            "--source",
            "tsv",
            "--input",
            f"{tmp_path}/captions.tsv",
            "--out",
            f"{tmp_path}/c",
        )
        == 0
    )
    capsys.readouterr()
    assert call("score", "--captions", f"{tmp_path}/c", "--json", module="research.benchmarks") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["tokenizer", "bleu", "meteor", "rouge_l", "cider", "total"]
    for name, row in found.items():
        assert {"seconds", "peer_seconds", "ratio", "max_abs_diff"} <= row.keys()
        assert row["max_abs_diff"] < 1e-6, name


def test_files_of_references_and_results_that_people_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"image_id": k, "caption": text} for k, texts in REFERENCES.items() for text in texts]
    marked = [*rows, {"image_id": "1", "caption": "spam", "is_rejected": True}]
    marked += [{"image_id": "9", "caption": "quality issues", "is_precanned": True}]
    for name, found in (("all", rows), ("marked", marked)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"annotations": found}))
    results = [{"image_id": k, "caption": texts[0]} for k, texts in CANDIDATES.items()]
    (tmp_path / "ours.json").write_text(json.dumps(results))
    (tmp_path / "more.json").write_text(
        json.dumps([*results, {"image_id": "9", "caption": "a dog"}])
    )

    def corpus(references: str, candidates: str) -> dict:
        files = (
            "--references",
            str(tmp_path / references),
            "--candidates",
            str(tmp_path / candidates),
        )
        assert call("score", *files, "--measures", "cider,rouge_l", "--json") == 0
        return json.loads(capsys.readouterr().out.strip())["corpus"]

    assert (
        corpus("marked.json", "ours.json")
        == corpus("all.json", "ours.json")
        == corpus("marked.json", "more.json")
    )
    rows = [{"image_id": k, "caption": "a dog"} for k in (1, 2)]
    (tmp_path / "floats.json").write_text(
        json.dumps([{**row, "image_id": float(row["image_id"])} for row in rows])
    )
    references = {1: ["a"], 2: ["b"]}
    assert read_candidates(tmp_path / "floats.json", references) == {1: ["a dog"], 2: ["a dog"]}
    (tmp_path / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        InputError, match=r"lines.json: JSON Lines, an object a row -> make it one list: jq -s"
    ):
        read_candidates(tmp_path / "lines.json", references)


def test_the_reward_takes_references_as_a_dataset_of_numpy_has_them() -> None:
    reward = capgrade.reward.RewardFunction(
        capgrade.CiderReward(capgrade.Frequencies.of(list(REFERENCES.values())))
    )
    sets = list(REFERENCES.values())
    arrays = [np.array(texts) for texts in sets]
    texts = [text for own in CANDIDATES.values() for text in own]
    assert reward(completions=texts, references=arrays) == reward(
        completions=texts, references=sets
    )
    with pytest.raises(
        InputError, match="3 completions, but 2 reference sets -> give a set of references for each"
    ):
        reward(completions=texts, references=arrays[:2])
