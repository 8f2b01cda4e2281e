"""Mixtures of measures as scores of single captions: `people` in `score`, as a reward, of a corpus
that is given."""

from pathlib import Path

import numpy as np
import pytest

import capgrade
from capgrade.measures import MeasuresParams, choose
from capgrade.measures.sbert.shared import SharedMap
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pretrained import EMBEDDED
from capgrade.reward import RewardFunction
from capgrade.schemas.captions import Caption, read_captions
from capgrade.schemas.errors import InputError
from tests.conftest import printed, random_sets, refusal

EXAMPLES = Path(__file__).parents[2] / "examples"

SETS = [
    ["A dog runs on the beach.", "A puppy is running over sand."],
    ["A bowl of soup.", "Hot soup.", "Two bowls of hot soup."],
    ["Two men play chess.", "Men at a board game."],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions of one split; the first three images are those of SETS."""
    folder = tmp_path_factory.mktemp("corpus") / "captions"
    sets = [*SETS, *random_sets(40, seed=3, least=2)]
    records = [
        Caption(f"i{i}", f"i{i}#{k}", "test", text, "sets", k)
        for i, captions in enumerate(sets)
        for k, text in enumerate(captions)
    ]
    write_records(folder, records, CaptionsParams())
    return folder


def params_of(**blocks: object) -> MeasuresParams:
    return MeasuresParams.model_validate(blocks)


@pytest.mark.parametrize("name", ["people", "people_shared", "sbert_mean", "of_all"])
@pytest.mark.filterwarnings("ignore::capgrade.schemas.say.CapgradeWarning")
def test_a_score_is_the_relevance_of_the_corpus(name: str, folder: Path) -> None:
    """Every caption with every image, as candidates; document frequencies and what captions share
    are those of the corpus."""
    params = params_of(
        sbert={"shared_from": str(folder)},
        cider={"document_frequency": str(folder)},
        mixtures={"of_all": {"cider": 0.1, "bleu": 0.4, "rouge_l": 0.2, "sbert_shared": -0.3}},
    )
    captions = read_captions(folder)
    fitted = choose([name], params)[name].fit(captions)
    few = np.arange(7)
    wanted = fitted.score(np.arange(3))[:, few]
    candidates = [[captions.texts[k] for k in few]] * 3
    options = {"tokenizer": captions.tokenizer, "params": params}
    found = capgrade.score(candidates, SETS, name, **options).sentences[name]
    np.testing.assert_allclose(found.reshape(3, 7), wanted, atol=2e-6)


@pytest.mark.filterwarnings("ignore::capgrade.schemas.say.CapgradeWarning")
def test_without_another_corpus_the_references_are_it() -> None:
    sets = random_sets(30, seed=5, least=2)
    candidates = [own[0] for own in sets]
    from_table = write_and_fit(sets)
    found = capgrade.score(candidates, sets, ["sbert_shared"]).sentences["sbert_shared"]
    own = np.cumsum([0, *(len(one) for one in sets[:-1])])
    np.testing.assert_allclose(found, from_table[np.arange(len(sets)), own], atol=2e-6)
    with pytest.raises(InputError, match="two images.*set measures.sbert.shared_from.*coco"):
        capgrade.score(["a dog"], [["a dog", "a puppy"]], ["people_shared"])


def write_and_fit(sets: list[list[str]]) -> np.ndarray:
    from tests.conftest import make_captions

    measure = choose(["sbert_shared"], MeasuresParams())["sbert_shared"]
    return measure.fit(make_captions(sets)).score(np.arange(len(sets)))


def test_what_ships_needs_no_corpus() -> None:
    """Values of one sample are those beside others."""
    params = params_of(sbert={"shared_from": "coco"})
    alone = capgrade.score(["a dog runs"], SETS[:1], "people_shared", params=params)
    beside = capgrade.score(["a dog runs", "soup", "men"], SETS, "people_shared", params=params)
    assert alone.corpus["people_shared"] == beside.sentences["people_shared"][0]
    assert beside.sentences["people_shared"][0] > 0.5
    meter = capgrade.CaptionScores(["people_shared"], params=params)
    meter.update(["a dog runs"], SETS[:1])
    assert meter.compute().corpus == alone.corpus


def test_a_mixture_of_what_scores_no_candidates_is_unknown() -> None:
    with pytest.raises(InputError, match="unknown measure 'daa_average'"):
        capgrade.score(["a"], [["b"]], ["daa_average"])  # tfidf_cosine scores no candidates
    with pytest.raises(InputError, match="unknown measure 'mine'"):
        capgrade.score(["a"], [["b"]], ["mine"])


def test_a_reward_of_people() -> None:
    reward = capgrade.CaptionReward("people")
    candidates = [["a dog runs", "a cat"], ["hot soup", "cold soup"], ["men", "two women"]]
    found = reward(candidates, SETS)
    wanted = capgrade.score(candidates, SETS, "people").sentences["people"]
    assert found.shape == (3, 2) and np.array_equal(found.ravel(), wanted)
    np.testing.assert_array_equal(reward(candidates[:1], SETS[:1]), found[:1])  # of any batch
    function = RewardFunction(reward)
    assert function.__name__ == "people"
    assert function(completions=candidates[0], references=SETS[:1] * 2) == found[0].tolist()
    for name in ("cider", "people_shared"):
        with pytest.raises(InputError, match="other captions of a batch -> set measures.cider"):
            capgrade.CaptionReward(name)
    shared = params_of(sbert={"shared_from": "coco"})
    assert capgrade.CaptionReward("people_shared", params=shared)([["a dog"]], SETS[:1]) > 0.4
    with pytest.raises(InputError, match=r"candidates\[1\]: 1 candidates, 2 of the first image"):
        reward([["a", "b"], ["c"]], SETS[:2])


def test_the_commands(folder: Path, tmp_path: Path) -> None:
    captions, path = read_captions(folder), tmp_path / "shared.arrow"
    SharedMap.of_captions(captions, EMBEDDED).write(path, EMBEDDED)
    by_file, by_folder = (SharedMap.read(str(at), EMBEDDED) for at in (path, folder))
    np.testing.assert_allclose(by_file.root, by_folder.root, atol=1e-5)
    files = ("--candidates", EXAMPLES / "results.json", "--references", EXAMPLES / "captions.json")
    found = printed(
        *("score", *files, "--measures", "rouge_l,people_shared,mine"),
        *("--set", f"measures.sbert.shared_from={path}"),
        *("--set", "measures.mixtures.mine={rouge_l: 0.5, sbert: 1}"),
    )["corpus"]
    sbert = printed("score", *files, "--measures", "sbert")["corpus"]["sbert"]
    assert list(found) == ["rouge_l", "people_shared", "mine"]
    assert found["mine"] == pytest.approx(found["rouge_l"] / 2 + sbert)
    said = refusal(
        *("score", *files, "--measures", "people_shared"),
        *("--set", f"measures.sbert.shared_from={folder / 'captions.arrow'}"),
    )
    assert "no map to what captions share" in said and "give coco, or a captions folder" in said
