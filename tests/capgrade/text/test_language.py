"""Scripts without spaces, and measures that know English alone on captions that are not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from capgrade.coco import PTBTokenizer
from capgrade.measures import choose
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.params import MeasuresParams
from capgrade.reward import CiderReward, RewardFunction
from capgrade.schemas.say import CapgradeWarning
from capgrade.scoring import score
from capgrade.text.language import describe_other_language
from capgrade.text.tokens import tokenize, tokens_of
from tests.conftest import DATA, call, make_captions

CHINESE = [
    ["一只狗在沙滩上奔跑。", "一只棕色的狗在沙滩上跑"],
    ["两个人骑自行车", "两个男人在街上骑自行车"],
]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("一只狗在 Beach 上 2020，", ["一", "只", "狗", "在", "beach", "上", "2020"]),
        ("犬が「走る」。", ["犬", "が", "走", "る"]),
        ("ทราย น้ำ", ["ท", "ร", "า", "ย", "น้", "ำ"]),
        ("A dog's well-made toy!", ["a", "dog's", "well-made", "toy"]),
        ("Ein Äpfelchen, groß", ["ein", "äpfelchen", "groß"]),
        ("。、！?", []),
    ],
)
def test_characters(text: str, tokens: list[str]) -> None:
    assert tokenize("characters", [text]) == [tokens]


@pytest.mark.parametrize("tokenizer", ["ptb_py", "lower_split", "word_unigram", "characters"])
def test_a_script_without_spaces_is_said(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"i{i}\ti{i}#{k}\t{text}"
        for i, texts in enumerate([*CHINESE, ["a dog", "狗 park dog cat tree"]])
        for k, text in enumerate(texts)
    ]
    (tmp_path / "c.tsv").write_text(
        "\n".join(["image_id\tcaption_id\tcaption", *lines]) + "\n", encoding="utf-8"
    )
    source = (
        "--source",
        "tsv",
        "--input",
        str(tmp_path / "c.tsv"),
        "--split",
        "test",
        "--tokenizer",
        tokenizer,
    )
    assert call("captions", *source, "--out", str(tmp_path / "c")) == 0
    said = capsys.readouterr().err
    assert ("4 of 6 captions are in a script without spaces" in said) == (tokenizer != "characters")
    assert ("use the tokenizer characters" in said) == (tokenizer != "characters")


def german() -> list[list[str]]:
    path = DATA / "flickr30k" / "train.de.token"
    if not path.is_file():
        pytest.skip("the German captions of ../shared/data are not here")
    with path.open(encoding="utf-8") as f:
        texts = [next(f).rstrip("\n").split("\t", 1)[1] for _ in range(100)]
    return [texts[k : k + 5] for k in range(0, 100, 5)]


ENGLISH = [
    ["a dog runs on the beach", "the brown dog is running"],
    ["two men with bikes", "a man rides to the city"],
]


@pytest.mark.parametrize("name", ["meteor", "scene_graph", "sbert", "people", "cider", "rouge_l"])
@pytest.mark.parametrize("sets", [german, lambda: ENGLISH], ids=["german", "english"])
def test_measures_for_english_say_so(
    name: str, sets: Callable[[], list[list[str]]], recwarn: pytest.WarningsRecorder
) -> None:
    choose([name], MeasuresParams())[name].fit(make_captions(sets()))
    said = sum("is made for English" in str(one.message) for one in recwarn)
    of_english = {"meteor": 1, "scene_graph": 1, "sbert": 1, "people": 2}.get(name, 0)
    assert said == (of_english if sets is german else 0)


def english(count: int) -> list[list[str]]:
    path = DATA / "flickr30k" / "train.en.token"
    if not path.is_file():
        pytest.skip("the captions of ../shared/data are not here")
    with path.open(encoding="utf-8") as f:
        return [[next(f).rstrip("\n").split("\t", 1)[1]] for _ in range(count)]


def test_captions_are_looked_at_one_by_one() -> None:
    """Multi30k's, where the second half is German, are half English by their words."""
    assert describe_other_language(tokens_of(make_captions(english(1000)))) is None
    mixed = [*english(300), *german()]  # 400 captions
    found = describe_other_language(tokens_of(make_captions(mixed)))
    assert (
        found is not None
        and 100 <= int(found.split()[0]) < 120
        and "of 400 captions have none" in found
    )


def test_a_long_caption_does_not_outweigh_the_others() -> None:
    many = [[f"a dog runs to the {k}"] for k in range(9)] * 5
    assert describe_other_language(tokens_of(make_captions([*many, ["word " * 3000]]))) is None
    others = [["word " * 60 + "the a"], *[["Hund"]] * 9]
    assert (
        describe_other_language(tokens_of(make_captions([*many, *others])))
        == "10 of 55 captions have none of the words that tell English (a, the, of, with, and, ...)"
    )


CHINESE_SETS = dict(enumerate(CHINESE))
ROADS: dict[str, Callable[[], object]] = {
    "score": lambda: score({0: ["狗在沙滩上"], 1: ["两个人"]}, CHINESE_SETS, ["cider"]),
    "Frequencies": lambda: Frequencies.of(CHINESE_SETS),
    "CiderReward": lambda: CiderReward(WORDS)([["狗在沙滩上"]], [CHINESE[0]]),
    "trl": lambda: RewardFunction(CiderReward(WORDS))(
        completions=["狗在沙滩上"], references=[CHINESE[0]]
    ),
    "coco": lambda: PTBTokenizer().tokenize({0: [{"caption": CHINESE[0][0]}]}),
}
WORDS = Frequencies.of([["a dog"], ["a cat"]])


@pytest.mark.parametrize("road", ROADS)
def test_every_road_names_the_tokenizer_for_scripts_without_spaces(road: str) -> None:
    with pytest.warns(
        CapgradeWarning, match="use the tokenizer characters .*--set score.tokenizer="
    ):
        ROADS[road]()


def test_score_says_what_meteor_is_made_for() -> None:
    with pytest.warns(CapgradeWarning) as said:
        score({0: ["狗在沙滩上"], 1: ["两个人"]}, CHINESE_SETS, ["meteor"], tokenizer="characters")
    assert [
        "meteor is made for English, and 6 of 6 captions" in str(one.message) for one in said
    ] == [True]
