"""Mutations of Python source: small changes of its meaning, each of one expression or statement."""

import ast
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

_OPPOSITES = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_COMPARISONS = _OPPOSITES | {new: old for old, new in _OPPOSITES.items()}
_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}


class Mutation(NamedTuple):
    """A change of one file.

    Attributes:
        line: of its first character, from 1.
        start, end: the bytes of the source that it replaces.
        old, new: the text there, before and after.
        scope: the names of the classes and functions around it, outermost first.
    """

    line: int
    start: int
    end: int
    old: str
    new: str
    scope: tuple[str, ...]

    def apply(self, source: str) -> str:
        """Returns the source with this change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{old[:60]}  ->  {new[:60]}"


def mutations(source: str) -> list[Mutation]:
    """Returns every mutation of a file."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    computed = []
    for node, new, scope in _changes(ast.parse(source), ()):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = source.encode()[start:end].decode()
        computed.append(Mutation(node.lineno, start, end, old, new, scope))
    return computed


def chosen(by_file: dict[str, list[Mutation]], count: int, seed: int) -> list[tuple[str, Mutation]]:
    """Draws mutations: of each line at most one, and of the lines those whose hash with the seed is least.

    A change of other lines therefore leaves the choice as it is, but for lines that come and go.
    """
    lines: dict[tuple[str, int], tuple[str, Mutation]] = {}
    for file, computed in by_file.items():
        for mutation in computed:
            drawn = _hash(seed, file, *mutation.scope, mutation.old, mutation.new)
            key = (file, mutation.line)
            if key not in lines or drawn < lines[key][0]:
                lines[key] = (drawn, mutation)
    # The hash that won on its line is small the more there were: the lines are drawn by one of their own.
    order = sorted((_hash(seed, "line", drawn), file, mutation) for (file, _), (drawn, mutation) in lines.items())
    return [(file, mutation) for _, file, mutation in order[:count]]


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_Change = tuple[ast.expr | ast.stmt, str, tuple[str, ...]]


def _changes(node: ast.AST, scope: tuple[str, ...]) -> Iterator[_Change]:
    """Yields what to replace, by what, in which scope."""
    if isinstance(node, ast.expr):
        yield from ((node, f"({ast.unparse(new)})", scope) for new in _expressions(node))
    if isinstance(node, ast.stmt):
        yield from ((part, new, scope) for part, new in _statements(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = (*scope, node.name)
    for name, value in ast.iter_fields(node):
        # Python 3.11 does not say where the parts of an f-string are; annotations are not evaluated.
        if isinstance(node, ast.JoinedStr) or name in {"annotation", "returns"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_types(child):
                yield from _changes(child, scope)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], right):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC and not (
            _is_text(left) or _is_text(right)
        ):
            yield ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
            yield ast.UnaryOp(ast.USub(), ast.Constant(1)) if value == 0 else ast.Constant(value - 1)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _statements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, "return None"
        case ast.If(test) | ast.While(test):
            yield test, f"(not {ast.unparse(test)})" if isinstance(test, ast.Name) else f"(not ({ast.unparse(test)}))"
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Break() | ast.Continue():
            yield node, "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
