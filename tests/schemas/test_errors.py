"""One error, two roads: what to do about it is written as Python or as a shell takes it."""

import pickle

from capgrade.pipelines.cli.options import option_of
from capgrade.schemas.errors import InputError


def test_arguments_are_named_as_the_road_takes_them() -> None:
    keys = "split", "above", "parameters.sbert.model", "sample.top"
    remedy = " ".join(f"{{{key}}}" for key in keys)
    error = InputError("no {split}", file="{above}", remedy=remedy, keys=keys)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert str(copy) == (
            "{above}: no {split} -> split above parameters['sbert']['model'] sample['top']"
        )
        assert copy.at_shell(option_of) == (
            "{above}: no {split} -> --split --set evaluate.above.MEASURE=VALUE"
            " --set measures.sbert.model --set shards.top"
        )
    assert str(error.of("b")).startswith("b: no {split} -> split above")


def test_a_remedy_without_arguments_is_left_as_it_is() -> None:
    """Braces of a user's text are no arguments."""
    error = InputError("no column", remedy="there are: {split}")
    assert str(error) == error.at_shell(option_of) == "no column -> there are: {split}"
