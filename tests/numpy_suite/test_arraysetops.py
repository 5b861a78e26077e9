"""NumPy's `numpy.lib.tests.test_arraysetops`, through the service."""

from numpy_suite.borrowed import borrow

globals().update(borrow("numpy.lib.tests.test_arraysetops"))
