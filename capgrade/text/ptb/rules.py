"""The token rules of Stanford's PTBLexer (CoreNLP 3.4.1), in the notation of `Automaton`.

Most rules define PTB tokens: contractions in two halves, abbreviations with their period, numbers,
dates, addresses, symbols. Odd ones are there because the jar has them. `docs/captions.md` says how
this was checked.

Classes of characters are written as the inside of a `[...]` of `re`. The lexer was generated when
Java had Unicode 6.1, and knows only the basic plane. All 65,536 characters of the plane were
compared with the jar.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

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


def _alternatives(words: str) -> str:
    return "|".join(words.split())


# Inside `[...]` only the case that is written counts.
NAMES = {
    # Characters, and entities that are read as characters.
    "letter": f"[{LETTER}]",
    "capital": f"[{CAPITAL}]",
    "digit": f"[{DIGIT}]",
    "alnum": f"[{LETTER}{DIGIT}]",
    "mark": f"[{MARK}]|&[aeiouAEIOU](acute|grave|uml);",
    "space": f"[{SPACE}]",
    "gap": f"[{SPACE}{LINE_BREAK}]",
    "apostrophe": r"['\x92\u2019]|&apos;",
    "tick": r"{apostrophe}|[`\x91\u2018\u201b]",
    "quote": r"[`\u2018-\u201f\u2039\u203a\xab\xbb\x91-\x94]",
    "hyphen": r"[-_\u058a\u2010\u2011]",
    "pause": r"[,;:\u3001]",
    # Words and their halves.
    "word": "{mark}({mark}|{digit})*([.!?]{mark}({mark}|{digit})*)*",
    "auxiliary": "{apostrophe}([msdMSD]|re|ve|ll)",
    "not": "n{tick}t",
    "part": "([dDoOlL]{tick}{alnum})?{alnum}+",
    "compound": "{part}({hyphen}{part})*",
    "slashed": "[A-Za-z0-9]+(-[A-Za-z]+)?(-[A-Za-z]+)?",
    "hyphened": r"[A-Za-z0-9][A-Za-z0-9.,\xad]*(-([A-Za-z0-9\xad]+|{dotted}\.))+",
    "firm": "[A-Z]+(([+&]|&amp;)[A-Z]+)+",
    # Numbers, and digits by their number.
    "number": r"{digit}+|{digit}*([.:,\xad\u066b\u066c]{digit}+)+",
    "1to2": "{digit}{digit}?",
    "1to4": "{digit}({digit}({digit}{digit}?)?)?",
    "2to4": "[0-9][0-9]([0-9][0-9]?)?",
    "3to4": "[0-9][0-9][0-9][0-9]?",
    "3to5": "[0-9][0-9][0-9]([0-9][0-9]?)?",
    # Abbreviations without their last period: single letters with periods (`nations`, `dotted`,
    # `initials`); those that may end a sentence; those that stand before a word; those that stand
    # before a number.
    "nations": r"(Canada|EU|Japan|Korean|non|Sino)-U\.S|U\.S\.-U\.(K|S\.S\.R)",
    "dotted": r"[A-Za-z](\.[A-Za-z])+|{nations}",
    "initials": r"[A-Za-z](\.[A-Za-z])*|{nations}",
    "ending": _alternatives(
        r"""al Ala Apr Ariz [A]rk Assn Aug [A]z Bancorp Bhd Bldg Blvd Bros Calif Colo Conn Corp Cos? Ct Dak
        Dec [D]el Ed\.D Esq est etc ext Feb Fla Fri Ga [I]ll Inc Ind Intl Jan Jr Jul Jun Kans? Ky [L]a Ltd Mar
        [M]ass Md Mich Minn [M]iss Mo Mon Mont Neb Nev Nov Oct Okla [O]re [P]a Penn Ph\.D Plc Pp?t[ye]s? Rd
        Rt Sep Sept seq sq Sr Sys tel Tenn [T]ex Thu Thurs Tue Tues Univ Va Vt [W]ash Wed Wisc? Wyo"""
    ),
    "leading": _alternatives(
        r"""{initials} a\.k\.a Adj Adm Adv Alex Assoc Asst Attys? Ave Brig Capt cf Cie Col Co?mdr Cpl Dept Det
        Drs? Elec Ens Ft Gen Govs? Hon Insp Invt Jos Lieut Lt Maj Messrs M[ft]g [M]iss Mlle Mme Mr Mrs Ms
        Msgr Mt Natl Pfc Ph Pres Profs? Pvt Reps? Rev Sens? Sfc Sgt Spc Ste? Supts? TREAS vs Wm"""
    ),
    "numbered": _alternatives("art bldg ca figs? nos? op pp prop"),
    # Words that begin a sentence if they have a capital: initials before them end a sentence.
    "opening": _alternatives(
        r"""[A] [A]bout [A]ccording [A]dditionally [A]fter [A]n [A]s [A]t [B]ut [E]arlier [H]e [H]er [H]ere
        [H]owever [I]f [I]n [I]t [L]ast [M]any [M]ore [M]r\. [M]s\. [N]ow [O]nce [O]ne [O]ther [O]ur [S]he
        [S]ince [S]o [S]ome [S]uch [T]hat [T]he [T]heir [T]hen [T]here [T]hese [T]hey [T]his [W]e [W]hat
        [W]hen [W]hile [Y]et [Y]ou"""
    ),
    # Markup, addresses, files.
    "attribute": r"""[A-Za-z]{id}*( *= *('[^']*'|"[^"]*"))?""",
    "tag": r"<([!?][-A-Za-z][^>\r\n]*|[A-Za-z]{id}*( +{attribute})* */?|/[A-Za-z]{id}*) *>",
    "id": "[-A-Za-z0-9_:.]",
    "www": r'www\.([^ \t\n\f\r"<>|.!?(){},]+\.)+{tld}',
    "host": r"""{www}|([^ \t\n\f\r"`'<>|.!?(){},-_$]+\.)+(com|edu|net|org)""",
    "tld": "[a-zA-Z][a-zA-Z]([a-zA-Z][a-zA-Z]?)?",
    "extension": _alternatives(
        """bat bmp c cgi class cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php pl png
        ppt ps py sql tar txt wav x xml zip"""
    ),
}


def _remove_soft_hyphens(text: str) -> str:
    """A token without its soft hyphens, which only mark places for line breaks; a token of these
    alone is a hyphen."""
    return text.replace("\xad", "") or "-"


def _make_translator(table: dict[str, str]) -> Callable[[str], str]:
    """A function that replaces single characters as the table says."""
    codes = str.maketrans(table)
    return lambda text: text.translate(codes)


keep_together = _make_translator({" ": "\xa0"})  # A token has no spaces inside.
escape_brackets = _make_translator({"(": "-LRB-", ")": "-RRB-"})
spell_signs = _make_translator(
    {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
    | {"¢": "cents", "£": "#", **dict.fromkeys("\x80\xa4\u20a0\u20ac", "$")}
)


def _unescape_ampersand(text: str) -> str:
    """`&amp;` as a character."""
    return re.sub("&amp;", "&", text, flags=re.IGNORECASE)


_QUOTES = str.maketrans(
    {
        **dict.fromkeys('"\x94\u201d\xbb', "''"),
        **dict.fromkeys("\x93\u201c\xab", "``"),
        **dict.fromkeys("\x92\u2019\u203a", "'"),
        **dict.fromkeys("\x91\u2018\u201b\u2039", "`"),
    }
)


def _write_ascii_quotes(text: str) -> str:
    """Quotation marks in ASCII. Straight ones become right ones, which changes no caption: left and
    right ones are both removed as punctuation."""
    return text.replace("&apos;", "'").replace("&quot;", '"').translate(_QUOTES)


def _make_constant(token: str) -> Callable[[str], str]:
    """A function that writes this token for any match."""
    return lambda _: token


def drop(_: str) -> None:
    """No token."""


class _Rule(NamedTuple):
    """A pattern of tokens."""

    token: str
    lookahead: str = ""  # pattern of the text that must follow
    write: Callable[[str], str | None] = str  # from match to token; None drops it
    reread_period: bool = False  # The period of an abbreviation is a token of its own too.


BRACKETS = {"(": "LRB", ")": "RRB", "[": "LSB", "]": "RSB", "{": "LCB", "}": "RCB"}
# The longest match, lookahead included, is taken; of equally long ones the first in this order.
RULES = [
    _Rule(r"c\+\+"),
    _Rule("(c|f)#"),
    _Rule("can", "not"),
    _Rule("'t", "was|is"),
    _Rule("gon|wan", "na"),
    _Rule("got", "ta"),
    _Rule("lem|gim", "me"),
    _Rule("{tag}", write=keep_together),
    _Rule(r"&(MD|mdash|ndash);|[\x96\x97\u2013-\u2015]", write=_make_constant("--")),
    _Rule("&amp;", write=_make_constant("&")),
    _Rule("&(HT|TL|UR|LR|QC|QL|QR|odq|cdq|#[0-9]+);"),
    _Rule("{word}", "{auxiliary}", _remove_soft_hyphens),
    _Rule(r"[A-Za-z\xad]*[A-MO-Za-mo-z][\xad]*", "{not}", _remove_soft_hyphens),
    _Rule("{word}", write=_remove_soft_hyphens),
    _Rule(
        "{apostrophe}(n{apostrophe}?|em|till?|cause|[2-9]0s)|([dDjJlL]|ol|Dunkin|somethin){apostrophe}"
        "|[A-HJ-XZn]{tick}{letter}{letter}+|{letter}+[aeiouyAEIOUY]{tick}[aeiouA-Z]{letter}*"
        r"|'twas|c'mon|cont'd\.?|e'er|ev'ry|li'l|nat'l|nor'easter|s'mores|O{tick}o"
    ),
    _Rule("y{apostrophe}", "{letter}"),
    _Rule(r'https?://[^ \t\n\f\r"<>|(){}]+[^ \t\n\f\r"<>|.!?(){},-]'),
    _Rule(r'{host}(/[^ \t\n\f\r"<>|()]+[^ \t\n\f\r"<>|.!?(){},-])?'),
    _Rule(
        r'(<|&lt;)?[a-zA-Z0-9][^ \t\n\f\r"<>|()\xa0{}]*@([^ \t\n\f\r"<>|(){}.\xa0]+\.)*'
        r'[^ \t\n\f\r"<>|(){}.\xa0]+(>|&gt;)?'
    ),
    _Rule("@[a-zA-Z_][a-zA-Z_0-9]*|#{mark}+"),
    _Rule("{auxiliary}|{not}", "[^A-Za-z]", _write_ascii_quotes),
    _Rule("{1to2}[-/]{1to2}[-/]{digit}{1to2}{digit}?"),
    _Rule("[-+]?{number}", write=_remove_soft_hyphens),
    _Rule(r"[\u207a\u207b\u208a\u208b]?([\u2070\xb9\xb2\xb3\u2074-\u2079]+|[\u2080-\u2089]+)"),
    _Rule(r"({1to4}[- \xa0])?{1to4}(\\?/|[\u2044]){1to4}", write=keep_together),
    _Rule(r"[\xbc-\xbe\u2153-\u215e]", write=spell_signs),
    _Rule(
        r"-(L|R)(R|C|S)B-|anti-|pro-|C\.D\.s|S(&|&amp;)(Ls|P-500)|Cap{apostrophe}n|c{apostrophe}est",
        write=_unescape_ampersand,
    ),
    _Rule(r"{slashed}\\?/{slashed}(\\?/{slashed})?"),
    _Rule(r"[A-Z]*\$|#"),
    _Rule(
        r"[\x80\xa2-\xa5\u20a0\u20a4\u20ac\u060b\u0e3f\uffe0\uffe1\uffe5\uffe6]", write=spell_signs
    ),
    _Rule("[A-Za-z]", r"\.{gap}+({opening}|{tag}){gap}"),
    _Rule(r"{initials}\.", "{gap}+({opening}|{tag}){gap}", reread_period=True),
    _Rule(r"{numbered}\.", "{gap}?{digit}"),
    _Rule(r"(co|pt[eyEY])\.", "{space}(lim|ltd)"),
    _Rule(r"{ending}\.", "{gap}({gap}|{capital}|{tag})", reread_period=True),
    _Rule(r"{ending}\.", r"[\s\S][\s\S]"),
    _Rule(r"{ending}\.", reread_period=True),
    _Rule(r"{leading}\."),
    _Rule("{leading}", "{space}"),
    _Rule("{initials}", "{gap}"),
    _Rule("{apostrophe}[0-9][0-9]", "{gap}"),
    _Rule(r"({mark}|{digit})+(\.({mark}|{digit})+)*\.{extension}", "{gap}|[.?!,]"),
    _Rule(r"{word}\.", "{pause}", _remove_soft_hyphens),
    _Rule(
        r"(\([0-9][0-9][0-9]?\)[ \xa0]?|(\+\+?)?({2to4}[- \xa0])?{2to4}[- \xa0]){3to4}[-"
        r" \xa0]?{3to5}"
        r"|((\+\+?)?{2to4}\.)?{2to4}\.{3to4}\.{3to5}",
        write=lambda text: escape_brackets(keep_together(text)),
    ),
    _Rule('"|&quot;', "[A-Za-z0-9$]", _write_ascii_quotes),
    _Rule('"|&quot;', write=_write_ascii_quotes),
    _Rule(r"[\x7f]", write=drop),
    _Rule("<|&lt;", write=_make_constant("<")),
    _Rule(">|&gt;", write=_make_constant(">")),
    _Rule(r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", "[^A-Za-z0-9]", escape_brackets),
    _Rule(
        r"[\^x=~<>]\.\[\^x=[^<]*<>\]|[-\^x=~<>']_[-\^x=~<>']|\([-\^x=~<>'][_.]?[-\^x=~<>']\)"
        r"|\([\^x=~<>']-[\^x=~<>'`]\)",
        write=escape_brackets,
    ),
    *(_Rule("\\" + mark, write=_make_constant(f"-{name}-")) for mark, name in BRACKETS.items()),
    # Three or four hyphens are a dash too, which is written as two.
    _Rule("-+", write=lambda dash: "--" if len(dash) in (3, 4) else dash),
    _Rule(
        r"\.\.\.(\.\.?)?|\.[ \xa0]\.[ \xa0](\.[ \xa0](\.[ \xa0])?)?\.|[\x85\u2026]",
        write=_make_constant("..."),
    ),
    _Rule(r"@+|#+|_+|\*+|\\\*(\\\*(\\\*)?)?|[!?]+|{pause}|[.=/]"),
    _Rule(r"{hyphened}\.", "{pause}", _remove_soft_hyphens),
    _Rule("{hyphened}", write=_remove_soft_hyphens),
    _Rule(r"{compound}\.", "{pause}"),
    _Rule("{compound}"),
    _Rule(r"{firm}\.", "{pause}", _unescape_ampersand),
    _Rule("{firm}", write=_unescape_ampersand),
    _Rule("'", r"[A-Za-z][^ \t\n\r\xa0]", _write_ascii_quotes),
    _Rule("{auxiliary}|{not}", write=_write_ascii_quotes),
    _Rule("{apostrophe}|''|{quote}{quote}?", write=_write_ascii_quotes),
    _Rule(f"<<|>>|[{SYMBOL}]"),
    _Rule(r"{space}+|{gap}|&nbsp;|[\x00\u200b\u200e\u200f\ufeff]|[^\n]", write=drop),
]
