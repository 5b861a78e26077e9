"""The sharding of contractions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from shardcall_core.functions.contraction import STRETCHED, Contraction
from shardcall_core.functions.subscripts import operand_names
from shardcall_core.layouts.layout import Spec
from shardcall_server.kernels.core.kernel import Problem

ContractionOf = Callable[[Problem], Contraction]
"""The contraction that a kernel computes for a problem."""


@dataclass(frozen=True)
class ContractionSharding:
    """The sharding of a contraction's operands.

    Attributes:
        contraction: the labels of the operands and of the result.
        specs: the spec of each operand.
    """

    contraction: Contraction
    specs: tuple[Spec, ...]

    @staticmethod
    def of(problem: Problem, contraction: Contraction) -> ContractionSharding:
        """Returns the sharding of a problem's operands."""
        return ContractionSharding(contraction, tuple(spec for spec in problem.in_specs if spec is not None))

    def axes(self, label: str) -> list[tuple[str, tuple[str, ...]]]:
        """Returns the name of each axis of a label, and the mesh axes it is sharded over."""
        return [
            (f"axis {i} of {name}", names)
            for name, labels, spec in zip(
                operand_names(len(self.specs)), self.contraction.labels, self.specs, strict=True
            )
            for i, (other, names) in enumerate(zip(labels, spec, strict=True))
            if other == label
        ]

    def mesh_axes(self, label: str) -> tuple[str, ...]:
        """Returns the mesh axes that a label's first axis is sharded over."""
        return self.axes(label)[0][1]

    @property
    def label_axes(self) -> dict[str, tuple[str, ...]]:
        """The mesh axes that shard each label, of the first of its axes that is sharded; each mesh axis occurs once.

        Labels of the result come first.
        """
        used, label_axes = set[str](), {}
        for label in (*self.contraction.result, *self.contraction.summed):
            names = next((names for _, names in self.axes(label) if names), ())
            if not used & {*names}:
                label_axes[label] = names
                used |= {*names}
        return label_axes

    @property
    def summed_mesh_axes(self) -> tuple[str, ...]:
        """The mesh axes over which partial sums have to be completed."""
        return tuple(name for label in self.contraction.summed for name in self.mesh_axes(label))

    @property
    def result_spec(self) -> Spec:
        """The result's spec if every device keeps the product of its blocks."""
        return tuple(self.mesh_axes(label) for label in self.contraction.result)

    @property
    def used(self) -> tuple[str, ...]:
        """All mesh axes that shard an operand."""
        return tuple(dict.fromkeys(name for spec in self.specs for names in spec for name in names))

    def refusal(self, gathered: Collection[str] = ()) -> str | None:
        """Returns why devices cannot multiply their own blocks, apart from labels to be gathered; None if they can."""
        for name, names in self.axes(STRETCHED):
            if names:
                return (
                    f"{name} has size 1, is broadcast and is sharded over {format_mesh_axes(names)}, and it must not "
                    "be sharded"
                )
        seen: dict[str, str] = {}
        for label in dict.fromkeys(label for axes in self.contraction.labels for label in axes):
            if label == STRETCHED or label in gathered:
                continue
            (first, mesh_axes), *others = self.axes(label)
            for other, names in others:
                if names != mesh_axes:
                    return (
                        f"{first} is sharded over {format_mesh_axes(mesh_axes)} and {other} over "
                        f"{format_mesh_axes(names)}, and it serves corresponding axes that are sharded alike"
                    )
            for name in mesh_axes:
                if name in seen:
                    return f"{seen[name]} and {first} are both sharded over {name!r}, and it serves different mesh axes"
                seen[name] = first
        return None


def format_mesh_axes(names: tuple[str, ...]) -> str:
    """Formats mesh axes for a message."""
    return ", ".join(map(repr, names)) or "no mesh axis"
