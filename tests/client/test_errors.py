import copy
import inspect
import pickle

import grpc
import numpy as np
from rows import rows

import shardcall
from shardcall._src.rpc.status import ERRORS_BY_REASON, ERRORS_BY_STATUS
from shardcall.v1 import error_pb2
from shardcall_core.types import errors
from shardcall_core.types.timing import Timing

CLASSES = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, errors.ShardcallError)]


def test_every_reason_of_the_contract_has_a_class():
    reasons = set(error_pb2.ErrorReason.values()) - {error_pb2.ERROR_REASON_UNSPECIFIED}
    assert set(ERRORS_BY_REASON) == reasons


def test_every_status_of_grpc_has_a_class_and_a_sentence():
    assert set(ERRORS_BY_STATUS) == set(grpc.StatusCode)
    for error_class, sentence in ERRORS_BY_STATUS.values():
        assert issubclass(error_class, shardcall.ShardcallError)
        assert sentence.format(address="host:1", timeout="1 s", details="why")


@rows("error_class", CLASSES)
def test_every_class_can_be_imported_created_shown_copied_and_pickled(error_class):
    assert getattr(shardcall, error_class.__name__) is error_class
    error = error_class(
        "text",
        reason="REASON",
        field="mesh",
        metadata={"axis": "3", "ndim": "2"},
        timing=Timing(total=1.0),
        status=grpc.StatusCode.INTERNAL,
        retry_after_s=0.5,
    )
    for same in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(same) == same.message == "text"
        assert (same.reason, same.field, same.retry_after_s) == ("REASON", "mesh", 0.5)
        assert same.timing == Timing(total=1.0)
        assert same.status is grpc.StatusCode.INTERNAL
    assert repr(error) == f"{error_class.__name__}('text')"
    assert error_class("text").metadata == {}


@rows("error_class", [error_class for error_class in CLASSES if error_class is not shardcall.ShardcallError])
def test_every_class_is_a_builtin_that_one_would_catch(error_class):
    assert issubclass(error_class, shardcall.ShardcallError)
    assert any(
        not issubclass(base, errors.ShardcallError) and base not in (Exception, BaseException, object)
        for base in error_class.mro()
    )


@rows("error_class", CLASSES)
def test_the_tree_in_the_docstring_is_the_tree(error_class):
    assert errors.__doc__ is not None
    lines = [line for line in errors.__doc__.splitlines() if f" {error_class.__name__}" in line]
    assert len(lines) == 1, error_class
    if error_class is not shardcall.ShardcallError:
        depth = lines[0].index(error_class.__name__) // 4 - 1
        ours = [base for base in error_class.mro() if base in CLASSES]
        assert depth == len(ours) - 1
        if "(" in lines[0]:
            named = lines[0].split("(")[1].split(")")[0].rpartition(".")[2]
            assert named in [base.__name__ for base in error_class.mro()]


def test_an_axis_error_is_numpys():
    error = shardcall.AxisError("axis 3", metadata={"axis": "3", "ndim": "2"})
    assert isinstance(error, np.exceptions.AxisError)
    assert isinstance(error, IndexError)
    assert (error.axis, error.ndim) == (3, 2)
    bare = shardcall.AxisError("axis 3", metadata={"axis": "x"})
    assert (bare.axis, bare.ndim) == (None, None)
