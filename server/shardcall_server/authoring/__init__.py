"""The interface for kernels of other packages, and a check that runs them as the server does.

Every name here keeps its meaning from one release to the next. A kernel registers under the entry-point group
``shardcall.kernels``; examples/own_kernel is a package that does.
"""

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.checks import boolean, integer, number, text
from shardcall_core.functions.signature import (
    REQUIRED,
    OperandInfo,
    ParameterInfo,
    ParameterValue,
    Signature,
    ValueCheck,
)
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, replicated, required, sharded
from shardcall_server.authoring.check import Report, check
from shardcall_server.kernels.core.blocks import fit, mask_from, partition_spec
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.core.value_checks import any_element

__all__ = [
    "REQUIRED",
    "ArrayType",
    "CallError",
    "Kernel",
    "MeshAxes",
    "OperandInfo",
    "ParameterInfo",
    "ParameterValue",
    "Problem",
    "Program",
    "Reason",
    "Report",
    "Reproducibility",
    "Signature",
    "Spec",
    "Strategy",
    "ValueCheck",
    "any_element",
    "boolean",
    "check",
    "fit",
    "integer",
    "mask_from",
    "number",
    "partition_spec",
    "replicated",
    "required",
    "sharded",
    "text",
]
