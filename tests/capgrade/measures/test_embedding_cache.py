"""The cache of embeddings: what names it, what happens when it is damaged or cannot be written,
texts that are cut."""

import errno
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capgrade.measures import embeddings
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import CapgradeWarning

TEXTS = ["two dogs", "a cat sits", "red ball", "one", "no man"]


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that have been encoded, as it goes on."""
    texts: list[str] = []
    encode = embeddings.encode
    monkeypatch.setattr(
        embeddings, "encode", lambda e, chunk, *more: texts.extend(chunk) or encode(e, chunk, *more)
    )
    return texts


def stored(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


def embed(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    return embeddings.embed(texts, embeddings.EMBEDDED, folder)


def _nan(path: Path) -> None:
    content = path.read_bytes()
    at = len(content) // 2  # among the vectors
    path.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("nothing"),
    "other columns": lambda path: write_arrow(path, pa.schema([]), []),
    "other types": lambda path: write_arrow(path, pa.schema([("vector", pa.int8())]), []),
    "NaN": _nan,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_part_is_encoded_again(
    kind: str, tmp_path: Path, encoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "TEXTS_SAVED_TOGETHER", 2)
    whole = embed(tmp_path)
    files = stored(tmp_path)
    before = [path.read_bytes() for path in files]
    DAMAGE[kind](max(files, key=lambda path: path.stat().st_size))
    encoded.clear()
    np.testing.assert_array_equal(embed(tmp_path), whole)
    assert len(encoded) == 2
    assert [path.read_bytes() for path in files] == before


def test_an_interrupted_encoding_goes_on(
    tmp_path: Path, encoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "TEXTS_SAVED_TOGETHER", 2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        encode, rounds = embeddings.encode, iter([1, 2])  # the third has none
        patch.setattr(
            embeddings,
            "encode",
            lambda *given: encode(*given) if next(rounds, 0) else _interrupted(),
        )
        embed(tmp_path)
    assert len(encoded) == 4 and embed(tmp_path).shape == (5, 384) and len(encoded) == 5


def _interrupted() -> None:
    raise KeyboardInterrupt


LONG = ["dog " * 260 + end for end in ("beach", "street")]
MANY = [
    *TEXTS,
    "a",
    "",
    "two cats",
    "three red cats",
    "extraordinarily " * 9,
    "A dog runs on the beach.",
    LONG[0],
]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    asked=st.lists(st.lists(st.sampled_from(MANY), min_size=1, max_size=8), min_size=1, max_size=4)
)
def test_a_text_has_the_same_bits_whatever_is_beside_it(
    encoded: list[str], asked: list[list[str]]
) -> None:
    """In any order, any subset, and any number of steps, those of the library; only what is new is
    encoded."""
    expected = at_once()
    encoded.clear()
    with tempfile.TemporaryDirectory() as folder:
        for texts in asked:
            np.testing.assert_array_equal(
                embed(Path(folder), texts), [expected[text] for text in texts]
            )
    assert sorted(encoded) == sorted({text for texts in asked for text in texts})


@cache
def at_once() -> dict[str, np.ndarray]:
    encoder = embeddings.load_encoder(embeddings.EMBEDDED)
    found = embeddings.encode(encoder, MANY)
    np.testing.assert_allclose(found, encoder.encode(MANY, normalize_embeddings=True), atol=1e-6)
    return dict(zip(MANY, found, strict=True))


def test_two_processes_that_add_the_same_texts(tmp_path: Path) -> None:
    """The second finds the first's part in its place, or in another one with more texts."""
    vectors = np.eye(3, dtype=np.float32)
    for rows in ([0, 1], [0, 1], [1, 2], [0, 1, 2]):
        embeddings.store(tmp_path, [TEXTS[row] for row in rows], vectors[rows], [0] * len(rows))
    assert len(stored(tmp_path)) == 3
    np.testing.assert_array_equal(embeddings.read_stored(tmp_path, TEXTS[:3]).vectors, vectors)


def test_a_model_whose_vectors_are_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        embeddings, "encode", lambda e, texts, _: np.full((len(texts), 4), np.nan, np.float32)
    )
    with pytest.raises(
        InputError, match="all-MiniLM-L6-v2' gives vectors without a length -> use another model"
    ):
        embed(tmp_path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, None])
def test_a_cache_that_may_not_be_written_is_named(
    number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where it should be, too."""

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, "no", str(self))

    (tmp_path / "cache").write_text("")
    if number:
        monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"cache.* -> set CAPGRADE_CACHE"):
        embed(tmp_path / "cache")


def test_what_changes_embeddings_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instruction set, a switch of oneDNN's or MKL's, the processor, a GPU in its place, a
    library's version."""
    import torch

    names = [embeddings.cache_name(embeddings.EMBEDDED)]
    minor = ".".join(torch.__version__.split(".")[:2])
    assert f"torch {minor}" in embeddings.arithmetic(), "a patch version computes the same"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SOMETHING")
    names.append(embeddings.cache_name(embeddings.EMBEDDED))
    for name in ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR"):
        monkeypatch.setenv(name, "AVX2")
        names.append(embeddings.cache_name(embeddings.EMBEDDED))
    monkeypatch.setattr(embeddings, "_processor", lambda: "another")
    names.append(embeddings.cache_name(embeddings.EMBEDDED))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: "NVIDIA Something")
    assert embeddings.cache_name(embeddings.EMBEDDED) == names[-1]  # a GPU that is not asked for
    names.append(embeddings.cache_name(embeddings.EMBEDDED, "cuda"))
    monkeypatch.setattr(embeddings, "version", lambda name: "0.0")
    names.append(embeddings.cache_name(embeddings.EMBEDDED))
    assert len(set(names)) == 7


def test_a_hub_model_is_known_by_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's layout: models--OWNER--NAME with refs/main and snapshots/COMMIT."""
    import huggingface_hub

    folder, names = tmp_path / "models--me--model", []
    look = partial(huggingface_hub.file_download.try_to_load_from_cache, cache_dir=tmp_path)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    (folder / "refs").mkdir(parents=True)
    for commit in ("1" * 40, "2" * 40):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "modules.json").write_text("[]")
        (folder / "refs" / "main").write_text(commit)
        names.append(embeddings.cache_name("me/model"))
    assert len(set(names)) == 2


def test_texts_beyond_the_limit_are_counted_and_said(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Two texts of 260 words that differ at their ends are one to the encoder; said again when read
    from the cache. Nothing is said of one of many letters, and one of as many pieces as the encoder
    reads."""
    embed(tmp_path, ["dog " * 254, "extraordinarily " * 60])
    assert not recwarn.list
    for _ in range(2):
        said = "2 texts are longer than the 256 word pieces that the encoder reads"
        with pytest.warns(CapgradeWarning, match=said):
            first = embed(tmp_path, [*LONG, "a dog"])
    np.testing.assert_allclose(first[0] @ first[1], 1, atol=1e-5)


def test_progress_moves_with_every_batch() -> None:
    """Not once a part of the store, which takes seconds; no vector depends on where batches end."""
    encoder = embeddings.load_encoder(embeddings.EMBEDDED)
    texts, counts = [f"a dog {k}" for k in range(10, 50)], []
    vectors = encode_alone(encoder, texts, counts.append)
    assert counts == [16, 16, 8]
    for rows in (slice(0, 20), slice(20, 40)):
        assert np.array_equal(encode_alone(encoder, texts[rows]), vectors[rows])


encode_alone = embeddings.encode
