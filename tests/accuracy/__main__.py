"""Measures every kernel on a private server and writes docs/accuracy.md; see the document itself."""

import argparse
import os
import sys
import tempfile
from functools import partial

import numpy as np
from accuracy import document, evaluation, gpu, programs

import shardcall as sc

_DEVICES = 8


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"few sizes: {evaluation.SOME_SIZES}")
    parser.add_argument("--gpu", action="store_true", help="on a GPU, into docs/accuracy-gpu.md; skips without one")
    options = parser.parse_args()
    sizes = partial(evaluation.sizes_of, quick=options.quick)
    if options.gpu:
        return gpu.main(sizes)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDCALL_CACHE_DIR"] = folder
        with sc.local(devices=_DEVICES, strategy="fixed", progress=False) as client:
            conditions = document.conditions(client.server_info(), sizes)
            stated = document.stated_conditions(document.PATH.read_text())
            if options.quick and (why := document.refusal(stated, conditions)):
                sys.exit(f"{document.PATH.name}: {why}")
            of_programs = {name: programs.measured(client, name) for name in programs.EXPRESSIONS}
            document.write(document.PATH, programs.table(of_programs), (document.BEGIN_PROGRAMS, document.END_PROGRAMS))
            table = evaluation.measured(client, evaluation.all_cases(sizes, _DEVICES))
    document.write(document.PATH, document.generated(table, conditions))
    print(f"{document.PATH.name}: {len(table)} pairs of kernel and element type")  # noqa: T201
    return 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
