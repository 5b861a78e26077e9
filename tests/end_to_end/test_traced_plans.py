"""Plans of traced functions have a step for each call."""

from html import unescape

import numpy as np

import shardcall as sc
from shardcall_core.placements.placement import ArrayPlacement

AXES = {"x": 4, "y": 2}


def network(xp, u, w):
    half = np.diff(u, axis=0) * 0.5
    looped = xp.fori_loop(0, 3, lambda _, s: s + np.roll(s, 1, 0), half)
    branch = xp.cond(
        looped.sum() > 0,
        lambda s: s * 2,
        lambda s: -s,
        looped,
    )
    return branch @ w


def line_of(offset):
    return f"{__file__}:{network.__code__.co_firstlineno + offset}"


def test_a_plan_has_a_step_for_every_call(client):
    u = client.put(np.ones((65, 16)), mesh=AXES, spec=("x", None))
    plan = client.jit(lambda u, w: network(client.xp, u, w)).plan(u, sc.Array((16, 6), "float64"))
    diff, _, loop, _, _, cond, matmul = plan.steps
    assert [step.kernel for step in plan.steps] == ["diff", "multiply", "graph", "sum", "greater", "cond", "matmul"]
    assert (diff.strategy, diff.sources) == ("halo", ("operand 0",))
    assert diff.results[0] == ArrayPlacement(sc.Array((64, 16), "float64"), sc.P("x", None), (64, 16), (16, 16))
    assert diff.bytes_per_device == (17 + 16) * 16 * 8
    assert matmul.sources == ("step 5", "operand 1")
    assert matmul.flops_per_device == 2 * 64 * 16 * 6 / 8
    assert matmul.results[0].spec == plan.results[0].spec == sc.P("x", "y")
    assert [(step.kernel, step.sources) for step in loop.bodies[0]] == [
        ("roll", ("operand 0",)),
        ("add", ("operand 0", "step 0")),
    ]
    assert [[step.kernel for step in body] for body in cond.bodies] == [["negative"], ["multiply"]]
    lines = [diff, loop.bodies[0][0], cond.bodies[0][0], cond.bodies[1][0], matmul]
    assert [step.line for step in lines] == [line_of(i) for i in (1, 2, 6, 5, 9)]


def test_steps_are_printed_and_drawn(client):
    u = client.put(np.ones((65, 16)), mesh=AXES, spec=("x", None))
    plan = client.jit(lambda u: np.tanh(np.diff(u, axis=0))).plan(u)
    line = f"{__file__}:{test_steps_are_printed_and_drawn.__code__.co_firstlineno + 2}"
    step = f"diff of operand 0 by halo: float64[64,16] P('x', None); 4.125 KiB, 384 bytes exchanged a device, at {line}"
    assert f"  step 0       {step}" in str(plan).split("\n")
    assert "result 0 of tanh: float64[64,16] P('x', None) on Mesh(x=4, y=2)" in str(plan.steps[1].visualize("result"))
    assert repr(plan.steps[1]).startswith("<PlanStep tanh of step 0 by gspmd: float64[64,16]")
    html = plan._repr_html_()
    assert "result 0, step 0, step 1: float64[64,16] P('x', None) on Mesh(x=4, y=2)" in unescape(html)
    assert html.count("<caption") <= 2  # of the operand, and of what has the layout of the result
    assert client.plan("negative", u).steps == ()


def test_a_traced_function_shows_its_programs_and_their_hits(client):
    def step(u, k: float = 0.5):
        return np.tanh(u) * k

    traced = client.jit(step)
    assert "programs" in (html := traced._repr_html_())
    assert "step(u, k: float = 0.5)" in html
    u = client.put(np.ones((65, 16)), mesh=AXES, spec=("x", None))
    for _ in range(3):
        traced(u).get()
    assert "<h4" not in traced._repr_html_()
    plan = traced.plan(u)
    html = traced._repr_html_()
    assert "float64[65,16]" in html
    assert ">3<" in html  # the second call, the third and the plan
    assert plan.key_digest[:16] in html


def test_long_plans_are_printed_in_part(client):
    def many(u):
        for _ in range(40):
            u = np.sin(u) * u
        return u

    plan = client.jit(many).plan(sc.Array(8, "float32"))
    assert len(plan.steps) == 80
    assert "\n               16 more, in plan.steps\n" in str(plan)


def test_a_plan_of_an_edited_function_states_what_differs(client):
    u = sc.Array((13, 9), np.float64)
    client.jit(lambda u: np.arctan(u * 3.25).sum(axis=0))(np.ones((13, 9))).get()
    plan = client.jit(lambda u: np.arctan(u * 3.25).sum(axis=1)).plan(u)
    assert not plan.cache_hit
    assert "graph" in plan.explanation


def test_derivatives_batches_and_loops_in_slices_have_steps(client):
    u = client.put(np.ones((6, 4)), mesh=AXES, spec=("x", None))
    (step,) = client.grad(lambda u: np.sin(u).sum()).plan(u).steps
    assert [step.kernel for step in step.bodies[0]] == ["sin", "sum"]
    (step,) = client.grad(lambda u: (u[1:] + u[:-1]).sum()).plan(u).steps
    assert "together" not in {step.strategy for step in step.bodies[0]}
    (step,) = client.vmap(lambda row: row * 2).plan(u).steps
    assert step.bodies[0][0].results[0].type == sc.Array(4, "float64")
    sliced = client.jit(lambda u, n: np.cos(client.xp.fori_loop(0, n, lambda _, s: s * 0.5, u)))
    assert [[step.kernel for step in plan.steps] for plan in sliced.plan(u, 5)] == [["multiply"], ["cos"]]
