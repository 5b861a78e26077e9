"""Published programs, by their owners and names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardcall_core.array_names import MAX_NAME, NAME
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import lock
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable

MAX_MODELS = 64
"""The most models of a principal."""

MAX_SHARED_MODELS = 4096
"""The most shared models of all principals: `RepositoryIndex` lists them in one message."""


class Tensor(NamedTuple):
    """An input or an output of a model.

    Attributes:
        name: its name.
        type: its type.
    """

    name: str
    type: ArrayType


class ModelOperand(NamedTuple):
    """An operand of the program of a model: one of these.

    Attributes:
        input_index: the index of the input that it is.
        constant: the type and the bytes of an array that is a part of the model.
        array_name: the name of an array on the mesh.
    """

    input_index: int | None = None
    constant: tuple[ArrayType, bytes] | None = None
    array_name: str = ""


@dataclass(frozen=True, eq=False)
class Model:
    """A published program.

    Attributes:
        name: its name.
        owner: its principal; empty without authentication.
        inputs: its inputs.
        outputs: its outputs.
        operands: the operands of its call.
        template: its call.
        shared: whether other principals may run it.
        payer: the owner whose budget its bytes count against.
        nbytes: its bytes.
        digest: the digest of the request that published it.
        version: its version.
    """

    name: str
    owner: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    operands: Sequence[ModelOperand]
    template: CallTemplate
    shared: bool
    payer: str
    nbytes: int
    digest: bytes
    version: int = 1

    def name_for(self, principal: str) -> str:
        """Returns the name by which a principal runs it."""
        return self.name if principal == self.owner else f"{self.owner}/{self.name}"


class ModelTable:
    """The models; safe to use from several threads at once.

    Args:
        budget: the memory that models take.
        is_active: returns whether a principal has a valid token, without which others do not see its models.
    """

    def __init__(self, budget: MemoryBudget, is_active: Callable[[str], bool]) -> None:
        self._budget = budget
        self._is_active = is_active
        self._lock = lock("the lock of models")  # guards the models
        self._models: dict[tuple[str, str], Model] = {}

    def put(self, model: Model) -> Model:
        """Adds a model, in place of another one of its name; returns the model of that name, with its version.

        Raises:
            CallError: QUOTA_EXCEEDED, SERVER_BUSY.
        """
        self._budget.reserve(model.payer, model.nbytes)
        released: Model | None = model
        try:
            with self._lock:
                before = self._models.get((model.owner, model.name))
                if before is not None and (before.digest, before.outputs) == (model.digest, model.outputs):
                    return before
                self._check_counts(model)
                if before is not None:
                    model = replace(model, version=before.version + 1)
                self._models[model.owner, model.name] = model
                released = before
                return model
        finally:
            if released is not None:
                self._budget.release(released.payer, released.nbytes)

    def remove(self, name: str, owner: str) -> bool:
        """Removes a model; returns whether there was one."""
        with self._lock:
            model = self._models.pop((owner, name), None)
        if model is not None:
            self._budget.release(model.payer, model.nbytes)
        return model is not None

    def find(self, name: str, principal: str) -> Model | None:
        """Returns the model that a principal may run by a name; None if there is none."""
        owner, slash, of_owner = name.rpartition("/")
        with self._lock:
            model = self._models.get((owner if slash else principal, of_owner))
        return model if model is not None and self._is_visible(model, principal) else None

    def visible(self, principal: str) -> list[Model]:
        """Returns the models that a principal may run, by name."""
        with self._lock:
            models = list(self._models.values())
        visible = [model for model in models if self._is_visible(model, principal)]
        return sorted(visible, key=lambda model: model.name_for(principal))

    def retain(self, is_principal: Callable[[str], bool]) -> None:
        """Removes the models of those that are no principals."""
        with self._lock:
            owners = list(self._models)
        for owner, name in owners:
            if not is_principal(owner):
                self.remove(name, owner)

    def _is_visible(self, model: Model, principal: str) -> bool:
        return model.owner == principal or (model.shared and self._is_active(model.owner))

    def _check_counts(self, model: Model) -> None:
        others = [item for key, item in self._models.items() if key != (model.owner, model.name)]
        for limit, count, allowed, which in (
            ("models", sum(item.owner == model.owner for item in others), MAX_MODELS, "models of this principal"),
            ("shared_models", model.shared and sum(item.shared for item in others), MAX_SHARED_MODELS, "shared models"),
        ):
            if count >= allowed:
                raise CallError(
                    Reason.QUOTA_EXCEEDED,
                    f"{allowed} {which} are published, the most allowed; unpublish one",
                    field="name",
                    metadata={"limit": limit, "allowed": str(allowed)},
                )


def check_model_name(name: str) -> None:
    """Raises CallError unless a name has the form of one."""
    if not NAME.fullmatch(name):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the name is {shorten(name)!r}; give 1 to {MAX_NAME} ASCII letters, digits, '.', '_' and '-'",
            field="name",
        )


def operand_source(
    array_table: ResidentArrayTable, owner: str, operand: ModelOperand, inputs: Sequence[Tensor]
) -> OperandSource:
    """Returns the source of an operand of a model.

    Args:
        owner: the principal of the model.
        operand: the operand.
        inputs: the inputs of the model.

    Raises:
        CallError: ARRAY_LOST.
    """
    if operand.array_name:
        resident = array_table.open(operand.array_name, owner)
        return OperandSource(resident.type, resident=resident)
    if operand.constant is not None:
        return OperandSource(operand.constant[0])
    assert operand.input_index is not None
    return OperandSource(inputs[operand.input_index].type)
