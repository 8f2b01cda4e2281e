"""Scene graphs: what captions are parsed to, what matches, and the kernel against the
definition."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from capgrade.measures.scene_graph import SceneGraph, SceneGraphParams
from capgrade.measures.scene_graph.lexicon import scene_lexicon
from capgrade.measures.scene_graph.parse import Graph, parse
from capgrade.measures.scene_graph.tuples import TupleReader, Tuples
from capgrade.pipelines.cli import app
from capgrade.schemas.captions import Captions
from tests.capgrade.measures.test_definitions import slow_matrix
from tests.conftest import DATA, make_captions

ANY = "a the two red dog dogs 's of on and is by riding rides covered it zzq 7 -"
FEW = "a man woman dog red two on rides and near sits sofa couch of the"


PARSES = {  # of a caption: its objects, attributes and relations
    "a man and a woman riding brown horses on the beach": (
        "man, woman, horse, beach",
        "man ride, woman ride, horse brown",
        "man ride horse, woman ride horse, man on beach, woman on beach",
    ),
    "a tennis player swings his racket": (
        "tennis player, racket", "tennis player swing", "tennis player swing racket",
    ),
    "two black and white cats are sitting in front of a window": (
        "cat, window", "cat two, cat black, cat white, cat sit", "cat near window",
    ),
    "a carriage pulled by a horse": ("carriage, horse", "carriage pull", "horse pull carriage"),
    "a group of people standing around a table with plates of food and wine": (
        "people, table, plate, food, wine",
        "people many, people stand",
        "people near table, table with plate, plate of food, plate of wine",
    ),
    "the man is tall": ("man", "man tall", ""),
    "cars parked along the side of a road": ("car, road", "car park", "car near road"),
    "a fire hydrant": ("fire hydrant", "", ""),
    "of the and !": ("", "", ""),
    "Two dogs, on a sofa.": ("dog, sofa", "dog two", "dog on sofa"),
}  # fmt: skip


@pytest.mark.parametrize("caption", PARSES)
def test_parses(caption: str) -> None:
    """As the command prints it."""
    shown = CliRunner().invoke(app, ["parse", caption])
    assert shown.stdout == "objects: {}\nattributes: {}\nrelations: {}\n".format(*PARSES[caption])


@given(st.lists(st.sampled_from(ANY.split()), max_size=12))
@settings(max_examples=300, deadline=None)
def test_parses_anything(words: list[str]) -> None:
    """Ends of attributes and relations are objects, and nothing is related to itself."""
    graph = parse(tuple(words))
    assert {noun for noun, _ in graph.attributes} <= set(graph.objects)
    assert {end for source, _, target in graph.relations for end in (source, target)} <= set(
        graph.objects
    )
    assert all(source != target for source, _, target in graph.relations)


def value(caption: str, *references: str, **weights: float) -> float:
    fitted = SceneGraph(SceneGraphParams(**weights)).fit(make_captions([references, [caption]]))
    return float(fitted.score(np.array([0]), np.array([len(references)]))[0, 0])


def test_synonyms_match() -> None:
    assert value("a couch", "a sofa") == value("a large bicycle", "a big bike") == 1
    assert (
        value("a corgi", "a dog") > value("a corgi", "an animal") > value("a corgi", "a table") == 0
    )


def test_references_are_one_graph() -> None:
    """Objects of different references match together: no single reference has both."""
    assert value("a dog and a cat", "a dog", "a cat") == 1


def test_weights_by_hand() -> None:
    """SPICE's counts: 2 of 3 tuples (man, horse; not ride) are matched, of 3 of the reference."""
    plain = {"kinds": 0, "attributes": 0, "attached": 0, "relations": 1, "beta": 1}
    assert value("a man on a horse", "a man under a horse", **plain) == pytest.approx(2 / 3)
    assert value("a man", "a man under a horse", **plain) == pytest.approx(
        2 * 1 * (1 / 3) / (1 + 1 / 3)
    )
    assert value(
        "a red car", "a blue car", kinds=0, attributes=0.5, attached=0, beta=1
    ) == pytest.approx(1 / 1.5)


def slow_f(caption: Tuples, references: list[Tuples], beta: float) -> float:
    merged: Tuples = {}
    for reference in references:
        for key, weight in reference.items():
            merged[key] = max(merged.get(key, 0), weight)
    precision = sum(w for key, w in caption.items() if key in merged) / (sum(caption.values()) or 1)
    recall = sum(w for key, w in merged.items() if key in caption) / (sum(merged.values()) or 1)
    return (
        (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
        if precision and recall
        else 0.0
    )


words = st.lists(st.sampled_from(FEW.split()), max_size=9)
some_sets = st.lists(st.lists(words.map(" ".join), min_size=2, max_size=4), min_size=1, max_size=4)
weights = st.sampled_from([0.0, 0.25, 0.5, 1.0])


SOME_PARAMS = st.builds(
    SceneGraphParams,
    kinds=weights,
    attributes=weights,
    relations=weights,
    beta=st.sampled_from([0.3, 1.0, 2.0]),
    self_reference=st.sampled_from(["included", "left_out"]),
)


@given(some_sets, SOME_PARAMS)
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_definition(sets: list[list[str]], params: SceneGraphParams) -> None:
    fitted, images = SceneGraph(params).fit(make_captions(sets)), np.arange(len(sets))
    whole = fitted.score(images)
    reader = TupleReader(scene_lexicon(), params)
    graphs = [
        [reader.tuples(parse(tuple(caption.split()))) for caption in captions] for captions in sets
    ]
    expected = slow_matrix(
        graphs, partial(slow_f, beta=params.beta), params.self_reference == "left_out"
    )
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    assert np.array_equal(fitted.score(images, np.arange(0, whole.shape[1], 2)), whole[:, ::2])


def test_what_tuples_imply_comes_in_one_order() -> None:
    """By the alphabet, as sums go in the order of the tuples; a set of texts has another order in
    each process."""
    reader = TupleReader(scene_lexicon(), SceneGraphParams())
    for noun in (
        "corgi",
        "waiter",
        "skier",
        "tennis player",
        "pizza",
        "motorcycle",
        "kitchen",
        "bride",
        "laptop",
    ):
        *kinds, _ = [key for key in reader.tuples(Graph((noun,), (), ())) if key[0] == "object"]
        assert kinds == sorted(kinds)


def test_agrees_with_people_better_than_spice(coco: Captions) -> None:
    """On 1,000 images of COCO: published SPICE has 0.728 over all judged pairs, 0.536 on
    non-original ones (of all 5,000 images)."""
    from capgrade.agreement.judgement_files import read_judgements

    people = read_judgements(DATA / "coco" / "cxc_sits_test.csv", coco)
    some = np.isin(people.image, np.arange(0, 5000, 5))
    people = type(people)(people.image[some], people.caption[some], people.score[some])
    values = SceneGraph(SceneGraphParams()).fit(coco).pairs(people.image, people.caption)
    other = coco.owner[people.caption] != people.image
    assert np.corrcoef(values, people.score)[0, 1] > 0.728
    assert np.corrcoef(values[other], people.score[other])[0, 1] > 0.536
