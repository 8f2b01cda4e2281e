"""What was typed in the version before, and what to type now. Kept for one version."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from capgrade.schemas.errors import InputError

NOW = {
    "agree --accept": "--set agree.accept=SCORE",
    "agree --import": "--measures cider,NAME=FILE",
    "agree --sampling": "--set agree.sampling=random",
    "agree --scale": "--set agree.scale=LOW..HIGH",
    "align": "capgrade search --run RUN --words DIR",
    "bench corpus --images": "--set bench.images=N",
    "bench corpus --out": "--set bench.out=DIR",
    "bench corpus --source": "--captions DIR",
    "bench explore --dataset": "--captions DATASET",
    "captions --empty": "--set captions.empty=drop",
    "compare": "capgrade evaluate --compare A --compare B",
    "curves": "dvc plots show, which draws epochs.csv",
    "embed": "capgrade evaluate --run RUN --captions DIR",
    "evaluate --caption-embeddings": "--embeddings IMAGES CAPTIONS",
    "evaluate --image-embeddings": "--embeddings IMAGES CAPTIONS",
    "evaluate --instances": "--set evaluate.instances=FILE",
    "evaluate --ties": "--set evaluate.ties=reference",
    "evaluate --samples": "--set evaluate.samples=0",
    "evaluate -k": "--set evaluate.k=[1,5,10]",
    "evaluate -m": "--set evaluate.m=[5,10]",
    "evaluate -p": "--set evaluate.p=25",
    "explore --detector": "--set explore.detector=scenes",
    "explore --host": "--set explore.host=ADDRESS",
    "explore --judgements": "--set explore.judgements=FILE",
    "explore --port": "--set explore.port=N",
    "explore --weights": "--set regions.weights=FILE",
    "frequencies": "capgrade captions --input CAPTIONS --frequencies FILE",
    "judge --parallel": "--set judge.parallel=N",
    "judge --per-minute": "--set judge.per_minute=N",
    "judge --price-in": "--set judge.price_in=PRICE",
    "judge --price-out": "--set judge.price_out=PRICE",
    "judge --prompt": "--set judge.prompt=FILE",
    "judge --timeout": "--set judge.timeout=SECONDS",
    "judge --tries": "--set judge.tries=N",
    "parse": 'capgrade captions --parse "a caption"',
    "publish --name": "--set publish.name=NAME",
    "publish --version": "--set publish.version=VERSION",
    "regions --device": "--set regions.device=cuda",
    "regions --dtype": "--set regions.dtype=float32",
    "regions --precision": "--set regions.precision=bf16",
    "regions --proposals": "--set regions.proposals=N",
    "regions --unreadable": "--set regions.unreadable=skip",
    "regions --workers": "--set regions.workers=N",
    "regions convert": "capgrade regions import --format weights --input FILE --out FILE.safetensors",
    "regions train": "python -m studies.train_detector --captions DIR --out FILE.safetensors",
    "relevance --dtype": "--set relevance.dtype=float16",
    "relevance --import": "--measures cider,NAME=FILE",
    "review agreement": "capgrade agree --reviews DIR",
    "review export": "capgrade explore --reviews DIR --export FILE.csv",
    "review sample": "capgrade explore --sample DIR",
    "score --level": "--set score.level=0.95",
    "score --samples": "--set score.samples=1000",
    "score --seed": "--set score.seed=0",
    "score --tokenizer": "--set score.tokenizer=NAME",
    "shards --import": "--measures cider,NAME=FILE",
    "shards --seed": "--set shards.seed=N",
    "shards --top": "--set shards.top=N",
    "shards --uniform": "--set shards.uniform=N",
    "show": "capgrade search --captions DIR --relevance DIR",
    "train --device": "--set train.device=cuda",
    "train --seed": "--set train.seed=N",
    "train --validation": "--set train.validation=NAME",
    "tables": "capgrade evaluate --compare DIR --metric NAME",
}


def moved(arguments: Sequence[str]) -> InputError | None:
    """What to say to a command or an option that has moved; None for any other. What follows `--` is Beam's."""
    given = list(takewhile(lambda word: word != "--", arguments))
    for old, now in NOW.items():
        *command, last = old.split()
        if not last.startswith("-"):
            found = given[: len(command) + 1] == [*command, last]
        else:  # of this command, not of one below it
            rest = given[len(command) :]
            named = {word.partition("=")[0] for word in rest}
            found = given[: len(command)] == command and bool(rest) and rest[0].startswith("-") and last in named
        if found:
            return InputError(f"`capgrade {old}` has moved", remedy=f"now: {now}")
    return None
