import ast
from pathlib import Path

import pytest
from mutants.mutations import chosen, mutations


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a not in b", {"x = (a in b)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 3", {"x = (4)", "x = (2)"}),
        ("x = 0", {"x = (1)", "x = (-1)"}),
        ("x = True", {"x = (False)"}),
        ("x = a if b else c", {"x = (c if b else a)"}),
        ("if a: b", {"if (not a): b"}),
        ("while a: b", {"while (not a): b"}),
        ("a(b)", {"pass"}),
        ("a.b = c", {"pass"}),
        ("a += b", {"pass"}),
        ("raise a", {"pass"}),
        ("def f(): return a", {"def f(): return None"}),
        ("é = '—'; x = a == b", {"é = '—'; x = (a != b)"}),
        # What has no meaning, or none that a test could see:
        ('"""A text."""', set()),
        ("x: Literal[1] = a", set()),
        ("def f(a: Literal[1]) -> Literal[2]: ...", set()),
        ("x = 'a' + b", set()),
        ("x = f'{a + b}'", set()),
        ("def f(): return None", set()),
        ("if TYPE_CHECKING: a()", set()),
    ],
)
def test_every_type_of_change(source: str, expected: set[str]):
    assert {mutation.apply(source) for mutation in mutations(source)} == expected


def test_every_change_of_a_file_is_another_program():
    source = (Path(__file__).parents[2] / "server/shardcall_server/kernels/stencils/diff.py").read_text()
    computed = mutations(source)
    assert len(computed) > 50
    program = ast.dump(ast.parse(source))
    for mutation in computed:
        assert ast.dump(ast.parse(mutation.apply(source))) != program, mutation


def test_a_mutation_has_its_line_and_its_scope():
    (computed,) = mutations("\nclass A:\n    def f(self):\n        def g():\n            b()\n")
    assert (computed.line, computed.scope) == (5, ("A", "f", "g"))


def test_a_draw_depends_on_the_seed_and_has_one_change_a_line():
    by_file = {f"{name}.py": mutations("\n".join(f"x = a{n} < 3" for n in range(30))) for name in "ab"}
    drawn = chosen(by_file, 20, seed=1)
    assert drawn == chosen(by_file, 20, seed=1)
    assert drawn[:5] == chosen(by_file, 5, seed=1)
    assert drawn != chosen(by_file, 20, seed=2)
    assert len({(file, mutation.line) for file, mutation in chosen(by_file, 100, seed=1)}) == 60


def test_another_line_leaves_the_draw_as_it_is():
    source = "\n".join(f"x = a{n} < b" for n in range(30))
    before = chosen({"a.py": mutations(source)}, 30, seed=1)
    after = chosen({"a.py": mutations("y = 1\n" + source)}, 31, seed=1)
    assert [item.old for _, item in before] == [item.old for _, item in after if item.line > 1]
