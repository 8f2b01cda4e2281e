"""A library call leaves the caller's process as it was: in one of its own, as others' tests change
the same."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging, os, warnings
import huggingface_hub, numpy as np, torch, transformers
from huggingface_hub import constants
from huggingface_hub.utils import _http, are_progress_bars_disabled
from transformers.utils import logging as said
import capgrade
from capgrade.measures.embeddings import embed
from capgrade.pipelines.publish.check import check
from capgrade.pretrained import from_pretrained
from capgrade.schemas.errors import InputError
import sentence_transformers, datasets

constants.HF_HUB_OFFLINE, constants.ENDPOINT = False, "http://127.0.0.1:9"
torch.set_num_threads(1)

def state():
    loggers = [logging.getLogger(), *map(logging.getLogger, ("transformers", "sentence_transformers", "huggingface_hub",
               "huggingface_hub.utils._http", "datasets", "numba"))]
    return {
        "offline": constants.HF_HUB_OFFLINE, "levels": [(one.name, one.level, list(one.filters)) for one in loggers],
        "bars": (said.is_progress_bar_enabled(), are_progress_bars_disabled()), "verbosity": said.get_verbosity(),
        "client": _http._GLOBAL_CLIENT_FACTORY, "threads": torch.get_num_threads(), "env": dict(os.environ),
        "filters": list(warnings.filters), "shown by": warnings.showwarning, "numpy": np.geterr(),
        "random": (np.random.get_state()[1].tolist(), torch.initial_seed(), torch.get_default_dtype()),
    }

def refused(call):
    try:
        call()
    except InputError:
        return
    raise SystemExit("not refused")

REFERENCES, CANDIDATES = [["a dog runs", "the dog is running"], ["two men ride", "men on bikes"]], ["a dog", "two men"]
CALLS = {
    "score": lambda: capgrade.score(CANDIDATES, REFERENCES, ["cider", "bleu", "rouge_l"]),
    "score of an encoder": lambda: embed(["a dog", "word " * 400], "all-MiniLM-L6-v2"),
    "reward": lambda: capgrade.CiderReward(capgrade.Frequencies.of(REFERENCES))([["a dog"], ["two men"]], REFERENCES),
    "evaluate_lists": lambda: capgrade.evaluate_lists({"a": {"x": 1.0}}, {"a": {"x": 1}, "b": {"y": 1}}, ["r@5"]),
    "evaluate": lambda: capgrade.evaluate(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)),
    "labels of the hub": lambda: refused(lambda: capgrade.Labels.load("nobody/nothing")),
    "model of the hub": lambda: refused(lambda: from_pretrained("AutoConfig", "model", "nobody/nothing")),
    "encoder of the hub": lambda: refused(lambda: embed(["a dog"], "nobody/nothing")),
    "check of the hub": lambda: refused(lambda: check("a/b")),
}
for name, call in CALLS.items():
    before = state()
    call()
    after = state()
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    print(name, changed) if changed else print(name, "ok")
"""


def test_a_call_changes_nothing_of_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 9 and all(line.endswith(" ok") for line in lines), done.stdout
    assert (
        "CapgradeWarning: 1 text is longer" in done.stderr
        and "CapgradeWarning: 1 of 2 judged" in done.stderr
    )


def test_filters_work_on_warnings(tmp_path: Path) -> None:
    """Each line of a caller is told once by Python's own rule, or as often as the caller's filters
    say."""
    program = """
import sys, warnings, capgrade
warnings.simplefilter(sys.argv[1], capgrade.CapgradeWarning)
for _ in range(2):
    capgrade.evaluate_lists({"a": {"x": 1.0}}, {"a": {"x": 1}, "b": {"y": 1}}, ["recall@1"])
"""
    said = {}
    for action in ("default", "always", "ignore", "error"):
        done = subprocess.run(
            [sys.executable, "-c", program, action],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        said[action] = done.returncode, done.stderr.count("CapgradeWarning: 1 of 2 judged queries")
    assert said["default"] == (0, 1) and said["always"] == (0, 2) and said["ignore"] == (0, 0)
    assert said["error"][0] == 1
