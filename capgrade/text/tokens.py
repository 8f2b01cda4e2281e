"""Tokenizers by name. A captions table says which one made its tokens.

`ptb` and `ptb_py` give what pycocoevalcap's PTBTokenizer gives: Stanford's PTB tokens in lower case
without the punctuation on its list. Brackets stay: the list has them in capitals, as `-LRB-`, but
the tokens are `-lrb-` by then. A fraction such as `3 1/2`, a telephone number or a tag is one token
with no-break spaces inside.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import package_folder
from capgrade.text.language import UNSPACED
from capgrade.text.ptb import ptb_tokens, remove_punctuation, tokens_of_chunk
from capgrade.text.words import NO_TOKENIZER, Words, number_words, retokenize, split_at_spaces

_AHEAD = 3  # following captions that the lexer may look at: it looks past line breaks
PTB_JAR = "stanford-corenlp-3.4.1.jar"
_BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029"  # where the lexer, or a reader of its lines, ends a line
_LINE_BREAKS = re.compile(f"[{_BREAKS}]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters: no encoding writes them
_PIECE = re.compile(
    rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+(?:['’-](?:(?![{UNSPACED}])[^\W_])+)*"
)
_WORD_UNIGRAM = re.compile(r"(?u)\b\w\w+\b")


def tokenize(name: str, captions: Sequence[str]) -> list[list[str]]:
    """Tokens of each caption, in order. InputError for an unknown tokenizer, or `ptb` without
    Java."""
    if name not in TOKENIZERS:
        raise InputError(
            f"unknown tokenizer '{name}'", remedy=f"choose from: {', '.join(TOKENIZERS)}"
        )
    return TOKENIZERS[name](captions)


def tokenize_as_words(texts: Sequence[str], tokenizer: str, lists: Sequence[int] = ()) -> Words:
    """As `tokenize`, as numbers of words, and also for `NO_TOKENIZER`. `lists`: rows where lists of
    captions begin, each of which the jar would read as one text; without them each caption is read
    by itself."""
    if tokenizer == NO_TOKENIZER:
        return split_at_spaces(texts)
    return (
        tokenize_ptb(texts, lists)
        if tokenizer in ("ptb_py", "ptb")
        else number_words(tokenize(tokenizer, texts))
    )


def ptb(captions: Sequence[str]) -> list[list[str]]:
    """Stanford's PTBTokenizer from the jar that pycocoevalcap carries, with its options and
    punctuation list.

    Raises InputError without Java, when Java fails, or when lines went missing (the original
    wrapper would shift captions silently).
    """
    if not captions:
        return []
    java = shutil.which("java")
    if java is None:
        remedy = "install a Java runtime >= 8, or use ptb_py (the same tokens)"
        raise InputError("tokenizer ptb needs Java", remedy=remedy)
    command = [
        java,
        "-Dfile.encoding=UTF-8",
        "-cp",
        str(ptb_jar()),
        "edu.stanford.nlp.process.PTBTokenizer",
    ]
    command += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    text = "\n".join(remove_line_breaks(captions)) + "\n"
    run = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    lines = run.stdout.decode().split("\n")[:-1]
    if run.returncode or len(lines) != len(captions):
        problem = f"exit status {run.returncode}, {len(lines)} lines for {len(captions)} captions"
        raise InputError(f"PTBTokenizer failed: {problem}", remedy="use ptb_py")
    return [remove_punctuation(line) for line in lines]


def ptb_jar() -> Path:
    """Stanford's tokenizer, as the installed pycocoevalcap has it."""
    return package_folder("pycocoevalcap.tokenizer") / PTB_JAR


def remove_line_breaks(captions: Sequence[str]) -> Sequence[str]:
    """Captions with a space for each line break and U+FFFD for each half of a surrogate pair."""
    # One look at all captions is quicker than one at each, and hardly any has these characters.
    joined = "".join(captions)
    if any(char in joined for char in _BREAKS) or (
        not joined.isascii() and _SURROGATES.search(joined)
    ):
        return [_SURROGATES.sub("\ufffd", _LINE_BREAKS.sub(" ", caption)) for caption in captions]
    return captions


def ptb_py(captions: Sequence[str]) -> list[list[str]]:
    """The tokens of `ptb` without Java, each caption by itself; docs/captions.md says how equal
    they are."""
    words = tokenize_ptb(captions)
    return [words.sentence(k) for k in range(len(captions))]


def tokenize_ptb(captions: Sequence[str], lists: Sequence[int] = ()) -> Words:
    """As `ptb_py`, as numbers of words. The tokens of most pieces between spaces do not depend on
    their neighbours, so each such piece is read once. A caption with any other piece is read as a
    whole, with the next ones of its list (see `tokenize_as_words`)."""
    lines = remove_line_breaks(captions)
    ends = [*lists[1:], len(lines)] if len(lists) else []

    def read(row: int) -> list[str]:
        end = next((end for end in ends if end > row), 0)
        return ptb_tokens(
            lines[row], "".join(f"{line}\n" for line in lines[row + 1 : min(row + 1 + _AHEAD, end)])
        )

    return retokenize(split_at_spaces(lines), tokens_of_chunk, read)


def lower_split(captions: Sequence[str]) -> list[list[str]]:
    """Lower case, split at white space, with punctuation, as in the code of SAM and TERAN."""
    return [caption.lower().split() for caption in captions]


def word_unigram(captions: Sequence[str]) -> list[list[str]]:
    """Lower-case words of two or more letters or digits: scikit-learn's default, as in the code of
    DAA."""
    return [_WORD_UNIGRAM.findall(caption.lower()) for caption in captions]


def characters(captions: Sequence[str]) -> list[list[str]]:
    """Each character of a script without spaces (Chinese, Japanese, Thai, ...) a token, with the
    marks that belong to it; words of other scripts whole, in lower case; no punctuation."""
    return [_characters(caption.lower()) for caption in captions]


def _characters(caption: str) -> list[str]:
    tokens: list[str] = []
    for piece in _PIECE.findall(unicodedata.normalize("NFC", caption)):
        kind = unicodedata.category(piece[0])[0]
        if kind == "M" and tokens:
            tokens[-1] += piece
        elif kind in "LN":
            tokens.append(piece)
    return tokens


TOKENIZERS: dict[str, Callable[[Sequence[str]], list[list[str]]]] = {
    "ptb_py": ptb_py,
    "ptb": ptb,
    "lower_split": lower_split,
    "word_unigram": word_unigram,
    "characters": characters,
}


def tokens_of_text(text: str, tokenizer: str) -> list[str]:
    """The tokens of one caption, for `ptb` by `ptb_py`, which needs no Java process. InputError
    where there are none."""
    tokens = tokenize("ptb_py" if tokenizer == "ptb" else tokenizer, [text])[0]
    if not tokens:
        raise InputError("no word in this caption", remedy="type a caption of one word or more")
    return tokens
