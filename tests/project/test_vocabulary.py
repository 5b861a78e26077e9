"""One word for one thing: names use the terms of the field, and not the words that they replaced."""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / folder for folder in ("client/shardcall", "client/shardcall_core", "server/shardcall_server")]
OTHER_SOURCES = [ROOT / folder for folder in ("tests", "benchmarks", "examples", "deploy")]
REPLACED = """
    alarm alarms: deadline timer; around: halo-extended block; beat: heartbeat; beats: heartbeats;
    blame: quarantine; blamed: quarantined; choice decision: tuning result; choices: tuning cache;
    companion: segment broker; decisions measurer: autotuner; door doors: link listener; draining: drain;
    each: item, element, or the name of the item; end: close, exit reason; ends: exit reason; found: entry, match;
    functions spellings: signatures; gathering: all-gather plan; given: operand source, value;
    holdings: host resources; hop: permute step; hops: permute steps; hot: call history; intake: operand reader;
    journal: call recorder; keeper: administrator; kind: dtype, type, category; known: cache entry; lag: straggler;
    least: min; ledger: pending commands; lie lies: is placed; life: mesh history; look: get, check;
    made: result, created; measure measuring: trial; meeting: contraction sharding; member: worker connection;
    members: worker connections; most: max; observation: telemetry; order: launch lock, permutation, labels;
    over: mesh, axes; own: local, private, given; place: slot, rank, entry, placement, key, offset;
    places: slots, ranks, entries, placements, keys, offsets; readiness: startup barrier; recall recalled: get;
    remember remembered: put; repeats: idempotency; residents: resident arrays;
    room: result buffer, quota, limit, capacity; rooms: result buffers, quotas, limits; run: row range;
    runs: row ranges; sharing: shared memory; spelling: signature; split: sharded, partitioned;
    starved: CPU starvation; stop: stop request; storage: call buffers; stores: buffer allocator;
    tell telling: notify, respond; tells: notifies, responds; told: text, answer, report; true: valid;
    turn: launch grant, round; turns: rounds; unname: unalias; until: deadline, expiry; wanted: requested, expected;
    warm: warm-up; way: transport, path; ways: transports, paths; whole: complete, unsharded; words: call key
"""
"""Words that names do not contain, and after each colon the terms to use instead."""
EXCEPTIONS = {
    r"(?i)known_?answers?": "a known-answer test is a standard term",
    r"(?i)not_?found": "gRPC's status, and the reasons and errors of that status",
    r"(?i)draining": "a server that shuts down, in error reasons",
    r"^place(_s|_seconds)?$": "the phase in which arrays are placed on devices, as JAX says",
    r"(?i)(^|_)end(?=_|$)|End(?=[A-Z]|$)": "the end of a range or of a time; the front end",
    r"(?i)(^|_)stop(?=_|$)|Stop(?=[A-Z]|$)": "the stop of a slice; to stop a service, a process or a profile",
    r"(?i)(^|_)runs?(?=_|$)|Runs?(?=[A-Z]|$)": "to run a program, and its runs",
    r"(?i)(^|_)order(?=_|$)": "the order of a derivative, of axes or of a memory layout",
    r"true_divide": "NumPy's name",
    r"^(array_|h|v|d)?split$": "NumPy's names",
    r"^repeats$": "the parameter of numpy.repeat",
    r"own_kernel": "a kernel of another package; examples/own_kernel is one",
    r"^(device_)?kind$": "parameters of numpy.argsort and numpy.isdtype; jax.Device.device_kind",
    r"^connection_made$": "asyncio's name",
    r"^choices$": "the parameter of numpy.choose",
    r"^apply_over_axes$": "NumPy's name",
    r"(?i)(^|_)functions$": "mathematical functions; the table of functions",
    r"(?i)(^|_)warm_?up(?=_|$)|WarmUp": "warm-up is the term",
    r"(?i)measured?$": "the command of the link that times a program",
}
"""Patterns of names that may contain such a word, with the reason."""
_UNUSED = {word for row in REPLACED.split(";") for word in row.partition(":")[0].split()}
_PROSE = re.compile(r"\b(tell(s|ing)?|told|lies|keeper|spellings?|companion|ledger)\b")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Facts(NamedTuple):
    """The parts of a module's syntax tree that tests look at; trees of all files would be too much for memory.

    Attributes:
        names: the names that it defines: classes, functions, parameters, variables and attributes.
        classes: the names of its classes.
        docstrings: its docstrings.
    """

    names: frozenset[str]
    classes: tuple[str, ...]
    docstrings: tuple[str, ...]


@functools.cache
def facts_of(file: Path) -> Facts:
    names, classes, docstrings = set(), [], []
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
                docstrings.append(ast.get_docstring(node) or "")
                if isinstance(node, ast.ClassDef):
                    classes.append(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Module():
                docstrings.append(ast.get_docstring(node) or "")
    return Facts(frozenset(names), tuple(classes), tuple(docstrings))


@functools.cache  # most names occur in many places
def replaced(name: str) -> frozenset[str]:
    """Returns the replaced words in a name."""
    for pattern in EXCEPTIONS:
        name = re.sub(pattern, "_", name)
    return frozenset(word.lower() for word in _WORD.findall(name)) & _UNUSED


def modules(sources: list[Path] = SOURCES) -> list[Path]:
    return [file for source in sources for file in source.rglob("*.py") if "v1" not in file.parts]  # generated


def names_to_replace(files: list[Path]) -> set[tuple[str, str]]:
    names = ((str(file.relative_to(ROOT)), name) for file in files for name in {*facts_of(file).names, file.stem})
    return {(file, name) for file, name in names if replaced(name)}


def test_no_name_in_the_code_contains_a_word_that_was_replaced() -> None:
    assert not names_to_replace(modules())


def test_no_name_in_tests_benchmarks_and_examples_contains_a_word_that_was_replaced() -> None:
    wrong = names_to_replace(modules(OTHER_SOURCES))
    assert not {(file, name) for file, name in wrong if replaced(name) != {"functions"}}, "tests may name functions"


def test_no_comment_docstring_or_message_contains_a_word_without_another_meaning() -> None:
    files = [*modules(), *(ROOT / "protos").rglob("*.proto")]
    wrong = [(str(file.relative_to(ROOT)), match[0]) for file in files for match in _PROSE.finditer(file.read_text())]
    assert not wrong


def test_no_name_of_the_contract_contains_a_word_that_was_replaced() -> None:
    wrong = set()
    for proto in (ROOT / "protos").glob("shardcall*/v1/*.proto"):
        code = re.sub(r"//.*|\"[^\"]*\"|\btrue\b", "", proto.read_text())
        wrong |= {(proto.name, name) for name in re.findall(r"\w+", code) if replaced(name)}
    assert not wrong


def test_no_metric_contains_a_word_that_was_replaced() -> None:
    # tests/project/test_deploy.py compares the page with the metrics that a server has.
    metrics = set(re.findall(r"\bshardcall_\w+", (ROOT / "docs/telemetry.md").read_text()))
    assert len(metrics) > 30
    assert not {name for name in metrics if replaced(name)}


def test_exceptions_are_few_and_needed() -> None:
    assert len(EXCEPTIONS) <= 30
    protos = [proto.read_text() for proto in (ROOT / "protos").glob("shardcall*/v1/*.proto")]
    used = {name for file in modules() for name in facts_of(file).names}
    used |= {name for proto in protos for name in re.findall(r"\w+", proto)}
    assert not [pattern for pattern in EXCEPTIONS if not any(re.search(pattern, name) for name in used)]


def test_a_class_name_has_one_meaning() -> None:
    defined: dict[str, list[str]] = {}
    for file in modules():
        for name in facts_of(file).classes:
            defined.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in defined.items() if len(files) > 1}


def test_limits_are_called_max_and_min() -> None:
    names = re.compile(r"\b[A-Z_]*(?:MOST|LEAST)_?\w*")
    assert not {(str(file), name) for file in modules() for name in names.findall(file.read_text())}


def test_no_docstring_opens_with_a_question_word() -> None:
    opening = re.compile(r"(What|How|Which|Who|Whose|Whether|Tells?|Where|When|That|Why)\b")
    docstrings = [(str(file.relative_to(ROOT)), text) for file in modules() for text in facts_of(file).docstrings]
    assert not [(name, text) for name, text in docstrings if opening.match(text)]
