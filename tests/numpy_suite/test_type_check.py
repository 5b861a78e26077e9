"""NumPy's `numpy.lib.tests.test_type_check`, through the service."""

from numpy_suite.borrowed import borrow

globals().update(borrow("numpy.lib.tests.test_type_check"))
