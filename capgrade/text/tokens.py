"""Tokenizers by name. A captions table says which one made its tokens.

`ptb` and `ptb_py` give what pycocoevalcap's PTBTokenizer gives: Stanford's PTB tokens in lower case
without the punctuation on its list. Brackets become `-lrb-` and so on before that list, in
capitals, is applied, so they stay. A fraction such as `3 1/2`, a telephone number or a tag is one
token with no-break spaces inside.
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
from capgrade.text.language import TOGETHER
from capgrade.text.ptb import alone, kept, ptb_tokens
from capgrade.text.words import NO_TOKENIZER, Words, number_words, read_once, split_at_spaces

_AHEAD = 3  # captions that are looked at behind one; the lexer skips line breaks between
PTB_JAR = "stanford-corenlp-3.4.1.jar"
_BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029"  # the lexer, or what reads its lines, may end a line here
_LINE_BREAKS = re.compile(f"[{_BREAKS}]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters: no encoding writes them
_PIECE = re.compile(
    rf"[{TOGETHER}]|(?:(?![{TOGETHER}])[^\W_])+(?:['’-](?:(?![{TOGETHER}])[^\W_])+)*"
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


def tokenized(texts: Sequence[str], tokenizer: str, lists: Sequence[int] = ()) -> Words:
    """As `tokenize`, as numbers; also `NO_TOKENIZER`. `lists` are where lists begin in which the
    jar would read the captions one after the other; without them each is read by itself."""
    if tokenizer == NO_TOKENIZER:
        return split_at_spaces(texts)
    return (
        ptb_words(texts, lists)
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
    text = "\n".join(one_line_each(captions)) + "\n"
    run = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    lines = run.stdout.decode().split("\n")[:-1]
    if run.returncode or len(lines) != len(captions):
        problem = f"exit status {run.returncode}, {len(lines)} lines for {len(captions)} captions"
        raise InputError(f"PTBTokenizer failed: {problem}", remedy="use ptb_py")
    return [kept(line) for line in lines]


def ptb_jar() -> Path:
    """Stanford's tokenizer, as the installed pycocoevalcap has it."""
    return package_folder("pycocoevalcap.tokenizer") / PTB_JAR


def one_line_each(captions: Sequence[str]) -> Sequence[str]:
    """Captions without line breaks and halves of surrogate pairs: a space or U+FFFD for each;
    looked for in all at once, as hardly one has them."""
    together = "".join(captions)
    if any(char in together for char in _BREAKS) or (
        not together.isascii() and _SURROGATES.search(together)
    ):
        return [_SURROGATES.sub("\ufffd", _LINE_BREAKS.sub(" ", caption)) for caption in captions]
    return captions


def ptb_py(captions: Sequence[str]) -> list[list[str]]:
    """The same tokens without Java, each caption by itself; docs/captions.md has how equal they
    are."""
    words = ptb_words(captions)
    return [words.sentence(k) for k in range(len(captions))]


def ptb_words(captions: Sequence[str], lists: Sequence[int] = ()) -> Words:
    """As `ptb_py`: what stands between spaces is mostly read alike everywhere, so each such piece
    is read once; a caption with any other piece is read by itself, or with the next ones of its
    list (see `tokenized`)."""
    lines = one_line_each(captions)
    ends = [*lists[1:], len(lines)] if len(lists) else []

    def read(row: int) -> list[str]:
        end = next((end for end in ends if end > row), 0)
        return ptb_tokens(
            lines[row], "".join(f"{line}\n" for line in lines[row + 1 : min(row + 1 + _AHEAD, end)])
        )

    return read_once(split_at_spaces(lines), alone, read)


def lower_split(captions: Sequence[str]) -> list[list[str]]:
    """Lower case, split at white space, punctuation kept: as the SAM and TERAN code."""
    return [caption.lower().split() for caption in captions]


def word_unigram(captions: Sequence[str]) -> list[list[str]]:
    """Lower-case words of two or more letters or digits: scikit-learn's default, as the DAA
    code."""
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
    """The tokens of one caption, without a Java process for it: `ptb_py` gives what `ptb` does.
    InputError where there are none."""
    found = tokenize("ptb_py" if tokenizer == "ptb" else tokenizer, [text])[0]
    if not found:
        raise InputError("no word in this caption", remedy="type a caption of one word or more")
    return found
