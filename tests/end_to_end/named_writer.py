"""A process that writes to an array with a name until it is killed: ADDRESS NAME."""

import sys
from contextlib import suppress

import shardcall as sc

client = sc.connect(sys.argv[1])
array = client.open(sys.argv[2])
value = 0
while True:
    value += 1
    with suppress(sc.InvalidRequestError, sc.ArrayLostError):  # another process was faster
        array[...] = value
        if value % 2:
            array += 1
    if value == 3:
        sys.stdout.write("writing\n")
        sys.stdout.flush()
