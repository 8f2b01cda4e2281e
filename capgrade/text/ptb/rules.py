"""The token rules of Stanford's PTBLexer (CoreNLP 3.4.1), in the notation of `longest.py`.

Most rules define PTB tokens: contractions in two halves, abbreviations with their period, numbers,
dates, addresses, symbols. Odd ones are there because the jar has them. `docs/captions.md` says how
this was checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from capgrade.text.ptb.chars import CAPITAL, DIGIT, LETTER, LINE_BREAK, MARK, SPACE, SYMBOL


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


def remove_soft_hyphens(text: str) -> str:
    """A token without its soft hyphens, which only mark places for line breaks; a token of these
    alone is a hyphen."""
    return text.replace("\xad", "") or "-"


def make_translator(table: dict[str, str]) -> Callable[[str], str]:
    """A function that replaces single characters as the table says."""
    codes = str.maketrans(table)
    return lambda text: text.translate(codes)


keep_together = make_translator({" ": "\xa0"})  # A token has no spaces inside.
escape_brackets = make_translator({"(": "-LRB-", ")": "-RRB-"})
spell_signs = make_translator(
    {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
    | {"¢": "cents", "£": "#", **dict.fromkeys("\x80\xa4\u20a0\u20ac", "$")}
)


def unescape_ampersand(text: str) -> str:
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


def write_ascii_quotes(text: str) -> str:
    """Quotation marks in ASCII. Straight ones become right ones, which changes no caption: left and
    right ones are both removed as punctuation."""
    return text.replace("&apos;", "'").replace("&quot;", '"').translate(_QUOTES)


def make_constant(token: str) -> Callable[[str], str]:
    """A function that writes this token for any match."""
    return lambda _: token


def drop(_: str) -> None:
    """No token."""


class Rule(NamedTuple):
    """A pattern of tokens."""

    token: str
    lookahead: str = ""  # pattern of the text that must follow
    write: Callable[[str], str | None] = str  # from match to token; None drops it
    reread_period: bool = False  # The period of an abbreviation is a token of its own too.


BRACKETS = {"(": "LRB", ")": "RRB", "[": "LSB", "]": "RSB", "{": "LCB", "}": "RCB"}
# The longest match, lookahead included, is taken; of equally long ones the first in this order.
RULES = [
    Rule(r"c\+\+"),
    Rule("(c|f)#"),
    Rule("can", "not"),
    Rule("'t", "was|is"),
    Rule("gon|wan", "na"),
    Rule("got", "ta"),
    Rule("lem|gim", "me"),
    Rule("{tag}", write=keep_together),
    Rule(r"&(MD|mdash|ndash);|[\x96\x97\u2013-\u2015]", write=make_constant("--")),
    Rule("&amp;", write=make_constant("&")),
    Rule("&(HT|TL|UR|LR|QC|QL|QR|odq|cdq|#[0-9]+);"),
    Rule("{word}", "{auxiliary}", remove_soft_hyphens),
    Rule(r"[A-Za-z\xad]*[A-MO-Za-mo-z][\xad]*", "{not}", remove_soft_hyphens),
    Rule("{word}", write=remove_soft_hyphens),
    Rule(
        "{apostrophe}(n{apostrophe}?|em|till?|cause|[2-9]0s)|([dDjJlL]|ol|Dunkin|somethin){apostrophe}"
        "|[A-HJ-XZn]{tick}{letter}{letter}+|{letter}+[aeiouyAEIOUY]{tick}[aeiouA-Z]{letter}*"
        r"|'twas|c'mon|cont'd\.?|e'er|ev'ry|li'l|nat'l|nor'easter|s'mores|O{tick}o"
    ),
    Rule("y{apostrophe}", "{letter}"),
    Rule(r'https?://[^ \t\n\f\r"<>|(){}]+[^ \t\n\f\r"<>|.!?(){},-]'),
    Rule(r'{host}(/[^ \t\n\f\r"<>|()]+[^ \t\n\f\r"<>|.!?(){},-])?'),
    Rule(
        r'(<|&lt;)?[a-zA-Z0-9][^ \t\n\f\r"<>|()\xa0{}]*@([^ \t\n\f\r"<>|(){}.\xa0]+\.)*'
        r'[^ \t\n\f\r"<>|(){}.\xa0]+(>|&gt;)?'
    ),
    Rule("@[a-zA-Z_][a-zA-Z_0-9]*|#{mark}+"),
    Rule("{auxiliary}|{not}", "[^A-Za-z]", write_ascii_quotes),
    Rule("{1to2}[-/]{1to2}[-/]{digit}{1to2}{digit}?"),
    Rule("[-+]?{number}", write=remove_soft_hyphens),
    Rule(r"[\u207a\u207b\u208a\u208b]?([\u2070\xb9\xb2\xb3\u2074-\u2079]+|[\u2080-\u2089]+)"),
    Rule(r"({1to4}[- \xa0])?{1to4}(\\?/|[\u2044]){1to4}", write=keep_together),
    Rule(r"[\xbc-\xbe\u2153-\u215e]", write=spell_signs),
    Rule(
        r"-(L|R)(R|C|S)B-|anti-|pro-|C\.D\.s|S(&|&amp;)(Ls|P-500)|Cap{apostrophe}n|c{apostrophe}est",
        write=unescape_ampersand,
    ),
    Rule(r"{slashed}\\?/{slashed}(\\?/{slashed})?"),
    Rule(r"[A-Z]*\$|#"),
    Rule(
        r"[\x80\xa2-\xa5\u20a0\u20a4\u20ac\u060b\u0e3f\uffe0\uffe1\uffe5\uffe6]", write=spell_signs
    ),
    Rule("[A-Za-z]", r"\.{gap}+({opening}|{tag}){gap}"),
    Rule(r"{initials}\.", "{gap}+({opening}|{tag}){gap}", reread_period=True),
    Rule(r"{numbered}\.", "{gap}?{digit}"),
    Rule(r"(co|pt[eyEY])\.", "{space}(lim|ltd)"),
    Rule(r"{ending}\.", "{gap}({gap}|{capital}|{tag})", reread_period=True),
    Rule(r"{ending}\.", r"[\s\S][\s\S]"),
    Rule(r"{ending}\.", reread_period=True),
    Rule(r"{leading}\."),
    Rule("{leading}", "{space}"),
    Rule("{initials}", "{gap}"),
    Rule("{apostrophe}[0-9][0-9]", "{gap}"),
    Rule(r"({mark}|{digit})+(\.({mark}|{digit})+)*\.{extension}", "{gap}|[.?!,]"),
    Rule(r"{word}\.", "{pause}", remove_soft_hyphens),
    Rule(
        r"(\([0-9][0-9][0-9]?\)[ \xa0]?|(\+\+?)?({2to4}[- \xa0])?{2to4}[- \xa0]){3to4}[-"
        r" \xa0]?{3to5}"
        r"|((\+\+?)?{2to4}\.)?{2to4}\.{3to4}\.{3to5}",
        write=lambda text: escape_brackets(keep_together(text)),
    ),
    Rule('"|&quot;', "[A-Za-z0-9$]", write_ascii_quotes),
    Rule('"|&quot;', write=write_ascii_quotes),
    Rule(r"[\x7f]", write=drop),
    Rule("<|&lt;", write=make_constant("<")),
    Rule(">|&gt;", write=make_constant(">")),
    Rule(r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", "[^A-Za-z0-9]", escape_brackets),
    Rule(
        r"[\^x=~<>]\.\[\^x=[^<]*<>\]|[-\^x=~<>']_[-\^x=~<>']|\([-\^x=~<>'][_.]?[-\^x=~<>']\)"
        r"|\([\^x=~<>']-[\^x=~<>'`]\)",
        write=escape_brackets,
    ),
    *(Rule("\\" + mark, write=make_constant(f"-{name}-")) for mark, name in BRACKETS.items()),
    # Three or four hyphens are a dash too, which is written as two.
    Rule("-+", write=lambda dash: "--" if len(dash) in (3, 4) else dash),
    Rule(
        r"\.\.\.(\.\.?)?|\.[ \xa0]\.[ \xa0](\.[ \xa0](\.[ \xa0])?)?\.|[\x85\u2026]",
        write=make_constant("..."),
    ),
    Rule(r"@+|#+|_+|\*+|\\\*(\\\*(\\\*)?)?|[!?]+|{pause}|[.=/]"),
    Rule(r"{hyphened}\.", "{pause}", remove_soft_hyphens),
    Rule("{hyphened}", write=remove_soft_hyphens),
    Rule(r"{compound}\.", "{pause}"),
    Rule("{compound}"),
    Rule(r"{firm}\.", "{pause}", unescape_ampersand),
    Rule("{firm}", write=unescape_ampersand),
    Rule("'", r"[A-Za-z][^ \t\n\r\xa0]", write_ascii_quotes),
    Rule("{auxiliary}|{not}", write=write_ascii_quotes),
    Rule("{apostrophe}|''|{quote}{quote}?", write=write_ascii_quotes),
    Rule(f"<<|>>|[{SYMBOL}]"),
    Rule(r"{space}+|{gap}|&nbsp;|[\x00\u200b\u200e\u200f\ufeff]|[^\n]", write=drop),
]
