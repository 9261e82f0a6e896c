"""The grammar of filters: text like SQL's WHERE to PyIceberg's expressions.

    filter     = all { "or" all }        all = one { "and" one }        one = "not" one | "(" filter ")" | predicate
    predicate  = "true" | "false" | literal operator column | column test
    test       = operator literal | ["not"] "in" "(" literal { "," literal } ")" | ["not"] "between" literal "and" literal
               | ["not"] "like" text | "is" ["not"] ("null" | "nan")
    operator   = "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    column     = name { "." name }       name = word | '"' any characters, '"' doubled '"'
    literal    = text | number | "true" | "false"       text = "'" any characters, "'" doubled "'"

Words are read without regard to case, but for names of columns. A text is what stands between its quotes, line breaks, tabs and
backslashes too; only in `like` a backslash before '%' or another backslash says that it is meant itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions import literals as values

from lakeward.arrow.literals import predicate_of
from lakeward.errors import InvalidFilter

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?(?![\w.]))
    | (?P<word>[^\W\d][\w$]*)
    | (?P<mark><=|>=|<>|!=|==|[=<>(),.])
    )""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS: dict[str, tuple[Any, Any]] = {  # as written, and with the sides changed
    "=": (expressions.EqualTo, expressions.EqualTo), "==": (expressions.EqualTo, expressions.EqualTo), "!=": (expressions.NotEqualTo, expressions.NotEqualTo), "<>": (expressions.NotEqualTo, expressions.NotEqualTo),
    "<": (expressions.LessThan, expressions.GreaterThan), "<=": (expressions.LessThanOrEqual, expressions.GreaterThanOrEqual),
    ">": (expressions.GreaterThan, expressions.LessThan), ">=": (expressions.GreaterThanOrEqual, expressions.LessThanOrEqual),
}  # fmt: skip
_MAX_DEPTH = 100  # brackets and 'not' in one another
_EXAMPLE = (
    "write for example \"month = 1 and origin in ('JFK', 'LGA')\", names that are no plain words in double quotes, texts, dates "
    "and times in single ones"
)


class _Token(NamedTuple):
    kind: str  # text, quoted, number, word, mark or end
    text: str
    start: int

    @property
    def word(self) -> str:
        """What is the same however it is written; empty for what stands in quotes."""
        return self.text.lower() if self.kind in ("word", "mark") else ""


def parse(source: str) -> BooleanExpression:
    """The expression of a filter.

    Raises:
        InvalidFilter: the text is none; the message shows where.
    """
    return _Parser(source).parse()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = self._read()
        self._place = 0
        self._depth = 0

    def parse(self) -> BooleanExpression:
        found = self._any()
        if self._next.kind != "end":
            raise self._wrong("'and' or 'or'")
        return found

    # Tokens -----------------------------------------------------------------------------------------------------------
    def _read(self) -> list[_Token]:
        tokens, place, end = [], 0, len(self._source.rstrip())
        while place < end:
            match = _TOKEN.match(self._source, place)
            if match is None:
                raise self._refused(
                    place + len(self._source[place:]) - len(self._source[place:].lstrip()), "cannot be read"
                )
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            place = match.end()
        return [*tokens, _Token("end", "", len(self._source))]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        self._place += 1
        return self._tokens[self._place - 1]

    def _took(self, *words: str) -> bool:
        """Whether the next tokens are these words or marks, which are taken then."""
        here = [token.word for token in self._tokens[self._place : self._place + len(words)]]
        if here != list(words):
            return False
        self._place += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise self._wrong(repr(word))

    def _wrong(self, wanted: str) -> InvalidFilter:
        if self._next.kind == "end":
            return self._refused(self._next.start, f"ends where {wanted} belongs")
        return self._refused(self._next.start, f"cannot be read: {wanted} belongs there")

    def _refused(self, place: int, what: str) -> InvalidFilter:
        near = f", at {self._source[place : place + 20]!r}" if place < len(self._source) else ""
        return InvalidFilter(f"filter {self._source[:200]!r} {what}{near}; {_EXAMPLE}")

    # Expressions --------------------------------------------------------------------------------------------------------
    def _any(self) -> BooleanExpression:
        return self._joined("or", expressions.Or, lambda: self._joined("and", expressions.And, self._one))

    def _joined(self, word: str, join: Any, part: Callable[[], BooleanExpression]) -> BooleanExpression:
        parts = [part()]
        while self._took(word):
            parts.append(part())
        return predicate_of(join, *parts) if len(parts) > 1 else parts[0]

    def _one(self) -> BooleanExpression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refused(self._next.start, f"is nested deeper than {_MAX_DEPTH} levels")
        if self._took("not"):
            found: BooleanExpression = expressions.Not(self._one())
        elif self._took("("):
            found = self._any()
            self._expect(")")
        else:
            found = self._predicate()
        self._depth -= 1
        return found

    def _predicate(self) -> BooleanExpression:
        value = self._literal_or_none()
        if value is None:
            return self._test(self._column())
        if isinstance(value, values.BooleanLiteral) and self._next.word not in _COMPARISONS:
            return expressions.AlwaysTrue() if value.value else expressions.AlwaysFalse()
        if self._next.word not in _COMPARISONS:
            raise self._wrong("a comparison")
        _, kind = _COMPARISONS[self._take().word]
        return predicate_of(kind, self._column(), value)

    def _test(self, column: expressions.Reference) -> BooleanExpression:
        if self._next.word in _COMPARISONS:
            kind, _ = _COMPARISONS[self._take().word]
            return predicate_of(kind, column, self._literal())
        if self._took("is"):
            negated = self._took("not")
            unary = {
                "null": (expressions.IsNull, expressions.NotNull),
                "nan": (expressions.IsNaN, expressions.NotNaN),
            }.get(self._next.word)
            if unary is None:
                raise self._wrong("'null' or 'nan'")
            self._take()
            return predicate_of(unary[negated], column)
        negated = self._took("not")
        if self._took("in"):
            return predicate_of(expressions.NotIn if negated else expressions.In, column, self._list())
        if self._took("between"):
            found = self._between(column)
        elif self._took("like"):
            found = self._like(column)
        else:
            raise self._wrong("'in', 'between' or 'like'" if negated else "a comparison")
        return expressions.Not(found) if negated else found

    def _between(self, column: Any) -> BooleanExpression:
        low = self._literal()
        self._expect("and")
        return predicate_of(
            expressions.And,
            predicate_of(expressions.GreaterThanOrEqual, column, low),
            predicate_of(expressions.LessThanOrEqual, column, self._literal()),
        )

    def _like(self, column: Any) -> BooleanExpression:
        start = self._next.start
        if self._next.kind != "text":
            raise self._wrong("a text in single quotes")
        pattern = _unquoted(self._take().text)
        parts = re.findall(r"\\[\\%]|.", pattern, re.DOTALL)
        is_prefix = bool(parts) and parts[-1] == "%"
        if "%" in (parts[:-1] if is_prefix else parts):
            raise self._refused(start, "has a '%' inside of a 'like' pattern, where it is known at the end alone")
        plain = "".join(part[-1] for part in (parts[:-1] if is_prefix else parts))
        return predicate_of(
            expressions.StartsWith if is_prefix else expressions.EqualTo, column, values.StringLiteral(plain)
        )

    # Columns and literals -----------------------------------------------------------------------------------------------
    def _column(self) -> Any:
        names = [self._name()]
        while self._took("."):
            names.append(self._name())
        return expressions.Reference(".".join(names))

    def _name(self) -> str:
        if self._next.kind == "quoted" and len(self._next.text) > 2:
            return self._take().text[1:-1].replace('""', '"')
        if self._next.kind == "word" and self._next.word not in ("and", "or", "not"):
            return self._take().text
        raise self._wrong("the name of a column")

    def _list(self) -> set[values.Literal[Any]]:
        self._expect("(")
        found = {self._literal()}
        while self._took(","):
            found.add(self._literal())
        self._expect(")")
        return found

    def _literal(self) -> values.Literal[Any]:
        value = self._literal_or_none()
        if value is None:
            raise self._wrong("a number or a text in single quotes")
        return value

    def _literal_or_none(self) -> values.Literal[Any] | None:
        token = self._next
        if token.kind == "text":
            made: values.Literal[Any] = values.StringLiteral(_unquoted(token.text))
        elif token.kind == "number":
            is_whole = token.text.lstrip("+-").isdecimal()
            made = values.LongLiteral(int(token.text)) if is_whole else values.DecimalLiteral(Decimal(token.text))
        elif token.word in ("true", "false"):
            made = values.BooleanLiteral(token.word == "true")
        else:
            return None
        self._take()
        return made


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
