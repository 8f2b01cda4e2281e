"""Classes of characters as Stanford's PTBLexer (CoreNLP 3.4.1) has them, written as the inside of a
`[...]` of `re`.

The lexer was generated when Java had Unicode 6.1, and knows only the basic plane. All 65,536
characters of the plane were compared with the jar.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

# Letters and digits that Unicode got after version 6.1.
_NEWER = """
037F 0528-052F 0560 0588 05EF 0860-086A 0870-0887 0889-088E 08A1 08AD-08C9 0978 0980 09FC 0AF9 0C34 0C5A 0C5D
0C80 0CDD 0D04 0D54-0D56 0D5F 0DE6-0DEF 0E86 0E89 0E8C 0E8E-0E93 0E98 0EA0 0EA8-0EA9 0EAC 13F5 13F8-13FD
16F1-16F8 170D 171F 1878 191D-191E 19B0-19C0 19C8-19C9 1B4C 1C80-1C88 1C90-1CBA 1CBD-1CBF 1CF2-1CF3 1CFA 2C2F
2C5F 312E-312F 31BB-31BF 4DB6-4DBF 9FCD-9FFF A698-A69D A78F A794-A79F A7AB-A7CA A7D0-A7D1 A7D3 A7D5-A7D9
A7F2-A7F7 A8FD-A8FE A9E0-A9E4 A9E6-A9F9 A9FA-A9FE AA7E-AA7F AB30-AB5A AB5C-AB69 AB70-ABBF"""
# Accents and vowel signs that count as letters inside a word.
_MARKS = """
00AD 02C2-02C5 02D2-02DF 02E5-02EB 02ED 02EF-036F 0375 0378-0379 0384-0385 03F6 0483-0487 055A-055F 0591-05BD
05BF 05C1-05C2 05C4-05C5 05C7 0615-061A 064B-065E 0670 06D6-06E4 06E7-06ED 06FD-06FE 070F 0711 0730-074C
07A6-07B0 07EB-07F3 0900-0903 093C 093E-094E 0951-0955 0962-0963 0981-0983 09BC 09BE-09C4 09C7-09C8 09CB-09CD
09D7 09E2-09E3 0A01-0A03 0A3C 0A3E-0A4F 0A81-0A83 0ABC 0ABE-0ACF 0B82 0BBE-0BC2 0BC6-0BC8 0BCA-0BCD 0C01-0C03
0C3E-0C56 0D3E-0D44 0D46-0D48 0E31 0E34-0E3A 0E47-0E4E 0EB1 0EB4-0EBC 0EC8-0ECD"""
# Symbols that are a token by themselves. Any other character that no rule names is dropped.
_SYMBOLS = """
0025-0026 002B 005C 005E 007C 007E 00A1 00A6-00A9 00AC 00AE-00B4 00B6-00BA 00BF 00D7 00F7 037E 0387 0589 05BE
05C0 05C3 05C6 05F3-05F4 0600-0603 0606-060A 060C 0614 061B 061E-061F 066A 066D 06D4 0700-070D 07F6-07F8 07FA
0964-0965 0E4F 1FBD 2016-2017 2020-2023 2030-2038 203B 203E-2042 2044 207A-207F 208A-208E 2100-214F 2190-2BFF
3002 3012 30FB FF01-FF0F FF1A-FF20 FF3B-FF40 FF5B-FF65"""


def _codes(ranges: str) -> Iterator[int]:
    for part in ranges.split():
        yield from range(int(part[:4], 16), int(part[-4:], 16) + 1)


def _span(codes: Iterable[int]) -> str:
    """The codes as ranges, escaped."""
    starts_ends: list[list[int]] = []
    for code in codes:
        if starts_ends and code == starts_ends[-1][1] + 1:
            starts_ends[-1][1] = code
        else:
            starts_ends.append([code, code])
    return "".join(rf"\u{start:04x}-\u{end:04x}" for start, end in starts_ends)


def _categories() -> list[str]:
    """The Unicode category of every character as of version 6.1, "Cn" for later ones."""
    categories = [unicodedata.category(chr(code)) for code in range(1 << 16)]
    for code in _codes(_NEWER):
        categories[code] = "Cn"
    return categories


_CATEGORIES = _categories()


def _of_category(category: str) -> str:
    return _span(code for code, name in enumerate(_CATEGORIES) if name.startswith(category))


LETTER = _of_category("L") + r"\u1885\u1886"  # These two were letters then, and are marks now.
CAPITAL = _of_category("Lu") + r"\u2160-\u216f\u24b6-\u24cf"
DIGIT = _of_category("Nd")
MARK = LETTER + _span(_codes(_MARKS))
SYMBOL = _span(_codes(_SYMBOLS))
SPACE = r" \t\xa0\u2000-\u200a\u3000"
LINE_BREAK = r"\n\r\x0b\x0c\x85\u2028\u2029"
