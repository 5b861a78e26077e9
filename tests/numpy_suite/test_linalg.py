"""NumPy's `numpy.linalg.tests.test_linalg`, through the service."""

from numpy_suite.borrowed import borrow

globals().update(borrow("numpy.linalg.tests.test_linalg"))
