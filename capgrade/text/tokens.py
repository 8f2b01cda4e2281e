"""Tokenizers by name, and captions as numbers of words. A captions table says which tokenizer made
its tokens.

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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.extras import package_folder
from capgrade.text.ptb import ptb_tokens, remove_punctuation, tokens_of_chunk

NO_TOKENIZER = "none"  # for captions that are tokens with spaces between them
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_AHEAD = 3  # following captions that the lexer may look at: it looks past line breaks
PTB_JAR = "stanford-corenlp-3.4.1.jar"
_BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029"  # where the lexer, or a reader of its lines, ends a line
_LINE_BREAKS = re.compile(f"[{_BREAKS}]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters: no encoding writes them
_PIECE = re.compile(
    rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+(?:['’-](?:(?![{UNSPACED}])[^\W_])+)*"
)
_WORD_UNIGRAM = re.compile(r"(?u)\b\w\w+\b")


class Words(NamedTuple):
    """Sentences as word numbers: words of sentence s are `word[ptr[s]:ptr[s + 1]]`, numbers of
    `vocabulary`."""

    ptr: np.ndarray  # int64 [n_sentences + 1]
    word: np.ndarray  # int32 [words]
    vocabulary: list[str]

    def sentence(self, s: int) -> list[str]:
        return [self.vocabulary[w] for w in self.word[self.ptr[s] : self.ptr[s + 1]]]

    @property
    def sizes(self) -> np.ndarray:
        """int64 [n_sentences]: words of each sentence."""
        return np.diff(self.ptr)

    def sentences_with(self, wanted: np.ndarray) -> np.ndarray:
        """int64, ascending: the sentences with a word of `wanted`, bool [vocabulary]."""
        counts_before = np.concatenate([[0], np.cumsum(wanted[self.word])])
        return np.flatnonzero(np.diff(counts_before[self.ptr]))

    def take(self, rows: np.ndarray) -> Words:
        """These sentences, in any order, some perhaps several times."""
        sizes = self.sizes[rows]
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        at = np.arange(ptr[-1]) + np.repeat(self.ptr[rows] - ptr[:-1], sizes)
        return Words(ptr, self.word[at], self.vocabulary)


def number_words(sentences: Iterable[Sequence[str]], known: Sequence[str] = ()) -> Words:
    """Sentences that are lists of words. Words of `known` keep their numbers; new ones follow."""
    number = {word: k for k, word in enumerate(known)}
    ptr, word = [0], []
    for sentence in sentences:
        word += [number.setdefault(w, len(number)) for w in sentence]
        ptr.append(len(word))
    return Words(np.array(ptr), np.array(word, np.int32), list(number))


def tokens_of(captions: Captions) -> Words:
    """The tokens of a captions table, numbered in order of first use."""
    codes, start = captions.tokens()
    return _words_of_codes(start, codes)


def split_at_spaces(lines: Sequence[str] | pa.Array) -> Words:
    """Words as `line.split(" ")` gives them: an empty line has one empty word. InputError for what
    is no Unicode."""
    try:
        pieces = pc.split_pattern(
            lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_string()), " "
        )
    except UnicodeEncodeError as error:
        problem = f"half a character in {error.object!r}"
        raise InputError(problem, remedy="give captions that can be written in UTF-8") from error
    ptr = np.concatenate([[0], np.cumsum(pc.list_value_length(pieces).to_numpy())])
    return _words_of_codes(ptr, pieces.flatten().dictionary_encode())


def _words_of_codes(ptr: np.ndarray, codes: pa.DictionaryArray) -> Words:
    # The codes are copied, because kernels are compiled for writable arrays.
    word = codes.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return Words(ptr, word, codes.dictionary.to_pylist())


def split_at_white_space(tokens: Words) -> Words:
    """The words whose n-grams CIDEr and BLEU count: tokens joined by a space, split at any white
    space.

    pycocoevalcap does the same: a PTB token with no-break spaces inside (`3 1/2`) is several words
    to it. ROUGE-L, METEOR and scene graphs take tokens.
    """
    return _respell(tokens, [token.split() for token in tokens.vocabulary])


def _respell(words: Words, spelling: Sequence[Sequence[str]]) -> Words:
    """Sentences with each word replaced by none, one or several: `spelling` has the new words for
    each word of the vocabulary."""
    new = number_words(spelling).take(words.word)
    return new._replace(ptr=new.ptr[words.ptr])


def retokenize(
    words: Words,
    tokens_of_word: Callable[[str], Sequence[str] | None],
    tokens_of_sentence: Callable[[int], Sequence[str]],
) -> Words:
    """Sentences with each word replaced by its tokens. `tokens_of_word` gives None for a word whose
    tokens depend on its neighbours: then `tokens_of_sentence` gives those of each sentence (by
    row) that has such a word."""
    spelling: list[Sequence[str]] = []
    depends = np.zeros(len(words.vocabulary), bool)
    for k, word in enumerate(words.vocabulary):
        tokens = tokens_of_word(word)
        depends[k] = tokens is None
        spelling.append(tokens or ())
    rows = words.sentences_with(depends)
    sentences = [tokens_of_sentence(row) for row in rows.tolist()]
    return _replace_sentences(_respell(words, spelling), rows, sentences)


def _replace_sentences(words: Words, rows: np.ndarray, sentences: Sequence[Sequence[str]]) -> Words:
    """The sentences `rows` replaced by others."""
    if not len(rows):
        return words
    new = number_words(sentences, words.vocabulary)
    ptr = np.append(words.ptr, words.ptr[-1] + new.ptr[1:])
    row = np.arange(len(words.ptr) - 1)
    row[rows] = len(row) + np.arange(len(rows))
    return Words(ptr, np.append(words.word, new.word), new.vocabulary).take(row)


def fill_empty_sentences(words: Words) -> Words:
    """Sentences without words get one empty word, as `"".split(" ")` gives."""
    rows = np.flatnonzero(words.sizes == 0)
    return _replace_sentences(words, rows, [[""]] * len(rows))


def tokenize(name: str, captions: Sequence[str]) -> list[list[str]]:
    """Tokens of each caption, in order. InputError for an unknown tokenizer, or `ptb` without
    Java."""
    if name not in TOKENIZERS:
        raise InputError(f"unknown tokenizer '{name}'", remedy=choose_from(name, TOKENIZERS))
    return TOKENIZERS[name](captions)


def tokenize_as_words(texts: Sequence[str], tokenizer: str, lists: Sequence[int] = ()) -> Words:
    """As `tokenize`, as numbers of words, and also for `NO_TOKENIZER`. `lists`: rows where lists of
    captions begin, each of which the jar would read as one text; without them each caption is read
    by itself."""
    if tokenizer == NO_TOKENIZER:
        return split_at_spaces(texts)
    return (
        _tokenize_ptb(texts, lists)
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
    if joined.splitlines() != [joined] or (not joined.isascii() and _SURROGATES.search(joined)):
        return [_SURROGATES.sub("\ufffd", _LINE_BREAKS.sub(" ", caption)) for caption in captions]
    return captions


def ptb_py(captions: Sequence[str]) -> list[list[str]]:
    """The tokens of `ptb` without Java, each caption by itself; docs/captions.md says how equal
    they are."""
    words = _tokenize_ptb(captions)
    return [words.sentence(k) for k in range(len(captions))]


def _tokenize_ptb(captions: Sequence[str], lists: Sequence[int] = ()) -> Words:
    """As `ptb_py`, as numbers of words. The tokens of most pieces between spaces do not depend on
    their neighbours, so each such piece is read once. A caption with any other piece is read as a
    whole, with the next ones of its list (see `tokenize_as_words`)."""
    lines = remove_line_breaks(captions)
    ends = [*(lists or range(len(lines)))[1:], len(lines)]

    def read(row: int) -> list[str]:
        end = min(row + 1 + _AHEAD, ends[bisect_right(ends, row)])
        return ptb_tokens(lines[row], "\n".join([*lines[row + 1 : end], ""]))

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
